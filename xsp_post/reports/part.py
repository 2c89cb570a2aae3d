"""Results of a part of a recording → what part it is, in words."""

from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results

_MOST = 3


def part_text(results: Results) -> str:
    """``iteration 3 of 0 … 13 (model:forward), 12.0 ms … 16.2 ms of the recording``; "" where all of it is shown."""
    if "part" not in results.tables():
        return ""
    frame = results.frame("part", ["statement"])
    said = list(dict.fromkeys(shown(str(text), 200) for text in frame["statement"]))
    more = f"; and {len(said) - _MOST} more" if len(said) > _MOST else ""
    return "; ".join(said[:_MOST]) + more


def part_sentence(results: Results) -> str:
    """``Part shown: iteration 3 …``; "" where all of the recording is shown."""
    text = part_text(results)
    return f"Part shown: {text}" if text else ""
