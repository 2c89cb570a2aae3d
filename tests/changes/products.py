"""A loop of small products becomes one batch of them."""

import torch

REMEDIES, WORD = {"batch-host-loop", "larger-batch", "fuse-elementwise"}, "faster"


class Loop(torch.nn.Module):
    """Products of 256 small matrices, one after another or all at once."""

    def __init__(self, is_loop: bool) -> None:
        super().__init__()
        self.is_loop = is_loop
        self.weight = torch.nn.Parameter(torch.randn(256, 64, 64) / 8)

    def forward(self, x):
        if self.is_loop:
            return torch.stack([torch.relu(one @ w) for one, w in zip(x, self.weight, strict=True)])
        return torch.relu(torch.bmm(x, self.weight))


def before(batch_size=256):
    return Loop(True).eval(), torch.randn(batch_size, 32, 64)


def after(batch_size=256):
    return Loop(False).eval(), torch.randn(batch_size, 32, 64)
