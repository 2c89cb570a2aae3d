"""Captures in: what PyTorch says of a collective, on an operator, a kernel, or in an annotation → its message."""

import json
import re
from collections.abc import Mapping
from typing import Any

from xsp_post.names.groups import group_text
from xsp_post.work.dtypes import element_bytes

NAME = "Collective name"
KEYS = (NAME, "dtype", "In msg nelems", "Out msg nelems", "Group size", "Process Group Name",
        "Process Group Description", "Process Group Ranks", "Global rank start", "Global rank stride",
        "Src Rank", "Dst Rank")  # fmt: skip


def message_text(said: Mapping[str, Any]) -> str:
    """``said``: values by `KEYS`, numbers or their text → bytes of the message (the larger side), ranks of its group,
    the group (`names.groups`), what it does, and the rank at the other end of a transfer, as a JSON list; null what is
    not known."""
    counts = [_whole(said.get(key), 1 << 50) for key in KEYS[2:4]]
    known = [count for count in counts if count is not None]
    width = element_bytes(str(said.get("dtype")))
    size = _whole(said.get("Group size"), 1 << 31) or None
    name, label = (str(said.get(key) or "") for key in KEYS[5:7])
    text = group_text(label, _ranks(said, size or 0), name)
    peer = next((rank for key in KEYS[10:] if (rank := _whole(said.get(key), 1 << 31)) is not None), None)
    does = re.sub(r"\W+", "_", str(said.get(NAME) or ""))[:40]
    return json.dumps([int(max(known) * width) if known and width else None, size, text, does, peer])


def _ranks(said: Mapping[str, Any], size: int) -> list[int]:
    """The ranks of a collective's group, by the first one and the stride where the list of all is cut short."""
    listed = str(said.get("Process Group Ranks") or "")
    if "..." not in listed:
        return [int(rank) for rank in re.findall(r"\d{1,9}", listed)]
    first, stride = (_whole(said.get(key), 1 << 31) for key in KEYS[8:10])
    return list(range(first, first + stride * min(size, 1 << 14), stride)) if first is not None and stride else []


def _whole(value: Any, limit: int) -> int | None:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value
    return number if type(number) is int and 0 <= number < limit else None
