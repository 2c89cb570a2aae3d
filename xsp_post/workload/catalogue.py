"""Names of the built-in workloads and the error messages of this package, without importing torch."""

from pathlib import Path

from xsp_post.base.errors import UsageError
from xsp_post.base.text_safety import did_you_mean

BUILT_IN = ("resnet50", "mobilenet_v1", "vgg16", "gpt")
COLLECTIONS = ("torchvision", "timm", "transformers")


def check_name(name: str) -> None:
    """UsageError (code `model-unknown`), with names close to it, unless the name can be a model's.

    Looks at the name and, for a factory, at its file; imports nothing.
    """
    collection, separator, rest = name.rpartition(":")
    if separator and collection.endswith(".py"):
        if not Path(collection).is_file():
            raise UsageError(f"The model's file {collection} does not exist.", code="model-unknown")
        return
    if (separator and rest and collection in COLLECTIONS) or name in BUILT_IN:
        return
    said = f"There is no model {name!r}.", did_you_mean(name.lower(), BUILT_IN, cutoff=0.5)
    raise UsageError(" ".join(filter(None, (*said, f"Built in are {', '.join(BUILT_IN)}."))), code="model-unknown")
