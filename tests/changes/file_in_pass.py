"""A file that each pass reads is read once."""

import json

import torch

REMEDIES, WORD = {"host-code", "prepare-ahead", "host-blocked", "num-workers"}, "faster"


class Work(torch.nn.Module):
    """A network that reads its table in each pass or has it."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
        self.text = json.dumps(list(range(5000)))

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        for _ in range(60):
            table = json.loads(self.text)
        return self.net(x) + float(len(table))

    def changed(self, x):
        return self.net(x) + 5000.0


def before(batch_size=256):
    return Work(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=256):
    return Work(True).eval(), torch.randn(batch_size, 256)
