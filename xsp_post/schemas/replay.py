"""The tables of replays: what a replay needs, its error, the critical path, collectives."""

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.base import Table, register

DEPENDENCIES = register(
    Table(
        "dependencies",
        "Dependencies that a replay needs",
        "host call that waits for the device, or event that orders two streams",
        (
            C("capture_id", "int64", "capture"),
            C(
                "kind",
                "str",
                "device_wait, stream_wait, event_wait (a host call that waits), event_order (a stream waits for an "
                "event of another)",
            ),
            C(
                "from_id",
                "float64",
                "correlation_id, within the process, of the last operation launched before: what is waited for "
                "(empty: none)",
            ),
            C(
                "to_id",
                "float64",
                "correlation_id of the first operation that the thread launched after it, or of the first one that "
                "the event holds back (empty: none)",
            ),
            C("process_id", "int64", "process", is_optional=True),
            C("thread_id", "int64", "thread of the call", is_optional=True),
            C("stream_id", "float64", "stream that is waited for, or that waits for the event (empty: not recorded)"),
            C("call_name", "str", "the API call"),
            C("start_ns", "int64", "start of the call"),
            C("end_ns", "int64", "end of the call"),
        ),
    )
)

REPLAYS = register(
    Table(
        "replays",
        "Replays of the recordings as they were",
        "capture with device work",
        (
            C("capture_id", "int64", "capture"),
            C("execution", "str", "what one execution is: its phase, or recording where none is known"),
            C("execution_count", "int64", "executions that are compared (no warm-up)"),
            C("measured_ns", "int64", "first to last device work, recorded"),
            C("replayed_ns", "int64", "the same in the replay, which knows no recorded start of device work"),
            C(
                "error_ratio",
                "float64",
                "the larger of the whole recording's error and the median execution's; is shown with every prediction",
            ),
            C(
                "orphan_ratio",
                "float64",
                "share of device operations (or of their time, the larger) without a launch row",
            ),
            C("refusal", "str", "why nothing is predicted from this capture ('': it is)"),
        ),
    )
)

CRITICAL_PATH = register(
    Table(
        "critical_path",
        "Critical path of an execution",
        "interval of the chain that decides the length of one execution",
        (
            C("capture_id", "int64", "capture"),
            C("iteration_index", "float64", "the execution, the one with the median latency (empty: the recording)"),
            C("step_index", "int64", "0-based, in order of time: each interval ends where the next begins"),
            C(
                "kind",
                "str",
                "kernel, memcpy, memset, graph, communication, host (code between calls), launch call, launch latency, "
                "gap between operations, synchronisation",
            ),
            C("name", "str", "the operation ('' for host time and gaps)"),
            C("layer_index", "float64", "layers.layer_index it belongs to (empty: none)"),
            C("operation_count", "int64", "operations in it: neighbours of one name and layer are one row"),
            C("start_ns", "int64", "start"),
            C("end_ns", "int64", "end"),
            C("duration_ns", "int64", "end_ns - start_ns; over all rows the execution's length exactly"),
        ),
    )
)

COLLECTIVES = register(
    Table(
        "collectives",
        "Collectives by rank",
        "communication kernel: one collective on one rank",
        (
            C("capture_id", "int64", "capture"),
            C("process_id", "int64", "process of the rank", is_optional=True),
            C("device_id", "int64", "device of the rank"),
            C("stream_id", "int64", "stream", is_optional=True),
            C("name", "str", "kernel without what varies from build to build"),
            C(
                "kind",
                "str",
                "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send_recv ('': the name does "
                "not say)",
            ),
            C(
                "order_index",
                "int64",
                "k-th of that name on its rank: the same number on the other ranks is the same one",
            ),
            C("start_ns", "int64", "start, on the clock of its capture"),
            C("end_ns", "int64", "end"),
            C(
                "duration_ns",
                "int64",
                "end_ns - start_ns = transfer_ns + waiting_ns + launch_skew_ns where these are known",
            ),
            C("launch_start_ns", "float64", "start of its launch call (empty: no launch row)"),
            C(
                "transfer_ns",
                "float64",
                "from the arrival of the last rank to the end (empty: not matched between ranks)",
            ),
            C("waiting_ns", "float64", "waiting for the last rank, whose device still had other work"),
            C("launch_skew_ns", "float64", "waiting for the last rank, as far as that one launched it later"),
            C("clock_offset_ns", "float64", "how far the clock of its capture is ahead of the first rank's"),
            C("overlapped_ns", "float64", "time in which other kernels of the device ran at the same time"),
            C("message_bytes", "float64", "message size, the larger side (empty: not recorded)"),
            C("group_size", "float64", "ranks of its group as recorded (empty: not recorded)"),
            C("rank_count", "float64", "ranks it was matched over, else group_size"),
            C(
                "bus_bandwidth_bytes_per_s",
                "float64",
                "message_bytes / transfer time × the factor of nccl-tests (2(n-1)/n for all_reduce, (n-1)/n for "
                "all_gather, reduce_scatter, all_to_all, 1 else)",
            ),
        ),
    )
)
