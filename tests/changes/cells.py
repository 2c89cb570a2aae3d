"""A recurrent network cell by cell becomes one call."""

import torch

REMEDIES, WORD = {"fuse-elementwise", "batch-host-loop", "larger-batch"}, "faster"


class Work(torch.nn.Module):
    """An LSTM over 48 places, by cells or as a whole."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.whole = torch.nn.LSTM(64, 64, batch_first=True)

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        hidden, state = x.new_zeros(x.shape[0], 64), x.new_zeros(x.shape[0], 64)
        weight, other, bias, more = self.whole.all_weights[0]
        for place in range(x.shape[1]):
            gates = x[:, place] @ weight.t() + hidden @ other.t() + bias + more
            i, f, g, o = gates.chunk(4, 1)
            state = torch.sigmoid(f) * state + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(state)
        return hidden

    def changed(self, x):
        return self.whole(x)[0][:, -1]


def before(batch_size=16):
    return Work(False).eval(), torch.randn(batch_size, 48, 64)


def after(batch_size=16):
    return Work(True).eval(), torch.randn(batch_size, 48, 64)
