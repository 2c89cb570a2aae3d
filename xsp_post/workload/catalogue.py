"""``run``'s view of the workloads without torch: which names there are, and the messages of this room."""

from __future__ import annotations

import difflib
from pathlib import Path

from xsp_post.base.errors import MESSAGES, UsageError

MESSAGES.update({
    "device-missing": (
        "The device asked for is not there, or torch cannot see it.",
        "Use --device cpu, or see with xsp-post doctor what is missing (driver, a CUDA build of torch).",
    ),
    "layer-kind": (
        "No module of the model is of the class given with --layer-kind.",
        "Give class names as print(model) shows them, e.g. --layer-kind Conv2d,Linear.",
    ),
    "layers-compiled": (
        "torch.compile fuses the modules: there are no module calls left that a layer range could be put around.",
        "Measure the compiled model at levels M and M/L/G, or the uncompiled one at all levels.",
    ),
    "model-factory": (
        "The factory did not return (module, inputs).",
        "Return an nn.Module and its inputs: a tensor, a tuple or a dict; a third value may name phases.",
    ),
    "model-input": (
        "The model cannot be built or run with this input shape, mode or type.",
        "Choose other --input-shape, --mode or --dtype.",
    ),
    "model-package": (
        "The model comes from a package that is not installed.",
        "Install the package that the message names, or choose a built-in model.",
    ),
    "model-unknown": (
        "No model, file or factory has that name.",
        "Use a built-in name, torchvision:NAME, timm:NAME, transformers:CLASS or path/to/file.py:factory.",
    ),
    "nvtx-missing": (
        "The Python package nvtx, which writes ranges for nsys and ncu, is not installed.",
        "pip install 'xsp-post[run]'.",
    ),
    "ranges-sink": (
        "Ranges can go to NVTX or to torch.profiler.",
        "Use to='nvtx' under nsys or ncu, to='torch' under torch.profiler, or leave it out.",
    ),
})  # fmt: skip

BUILT_IN = ("resnet50", "mobilenet_v1", "vgg16", "gpt")
COLLECTIONS = ("torchvision", "timm", "transformers")


def check_name(name: str) -> None:
    """UsageError (code `model-unknown`), with names close to it, unless the name can be a model's.

    Looks at the name and, for a factory, at its file; imports nothing.
    """
    collection, separator, rest = name.rpartition(":")
    if separator and collection.endswith(".py"):
        if not Path(collection).is_file():
            raise UsageError(f"The model's file {collection} does not exist.", code="model-unknown",
                             hint="Name it as path/to/file.py:factory.")  # fmt: skip
        return
    if (separator and rest and collection in COLLECTIONS) or name in BUILT_IN:
        return
    close = difflib.get_close_matches(name.lower(), BUILT_IN, n=3, cutoff=0.5)
    offer = f"Did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(
        f"There is no model {name!r}. {offer}Built in are {', '.join(BUILT_IN)}.", code="model-unknown",
        hint="Others are named torchvision:NAME, timm:NAME, transformers:CLASS or path/to/file.py:factory.",
    )  # fmt: skip
