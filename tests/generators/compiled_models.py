"""Ten programs for a compiler: name → a model with its inputs, and whether it is trained.

Small, so that compiling them is what takes time; equal blocks are equal in every size, so that only the names of their
weights tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.hidden = nn.ModuleList(nn.Linear(128, 128) for _ in range(3))
        self.norm = nn.LayerNorm(128)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.head(self.norm(x))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.stage = nn.Sequential(*(Residual(16) for _ in range(3)))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.stage(torch.relu(self.stem(x)))), 1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, 4)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.layers = nn.ModuleList(Block(64) for _ in range(4))
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 100)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class GatedAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width // 2, bias=False)
        self.v_proj = nn.Linear(width, width // 2, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def rotate(self, x, angle):
        one, other = x.chunk(2, -1)
        return torch.cat((one * angle.cos() - other * angle.sin(), one * angle.sin() + other * angle.cos()), -1)

    def forward(self, x, angle):
        batch, length, width = x.shape
        q, k, v = (
            one(x).view(batch, length, -1, 16).transpose(1, 2) for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.rotate(q, angle), self.rotate(k, angle)
        k, v = (one.repeat_interleave(2, 1) for one in (k, v))
        scores = (q @ k.transpose(-1, -2)) / 4
        return self.o_proj((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width))


class GatedMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, 2 * width, bias=False)
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class GatedBlock(nn.Module):
    def __init__(self, width: int, mlp: type[nn.Module] = GatedMlp) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(width)
        self.self_attn = GatedAttention(width)
        self.post_attention_layernorm = RmsNorm(width)
        self.mlp = mlp(width)

    def forward(self, x, angle):
        x = x + self.self_attn(self.input_layernorm(x), angle)
        return x + self.mlp(self.post_attention_layernorm(x))


class Gated(nn.Module):
    """A decoder as the models of 2024 and later have it; ``model.layers.N`` below a head."""

    def __init__(self, mlp: type[nn.Module] = GatedMlp) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(100, 64)
        self.model.layers = nn.ModuleList(GatedBlock(64, mlp) for _ in range(3))
        self.model.norm = RmsNorm(64)
        self.lm_head = nn.Linear(64, 100, bias=False)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        angle = torch.arange(x.shape[1])[:, None] * torch.arange(1, 9)[None, :] / 8.0
        for layer in self.model.layers:
            x = layer(x, angle)
        return self.lm_head(self.model.norm(x))


class Experts(nn.Module):
    """All experts compute, a gate weighs them: no branch depends on data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4, bias=False)
        self.experts = nn.ModuleList(FeedForward(width) for _ in range(4))

    def forward(self, x):
        weight = torch.softmax(self.gate(x), -1)
        outputs = torch.stack([expert(x) for expert in self.experts], -1)
        return (outputs * weight[..., None, :]).sum(-1)


class Lstm(nn.Module):
    """Two layers of cells, unrolled over time by the program."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.cells = nn.ModuleList(nn.LSTMCell(32, 32) for _ in range(2))
        self.head = nn.Linear(32, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        state = [(x.new_zeros(x.shape[0], 32), x.new_zeros(x.shape[0], 32)) for _ in self.cells]
        outputs = []
        for step in range(x.shape[1]):
            value = x[:, step]
            for number, cell in enumerate(self.cells):
                state[number] = cell(value, state[number])
                value = state[number][0]
            outputs.append(value)
        return self.head(torch.stack(outputs, 1))


class Double(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
            nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([Double(3, 8), Double(8, 16)])
        self.middle = Double(16, 32)
        self.ups = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.up = nn.ModuleList([Double(32, 16), Double(16, 8)])
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        kept = []
        for one in self.down:
            x = one(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for grow, one in zip(self.ups, self.up):
            x = one(torch.cat((grow(x), kept.pop()), 1))
        return self.last(x)


def tokens(batch: int = 2, length: int = 16, count: int = 50) -> torch.Tensor:
    return torch.randint(0, count, (batch, length))


# name → what makes the model, what makes its input, whether it is trained
PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], bool]] = {
    "mlp": (Mlp, lambda: torch.randn(32, 64), False),
    "cnn": (Cnn, lambda: torch.randn(2, 3, 16, 16), False),
    "decoder": (Decoder, tokens, False),
    "gated": (Gated, tokens, False),
    "experts": (lambda: Gated(Experts), tokens, False),
    "lstm": (Lstm, lambda: tokens(2, 4), False),
    "unet": (UNet, lambda: torch.randn(1, 3, 16, 16), False),
    "mlp_training": (Mlp, lambda: torch.randn(32, 64), True),
    "cnn_training": (Cnn, lambda: torch.randn(2, 3, 16, 16), True),
    "decoder_training": (Decoder, tokens, True),
}
