"""Results that count what is asked of them."""

from __future__ import annotations

from collections import Counter


class Only:
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
