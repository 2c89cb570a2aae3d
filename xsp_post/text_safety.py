"""Ground floor: text from a capture as one harmless line."""

from __future__ import annotations

import unicodedata

# control, format (bidirectional marks among them), surrogate, private and unassigned characters
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def shown(text: str, limit: int = 100) -> str:
    """The text with hidden characters spelled out (``\\u202e``), at most ``limit`` characters long."""
    if text.isprintable() and len(text) <= limit:
        return text
    visible = "".join(
        c if unicodedata.category(c) not in _HIDDEN else f"\\u{ord(c):04x}" for c in text[: 2 * limit]
    )
    return visible if len(visible) <= limit else visible[: limit - 1] + "…"
