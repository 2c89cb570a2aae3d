"""A program on one thread, ranges and kernels one after the other, as an nsys export and its tree."""

from __future__ import annotations

from builders import ExportBuilder

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.options import Options


class Program:
    """A program on one thread: ranges and kernels one after the other, 10 ns of host time and 100 ns of device time
    a kernel unless said otherwise."""

    def __init__(self):
        self.builder, self.host, self.device = ExportBuilder(), 100, 100

    def kernel(self, name="gemm", ns=100):
        self.device = max(self.device, self.host + 5)
        self.builder.kernel(name, launch=(self.host, self.host + 4), run=(self.device, self.device + ns))
        self.host, self.device = self.host + 10, self.device + ns + 1
        return self

    def inside(self, text, *parts):
        """A range around parts: functions of this program, called one after the other."""
        start = self.host
        self.host += 2
        for part in parts:
            part()
        self.host += 2
        self.builder.range(text, start, self.host)
        self.host += 1
        return self

    def tree(self, folder, **options):
        return build_tree(load(self.builder.write(folder / "a.sqlite")).trace, Options(**options))
