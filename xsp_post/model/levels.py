"""The levels of the tree, outermost first, and the notation of leveled runs (XSP §III).

XSP names three levels (model, layer, GPU kernel) and is explicitly extensible on both sides and in
between. MODULE (a range between model and layer: a group of layers) and OPERATION (a range inside a
layer) are such in-between levels: they nest and are shown, but accounting is done at LAYER.
"""

from enum import IntEnum


class Level(IntEnum):
    """Depth class of a tree node; smaller is further out. Stored as its name (``MODEL``, ``LAYER`` …)."""

    CAPTURE = 0  # the root of a capture, and the synthetic [unattributed] nodes below it
    APPLICATION = 1  # ranges around the model: set-up, data loading, benchmark loops
    MODEL = 2  # one execution of the model = one iteration
    MODULE = 3  # groups layers
    LAYER = 4  # what the layer tables count
    OPERATION = 5  # ranges inside a layer
    LIBRARY = 6  # cuDNN / cuBLAS / NCCL calls
    KERNEL = 7  # device activities; rows of `kernels`, never rows of `nodes`


# Leveled runs: the deepest profiler that is on (XSP §III-C).
RUN_MODEL = "M"
RUN_LAYER = "M/L"
RUN_KERNEL = "M/L/G"
RUN_COUNTERS = "M/L/G+counters"
RUN_LEVELS = (RUN_MODEL, RUN_LAYER, RUN_KERNEL, RUN_COUNTERS)
RUN_LEVEL_WORDS = dict(zip(RUN_LEVELS, ("no profiler", "layer ranges", "ranges and kernels", "counters")))
RUN_LEVEL_TEXTS = {level: f"{level} ({word})" for level, word in RUN_LEVEL_WORDS.items()}
# How the levels are typed on the command line (`--levels M,ML,MLG`).
RUN_LEVEL_OPTIONS = {"M": RUN_MODEL, "ML": RUN_LAYER, "MLG": RUN_KERNEL}
