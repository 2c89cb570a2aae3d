"""A decision on the host for each row becomes one operator."""

import torch

REMEDIES, WORD = {"batch-host-loop", "item-in-step", "larger-batch", "fuse-elementwise"}, "faster"


class Work(torch.nn.Module):
    """Rows are scaled where their sum is positive, one by one or all at once."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Identity()

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        return torch.stack([row * 2.0 if row.sum().item() > 0 else row * 0.5 for row in x])

    def changed(self, x):
        return x * torch.where(x.sum(-1, keepdim=True) > 0, 2.0, 0.5)


def before(batch_size=512):
    return Work(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=512):
    return Work(True).eval(), torch.randn(batch_size, 256)
