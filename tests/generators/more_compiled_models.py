"""Ten more programs to compile, written by somebody who had not seen `compiled_models`: layers that libraries have."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Res(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d, 2 * d), nn.BatchNorm1d(2 * d), nn.SiLU(), nn.Dropout(0.1), nn.Linear(2 * d, d)
        )
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x + self.scale * self.net(x)


class Mlp2(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(48, 96)
        self.body = nn.Sequential(Res(96), Res(96), Res(96))
        self.head = nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 12), nn.Softmax(-1))

    def forward(self, x):
        return self.head(self.body(F.gelu(self.stem(x))))


class Squeeze(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, c // 4, 1), nn.Conv2d(c // 4, c, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.fc2(F.relu(self.fc1(s))))


class Bottleneck(nn.Module):
    def __init__(self, c, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(c, out // 2, 1, bias=False)
        self.norm1 = nn.GroupNorm(4, out // 2)
        self.conv2 = nn.Conv2d(out // 2, out // 2, 3, stride, 1, groups=out // 2, bias=False)
        self.norm2 = nn.BatchNorm2d(out // 2)
        self.conv3 = nn.Conv2d(out // 2, out, 1)
        self.se = Squeeze(out)
        self.down = nn.Conv2d(c, out, 1, stride) if stride != 1 or c != out else nn.Identity()
        self.act = nn.Hardswish()

    def forward(self, x):
        y = self.act(self.norm1(self.conv1(x)))
        y = self.act(self.norm2(self.conv2(y)))
        return self.act(self.se(self.conv3(y)) + self.down(x))


class Cnn2(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6(), nn.MaxPool2d(2))
        self.layer1 = nn.Sequential(Bottleneck(16, 16), Bottleneck(16, 16))
        self.layer2 = nn.Sequential(Bottleneck(16, 32, 2), Bottleneck(32, 32))
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = self.layer2(self.layer1(self.features(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True, activation="gelu")
        self.embed = nn.Embedding(100, 64)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.out = nn.Linear(64, 7)

    def forward(self, t):
        return self.out(self.encoder(self.embed(t)).mean(1))


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        v = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(v + 1e-6))


def rotate(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Gqa(nn.Module):
    def __init__(self, d, heads, kv):
        super().__init__()
        self.h, self.k, self.d = heads, kv, d // heads
        self.q_proj, self.o_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k_proj, self.v_proj = nn.Linear(d, kv * self.d, bias=False), nn.Linear(d, kv * self.d, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.h, self.d).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.k, self.d).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.k, self.d).transpose(1, 2)
        q, k = q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
        k, v = k.repeat_interleave(self.h // self.k, 1), v.repeat_interleave(self.h // self.k, 1)
        s = (q @ k.transpose(-1, -2)) / math.sqrt(self.d)
        s = s + torch.full((t, t), float("-inf")).triu(1)
        return self.o_proj((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))


class Glu(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(d, 3 * d, bias=False),
            nn.Linear(d, 3 * d, bias=False),
            nn.Linear(3 * d, d, bias=False),
        )

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(d), Gqa(d, 4, 2)
        self.post_attention_layernorm, self.mlp = RMSNorm(d), Glu(d)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(120, 64)
        self.layers = nn.ModuleList(LlamaLayer(64) for _ in range(4))
        self.norm = RMSNorm(64)
        self.lm_head = nn.Linear(64, 120, bias=False)
        self.lm_head.weight = self.embed_tokens.weight
        f = torch.outer(torch.arange(16).float(), 1.0 / 10000 ** (torch.arange(0, 16, 2) / 16))
        self.register_buffer("cos", torch.cat((f, f), -1).cos())
        self.register_buffer("sin", torch.cat((f, f), -1).sin())

    def forward(self, t):
        x = self.embed_tokens(t)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.lm_head(self.norm(x))


class Moe(nn.Module):
    def __init__(self, d, e):
        super().__init__()
        self.router = nn.Linear(d, e)
        self.w1, self.w2 = nn.Parameter(torch.randn(e, d, 2 * d) * 0.05), nn.Parameter(torch.randn(e, 2 * d, d) * 0.05)

    def forward(self, x):
        p = self.router(x).softmax(-1)
        v, i = p.topk(2, -1)
        g = torch.zeros_like(p).scatter(-1, i, v)
        h = F.silu(torch.einsum("nd,edf->enf", x, self.w1))
        return torch.einsum("enf,efd,ne->nd", h, self.w2, g)


class MoeBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln, self.moe = nn.LayerNorm(d), Moe(d, 4)

    def forward(self, x):
        return x + self.moe(self.ln(x))


class Moe2(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(32, 48)
        self.blocks = nn.ModuleDict({f"b{k}": MoeBlock(48) for k in range(3)})
        self.out = nn.Linear(48, 5)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks.values():
            x = b(x)
        return self.out(x)


class Cell(nn.Module):
    def __init__(self, i, h):
        super().__init__()
        self.ih, self.hh = nn.Linear(i, 4 * h), nn.Linear(h, 4 * h)

    def forward(self, x, h, c):
        a, f, g, o = (self.ih(x) + self.hh(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(a) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Lstm2(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([Cell(24, 32), Cell(32, 32)])
        self.proj = nn.Linear(32, 6)

    def forward(self, x):
        for cell in self.cells:
            h = x.new_zeros(x.shape[0], 32)
            c, ys = h, []
            for k in range(x.shape[1]):
                h, c = cell(x[:, k], h, c)
                ys.append(h)
            x = torch.stack(ys, 1)
        return self.proj(x)


class Double(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(
            nn.Conv2d(i, o, 3, padding=1),
            nn.GroupNorm(4, o),
            nn.SiLU(),
            nn.Conv2d(o, o, 3, padding=1),
            nn.GroupNorm(4, o),
            nn.SiLU(),
        )


class Unet2(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1, self.enc2, self.mid = Double(3, 16), Double(16, 32), Double(32, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.dec2, self.dec1 = Double(64, 32), Double(32, 16)
        self.attn = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        m = self.mid(F.avg_pool2d(b, 2))
        n, c, h, w = m.shape
        s = m.flatten(2).transpose(1, 2)
        s = s + self.attn(s, s, s, need_weights=False)[0]
        m = s.transpose(1, 2).reshape(n, c, h, w)
        y = self.dec2(torch.cat((self.up2(m), b), 1))
        y = self.dec1(torch.cat((self.up1(y), a), 1))
        return self.head(y)


def ints():
    return torch.randint(0, 100, (2, 16))


PROGRAMS = {
    "mlp2": (Mlp2, lambda: torch.randn(32, 48), False),
    "cnn2": (Cnn2, lambda: torch.randn(2, 3, 32, 32), False),
    "encoder": (Encoder, ints, False),
    "llama": (Llama, ints, False),
    "moe2": (Moe2, lambda: torch.randn(64, 32), False),
    "lstm2": (Lstm2, lambda: torch.randn(4, 6, 24), False),
    "unet2": (Unet2, lambda: torch.randn(1, 3, 32, 32), False),
    "llama_training": (Llama, ints, True),
    "cnn2_training": (Cnn2, lambda: torch.randn(2, 3, 32, 32), True),
    "moe2_training": (Moe2, lambda: torch.randn(64, 32), True),
}
