"""Text that is split in the pass is split ahead."""

from collections import Counter

import torch

REMEDIES, WORD = {"host-code", "prepare-ahead", "num-workers"}, "faster"


class Work(torch.nn.Module):
    """A network over counts of words, which each pass or none makes."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        counts = [Counter(f"{index} {index % 7} {index % 3}".split()) for index in range(8000)]
        return self.net(x) + float(len(counts))

    def changed(self, x):
        return self.net(x) + 8000.0


def before(batch_size=256):
    return Work(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=256):
    return Work(True).eval(), torch.randn(batch_size, 256)
