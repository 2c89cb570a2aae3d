"""The tables about memory: what was allocated by whom, what was live at the peak, and every allocation and release."""

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.base import Table, register

_PLACE = (
    C("capture_id", "int64", "capture"),
    C("process_id", "int64", "operating-system process id", is_optional=True),
    C("device_id", "int64", "CUDA device number within the process, empty: memory of the host", is_optional=True),
    C("memory_kind", "str", "device, host, pinned (host), managed"),
)

MEMORY_DEVICES = register(
    Table(
        "memory_devices",
        "Memory by device",
        "device of a process, or host memory of a process, with recorded allocations",
        (
            *_PLACE,
            C("recorded_by", "str", "framework (its allocator) or driver (cudaMalloc and similar calls)"),
            C("allocation_count", "int64", "allocations"),
            C("release_count", "int64", "releases"),
            C("allocated_bytes", "int64", "bytes allocated, summed"),
            C("released_bytes", "int64", "bytes released, summed"),
            C(
                "earlier_bytes",
                "int64",
                "live before the first event; of a driver's record: at least",
            ),
            C("peak_bytes", "int64", "most that was live at once: earlier + allocated - released up to then"),
            C("peak_ns", "int64", "when that was reached first"),
            C(
                "peak_offset_ns",
                "int64",
                "the same as --from counts it: after the first event, of nsys after the session's start",
            ),
            C("peak_range", "str", "innermost range with device work in which it was reached ('' none)"),
            C("end_bytes", "int64", "live after the last event"),
            C(
                "reserved_bytes",
                "int64",
                "most that the framework's allocator held from the driver, empty: not recorded",
                is_optional=True,
            ),
            C("memory_bytes", "int64", "memory of the GPU, empty: not recorded", is_optional=True),
        ),
    )
)

MEMORY = register(
    Table(
        "memory",
        "Memory by layer",
        "device × layer, or range outside of layers, × training phase",
        (
            C("memory_id", "int64", "id, unique in the store"),
            *_PLACE,
            C(
                "owner_kind",
                "str",
                "layer, range (in no layer), none (in no range), earlier (allocated before the recording, or by "
                "threads that were not recorded)",
            ),
            C("owner", "str", "layers.layer_path, or the folded name of the range; [earlier], [no range]"),
            C("layer_index", "int64", "layers.layer_index, empty: in no layer", is_optional=True),
            C("layer_type", "str", "class or operator type of the layer"),
            C(
                "training_phase",
                "str",
                "forward, backward (gradients), optimizer, other; '' where nothing tells them apart",
            ),
            C(
                "allocation_count",
                "int64",
                "allocations made in all its calls; backward work counts for its layer",
            ),
            C("allocated_bytes", "int64", "their bytes, summed; empty: not recorded", is_optional=True),
            C("release_count", "int64", "how many of these were released, wherever that was"),
            C("released_bytes", "int64", "bytes of those"),
            C("most_live_bytes", "int64", "most that it held at once, at whatever time"),
            C("live_at_peak_bytes", "int64", "what it held at the device's peak; sums to memory_devices.peak_bytes"),
            C("live_at_peak_ratio", "float64", "share of the peak"),
            C("live_at_end_bytes", "int64", "what it held after the last event"),
        ),
    )
)

MEMORY_TIMELINE = register(
    Table(
        "memory_timeline",
        "Memory over time",
        "allocation or release",
        (
            *_PLACE,
            C("memory_id", "int64", "memory.memory_id: whose memory it is"),
            C("start_ns", "int64", "when"),
            C("change_bytes", "int64", "bytes allocated; negative: released"),
            C("total_bytes", "int64", "live after it, as the capture says or as the sum of all before"),
            C("reserved_bytes", "int64", "held from the driver by the framework's allocator", is_optional=True),
            C(
                "end_ns",
                "int64",
                "of an allocation: its release, empty: not recorded",
                is_optional=True,
            ),
            C("node_id", "int64", "range in which the memory was allocated, empty: none, earlier", is_optional=True),
            C("layer_index", "int64", "layers.layer_index whose memory it is, empty: none", is_optional=True),
            C("iteration_index", "int64", "model execution in which it was allocated, empty: none", is_optional=True),
        ),
    )
)
