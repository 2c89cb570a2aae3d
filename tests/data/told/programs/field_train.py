"""Training as several fields write it: adapters, reinforcement, adversaries, meta-loops, physics, ranking. Sizes are a CPU's."""
import copy
import itertools
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

from field_infer import Causal, Layer, Patches, SelfAttention, loaded
from harness import blocks, execution, program, record, said, D

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


# -------------------------------------------------------------------------------------------------- 1. adapters, checkpointed
class Adapted(nn.Module):
    "LoRA around a frozen linear layer."

    def __init__(self, linear, rank=4, alpha=8):
        super().__init__()
        self.base, self.scaling, self.drop = linear.requires_grad_(False), alpha / rank, nn.Dropout(0.05)
        self.lora_a, self.lora_b = nn.Linear(linear.in_features, rank, bias=False), nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(self.drop(x))) * self.scaling


class Trainer:
    "The loop of a trainer: accumulation, clipping, a schedule, logging."

    def __init__(self, model, loader, accumulation, lr=1e-4):
        self.model, self.loader, self.accumulation, self.logs = model, loader, accumulation, []
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1, (s + 1) / 3))
        self.total, self.global_step = torch.zeros((), device=D()), 0

    def training_step(self, inputs):
        self.model.train()
        ids = inputs.to(D(), non_blocking=True)
        logits = self.model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()) / self.accumulation
        loss.backward()
        return loss.detach()

    def train(self, logging_steps=2):
        batches = iter(self.loader)
        while group := list(itertools.islice(batches, self.accumulation)):
            with execution():
                for i, inputs in enumerate(group):
                    with execution("micro"):
                        self.total += self.training_step(inputs)
                        if i == len(group) - 1:
                            nn.utils.clip_grad_norm_(self.trained, 1.0)
                            self.optimizer.step()
                            self.scheduler.step()
                            self.optimizer.zero_grad()
                            self.global_step += 1
                            if self.global_step % logging_steps == 0:
                                self.logs.append({"loss": self.total.item() / logging_steps, "step": self.global_step})
                                self.total.zero_()


@program(executions=4, layers=3, kinds={"micro-batch": 8, "optimiser step": 4}, ranges="none", limits=["kernels", "launches", "host"],
         where="backward, which runs each layer's forward again", remedy="no checkpointing (adapters need little memory); merge q, k and v; larger micro-batches",
         note="LoRA on q and v of 3 frozen layers, each checkpointed; accumulation of 2, 4 optimiser steps; loss logged every second step. An owner would say 4 steps, or 8 micro-batches.")
def lora_checkpointed():
    "LoRA fine-tuning of a causal model with gradient checkpointing and a trainer's loop."
    model = Causal(200, 48, 3).to(D())
    model.requires_grad_(False)
    for layer in model.layers:
        for name in ("q", "v"):
            setattr(layer.attn, name, Adapted(getattr(layer.attn, name)).to(D()))
    blocks(model.layers)
    ids = model.embed.register_forward_hook(lambda _, __, out: out.requires_grad_())  # enable_input_require_grads
    for layer in model.layers:
        layer.forward = lambda x, f=layer.forward: checkpoint(f, x, use_reentrant=False)
    data = torch.randint(0, 200, (10, 4, 33))
    Trainer(model, data[:2], 2).train()
    trainer = Trainer(model, data[2:], 2)
    with record():
        trainer.train()
    ids.remove()


# -------------------------------------------------------------------------------------------------- 2. GRPO
@program(executions=2, layers=2, kinds={"iteration": 2, "pass": 28}, ranges="record_function: rollout, reward, logprobs, update", limits=["launches", "host"],
         where="rollout: 8 passes an iteration, token by token", remedy="a KV cache and CUDA graphs in the rollout; an inference engine",
         note="2 iterations: a rollout of 8 tokens without a cache for 2 prompts by 6 samples, a reward on the host, log-probabilities of the old policy and of the reference, "
              "2 epochs of 2 minibatches. An owner would say 2 iterations; 28 passes are acceptable (of an iteration 8 for the roll-out, 2 for log-probabilities, 4 updates), and its 4 stages.")
def grpo_round():
    "GRPO: roll-outs, rewards, log-probabilities, updates."
    policy = Causal(80, 48, 2).to(D())
    reference = copy.deepcopy(policy).requires_grad_(False)
    blocks([*policy.layers, *reference.layers])
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-5)

    def logprobs(model, ids, start):
        logits = model(ids[:, :-1])[:, start - 1:]
        return logits.log_softmax(-1).gather(-1, ids[:, start:, None]).squeeze(-1)

    @torch.no_grad()
    def rollout(prompts, tokens=8):
        ids = prompts.repeat_interleave(6, 0)
        for _ in range(tokens):
            with execution("pass"):
                probs = (policy(ids)[:, -1] / 0.9).softmax(-1)
                ids = torch.cat([ids, torch.multinomial(probs, 1)], 1)
        return ids

    def reward(texts):
        out = []
        for text in texts:
            words = [f"{t:02x}" for t in text]
            score = sum(words.count(w) > 1 for w in set(words)) + sum(a < b for a, b in itertools.combinations(text, 2)) / 100
            out.append(score - 0.01 * sum(len(w) for w in words))
        return out

    def iteration(prompts):
        start = prompts.shape[1]
        with record_function("rollout"), execution("stage"):
            ids = rollout(prompts.to(D()))
        with record_function("reward"), execution("stage"):
            rewards = torch.tensor(reward(ids.cpu().tolist())).to(D()).view(-1, 6)
            advantage = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        with record_function("logprobs"), execution("stage"), torch.no_grad():
            with execution("pass"):
                old = logprobs(policy, ids, start)
            with execution("pass"):
                ref = logprobs(reference, ids, start)
        with record_function("update"), execution("stage"):
            for _ in range(2):
                with said("host"):
                    parts = torch.randperm(len(ids)).split(6)
                for part in parts:
                    with execution("pass"):
                        part = part.to(D())
                        new = logprobs(policy, ids[part], start)
                        ratio = (new - old[part]).exp()
                        gain = torch.min(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part])
                        log = ref[part] - new
                        loss = -(gain - 0.04 * (log.exp() - log - 1)).mean()
                        optimizer.zero_grad()
                        loss.backward()
                        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                        optimizer.step()
        return loss.item()

    prompts = torch.randint(0, 80, (3, 2, 10))
    iteration(prompts[0])
    with record():
        for batch in prompts[1:]:
            with execution():
                print(iteration(batch))


# -------------------------------------------------------------------------------------------------- 3. DreamBooth
class ResnetBlock(nn.Module):
    def __init__(self, i, o, t=0):
        super().__init__()
        self.norm1, self.conv1, self.norm2, self.conv2 = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, 1, 1), nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, 1, 1)
        self.time, self.skip = nn.Linear(t, o) if t else None, nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t=None):
        y = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class CrossBlock(nn.Module):
    def __init__(self, c, context):
        super().__init__()
        self.norm, self.n1, self.n2, self.n3 = nn.GroupNorm(4, c), nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
        self.inner, self.cross, self.lift = SelfAttention(c, 2), SelfAttention(c, 2), nn.Linear(context, c)
        self.ff = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))

    def forward(self, x, context):
        y = self.norm(x).flatten(2).transpose(1, 2)
        y = y + self.inner(self.n1(y))
        y = y + self.cross(self.n2(y), self.lift(context))
        y = y + self.ff(self.n3(y))
        return x + y.transpose(1, 2).unflatten(2, x.shape[2:])


@program(executions=4, layers=None, ranges="none", limits=["kernels", "launches", "host"], where="the U-Net, forward and backward; before it the frozen autoencoder and text encoder",
         remedy="encode the pictures and prompts once and keep them; train adapters only; xformers or compile", note="4 steps; instance and class pictures in one batch, prior preservation; "
         "frozen autoencoder and text encoder under no_grad in each step; loss.item() each step (the progress bar)")
def dreambooth():
    "DreamBooth: a U-Net trained on a few pictures, with prior preservation."
    c, context = 16, 32
    vae = nn.Sequential(nn.Conv2d(3, c, 3, 1, 1), ResnetBlock(c, c), nn.Conv2d(c, c, 3, 2, 1), ResnetBlock(c, c), nn.Conv2d(c, c, 3, 2, 1), nn.Conv2d(c, 8, 1)).to(D()).requires_grad_(False)
    text = nn.Sequential(nn.Embedding(300, context), Layer(context), Layer(context), nn.LayerNorm(context)).to(D()).requires_grad_(False)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            t = 4 * c
            self.time, self.inp = nn.Sequential(nn.Linear(c, t), nn.SiLU(), nn.Linear(t, t)), nn.Conv2d(4, c, 3, 1, 1)
            self.down, self.mid, self.up = ResnetBlock(c, c, t), ResnetBlock(2 * c, 2 * c, t), ResnetBlock(3 * c, c, t)
            self.attn_d, self.attn_m, self.attn_u = CrossBlock(c, context), CrossBlock(2 * c, context), CrossBlock(c, context)
            self.pool, self.out = nn.Conv2d(c, 2 * c, 3, 2, 1), nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv2d(c, 4, 3, 1, 1))

        def forward(self, x, t, ctx):
            f = torch.exp(-math.log(1e4) * torch.arange(c // 2, device=x.device) / (c // 2)) * t[:, None].float()
            t = self.time(torch.cat([f.sin(), f.cos()], -1))
            a = self.attn_d(self.down(self.inp(x), t), ctx)
            m = self.attn_m(self.mid(self.pool(a), t), ctx)
            return self.out(self.attn_u(self.up(torch.cat([F.interpolate(m, scale_factor=2), a], 1), t), ctx))

    unet = UNet().to(D())
    parts = [m for net in (vae, text, unet) for m in net.modules()]
    blocks(m for m in parts if isinstance(m, (ResnetBlock, CrossBlock, Layer)))
    blocks((m for m in parts if isinstance(m, (nn.Conv2d, CrossBlock, Layer))), "convolution")
    optimizer = torch.optim.AdamW(unet.parameters(), 5e-6)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    abar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0).to(D())

    def step(batch):
        with torch.no_grad():
            mean, logvar = vae(batch["pixel_values"].to(D()) * 2 - 1).chunk(2, 1)
            latents = (mean + torch.randn_like(mean) * (0.5 * logvar).exp()) * 0.18215
            states = text(batch["input_ids"].to(D()))
        noise = torch.randn_like(latents)
        t = torch.randint(0, 1000, (latents.shape[0],), device=latents.device)
        a = abar[t][:, None, None, None]
        pred = unet(a.sqrt() * latents + (1 - a).sqrt() * noise, t, states)
        pred, pred_prior = pred.chunk(2)
        target, target_prior = noise.chunk(2)
        loss = F.mse_loss(pred, target) + F.mse_loss(pred_prior, target_prior)
        loss.backward()
        nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach().item()

    data = [{"pixel_values": torch.rand(4, 3, 64, 64), "input_ids": torch.randint(0, 300, (4, 20))} for _ in range(3)]
    step(data[0])
    with record():
        for i in range(4):
            with execution():
                loss = step(data[i % 3])
                print(f"step {i} loss {loss:.3f}", end="\r")


# -------------------------------------------------------------------------------------------------- 4. forecasting, epochs and early stopping
@program(executions=18, layers=2, kinds={"training step": 10, "validation batch": 6, "test batch": 2}, ranges="record_function: train_epoch, validate, test",
         limits=["launches", "host"], where="the training steps: small kernels forward, backward and optimiser", remedy="larger batch; compile; fused optimiser",
         note="2 epochs of 5 batches (the last one of 9 instead of 16), after each 3 validation batches with two losses by .item(); early stopping keeps a copy of the weights; then 2 test batches")
def patchtst_epochs():
    "PatchTST: training, validation, early stopping, test."
    look, ahead, patch, dim, channels = 96, 24, 16, 48, 3

    class PatchTST(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Linear(patch, dim), nn.Parameter(torch.randn(look // patch * 2 - 1, dim) * 0.02)
            self.encoder, self.head = nn.ModuleList(Layer(dim) for _ in range(2)), nn.Linear(dim * (look // patch * 2 - 1), ahead)

        def forward(self, x):
            mean, std = x.mean(1, keepdim=True).detach(), x.std(1, keepdim=True, unbiased=False).detach() + 1e-5
            z = ((x - mean) / std).transpose(1, 2).unfold(2, patch, patch // 2).flatten(0, 1)
            z = self.embed(z) + self.place
            for layer in self.encoder:
                z = layer(z)
            y = self.head(F.dropout(z.flatten(1), 0.1, self.training)).view(x.shape[0], channels, ahead).transpose(1, 2)
            return y * std + mean

    def windows(n, seed):
        series = torch.randn(n + look + ahead, channels, generator=torch.Generator().manual_seed(seed)).cumsum(0)
        return torch.utils.data.TensorDataset(series.unfold(0, look, 1)[:n].transpose(1, 2), series[look:].unfold(0, ahead, 1)[:n].transpose(1, 2))

    loaders = {name: torch.utils.data.DataLoader(windows(n, i), batch_size=16, shuffle=name == "train") for i, (name, n) in enumerate({"train": 73, "validate": 48, "test": 32}.items())}
    model = PatchTST().to(D())
    blocks(model.encoder)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    best = {"loss": float("inf"), "weights": None}

    def train_epoch():
        model.train()
        with record_function("train_epoch"):
            for x, y in loaded(loaders["train"]):
                with execution(), execution("training step"):
                    x, y = x.to(D()), y.to(D())
                    optimizer.zero_grad()
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()

    @torch.no_grad()
    def evaluate(name):
        model.eval()
        mse, mae = [], []
        with record_function(name):
            for x, y in loaded(loaders[name]):
                with execution():
                    x, y = x.to(D()), y.to(D())
                    forecast = model(x)
                    mse.append(F.mse_loss(forecast, y).item())
                    mae.append(F.l1_loss(forecast, y).item())
        return np.mean(mse), np.mean(mae)

    train_epoch(), evaluate("test")
    with record():
        for epoch in range(2):
            train_epoch()
            loss, _ = evaluate("validate")
            if loss < best["loss"]:
                best.update(loss=loss, weights={k: v.clone() for k, v in model.state_dict().items()})
        model.load_state_dict(best["weights"])
        print(evaluate("test"))


# -------------------------------------------------------------------------------------------------- 5. retrieval
@program(executions=8, layers=None, kinds={"training step": 8, "evaluation": 2}, ranges="record_function: 'train_step', 'evaluate' with 'encode_items' in it", limits=["launches", "host"],
         where="the training steps: lookups in tables, small towers, a dense update of the tables by Adam", remedy="sparse gradients for the tables; fused optimiser; CUDA graph",
         note="8 steps of two towers with in-batch negatives; after every fourth an evaluation: all items in 4 chunks, scores of 64 users, recall by .item(). An owner would say 8 training steps; "
              "8 steps and 2 evaluations are acceptable.")
def two_tower_recall():
    "Two-tower retrieval with in-batch negatives and recall every few steps."
    users, items, dim = 2000, 800, 32

    class Tower(nn.Module):
        def __init__(self, n, features):
            super().__init__()
            self.id, self.bags = nn.Embedding(n, dim), nn.ModuleList(nn.EmbeddingBag(200, dim, mode="mean") for _ in range(features))
            self.mlp = nn.Sequential(nn.Linear(dim * (1 + features), 64), nn.ReLU(), nn.Linear(64, dim))

        def forward(self, ids, bags):
            parts = [self.id(ids), *(bag(index) for bag, index in zip(self.bags, bags.unbind(1)))]
            return F.normalize(self.mlp(torch.cat(parts, -1)), dim=-1)

    user_tower, item_tower = Tower(users, 4).to(D()), Tower(items, 3).to(D())
    optimizer = torch.optim.Adam([*user_tower.parameters(), *item_tower.parameters()], 1e-3)
    user_bags, item_bags = torch.randint(0, 200, (users, 4, 5)), torch.randint(0, 200, (items, 3, 5), device=D())
    frequency = torch.rand(items, device=D()).log()

    def train_step(batch):
        with record_function("train_step"), execution(), execution("step or evaluation"):
            u, i, bags = (x.to(D(), non_blocking=True) for x in batch)
            scores = user_tower(u, bags) @ item_tower(i, item_bags[i]).T / 0.05 - frequency[i]
            loss = F.cross_entropy(scores, torch.arange(len(u), device=D()))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        return loss

    @torch.no_grad()
    def evaluate(batch, k=50):
        with record_function("evaluate"), execution("step or evaluation"):
            with record_function("encode_items"):
                table = torch.cat([item_tower(chunk, item_bags[chunk]) for chunk in torch.arange(items, device=D()).split(200)])
            u, i, bags = (x.to(D()) for x in batch)
            top = (user_tower(u, bags) @ table.T).topk(k).indices
            return (top == i[:, None]).any(1).float().mean().item()

    def batches(n):
        for _ in range(n):
            with said("host"):
                u = torch.randint(0, users, (64,))
                one = u, torch.randint(0, items, (64,)), user_bags[u]
            yield one

    for batch in batches(2):
        train_step(batch)
    evaluate(batch)
    with record():
        for n, batch in enumerate(batches(8), 1):
            train_step(batch)
            if n % 4 == 0:
                print(n, evaluate(batch))


# -------------------------------------------------------------------------------------------------- 6. graph transformer
@program(executions=6, layers=3, ranges="none", limits=["host", "waiting"], where="the collation: shortest paths of each graph by NumPy in the training process",
         remedy="workers for the loader, or shortest paths once before training", note="6 batches of 8 graphs, padded to the largest of each batch; distances by Floyd-Warshall in collate; loss kept on the device and read once at the end")
def graphormer_batches():
    "Graphormer-like regression of molecules."
    dim, heads = 48, 4

    class GraphLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2, self.attn = nn.LayerNorm(dim), nn.LayerNorm(dim), SelfAttention(dim, heads)
            self.ff = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(dim, dim))

        def forward(self, x, bias):
            x = x + F.dropout(self.attn(self.n1(x), mask=bias), 0.1, self.training)
            return x + self.ff(self.n2(x))

    class Graphormer(nn.Module):
        def __init__(self):
            super().__init__()
            self.atom, self.degree, self.space = nn.Embedding(30, dim, padding_idx=0), nn.Embedding(16, dim), nn.Embedding(24, heads)
            self.token, self.layers = nn.Parameter(torch.zeros(1, 1, dim)), nn.ModuleList(GraphLayer() for _ in range(3))
            self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 1))

        def forward(self, atoms, degrees, distance, mask):
            x = torch.cat([self.token.expand(len(atoms), -1, -1), self.atom(atoms) + self.degree(degrees)], 1)
            bias = F.pad(self.space(distance).permute(0, 3, 1, 2), (1, 0, 1, 0))
            bias = bias.masked_fill(F.pad(mask, (1, 0), value=False)[:, None, None, :], -1e4)
            for layer in self.layers:
                x = layer(x, bias)
            return self.head(x[:, 0]).squeeze(-1)

    def collate(graphs):
        n = max(len(atoms) for atoms, _, _ in graphs)
        atoms, degrees, distance = np.zeros((len(graphs), n), np.int64), np.zeros((len(graphs), n), np.int64), np.full((len(graphs), n, n), 23)
        for row, (a, edges, _) in enumerate(graphs):
            d = np.full((len(a), len(a)), 22)
            np.fill_diagonal(d, 0)
            d[edges[0], edges[1]] = d[edges[1], edges[0]] = 1
            for k in range(len(a)):
                d = np.minimum(d, d[:, k:k + 1] + d[k:k + 1])
            atoms[row, :len(a)], degrees[row, :len(a)], distance[row, :len(a), :len(a)] = a, np.minimum((d == 1).sum(1), 15), np.minimum(d, 22)
        target = np.float32([y for _, _, y in graphs])
        return tuple(torch.from_numpy(x) for x in (atoms, degrees, distance, atoms == 0, target))

    rng = np.random.default_rng(0)
    graphs = []
    for n in rng.integers(12, 40, 56):
        graphs.append((rng.integers(1, 30, n), np.stack([np.arange(1, n), [rng.integers(0, k) for k in range(1, n)]]), rng.normal()))
    model = Graphormer().to(D())
    blocks(model.layers)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, 100)

    def epoch(loader):
        model.train()
        total = 0.0
        for batch in loaded(loader):
            with execution():
                *inputs, target = (x.to(D()) for x in batch)
                loss = F.l1_loss(model(*inputs), target)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                schedule.step()
                total = total + loss.detach()
        return total.item()

    loader = lambda some: torch.utils.data.DataLoader(some, batch_size=8, shuffle=True, collate_fn=collate)
    epoch(loader(graphs[:8]))
    with record():
        print(epoch(loader(graphs[8:])))


# -------------------------------------------------------------------------------------------------- 7. WGAN-GP
@program(executions=3, layers=None, kinds={"critic update": 15, "generator update": 3}, ranges="none", limits=["host", "launches"],
         where="the critic's updates (5 of each 6), half of them the gradient penalty with its second derivatives", remedy="CUDA graphs or compile; larger batch; fewer critic updates",
         note="3 iterations, each 5 critic updates with a gradient penalty and one of the generator; losses by .item() at the end of each. An owner would say 3 iterations, or 18 updates.")
def wgan_gp():
    "WGAN with gradient penalty, n_critic = 5."
    z, c = 32, 12

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(z, 4 * c * 16)
            self.ups = nn.ModuleList(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(a, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in ((4 * c, 2 * c), (2 * c, c)))
            self.out = nn.Conv2d(c, 1, 3, 1, 1)

        def forward(self, x):
            x = self.lin(x).view(-1, 4 * c, 4, 4)
            for up in self.ups:
                x = up(x)
            return torch.tanh(self.out(x))

    critic = nn.Sequential(*[m for a, b in ((1, c), (c, 2 * c), (2 * c, 4 * c)) for m in (nn.Conv2d(a, b, 3, 2, 1), nn.LeakyReLU(0.2))], nn.Flatten(), nn.Linear(4 * c * 4, 1)).to(D())
    generator = Generator().to(D())
    opt_c = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.0, 0.9))
    opt_g = torch.optim.Adam(generator.parameters(), 1e-4, betas=(0.0, 0.9))
    data = torch.rand(96, 1, 16, 16) * 2 - 1

    def gradient_penalty(real, fake):
        alpha = torch.rand(len(real), 1, 1, 1, device=D())
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_()
        gradient, = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        return ((gradient.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

    def critic_update(real):
        with execution("update"):
            real = real.to(D())
            with torch.no_grad():
                fake = generator(torch.randn(len(real), z, device=D()))
            loss = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake)
            opt_c.zero_grad()
            loss.backward()
            opt_c.step()
            return loss

    def generator_update(n):
        with execution("update"):
            loss = -critic(generator(torch.randn(n, z, device=D()))).mean()
            opt_g.zero_grad()
            loss.backward()
            opt_g.step()
            return loss

    def iteration(batches):
        for _ in range(5):
            loss_c = critic_update(next(batches))
        loss_g = generator_update(16)
        print(f"critic {loss_c.item():.3f} generator {loss_g.item():.3f}")

    batches = itertools.cycle(data.split(16))
    iteration(batches)
    with record():
        for _ in range(3):
            with execution():
                iteration(batches)


# -------------------------------------------------------------------------------------------------- 8. DINO
@program(executions=4, layers=3, kinds={"teacher pass": 4, "student passes": 8}, ranges="none", limits=["kernels", "launches"],
         where="the student on 2 large and 4 small crops, forward and backward", remedy="bf16; compile; fewer small crops",
         note="4 steps; teacher (no gradients) on 2 large crops, student on 2 large in one pass and 4 small in another; centre and teacher are moving averages (foreach); momentum by a schedule; no value is read")
def dino_ema():
    "DINO: student and momentum teacher, multi-crop."
    student = Patches(48, 3, side=64, patch=8, classes=64).to(D())
    teacher = copy.deepcopy(student).requires_grad_(False)
    blocks([*student.layers, *teacher.layers])
    decay = [p for p in student.parameters() if p.ndim > 1]
    plain = [p for p in student.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.04}, {"params": plain, "weight_decay": 0.0}], 5e-4)
    centre = torch.zeros(1, 64, device=D())

    class Crops:
        "Augmentation on the device."

        def __init__(self, large, small):
            self.large, self.small = large, small

        def __call__(self, x):
            out = []
            for side, n in ((64, self.large), (32, self.small)):
                for _ in range(n):
                    a, b = np.random.randint(0, 80 - side, 2)
                    crop = x[:, :, a:a + side, b:b + side]
                    crop = crop.flip(-1) if np.random.rand() < 0.5 else crop
                    out.append(crop * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1, device=x.device)))
            return torch.cat(out[:self.large]), torch.cat(out[self.large:])

    crops = Crops(2, 4)

    def step(i, images):
        large, small = crops(images.to(D(), non_blocking=True))
        for group in optimizer.param_groups:
            group["lr"] = 5e-4 * min(1, i / 10)
        with torch.no_grad():
            t = teacher(large)
            targets = ((t - centre) / 0.04).softmax(-1).chunk(2)
        outs = [*student(large).chunk(2), *student(small).chunk(4)]
        loss, terms = 0, 0
        for a, q in enumerate(targets):
            for b, out in enumerate(outs):
                if a != b:
                    loss, terms = loss - (q * (out / 0.1).log_softmax(-1)).sum(-1).mean(), terms + 1
        optimizer.zero_grad()
        (loss / terms).backward()
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        optimizer.step()
        momentum = 1 - 0.004 * (math.cos(math.pi * i / 100) + 1) / 2
        with torch.no_grad():
            centre.mul_(0.9).add_(t.mean(0, keepdim=True), alpha=0.1)
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)

    data = torch.rand(5, 4, 3, 80, 80)
    step(0, data[0])
    with record():
        for i, images in enumerate(data[1:], 1):
            with execution():
                step(i, images)


# -------------------------------------------------------------------------------------------------- 9. cross-validation
@program(executions=18, layers=2, kinds={"training step": 12, "validation": 6, "fold": 3}, ranges="record_function: 'fold 0' to 'fold 2'", limits=["launches", "host"],
         where="the training steps of a small network", remedy="the folds side by side (vmap); larger batch; CUDA graph",
         note="3 folds, each a new FT-Transformer, 2 epochs of 2 steps (the second batch is smaller), a validation of the fold's part after each epoch, AUC on the host. An owner would say 3 folds, 6 epochs, 12 training steps, or 18 passes.")
def kfold_tabular():
    "Cross-validation of an FT-Transformer on a table."
    numbers, categories, dim = 8, (4, 7, 12), 32
    rng = np.random.default_rng(0)
    X, C, Y = rng.normal(size=(240, numbers)).astype(np.float32), np.stack([rng.integers(0, n, 240) for n in categories], 1), rng.integers(0, 2, 240)

    class FTTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(numbers, dim) * 0.1), nn.Parameter(torch.zeros(numbers, dim))
            self.tables = nn.ModuleList(nn.Embedding(n, dim) for n in categories)
            self.cls, self.layers = nn.Parameter(torch.zeros(1, 1, dim)), nn.ModuleList(Layer(dim) for _ in range(2))
            self.head = nn.Sequential(nn.LayerNorm(dim), nn.ReLU(), nn.Linear(dim, 1))

        def forward(self, x, c):
            tokens = [self.cls.expand(len(x), -1, -1), x[..., None] * self.weight + self.bias, torch.stack([t(i) for t, i in zip(self.tables, c.T)], 1)]
            x = torch.cat(tokens, 1)
            for layer in self.layers:
                x = layer(x)
            return self.head(x[:, 0]).squeeze(-1)

    def auc(score, y):
        order = score.argsort()
        rank = np.empty(len(order))
        rank[order] = np.arange(1, len(order) + 1)
        positive = y.sum()
        return (rank[y == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(y) - positive))

    def fit(train, valid, epochs=2, size=96):
        model = FTTransformer().to(D())
        blocks(model.layers)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        tensors = [torch.from_numpy(a).to(D()) for a in (X, C, Y.astype(np.float32))]
        results = []
        for _ in range(epochs):
            with execution("epoch"):
                model.train()
                rng.shuffle(train)
                for at in range(0, len(train), size):
                    with execution(), execution("training step"):
                        rows = torch.from_numpy(train[at:at + size]).to(D())
                        x, c, y = (t[rows] for t in tensors)
                        loss = F.binary_cross_entropy_with_logits(model(x, c), y)
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                model.eval()
                with execution(), torch.inference_mode():
                    rows = torch.from_numpy(valid).to(D())
                    results.append(auc(model(*(t[rows] for t in tensors[:2])).sigmoid().cpu().numpy(), Y[valid]))
        return max(results)

    fit(np.arange(64), np.arange(64, 100), epochs=1)
    scores = []
    with record():
        parts = np.array_split(rng.permutation(240), 3)
        for k, valid in enumerate(parts):
            with record_function(f"fold {k}"), execution("fold"):
                scores.append(fit(np.concatenate(parts[:k] + parts[k + 1:]), valid))
    print(np.mean(scores))


# -------------------------------------------------------------------------------------------------- 10. neural ODE
@program(executions=5, layers=None, kinds={"training step": 5, "field evaluation": 100}, ranges="none", limits=["host", "launches"],
         where="20 evaluations of a tiny field a step and the backward through all of them", remedy="CUDA graph of the solver; adjoint saves memory, not time; larger batches cost nothing",
         note="5 steps; a spiral fitted by 5 intervals of RK4 (4 evaluations of the field each); loss by .item() each step")
def neural_ode():
    "A neural ODE with a fixed RK4 solver."
    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 2))

        def forward(self, t, y):
            return self.net(y**3)

    field = Field().to(D())
    blocks([field])
    blocks((m for m in field.net if isinstance(m, nn.Linear)), "linear")
    optimizer = torch.optim.RMSprop(field.parameters(), 1e-3)

    def rk4(f, t, dt, y):
        k1 = f(t, y)
        k2 = f(t + dt / 2, y + dt / 2 * k1)
        k3 = f(t + dt / 2, y + dt / 2 * k2)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + f(t + dt, y + dt * k3))

    def odeint(f, y, times):
        path = [y]
        for a, b in zip(times, times[1:]):
            path.append(rk4(f, a, b - a, path[-1]))
        return torch.stack(path)

    times = np.linspace(0, 1, 6).tolist()
    truth = torch.randn(6, 64, 2, device=D())

    def step():
        optimizer.zero_grad()
        start = torch.randperm(64, device=D())[:20]
        pred = odeint(field, truth[0, start], times)
        loss = (pred - truth[:, start]).abs().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    with record():
        losses = []
        while len(losses) < 5:
            with execution():
                losses.append(step())


# -------------------------------------------------------------------------------------------------- 11. NeRF
@program(executions=6, layers=None, kinds={"training step": 6, "chunk of the picture": 8}, ranges="record_function: train, render", limits=["kernels", "launches"],
         where="the fine network on all samples of the rays, forward and backward", remedy="half precision; fused kernels of encoding and network; larger chunks when rendering",
         note="6 steps of 128 rays with coarse and fine samples; then a picture in 8 chunks of rays, each fetched. 14 uses of the field in all; an owner would say 6 steps and a picture, or 6 steps and 8 chunks.")
def nerf_rays():
    "NeRF: training on random rays, then a picture in chunks."
    class Radiance(nn.Module):
        def __init__(self, w=48):
            super().__init__()
            self.trunk = nn.ModuleList(nn.Linear(39 if i == 0 else w, w) for i in range(5))
            self.sigma, self.rgb = nn.Linear(w, 1), nn.Sequential(nn.Linear(w + 3, w // 2), nn.ReLU(), nn.Linear(w // 2, 3))

        def forward(self, x, d):
            h = torch.cat([x, *(f(x * 2.0**i) for i in range(6) for f in (torch.sin, torch.cos))], -1)
            for layer in self.trunk:
                h = F.relu(layer(h))
            return torch.sigmoid(self.rgb(torch.cat([h, d], -1))), F.softplus(self.sigma(h)).squeeze(-1)

    coarse, fine = Radiance().to(D()), Radiance().to(D())
    blocks(m for net in (coarse, fine) for m in net.modules() if isinstance(m, nn.Linear))
    blocks([coarse, fine], "network")
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], 5e-4)

    def composite(net, o, d, t):
        x = o[:, None] + d[:, None] * t[..., None]
        rgb, sigma = net(x, d[:, None].expand_as(x))
        delta = torch.cat([t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 1e3)], 1)
        alpha = 1 - torch.exp(-sigma * delta)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        weights = alpha * through
        return (weights[..., None] * rgb).sum(1), weights

    def rays_to_colour(o, d, n=16):
        t = torch.linspace(2, 6, n, device=o.device) + torch.rand(len(o), n, device=o.device) * 4 / n
        c0, weights = composite(coarse, o, d, t)
        cdf = torch.cumsum(weights.detach() + 1e-5, 1)
        cdf = cdf / cdf[:, -1:]
        at = torch.searchsorted(cdf, torch.rand(len(o), n, device=o.device)).clamp(max=n - 1)
        t = torch.cat([t, t.gather(1, at) + torch.rand_like(t) * 0.1], 1).sort(1).values
        return c0, composite(fine, o, d, t)[0]

    origin, direction, colour = torch.rand(2048, 3, device=D()), F.normalize(torch.randn(2048, 3, device=D()), dim=-1), torch.rand(2048, 3, device=D())

    def train(steps):
        for _ in range(steps):
            with execution("step or picture"), execution("step or chunk"), execution():
                pick = torch.randint(0, len(origin), (128,), device=D())
                c0, c1 = rays_to_colour(origin[pick], direction[pick])
                loss = F.mse_loss(c0, colour[pick]) + F.mse_loss(c1, colour[pick])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    @torch.no_grad()
    def render(chunks):
        rows = []
        with execution("step or picture"):
            for o, d in itertools.islice(zip(origin.split(256), direction.split(256)), chunks):
                with execution("step or chunk"):
                    rows.append(rays_to_colour(o, d)[1].cpu())
        return torch.cat(rows)

    train(1), render(1)
    with record():
        with record_function("train"):
            train(6)
        with record_function("render"):
            print(render(8).shape)


# -------------------------------------------------------------------------------------------------- 12. SAM (sharpness)
@program(executions=5, layers=6, kinds={"pass": 10}, ranges="none", limits=["kernels", "launches", "host"], where="two forward and backward passes a step, convolutions",
         remedy="sharpness-aware steps only every few iterations; channels-last and half precision", note="5 steps of a sharpness-aware optimiser: a pass at the weights, a step up, a second pass, the step down; "
         "the optimiser walks the parameters one by one in Python; loss and accuracy by .item() each step. An owner would say 5 steps; 10 passes are acceptable.")
def sharpness_aware():
    "Sharpness-aware minimisation of a wide residual network."
    class Wide(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.bn1, self.conv1, self.bn2, self.conv2 = nn.BatchNorm2d(i), nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False)
            self.short = nn.Conv2d(i, o, 1, s, bias=False) if i != o else nn.Identity()

        def forward(self, x):
            y = F.relu(self.bn1(x))
            return self.short(y) + self.conv2(F.relu(self.bn2(self.conv1(y))))

    class SAM(torch.optim.Optimizer):
        def __init__(self, params, base, rho=0.05, **more):
            super().__init__(params, dict(rho=rho, **more))
            self.base = base(self.param_groups, **more)

        @torch.no_grad()
        def first_step(self):
            norm = torch.stack([p.grad.norm(2) for g in self.param_groups for p in g["params"]]).norm(2)
            for group in self.param_groups:
                scale = group["rho"] / (norm + 1e-12)
                for p in group["params"]:
                    self.state[p]["old"] = p.data.clone()
                    p.add_(p.grad * scale)
            self.zero_grad()

        @torch.no_grad()
        def second_step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data = self.state[p]["old"]
            self.base.step()
            self.zero_grad()

    net = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), Wide(8, 16, 1), Wide(16, 16, 1), Wide(16, 24, 2), Wide(24, 24, 1), Wide(24, 32, 2), Wide(32, 32, 1), nn.BatchNorm2d(32), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(D())
    blocks(m for m in net if isinstance(m, Wide))
    blocks((m for m in net.modules() if isinstance(m, nn.Conv2d)), "convolution")
    optimizer = SAM(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def step(x, y):
        x, y = x.to(D()), y.to(D())
        with execution("pass"):
            out = net(x)
            loss = criterion(out, y)
            loss.backward()
            optimizer.first_step()
        with execution("pass"):
            criterion(net(x), y).backward()
            optimizer.second_step()
            with torch.no_grad():
                return loss.item(), (out.argmax(1) == y).float().mean().item()

    data = torch.randn(6, 8, 3, 32, 32), torch.randint(0, 10, (6, 8))
    step(data[0][0], data[1][0])
    with record():
        for x, y in zip(data[0][1:], data[1][1:]):
            with execution():
                step(x, y)


# -------------------------------------------------------------------------------------------------- 13. packed sequences
@program(executions=5, layers=4, ranges="none", limits=["kernels"], where="the layers, forward and backward, on packed rows of 256 tokens", remedy="attention of variable length instead of a dense mask; compile",
         note="documents of other lengths packed into rows on the host, a block-diagonal mask on the device, bf16 autocast, loss over the answers only, 5 steps; loss by .item() each second step")
def packed_sft():
    "Supervised fine-tuning with packed sequences."
    model = Causal(200, 48, 4, context=256).to(D())
    for layer in model.layers:
        layer.causal = False
    blocks(model.layers)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-5, betas=(0.9, 0.95))
    rng = random.Random(0)

    def documents():
        while True:
            n = int(rng.lognormvariate(4, 0.6)) + 4
            yield [rng.randrange(200) for _ in range(n)], rng.randint(1, n - 2)

    def pack(source, rows=2, length=256):
        ids, number, place, labels = (np.zeros((rows, length + 1), np.int64) for _ in range(4))
        labels -= 100
        for row in range(rows):
            at = 0
            for k in itertools.count():
                tokens, prompt = next(source)
                tokens = tokens[:length + 1 - at]
                end = at + len(tokens)
                ids[row, at:end], number[row, at:end], place[row, at:end] = tokens, k, np.arange(len(tokens))
                labels[row, at + prompt:end] = tokens[prompt:]
                at = end
                if at > length:
                    break
        return tuple(torch.from_numpy(x) for x in (ids[:, :-1], number[:, :-1], place[:, :-1], labels[:, 1:]))

    def step(batch, i):
        ids, number, place, labels = (t.to(D(), non_blocking=True) for t in batch)
        mask = (number[:, :, None] == number[:, None]) & torch.ones(256, 256, dtype=torch.bool, device=D()).tril()
        with torch.autocast("cpu" if D() == "cpu" else "cuda", dtype=torch.bfloat16):
            x = model.embed(ids) + model.place(place)
            for layer in model.layers:
                x = layer(x, mask[:, None])
            logits = model.head(model.norm(x))
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item() if i % 2 else None

    source = documents()
    step(pack(source), 0)
    with record():
        for i in range(5):
            with execution():
                step(pack(source), i)


# -------------------------------------------------------------------------------------------------- 14. experts by batched products
@program(executions=4, layers=4, ranges="record_function: in each layer 'attention', 'router', 'dispatch', 'experts', 'combine'", limits=["kernels", "launches"],
         where="experts: batched products over capacity slots, forward and backward", remedy="grouped products without padding to a capacity; bf16",
         note="4 steps of a 4-layer mixture of 6 experts, top 2, capacity factor 1.25, one-hot dispatch by einsum; auxiliary loss; 4 layers; halves of a layer are acceptable. Nothing is read back.")
def moe_batched():
    "A mixture of experts with capacity and batched products."
    dim, experts = 32, 6

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.w1, self.w2 = nn.Linear(dim, experts, bias=False), nn.Parameter(torch.randn(experts, dim, 2 * dim) * 0.05), nn.Parameter(torch.randn(experts, 2 * dim, dim) * 0.05)

        def forward(self, x):
            flat = x.flatten(0, 1)
            capacity = int(1.25 * 2 * len(flat) / experts)
            with record_function("router"):
                probs = self.router(flat).softmax(-1)
                weight, choice = probs.topk(2, -1)
                weight = weight / weight.sum(-1, keepdim=True)
            with record_function("dispatch"):
                hot = F.one_hot(choice, experts).float()
                rank = (hot.flatten(0, 1).cumsum(0) - 1).view_as(hot) * hot
                fits = (rank < capacity) * hot
                slot = F.one_hot(rank.sum(-1).long().clamp(max=capacity - 1), capacity).float()
                route = torch.einsum("tke,tkc->tkec", fits, slot)
                inputs = torch.einsum("tkec,td->ecd", route, flat)
            with record_function("experts"):
                outputs = torch.bmm(F.gelu(torch.bmm(inputs, self.w1)), self.w2)
            with record_function("combine"):
                y = torch.einsum("tkec,ecd->td", route * weight[..., None, None], outputs)
            self.loss = experts * (probs.mean(0) * hot[:, 0].mean(0)).sum()
            return y.view_as(x)

    class MoELayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2, self.attn, self.moe = nn.LayerNorm(dim), nn.LayerNorm(dim), SelfAttention(dim, 4), Experts()

        def forward(self, x):
            with record_function("attention"):
                x = x + self.attn(self.n1(x), causal=True)
            return x + self.moe(self.n2(x))

    model = nn.Sequential(nn.Embedding(200, dim), *[MoELayer() for _ in range(4)], nn.LayerNorm(dim), nn.Linear(dim, 200)).to(D())
    layers = [m for m in model if isinstance(m, MoELayer)]
    blocks(layers)
    blocks([m for one in layers for m in (one.attn, one.moe)], "half")
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    ids = torch.randint(0, 200, (5, 4, 25), device=D())

    def step(batch):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()) + 0.01 * sum(m.moe.loss for m in layers)
        loss.backward()
        optimizer.step()

    step(ids[0])
    with record():
        for batch in ids[1:]:
            with execution():
                step(batch)


# -------------------------------------------------------------------------------------------------- 15. soft actor-critic
@program(executions=12, layers=None, kinds={"environment step": 12, "update": 12}, ranges="none", limits=["host", "launches"],
         where="the update: two critics, an actor and a temperature, tiny kernels launched one by one", remedy="CUDA graphs or compile of the update; a larger batch; several environments",
         note="12 steps of the environment (NumPy), each an action of the policy by .cpu().numpy() and one update; targets averaged in a Python loop over the parameters. An owner would say 12 steps, or 12 actions and 12 updates.")
def sac_updates():
    "Soft actor-critic: act, step, update."
    obs_dim, act_dim, hidden = 11, 3, 64
    mlp = lambda i, o: nn.Sequential(nn.Linear(i, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, o)).to(D())
    actor, q1, q2 = mlp(obs_dim, 2 * act_dim), mlp(obs_dim + act_dim, 1), mlp(obs_dim + act_dim, 1)
    t1, t2 = (copy.deepcopy(q).requires_grad_(False) for q in (q1, q2))
    log_alpha = torch.zeros(1, device=D(), requires_grad=True)
    opt_q, opt_a, opt_alpha = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 3e-4), torch.optim.Adam(actor.parameters(), 3e-4), torch.optim.Adam([log_alpha], 3e-4)
    rng = np.random.default_rng(0)
    buffer = {k: rng.normal(size=(4096, n)).astype(np.float32) for k, n in dict(obs=obs_dim, act=act_dim, rew=1, nxt=obs_dim).items()}
    A = rng.normal(size=(obs_dim, obs_dim)).astype(np.float32) / 4

    def sample(obs):
        mean, log_std = actor(obs).chunk(2, -1)
        std = log_std.clamp(-5, 2).exp()
        raw = mean + std * torch.randn_like(mean)
        action = torch.tanh(raw)
        log_prob = (-0.5 * ((raw - mean) / std) ** 2 - std.log() - 0.919 - torch.log(1 - action**2 + 1e-6)).sum(-1, keepdim=True)
        return action, log_prob

    def update(size=64):
        rows = rng.integers(0, 4096, size)
        obs, act, rew, nxt = (torch.from_numpy(v[rows]).to(D()) for v in buffer.values())
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            na, nlp = sample(nxt)
            x = torch.cat([nxt, na], 1)
            target = rew + 0.99 * (torch.min(t1(x), t2(x)) - alpha * nlp)
        x = torch.cat([obs, act], 1)
        loss_q = F.mse_loss(q1(x), target) + F.mse_loss(q2(x), target)
        opt_q.zero_grad()
        loss_q.backward()
        opt_q.step()
        a, lp = sample(obs)
        x = torch.cat([obs, a], 1)
        loss_a = (alpha * lp - torch.min(q1(x), q2(x))).mean()
        opt_a.zero_grad()
        loss_a.backward()
        opt_a.step()
        loss_alpha = -(log_alpha.exp() * (lp.detach() - act_dim)).mean()
        opt_alpha.zero_grad()
        loss_alpha.backward()
        opt_alpha.step()
        with torch.no_grad():
            for net, goal in ((q1, t1), (q2, t2)):
                for p, t in zip(net.parameters(), goal.parameters()):
                    t.lerp_(p, 0.005)

    def environment(obs, action):
        for _ in range(20):
            obs = np.tanh(A @ obs + 0.05 * action.sum())
        return obs.astype(np.float32), -float(np.square(obs).sum())

    def run(obs, steps):
        for i in range(steps):
            with execution():
                with execution("pass"), torch.no_grad():
                    action = sample(torch.from_numpy(obs).to(D())[None])[0][0].cpu().numpy()
                nxt, reward = environment(obs, action)
                for key, value in zip(buffer, (obs, action, [reward], nxt)):
                    buffer[key][i] = value
                obs = nxt
                with execution("pass"):
                    update()
        return obs

    obs = run(np.zeros(obs_dim, np.float32), 2)
    with record():
        run(obs, 12)


# -------------------------------------------------------------------------------------------------- 16. adversarial training
@program(executions=4, layers=None, kinds={"training step": 4, "pass": 24}, ranges="record_function: attack, train", limits=["kernels", "launches", "host"],
         where="attack: 5 forward and backward passes of 6", remedy="fewer attack steps (free or fast adversarial training); half precision; channels-last",
         note="4 steps: PGD of 5 passes by the gradient of the picture, then a training pass; clean accuracy is not computed. An owner would say 4 steps; 24 passes are acceptable.")
def pgd_adversarial():
    "Adversarial training by projected gradient descent."
    def conv(i, o, s=1):
        return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    net = nn.Sequential(conv(3, 12), conv(12, 12), conv(12, 24, 2), conv(24, 24), conv(24, 32, 2), conv(32, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(D())
    blocks(m for m in net if isinstance(m, nn.Sequential))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)

    def attack(x, y, eps=8 / 255, alpha=2 / 255, steps=5):
        net.eval()
        adv = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(0, 1)
        for _ in range(steps):
            with execution("pass"):
                adv = adv.detach().requires_grad_()
                gradient, = torch.autograd.grad(F.cross_entropy(net(adv), y), adv)
                adv = torch.min(torch.max(adv.detach() + alpha * gradient.sign(), x - eps), x + eps).clamp(0, 1)
        net.train()
        return adv.detach()

    def step(x, y):
        x, y = x.to(D(), non_blocking=True), y.to(D(), non_blocking=True)
        with record_function("attack"):
            adv = attack(x, y)
        with record_function("train"), execution("pass"):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(net(adv), y)
            loss.backward()
            optimizer.step()
        return loss

    xs, ys = torch.rand(5, 8, 3, 32, 32), torch.randint(0, 10, (5, 8))
    step(xs[0], ys[0])
    with record():
        for x, y in zip(xs[1:], ys[1:]):
            with execution():
                loss = step(x, y)
        print(loss.item())


# -------------------------------------------------------------------------------------------------- 17. three models
@program(executions=24, layers=None, kinds={"training step": 18, "validation batch": 6, "trial": 3}, ranges="none", limits=["host", "launches"],
         where="small training steps of three models, one after the other", remedy="larger batches; CUDA graph; trials side by side",
         note="three models (a network of linear layers, a convolution network, a transformer), each 6 training steps and 2 validation batches, best kept. An owner would say 3 trials, 18 training steps, or 24 batches.")
def sweep_three_models():
    "A sweep over three kinds of models with their own optimisers."
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp, self.layers, self.out = nn.Linear(16, 32), nn.ModuleList([Layer(32), Layer(32)]), nn.Linear(32, 10)

        def forward(self, x):
            x = self.inp(x.flatten(1).unflatten(1, (-1, 16)))
            for layer in self.layers:
                x = layer(x)
            return self.out(x.mean(1))

    kinds = {
        "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        "cnn": (lambda: nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)),
                lambda p: torch.optim.Adam(p, 1e-3)),
        "transformer": (Transformer, lambda p: torch.optim.AdamW(p, 3e-4)),
    }
    xs, ys = torch.randn(8, 32, 1, 16, 16), torch.randint(0, 10, (8, 32))

    def trial(name, steps=6):
        build, make = kinds[name]
        torch.manual_seed(0)
        model = build().to(D())
        blocks(m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d)) and not isinstance(model, Transformer) or isinstance(m, Layer))
        optimizer = make(model.parameters())
        model.train()
        for x, y in zip(xs[:steps], ys[:steps]):
            with execution(), execution("training step"):
                x, y = x.to(D()), y.to(D())
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        model.eval()
        hits = 0
        with torch.no_grad():
            for x, y in zip(xs[6:], ys[6:]):
                with execution():
                    hits += (model(x.to(D())).argmax(1) == y.to(D())).sum().item()
        return hits / 64

    trial("cnn", 1)
    with record():
        results = {}
        for name in kinds:
            with execution("trial"):
                results[name] = trial(name)
        print(max(results, key=results.get))


# -------------------------------------------------------------------------------------------------- 18. translation
@program(executions=7, layers=4, kinds={"training step": 5, "translated batch": 2, "token": 12}, ranges="record_function: 'epoch', 'decode'", limits=["launches", "host"],
         where="the training steps; then the greedy decoding, token by token without a cache", remedy="larger batches by tokens; a KV cache in decoding",
         note="5 training steps (batches of other lengths, label smoothing, the schedule of the paper), then 2 batches translated greedily, 6 tokens each (the encoder once, the decoder for each token on all so far). "
              "An owner would say 5 training steps and 2 translations, or 5 steps, 2 encodings and 12 tokens.")
def nmt_noam():
    "Translation with an encoder and a decoder: training, then greedy decoding."
    dim, vocabulary = 48, 150

    class DecoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.cross = SelfAttention(dim, 4), SelfAttention(dim, 4)
            self.n1, self.n2, self.n3 = (nn.LayerNorm(dim) for _ in range(3))
            self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

        def forward(self, x, memory, mask):
            x = x + self.own(self.n1(x), causal=True)
            x = x + self.cross(self.n2(x), memory, mask)
            return x + self.ff(self.n3(x))

    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.place = nn.Embedding(vocabulary, dim, padding_idx=0), nn.Embedding(64, dim)
            self.encoder, self.decoder = nn.ModuleList(Layer(dim) for _ in range(2)), nn.ModuleList(DecoderLayer() for _ in range(2))

        def embed(self, ids):
            return self.words(ids) * dim**0.5 + self.place(torch.arange(ids.shape[1], device=ids.device))

        def encode(self, source):
            mask = (source != 0)[:, None, None]
            x = self.embed(source)
            for layer in self.encoder:
                x = layer(x, mask)
            return x, mask

        def decode(self, target, memory, mask):
            x = self.embed(target)
            for layer in self.decoder:
                x = layer(x, memory, mask)
            return x @ self.words.weight.T

    model = Seq2Seq().to(D())
    blocks([*model.encoder, *model.decoder])
    optimizer = torch.optim.Adam(model.parameters(), 1.0, betas=(0.9, 0.98), eps=1e-9)
    noam = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: dim**-0.5 * min((s + 1) ** -0.5, (s + 1) * 4000**-1.5))

    def batch(n, longest):
        ids = torch.randint(1, vocabulary, (2, n, longest))
        for row in ids.flatten(0, 1):
            row[random.randint(longest // 2, longest):] = 0
        return ids

    def train(batches):
        model.train()
        for source, target in batches:
            with execution(), execution("step, encoding or token"), execution("training step"):
                source, target = source.to(D()), target.to(D())
                logits = model.decode(target[:, :-1], *model.encode(source))
                loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                noam.step()

    @torch.no_grad()
    def translate(source, tokens):
        model.eval()
        with execution():
            with execution("step, encoding or token"):
                memory, mask = model.encode(source.to(D()))
                out = torch.ones(len(source), 1, dtype=torch.long, device=D())
            for _ in range(tokens):
                with execution("step, encoding or token"):
                    word = model.decode(out, memory, mask)[:, -1].argmax(-1, keepdim=True)
                    out = torch.cat([out, word], 1)
                    if (word == 0).all():
                        break
            return out.tolist()

    data = [batch(6, n) for n in (12, 16, 20, 24, 30, 14, 18)]
    train(data[:1]), translate(data[0][0], 2)
    with record():
        with record_function("epoch"):
            train(data[:5])
        with record_function("decode"):
            for source, _ in data[5:]:
                translate(source, 6)
