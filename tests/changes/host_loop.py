"""A loop over the items of a batch becomes one call for the batch."""

import torch

REMEDIES, WORD = {"batch-host-loop", "larger-batch", "fuse-elementwise"}, "faster"


class Items(torch.nn.Module):
    """A small network, for one item at a time or for all."""

    def __init__(self, is_loop: bool) -> None:
        super().__init__()
        self.is_loop = is_loop
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))

    def forward(self, x):
        return torch.stack([self.layers(one) for one in x]) if self.is_loop else self.layers(x)


def before(batch_size=256):
    return Items(True).eval(), torch.randn(batch_size, 64)


def after(batch_size=256):
    return Items(False).eval(), torch.randn(batch_size, 64)
