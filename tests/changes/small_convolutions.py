"""A convolution for each channel becomes one grouped convolution."""

import torch

REMEDIES, WORD = {"batch-host-loop", "larger-batch"}, "faster"


class Work(torch.nn.Module):
    """Sixteen channels, each with its filter, one by one or grouped."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.weight = torch.nn.Parameter(torch.randn(16, 1, 3, 3))

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        parts = [torch.nn.functional.conv2d(x[:, n : n + 1], self.weight[n : n + 1], padding=1) for n in range(16)]
        return torch.relu(torch.cat(parts, 1))

    def changed(self, x):
        return torch.relu(torch.nn.functional.conv2d(x, self.weight, padding=1, groups=16))


def before(batch_size=2):
    return Work(False).eval(), torch.randn(batch_size, 16, 16, 16)


def after(batch_size=2):
    return Work(True).eval(), torch.randn(batch_size, 16, 16, 16)
