"""An optimiser parameter by parameter becomes a fused one."""

import torch

REMEDIES, WORD = {"fused-optimiser"}, "faster"


class Work(torch.nn.Module):
    """A step of training with sixty small layers."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(60)])
        more = {"fused": True} if is_changed else {"foreach": False}
        self.adam = torch.optim.Adam(self.net.parameters(), lr=1e-6, **more)

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def step(self, x):
        with torch.inference_mode(False), torch.enable_grad():
            self.net(x.clone()).mean().backward()
            self.adam.step()
            self.adam.zero_grad()
        return x

    def as_it_was(self, x):
        return self.step(x)

    def changed(self, x):
        return self.step(x)


def before(batch_size=32):
    return Work(False).eval(), torch.randn(batch_size, 32)


def after(batch_size=32):
    return Work(True).eval(), torch.randn(batch_size, 32)
