"""Names of the built-in workloads and the error messages of this package, without importing torch."""

import difflib
from pathlib import Path

from xsp_post.base.errors import UsageError

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
    close = difflib.get_close_matches(name.lower(), BUILT_IN, n=3, cutoff=0.5)
    offer = f"Did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(f"There is no model {name!r}. {offer}Built in are {', '.join(BUILT_IN)}.", code="model-unknown")
