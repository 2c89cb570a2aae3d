"""Sixteen more programs as people write them in 2024–2026; one kind each (optimisers, point clouds, sources, forecasts, a VLA, MuZero,
temporal graphs, late interaction, tables in context, regional compilation, QAT, a filter of documents, DETR, a masked diffusion
language model, activation patching, many adapters). Sizes are a CPU's. The truth was written down before any tool read a recording."""
import asyncio
import copy
import gzip
import json
import math
import os
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function

from harness import blocks, execution, program, record, said, D

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


# -------------------------------------------------------------------------------------------------- 1. two optimisers
@program(executions=14, layers=6, kinds={"training step": 8, "validation batch": 6}, ranges="none",
         note="8 training steps; validation (2 larger batches) before the first, after the fourth and after the last: each batch is one pass of the model, hence 14 executions; "
              "the 8 training steps alone are acceptable. Layers: the 6 blocks (not the Newton-Schulz turns).")
def muon_speedrun():
    "A NanoGPT speed run: Muon for the matrices, Adam for the rest, U-net skips, validation every few steps."

    @torch.no_grad()
    def newton_schulz(G, steps=5):
        a, b, c = 3.4445, -4.7750, 2.0315
        X = G.mT if G.size(-2) > G.size(-1) else G
        X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(steps):
            A = X @ X.mT
            B = b * A + c * A @ A
            X = a * X + B @ X
        return X.mT if G.size(-2) > G.size(-1) else X

    class Muon(torch.optim.Optimizer):
        def __init__(self, params, lr=0.02, momentum=0.95):
            by_shape = defaultdict(list)
            for p in params:
                by_shape[tuple(p.shape)].append(p)
            super().__init__([dict(params=g) for g in by_shape.values()], dict(lr=lr, momentum=momentum))

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                updates = []
                for p in group["params"]:
                    state = self.state[p]
                    if "momentum_buffer" not in state:
                        state["momentum_buffer"] = torch.zeros_like(p.grad)
                    buf = state["momentum_buffer"]
                    buf.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp_(buf, group["momentum"]))
                v = newton_schulz(torch.stack(updates))
                for p, u in zip(group["params"], v):
                    p.add_(u, alpha=-group["lr"] * max(1, p.size(-2) / p.size(-1)) ** 0.5)

    def norm(x):
        return F.rms_norm(x, (x.size(-1),))

    class Rotary(nn.Module):
        def __init__(self, size, longest):
            super().__init__()
            theta = torch.outer(torch.arange(longest).float(), 1024 ** -torch.linspace(0, 1, size // 2))
            self.register_buffer("cos", theta.cos()[None, :, None])
            self.register_buffer("sin", theta.sin()[None, :, None])

        def forward(self, x):
            cos, sin = self.cos[:, :x.size(1)], self.sin[:, :x.size(1)]
            x1, x2 = x.chunk(2, dim=-1)
            return torch.cat((x1 * cos + x2 * sin, x2 * cos - x1 * sin), 3)

    class CausalSelfAttention(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads, self.qkv, self.c_proj, self.rotary = heads, nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False), Rotary(dim // heads, 128)
            self.lambdas = nn.Parameter(torch.tensor([0.5, 0.5]))

        def forward(self, x, ve):
            B, T, C = x.shape
            q, k, v = self.qkv(x).view(B, T, 3 * self.heads, -1).chunk(3, dim=-2)
            v = self.lambdas[0] * v if ve is None else self.lambdas[0] * v + self.lambdas[1] * ve.view_as(v)
            q, k = self.rotary(norm(q)), self.rotary(norm(k))
            y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
            return self.c_proj(y.transpose(1, 2).reshape(B, T, C))

    class MLP(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.c_fc, self.c_proj = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

        def forward(self, x):
            return self.c_proj(F.relu(self.c_fc(x)).square())

    class Block(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.attn, self.mlp, self.lambdas = CausalSelfAttention(dim, heads), MLP(dim), nn.Parameter(torch.tensor([1.0, 0.0]))

        def forward(self, x, ve, x0):
            x = self.lambdas[0] * x + self.lambdas[1] * x0
            x = x + self.attn(norm(x), ve)
            return x + self.mlp(norm(x))

    class GPT(nn.Module):
        def __init__(self, vocabulary=256, depth=6, dim=64, heads=4):
            super().__init__()
            self.embed, self.value_embeds = nn.Embedding(vocabulary, dim), nn.ModuleList(nn.Embedding(vocabulary, dim) for _ in range(2))
            self.blocks, self.skip_weights, self.lm_head = nn.ModuleList(Block(dim, heads) for _ in range(depth)), nn.Parameter(torch.ones(depth // 2)), nn.Linear(dim, vocabulary, bias=False)

        def forward(self, ids, targets):
            x = x0 = norm(self.embed(ids))
            ve = [e(ids) for e in self.value_embeds]
            ve = [ve[0], ve[1], None, None, ve[0], ve[1]]
            skips, n = [], len(self.blocks) // 2
            for i, block in enumerate(self.blocks):
                if i >= n:
                    x = x + self.skip_weights[i - n] * skips.pop()
                x = block(x, ve[i], x0)
                if i < n:
                    skips.append(x)
            logits = self.lm_head(norm(x)).float()
            logits = 15 * torch.tanh(logits / 15)
            return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    model = GPT().to(D())
    blocks(model.blocks)
    hidden = [p for n, p in model.blocks.named_parameters() if p.ndim == 2]
    scalars = [p for p in model.parameters() if p.ndim < 2]
    embeds = [model.embed.weight, *(e.weight for e in model.value_embeds)]
    adam = torch.optim.Adam([dict(params=[model.lm_head.weight], lr=0.008), dict(params=embeds, lr=0.06), dict(params=scalars, lr=0.04)], betas=(0.8, 0.95), eps=1e-10)
    optimizers = [adam, Muon(hidden)]
    for opt in optimizers:
        for group in opt.param_groups:
            group["initial_lr"] = group["lr"]
    tokens = np.random.default_rng(0).integers(0, 256, 40_000)

    def loader(batch, length, at):
        while True:
            chunk = torch.from_numpy(tokens[at:at + batch * length + 1])
            at = (at + batch * length) % 30_000
            yield chunk[:-1].view(batch, length).to(D(), non_blocking=True), chunk[1:].view(batch, length).to(D(), non_blocking=True)

    def run(train_steps, val_every, val_steps=2):
        train, t0 = loader(4, 48, 0), time.perf_counter()
        for step in range(train_steps + 1):
            last_step = step == train_steps
            if last_step or step % val_every == 0:
                model.eval()
                val, val_loss = loader(8, 48, 20_000), 0
                with torch.no_grad():
                    for _ in range(val_steps):
                        with execution():
                            val_loss += model(*next(val))
                print(f"step:{step}/{train_steps} val_loss:{val_loss.item() / val_steps:.4f} train_time:{1000 * (time.perf_counter() - t0):.0f}ms")
                model.train()
            if last_step:
                break
            with execution(), execution("training step"):
                loss = model(*next(train))
                loss.backward()
                scale = min(1.0, (1 - step / train_steps) / 0.4)
                for opt in optimizers:
                    for group in opt.param_groups:
                        group["lr"] = group["initial_lr"] * scale
                for group in optimizers[1].param_groups:
                    group["momentum"] = 0.85 + 0.1 * min(step / 300, 1)
                for opt in optimizers:
                    opt.step()
                model.zero_grad(set_to_none=True)

    run(2, 2)  # warm-up
    with record():
        run(8, 4)


# -------------------------------------------------------------------------------------------------- 2. point clouds
@program(executions=14, layers=6, kinds={"batch of blocks": 14, "scene": 3}, ranges="record_function: 'Area_5/office_1' and so on, one for each scene",
         note="3 scenes of 5, 3 and 4 blocks, each voted twice, in batches of 2 blocks (the last one may have 1): 2 x (3 + 2 + 2) = 14 calls of the network, each one execution; a scene is acceptable. "
              "Layers: 3 set abstractions and 3 feature propagations; each shared convolution is acceptable. The loop of farthest points is inside a set abstraction.")
def pointnet_votes():
    "PointNet++ for scenes: blocks of points, two votes, farthest point sampling in a Python loop."
    torch.set_grad_enabled(False)

    def square_distance(a, b):
        return (a ** 2).sum(-1)[:, :, None] + (b ** 2).sum(-1)[:, None] - 2 * a @ b.transpose(1, 2)

    def index_points(points, idx):
        batch = torch.arange(points.shape[0], device=points.device).view(-1, *[1] * (idx.dim() - 1)).expand_as(idx)
        return points[batch, idx]

    def farthest_point_sample(xyz, npoint):
        B, N, _ = xyz.shape
        centroids = torch.zeros(B, npoint, dtype=torch.long, device=xyz.device)
        distance = torch.full((B, N), 1e10, device=xyz.device)
        farthest = torch.randint(0, N, (B,), dtype=torch.long, device=xyz.device)
        rows = torch.arange(B, device=xyz.device)
        for i in range(npoint):
            centroids[:, i] = farthest
            centroid = xyz[rows, farthest].unsqueeze(1)
            distance = torch.minimum(distance, ((xyz - centroid) ** 2).sum(-1))
            farthest = distance.argmax(-1)
        return centroids

    def query_ball(radius, nsample, xyz, new_xyz):
        d = square_distance(new_xyz, xyz)
        idx = torch.arange(xyz.shape[1], device=xyz.device).expand_as(d).clone()
        idx[d > radius ** 2] = xyz.shape[1]
        idx = idx.sort(-1)[0][:, :, :nsample]
        first = idx[:, :, :1].clamp(max=xyz.shape[1] - 1).expand_as(idx)
        return torch.where(idx == xyz.shape[1], first, idx)

    class SetAbstraction(nn.Module):
        def __init__(self, npoint, radius, nsample, i, mlp):
            super().__init__()
            self.npoint, self.radius, self.nsample = npoint, radius, nsample
            sizes = [i + 3, *mlp]
            self.convs = nn.ModuleList(nn.Conv2d(a, b, 1) for a, b in zip(sizes, mlp))
            self.bns = nn.ModuleList(nn.BatchNorm2d(b) for b in mlp)

        def forward(self, xyz, points):
            new_xyz = index_points(xyz, farthest_point_sample(xyz, self.npoint))
            idx = query_ball(self.radius, self.nsample, xyz, new_xyz)
            grouped = torch.cat([index_points(xyz, idx) - new_xyz[:, :, None], index_points(points, idx)], -1).permute(0, 3, 2, 1)
            for conv, bn in zip(self.convs, self.bns):
                grouped = F.relu(bn(conv(grouped)))
            return new_xyz, grouped.max(2)[0].transpose(1, 2)

    class FeaturePropagation(nn.Module):
        def __init__(self, i, mlp):
            super().__init__()
            sizes = [i, *mlp]
            self.convs = nn.ModuleList(nn.Conv1d(a, b, 1) for a, b in zip(sizes, mlp))
            self.bns = nn.ModuleList(nn.BatchNorm1d(b) for b in mlp)

        def forward(self, xyz1, xyz2, points1, points2):
            dists, idx = square_distance(xyz1, xyz2).topk(3, dim=-1, largest=False)
            weight = 1.0 / (dists.clamp(min=0) + 1e-8)
            weight = weight / weight.sum(2, keepdim=True)
            x = (index_points(points2, idx) * weight.unsqueeze(-1)).sum(2)
            x = torch.cat([points1, x], -1).transpose(1, 2)
            for conv, bn in zip(self.convs, self.bns):
                x = F.relu(bn(conv(x)))
            return x.transpose(1, 2)

    class PointNet2(nn.Module):
        def __init__(self, classes=13):
            super().__init__()
            self.sa = nn.ModuleList([SetAbstraction(28, 0.3, 12, 6, [16, 32]), SetAbstraction(14, 0.6, 12, 32, [32, 48]), SetAbstraction(6, 1.0, 8, 48, [48, 64])])
            self.fp = nn.ModuleList([FeaturePropagation(48 + 64, [64, 48]), FeaturePropagation(32 + 48, [48, 32]), FeaturePropagation(6 + 32, [32, 32])])
            self.head = nn.Sequential(nn.Conv1d(32, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Conv1d(32, classes, 1))

        def forward(self, cloud):
            xyz, points = [cloud[..., :3]], [cloud[..., 3:]]
            for sa in self.sa:
                p, f = sa(xyz[-1], points[-1])
                xyz.append(p)
                points.append(f)
            x = points[-1]
            for k, fp in enumerate(self.fp):
                x = fp(xyz[-2 - k], xyz[-1 - k], points[-2 - k], x)
            return F.log_softmax(self.head(x.transpose(1, 2)), 1).transpose(1, 2)

    classifier = PointNet2().to(D()).eval()
    blocks([*classifier.sa, *classifier.fp])
    blocks((m for level in (*classifier.sa, *classifier.fp) for m in level.convs), "convolution")
    rng = np.random.default_rng(0)
    scenes = [(f"Area_5/{room}", rng.random((n, 256, 9), dtype=np.float32)) for room, n in (("office_1", 5), ("hallway_2", 3), ("lobby_1", 4))]

    def add_vote(pool, blocks_at, predicted):
        for b, row in zip(blocks_at, predicted):
            np.add.at(pool, (np.full(len(row), b), np.arange(len(row)), row), 1)

    def evaluate(name, data, num_votes=2, batch_size=2):
        with record_function(name), execution("scene"):
            pool = np.zeros((len(data), 256, 13))
            for _ in range(num_votes):
                order = rng.permutation(len(data))
                for at in range(0, len(order), batch_size):
                    pick = order[at:at + batch_size]
                    with execution():
                        pred = classifier(torch.from_numpy(data[pick]).to(D())).argmax(2).cpu().numpy()
                    add_vote(pool, pick, pred)
        return pool.argmax(-1)

    evaluate("warm up", scenes[1][1], 1)
    with record():
        for name, data in scenes:
            labels = evaluate(name, data)
            print(name, "mean class", labels.mean().round(3))


# -------------------------------------------------------------------------------------------------- 3. sources of music
@program(executions=14, layers=8, kinds={"segment": 14, "track": 2}, ranges="record_function: 'separate' around a track, in it 'shift 0', 'shift 1'",
         note="2 tracks, each with 2 random shifts, cut into 4 and 3 overlapping segments (the last one shorter and padded): 2 x 4 + 2 x 3 = 14 calls of the network, each one execution; a track is acceptable. "
              "Layers: 4 encoder and 4 decoder layers; each convolution is acceptable.")
def demucs_overlap():
    "Demucs: a U-Net of waves with an LSTM in the middle; shifts, segments, overlap-add."
    torch.set_grad_enabled(False)
    sources = ["drums", "bass", "other", "vocals"]

    class DConv(nn.Module):
        def __init__(self, c, depth=2):
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Conv1d(c, c // 4, 3, dilation=2 ** d, padding=2 ** d), nn.GroupNorm(1, c // 4), nn.GELU(),
                                                      nn.Conv1d(c // 4, 2 * c, 1), nn.GroupNorm(1, 2 * c), nn.GLU(1)) for d in range(depth))

        def forward(self, x):
            for one in self.layers:
                x = x + 0.1 * one(x)
            return x

    class HEncLayer(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.conv, self.norm1, self.rewrite, self.norm2, self.dconv = nn.Conv1d(i, o, 8, 4, 2), nn.GroupNorm(4, o), nn.Conv1d(o, 2 * o, 1), nn.GroupNorm(4, 2 * o), DConv(o)

        def forward(self, x):
            if x.shape[-1] % 4:
                x = F.pad(x, (0, 4 - x.shape[-1] % 4))
            y = F.gelu(self.norm1(self.conv(x)))
            return F.glu(self.norm2(self.rewrite(self.dconv(y))), dim=1)

    class HDecLayer(nn.Module):
        def __init__(self, i, o, last=False):
            super().__init__()
            self.last, self.rewrite, self.norm1, self.dconv, self.conv_tr = last, nn.Conv1d(i, 2 * i, 3, 1, 1), nn.GroupNorm(4, 2 * i), DConv(i), nn.ConvTranspose1d(i, o, 8, 4)

        def forward(self, x, skip, length):
            y = self.dconv(F.glu(self.norm1(self.rewrite(x + skip)), dim=1))
            z = self.conv_tr(y)[..., 2:2 + length]
            return z if self.last else F.gelu(z)

    class Demucs(nn.Module):
        def __init__(self, c=16, depth=4):
            super().__init__()
            sizes = [2, *(c + 8 * k for k in range(depth))]
            self.encoder = nn.ModuleList(HEncLayer(a, b) for a, b in zip(sizes, sizes[1:]))
            self.lstm, self.linear = nn.LSTM(sizes[-1], sizes[-1], 2, bidirectional=True), nn.Linear(2 * sizes[-1], sizes[-1])
            self.decoder = nn.ModuleList(HDecLayer(b, a if k else 2 * len(sources), last=not k) for k, (a, b) in reversed(list(enumerate(zip(sizes, sizes[1:])))))

        def forward(self, mix):
            mono = mix.mean(1, keepdim=True)
            mean, std = mono.mean(-1, keepdim=True), mono.std(-1, keepdim=True)
            x, saved, lengths = (mix - mean) / (1e-5 + std), [], []
            for encode in self.encoder:
                lengths.append(x.shape[-1])
                x = encode(x)
                saved.append(x)
            y = self.lstm(x.permute(2, 0, 1))[0]
            x = self.linear(y).permute(1, 2, 0)
            for decode in self.decoder:
                x = decode(x, saved.pop(), lengths.pop())
            return (x * std + mean).view(mix.shape[0], len(sources), 2, -1)

    model = Demucs().to(D()).eval()
    blocks([*model.encoder, *model.decoder])
    blocks((m for one in (*model.encoder, *model.decoder) for m in one.modules() if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d))), "convolution")
    segment, rng = 2048, random.Random(0)

    def apply_split(mix, overlap=0.25):
        length, stride = mix.shape[-1], int((1 - overlap) * segment)
        out, total = torch.zeros(len(sources), 2, length, device=mix.device), torch.zeros(length, device=mix.device)
        weight = torch.cat([torch.arange(1, segment // 2 + 1, device=mix.device), torch.arange(segment - segment // 2, 0, -1, device=mix.device)]).float()
        weight = weight / weight.max()
        for offset in range(0, length, stride):
            with execution():
                chunk = mix[:, offset:offset + segment]
                n = chunk.shape[-1]
                y = model(F.pad(chunk, (0, segment - n))[None])[0, ..., :n]
                out[..., offset:offset + segment] += weight[:n] * y
                total[offset:offset + segment] += weight[:n]
        return out / total

    def separate(wave, shifts=2, max_shift=400):
        with record_function("separate"), execution("track"):
            mix = torch.from_numpy(wave).to(D())
            padded, out = F.pad(mix, (max_shift, max_shift)), 0
            for k in range(shifts):
                with record_function(f"shift {k}"):
                    offset = rng.randint(0, max_shift)
                    shifted = padded[:, offset:offset + mix.shape[-1] + max_shift - offset]
                    out = out + apply_split(shifted)[..., max_shift - offset:]
            return (out / shifts).cpu().numpy()

    def track(seconds):
        return np.random.default_rng(int(seconds)).standard_normal((2, int(seconds))).astype(np.float32)

    with tempfile.TemporaryDirectory() as folder:
        separate(track(1800), 1)
        with record():
            for number, length in enumerate((5300, 3700)):
                stems = separate(track(length))
                for name, stem in zip(sources, stems):
                    np.save(Path(folder) / f"{number}.{name}.npy", (stem.clip(-1, 1) * 32767).astype(np.int16))


# -------------------------------------------------------------------------------------------------- 4. a forecaster
@program(executions=18, layers=5, kinds={"pass": 18, "forecast": 6}, ranges="record_function: predict (one for each origin)",
         note="a rolling backtest over 6 origins; each forecast of 24 points is made in 3 passes of the decoder-only model, each of which gives a patch of 8: a pass is one execution, a forecast is acceptable. "
              "Layers: the 5 decoder layers. The batch of series is ragged: 12, and 7 for the last two origins; the context grows.")
def timesfm_rolling():
    "A decoder-only forecaster of patches, zero-shot, over rolling origins."
    torch.set_grad_enabled(False)
    patch, dim, heads = 8, 64, 4

    class RMSNorm(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(n))

        def forward(self, x):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)

    class ResidualBlock(nn.Module):
        def __init__(self, i, h, o):
            super().__init__()
            self.hidden, self.output, self.residual = nn.Sequential(nn.Linear(i, h), nn.SiLU()), nn.Linear(h, o), nn.Linear(i, o)

        def forward(self, x):
            return self.output(self.hidden(x)) + self.residual(x)

    class TimesFMDecoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.input_layernorm, self.mlp_norm = RMSNorm(dim), nn.LayerNorm(dim)
            self.qkv_proj, self.o_proj, self.scaling = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Parameter(torch.zeros(dim // heads))
            self.gate_proj, self.down_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)

        def forward(self, x, mask):
            b, t, _ = x.shape
            q, k, v = self.qkv_proj(self.input_layernorm(x)).view(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
            q = q * (F.softplus(self.scaling) * 1.442695041 / math.sqrt(dim // heads))
            scores = (q @ k.transpose(-1, -2)) + mask
            y = torch.softmax(scores.float(), -1).type_as(q) @ v
            x = x + self.o_proj(y.transpose(1, 2).reshape(b, t, dim))
            return x + self.down_proj(F.relu(self.gate_proj(self.mlp_norm(x))))

    class TimesFM(nn.Module):
        def __init__(self, depth=5, quantiles=9):
            super().__init__()
            self.input_ff_layer, self.freq_emb = ResidualBlock(2 * patch, dim, dim), nn.Embedding(3, dim)
            self.layers, self.horizon_ff_layer, self.q = nn.ModuleList(TimesFMDecoderLayer() for _ in range(depth)), ResidualBlock(dim, dim, patch * (1 + quantiles)), 1 + quantiles

        def forward(self, series, padding, freq):
            b = series.shape[0]
            x, p = series.view(b, -1, patch), padding.view(b, -1, patch)
            keep = 1 - p
            mu = (x * keep).sum((1, 2)) / keep.sum((1, 2)).clamp(min=1)
            sigma = (((x - mu[:, None, None]) * keep).square().sum((1, 2)) / keep.sum((1, 2)).clamp(min=1)).sqrt().clamp(min=1e-3)
            x = (x - mu[:, None, None]) / sigma[:, None, None] * keep
            h = self.input_ff_layer(torch.cat([x, p], -1)) + self.freq_emb(freq)
            t = h.shape[1]
            mask = torch.triu(torch.full((t, t), float("-inf"), device=h.device), 1)
            padded = p.amin(-1).bool()
            mask = mask[None, None] + torch.zeros(b, 1, 1, t, device=h.device).masked_fill(padded[:, None, None], -1e9)
            for one in self.layers:
                h = one(h, mask)
            out = self.horizon_ff_layer(h[:, -1]).view(b, patch, self.q)
            return out * sigma[:, None, None] + mu[:, None, None]

    model = TimesFM().to(D()).eval()
    blocks(model.layers)

    def predict(context, horizon=24):
        with record_function("predict"), execution("forecast"):
            length = math.ceil(max(map(len, context)) / patch) * patch
            values, pads = np.zeros((len(context), length), np.float32), np.ones((len(context), length), np.float32)
            for row, series in enumerate(context):
                values[row, length - len(series):], pads[row, length - len(series):] = series, 0
            x, p = torch.from_numpy(values).to(D()), torch.from_numpy(pads).to(D())
            freq, out = torch.zeros(len(context), 1, dtype=torch.long, device=D()), []
            for _ in range(math.ceil(horizon / patch)):
                with execution():
                    y = model(x, p, freq)
                    out.append(y)
                    x, p = torch.cat([x, y[..., 0]], 1), torch.cat([p, torch.zeros_like(y[..., 0])], 1)
            return torch.cat(out, 1)[:, :horizon].cpu().numpy()

    rng = np.random.default_rng(0)
    world = [np.cumsum(rng.standard_normal(260)).astype(np.float32) + 5 * np.sin(np.arange(260) / rng.uniform(2, 12)).astype(np.float32) for _ in range(12)]
    predict([w[:64] for w in world])
    scores = []
    with record():
        for k, origin in enumerate((64, 80, 100, 120, 140, 160)):
            series = world if k < 4 else world[:7]
            forecast = predict([w[max(0, origin - 96):origin - (i % 3)] for i, w in enumerate(series)])
            actual = np.stack([w[origin:origin + 24] for w in series])
            naive = np.stack([np.abs(np.diff(w[:origin])).mean() for w in series])
            scores.append((np.abs(forecast[..., 0] - actual).mean(1) / naive).mean())
            print(f"origin {origin}: MASE {scores[-1]:.3f} WQL {np.maximum(0.9 * (actual - forecast[..., 9]), 0.1 * (forecast[..., 9] - actual)).mean():.3f}")


# -------------------------------------------------------------------------------------------------- 5. a robot
@program(executions=5, layers=8, kinds={"chunk of actions": 5, "pass": 35}, ranges="record_function: policy.infer, in it policy.prefix and policy.denoise",
         note="5 calls of the policy, each with one pass over pictures and words (its keys and values are kept) and 6 flow steps of the action expert: a call is one execution; each of the 7 passes is acceptable. "
              "Layers: 2 of the picture tower, 3 of the language model, 3 of the action expert (in each flow step).")
def vla_flow_chunks():
    "A vision-language-action model: prefix with kept keys and values, then flow matching of a chunk of actions."
    torch.set_grad_enabled(False)
    heads, horizon, action_dim = 4, 10, 7

    def split(x):
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    class SiglipLayer(nn.Module):
        def __init__(self, d=48):
            super().__init__()
            self.layer_norm1, self.layer_norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d, d) for _ in range(4))
            self.fc1, self.fc2 = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

        def forward(self, x):
            h = self.layer_norm1(x)
            y = F.scaled_dot_product_attention(split(self.q_proj(h)), split(self.k_proj(h)), split(self.v_proj(h)))
            x = x + self.out_proj(y.transpose(1, 2).flatten(2))
            return x + self.fc2(F.gelu(self.fc1(self.layer_norm2(x)), approximate="tanh"))

    class GemmaLayer(nn.Module):
        def __init__(self, d, inner, cond=None):
            super().__init__()
            self.norm1, self.norm2 = (nn.Parameter(torch.zeros(d)) for _ in range(2))
            self.ada = nn.Linear(cond, 4 * d) if cond else None
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(a, b, bias=False) for a, b in ((d, inner), (d, inner), (d, inner), (inner, d)))
            self.gate_proj, self.up_proj, self.down_proj = nn.Linear(d, 4 * d, bias=False), nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

        def forward(self, x, past=None, cond=None):
            s1 = s2 = 0
            g1 = g2 = 1
            if self.ada is not None:
                s1, g1, s2, g2 = self.ada(cond)[:, None].chunk(4, -1)
            h = F.rms_norm(x, x.shape[-1:]) * (1 + self.norm1 + s1)
            q, k, v = split(self.q_proj(h)), split(self.k_proj(h)), split(self.v_proj(h))
            kept = k, v
            if past is not None:
                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + g1 * self.o_proj(y.transpose(1, 2).flatten(2))
            h = F.rms_norm(x, x.shape[-1:]) * (1 + self.norm2 + s2)
            return x + g2 * self.down_proj(F.gelu(self.gate_proj(h), approximate="tanh") * self.up_proj(h)), kept

    class Pi0(nn.Module):
        def __init__(self, v=48, d=64, e=32, words=100):
            super().__init__()
            self.patch, self.pos, self.vision, self.connect = nn.Conv2d(3, v, 8, 8), nn.Parameter(0.02 * torch.randn(1, 16, v)), nn.ModuleList(SiglipLayer(v) for _ in range(2)), nn.Linear(v, d)
            self.embed, self.language, self.expert = nn.Embedding(words, d), nn.ModuleList(GemmaLayer(d, d) for _ in range(3)), nn.ModuleList(GemmaLayer(e, d, e) for _ in range(3))
            self.action_in, self.state, self.action_out = nn.Linear(action_dim, e), nn.Linear(action_dim, e), nn.Linear(e, action_dim)
            self.time_mlp = nn.Sequential(nn.Linear(e, e), nn.SiLU(), nn.Linear(e, e), nn.SiLU())

        def prefix(self, pictures, ids):
            x = self.patch(pictures).flatten(2).transpose(1, 2) + self.pos
            for one in self.vision:
                x = one(x)
            x = torch.cat([self.connect(x).flatten(0, 1)[None], self.embed(ids) * 8.0], 1)
            cache = []
            for one in self.language:
                x, kept = one(x)
                cache.append(kept)
            return cache

        def velocity(self, x_t, t, state, cache):
            f = torch.exp(torch.linspace(math.log(0.004), math.log(4.0), 16, device=x_t.device))
            angle = 2 * math.pi * t[:, None] / f
            cond = self.time_mlp(torch.cat([angle.sin(), angle.cos()], -1))
            x = torch.cat([self.state(state)[:, None], self.action_in(x_t)], 1)
            for one, past in zip(self.expert, cache):
                x, _ = one(x, past, cond)
            return self.action_out(x[:, 1:])

    policy = Pi0().to(D()).eval()
    blocks([*policy.vision, *policy.language, *policy.expert])

    def infer(observation, num_steps=6):
        with record_function("policy.infer"), execution():
            with record_function("policy.prefix"), execution("pass"):
                pictures = torch.from_numpy(observation["images"]).to(D()).permute(0, 3, 1, 2).float() / 127.5 - 1
                cache = policy.prefix(pictures, torch.from_numpy(observation["prompt"]).to(D())[None])
                state = torch.from_numpy(observation["state"]).to(D())[None]
                x_t = torch.randn(1, horizon, action_dim, device=D())
            dt, now = -1.0 / num_steps, 1.0
            for _ in range(num_steps):
                with record_function("policy.denoise"), execution("pass"):
                    t = torch.full((1,), now, device=D())
                    x_t = x_t + dt * policy.velocity(x_t, t, state, cache)
                now += dt
            return x_t[0].cpu().numpy()

    class Arm:
        def __init__(self):
            self.rng, self.state = np.random.default_rng(3), np.zeros(action_dim, np.float32)

        def look(self):
            return {"images": self.rng.integers(0, 255, (2, 32, 32, 3), dtype=np.uint8), "state": self.state, "prompt": np.arange(9)}

        def step(self, action):
            self.state = (0.9 * self.state + 0.1 * np.tanh(action)).astype(np.float32)
            self.look()

    robot = Arm()
    infer(robot.look())
    with record():
        for episode in range(5):
            plan = infer(robot.look())
            for action in plan[:8]:
                robot.step(action)
        print(robot.state.round(2))


# -------------------------------------------------------------------------------------------------- 6. MuZero
@program(executions=6, layers=5, kinds={"training step": 6}, ranges="none",
         note="6 training steps, each with values by the target network (no gradient), an unroll of 3 steps by the network, one backward pass and one update: a step is one execution. "
              "Layers: the residual blocks (2 of the representation, 2 of the dynamics, 1 of the prediction, the latter ones called again and again); each convolution is acceptable.")
def muzero_unroll():
    "MuZero's learner: prioritised replay, reanalysed values, an unroll of the dynamics, a target that is copied now and then."
    c, K, actions, support = 16, 3, 6, 21

    class ResBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
            self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)

        def forward(self, x):
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + x)

    class MuZeroNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.rep = nn.Sequential(nn.Conv2d(4, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU()), nn.Sequential(ResBlock(), ResBlock())
            self.mix, self.dyn = nn.Sequential(nn.Conv2d(c + 1, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU()), nn.Sequential(ResBlock(), ResBlock())
            self.pred, self.policy, self.value, self.reward = ResBlock(), nn.Linear(c * 36, actions), nn.Linear(c * 36, support), nn.Linear(c * 36, support)

        def prediction(self, s):
            h = self.pred(s).flatten(1)
            return self.policy(h), self.value(h)

        def initial_inference(self, obs):
            s = self.rep(self.stem(obs))
            return s, *self.prediction(s)

        def recurrent_inference(self, s, a):
            plane = (a.float() / actions).view(-1, 1, 1, 1).expand(-1, 1, 6, 6)
            s = self.dyn(self.mix(torch.cat([s, plane], 1)))
            low, high = s.flatten(1).min(1)[0].view(-1, 1, 1, 1), s.flatten(1).max(1)[0].view(-1, 1, 1, 1)
            s = (s - low) / (high - low + 1e-5)
            return s, self.reward(s.flatten(1)), *self.prediction(s)

    net = MuZeroNet().to(D())
    target = copy.deepcopy(net).eval().requires_grad_(False)
    both = [m for one in (net, target) for m in one.modules()]
    blocks(m for m in both if isinstance(m, ResBlock))
    blocks((m for m in both if isinstance(m, nn.Conv2d)), "convolution")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    values = torch.linspace(-10, 10, support, device=D())

    class Replay:
        def __init__(self, n=500):
            self.rng, self.priority = np.random.default_rng(0), np.ones(n)
            self.obs = self.rng.random((n + K + 1, 4, 6, 6), dtype=np.float32)
            self.action, self.reward = self.rng.integers(0, actions, n + K + 1), self.rng.standard_normal(n + K + 1).astype(np.float32)
            self.visits = self.rng.dirichlet(np.ones(actions), n + K + 1).astype(np.float32)

        def sample(self, batch):
            p = self.priority / self.priority.sum()
            at = self.rng.choice(len(p), batch, p=p)
            w = (1 / (len(p) * p[at])) ** 0.5
            window = at[:, None] + np.arange(K + 1)
            return at, (w / w.max()).astype(np.float32), self.obs[window], self.action[window], self.reward[window], self.visits[window]

    def two_hot(x):
        x = (x.clamp(-10, 10) + 10) * (support - 1) / 20
        low = x.floor().long().clamp(0, support - 2)
        up = (x - low).unsqueeze(-1)
        return torch.zeros(*x.shape, support, device=x.device).scatter_(-1, low.unsqueeze(-1), 1 - up).scatter_(-1, low.unsqueeze(-1) + 1, up)

    def cross_entropy(logits, want):
        return -(want * F.log_softmax(logits, -1)).sum(-1)

    replay = Replay()

    def learn(step):
        at, *batch = replay.sample(16)
        w, obs, a, r, pi = (torch.from_numpy(np.ascontiguousarray(x)).to(D(), non_blocking=True) for x in batch)
        with torch.no_grad():  # reanalyse
            _, _, v = target.initial_inference(obs.flatten(0, 1))
            z = r + 0.997 * (v.softmax(-1) @ values).view(obs.shape[:2])
            tv, tr = two_hot(z), two_hot(r)
        s, p, v = net.initial_inference(obs[:, 0])
        first = (v.detach().softmax(-1) @ values - z[:, 0]).abs()
        loss = cross_entropy(p, pi[:, 0]) + 0.25 * cross_entropy(v, tv[:, 0])
        for k in range(1, K + 1):
            s, reward, p, v = net.recurrent_inference(s, a[:, k - 1])
            s.register_hook(lambda g: g * 0.5)
            loss = loss + (cross_entropy(p, pi[:, k]) + 0.25 * cross_entropy(v, tv[:, k]) + cross_entropy(reward, tr[:, k])) / K
        loss = (loss * w).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5)
        optimizer.step()
        replay.priority[at] = first.cpu().numpy() + 1e-3
        if step % 3 == 2:
            target.load_state_dict(net.state_dict())
        return loss

    learn(0)
    with record():
        for step in range(6):
            with execution():
                loss = learn(step)
            if step % 2 == 0:
                print(step, f"{loss.item():.3f}")


# -------------------------------------------------------------------------------------------------- 7. a graph in time
@program(executions=12, layers=2, kinds={"training batch": 8, "test batch": 4}, ranges="record_function: train, test (each around a loop over batches)",
         note="2 epochs of 4 training batches and 2 test batches of events in order: each batch is one pass of memory and layers, hence an execution; the training batches alone are acceptable. "
              "Layers: the 2 graph attention layers. The last training batch of an epoch is smaller.")
def tgn_stream():
    "A temporal graph network: a memory by GRU, recent neighbours on the host, two attention layers, link prediction."
    dim, nodes, msg_dim = 32, 120, 16

    class TimeEncoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(1, dim)

        def forward(self, t):
            return self.lin(t.view(-1, 1)).cos()

    class TGNMemory(nn.Module):
        def __init__(self):
            super().__init__()
            self.time_enc, self.gru = TimeEncoder(), nn.GRUCell(3 * dim + msg_dim, dim)
            self.register_buffer("memory", torch.zeros(nodes, dim))
            self.register_buffer("last_update", torch.zeros(nodes))
            self.reset()

        def reset(self):
            self.memory.zero_()
            self.last_update.zero_()
            self.store = None

        def forward(self, n_id):
            memory, last = self.memory, self.last_update
            if self.store is not None:
                src, dst, t, raw = self.store
                rel = self.time_enc(t - last[src])
                message = torch.cat([memory[src], memory[dst], raw, rel], -1)
                order = torch.zeros(nodes, dtype=torch.long, device=t.device).scatter_reduce_(0, src, torch.arange(len(src), device=t.device), "amax")
                touched = torch.zeros(nodes, dtype=torch.bool, device=t.device).index_fill_(0, src, True)
                updated = self.gru(message[order], memory)
                memory = torch.where(touched[:, None], updated, memory)
                last = torch.where(touched, t[order], last)
            self.fresh = memory, last
            return memory[n_id], last[n_id]

        def update(self, src, dst, t, raw):
            self.memory, self.last_update = (x.detach() for x in self.fresh)
            self.store = torch.cat([src, dst]), torch.cat([dst, src]), torch.cat([t, t]), torch.cat([raw, raw])

    class TransformerConv(nn.Module):
        def __init__(self, heads=2):
            super().__init__()
            self.heads = heads
            self.lin_query, self.lin_key, self.lin_value, self.lin_edge, self.lin_skip = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim + msg_dim, dim, bias=False), nn.Linear(dim, dim)

        def forward(self, x, edge_index, edge_attr):
            j, i = edge_index
            e = self.lin_edge(edge_attr).view(-1, self.heads, dim // self.heads)
            q = self.lin_query(x).view(-1, self.heads, dim // self.heads)[i]
            k = self.lin_key(x).view(-1, self.heads, dim // self.heads)[j] + e
            v = self.lin_value(x).view(-1, self.heads, dim // self.heads)[j] + e
            alpha = (q * k).sum(-1) / math.sqrt(dim // self.heads)
            top = torch.full((x.shape[0], self.heads), -1e9, device=x.device).scatter_reduce(0, i[:, None].expand_as(alpha), alpha.detach(), "amax")
            alpha = (alpha - top[i]).exp()
            total = torch.zeros_like(top).index_add(0, i, alpha)
            out = torch.zeros(x.shape[0], self.heads, dim // self.heads, device=x.device).index_add(0, i, v * (alpha / (total[i] + 1e-16)).unsqueeze(-1))
            return F.relu(out.flatten(1) + self.lin_skip(x))

    class LinkPredictor(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin_src, self.lin_dst, self.lin_final = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 1)

        def forward(self, a, b):
            return self.lin_final(F.relu(self.lin_src(a) + self.lin_dst(b)))

    memory, convs, link = TGNMemory().to(D()), nn.ModuleList(TransformerConv() for _ in range(2)).to(D()), LinkPredictor().to(D())
    blocks(convs)
    parameters = [*memory.parameters(), *convs.parameters(), *link.parameters()]
    optimizer, criterion = torch.optim.Adam(parameters, lr=1e-3), nn.BCEWithLogitsLoss()
    rng = np.random.default_rng(0)
    events = 40 * 5 + 24
    source, destination = rng.integers(0, 60, events), rng.integers(60, nodes, events)
    when, message = np.sort(rng.random(events)).astype(np.float32) * 100, rng.standard_normal((events, msg_dim)).astype(np.float32)
    recent = defaultdict(list)

    def neighbours(n_id, hops=2, size=5):
        seen, edges, frontier = list(dict.fromkeys(n_id)), [], list(n_id)
        for _ in range(hops):
            nxt = []
            for node in dict.fromkeys(frontier):
                for other, event in recent[node][-size:]:
                    edges.append((other, node, event))
                    nxt.append(other)
            frontier = nxt
            seen = list(dict.fromkeys(seen + nxt))
        where = {n: k for k, n in enumerate(seen)}
        edges = np.array([(where[a], where[b], e) for a, b, e in edges] or [(0, 0, 0)])
        return np.array(seen), edges[:, :2].T.copy(), edges[:, 2], where

    def scores(lo, hi):
        src, dst, neg = source[lo:hi], destination[lo:hi], rng.integers(60, nodes, hi - lo)
        seen, edge_index, e_id, where = neighbours([*src.tolist(), *dst.tolist(), *neg.tolist()])
        n_id, edge_index = torch.from_numpy(seen).to(D()), torch.from_numpy(edge_index).to(D())
        et, em = torch.from_numpy(when[e_id]).to(D()), torch.from_numpy(message[e_id]).to(D())
        z, last = memory(n_id)
        attr = torch.cat([memory.time_enc(last[edge_index[0]] - et), em], -1)
        for conv in convs:
            z = conv(z, edge_index, attr)
        a, b, n = (torch.from_numpy(np.array([where[x] for x in ids.tolist()])).to(D()) for ids in (src, dst, neg))
        return link(z[a], z[b]), link(z[a], z[n])

    def remember(lo, hi):
        memory.update(*(torch.from_numpy(x[lo:hi]).to(D()) for x in (source, destination, when, message)))
        for k in range(lo, hi):
            recent[int(source[k])].append((int(destination[k]), k))
            recent[int(destination[k])].append((int(source[k]), k))

    def train(ranges):
        memory.reset()
        recent.clear()
        total = 0.0
        with record_function("train"):
            for lo, hi in ranges:
                with execution(), execution("training batch"):
                    optimizer.zero_grad()
                    pos, neg = scores(lo, hi)
                    loss = criterion(pos, torch.ones_like(pos)) + criterion(neg, torch.zeros_like(neg))
                    remember(lo, hi)
                    loss.backward()
                    optimizer.step()
                    total += loss.item() * (hi - lo)
        return total / ranges[-1][1]

    @torch.no_grad()
    def test(ranges):
        out = []
        with record_function("test"):
            for lo, hi in ranges:
                with execution():
                    pos, neg = scores(lo, hi)
                    y = torch.cat([pos, neg]).sigmoid().cpu().numpy().ravel()
                    remember(lo, hi)
                hits = (np.argsort(-y) < hi - lo).cumsum()
                out.append((hits / np.arange(1, len(y) + 1))[np.argsort(-y) < hi - lo].mean())
        return float(np.mean(out))

    split_train, split_test = [(0, 40), (40, 80), (80, 120), (120, 144)], [(144, 184), (184, 224)]
    train(split_train[:2])
    with tempfile.TemporaryDirectory() as folder, record():
        for epoch in range(2):
            loss = train(split_train)
            ap = test(split_test)
            print(f"Epoch {epoch} loss {loss:.4f} AP {ap:.4f}")
            Path(folder, f"{epoch}.json").write_text(json.dumps({"loss": loss, "ap": ap}))


# -------------------------------------------------------------------------------------------------- 8. late interaction
@program(executions=18, layers=4, kinds={"passage batch": 6, "query": 12}, ranges="record_function: 'colbert::index' around all of the index, 'colbert::search' around each query",
         note="6 batches of passages are encoded (sorted into lengths 16, 24 and 40), then 12 queries one by one, each encoded and scored: each is one pass of the encoder, hence an execution. "
              "Layers: the 4 encoder layers.")
def colbert_search():
    "ColBERT: an index of token vectors, then queries by late interaction."
    torch.set_grad_enabled(False)
    dim, heads, out_dim = 64, 4, 24

    class BertLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value, self.dense = (nn.Linear(dim, dim) for _ in range(4))
            self.norm1, self.norm2, self.inter, self.output = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x, mask):
            b, t, _ = x.shape
            q, k, v = (w(x).view(b, t, heads, -1).transpose(1, 2) for w in (self.query, self.key, self.value))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(b, t, dim)
            x = self.norm1(x + self.dense(y))
            return self.norm2(x + self.output(F.gelu(self.inter(x))))

    class ColBERT(nn.Module):
        def __init__(self, vocabulary=400, depth=4):
            super().__init__()
            self.word, self.position, self.norm = nn.Embedding(vocabulary, dim, padding_idx=0), nn.Embedding(64, dim), nn.LayerNorm(dim)
            self.layer, self.linear = nn.ModuleList(BertLayer() for _ in range(depth)), nn.Linear(dim, out_dim, bias=False)

        def forward(self, ids):
            mask = (ids != 0)
            x = self.norm(self.word(ids) + self.position(torch.arange(ids.shape[1], device=ids.device)))
            for one in self.layer:
                x = one(x, mask[:, None, None])
            return F.normalize(self.linear(x), p=2, dim=2), mask

    model = ColBERT().to(D()).eval()
    blocks(model.layer)
    rng = np.random.default_rng(0)
    passages = [rng.integers(1, 400, rng.integers(8, 41)) for _ in range(88)]

    def pad(rows, length):
        out = np.zeros((len(rows), length), np.int64)
        for r, row in zip(out, rows):
            r[:min(len(row), length)] = row[:length]
        return torch.from_numpy(out).to(D())

    class Index:
        def __init__(self, collection, bsize=16):
            order = sorted(range(len(collection)), key=lambda k: len(collection[k]))
            self.doc_of, vectors = [], []
            for at in range(0, len(order), bsize):
                ids = order[at:at + bsize]
                length = next(n for n in (16, 24, 40) if n >= max(len(collection[k]) for k in ids))
                with execution():
                    d, mask = model(pad([collection[k] for k in ids], length))
                    vectors.append(d[mask])
                    for k, n in zip(ids, mask.sum(1).cpu().tolist()):
                        self.doc_of += [k] * int(n)
            self.vectors = torch.cat(vectors)
            self.centroids = self.vectors[::19][:32].clone()
            codes = (self.vectors @ self.centroids.T).argmax(1).cpu().numpy()
            self.inverted = defaultdict(set)
            for code, doc in zip(codes, self.doc_of):
                self.inverted[int(code)].add(doc)
            self.rows = defaultdict(list)
            for row, doc in enumerate(self.doc_of):
                self.rows[doc].append(row)

    def search(index, query, k=5, nprobe=3):
        with record_function("colbert::search"), execution():
            padded = np.full(24, 3)  # [MASK] as augmentation
            padded[:len(query)] = query
            q, _ = model(torch.from_numpy(padded).to(D())[None])
            cells = (q[0] @ index.centroids.T).topk(nprobe, -1).indices.cpu().numpy()
            docs = sorted(set().union(*(index.inverted[int(c)] for c in np.unique(cells))))[:40]
            longest = max(len(index.rows[d]) for d in docs)
            rows, mask = np.zeros((len(docs), longest), np.int64), np.zeros((len(docs), longest), bool)
            for n, d in enumerate(docs):
                rows[n, :len(index.rows[d])], mask[n, :len(index.rows[d])] = index.rows[d], True
            d = index.vectors[torch.from_numpy(rows).to(D())]
            scores = (d @ q[0].T).masked_fill(~torch.from_numpy(mask).to(D())[..., None], -1e4)
            best = scores.amax(1).sum(-1).topk(min(k, len(docs)))
            return [docs[i] for i in best.indices.cpu().numpy()], best.values.cpu().numpy()

    search(Index(passages[:20]), passages[3][:6])
    with record():
        with record_function("colbert::index"):
            index = Index(passages)
        reciprocal = []
        for number in range(12):
            want = 7 * number % len(passages)
            found, _ = search(index, passages[want][:rng.integers(4, 9)])
            reciprocal.append(1 / (1 + found.index(want)) if want in found else 0.0)
        print("MRR@5", np.mean(reciprocal))


# -------------------------------------------------------------------------------------------------- 9. tables in context
@program(executions=12, layers=6, kinds={"ensemble member": 12, "data set": 4}, ranges="none",
         note="4 data sets (other numbers of rows and columns), each predicted by 3 members of an ensemble (other orders of features and classes): each is one call of the network, hence an execution; a data set is acceptable. "
              "Layers: the 6 layers; each of its three parts (over features, over rows, MLP) is acceptable.")
def tabpfn_tables():
    "TabPFN: classification in context, attention over features and over rows, an ensemble of permutations."
    torch.set_grad_enabled(False)
    d, heads = 48, 4

    class FeatureAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out, self.norm = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False), nn.LayerNorm(d, elementwise_affine=False)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, heads, -1)).movedim(-3, 0).transpose(-3, -2)
            return self.norm(x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2)))

    class ItemAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv, self.out, self.norm = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(d, d, bias=False), nn.LayerNorm(d, elementwise_affine=False)

        def forward(self, x, single_eval_pos):
            y = x.transpose(0, 1)
            q = self.q(y).unflatten(-1, (heads, -1)).transpose(-3, -2)
            k, v = self.kv(y[:, :single_eval_pos]).unflatten(-1, (2, heads, -1)).movedim(-3, 0).transpose(-3, -2)
            y = self.out(F.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2))
            return self.norm(x + y.transpose(0, 1))

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.w2, self.norm = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False), nn.LayerNorm(d, elementwise_affine=False)

        def forward(self, x):
            return self.norm(x + self.w2(F.gelu(self.w1(x))))

    class PerFeatureLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.items, self.mlp = FeatureAttention(), ItemAttention(), MLP()

        def forward(self, x, single_eval_pos):
            return self.mlp(self.items(self.features(x), single_eval_pos))

    class PerFeatureTransformer(nn.Module):
        def __init__(self, depth=6, classes=10):
            super().__init__()
            self.encoder, self.y_encoder, self.position = nn.Linear(2 * 2, d), nn.Linear(2, d), nn.Linear(8, d)
            self.layers, self.decoder = nn.ModuleList(PerFeatureLayer() for _ in range(depth)), nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, classes))

        def forward(self, x, y, single_eval_pos):
            mean, std = x[:single_eval_pos].nanmean(0), x[:single_eval_pos].nan_to_num().std(0) + 1e-6
            missing = x.isnan().float()
            x = ((x - mean) / std).nan_to_num().clamp(-100, 100)
            if x.shape[1] % 2:
                x, missing = F.pad(x, (0, 1)), F.pad(missing, (0, 1))
            tokens = self.encoder(torch.cat([x.unflatten(1, (-1, 2)), missing.unflatten(1, (-1, 2))], -1))
            generator = torch.Generator(device=x.device).manual_seed(0)
            tokens = tokens + self.position(torch.randn(tokens.shape[1], 8, device=x.device, generator=generator))
            known = F.pad(y, (0, len(x) - len(y)))
            unknown = torch.zeros_like(known)
            unknown[single_eval_pos:] = 1
            h = torch.cat([tokens, self.y_encoder(torch.stack([known, unknown], -1))[:, None]], 1)
            for one in self.layers:
                h = one(h, single_eval_pos)
            return self.decoder(h[single_eval_pos:, -1])

    model = PerFeatureTransformer().to(D()).eval()
    blocks(model.layers)
    blocks((part for one in model.layers for part in (one.features, one.items, one.mlp)), "part")

    def predict_proba(x_train, y_train, x_test, members=3, temperature=0.9):
        n, classes = len(x_train), int(y_train.max()) + 1
        rng, total = np.random.default_rng(0), 0
        for member in range(members):
            order, labels = rng.permutation(x_train.shape[1]), rng.permutation(classes)
            x = np.concatenate([x_train, x_test])[:, order]
            if member % 2:
                x = np.sign(x) * np.log1p(np.abs(x))  # a power transform
            with execution():
                logits = model(torch.from_numpy(x).to(D()), torch.from_numpy(labels[y_train].astype(np.float32)).to(D()), n)
                p = torch.softmax(logits[:, :classes] / temperature, -1).cpu().numpy()
            total = total + p[:, labels]
        return total / members

    def data(rows, columns, classes, seed):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((rows, columns)).astype(np.float32)
        y = (x @ rng.standard_normal((columns, classes))).argmax(1)
        x[rng.random(x.shape) < 0.03] = np.nan
        return x, y

    sets = [data(*shape) for shape in ((90, 6, 3, 1), (60, 11, 2, 2), (120, 4, 4, 3), (75, 8, 2, 4))]
    predict_proba(*(lambda x, y: (x[:40], y[:40], x[40:]))(*sets[3]), 1)
    with record():
        for x, y in sets:
            cut = int(0.7 * len(x))
            with execution("data set"):
                p = predict_proba(x[:cut], y[:cut], x[cut:])
            print(f"{x.shape} accuracy {(p.argmax(1) == y[cut:]).mean():.3f}")


# -------------------------------------------------------------------------------------------------- 10. regional compilation
@program(executions=11, layers=6, kinds={"training step": 8, "evaluation batch": 3}, ranges="none",
         note="8 fine-tuning steps, then 3 evaluation batches (the last one smaller): each is one pass, hence an execution; the training steps alone are acceptable. "
              "Layers: the 6 encoder layers, each compiled by itself (torch.compile, backend aot_eager here).")
def regional_compile():
    "A ModernBERT-like classifier is fine-tuned; only the repeated layer is compiled; learning rates fall off with depth."
    dim, heads = 64, 4

    class EncoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn_norm, self.mlp_norm = nn.LayerNorm(dim, bias=False), nn.LayerNorm(dim, bias=False)
            self.Wqkv, self.Wo_attn, self.Wi, self.Wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False), nn.Linear(dim, 4 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

        def forward(self, x, mask, cos, sin):
            b, t, _ = x.shape
            q, k, v = self.Wqkv(self.attn_norm(x)).view(b, t, 3, heads, dim // heads).permute(2, 0, 3, 1, 4).unbind(0)
            q = q * cos + torch.cat([-q[..., 8:], q[..., :8]], -1) * sin
            k = k * cos + torch.cat([-k[..., 8:], k[..., :8]], -1) * sin
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + self.Wo_attn(y.transpose(1, 2).reshape(b, t, dim))
            a, gate = self.Wi(self.mlp_norm(x)).chunk(2, -1)
            return x + self.Wo(F.gelu(a) * gate)

    class ModernBert(nn.Module):
        def __init__(self, vocabulary=300, depth=6, classes=5):
            super().__init__()
            self.tok, self.norm, self.layers = nn.Embedding(vocabulary, dim), nn.LayerNorm(dim), nn.ModuleList(EncoderLayer() for _ in range(depth))
            self.final_norm, self.head, self.classifier = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim)), nn.Linear(dim, classes)
            f = torch.outer(torch.arange(64).float(), 10000 ** -(torch.arange(0, 16, 2) / 16)).repeat(1, 2)
            self.register_buffer("cos", f.cos())
            self.register_buffer("sin", f.sin())

        def forward(self, ids, lengths):
            t = ids.shape[1]
            at = torch.arange(t, device=ids.device)
            valid = at < lengths[:, None]
            wide = valid[:, None, None].expand(-1, 1, t, t)
            local = wide & ((at[:, None] - at).abs() <= 8)
            x = self.norm(self.tok(ids))
            for k, one in enumerate(self.layers):
                x = one(x, wide if k % 3 == 0 else local, self.cos[:t], self.sin[:t])
            x = (self.final_norm(x) * valid[..., None]).sum(1) / lengths[:, None]
            return self.classifier(self.head(x))

    model = ModernBert().to(D())
    decay = {id(p): 0.8 ** (6 - k) for k, one in enumerate(model.layers) for p in one.parameters()}
    groups = defaultdict(list)
    for p in model.parameters():
        groups[decay.get(id(p), 1.0), p.ndim > 1].append(p)
    optimizer = torch.optim.AdamW([dict(params=ps, lr=5e-4 * scale, weight_decay=0.01 * matrix) for (scale, matrix), ps in groups.items()])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 3))
    for k, one in enumerate(model.layers):
        model.layers[k] = torch.compile(one, backend="aot_eager", dynamic=False)
    blocks(model.layers)
    rng = np.random.default_rng(0)

    def batch(n):
        return rng.integers(1, 300, (n, 40)), rng.integers(12, 41, n), rng.integers(0, 5, n)

    def to_device(arrays):
        return [torch.from_numpy(a).to(D(), non_blocking=True) for a in arrays]

    def train(batches):
        model.train()
        for step, arrays in enumerate(batches):
            with execution(), execution("training step"):
                ids, lengths, labels = to_device(arrays)
                loss = F.cross_entropy(model(ids, lengths), labels, label_smoothing=0.1)
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                if step % 4 == 3:
                    print({"loss": round(loss.item(), 4), "grad_norm": round(norm.item(), 3), "learning_rate": scheduler.get_last_lr()[0]})

    @torch.inference_mode()
    def evaluate(batches):
        model.eval()
        right = count = 0
        for arrays in batches:
            with execution():
                ids, lengths, labels = to_device(arrays)
                right += (model(ids, lengths).argmax(-1) == labels).sum().item()
            count += len(arrays[0])
        return right / count

    training, held_out = [batch(8) for _ in range(8)], [batch(16), batch(16), batch(5)]
    train(training[:2])
    evaluate(held_out)
    with record():
        train(training)
        print("accuracy", evaluate(held_out))


# -------------------------------------------------------------------------------------------------- 11. quantisation-aware training
@program(executions=9, layers=5, kinds={"training step": 6, "test batch": 3}, ranges="none",
         note="2 epochs of 3 training steps (in the second the observers and the batch norms are frozen), then 3 test batches by the averaged weights: each batch is one pass, hence an execution; the training steps alone are acceptable. "
              "Layers: the 5 inverted residual blocks; each convolution (with its fake quantisation) is acceptable.")
def qat_mobilenet():
    "Quantisation-aware training of a small MobileNet: fake quantisation of weights and activations, averaged weights."

    class FakeQuant(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("low", torch.zeros(()))
            self.register_buffer("high", torch.ones(()))
            self.observe = True

        def forward(self, x):
            if self.observe and self.training:
                with torch.no_grad():
                    low, high = torch.aminmax(x.detach())
                    self.low.lerp_(low.clamp(max=0), 0.1)
                    self.high.lerp_(high.clamp(min=0), 0.1)
            scale = ((self.high - self.low) / 255).clamp(min=1e-6)
            zero = (-self.low / scale).round().clamp(0, 255).int()
            return torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)

    class QConvBN(nn.Module):
        def __init__(self, i, o, k=1, s=1, groups=1, act=True):
            super().__init__()
            self.conv, self.bn, self.quant, self.act = nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o), FakeQuant(), act
            self.register_buffer("zero", torch.zeros(o, dtype=torch.int32))

        def forward(self, x):
            w = self.conv.weight
            scale = (w.detach().abs().amax((1, 2, 3)) / 127).clamp(min=1e-8)
            w = torch.fake_quantize_per_channel_affine(w, scale, self.zero, 0, -127, 127)
            x = self.bn(F.conv2d(x, w, None, self.conv.stride, self.conv.padding, 1, self.conv.groups))
            return self.quant(F.relu6(x) if self.act else x)

    class InvertedResidual(nn.Module):
        def __init__(self, i, o, s, expand=3):
            super().__init__()
            self.use_res = s == 1 and i == o
            self.conv = nn.Sequential(QConvBN(i, i * expand), QConvBN(i * expand, i * expand, 3, s, i * expand), QConvBN(i * expand, o, act=False))
            self.add = FakeQuant()

        def forward(self, x):
            return self.add(x + self.conv(x)) if self.use_res else self.conv(x)

    class MobileNet(nn.Module):
        def __init__(self, classes=10):
            super().__init__()
            self.quant, self.stem = FakeQuant(), QConvBN(3, 8, 3, 2)
            self.features = nn.Sequential(*(InvertedResidual(i, o, s) for i, o, s in ((8, 12, 1), (12, 16, 2), (16, 16, 1), (16, 24, 2), (24, 24, 1))))
            self.last, self.classifier = QConvBN(24, 64), nn.Linear(64, classes)

        def forward(self, x):
            return self.classifier(self.last(self.features(self.stem(self.quant(x)))).mean((2, 3)))

    model = MobileNet().to(D())
    ema = copy.deepcopy(model).requires_grad_(False)
    both = [m for one in (model, ema) for m in one.modules()]
    blocks(m for m in both if isinstance(m, InvertedResidual))
    blocks((m for m in both if isinstance(m, QConvBN)), "convolution")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=4e-5)
    rng = np.random.default_rng(0)
    pictures, labels = rng.integers(0, 255, (9, 16, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, (9, 16))

    @torch.no_grad()
    def update_ema(decay=0.9):
        torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)
        for a, b in zip(ema.buffers(), model.buffers()):
            a.copy_(b)

    def load(k):
        x = torch.from_numpy(pictures[k]).to(D(), non_blocking=True).float().div_(255).sub_(0.5)
        return x, torch.from_numpy(labels[k]).to(D(), non_blocking=True)

    def train_one_epoch(steps):
        for k in steps:
            with execution(), execution("training step"):
                x, y = load(k)
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                update_ema()
        print("loss", round(loss.item(), 3))

    @torch.no_grad()
    def test(net, steps):
        net.eval()
        right = torch.zeros((), dtype=torch.long, device=D())
        for k in steps:
            with execution():
                x, y = load(k)
                right += (net(x).argmax(1) == y).sum()
        return right.item() / (len(steps) * 16)

    def freeze():
        for m in model.modules():
            if isinstance(m, FakeQuant):
                m.observe = False
            if isinstance(m, nn.BatchNorm2d):
                m.eval()

    model.train()
    train_one_epoch([0, 1])
    with record():
        for epoch in range(2):
            model.train()
            if epoch == 1:
                freeze()
            train_one_epoch([0, 1, 2] if epoch == 0 else [3, 4, 5])
        print("top-1", test(ema, [6, 7, 8]))


# -------------------------------------------------------------------------------------------------- 12. a filter of documents
@program(executions=7, layers=24, kinds={"batch": 7, "shard": 3}, ranges="record_function: read_shard, tokenize, score, write (side by side; score is around one batch)",
         note="3 shards of 40, 28 and 25 documents, in batches of 16 sorted by length (3, 2 and 2 of them): each batch is one pass of the classifier, hence an execution; a shard is acceptable. Layers: the 24 encoder layers.")
def quality_filter():
    "A pipeline of documents: shards of JSON lines, duplicates by MinHash, a deep classifier of quality, what passes is written."
    torch.set_grad_enabled(False)
    dim, heads, depth = 32, 2, 24

    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

        def forward(self, x, bias):
            b, t, _ = x.shape
            q, k, v = (w(x).view(b, t, heads, -1).transpose(1, 2) for w in (self.query, self.key, self.value))
            p = torch.softmax(q @ k.transpose(-1, -2) / 4 + bias, -1)
            return self.out((p @ v).transpose(1, 2).reshape(b, t, dim))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.norm1, self.norm2, self.up, self.down = SelfAttention(), nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x, bias):
            x = self.norm1(x + self.attention(x, bias))
            return self.norm2(x + self.down(F.gelu(self.up(x))))

    class QualityClassifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.pos, self.norm = nn.Embedding(512, dim), nn.Embedding(96, dim), nn.LayerNorm(dim)
            self.layers, self.pool, self.score = nn.ModuleList(Layer() for _ in range(depth)), nn.Linear(dim, dim), nn.Linear(dim, 1)

        def forward(self, ids, mask):
            x = self.norm(self.embed(ids) + self.pos.weight[:ids.shape[1]])
            bias = (1.0 - mask[:, None, None].float()) * -1e4
            for one in self.layers:
                x = one(x, bias)
            return self.score(torch.tanh(self.pool(x[:, 0]))).squeeze(-1)

    model = QualityClassifier().to(D()).eval()
    blocks(model.layers)
    words = ["graph", "kernel", "the", "a", "of", "model", "river", "buy", "now", "click", "theorem", "proof", "light", "and", "energy"]

    def write_shards(folder, sizes):
        rng = random.Random(0)
        for number, size in enumerate(sizes):
            with gzip.open(folder / f"{number:05d}.jsonl.gz", "wt") as file:
                for k in range(size):
                    text = " ".join(rng.choice(words) for _ in range(rng.randint(10, 90)))
                    file.write(json.dumps({"id": f"{number}-{k}", "text": text}) + "\n")
        return sorted(folder.glob("*.jsonl.gz"))

    def minhash(text, n=16):
        grams = {hash(tuple(text.split()[k:k + 3])) & 0xffffffff for k in range(max(1, len(text.split()) - 2))}
        return tuple(min((g * (2 * k + 1) + 977 * k) & 0xffffffff for g in grams) for k in range(n))

    def process(shard, out, batch_size=16):
        with record_function("read_shard"):
            with gzip.open(shard, "rt") as file:
                documents = [json.loads(line) for line in file]
            seen, unique = set(), []
            for doc in documents:
                signature = minhash(doc["text"])
                if signature not in seen:
                    seen.add(signature)
                    unique.append(doc)
        with record_function("tokenize"):
            for doc in unique:
                doc["ids"] = [1] + [2 + sum(map(ord, w)) % 510 for w in doc["text"].split()][:95]
            unique.sort(key=lambda doc: len(doc["ids"]))
        for at in range(0, len(unique), batch_size):
            with record_function("score"), execution():
                part = unique[at:at + batch_size]
                longest = len(part[-1]["ids"])
                ids, mask = np.zeros((len(part), longest), np.int64), np.zeros((len(part), longest), bool)
                for row, doc in enumerate(part):
                    ids[row, :len(doc["ids"])], mask[row, :len(doc["ids"])] = doc["ids"], True
                scores = model(torch.from_numpy(ids).to(D()), torch.from_numpy(mask).to(D())).cpu().numpy()
                for doc, score in zip(part, scores):
                    doc["score"] = float(score)
        with record_function("write"):
            with gzip.open(out, "wt") as file:
                for doc in unique:
                    if doc["score"] > 0:
                        file.write(json.dumps({k: doc[k] for k in ("id", "text", "score")}) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shards = write_shards(folder, (40, 28, 25))
        process(shards[2], folder / "warm.gz")
        with record():
            for shard in shards:
                with execution("shard"):
                    process(shard, folder / f"kept-{shard.name}")


# -------------------------------------------------------------------------------------------------- 13. detection
@program(executions=7, layers=7, kinds={"training step": 5, "validation step": 2}, ranges="record_function: Lightning's names, nested ([pl][profile]run_training_epoch, run_training_batch, training_step, backward …)",
         note="5 training steps, then 2 validation steps: each is one pass of the model, hence an execution; the training steps alone are acceptable. Pictures of other sizes from batch to batch, the matching by SciPy on the host. "
              "Layers: 3 residual blocks, 2 encoder layers, 2 decoder layers; the 4 layers of the transformer alone are acceptable.")
def detr_lightning():
    "DETR under Lightning: a set of boxes, Hungarian matching at each decoder layer, multi-scale pictures."
    from scipy.optimize import linear_sum_assignment
    dim, heads, queries, classes = 48, 4, 12, 8

    class Residual(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.down = nn.Conv2d(i, o, 1, s, bias=False)

        def forward(self, x):
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.down(x))

    class MHA(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

        def forward(self, q, k, v):
            q, k, v = (w(x).unflatten(-1, (heads, -1)).transpose(1, 2) for w, x in ((self.q, q), (self.k, k), (self.v, v)))
            return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    class EncoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn, self.norm1, self.norm2, self.ffn = MHA(), nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, 3 * dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(3 * dim, dim))

        def forward(self, x, pos):
            q = x + pos
            x = self.norm1(x + self.attn(q, q, x))
            return self.norm2(x + self.ffn(x))

    class DecoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn, self.cross_attn, self.norm1, self.norm2, self.norm3 = MHA(), MHA(), nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.ffn = nn.Sequential(nn.Linear(dim, 3 * dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(3 * dim, dim))

        def forward(self, x, memory, pos, query):
            q = x + query
            x = self.norm1(x + self.self_attn(q, q, x))
            x = self.norm2(x + self.cross_attn(x + query, memory + pos, memory))
            return self.norm3(x + self.ffn(x))

    def corners(b):
        return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)

    def giou(a, b):
        a, b = corners(a)[:, None], corners(b)[None]
        inner = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
        outer = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
        union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inner
        return inner / union - (outer - union) / outer

    class DETR(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.input_proj = nn.Sequential(nn.Conv2d(3, 12, 5, 2, 2), nn.ReLU(), Residual(12, 16, 2), Residual(16, 24, 2), Residual(24, 32, 2)), nn.Conv2d(32, dim, 1)
            self.row, self.col = nn.Parameter(torch.rand(16, dim // 2)), nn.Parameter(torch.rand(16, dim // 2))
            self.encoder, self.decoder, self.query = nn.ModuleList(EncoderLayer() for _ in range(2)), nn.ModuleList(DecoderLayer() for _ in range(2)), nn.Embedding(queries, dim)
            self.class_embed, self.bbox_embed = nn.Linear(dim, classes + 1), nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

        def forward(self, pictures):
            f = self.input_proj(self.backbone(pictures))
            h, w = f.shape[-2:]
            pos = torch.cat([self.col[:w][None].expand(h, -1, -1), self.row[:h][:, None].expand(-1, w, -1)], -1).flatten(0, 1)
            x = f.flatten(2).transpose(1, 2)
            for one in self.encoder:
                x = one(x, pos)
            query = self.query.weight
            y, out = torch.zeros_like(query).expand(x.shape[0], -1, -1), []
            for one in self.decoder:
                y = one(y, x, pos, query)
                out.append((self.class_embed(y), self.bbox_embed(y).sigmoid()))
            return out

        @torch.no_grad()
        def match(self, logits, boxes, targets):
            p, flat = logits.flatten(0, 1).softmax(-1), boxes.flatten(0, 1)
            ids, want = torch.cat([t["labels"] for t in targets]), torch.cat([t["boxes"] for t in targets])
            cost = 5 * (flat[:, None] - want[None]).abs().sum(-1) - p[:, ids] - 2 * giou(flat, want)
            cost = cost.view(logits.shape[0], queries, -1).cpu().numpy()
            at, found = 0, []
            for row, t in enumerate(targets):
                n = len(t["labels"])
                found.append(linear_sum_assignment(cost[row, :, at:at + n]))
                at += n
            return found

        def criterion(self, outputs, targets):
            total = 0
            for logits, boxes in outputs:
                found = self.match(logits, boxes, targets)
                b = torch.from_numpy(np.concatenate([np.full(len(i), k) for k, (i, _) in enumerate(found)])).to(D())
                i = torch.from_numpy(np.concatenate([i for i, _ in found])).to(D())
                j = [torch.from_numpy(j).to(D()) for _, j in found]
                labels = torch.full(logits.shape[:2], classes, dtype=torch.long, device=logits.device)
                labels[b, i] = torch.cat([t["labels"][k] for t, k in zip(targets, j)])
                weight = torch.ones(classes + 1, device=logits.device)
                weight[-1] = 0.1
                want, have = torch.cat([t["boxes"][k] for t, k in zip(targets, j)]), boxes[b, i]
                total = total + F.cross_entropy(logits.transpose(1, 2), labels, weight) + (5 * F.l1_loss(have, want, reduction="sum") + 2 * (1 - giou(have, want).diagonal()).sum()) / len(b)
            return total

    model = DETR().to(D())
    residuals = [m for m in model.modules() if isinstance(m, Residual)]
    blocks([*residuals, *model.encoder, *model.decoder])
    blocks([*model.encoder, *model.decoder], "transformer")
    optimizer = torch.optim.AdamW([dict(params=model.backbone.parameters(), lr=1e-5), dict(params=[p for n, p in model.named_parameters() if not n.startswith("backbone")])], lr=1e-4)

    class Loader:
        def __init__(self, sizes, seed=0):
            self.sizes, self.rng = sizes, np.random.default_rng(seed)

        def __iter__(self):
            for h, w in self.sizes:
                pictures = self.rng.random((3, 3, h, w), dtype=np.float32)
                yield pictures, [(self.rng.integers(0, classes, n), (0.1 + 0.5 * self.rng.random((n, 4))).astype(np.float32)) for n in self.rng.integers(1, 5, 3)]

    def to_device(batch):
        with record_function("[pl][profile][Strategy]SingleDeviceStrategy.batch_to_device"):
            pictures, targets = batch
            return torch.from_numpy(pictures).to(D()), [{"labels": torch.from_numpy(a).to(D()), "boxes": torch.from_numpy(b).to(D())} for a, b in targets]

    def training_batch(batch):  # manual optimisation
        with record_function("[pl][profile]run_training_batch"), record_function("[pl][profile][Strategy]SingleDeviceStrategy.training_step"):
            pictures, targets = batch
            loss = model.criterion(model(pictures), targets)
            optimizer.zero_grad()
            with record_function("[pl][profile][Strategy]SingleDeviceStrategy.backward"):
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with record_function("[pl][profile][LightningModule]DETR.optimizer_step"):
                optimizer.step()
            return loss

    def fit_loop(loader):
        model.train()
        with record_function("[pl][profile]run_training_epoch"):
            batches = iter(loader)
            while True:
                with record_function("[pl][profile][_TrainingEpochLoop].train_dataloader_next"):
                    batch = next(batches, None)
                if batch is None:
                    break
                with execution(), execution("training step"):
                    loss = training_batch(to_device(batch))
        print("train_loss", round(loss.item(), 3))

    @torch.no_grad()
    def validation_loop(loader):
        model.eval()
        losses = []
        for batch in loader:
            with execution():
                pictures, targets = to_device(batch)
                with record_function("[pl][profile][Strategy]SingleDeviceStrategy.validation_step"):
                    losses.append(model.criterion(model(pictures), targets))
        print("val_loss", round(sum(x.item() for x in losses) / len(losses), 3))

    fit_loop(Loader([(64, 64), (80, 64)], 1))
    validation_loop(Loader([(64, 64)], 1))
    with record():
        fit_loop(Loader([(64, 64), (96, 80), (64, 96), (80, 80), (96, 64)], 2))
        validation_loop(Loader([(80, 80)] * 2, 3))


# -------------------------------------------------------------------------------------------------- 14. masked diffusion of words
@program(executions=16, layers=8, kinds={"pass": 16, "prompt": 2}, ranges="record_function: denoise (around each pass)",
         note="2 prompts; each is answered in 2 blocks of 8 tokens, each block in 4 passes over the whole sequence (with and without the prompt in one batch): each pass is one execution; a prompt is acceptable. "
              "Layers: the 8 layers.")
def llada_blocks():
    "A masked diffusion language model: semi-autoregressive blocks, the least sure tokens are masked again, guidance."
    torch.set_grad_enabled(False)
    dim, heads, depth, vocabulary, mask_id = 64, 4, 8, 200, 199

    class LLaDABlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn_norm, self.ff_norm = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))
            self.q_proj, self.k_proj, self.v_proj, self.attn_out = (nn.Linear(dim, dim, bias=False) for _ in range(4))
            self.ff_proj, self.up_proj, self.ff_out = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

        def forward(self, x, cos, sin):
            h = F.rms_norm(x, (dim,), self.attn_norm)
            q, k, v = (w(h).unflatten(-1, (heads, -1)).transpose(1, 2) for w in (self.q_proj, self.k_proj, self.v_proj))
            q, k = (y * cos + torch.cat([-y[..., 8:], y[..., :8]], -1) * sin for y in (q, k))
            x = x + self.attn_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            h = F.rms_norm(x, (dim,), self.ff_norm)
            return x + self.ff_out(F.silu(self.ff_proj(h)) * self.up_proj(h))

    class LLaDA(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.blocks, self.ln_f, self.head = nn.Embedding(vocabulary, dim), nn.ModuleList(LLaDABlock() for _ in range(depth)), nn.RMSNorm(dim), nn.Linear(dim, vocabulary, bias=False)
            f = torch.outer(torch.arange(128).float(), 10000 ** -(torch.arange(0, 16, 2) / 16)).repeat(1, 2)
            self.register_buffer("cos", f.cos())
            self.register_buffer("sin", f.sin())

        def forward(self, ids):
            x, t = self.wte(ids), ids.shape[1]
            for block in self.blocks:
                x = block(x, self.cos[:t], self.sin[:t])
            return self.head(self.ln_f(x))

    model = LLaDA().to(D()).eval()
    blocks(model.blocks)

    def add_gumbel_noise(logits, temperature):
        logits = logits.to(torch.float64)
        noise = (-torch.log(torch.rand_like(logits, dtype=torch.float64))) ** temperature
        return logits.exp() / noise

    def get_num_transfer_tokens(mask_index, steps):
        n = int(mask_index.sum())
        return [n // steps + (k < n % steps) for k in range(steps)]

    def generate(prompt, steps=4, gen_length=16, block_length=8, temperature=0.3, cfg_scale=1.5):
        prompt = torch.from_numpy(prompt).to(D())[None]
        x = torch.full((1, prompt.shape[1] + gen_length), mask_id, dtype=torch.long, device=D())
        x[:, :prompt.shape[1]] = prompt
        prompt_index = x != mask_id
        for num_block in range(gen_length // block_length):
            end = prompt.shape[1] + (num_block + 1) * block_length
            transfer = get_num_transfer_tokens(x[:, end - block_length:end] == mask_id, steps)
            for i in range(steps):
                with record_function("denoise"), execution():
                    mask_index = x == mask_id
                    un_x = x.clone()
                    un_x[prompt_index] = mask_id
                    logits, un_logits = model(torch.cat([x, un_x])).chunk(2)
                    logits = un_logits + (cfg_scale + 1) * (logits - un_logits)
                    logits[..., mask_id] = -torch.inf
                    x0 = add_gumbel_noise(logits, temperature).argmax(-1)
                    p = F.softmax(logits, -1).gather(-1, x0[..., None]).squeeze(-1)
                    p[:, end:] = -torch.inf
                    x0 = torch.where(mask_index, x0, x)
                    confidence = torch.where(mask_index, p, -torch.inf)
                    _, at = confidence[0].topk(transfer[i])
                    x[0, at] = x0[0, at]
        return x[0, prompt.shape[1]:].cpu().numpy()

    rng = np.random.default_rng(0)
    generate(rng.integers(0, 190, 6), 2, 8)
    with record():
        for length in (14, 23):
            with execution("prompt"):
                answer = generate(rng.integers(0, 190, length))
            print(answer)


# -------------------------------------------------------------------------------------------------- 15. interpretability
@program(executions=32, layers=5, kinds={"clean or corrupted": 2, "patched": 30}, ranges="record_function: 'patch L3 P5' (layer and position) around the patched passes only",
         note="one clean and one corrupted pass, then one pass for each of 5 layers and 6 positions with the clean activation put in: each pass is one execution. Layers: the 5 blocks.")
def activation_patching():
    "Causal tracing of a small GPT-2: patched residual streams, layer by layer and position by position."
    torch.set_grad_enabled(False)
    dim, heads, depth, vocabulary = 64, 4, 5, 120

    class Conv1D(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.weight, self.bias = nn.Parameter(0.05 * torch.randn(i, o)), nn.Parameter(torch.zeros(o))

        def forward(self, x):
            return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.c_attn, self.c_proj, self.ln_2, self.c_fc, self.c_out = nn.LayerNorm(dim), Conv1D(dim, 3 * dim), Conv1D(dim, dim), nn.LayerNorm(dim), Conv1D(dim, 4 * dim), Conv1D(4 * dim, dim)

        def forward(self, x, mask):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, heads, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(dim, 2))
            w = (q @ k.transpose(-1, -2)) / math.sqrt(q.size(-1))
            w = torch.where(mask[:t, :t], w, torch.finfo(w.dtype).min).softmax(-1)
            x = x + self.c_proj((w @ v).transpose(1, 2).contiguous().view(b, t, dim))
            return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe, self.h, self.ln_f = nn.Embedding(vocabulary, dim), nn.Embedding(32, dim), nn.ModuleList(Block() for _ in range(depth)), nn.LayerNorm(dim)
            self.register_buffer("mask", torch.ones(32, 32, dtype=torch.bool).tril())

        def forward(self, ids):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
            for block in self.h:
                x = block(x, self.mask)
            return self.ln_f(x) @ self.wte.weight.T

    model = GPT2().to(D()).eval()
    blocks(model.h)
    rng = np.random.default_rng(0)
    clean = rng.integers(0, vocabulary, (6, 6))
    corrupted = clean.copy()
    corrupted[:, 1] = rng.integers(0, vocabulary, 6)
    clean, corrupted = torch.from_numpy(clean).to(D()), torch.from_numpy(corrupted).to(D())
    right, wrong = torch.from_numpy(rng.integers(0, vocabulary, 6)).to(D()), torch.from_numpy(rng.integers(0, vocabulary, 6)).to(D())

    def logit_diff(logits):
        last = logits[:, -1]
        return (last.gather(1, right[:, None]) - last.gather(1, wrong[:, None])).mean().item()

    def run_with_cache(ids):
        cache = {}

        def keep(name):
            def hook(module, args):
                cache[name] = args[0].detach().clone()
            return hook
        handles = [b.register_forward_pre_hook(keep(f"blocks.{k}.hook_resid_pre")) for k, b in enumerate(model.h)]
        logits = model(ids)
        for h in handles:
            h.remove()
        return logits, cache

    def patched(layer, position, cache):
        def hook(module, args):
            x = args[0].clone()
            x[:, position] = cache[f"blocks.{layer}.hook_resid_pre"][:, position]
            return x, *args[1:]
        handle = model.h[layer].register_forward_pre_hook(hook)
        try:
            return logit_diff(model(corrupted))
        finally:
            handle.remove()

    _, cache = run_with_cache(clean)
    patched(0, 0, cache)
    effect = np.zeros((depth, 6))
    with record():
        with execution():
            logits, cache = run_with_cache(clean)
            clean_diff = logit_diff(logits)
        with execution():
            corrupted_diff = logit_diff(model(corrupted))
        for layer in range(depth):
            for position in range(6):
                with record_function(f"patch L{layer} P{position}"), execution():
                    effect[layer, position] = (patched(layer, position, cache) - corrupted_diff) / (clean_diff - corrupted_diff)
        print(effect.round(2))


# -------------------------------------------------------------------------------------------------- 16. many adapters
@program(executions=20, layers=4, kinds={"prefill": 7, "decode step": 13}, ranges="record_function: engine.step (around the call of the model and the sampling)",
         note="7 requests with adapters of their own come in by and by; in each turn of the engine's loop either one waiting prompt is read (7 such turns) or all running requests get one token: each turn is one call of the model, hence an execution. Layers: the 4 decoder layers.")
def multi_lora_server():
    "An asyncio server of one model with many LoRA adapters: slots of a static cache, a prompt or a batch of tokens each turn."
    torch.set_grad_enabled(False)
    dim, heads, depth, slots, longest, vocabulary, adapters, rank = 64, 4, 4, 4, 64, 150, 3, 4

    class LoRALinear(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.base = nn.Linear(i, o, bias=False)
            self.A, self.B = nn.Parameter(0.02 * torch.randn(adapters, i, rank)), nn.Parameter(0.02 * torch.randn(adapters, rank, o))

        def forward(self, x, which):
            return self.base(x) + torch.bmm(torch.bmm(x, self.A[which]), self.B[which])

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
            self.qkv, self.o, self.up, self.down = LoRALinear(dim, 3 * dim), LoRALinear(dim, dim), LoRALinear(dim, 3 * dim), LoRALinear(3 * dim, dim)
            self.register_buffer("cache", torch.zeros(2, slots, longest, heads, dim // heads))

        def forward(self, x, which, slot, position, mask):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x), which).view(b, t, 3, heads, -1).unbind(2)
            self.cache[0, slot[:, None], position] = k
            self.cache[1, slot[:, None], position] = v
            keys, values = self.cache[:, slot].transpose(2, 3)
            y = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=mask)
            x = x + self.o(y.transpose(1, 2).reshape(b, t, dim), which)
            return x + self.down(F.silu(self.up(self.norm2(x), which)), which)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.pos, self.layers, self.norm, self.head = nn.Embedding(vocabulary, dim), nn.Embedding(longest, dim), nn.ModuleList(Layer() for _ in range(depth)), nn.RMSNorm(dim), nn.Linear(dim, vocabulary, bias=False)

        def forward(self, ids, which, slot, position):
            mask = torch.arange(longest, device=ids.device) <= position[:, None, :, None]
            x = self.embed(ids) + self.pos(position)
            for one in self.layers:
                x = one(x, which, slot, position, mask)
            return self.head(self.norm(x[:, -1]))

    model = Model().to(D()).eval()
    blocks(model.layers)

    class Request:
        def __init__(self, prompt, adapter, limit):
            self.prompt, self.adapter, self.limit, self.tokens, self.slot = prompt, adapter, limit, [], None
            self.done = asyncio.get_running_loop().create_future()

    class Engine:
        def __init__(self):
            self.waiting, self.running, self.free, self.calls = [], [], list(range(slots)), 0

        def call(self, ids, which, slot, position):
            self.calls += 1
            with record_function("engine.step"), execution():
                arrays = (torch.from_numpy(np.asarray(a)).to(D(), non_blocking=True) for a in (ids, which, slot, position))
                logits = model(*arrays)
                p = torch.softmax(logits / 0.8, -1)
                top, at = p.topk(20, -1)
                picked = at.gather(1, torch.multinomial(top, 1)).squeeze(1)
                return picked.cpu().numpy()

        def turn(self):
            if self.waiting and self.free:
                r = self.waiting.pop(0)
                r.slot = self.free.pop(0)
                token = self.call([r.prompt], [r.adapter], [r.slot], [np.arange(len(r.prompt))])
                r.tokens.append(int(token[0]))
                self.running.append(r)
            elif self.running:
                batch = self.running
                tokens = self.call([[r.tokens[-1]] for r in batch], [r.adapter for r in batch], [r.slot for r in batch], [[len(r.prompt) + len(r.tokens) - 1] for r in batch])
                for r, token in zip(batch, tokens):
                    r.tokens.append(int(token))
            for r in [r for r in self.running if len(r.tokens) >= r.limit]:
                self.running.remove(r)
                self.free.append(r.slot)
                r.done.set_result(r.tokens)

        async def loop(self):
            while True:
                self.turn()
                await asyncio.sleep(0)

    async def client(engine, wait, *spec):
        for _ in range(wait):
            await asyncio.sleep(0)
        request = Request(*spec)
        engine.waiting.append(request)
        return await request.done

    async def main(specs):
        engine = Engine()
        task = asyncio.create_task(engine.loop())
        answers = await asyncio.gather(*(client(engine, wait, *spec) for wait, *spec in specs))
        task.cancel()
        return engine.calls, [len(a) for a in answers]

    rng = np.random.default_rng(0)
    specs = [(wait, rng.integers(0, vocabulary, length), k % adapters, limit)
             for k, (wait, length, limit) in enumerate(((0, 12, 6), (0, 20, 9), (3, 7, 5), (6, 16, 8), (9, 25, 6), (12, 9, 7), (13, 14, 4)))]
    asyncio.run(main(specs[:2]))
    with record():
        print(asyncio.run(main(specs)))
