"""A pause before each pass goes."""

import time

import torch

REMEDIES, WORD = {"sleeps", "host-code"}, "faster"


class Work(torch.nn.Module):
    """A network behind a timer."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        time.sleep(0.02)
        return self.net(x)

    def changed(self, x):
        return self.net(x)


def before(batch_size=512):
    return Work(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=512):
    return Work(True).eval(), torch.randn(batch_size, 256)
