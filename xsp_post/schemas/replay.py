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
            C("process_id", "int64", "process"),
            C("thread_id", "int64", "thread of the call"),
            C("stream_id", "float64", "stream that is waited for, or that waits for the event (empty: not recorded)"),
            C("call_name", "str", "the API call"),
            C("start_ns", "int64", "start of the call"),
            C("end_ns", "int64", "end of the call"),
        ),
    )
)
