"""A batch in small pieces becomes one piece."""

import torch

REMEDIES, WORD = {"larger-batch", "batch-host-loop", "fuse-elementwise"}, "faster"


class Work(torch.nn.Module):
    """The same samples, four at a time or all."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        return torch.cat([self.net(part) for part in x.split(2)])

    def changed(self, x):
        return self.net(x)


def before(batch_size=256):
    return Work(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=256):
    return Work(True).eval(), torch.randn(batch_size, 256)
