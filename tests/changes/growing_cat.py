"""A tensor that grows row by row is made at once."""

import torch

REMEDIES, WORD = {"batch-host-loop", "larger-batch", "fuse-elementwise", "copy-less"}, "faster"


class Work(torch.nn.Module):
    """Rows are normed and joined, one by one or all at once."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Identity()

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        made = x[:1] / x[:1].norm()
        for number in range(1, len(x)):
            made = torch.cat([made, x[number : number + 1] / x[number : number + 1].norm()])
        return made

    def changed(self, x):
        return x / x.norm(dim=-1, keepdim=True)


def before(batch_size=512):
    return Work(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=512):
    return Work(True).eval(), torch.randn(batch_size, 256)
