"""Programs as people write them in 2024–2026: codebooks, robots, search trees, retrieval, recurrences, preferences, operators.

Sizes are a CPU's. What one execution is, and what the layers are, was written down before any of them was read by the tool.
"""
import copy
import math
import os
import random
from typing import List, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function

from harness import blocks, execution, layer, program, record, said, D

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


class Attention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads, self.q, self.kv, self.proj = heads, nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x, context=None, causal=False):
        context = x if context is None else context
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(context).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    def __init__(self, dim, heads=4, causal=False, dropout=0.0):
        super().__init__()
        self.ln1, self.ln2, self.attn, self.causal = nn.LayerNorm(dim), nn.LayerNorm(dim), Attention(dim, heads), causal
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attn(self.ln1(x), causal=self.causal)
        return x + self.mlp(self.ln2(x))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, dim, depth, out=None, context=64):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
        self.h = nn.ModuleList(TransformerBlock(dim, causal=True) for _ in range(depth))
        self.ln_f, self.head = nn.LayerNorm(dim), nn.Linear(dim, out or vocabulary, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


# -------------------------------------------------------------------------------------------------- 1. a codebook
@program(executions=16, layers=4, kinds={"training step": 12, "validation batch": 4}, ranges="none",
         note="2 epochs, each of 6 training batches and 2 validation batches; each batch is one pass (and update) of the model, which is how the loops are written. "
              "Layers: the residual blocks, or the convolutions. The codebook is updated by moving averages inside the forward pass.")
def vqvae_epochs():
    "A VQ-VAE whose codebook follows by moving averages, with validation after each epoch."
    class ResidualLayer(nn.Module):
        def __init__(self, c, r):
            super().__init__()
            self.res_block = nn.Sequential(nn.ReLU(), nn.Conv2d(c, r, 3, 1, 1, bias=False), nn.ReLU(), nn.Conv2d(r, c, 1, bias=False))

        def forward(self, x):
            return x + self.res_block(x)

    class VectorQuantizerEMA(nn.Module):
        def __init__(self, n, d, decay=0.99, beta=0.25):
            super().__init__()
            self.n, self.decay, self.beta = n, decay, beta
            self.register_buffer("embedding", torch.randn(n, d))
            self.register_buffer("cluster_size", torch.zeros(n))
            self.register_buffer("ema_w", torch.randn(n, d))

        def forward(self, z):
            z = z.permute(0, 2, 3, 1).contiguous()
            flat = z.view(-1, z.shape[-1])
            d = flat.pow(2).sum(1, keepdim=True) + self.embedding.pow(2).sum(1) - 2 * flat @ self.embedding.t()
            ids = d.argmin(1)
            onehot = F.one_hot(ids, self.n).type_as(flat)
            quantized = (onehot @ self.embedding).view_as(z)
            if self.training:
                with torch.no_grad():
                    self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                    total = self.cluster_size.sum()
                    size = (self.cluster_size + 1e-5) / (total + self.n * 1e-5) * total
                    self.ema_w.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
                    self.embedding.copy_(self.ema_w / size.unsqueeze(1))
            loss = self.beta * F.mse_loss(quantized.detach(), z)
            quantized = z + (quantized - z).detach()
            p = onehot.mean(0)
            return loss, quantized.permute(0, 3, 1, 2).contiguous(), torch.exp(-(p * (p + 1e-10).log()).sum())

    class VQVAE(nn.Module):
        def __init__(self, c=24):
            super().__init__()
            self.encoder = nn.Sequential(nn.Conv2d(3, c // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(c // 2, c, 4, 2, 1), nn.ReLU(), nn.Conv2d(c, c, 3, 1, 1),
                                         ResidualLayer(c, 12), ResidualLayer(c, 12), nn.ReLU())
            self.pre, self.vq = nn.Conv2d(c, 16, 1), VectorQuantizerEMA(64, 16)
            self.decoder = nn.Sequential(nn.Conv2d(16, c, 3, 1, 1), ResidualLayer(c, 12), ResidualLayer(c, 12), nn.ReLU(),
                                         nn.ConvTranspose2d(c, c // 2, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(c // 2, 3, 4, 2, 1))

        def forward(self, x):
            loss, q, perplexity = self.vq(self.pre(self.encoder(x)))
            return loss, self.decoder(q), perplexity

    model = VQVAE().to(D())
    blocks(m for m in model.modules() if isinstance(m, ResidualLayer))
    blocks((m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d))), "convolution")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, amsgrad=True)
    rng = np.random.default_rng(0)
    train_set, valid_set = ([rng.random((n, 3, 32, 32), dtype=np.float32) - 0.5 for n in sizes] for sizes in ([16] * 5 + [9], [16, 16]))

    def train(epoch, batches):
        model.train()
        for i, x in enumerate(batches):
            with execution():
                x = torch.from_numpy(x).to(D())
                vq_loss, recon, perplexity = model(x)
                recon_loss = F.mse_loss(recon, x) / 0.06
                loss = recon_loss + vq_loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if i % 3 == 0:
                    print(f"epoch {epoch} [{i}] recon {recon_loss.item():.3f} perplexity {perplexity.item():.1f}")

    @torch.no_grad()
    def validate(batches):
        model.eval()
        total = 0.0
        for x in batches:
            with execution():
                x = torch.from_numpy(x).to(D())
                vq_loss, recon, _ = model(x)
                total += (F.mse_loss(recon, x) + vq_loss).item() * len(x)
        return total / sum(map(len, batches))

    train(-1, train_set[:2])
    validate(valid_set[:1])
    best = math.inf
    with record():
        for epoch in range(2):
            train(epoch, train_set)
            loss = validate(valid_set)
            if loss < best:
                best = loss
                print("saving checkpoint", {k: tuple(v.shape) for k, v in model.state_dict().items()}["vq.embedding"])


# -------------------------------------------------------------------------------------------------- 2. captions
@program(executions=5, layers=9, kinds={"picture": 5, "encoding or token": None}, ranges="record_function: encode_image, generate",
         note="one call of caption() per picture is one execution; the encoder's pass and each token's pass are acceptable too (the decoder is called once a token). "
              "Layers: 4 residual blocks, 2 resampler layers, 3 decoder layers.")
def caption_greedy():
    "Image captioning: a CNN, a Perceiver resampler, a decoder without a cache that runs over all tokens so far."
    torch.set_grad_enabled(False)
    dim = 48

    class BasicBlock(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s > 1 or i != o else nn.Identity()

        def forward(self, x):
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.down(x))

    class ResamplerLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_x, self.norm_l, self.norm_f, self.attn = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim), Attention(dim)
            self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

        def forward(self, latents, x):
            latents = latents + self.attn(self.norm_l(latents), torch.cat([self.norm_x(x), latents], 1))
            return latents + self.ff(self.norm_f(latents))

    class DecoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2, self.n3, self.self_attn, self.cross_attn = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim), Attention(dim), Attention(dim)
            self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

        def forward(self, x, memory):
            x = x + self.self_attn(self.n1(x), causal=True)
            x = x + self.cross_attn(self.n2(x), memory)
            return x + self.ff(self.n3(x))

    class Captioner(nn.Module):
        def __init__(self, vocabulary=60):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            self.layers = nn.ModuleList([BasicBlock(16, 16, 1), BasicBlock(16, 32, 2), BasicBlock(32, dim, 2), BasicBlock(dim, dim, 1)])
            self.latents, self.resampler = nn.Parameter(torch.randn(1, 8, dim)), nn.ModuleList(ResamplerLayer() for _ in range(2))
            self.embed, self.pos = nn.Embedding(vocabulary, dim), nn.Embedding(20, dim)
            self.decoder, self.norm, self.fc = nn.ModuleList(DecoderLayer() for _ in range(3)), nn.LayerNorm(dim), nn.Linear(dim, vocabulary)

        def encode(self, pixels):
            x = self.stem(pixels)
            for block in self.layers:
                x = block(x)
            x, latents = x.flatten(2).transpose(1, 2), self.latents
            for block in self.resampler:
                latents = block(latents, x)
            return latents

        def decode(self, ids, memory):
            x = self.embed(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
            for block in self.decoder:
                x = block(x, memory)
            return self.fc(self.norm(x[:, -1]))

    model = Captioner().to(D()).eval()
    blocks([*model.layers, *model.resampler, *model.decoder])
    bos, eos = 1, 2

    def caption(picture, max_len=11):
        pixels = (torch.from_numpy(picture).to(D()).permute(2, 0, 1)[None].float() / 255 - 0.45) / 0.25
        with record_function("encode_image"):
            memory = model.encode(pixels)
        with record_function("generate"):
            words = []
            ids = torch.full((1, 1), bos, dtype=torch.long, device=D())
            for i in range(max_len):
                with execution("pass"):
                    logits = model.decode(ids, memory)
                    logits[0, ids[0]] -= 1.0  # no repetitions
                    logits[:, eos] += 0.22 * i  # a prior of the length
                    nxt = logits.argmax(-1, keepdim=True)
                    word = nxt.item()
                    if word != eos:
                        words.append(word)
                        ids = torch.cat([ids, nxt], 1)
                if word == eos:
                    break
        return words

    encode = model.encode

    def encode_as_a_pass(pixels):
        with execution("pass"):
            return encode(pixels)
    model.encode = encode_as_a_pass
    rng = np.random.default_rng(1)
    pictures = np.stack([np.kron(rng.integers(0, 255, (k, k, 3)), np.ones((96 // k, 96 // k, 1))).astype(np.uint8) for k in (2, 3, 4, 6, 8, 12)])
    caption(pictures[5])
    with record():
        for i, picture in enumerate(pictures[:5]):
            with execution():
                print(i, caption(picture))


# -------------------------------------------------------------------------------------------------- 3. a datastore beside a language model
@program(executions=27, layers=4, kinds={"prompt": 3, "pass": 27}, ranges="none",
         note="a pass over the prompt or one token, with its look-up among the neighbours and the choice of the next token, is one execution (the model is called once per turn of the loop); "
              "a whole prompt with its answer is acceptable. Layers: the 4 decoder layers.")
def knn_lm():
    "kNN-LM: decoding with a key-value cache, and a datastore of neighbours at each token."
    dim, depth, heads, vocabulary = 48, 4, 4, 120

    class CachedLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2, self.qkv, self.out = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x, past):
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            if past is not None:
                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x)))), (k, v)

    embed, place, norm, lm_head = nn.Embedding(vocabulary, dim).to(D()), nn.Embedding(64, dim).to(D()), nn.LayerNorm(dim).to(D()), nn.Linear(dim, vocabulary, bias=False).to(D())
    layers = nn.ModuleList(CachedLayer() for _ in range(depth)).to(D())
    blocks(layers)
    keys, values = torch.randn(3000, dim).to(D()), torch.randint(0, vocabulary, (3000,)).to(D())
    key_norms = keys.pow(2).sum(1)

    @torch.inference_mode()
    def generate(prompt, n, k=16, lam=0.25, temperature=10.0):
        ids, past, text = torch.tensor([prompt]).to(D()), [None] * depth, []
        for _ in range(n):
            with execution():
                start = 0 if past[0] is None else past[0][0].shape[2]
                x = embed(ids) + place(torch.arange(start, start + ids.shape[1], device=ids.device))
                for i, one in enumerate(layers):
                    x, past[i] = one(x, past[i])
                hidden = norm(x[:, -1])
                p_lm = lm_head(hidden).softmax(-1)
                distance = key_norms - 2 * hidden @ keys.t() + hidden.pow(2).sum(1, keepdim=True)
                near, index = distance.topk(k, largest=False)
                weights = (-near / temperature).softmax(-1)
                p_knn = torch.zeros_like(p_lm).scatter_add_(1, values[index], weights)
                p = lam * p_knn + (1 - lam) * p_lm
                ids = torch.multinomial(p, 1)
                text.append(ids.item())
        return text

    rng = random.Random(0)
    prompts = [([rng.randrange(vocabulary) for _ in range(length)], n) for length, n in ((14, 9), (31, 7), (8, 11))]
    generate([1, 2, 3], 3)
    with record():
        for prompt, n in prompts:
            with execution("prompt"):
                print(len(prompt), generate(prompt, n))


# -------------------------------------------------------------------------------------------------- 4. a policy that denoises
@program(executions=6, layers=5, kinds={"plan": 6, "pass": 54}, ranges="record_function: predict_action",
         note="one predict_action() per 4 steps of the robot is one execution; the passes inside it (1 of the observation encoder, 8 of the noise network) are acceptable. "
              "Layers: the 5 conditional residual blocks of the U-Net.")
def diffusion_policy():
    "Diffusion policy: an action sequence is denoised, four actions of it are carried out, then the next plan."
    torch.set_grad_enabled(False)
    obs_dim, act_dim, horizon, steps = 20, 7, 16, 8

    class Conv1dBlock(nn.Module):
        def __init__(self, i, o, k=5):
            super().__init__()
            self.block = nn.Sequential(nn.Conv1d(i, o, k, padding=k // 2), nn.GroupNorm(8, o), nn.Mish())

        def forward(self, x):
            return self.block(x)

    class ConditionalResidualBlock1D(nn.Module):
        def __init__(self, i, o, cond):
            super().__init__()
            self.blocks, self.o = nn.ModuleList([Conv1dBlock(i, o), Conv1dBlock(o, o)]), o
            self.cond_encoder = nn.Sequential(nn.Mish(), nn.Linear(cond, 2 * o))
            self.residual_conv = nn.Conv1d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, cond):
            out = self.blocks[0](x)
            embed = self.cond_encoder(cond).view(-1, 2, self.o, 1)
            out = embed[:, 0] * out + embed[:, 1]
            return self.blocks[1](out) + self.residual_conv(x)

    class ConditionalUnet1D(nn.Module):
        def __init__(self, cond, c=32):
            super().__init__()
            self.step = nn.Sequential(nn.Linear(32, 128), nn.Mish(), nn.Linear(128, 32))
            cond += 32
            self.down = nn.ModuleList([ConditionalResidualBlock1D(act_dim, c, cond), ConditionalResidualBlock1D(c, 2 * c, cond)])
            self.mid = ConditionalResidualBlock1D(2 * c, 2 * c, cond)
            self.up = nn.ModuleList([ConditionalResidualBlock1D(4 * c, c, cond), ConditionalResidualBlock1D(2 * c, c, cond)])
            self.pool = nn.ModuleList([nn.Conv1d(c, c, 3, 2, 1), nn.Conv1d(2 * c, 2 * c, 3, 2, 1)])
            self.grow = nn.ModuleList([nn.ConvTranspose1d(2 * c, 2 * c, 4, 2, 1), nn.ConvTranspose1d(c, c, 4, 2, 1)])
            self.final = nn.Sequential(Conv1dBlock(c, c), nn.Conv1d(c, act_dim, 1))

        def forward(self, sample, t, global_cond):
            f = t * torch.exp(torch.arange(16, device=sample.device) * -(math.log(10000) / 15))
            cond = torch.cat([self.step(torch.cat([f.sin(), f.cos()])[None]), global_cond], -1)
            x, kept = sample.moveaxis(-1, -2), []
            for block, pool in zip(self.down, self.pool):
                x = block(x, cond)
                kept.append(x)
                x = pool(x)
            x = self.mid(x, cond)
            for block, grow in zip(self.up, self.grow):
                x = block(torch.cat([grow(x), kept.pop()], 1), cond)
            return self.final(x).moveaxis(-1, -2)

    vision = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(8, 32), nn.ReLU(),
                           nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(D()).eval()
    net = ConditionalUnet1D(2 * (32 + obs_dim)).to(D()).eval()
    blocks([*net.down, net.mid, *net.up])
    alphas = np.cos((np.linspace(0, 1, 101) + 0.008) / 1.008 * math.pi / 2) ** 2

    def predict_action(images, states):
        with record_function("predict_action"):
            with execution("pass"):
                images = torch.from_numpy(images).to(D()).float().permute(0, 3, 1, 2) / 255
                cond = torch.cat([vision(images), torch.from_numpy(states).to(D())], -1).flatten()[None]
                action = torch.randn((1, horizon, act_dim), device=D())
            times = np.linspace(99, 0, steps).astype(int)
            for k, t in enumerate(times):
                with execution("pass"):
                    eps = net(action, float(t), cond)
                    a, b = alphas[t], alphas[times[k + 1]] if k + 1 < steps else 1.0
                    x0 = ((action - (1 - a) ** 0.5 * eps) / a ** 0.5).clamp(-1, 1)
                    action = b ** 0.5 * x0 + (1 - b) ** 0.5 * eps
            return action[0].cpu().numpy()

    rng = np.random.default_rng(0)

    class Env:
        def __init__(self):
            self.state, self.a = rng.normal(size=obs_dim).astype(np.float32), rng.normal(size=(act_dim, obs_dim)).astype(np.float32) / 9

        def step(self, action):
            for _ in range(20):
                self.state = np.tanh(self.state + action @ self.a * 0.05)
            image = np.clip(np.add.outer(np.linspace(0, 90, 48), np.linspace(0, 90, 48))[..., None] + 40 * self.state[:3], 0, 255)
            return image.astype(np.uint8), self.state.copy(), float(-np.square(self.state).mean())

    def episode(plans):
        env = Env()
        seen = [env.step(np.zeros(act_dim, np.float32))] * 2
        reward = 0.0
        for _ in range(plans):
            with execution():
                actions = predict_action(np.stack([s[0] for s in seen]), np.stack([s[1] for s in seen]))
            for action in actions[1:5]:
                seen = [seen[1], env.step(action)]
                reward += seen[1][2]
        return reward

    episode(1)
    with record():
        print(f"reward {episode(6):.3f}")


# -------------------------------------------------------------------------------------------------- 5. sequences of decisions
@program(executions=20, layers=3, kinds={"training step": 8, "action": 12}, ranges="record_function: training, evaluation",
         note="2 iterations, each of 4 training steps and an episode of 6 actions: each training step and each action is one call of the model, hence an execution "
              "(the two ranges are whole phases). Layers: the 3 transformer blocks.")
def decision_transformer():
    "A decision transformer: steps on trajectories, then an episode in the environment, twice."
    obs_dim, act_dim, dim, K = 11, 3, 48, 12

    class DecisionTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ret, self.state, self.action, self.time = nn.Linear(1, dim), nn.Linear(obs_dim, dim), nn.Linear(act_dim, dim), nn.Embedding(64, dim)
            self.blocks = nn.ModuleList(TransformerBlock(dim, causal=True, dropout=0.1) for _ in range(3))
            self.ln, self.predict = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, act_dim), nn.Tanh())

        def forward(self, states, actions, rtg, timesteps):
            t = self.time(timesteps)
            x = torch.stack((self.ret(rtg) + t, self.state(states) + t, self.action(actions) + t), 1)
            x = self.ln(x.permute(0, 2, 1, 3).reshape(states.shape[0], 3 * states.shape[1], dim))
            for block in self.blocks:
                x = block(x)
            return self.predict(x.reshape(states.shape[0], -1, 3, dim)[:, :, 1])

        def get_action(self, states, actions, rtg, timesteps):
            states, actions, rtg, timesteps = states[-K:][None], actions[-K:][None], rtg[-K:][None], timesteps[-K:][None]
            missing = K - states.shape[1]
            states, actions, rtg = (F.pad(x, (0, 0, missing, 0)) for x in (states, actions, rtg))
            return self(states, actions, rtg, F.pad(timesteps, (missing, 0)))[0, -1]

    model = DecisionTransformer().to(D())
    blocks(model.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 10, 1))
    rng = np.random.default_rng(0)
    data = [{"o": rng.normal(size=(40, obs_dim)), "a": np.tanh(rng.normal(size=(40, act_dim))), "r": rng.random(40)} for _ in range(30)]
    mean, std = np.concatenate([t["o"] for t in data]).mean(0), np.concatenate([t["o"] for t in data]).std(0)

    def get_batch(n=16):
        s, a, g, t = [], [], [], []
        for i in rng.integers(0, len(data), n):
            one, at = data[i], rng.integers(0, 28)
            s.append((one["o"][at:at + K] - mean) / std)
            a.append(one["a"][at:at + K])
            g.append(np.cumsum(one["r"][at:][::-1])[::-1][:K, None] / 20)
            t.append(np.arange(at, at + K))
        return [torch.from_numpy(np.stack(x)).to(dtype=torch.float32).to(D()) for x in (s, a, g)] + [torch.from_numpy(np.stack(t)).to(D())]

    def train_step():
        states, actions, rtg, timesteps = get_batch()
        preds = model(states, actions, rtg, timesteps)
        loss = F.mse_loss(preds, actions)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        scheduler.step()
        return loss.detach().cpu().item()

    @torch.no_grad()
    def evaluate(length):
        env = rng.normal(size=obs_dim)
        states = torch.from_numpy((env - mean) / std).to(dtype=torch.float32).to(D())[None]
        actions, rtg, timesteps = torch.zeros((0, act_dim), device=D()), torch.full((1, 1), 3.0, device=D()), torch.zeros(1, dtype=torch.long, device=D())
        total = 0.0
        for t in range(length):
            with execution():
                actions = torch.cat([actions, torch.zeros((1, act_dim), device=D())])
                action = model.get_action(states, actions, rtg, timesteps)
                actions[-1] = action
                action = action.cpu().numpy()
                env = np.tanh(env * 0.9 + np.resize(action, obs_dim) * 0.2)
                reward = float(-np.abs(env).mean())
                states = torch.cat([states, torch.from_numpy((env - mean) / std).to(dtype=torch.float32).to(D())[None]])
                rtg = torch.cat([rtg, rtg[-1:] - reward / 20])
                timesteps = torch.cat([timesteps, torch.full((1,), t + 1, dtype=torch.long, device=D())])
                total += reward
        return total

    def iteration(steps, length):
        with record_function("training"):
            model.train()
            losses = []
            for _ in range(steps):
                with execution():
                    losses.append(train_step())
        with record_function("evaluation"):
            model.eval()
            reward = evaluate(length)
        print(f"loss {np.mean(losses):.4f} return {reward:.3f}")

    iteration(1, 2)
    with record():
        for _ in range(2):
            iteration(4, 6)


# -------------------------------------------------------------------------------------------------- 6. two encoders, one of them an average
@program(executions=6, layers=3, kinds={"step": 6}, ranges="record_function: augment, online, target, backward, ema",
         note="6 steps of BYOL, each with both views through both networks, one backward and one update, the moving average at its end: the loop's body is one execution. "
              "Layers: the 3 residual blocks of an encoder, at each call.")
def byol_ema():
    "BYOL: an online encoder, a target that follows as a moving average, augmentation on the device."
    class Block(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.c1, self.b1, self.c2, self.b2, self.short = nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.Conv2d(i, o, 1, 2, bias=False)

        def forward(self, x):
            return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.short(x))

    def mlp(i, h, o):
        return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))

    encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16), Block(16, 32), Block(32, 48),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), mlp(48, 96, 32)).to(D())
    predictor = mlp(32, 64, 32).to(D())
    target = copy.deepcopy(encoder).requires_grad_(False)
    blocks(m for net in (encoder, target) for m in net if isinstance(m, Block))
    optimizer = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9, weight_decay=1e-4)
    mean, std = torch.tensor([0.49, 0.48, 0.45]).to(D()).view(3, 1, 1), torch.tensor([0.25, 0.24, 0.26]).to(D()).view(3, 1, 1)

    def augment(x):
        if random.random() < 0.5:
            x = x.flip(-1)
        x = torch.roll(x, (random.randrange(-3, 4), random.randrange(-3, 4)), (2, 3))
        x = x * (0.8 + 0.4 * torch.rand(x.shape[0], 1, 1, 1, device=x.device))
        if random.random() < 0.2:
            x = x.mean(1, keepdim=True).expand_as(x)
        return (x.clamp(0, 1) - mean) / std

    def regression(p, z):
        return 2 - 2 * (F.normalize(p, dim=1) * F.normalize(z, dim=1)).sum(-1)

    @torch.no_grad()
    def update_moving_average(tau):
        for online, ema in zip(encoder.parameters(), target.parameters()):
            ema.data = ema.data * tau + online.data * (1 - tau)

    def step(i, batch, total):
        x = torch.from_numpy(batch).to(D(), non_blocking=True)
        with record_function("augment"):
            v1, v2 = augment(x), augment(x)
        with record_function("online"):
            p1, p2 = predictor(encoder(v1)), predictor(encoder(v2))
        with record_function("target"), torch.no_grad():
            z1, z2 = target(v1), target(v2)
        loss = (regression(p1, z2) + regression(p2, z1)).mean()
        with record_function("backward"):
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        with record_function("ema"):
            update_moving_average(1 - 0.01 * (math.cos(math.pi * i / total) + 1) / 2)
        if i % 3 == 2:
            print(f"{i} loss {loss.item():.4f}")

    random.seed(0)
    batches = np.random.default_rng(0).random((8, 16, 3, 32, 32), dtype=np.float32)
    for i in range(2):
        step(i, batches[i], 8)
    with record():
        for i in range(2, 8):
            with execution():
                step(i, batches[i], 8)


# -------------------------------------------------------------------------------------------------- 7. a replay buffer
@program(executions=None, layers=3, kinds={"action": None, "update": 12}, ranges="none",
         note="48 steps of the environment; a greedy action is a pass of the network, each fourth step updates it once from the replay buffer: each action and each update is an execution; "
              "the environment's step (action, then an update or none) is acceptable. Layers: the 3 linear layers. The target is copied every fourth update.")
def dqn_replay():
    "Double DQN: epsilon-greedy actions, a replay buffer in NumPy, a target network copied now and then."
    obs_dim, acts = 8, 4

    def q_network():
        return nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, acts))

    q, frozen = q_network().to(D()), q_network().to(D())
    frozen.load_state_dict(q.state_dict())
    blocks((m for net in (q, frozen) for m in net if isinstance(m, nn.Linear)), "linear")
    optimizer = torch.optim.Adam(q.parameters(), lr=2.5e-4)
    rng = np.random.default_rng(0)
    dynamics = rng.normal(size=(acts, obs_dim, obs_dim)) / 3

    class Replay:
        def __init__(self, n):
            self.obs, self.nxt = (np.zeros((n, obs_dim), np.float32) for _ in range(2))
            self.act, self.rew, self.done, self.at, self.full = np.zeros((n, 1), np.int64), np.zeros(n, np.float32), np.zeros(n, np.float32), 0, 0

        def add(self, o, a, r, n, d):
            i = self.at
            self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i] = o, a, r, n, d
            self.at, self.full = (i + 1) % len(self.rew), min(self.full + 1, len(self.rew))

        def sample(self, k):
            i = rng.integers(0, self.full, k)
            return [torch.from_numpy(x[i]).to(D()) for x in (self.obs, self.act, self.rew, self.nxt, self.done)]

    replay, updates = Replay(500), 0

    def act(obs, epsilon):
        if random.random() < epsilon:
            return random.randrange(acts)
        with execution("pass"), torch.no_grad():
            return q(torch.from_numpy(obs).to(D())[None]).argmax(1).item()

    def update():
        nonlocal updates
        with execution("pass"):
            obs, a, r, nxt, done = replay.sample(32)
            with torch.no_grad():
                best = q(nxt).argmax(1, keepdim=True)
                td_target = r + 0.99 * (1 - done) * frozen(nxt).gather(1, best).squeeze(1)
            old = q(obs).gather(1, a).squeeze(1)
            loss = F.smooth_l1_loss(old, td_target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(q.parameters(), 10)
            optimizer.step()
            updates += 1
            if updates % 4 == 0:
                frozen.load_state_dict(q.state_dict())

    def interact(steps, epsilon, learn=True):
        obs = rng.normal(size=obs_dim).astype(np.float32)
        for step in range(steps):
            with execution():
                a = act(obs, epsilon)
                nxt = np.tanh(dynamics[a] @ obs + 0.05 * rng.normal(size=obs_dim)).astype(np.float32)
                replay.add(obs, a, -np.abs(nxt).mean(), nxt, float(rng.random() < 0.03))
                obs = nxt if not replay.done[replay.at - 1] else rng.normal(size=obs_dim).astype(np.float32)
                if learn and step % 4 == 3:
                    update()

    random.seed(1)
    interact(40, 1.0, learn=False)
    interact(8, 0.5)
    with record():
        interact(48, 0.25)


# -------------------------------------------------------------------------------------------------- 8. a search tree
@program(executions=24, layers=4, kinds={"evaluation": 24, "move": 3}, ranges="record_function: search",
         note="3 moves; of each 1 evaluation of the root and 7 of batches of leaves (1 to 8 of them), the tree is on the host: each call of the network is an execution; "
              "a move (the range 'search') is acceptable. Layers: the 4 residual blocks.")
def tree_search():
    "AlphaZero-like search: leaves are gathered on the host, and evaluated by the network in batches of other sizes."
    torch.set_grad_enabled(False)
    side, c = 7, 24

    class ResidualBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c)

        def forward(self, x):
            return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))

    class PolicyValue(nn.Module):
        def __init__(self):
            super().__init__()
            self.start, self.tower = nn.Sequential(nn.Conv2d(3, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU()), nn.ModuleList(ResidualBlock() for _ in range(4))
            self.policy = nn.Sequential(nn.Conv2d(c, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * side * side, side * side))
            self.value = nn.Sequential(nn.Conv2d(c, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(side * side, 32), nn.ReLU(), nn.Linear(32, 1), nn.Tanh())

        def forward(self, x):
            x = self.start(x)
            for block in self.tower:
                x = block(x)
            return self.policy(x).softmax(-1), self.value(x)

    net = PolicyValue().to(D()).eval()
    blocks(net.tower)
    rng = np.random.default_rng(0)

    def evaluate(boards):
        with execution():
            planes = np.stack([np.stack([b == 1, b == -1, np.full_like(b, (b != 0).sum() % 2)]) for b in boards]).astype(np.float32)
            p, v = net(torch.from_numpy(planes).to(D()))
            return p.cpu().numpy(), v.squeeze(-1).cpu().numpy()

    class Node:
        def __init__(self, prior):
            self.prior, self.visits, self.value, self.children = prior, 0, 0.0, {}

    def expand(node, board, priors):
        for move in np.flatnonzero(board.ravel() == 0):
            node.children[int(move)] = Node(priors[move])

    def select(root, board):
        path, node, board, turn = [root], root, board.copy(), 1
        while node.children:
            total = math.sqrt(node.visits + 1)
            move, node = max(node.children.items(), key=lambda kv: kv[1].value / (kv[1].visits + 1e-6) + 1.5 * kv[1].prior * total / (1 + kv[1].visits))
            board.ravel()[move], turn = turn, -turn
            path.append(node)
        for one in path:  # virtual loss
            one.visits += 1
            one.value -= 1
        return path, board

    def search(board, waves=7, width=8):
        with record_function("search"):
            root = Node(1.0)
            p, _ = evaluate([board])
            expand(root, board, 0.75 * p[0] + 0.25 * rng.dirichlet(np.full(side * side, 0.3)))
            for wave in range(waves):
                leaves, seen = [], set()
                for _ in range(width):
                    path, at = select(root, board)
                    if id(path[-1]) not in seen:
                        leaves.append((path, at))
                        seen.add(id(path[-1]))
                    if rng.random() < 0.08:
                        break
                priors, values = evaluate([at for _, at in leaves])
                for (path, at), prior, value in zip(leaves, priors, values):
                    expand(path[-1], at, prior)
                    for one in reversed(path):
                        one.value += 1 + value
                        value = -value
            return max(root.children.items(), key=lambda kv: kv[1].visits)[0]

    def play(moves):
        board, turn = np.zeros((side, side), np.int64), 1
        for _ in range(moves):
            with execution("move"):
                move = search(board * turn)
            board.ravel()[move], turn = turn, -turn
        return board

    search(np.zeros((side, side), np.int64), 2)
    with record():
        print(play(3))


# -------------------------------------------------------------------------------------------------- 9. a flow
@program(executions=13, layers=6, kinds={"training step": 10, "batch of samples": 3}, ranges="none",
         note="10 training steps (log-density forward through 6 couplings), then 3 batches of samples (the couplings the other way round): each goes once through the model. "
              "Layers: the couplings, or their linear layers.")
def realnvp_density():
    "A RealNVP of six couplings: maximum likelihood, then samples by the inverse."
    dim = 6

    class Coupling(nn.Module):
        def __init__(self, mask, hidden=48):
            super().__init__()
            self.register_buffer("mask", mask)
            self.net = nn.Sequential(nn.Linear(dim, hidden), nn.LeakyReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU(), nn.Linear(hidden, 2 * dim))
            self.scale = nn.Parameter(torch.zeros(dim))

        def terms(self, x):
            s, t = self.net(x * self.mask).chunk(2, -1)
            return torch.tanh(s) * self.scale * (1 - self.mask), t * (1 - self.mask)

        def forward(self, x):
            s, t = self.terms(x)
            return (x + t) * torch.exp(s) * (1 - self.mask) + x * self.mask, s.sum(-1)

        def inverse(self, z):
            with layer("block"):
                s, t = self.terms(z)
                return (z * torch.exp(-s) - t) * (1 - self.mask) + z * self.mask

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.couplings = nn.ModuleList(Coupling(torch.arange(dim).add(i).remainder(2).float()) for i in range(6))
            self.register_buffer("loc", torch.zeros(dim))

        def log_prob(self, x):
            logdet = x.new_zeros(x.shape[0])
            for coupling in self.couplings:
                x, ld = coupling(x)
                logdet = logdet + ld
            return torch.distributions.Normal(self.loc, 1.0, validate_args=False).log_prob(x).sum(-1) + logdet

        @torch.no_grad()
        def sample(self, n):
            z = torch.randn(n, dim, device=self.loc.device)
            for coupling in reversed(self.couplings):
                z = coupling.inverse(z)
            return z

    flow = Flow().to(D())
    blocks(flow.couplings)
    blocks((m for m in flow.modules() if isinstance(m, nn.Linear)), "linear")
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    data = np.random.default_rng(0).normal(size=(4000, dim)).astype(np.float32) ** 3

    def step(i):
        x = torch.from_numpy(data[np.random.default_rng(i).integers(0, 4000, 256)]).to(D())
        loss = -flow.log_prob(x).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if i % 5 == 0:
            print(f"{i}: nll {loss.item():.3f}")

    for i in range(2):
        step(i)
    flow.sample(16)
    with record():
        for i in range(2, 12):
            with execution():
                step(i)
        samples = []
        for _ in range(3):
            with execution():
                samples.append(flow.sample(512).cpu())
        print(np.concatenate(samples).std(0))


# -------------------------------------------------------------------------------------------------- 10. a recurrence that generates
@program(executions=24, layers=3, kinds={"token": 24, "prompt": 2}, ranges="none",
         note="2 prompts, each read token by token (7 and 5 of them) and then 6 more tokens: the network is called once for each token, which is one execution; a prompt with its answer is acceptable. "
              "Layers: 3, each of time mixing and channel mixing (these two are acceptable as layers).")
def rwkv_generate():
    "RWKV in a hundred lines: a state, products of a matrix and a vector, token by token."
    torch.set_grad_enabled(False)
    dim, depth, vocabulary = 64, 3, 90
    w = {f"{i}.{k}": torch.randn(*s).to(D()) / 8 for i in range(depth) for k, s in {
        "ln1.w": (dim,), "ln1.b": (dim,), "ln2.w": (dim,), "ln2.b": (dim,), "tm.k": (dim,), "tm.v": (dim,), "tm.r": (dim,), "first": (dim,), "decay": (dim,), "att.k": (dim, dim),
        "att.v": (dim, dim), "att.r": (dim, dim), "att.o": (dim, dim), "cm.k": (dim,), "cm.r": (dim,), "ffn.k": (4 * dim, dim), "ffn.v": (dim, 4 * dim), "ffn.r": (dim, dim)}.items()}
    emb, head = torch.randn(vocabulary, dim).to(D()), torch.randn(vocabulary, dim).to(D())

    def time_mixing(x, state, i):
        xk, xv, xr = (x * w[f"{i}.tm.{n}"] + state[5 * i + 1] * (1 - w[f"{i}.tm.{n}"]) for n in "kvr")
        state[5 * i + 1] = x
        r, k, v = torch.sigmoid(w[f"{i}.att.r"] @ xr), w[f"{i}.att.k"] @ xk, w[f"{i}.att.v"] @ xv
        aa, bb, pp = state[5 * i + 2], state[5 * i + 3], state[5 * i + 4]
        ww = w[f"{i}.first"] + k
        qq = torch.maximum(pp, ww)
        e1, e2 = torch.exp(pp - qq), torch.exp(ww - qq)
        wkv = (e1 * aa + e2 * v) / (e1 * bb + e2)
        ww = pp + w[f"{i}.decay"]
        qq = torch.maximum(ww, k)
        e1, e2 = torch.exp(ww - qq), torch.exp(k - qq)
        state[5 * i + 2], state[5 * i + 3], state[5 * i + 4] = e1 * aa + e2 * v, e1 * bb + e2, qq
        return w[f"{i}.att.o"] @ (r * wkv)

    def channel_mixing(x, state, i):
        xk, xr = (x * w[f"{i}.cm.{n}"] + state[5 * i] * (1 - w[f"{i}.cm.{n}"]) for n in "kr")
        state[5 * i] = x
        return torch.sigmoid(w[f"{i}.ffn.r"] @ xr) * (w[f"{i}.ffn.v"] @ torch.square(torch.relu(w[f"{i}.ffn.k"] @ xk)))

    def forward(token, state):
        if state is None:
            state = torch.zeros(depth * 5, dim, device=D())
            for i in range(depth):
                state[5 * i + 4] = -1e30
        x = emb[token]
        for i in range(depth):
            with layer("block"):
                with layer("mixing"):
                    x = x + time_mixing(F.layer_norm(x, (dim,), w[f"{i}.ln1.w"], w[f"{i}.ln1.b"]), state, i)
                with layer("mixing"):
                    x = x + channel_mixing(F.layer_norm(x, (dim,), w[f"{i}.ln2.w"], w[f"{i}.ln2.b"]), state, i)
        return head @ F.layer_norm(x, (dim,)), state

    def sample_probs(logits, temperature=1.0, top_p=0.85):
        probs = logits.float().softmax(-1).cpu().numpy()
        kept = np.sort(probs)[::-1]
        cutoff = float(kept[np.argmax(np.cumsum(kept) > top_p)])
        probs[probs < cutoff] = 0
        return int(np.random.choice(len(probs), p=probs.astype(np.float64) / probs.astype(np.float64).sum()))

    def answer(prompt, n):
        state, text = None, []
        for token in prompt[:-1]:
            with execution():
                logits, state = forward(token, state)
        token = prompt[-1]
        for _ in range(n + 1):
            with execution():
                logits, state = forward(token, state)
                token = sample_probs(logits)
            text.append(token)
        return text

    np.random.seed(0)
    answer([1, 2], 1)
    with record():
        for prompt in ([3, 14, 15, 9, 26, 5, 35], [8, 9, 7, 9, 32]):
            with execution("prompt"):
                print(answer(prompt, 6))


# -------------------------------------------------------------------------------------------------- 11. preferences
@program(executions=10, layers=3, kinds={"scored batch": 4, "step": 6}, ranges="record_function: reference, policy, optimizer",
         note="a reward model scores 4 batches of answers, then 6 DPO steps, each with a pass of the reference and one of the policy, a backward and an update, metrics read each step: "
              "a scored batch and a step are the executions. Layers: the transformer blocks of the three models (2 of the reward model, 3 and 3).")
def dpo_preferences():
    "Pairs are ranked by a reward model, then direct preference optimisation."
    policy = LanguageModel(150, 48, 3).to(D())
    reference, reward = copy.deepcopy(policy).requires_grad_(False).eval(), LanguageModel(150, 32, 2, out=1).to(D()).eval()
    blocks([*policy.h, *reference.h, *reward.h])
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=5e-7)
    rng = np.random.default_rng(0)

    def make(n, length):
        return rng.integers(0, 150, (n, 2, length))

    @torch.no_grad()
    def score(pairs):
        ids = torch.from_numpy(pairs).to(D()).flatten(0, 1)
        return reward(ids)[:, -1, 0].view(-1, 2).cpu().numpy()

    def logps(model, ids, prompt):
        logits = model(ids)[:, :-1]
        labels = ids[:, 1:].clone()
        mask = torch.arange(labels.shape[1], device=ids.device) >= prompt - 1
        per_token = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
        return (per_token * mask).sum(-1)

    def dpo_step(chosen, rejected, prompt, beta=0.1):
        ids = torch.cat([torch.from_numpy(chosen).to(D()), torch.from_numpy(rejected).to(D())])
        with record_function("reference"), torch.no_grad():
            ref_chosen, ref_rejected = logps(reference, ids, prompt).chunk(2)
        with record_function("policy"):
            pi_chosen, pi_rejected = logps(policy, ids, prompt).chunk(2)
        logits = (pi_chosen - pi_rejected) - (ref_chosen - ref_rejected)
        loss = -F.logsigmoid(beta * logits).mean()
        good, bad = beta * (pi_chosen - ref_chosen).detach(), beta * (pi_rejected - ref_rejected).detach()
        loss.backward()
        with record_function("optimizer"):
            norm = nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
            optimizer.step()
            optimizer.zero_grad()
        return {"loss": loss.item(), "accuracy": (good > bad).float().mean().item(), "margin": (good - bad).mean().item(), "norm": norm.item()}

    def run(batches):
        ranked = []
        for pairs in batches:
            with execution():
                order = score(pairs).argmax(1)
                ranked.append((pairs[np.arange(len(pairs)), order], pairs[np.arange(len(pairs)), 1 - order]))
        chosen, rejected = (np.concatenate(x) for x in zip(*ranked))
        for at in range(0, len(chosen) - 3, 4):
            with execution():
                print(at // 4, dpo_step(chosen[at:at + 4], rejected[at:at + 4], 10))

    run([make(8, 32)])
    with record():
        run([make(6, 32) for _ in range(4)])


# -------------------------------------------------------------------------------------------------- 12. a knowledge graph
@program(executions=20, layers=None, kinds={"training batch": 14, "test batch": 6}, ranges="record_function: train_epoch, evaluate",
         note="2 epochs of 7 batches with negatives drawn on the device, then the filtered ranking of 6 batches of test triples (tails and heads of each): each batch is one pass of the scores, hence an execution. "
              "There are no layers: embeddings and a formula.")
def complex_kge():
    "ComplEx on a knowledge graph: self-adversarial negatives, Adagrad, filtered ranks."
    entities, relations, dim = 400, 12, 32
    ent, rel = nn.Embedding(entities, 2 * dim).to(D()), nn.Embedding(relations, 2 * dim).to(D())
    optimizer = torch.optim.Adagrad([*ent.parameters(), *rel.parameters()], lr=0.1)
    rng = np.random.default_rng(0)
    triples = np.stack([rng.integers(0, entities, 700), rng.integers(0, relations, 700), rng.integers(0, entities, 700)], 1)
    known = {}
    for h, r, t in triples:
        known.setdefault(("t", h, r), []).append(t)
        known.setdefault(("h", t, r), []).append(h)

    def score(h, r, t):
        (hr, hi), (rr, ri), (tr, ti) = (x.chunk(2, -1) for x in (h, r, t))
        return (hr * rr * tr + hi * rr * ti + hr * ri * ti - hi * ri * tr).sum(-1)

    def train_batch(batch, negatives=16):
        h, r, t = torch.from_numpy(batch).to(D()).unbind(1)
        eh, er, et = ent(h), rel(r), ent(t)
        positive = score(eh, er, et)
        wrong = ent(torch.randint(entities, (len(batch), negatives), device=D()))
        negative = score(wrong, er[:, None], et[:, None]) if rng.random() < 0.5 else score(eh[:, None], er[:, None], wrong)
        weight = negative.detach().softmax(-1)
        loss = -F.logsigmoid(positive).mean() - (weight * F.logsigmoid(-negative)).sum(-1).mean()
        loss = loss + 1e-4 * (eh.pow(3).abs().sum() + er.pow(3).abs().sum() + et.pow(3).abs().sum()) / len(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def train_epoch(epoch, data):
        with record_function("train_epoch"):
            total = torch.zeros((), device=D())
            for batch in np.array_split(rng.permutation(data), max(1, len(data) // 64)):
                with execution():
                    total += train_batch(batch)
            print(f"epoch {epoch} loss {total.item():.3f}")

    @torch.no_grad()
    def evaluate(test):
        with record_function("evaluate"):
            ranks = []
            for batch in np.array_split(test, max(1, len(test) // 16)):
                with execution():
                    h, r, t = torch.from_numpy(batch).to(D()).unbind(1)
                    for side, gold in (("t", t), ("h", h)):
                        every = ent.weight[None]
                        scores = score(ent(h)[:, None], rel(r)[:, None], every) if side == "t" else score(every, rel(r)[:, None], ent(t)[:, None])
                        mask = np.zeros((len(batch), entities), bool)
                        for row, (a, b, c) in enumerate(batch):
                            mask[row, known[(side, a if side == "t" else c, b)]] = True
                        own = scores.gather(1, gold[:, None])
                        scores = scores.masked_fill(torch.from_numpy(mask).to(D()), -1e9)
                        ranks.append(((scores > own).sum(1) + 1).cpu().numpy())
            ranks = np.concatenate(ranks)
            return (1 / ranks).mean(), (ranks <= 10).mean()

    train_epoch(-1, triples[:130])
    evaluate(triples[:16])
    with record():
        for epoch in range(2):
            train_epoch(epoch, triples[:448])
        print("MRR %.3f hits@10 %.3f" % evaluate(triples[600:696]))


# -------------------------------------------------------------------------------------------------- 13. a transducer
@program(executions=4, layers=3, kinds={"utterance": 4, "encoding or frame": None}, ranges="none",
         note="4 utterances, each encoded once, then frame by frame the joint network (and the predictor after each symbol): an utterance is one execution, as transcribe() says; "
              "the encoding and each frame's turn are acceptable. Layers: the 3 layers of the encoder.")
def rnnt_greedy():
    "RNN-T: an encoder, then a greedy loop of predictor and joint network that waits for each symbol."
    torch.set_grad_enabled(False)
    dim, vocabulary, blank = 48, 40, 0

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.sub = nn.Sequential(nn.Conv1d(40, dim, 3, 2, 1), nn.ReLU(), nn.Conv1d(dim, dim, 3, 2, 1), nn.ReLU())
            self.layers, self.norm = nn.ModuleList(TransformerBlock(dim) for _ in range(3)), nn.LayerNorm(dim)

        def forward(self, mel):
            x = self.sub(mel).transpose(1, 2)
            for one in self.layers:
                x = one(x)
            return self.norm(x)

    class Predictor(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.out = nn.Embedding(vocabulary, dim), nn.LSTMCell(dim, dim), nn.Linear(dim, dim)

        def forward(self, symbol, state):
            state = self.rnn(self.embed(symbol), state)
            return self.out(state[0]), state

    class Joint(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.pred, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, vocabulary)

        def forward(self, f, g):
            return self.out(torch.tanh(self.enc(f) + self.pred(g)))

    encoder, predictor, joint = Encoder().to(D()).eval(), Predictor().to(D()).eval(), Joint().to(D()).eval()
    joint.enc.weight.data *= 3
    joint.out.weight.data *= 3
    joint.out.bias.data[blank] += 4.5
    blocks(encoder.layers)

    def transcribe(wave, max_symbols=2):
        with execution("part"):
            frames = np.lib.stride_tricks.sliding_window_view(wave, 400)[::160]
            mel = np.log(np.abs(np.fft.rfft(frames * np.hanning(400)))[:, :160].reshape(len(frames), 40, 4).mean(-1) + 1e-3).astype(np.float32)
            mel = (mel - mel.mean(0)) / (mel.std(0) + 1e-5)
            f = encoder(torch.from_numpy(mel.T.copy()).to(D())[None])
            g, state = predictor(torch.zeros(1, dtype=torch.long, device=D()), None)
            text = []
        for t in range(f.shape[1]):
            with execution("part"):
                for _ in range(max_symbols):
                    symbol = joint(f[:, t], g).argmax(-1)
                    word = symbol.item()
                    if word == blank:
                        break
                    text.append(word)
                    g, state = predictor(symbol, state)
        return text

    rng = np.random.default_rng(2)
    pitch = lambda n: np.repeat(rng.uniform(0.02, 1.5, n // 1500), 1500)
    waves = [(np.sin(np.cumsum(pitch(n))) + 0.3 * rng.normal(size=n)).astype(np.float32) for n in (9000, 6000, 12000, 7500)]
    transcribe(waves[1])
    with record():
        for wave in waves:
            with execution():
                print(transcribe(wave))


# -------------------------------------------------------------------------------------------------- 14. early exits
@program(executions=12, layers=6, kinds={"request": 12}, ranges="record_function: request",
         note="12 requests one after another; each runs 2, 4 or 6 of the 6 layers, since after each second one a head decides whether it is sure (the host waits): a request is one execution. "
              "Layers: the transformer blocks that a request runs.")
def early_exit_requests():
    "A classifier that leaves after the second or fourth layer when it is sure."
    torch.set_grad_enabled(False)
    dim, classes = 48, 10
    embed, place = nn.Embedding(200, dim).to(D()), nn.Embedding(64, dim).to(D())
    layers = nn.ModuleList(TransformerBlock(dim) for _ in range(6)).to(D()).eval()
    exits = nn.ModuleDict({str(i): nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes)) for i in (1, 3, 5)}).to(D()).eval()
    blocks(layers)

    def classify(words, threshold):
        with record_function("request"):
            ids = torch.tensor([words]).to(D())
            x = embed(ids) + place(torch.arange(ids.shape[1], device=ids.device))
            for i, one in enumerate(layers):
                x = one(x)
                if str(i) in exits:
                    p = exits[str(i)](x.mean(1)).softmax(-1)
                    entropy = -(p * p.log()).sum()
                    if i == len(layers) - 1 or entropy.item() < threshold:
                        return p.argmax(-1).item(), i + 1

    rng = random.Random(4)
    requests = [[rng.randrange(200) for _ in range(rng.randint(6, 40))] for _ in range(13)]
    limits = [rng.choice([0.0, 2.12, 2.17, 2.4]) for _ in requests]
    classify(requests[0], 0.0)
    with record():
        for request, limit in zip(requests[1:], limits):
            with execution():
                print(classify(request, limit))


# -------------------------------------------------------------------------------------------------- 15. depths
@program(executions=6, layers=6, kinds={"step": 6}, ranges="none",
         note="6 training steps of a language model whose every second block processes only the half of the tokens that its router picks: each is one execution. "
              "Layers: the 6 blocks (3 plain, 3 with a router around the block); as layers the plain blocks inside the routers are acceptable.")
def mixture_of_depths():
    "Mixture of depths: every second block sees the top half of the tokens."
    dim, vocabulary = 48, 160

    class Routed(nn.Module):
        def __init__(self, capacity=0.5):
            super().__init__()
            self.router, self.inner, self.capacity = nn.Linear(dim, 1, bias=False), TransformerBlock(dim, causal=True), capacity

        def forward(self, x):
            scores = self.router(x).squeeze(-1)
            top, index = scores.topk(int(self.capacity * x.shape[1]), dim=1, sorted=False)
            index, order = index.sort(dim=1)
            top = top.gather(1, order)
            wide = index.unsqueeze(-1).expand(-1, -1, x.shape[-1])
            picked = x.gather(1, wide)
            y = self.inner(picked) - picked
            self.aux = F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores).scatter(1, index, 1.0))
            return x.scatter_add(1, wide, y * torch.sigmoid(top).unsqueeze(-1))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, dim), nn.Parameter(torch.randn(48, dim) * 0.02)
            self.h = nn.ModuleList(m for _ in range(3) for m in (TransformerBlock(dim, causal=True), Routed()))
            self.ln_f = nn.LayerNorm(dim)

        def forward(self, ids, targets):
            x = self.wte(ids) + self.wpe[:ids.shape[1]]
            for block in self.h:
                x = block(x)
            loss = F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1), targets.flatten())
            return loss, sum(b.aux for b in self.h if isinstance(b, Routed))

    model = Model().to(D())
    blocks(model.h)
    blocks((m for m in model.modules() if isinstance(m, TransformerBlock)), "inner")
    decay = [p for p in model.parameters() if p.dim() >= 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}], lr=3e-4, betas=(0.9, 0.95))
    text = np.random.default_rng(0).integers(0, vocabulary, 5000)

    def get_batch(i):
        at = np.random.default_rng(i).integers(0, len(text) - 50, 8)
        x, y = (torch.from_numpy(np.stack([text[a + k:a + k + 48] for a in at])) for k in (0, 1))
        return x.to(D(), non_blocking=True), y.to(D(), non_blocking=True)

    def step(i):
        lr = 3e-4 * min(1, (i + 1) / 4)
        for group in optimizer.param_groups:
            group["lr"] = lr
        x, y = get_batch(i)
        loss, aux = model(x, y)
        (loss + 0.01 * aux).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if i % 2 == 0:
            print(f"step {i} loss {loss.item():.3f} aux {aux.item():.3f} norm {norm.item():.2f}")

    for i in range(2):
        step(i)
    with record():
        for i in range(2, 8):
            with execution():
                step(i)


# -------------------------------------------------------------------------------------------------- 16. a scripted model
class DilatedBlock(nn.Module):
    def __init__(self, dim: int, dilation: int):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, 3, padding=dilation, dilation=dilation)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.profiler.record_function("##@b:block"):
            y = torch.relu(self.conv(x)).transpose(1, 2)
            return x + self.norm(y).transpose(1, 2)


class Tagger(nn.Module):
    def __init__(self, words: int, tags: int, dim: int):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.blocks = nn.ModuleList([DilatedBlock(dim, d) for d in (1, 2, 4, 1)])
        self.emit = nn.Linear(dim, tags)
        self.transitions = nn.Parameter(torch.randn(tags, tags))

    def forward(self, ids: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        x = self.embed(ids).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        emissions = self.emit(x.transpose(1, 2))
        score = emissions[:, 0]
        back: List[torch.Tensor] = []
        for t in range(1, emissions.size(1)):
            best, index = (score.unsqueeze(2) + self.transitions).max(1)
            score = best + emissions[:, t]
            back.append(index)
        last = score.argmax(1)
        path = [last]
        for i in range(len(back)):
            last = back[len(back) - 1 - i].gather(1, last.unsqueeze(1)).squeeze(1)
            path.append(last)
        path.reverse()
        return score.amax(1), torch.stack(path, 1)


@program(executions=9, layers=4, kinds={"batch": 9}, ranges="none",
         note="9 batches of sentences, sorted into lengths 8, 12 and 16; each is one call of the scripted model, with Viterbi's loop over the words inside: one execution. "
              "Layers: the 4 dilated convolution blocks.")
def scripted_tagger():
    "A TorchScript tagger: dilated convolutions, Viterbi's loop inside the script."
    torch.set_grad_enabled(False)
    model = torch.jit.script(Tagger(300, 9, 48).to(D()).eval())
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 300, (16, n)) for n in (8, 8, 12, 8, 16, 12, 8, 16, 12)]

    def tag(batch):
        score, path = model(torch.from_numpy(batch).to(D()))
        return path.cpu().numpy(), score.mean().item()

    for batch in batches[:6]:
        tag(batch)
    with record():
        for batch in batches:
            with execution():
                path, score = tag(batch)
            print(path.shape, f"{score:.2f}")


# -------------------------------------------------------------------------------------------------- 17. an operator
@program(executions=14, layers=4, kinds={"training step": 10, "test batch": 4}, ranges="record_function: epoch (around training only)",
         note="2 epochs of 5 training batches, after each 2 test batches (outside the range 'epoch'), the loss read each step: each batch is one pass, hence an execution. "
              "Layers: the 4 Fourier layers.")
def fno_darcy():
    "A Fourier neural operator on Darcy flow: relative L2, tests after each epoch."
    width, modes = 16, 4

    class SpectralConv2d(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.w2 = (nn.Parameter(torch.rand(width, width, modes, modes, dtype=torch.cfloat) / width**2) for _ in range(2))

        def forward(self, x):
            ft = torch.fft.rfft2(x)
            out = torch.zeros(x.shape[0], width, x.shape[-2], x.shape[-1] // 2 + 1, dtype=torch.cfloat, device=x.device)
            out[:, :, :modes, :modes] = torch.einsum("bixy,ioxy->boxy", ft[:, :, :modes, :modes], self.w1)
            out[:, :, -modes:, :modes] = torch.einsum("bixy,ioxy->boxy", ft[:, :, -modes:, :modes], self.w2)
            return torch.fft.irfft2(out, s=x.shape[-2:])

    class FourierLayer(nn.Module):
        def __init__(self, last):
            super().__init__()
            self.conv, self.w, self.last = SpectralConv2d(), nn.Conv2d(width, width, 1), last

        def forward(self, x):
            x = self.conv(x) + self.w(x)
            return x if self.last else F.gelu(x)

    class FNO2d(nn.Module):
        def __init__(self):
            super().__init__()
            self.lift, self.layers = nn.Linear(3, width), nn.ModuleList(FourierLayer(i == 3) for i in range(4))
            self.fc1, self.fc2 = nn.Linear(width, 64), nn.Linear(64, 1)

        def forward(self, x):
            gx = torch.linspace(0, 1, x.shape[1], device=x.device).view(1, -1, 1, 1).expand(x.shape[0], -1, x.shape[2], 1)
            x = self.lift(torch.cat([x, gx, gx.transpose(1, 2)], -1)).permute(0, 3, 1, 2)
            for one in self.layers:
                x = one(x)
            return self.fc2(F.gelu(self.fc1(x.permute(0, 2, 3, 1)))).squeeze(-1)

    model = FNO2d().to(D())
    blocks(model.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    rng = np.random.default_rng(0)
    data = [(rng.random((8, 24, 24, 1), dtype=np.float32), rng.random((8, 24, 24), dtype=np.float32)) for _ in range(7)]

    def relative(out, y):
        return (torch.linalg.vector_norm((out - y).flatten(1), dim=1) / torch.linalg.vector_norm(y.flatten(1), dim=1)).sum()

    def epoch(number, train, test):
        model.train()
        train_l2 = test_l2 = 0.0
        with record_function("epoch"):
            for a, u in train:
                with execution():
                    a, u = torch.from_numpy(a).to(D()), torch.from_numpy(u).to(D())
                    optimizer.zero_grad()
                    loss = relative(model(a), u)
                    loss.backward()
                    optimizer.step()
                    train_l2 += loss.item()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            for a, u in test:
                with execution():
                    a, u = torch.from_numpy(a).to(D()), torch.from_numpy(u).to(D())
                    test_l2 += relative(model(a), u).item()
        print(number, train_l2 / len(train) / 8, test_l2 / len(test) / 8)

    epoch(-1, data[:1], data[5:6])
    with record():
        for number in range(2):
            epoch(number, data[:5], data[5:])


# -------------------------------------------------------------------------------------------------- 18. video, frame by frame
@program(executions=24, layers=3, kinds={"frame": 24, "clip": 3}, ranges="none",
         note="3 clips; of each 5 seen frames go through the network one by one, then 3 are predicted, each from the one before: one call of the network per frame, which is one execution; a clip is acceptable. "
              "Layers: the 3 ConvLSTM cells.")
def convlstm_video():
    "A ConvLSTM that watches frames and then goes on by itself."
    torch.set_grad_enabled(False)

    class ConvLSTMCell(nn.Module):
        def __init__(self, i, h):
            super().__init__()
            self.h, self.conv, self.norm = h, nn.Conv2d(i + h, 4 * h, 3, padding=1), nn.GroupNorm(4, h)

        def forward(self, x, state):
            if state is None:
                zeros = torch.zeros(x.shape[0], self.h, *x.shape[2:], device=x.device)
                state = zeros, zeros.clone()
            h, c = state
            i, f, o, g = self.conv(torch.cat([x, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            return self.norm(h), (h, c)

    class Predictor(nn.Module):
        def __init__(self, h=16):
            super().__init__()
            self.enc = nn.Sequential(nn.Conv2d(1, h, 3, 2, 1), nn.LeakyReLU(0.2))
            self.cells = nn.ModuleList(ConvLSTMCell(h, h) for _ in range(3))
            self.dec = nn.Sequential(nn.ConvTranspose2d(h, h, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(h, 1, 1), nn.Sigmoid())

        def forward(self, frame, states):
            x = self.enc(frame)
            for k, cell in enumerate(self.cells):
                x, states[k] = cell(x, states[k])
            return self.dec(x)

    model = Predictor().to(D()).eval()
    blocks(model.cells)

    def predict(clip, ahead=3):
        states, out = [None] * 3, []
        for frame in clip:
            with execution():
                x = torch.from_numpy(frame).to(D(), non_blocking=True)[None, None].float() / 255
                y = model(x, states)
        for _ in range(ahead):
            with execution():
                out.append((y[0, 0] * 255).byte().cpu().numpy())
                y = model(y, states)
        return np.stack(out)

    clips = np.random.default_rng(0).integers(0, 255, (4, 5, 48, 48), dtype=np.uint8)
    predict(clips[3], 1)
    with record():
        for clip in clips[:3]:
            with execution("clip"):
                print(predict(clip).mean())


# -------------------------------------------------------------------------------------------------- 19. long prompts in chunks
@program(executions=26, layers=4, kinds={"chunk": 11, "token": 15, "request": 3}, ranges="record_function: prefill (around all chunks of a prompt)",
         note="3 prompts of 200, 90 and 300 tokens in chunks of 64 (4, 2 and 5 of them), then 5 tokens each: each chunk and each token is one call of the model, hence an execution; a request is acceptable. "
              "Layers: the 4 decoder layers.")
def chunked_prefill():
    "A Llama-like model: long prompts in chunks into a static cache, then tokens."
    torch.set_grad_enabled(False)
    dim, depth, heads, kv, longest, vocabulary = 64, 4, 4, 2, 320, 200
    size = dim // heads

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(dim))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    class DecoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = RMSNorm(), RMSNorm()
            self.wq, self.wk, self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, kv * size, bias=False), nn.Linear(dim, kv * size, bias=False), nn.Linear(dim, dim, bias=False)
            self.gate, self.up, self.down = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, 3 * dim, bias=False), nn.Linear(3 * dim, dim, bias=False)
            self.register_buffer("k", torch.zeros(1, kv, longest, size))
            self.register_buffer("v", torch.zeros(1, kv, longest, size))

        def forward(self, x, cos, sin, start, mask):
            h, end = self.norm1(x), start + x.shape[1]
            q, k, v = (w(h).unflatten(-1, (-1, size)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            self.k[:, :, start:end], self.v[:, :, start:end] = k, v
            keys, values = (c[:, :, :end].repeat_interleave(heads // kv, 1) for c in (self.k, self.v))
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + self.wo(y.transpose(1, 2).flatten(2))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers, self.norm, self.head = nn.Embedding(vocabulary, dim), nn.ModuleList(DecoderLayer() for _ in range(depth)), RMSNorm(), nn.Linear(dim, vocabulary, bias=False)
            f = torch.outer(torch.arange(longest).float(), 10000 ** -(torch.arange(0, size, 2) / size)).repeat(1, 2)
            self.register_buffer("cos", f.cos())
            self.register_buffer("sin", f.sin())

        def forward(self, ids, start):
            end = start + ids.shape[1]
            mask = None
            if ids.shape[1] > 1:
                mask = torch.arange(end, device=ids.device) <= torch.arange(start, end, device=ids.device)[:, None]
            x, cos, sin = self.embed(ids), self.cos[start:end], self.sin[start:end]
            for one in self.layers:
                x = one(x, cos, sin, start, mask)
            return self.head(self.norm(x[:, -1:]))

    model = Llama().to(D()).eval()
    blocks(model.layers)

    def serve(prompt, n, chunk=64):
        ids = torch.tensor([prompt]).to(D())
        with record_function("prefill"):
            for start in range(0, len(prompt), chunk):
                with execution():
                    logits = model(ids[:, start:start + chunk], start)
        text, at = [], len(prompt)
        for _ in range(n):
            with execution():
                token = (logits[:, -1] / 0.8).argmax(-1, keepdim=True)
                text.append(token.item())
                logits = model(token, at)
            at += 1
        return text

    rng = random.Random(0)
    serve([1] * 70, 2)
    with record():
        for length in (200, 90, 300):
            with execution("request"):
                print(serve([rng.randrange(vocabulary) for _ in range(length)], 5))


# -------------------------------------------------------------------------------------------------- 20. a learned filter
@program(executions=7, layers=None, kinds={"training step": 4, "test batch": 3}, ranges="none",
         note="4 training steps, each over the 8 time steps of a batch of trajectories with backward through all of them, then 3 test batches of 8 time steps: a batch of trajectories is one execution "
              "(a loss and an update belong to a whole trajectory). No layers are asked: a gain network of two linear layers around a GRU cell at each time step.")
def kalman_net():
    "KalmanNet: a Kalman filter whose gain a recurrent network computes, time step by time step."
    m, n, hidden, T = 4, 2, 32, 8
    A, H = (torch.eye(m) + 0.1 * torch.diag(torch.ones(m - 2), 2)).to(D()), torch.eye(n, m).to(D())

    class KalmanNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp, self.gru, self.out = nn.Linear(2 * (m + n), hidden), nn.GRUCell(hidden, hidden), nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, m * n))

        def start(self, x0):
            self.x, self.prior, self.y_last = x0, x0, x0 @ H.t()
            self.h = torch.zeros(len(x0), hidden, device=x0.device)

        def step(self, y):
            prior = self.x @ A.t()
            y_hat = prior @ H.t()
            features = [y - self.y_last, y - y_hat, self.x - self.prior, self.x - prior]
            features = torch.cat([F.normalize(f, dim=1, eps=1e-12) for f in features], 1)
            self.h = self.gru(F.relu(self.inp(features)), self.h)
            gain = self.out(self.h).view(-1, m, n)
            self.prior, self.y_last = prior, y
            self.x = prior + (gain @ (y - y_hat).unsqueeze(-1)).squeeze(-1)
            return self.x

    net = KalmanNet().to(D())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    rng = np.random.default_rng(0)

    def trajectories(batch=16):
        x, a, out = rng.normal(size=(batch, m)), np.eye(m) + 0.1 * np.diag(np.ones(m - 2), 2), []
        for _ in range(T):
            x = x @ a.T + 0.1 * rng.normal(size=x.shape)
            out.append(x)
        truth = np.stack(out, 1).astype(np.float32)
        return truth, truth[..., :n] + 0.3 * rng.normal(size=(batch, T, n)).astype(np.float32)

    def run(truth, seen):
        net.start(torch.zeros(len(truth), m, device=D()))
        return F.mse_loss(torch.stack([net.step(seen[:, t]) for t in range(T)], 1), truth)

    def train_step():
        truth, seen = (torch.from_numpy(x).to(D()) for x in trajectories())
        optimizer.zero_grad()
        loss = run(truth, seen)
        loss.backward()
        optimizer.step()
        return 10 * math.log10(loss.item())

    @torch.no_grad()
    def test_step():
        truth, seen = (torch.from_numpy(x).to(D()) for x in trajectories(24))
        return 10 * math.log10(run(truth, seen).item())

    train_step()
    test_step()
    with record():
        for i in range(4):
            with execution():
                print(f"{i} train {train_step():.2f} dB")
        for i in range(3):
            with execution():
                print(f"{i} test {test_step():.2f} dB")
