"""Input that Python prepares in the pass is prepared ahead."""

import torch

REMEDIES, WORD = {"host-code", "prepare-ahead", "num-workers"}, "faster"


class Work(torch.nn.Module):
    """A network whose input is scaled in a Python list, or was before."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        rows = [[value * 0.5 + 1.0 for value in row] for row in x.tolist()]
        return self.net(torch.tensor(rows))

    def changed(self, x):
        return self.net(x)


def before(batch_size=256):
    return Work(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=256):
    return Work(True).eval(), torch.randn(batch_size, 256)
