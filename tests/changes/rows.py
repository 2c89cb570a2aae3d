"""A loop over rows becomes one operator."""

import torch

REMEDIES, WORD = {"batch-host-loop", "larger-batch", "fuse-elementwise"}, "faster"


class Loop(torch.nn.Module):
    """A weighted sum of each of 256 items, one after another or all at once."""

    def __init__(self, is_loop: bool) -> None:
        super().__init__()
        self.is_loop = is_loop
        self.weight = torch.nn.Parameter(torch.randn(64) / 8)

    def forward(self, x):
        if self.is_loop:
            return torch.stack([(torch.tanh(one) * self.weight).sum(-1) for one in x])
        return (torch.tanh(x) * self.weight).sum(-1)


def before(batch_size=256):
    return Loop(True).eval(), torch.randn(batch_size, 32, 64)


def after(batch_size=256):
    return Loop(False).eval(), torch.randn(batch_size, 32, 64)
