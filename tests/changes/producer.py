"""A thread that hands over the input too late hands it over in time."""

import threading
import time

import torch

REMEDIES, WORD = {"waits-for-thread", "sleeps", "host-code"}, "faster"


class Work(torch.nn.Module):
    """A network that waits for another thread, or does not."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))

    def make(self, done):
        time.sleep(0.015)
        done.set()

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        done = threading.Event()
        threading.Thread(target=self.make, args=(done,)).start()
        done.wait()
        return self.net(x)

    def changed(self, x):
        return self.net(x)


def before(batch_size=512):
    return Work(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=512):
    return Work(True).eval(), torch.randn(batch_size, 256)
