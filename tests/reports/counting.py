"""Results that count what is asked of them."""

from __future__ import annotations

from collections import Counter

from xsp_post.model.results import Results


class Only(Results):
    """Passes everything on and counts the columns read per table."""

    def __init__(self, results) -> None:
        self._results = results
        self.columns: Counter = Counter()

    def tables(self):
        return self._results.tables()

    def frame(self, name, columns=None):
        for column in columns or ["*"]:
            self.columns[name, column] += 1
        return self._results.frame(name, columns)
