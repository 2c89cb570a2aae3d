"""A softmax in four operators becomes one."""

import torch

REMEDIES, WORD = {"fuse-elementwise"}, "faster"


class Chain(torch.nn.Module):
    """Softmax, spelled out or as one operator, after each of four products."""

    def __init__(self, is_fused: bool) -> None:
        super().__init__()
        self.is_fused = is_fused
        self.products = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(4))

    def forward(self, x):
        for product in self.products:
            x = product(x)
            if self.is_fused:
                x = torch.softmax(x, -1)
            else:
                x = (e := torch.exp(x - x.amax(-1, keepdim=True))) / e.sum(-1, keepdim=True)
        return x


def before(batch_size=2048):
    return Chain(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=2048):
    return Chain(True).eval(), torch.randn(batch_size, 256)
