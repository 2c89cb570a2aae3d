"""Distances of all pairs, spelled out, become one operator."""

import torch

REMEDIES, WORD = set(), "faster"


class Distances(torch.nn.Module):
    """Each row against 64 centres, three times."""

    def __init__(self, is_fused: bool) -> None:
        super().__init__()
        self.is_fused = is_fused
        self.centres = torch.nn.Parameter(torch.randn(3, 64, 64))

    def forward(self, x):
        total = 0
        for centres in self.centres:
            if self.is_fused:
                total = total + torch.cdist(x, centres)
            else:
                difference = x[:, None] - centres
                total = total + torch.sqrt((difference * difference).sum(-1))
        return total


def before(batch_size=256):
    return Distances(False).eval(), torch.randn(batch_size, 64)


def after(batch_size=256):
    return Distances(True).eval(), torch.randn(batch_size, 64)
