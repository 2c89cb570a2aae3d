"""One step of inference → a range that says its kind, requests, tokens and context (`range_text`)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from xsp_post.base.errors import UsageError
from xsp_post.names import range_text
from xsp_post.names.step_texts import kind_of_word
from xsp_post.workload.ranges import ListeningSink, Sink

heard_by: list[Sink] = []  # the recorder that runs the program, while it does
_listening = cache(ListeningSink)


@contextmanager
def step(
    kind: str, tokens: int | Sequence[int] = 1, context: int | Sequence[int] = 0, *, requests: int = 0,
    bucket: int = 0, ids: Sequence[object] = (),
) -> Iterator[None]:  # fmt: skip
    """A range around one step of an inference loop, to whatever listens: nsys, ncu or torch.profiler.

    ``kind``: prefill, decode, mixed, verify, draft or encoder. ``tokens``: how many tokens each request computes;
    ``context``: how many keys they attend to, those of the step included. Each is one number for all requests, or one
    number a request. ``requests``: how many there are, where no sequence says it. ``bucket``: requests that the CUDA
    graph was made for. ``ids``: names of the requests, for the table requests.

    Raises UsageError for an unknown kind, or sequences of unlike length.
    """
    lengths = {len(one) for one in (tokens, context) if not isinstance(one, int)} | ({requests} if requests else set())
    if kind not in kind_of_word() or len(lengths) > 1:
        raise UsageError(
            f"xsp_post.step: {kind!r} is no kind of step, or tokens and context are of unlike length.",
            code="step-range",
            hint=f"Kinds are {', '.join(dict.fromkeys(kind_of_word().values()))}.",
        )
    count = lengths.pop() if lengths else 1
    each = [[one] * count if isinstance(one, int) else one for one in (tokens, context)]
    text = range_text.format_step(kind_of_word()[kind], each[0], each[1], bucket, ids)
    sink: Any = heard_by[-1] if heard_by else _listening()
    sink.push(sink.prepare(text, range_text.STEP, count))
    try:
        yield
    finally:
        sink.pop(None)
