"""Name of a capture's file → the rank that it states (``run_rank3.sqlite``, ``rank-3.pt.trace.json``)."""

import re

RANK = re.compile(r"(?:^|[._-])rank[._-]?(\d{1,6})(?=$|[._-])", re.IGNORECASE)


def stated_rank(name: str) -> int:
    """The rank in a file's name, −1 none."""
    found = RANK.search(name)
    return int(found[1]) if found else -1


def by_numbers(name: str) -> list[tuple[int, str]]:
    """To sort names by: numbers in them by their size."""
    parts = re.split(r"(\d+)", name)
    return [(int(part[:18]), "") if part.isdecimal() else (-1, part.lower()) for part in parts]
