"""Name of a capture's file → the rank that it states (``run_rank3.sqlite``, ``rank-3.pt.trace.json``)."""

import re

RANK = re.compile(r"(?:^|[._-])rank[._-]?(\d{1,6})(?=$|[._-])", re.IGNORECASE)


def stated_rank(name: str) -> int:
    """The rank in a file's name, −1 none."""
    found = RANK.search(name)
    return int(found[1]) if found else -1
