"""Names and numbers that a trace, a tree and the tables of results share."""

from enum import IntEnum

SELF = "[self]"  # stands for the work of a model or module between its layers
PHASES = ("", "forward", "backward", "optimizer", "other")  # of training
GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")  # of a launch
# overheadType of nsys: driver JIT, runtime-triggered module loading, lazy function loading
LOADING_TYPES = (2, 6, 7)


class ActivityKind(IntEnum):
    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    GRAPH = 3  # an opaque graph launch: its kernels were not recorded
