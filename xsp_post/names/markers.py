"""Step texts of serving and benchmark programs → columns: kind of the step, batch size and number of tokens.

SGLang writes ``step[EXTEND bs=15 toks=15360]``, vLLM ``execute_32_context_0(…)_generation_32(…)``, PARAM's benchmarks
``[param|pytorch.model.alex_net|0|0|0|measure|forward]``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

STEP_MODE = r"^(?:[\w.\-]+[ _.:])?step\[[A-Za-z_]+[^\]]*\]$"
PARAM_PASS = r"^\[param\|[^\]]*\|(?:forward|backward)\]$"

_MODE = re.compile(r"step\[([A-Za-z_]+)")
_PHASES = {
    "extend": "prefill", "prefill": "prefill", "context": "prefill", "prompt": "prefill", "decode": "decode",
    "generation": "decode", "mixed": "mixed", "split_prefill": "prefill", "target_verify": "verify",
    "draft_extend": "draft", "idle": "idle",
}  # fmt: skip
_PARAM_FIELD = re.compile(r"\|(?:warmup|measure)(?=\|)")
_BATCH = re.compile(r"(?:^|[^a-z])(?:bs|batch_?size|batch|num_?(?:seqs|reqs|requests))\s?[=:]\s?(\d{1,9})(?!\d)", re.I)
_TOKENS = re.compile(r"(?:^|[^a-z])(?:toks|tokens|num_?tokens|n_?tokens)\s?[=:]\s?(\d{1,12})(?!\d)", re.I)
_CAPTURE = re.compile(r"(?:^|[^a-z])(?:capture|bs|batch_?size)[ _=:-]{1,2}(\d{1,9})(?!\d)", re.I)
_VLLM = re.compile(r"^execute_(?:(\d{1,12})_)?context_(\d{1,9})(?:\([^)]*\))?_generation_(\d{1,9})(?:\([^)]*\))?$")


class StepText(NamedTuple):
    """What the text of a step says."""

    folded_name: str
    phase: str


def parse_step_mode(text: str) -> StepText:
    """`step[EXTEND bs=15 toks=15360]`: the mode stays in the folded name, the sizes do not."""
    found = _MODE.search(text)
    mode = found.group(1) if found else ""
    folded = f"{text[: found.start()]}step[{mode}]" if found else text
    return StepText(folded, _PHASES.get(mode.lower(), mode.lower()))


def parse_param_pass(text: str) -> StepText:
    """`[param|…|warmup|forward]` and `[param|…|measure|forward]` are one pass, warm-up or not."""
    return StepText(_PARAM_FIELD.sub("", text, count=1), text.rstrip("]").rsplit("|", 1)[-1])


def step_sizes(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and tokens that the texts of steps name; int64, −1 where they name none. For the few texts of model
    executions, each read once."""
    batch, tokens = np.full(len(texts), -1, np.int64), np.full(len(texts), -1, np.int64)
    known: dict[str, tuple[int, int]] = {}
    for row, text in enumerate(texts.tolist()):
        if text not in known:
            known[text] = _sizes(str(text))
        batch[row], tokens[row] = known[text]
    return batch, tokens


def capture_size(texts: np.ndarray) -> np.ndarray:
    """The size of the batch that texts name a graph's capture by (``capture_32_FULL``, ``bs_8_rank0``); int64, −1."""
    found = [_CAPTURE.search(str(text)) for text in texts.tolist()]
    return np.array([int(one[1]) if one else -1 for one in found], np.int64)


def _sizes(text: str) -> tuple[int, int]:
    served = _VLLM.match(text)
    if served:
        tokens, context, generation = served.groups()
        return int(context) + int(generation), int(tokens) if tokens else -1
    found = [pattern.search(text) for pattern in (_BATCH, _TOKENS)]
    values = [int(match.group(1)) if match else -1 for match in found]
    return (values[0] or -1, values[1] or -1)
