"""Inference, as people run it. No CUDA call at import (the programs run in forked children)."""
import contextlib
import functools
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function

from harness import program, record, CUDA, D, sync, execution, blocks

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def S(gpu, cpu):
    "A size on the GPU, and one for rehearsing on a CPU."
    return gpu if CUDA() else cpu


def DT():
    return torch.bfloat16 if CUDA() else torch.float32


def setup():
    torch.set_grad_enabled(False)
    if CUDA():
        torch.backends.cuda.matmul.allow_tf32 = True
    else:
        torch.set_num_threads(2)


def on_device(build, dtype=None):
    with torch.device(D()):
        model = build()
    return model.to(dtype or DT()).eval()


def calls(names):
    """Truth: ``names`` of modules: a call is an execution (a name), and so is all from a call to the next (``name turn``)."""
    open_turns = []

    def end(*_):
        while open_turns:
            open_turns.pop().__exit__(None, None, None)
    for module, kinds in names.items():
        def begin(*_, kinds=kinds):
            end()
            for kind in kinds:
                open_turns.append(execution(kind + " turn"))
                open_turns[-1].__enter__()

        def call(*args, forward=module.forward, kinds=kinds, **more):
            with contextlib.ExitStack() as stack:
                for kind in kinds:
                    stack.enter_context(execution(kind))
                return forward(*args, **more)
        module.register_forward_pre_hook(begin)
        module.forward = functools.wraps(module.forward)(call)
    return end


# ---------------------------------------------------------------- 1. HF generate, greedy
@program(executions=10, layers=4, kinds={"prefill": 1, "decode": 9}, ranges="none",
         limits=["launches", "host"], where="the decode steps: small kernels, the host launches them one by one",
         remedy="CUDA graphs / a static cache with torch.compile; larger batch",
         note="one call of generate(): 1 prefill of 4x96 tokens, then 9 decode steps; greedy")
def hf_llama_greedy():
    "transformers LlamaForCausalLM.generate, batch 4, greedy, dynamic cache, small model."
    setup()
    from transformers import LlamaConfig, LlamaForCausalLM
    cfg = LlamaConfig(vocab_size=S(32000, 500), hidden_size=S(1024, 64), intermediate_size=S(2816, 128),
                      num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
                      max_position_embeddings=1024, pad_token_id=0, bos_token_id=1, eos_token_id=None)
    model = on_device(lambda: LlamaForCausalLM(cfg))
    ids = torch.randint(3, cfg.vocab_size, (4, 96), device=D())
    mask = torch.ones_like(ids)
    model.generate(ids, attention_mask=mask, max_new_tokens=3, do_sample=False)
    blocks(model.model.layers)
    end = calls({model: ["execution"]})
    with record(shapes=False):
        out = model.generate(ids, attention_mask=mask, max_new_tokens=10, min_new_tokens=10, do_sample=False)
        end()
        print(out[:, -1].tolist())


# ---------------------------------------------------------------- 2. own GPT, sampling, per request
class GPTBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, past=None):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1 and past is None)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        x = x + self.out(F.gelu(self.fc(self.ln2(x))))
        return x, (k, v)


class GPT(nn.Module):
    def __init__(self, vocab, d, h, layers, ctx=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList([GPTBlock(d, h) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids=None, past=None, pos=0, embeds=None):
        x = self.wte(ids) if embeds is None else embeds
        x = x + self.wpe(torch.arange(pos, pos + x.shape[1], device=x.device))
        new = []
        for i, blk in enumerate(self.blocks):
            x, kv = blk(x, None if past is None else past[i])
            new.append(kv)
        return self.head(self.ln_f(x)), new


@program(executions=21, layers=4, kinds={"prefill": 3, "decode": 18}, ranges='record_function: "request 0", "prefill", "decode token 7"',
         limits=["launches", "host", "synchronisation"], where="decode token: launches of small kernels, and .item() after each token",
         remedy="CUDA graphs; check for the end of sequence every few tokens only; batch the requests",
         note="3 requests one after the other (batch of 4 samples each), 5, 9 and 4 decode steps after the prefill")
def gpt_sampling_requests():
    "nanoGPT-like decoder with a KV cache grown by cat; temperature/top-k sampling, a stop check with .item() per token."
    setup()
    V = S(50304, 300)
    model = on_device(lambda: GPT(V, S(768, 48), 12 if CUDA() else 4, 4))

    def sample(logits, temperature=0.8, k=50):
        logits = logits[:, -1].float() / temperature
        kth = torch.topk(logits, k).values[:, -1:]
        logits = logits.masked_fill(logits < kth, -float("inf"))
        return torch.multinomial(logits.softmax(-1), 1)

    def serve(length, new, n):
        prompt = torch.randint(0, V, (4, length), device=D())
        with record_function(f"request {n}"), execution("request"):
            with record_function("prefill"), execution():
                logits, past = model(prompt)
                tok = sample(logits)
            for i in range(new):
                with record_function(f"decode token {i}"), execution():
                    logits, past = model(tok, past, length + i)
                    tok = sample(logits)
                    if (tok == -1).all().item():
                        break
        return tok
    serve(32, 3, -1)
    blocks(model.blocks)
    with record():
        for n, (length, new) in enumerate([(64, 5), (200, 9), (17, 4)]):
            serve(length, new, n)


# ---------------------------------------------------------------- 3. static cache + CUDA graph per token
class StaticAttn(nn.Module):
    def __init__(self, d, h, b, ctx):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.wqkv, self.wo = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.w1, self.w2 = nn.Linear(d, 8 * d // 3 // 8 * 16, bias=False), nn.Linear(8 * d // 3 // 8 * 8, d, bias=False)
        self.register_buffer("k", torch.zeros(b, h, ctx, d // h))
        self.register_buffer("v", torch.zeros(b, h, ctx, d // h))

    def forward(self, x, pos, mask):
        b, t, d = x.shape
        q, k, v = self.wqkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        self.k.index_copy_(2, pos, k)
        self.v.index_copy_(2, pos, v)
        x = x + self.wo(F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask).transpose(1, 2).reshape(b, t, d))
        g, u = self.w1(self.n2(x)).chunk(2, -1)
        return x + self.w2(F.silu(g) * u)


@program(executions=20, layers=8, ranges="none", limits=["kernels"],
         where="the weight-reading matrix products of the decode step (memory bandwidth)",
         remedy="quantise the weights, larger batch, speculative decoding",
         note="one replay of a CUDA graph per token (captured before the recording); the prefill is not recorded; "
              "the host fetches the token every 8 steps")
def static_cache_cudagraph():
    "gpt-fast-like: static KV cache, the decode step captured in a CUDA graph, 20 replays."
    setup()
    V, d, h, ctx, L, B = S(32000, 200), S(4096, 64), S(32, 4), 256, 8, 4

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, d)
            self.layers = nn.ModuleList([StaticAttn(d, h, B, ctx) for _ in range(L)])
            self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, V, bias=False)
            self.register_buffer("causal", torch.tril(torch.ones(ctx, ctx, dtype=torch.bool)), persistent=False)

        def forward(self, tok, pos):
            mask = self.causal[pos][None, None]
            x = self.emb(tok)
            for l in self.layers:
                x = l(x, pos, mask)
            return self.head(self.norm(x))
    net = on_device(Net)
    net.causal = net.causal.bool()
    tok = torch.randint(0, V, (B, 1), device=D())
    pos = torch.zeros(1, dtype=torch.long, device=D())

    def step():
        logits = net(tok, pos)
        tok.copy_(logits[:, -1].argmax(-1, keepdim=True))
        pos.add_(1)
    net(torch.randint(0, V, (B, 100), device=D()), torch.arange(100, device=D()))
    pos.fill_(100)
    if CUDA():
        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(s)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replay = graph.replay
    else:
        replay = step
    replay()
    blocks(net.layers)
    with record(shapes=True):
        for i in range(20):
            with execution():
                replay()
            if i % 8 == 7:
                print(tok.flatten().tolist())


# ---------------------------------------------------------------- 4. torch.compile reduce-overhead
@program(executions=30, layers=3, ranges="none", limits=["host", "launches", "synchronisation"],
         where="the compiled encoder; each call is one cudagraph replay and a copy of the input",
         remedy="larger batches", note="torch.compile(mode='reduce-overhead'): graph trees replay; small batch of 2; .cpu() of the scores each call")
def compiled_reduce_overhead():
    "A small encoder scorer compiled with reduce-overhead, 30 requests."
    setup()
    net = on_device(lambda: nn.Sequential(nn.Linear(64, S(512, 32)), *[
        _PreNorm(S(512, 32), 8) for _ in range(3)], nn.Linear(S(512, 32), 10)))
    if CUDA():
        try:
            import torch._inductor.config as ic
            ic.compile_threads = 1
        except Exception:
            pass
    fn = torch.compile(net, mode="reduce-overhead") if CUDA() else net
    x = torch.randn(2, 64, 64, device=D(), dtype=DT())
    for _ in range(4):
        fn(x)
    sync()
    blocks(m for m in net if isinstance(m, _PreNorm))
    with record(shapes=True):
        answers = []
        for i in range(30):
            with execution():
                answers.append(fn(x).mean(1).float().cpu())


class _PreNorm(nn.Module):
    def __init__(self, d, h, causal=False):
        super().__init__()
        self.h, self.causal = h, causal
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).reshape(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


# ---------------------------------------------------------------- 5. BERT over ragged batches
@program(executions=10, layers=8, ranges="none", limits=["kernels"],
         where="the encoder's linear layers (and attention) on long batches",
         remedy="less padding (bucket finer / varlen attention), fp8",
         note="10 batches of 128 texts (padded beforehand) sorted by length, longest first (512 to about 100 tokens), the last one has 37; mean pooling, then .cpu()")
def bert_ragged_embedding():
    "transformers BertModel embedding a corpus sorted by length."
    setup()
    from transformers import BertConfig, BertModel
    cfg = BertConfig(vocab_size=S(30522, 300), hidden_size=S(768, 48), intermediate_size=S(3072, 96),
                     num_hidden_layers=8, num_attention_heads=12 if CUDA() else 4)
    model = on_device(lambda: BertModel(cfg, add_pooling_layer=False))
    rng = random.Random(1)
    n = 9 * S(128, 4) + S(37, 1)
    lengths = sorted((min(512, max(S(32, 4), int(rng.lognormvariate(5.5, .5)))) // S(1, 16) for _ in range(n)), reverse=True)
    size = S(128, 4)

    def collate(lens):
        T = max(lens)
        ids = torch.zeros(len(lens), T, dtype=torch.long)
        mask = torch.zeros(len(lens), T, dtype=torch.long)
        for r, l in enumerate(lens):
            ids[r, :l] = torch.randint(1, cfg.vocab_size, (l,))
            mask[r, :l] = 1
        return ids, mask

    def embed(ids, mask):
        ids, mask = ids.to(D()), mask.to(D())
        h = model(input_ids=ids, attention_mask=mask).last_hidden_state
        m = mask.unsqueeze(-1).to(h.dtype)
        return F.normalize((h * m).sum(1) / m.sum(1), dim=-1).float().cpu()
    batches = [collate(lengths[i:i + size]) for i in range(0, n, size)]
    for b in batches[:1] + batches[-1:]:
        embed(*b)
    blocks(model.encoder.layer)

    def one(ids, mask):
        with execution():
            return embed(ids, mask)
    with record(shapes=True):
        out = [one(ids, mask) for ids, mask in batches]
        print(torch.cat(out).shape)


# ---------------------------------------------------------------- 6. ViT with host preprocessing
class ViT(nn.Module):
    def __init__(self, d, h, depth, patch=16, classes=1000, n=196):
        super().__init__()
        self.patch = nn.Conv2d(3, d, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.zeros(1, n + 1, d))
        self.blocks = nn.Sequential(*[_PreNorm(d, h) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos[:, :x.shape[1] + 1]
        return self.head(self.norm(self.blocks(x))[:, 0])


@program(executions=20, layers=5, ranges="none", limits=["host", "waiting"],
         where="resizing and normalising the images on the CPU between the batches; the GPU waits",
         remedy="DataLoader workers / preprocess on the GPU / overlap",
         note="20 batches: 19 of 32 images and the last of 7; top-1 count by .item() each batch; progress printed every 5 batches")
def vit_eval_host_preprocess():
    "Small ViT, evaluation over a folder of images, preprocessing in the same thread (numpy)."
    setup()
    model = on_device(lambda: ViT(S(384, 32), S(6, 4), 5))
    sizes = [S(32, 2)] * 19 + [S(7, 1)]
    import numpy as np
    rng = np.random.default_rng(0)
    raw = [rng.integers(0, 256, (320 + 4 * i, 300, 3), dtype=np.uint8) for i in range(S(32, 2))]
    mean, std = np.array([.485, .456, .406], np.float32), np.array([.229, .224, .225], np.float32)

    def preprocess(n):
        out = np.empty((n, 3, 224, 224), np.float32)
        for j, im in enumerate(raw[:n]):
            rows, cols = np.linspace(0, im.shape[0] - 1, 224).astype(int), np.linspace(0, 299, 224).astype(int)
            out[j] = ((im[rows][:, cols].astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1)
        return torch.from_numpy(out)
    for n in (sizes[0], sizes[-1]):
        model(preprocess(n).to(D(), DT()))
    correct = 0
    blocks(model.blocks)
    with record():
        for i, n in enumerate(sizes):
            with execution():
                x = preprocess(n).to(D(), non_blocking=True).to(DT())
                y = torch.randint(0, 1000, (n,)).to(D())
                correct += (model(x).argmax(-1) == y).sum().item()
            if i % 5 == 4:
                print(f"[{i + 1}/{len(sizes)}] acc {correct}")


# ---------------------------------------------------------------- 7. diffusion UNet with CFG, VAE decode
class Res(nn.Module):
    def __init__(self, i, o, temb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1)
        self.t = nn.Linear(temb, o) if temb else None
        self.n2, self.c2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t=None):
        h = self.c1(F.silu(self.n1(x)))
        if self.t is not None:
            h = h + self.t(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class CrossAttn(nn.Module):
    def __init__(self, c, ctx, h=4):
        super().__init__()
        self.h, self.n = h, nn.GroupNorm(8, c)
        self.q, self.kv, self.o = nn.Linear(c, c), nn.Linear(ctx, 2 * c), nn.Linear(c, c)

    def forward(self, x, ctx):
        b, c, hh, ww = x.shape
        s = self.n(x).flatten(2).transpose(1, 2)
        q = self.q(s).view(b, -1, self.h, c // self.h).transpose(1, 2)
        k, v = self.kv(ctx).view(b, -1, 2, self.h, c // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, -1, c)
        return x + self.o(a).transpose(1, 2).view(b, c, hh, ww)


class UNet(nn.Module):
    def __init__(self, c, ctx):
        super().__init__()
        self.c = c
        self.time = nn.Sequential(nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, 4 * c))
        T = 4 * c
        self.inp = nn.Conv2d(4, c, 3, padding=1)
        self.d1, self.d2 = Res(c, c, T), Res(c, 2 * c, T)
        self.down = nn.Conv2d(c, c, 3, 2, 1)
        self.a2, self.mid, self.am = CrossAttn(2 * c, ctx), Res(2 * c, 2 * c, T), CrossAttn(2 * c, ctx)
        self.u2, self.u1 = Res(4 * c, c, T), Res(2 * c, c, T)
        self.norm, self.out = nn.GroupNorm(8, c), nn.Conv2d(c, 4, 3, padding=1)

    def forward(self, x, t, ctx):
        f = torch.exp(-math.log(10000) * torch.arange(self.c // 2, device=x.device) / (self.c // 2))
        e = t.float()[:, None] * f[None]
        temb = self.time(torch.cat([e.sin(), e.cos()], -1).to(x.dtype))
        h1 = self.d1(self.inp(x), temb)
        h2 = self.a2(self.d2(self.down(h1), temb), ctx)
        m = self.am(self.mid(h2, temb), ctx)
        u = F.interpolate(self.u2(torch.cat([m, h2], 1), temb), scale_factor=2)
        return self.out(F.silu(self.norm(self.u1(torch.cat([u, h1], 1), temb))))


@program(executions=20, layers=None, kinds={"text encoder": 2, "unet": 20, "vae decode": 2},
         ranges='record_function: "encode_prompt", "denoise step 981 (0/10)" (timestep varies), "vae.decode"',
         limits=["kernels"], where="the UNet's convolutions and attention in the denoising steps", remedy="fewer steps, channels_last, compile",
         note="2 prompts x 10 steps, guidance doubles the batch; the VAE decodes once per prompt, then .cpu()")
def sd_unet_cfg():
    "Stable-diffusion-like pipeline: text encoder, 10 DDIM steps with classifier-free guidance, VAE decode; 2 prompts."
    setup()
    c, ctx = S(320, 16), S(768, 32)
    unet = on_device(lambda: UNet(c, ctx))
    text = on_device(lambda: nn.Sequential(nn.Embedding(1000, ctx), *[_PreNorm(ctx, 8 if CUDA() else 4) for _ in range(4)], nn.LayerNorm(ctx)))
    vc = S(128, 16)
    vae = on_device(lambda: nn.Sequential(nn.Conv2d(4, vc, 3, padding=1), Res(vc, vc, 0), nn.Upsample(scale_factor=2), Res(vc, vc, 0),
                                          nn.Upsample(scale_factor=2), Res(vc, vc, 0), nn.Upsample(scale_factor=2), nn.GroupNorm(8, vc), nn.SiLU(),
                                          nn.Conv2d(vc, 3, 3, padding=1)))
    n = 12 if CUDA() else 1
    side = S(64, 8)
    abar = torch.cumprod(1 - torch.linspace(1e-4, .02, 1000), 0)

    def pipe(steps=10):
        with record_function("encode_prompt"), execution("part"):
            emb = text(torch.randint(0, 1000, (2, 77), device=D())).repeat_interleave(n, 0)
        x = torch.randn(n, 4, side, side, device=D(), dtype=DT())
        ts = torch.linspace(981, 1, steps).long().tolist()
        for i, t in enumerate(ts):
            with record_function(f"denoise step {t} ({i}/{steps})"), execution("part"), execution():
                eps = unet(torch.cat([x, x]), torch.full((2 * n,), t, device=D()), emb)
                un, co = eps.chunk(2)
                eps = un + 7.5 * (co - un)
                a, prev = float(abar[t]), float(abar[ts[i + 1]]) if i + 1 < steps else 1.0
                x0 = (x - (1 - a) ** .5 * eps) / a ** .5
                x = prev ** .5 * x0 + (1 - prev) ** .5 * eps
        with record_function("vae.decode"), execution("part"):
            return ((vae(x) / 2 + .5).clamp(0, 1) * 255).to(torch.uint8).cpu()
    pipe(2)
    with record():
        for prompt in ("a cat", "a dog in the rain"):
            with execution("picture"):
                pipe()


# ---------------------------------------------------------------- 8. DiT, no ranges
class DiTBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.norm1, self.norm2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU("tanh"), nn.Linear(4 * d, d))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.ada(c)[:, None].chunk(6, -1)
        y = self.norm1(x) * (1 + s1) + b1
        x = x + g1 * self.attn(y, y, y, need_weights=False)[0]
        return x + g2 * self.mlp(self.norm2(x) * (1 + s2) + b2)


@program(executions=14, layers=4, ranges="none", limits=["kernels"], where="the DiT blocks' matrix products",
         remedy="compile (fuse the modulations), fewer steps, fp8", note="14 sampling steps of one batch of 96 latents, then the latents are fetched")
def dit_flow_sampler():
    "DiT with adaLN, Euler sampling of a flow, 14 steps."
    setup()
    d, h, L, T, B = S(1152, 32), S(16, 4), 4, S(256, 16), S(96, 2)

    class DiT(nn.Module):
        def __init__(self):
            super().__init__()
            self.x, self.t, self.y = nn.Linear(16, d), nn.Sequential(nn.Linear(256, d), nn.SiLU(), nn.Linear(d, d)), nn.Embedding(1001, d)
            self.blocks = nn.ModuleList([DiTBlock(d, h) for _ in range(L)])
            self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, 16)

        def forward(self, z, t, y):
            fr = torch.exp(-9.21 * torch.arange(128, device=z.device) / 128)
            a = t[:, None].float() * fr
            c = self.t(torch.cat([a.cos(), a.sin()], -1).to(z.dtype)) + self.y(y)
            z = self.x(z)
            for b in self.blocks:
                z = b(z, c)
            return self.out(self.norm(z))
    net = on_device(DiT)
    y = torch.randint(0, 1000, (B,), device=D())
    z = torch.randn(B, T, 16, device=D(), dtype=DT())
    net(z, torch.zeros(B, device=D()), y)
    blocks(net.blocks)
    with record():
        n = 14
        for i in range(n):
            with execution():
                t = torch.full((B,), i / n, device=D())
                z = z + net(z, t, y) / n
        img = z.float().cpu()


# ---------------------------------------------------------------- 9. whisper
@program(executions=16, layers=3, kinds={"encoder": 2, "decoder": 16}, ranges="none", limits=["host", "launches"],
         where="the decoder steps: python and launches of small kernels", remedy="CUDA graphs / batch the chunks",
         note="2 chunks of 30 s: log-mel on the CPU, encoder once, then 8 decoder steps (first one: 4 prompt tokens), argmax fetched by .tolist() each step")
def whisper_chunks():
    "transformers WhisperModel (3+3 layers), long-form: chunk by chunk, own greedy loop with past_key_values."
    setup()
    from transformers import WhisperConfig, WhisperModel
    d = S(384, 32)
    cfg = WhisperConfig(vocab_size=S(51865, 400), d_model=d, encoder_layers=3, decoder_layers=3, encoder_attention_heads=S(6, 4),
                        decoder_attention_heads=S(6, 4), encoder_ffn_dim=4 * d, decoder_ffn_dim=4 * d, max_source_positions=S(1500, 100),
                        max_target_positions=128, num_mel_bins=80, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
                        suppress_tokens=None, begin_suppress_tokens=None)
    model = on_device(lambda: WhisperModel(cfg))
    proj = on_device(lambda: nn.Linear(d, cfg.vocab_size, bias=False))
    frames = 2 * cfg.max_source_positions
    fb = torch.rand(80, 201)
    window = torch.hann_window(400)

    def chunk(steps):
        audio = torch.randn(frames * 160 - 1)
        spec = torch.stft(audio, 400, 160, window=window, return_complex=True).abs() ** 2
        mel = torch.log10((fb @ spec[:, :frames]).clamp(min=1e-10))[None].to(D(), DT())
        with execution():
            enc = model.encoder(mel)[0]
        ids = torch.tensor([[1, 3, 4, 5]], device=D())
        past, text = None, []
        for _ in range(steps):
            with execution(), execution("token"):
                out = model.decoder(input_ids=ids, encoder_hidden_states=enc, past_key_values=past, use_cache=True)
                past = out.past_key_values
                ids = proj(out.last_hidden_state[:, -1:]).argmax(-1)
                text += ids[0].tolist()
        return text
    chunk(3)
    blocks([*model.encoder.layers, *model.decoder.layers])
    with record():
        for _ in range(2):
            with execution("chunk"):
                chunk(8)


# ---------------------------------------------------------------- 10. T5 beam search
@program(executions=7, layers=4, kinds={"encoder": 1, "decoder": 7}, ranges="none", limits=["host", "launches"],
         where="the decoder steps and the bookkeeping of the beams between them", remedy="fewer beams/greedy, CUDA graphs, batch more",
         note="one generate() call: encoder once, 7 decoder steps of 4 sentences x 4 beams")
def t5_beam():
    "transformers T5ForConditionalGeneration.generate(num_beams=4)."
    setup()
    from transformers import T5Config, T5ForConditionalGeneration
    d = S(512, 32)
    cfg = T5Config(vocab_size=S(32128, 300), d_model=d, d_kv=d // 8, d_ff=2 * d, num_layers=4, num_decoder_layers=4, num_heads=8,
                   pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    model = on_device(lambda: T5ForConditionalGeneration(cfg))
    ids = torch.randint(2, cfg.vocab_size, (4, 60), device=D())
    mask = torch.ones_like(ids)
    kw = dict(attention_mask=mask, num_beams=4, do_sample=False)
    model.generate(ids, max_new_tokens=2, **kw)
    blocks([*model.encoder.block, *model.decoder.block])
    end = calls({model.encoder: ["execution"], model.decoder: ["execution", "token"]})
    with record():
        out = model.generate(ids, max_new_tokens=7, min_new_tokens=7, **kw)
        end()
        print(out.shape)


# ---------------------------------------------------------------- 11. MoE decoder, python loop over experts
class MoE(nn.Module):
    def __init__(self, d, experts=8, k=2):
        super().__init__()
        self.k, self.gate = k, nn.Linear(d, experts, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)) for _ in range(experts)])

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        w, idx = self.gate(flat).softmax(-1).topk(self.k, -1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            tok, slot = torch.where(idx == e)
            if tok.numel() == 0:
                continue
            out.index_add_(0, tok, expert(flat[tok]) * w[tok, slot, None])
        return out.view_as(x)


@program(executions=6, layers=3, kinds={"prefill": 1, "decode": 5}, ranges='record_function: "layer0.attn", "layer0.moe", … (module names; no range around a step)',
         limits=["synchronisation", "launches", "host"], where="the loop over experts: torch.where synchronises for each expert",
         remedy="grouped GEMM / sort the tokens by expert, no data-dependent shapes",
         note="mixtral-like, 8 experts, top 2; 1 prefill of 4x128, then 5 decode steps")
def moe_python_experts():
    "Mixtral-like decoder with a python loop over experts."
    setup()
    V, d, h, L = S(32000, 200), S(1024, 32), 8, 3
    layers = on_device(lambda: nn.ModuleList([nn.ModuleDict(dict(n1=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), o=nn.Linear(d, d),
                                                                 n2=nn.LayerNorm(d), moe=MoE(d))) for _ in range(L)]))
    emb, head = on_device(lambda: nn.Embedding(V, d)), on_device(lambda: nn.Linear(d, V))

    def forward(ids, cache):
        x = emb(ids)
        b, t, _ = x.shape
        for i, m in enumerate(layers):
            block = record_function("##@b:block")
            block.__enter__()
            with record_function(f"layer{i}.attn"), record_function("##@b:half"):
                q, k, v = m["qkv"](m["n1"](x)).view(b, t, 3, h, d // h).permute(2, 0, 3, 1, 4)
                if cache[i] is not None:
                    k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
                cache[i] = (k, v)
                x = x + m["o"](F.scaled_dot_product_attention(q, k, v, is_causal=t > 1).transpose(1, 2).reshape(b, t, d))
            with record_function(f"layer{i}.moe"), record_function("##@b:half"):
                x = x + m["moe"](m["n2"](x))
            block.__exit__(None, None, None)
        return head(x[:, -1:]).argmax(-1)
    cache = [None] * L
    ids = torch.randint(0, V, (4, 128), device=D())
    forward(forward(ids, cache), cache)
    cache = [None] * L
    with record(shapes=True):
        for _ in range(6):
            with execution():
                ids = forward(ids, cache)
        print(ids.flatten().tolist())


# ---------------------------------------------------------------- 12. Mamba in plain torch
@program(executions=3, layers=4, ranges="none", limits=["launches", "host"], where="the scan over time steps: a python loop of tiny kernels",
         remedy="a fused/parallel scan kernel", note="3 sequences' batches; in each of 4 blocks a python loop over 32 time steps")
def mamba_reference_scan():
    "Mamba-like block with the reference selective scan, python loop over time."
    setup()
    d, N, T, L = S(1024, 32), 16, 32, 4

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.inp, self.conv = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Conv1d(d, d, 4, padding=3, groups=d)
            self.xp, self.dt, self.out = nn.Linear(d, 2 * N + 32), nn.Linear(32, d), nn.Linear(d, d)
            self.A = nn.Parameter(-torch.rand(d, N))

        def forward(self, u):
            x, z = self.inp(self.norm(u)).chunk(2, -1)
            x = F.silu(self.conv(x.transpose(1, 2))[..., :u.shape[1]].transpose(1, 2))
            dt, B, C = self.xp(x).split([32, N, N], -1)
            dt = F.softplus(self.dt(dt))
            dA = torch.exp(dt[..., None] * self.A)
            dBx = dt[..., None] * B[:, :, None] * x[..., None]
            s, ys = torch.zeros_like(dA[:, 0]), []
            for t in range(u.shape[1]):
                s = dA[:, t] * s + dBx[:, t]
                ys.append((s * C[:, t, None]).sum(-1))
            return u + self.out(torch.stack(ys, 1) * F.silu(z))
    net = on_device(lambda: nn.Sequential(*[Block() for _ in range(L)]))
    x = torch.randn(8, T, d, device=D(), dtype=DT())
    net(x)
    blocks(net)
    with record():
        for _ in range(3):
            with execution():
                y = net(torch.randn(8, T, d, device=D(), dtype=DT()))
        print(float(y.float().mean()))


# ---------------------------------------------------------------- 13. detection with NMS
def _nms(boxes, scores, thr):
    try:
        from torchvision.ops import nms
        return nms(boxes, scores, thr)
    except Exception:
        order, keep = scores.argsort(descending=True), []
        while len(order) and len(keep) < 20:
            i, order = order[0], order[1:]
            keep.append(i)
            lt, rb = torch.max(boxes[i, :2], boxes[order, :2]), torch.min(boxes[i, 2:], boxes[order, 2:])
            inter = (rb - lt).clamp(min=0).prod(-1)
            area = lambda b: (b[..., 2:] - b[..., :2]).prod(-1)
            order = order[inter / (area(boxes[i]) + area(boxes[order]) - inter) < thr]
        return torch.stack(keep)


class ConvBN(nn.Sequential):
    def __init__(self, i, o, s=1, k=3):
        super().__init__(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU())


@program(executions=8, layers=None, ranges="none", limits=["synchronisation", "host", "launches"],
         where="the postprocessing: NMS per image and class with boolean indexing, each synchronises",
         remedy="batched NMS on padded tensors, thresholds on the GPU, larger batch, a GPU-only postprocess",
         note="8 frames, one by one (batch 1); network, then 5 classes' NMS per frame, detections to the CPU; the number of boxes differs")
def detector_nms_video():
    "YOLO-like CNN on video frames, per-class NMS."
    setup()
    w, side, ncls = S(48, 4), S(640, 64), 5
    body = on_device(lambda: nn.Sequential(ConvBN(3, w, 2), ConvBN(w, 2 * w, 2), ConvBN(2 * w, 2 * w), ConvBN(2 * w, 4 * w, 2),
                                           ConvBN(4 * w, 4 * w), ConvBN(4 * w, 4 * w), ConvBN(4 * w, 8 * w, 2), ConvBN(8 * w, 8 * w)))
    head = on_device(lambda: nn.Conv2d(8 * w, 4 + ncls, 1))

    def detect(frame):
        x = torch.from_numpy(frame).to(D()).permute(2, 0, 1)[None].to(DT()) / 255
        p = head(body(x))[0].flatten(1).T.float()
        boxes = torch.cat([p[:, :2] * 50, p[:, :2] * 50 + p[:, 2:4].abs() * 30 + 1], 1)
        prob = p[:, 4:].sigmoid()
        prob = (prob + torch.rand_like(prob)) / 2
        found = []
        for c in range(ncls):
            keep = prob[:, c] > .6
            if not keep.any():
                continue
            b, s = boxes[keep], prob[keep, c]
            k = _nms(b, s, .5)[:100]
            found.append(torch.cat([b[k], s[k, None]], 1).cpu())
        return found
    import numpy as np
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 255, (side, side, 3), dtype=np.uint8) for _ in range(4)]
    detect(frames[0])
    with record(shapes=True):
        for i in range(8):
            with execution():
                dets = detect(frames[i % 4])
            if i % 4 == 0:
                print(f"frame {i}: {sum(map(len, dets))} boxes")


# ---------------------------------------------------------------- 14. sliding-window segmentation
@program(executions=25, layers=None, ranges='record_function: "window (384, 768)" (row, column)', limits=["kernels"],
         where="the convolutions of the U-Net at full resolution", remedy="channels_last/bf16 autocast tuned, batch the windows, less overlap",
         note="one image of 2048x2048, 25 overlapping windows of 512, accumulated on the GPU; argmax and .cpu() once at the end; one execution = one window")
def seg_sliding_window():
    "MONAI-like sliding-window inference with a U-Net."
    setup()
    w = S(128, 4)

    class Seg(nn.Module):
        def __init__(self):
            super().__init__()
            blk = lambda i, o: nn.Sequential(ConvBN(i, o), ConvBN(o, o))
            self.e1, self.e2, self.e3, self.b = blk(3, w), blk(w, 2 * w), blk(2 * w, 4 * w), blk(4 * w, 8 * w)
            self.u3, self.u2, self.u1 = (nn.ConvTranspose2d(k * w, k * w // 2, 2, 2) for k in (8, 4, 2))
            self.d3, self.d2, self.d1 = blk(8 * w, 4 * w), blk(4 * w, 2 * w), blk(2 * w, w)
            self.out = nn.Conv2d(w, 5, 1)

        def forward(self, x):
            a = self.e1(x)
            b = self.e2(F.max_pool2d(a, 2))
            c = self.e3(F.max_pool2d(b, 2))
            y = self.u3(self.b(F.max_pool2d(c, 2)))
            y = self.u2(self.d3(torch.cat([y, c], 1)))
            y = self.u1(self.d2(torch.cat([y, b], 1)))
            return self.out(self.d1(torch.cat([y, a], 1)))
    net = on_device(Seg)
    q = S(1, 8)
    size, win, hop = 2048 // q, 512 // q, 384 // q
    image = torch.randn(1, 3, size, size, device=D(), dtype=DT())
    net(image[..., :win, :win])
    weight = torch.hann_window(win, device=D())[:, None] * torch.hann_window(win, device=D()) + 1e-3
    with record():
        acc = torch.zeros(1, 5, size, size, device=D())
        cnt = torch.zeros(1, 1, size, size, device=D())
        for r in range(0, size - win + 1, hop):
            for c in range(0, size - win + 1, hop):
                with record_function(f"window ({r}, {c})"), execution():
                    acc[..., r:r + win, c:c + win] += net(image[..., r:r + win, c:c + win]).float() * weight
                    cnt[..., r:r + win, c:c + win] += weight
        seg = (acc / cnt).argmax(1).to(torch.uint8).cpu()


# ---------------------------------------------------------------- 15. GNN over sampled subgraphs
@program(executions=16, layers=3, ranges="none", limits=["host", "waiting", "copies"],
         where="sampling neighbours and gathering the features on the CPU", remedy="sample in workers / on the GPU; keep the features on the GPU",
         note="16 mini-batches of seeds (the last one smaller), 3 SAGE layers; sampling in numpy in the same thread; pageable copies")
def gnn_sampled_inference():
    "GraphSAGE inference over neighbour-sampled subgraphs."
    setup()
    import numpy as np
    rng = np.random.default_rng(0)
    N, deg, f, hid = S(200000, 2000), 16, S(256, 16), S(512, 16)
    nbr = rng.integers(0, N, (N, deg))
    feats = torch.randn(N, f)

    class SAGE(nn.Module):
        def __init__(self):
            super().__init__()
            dims = [f, hid, hid, 47]
            self.s = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims, dims[1:])])
            self.n = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims, dims[1:])])

        def forward(self, x, edges, sizes):
            for i, ((src, dst), n) in enumerate(zip(edges, sizes)):
                with record_function("##@b:block"):
                    agg = torch.zeros(n, x.shape[1], device=x.device, dtype=x.dtype).index_add_(0, dst, x[src])
                    cnt = torch.zeros(n, device=x.device, dtype=x.dtype).index_add_(0, dst, torch.ones_like(dst, dtype=x.dtype))
                    x = self.s[i](x[:n]) + self.n[i](agg / cnt.clamp(min=1)[:, None])
                    if i < 2:
                        x = F.relu(x)
            return x
    net = on_device(SAGE, torch.float32)

    def sample(seeds, fan=(10, 8, 5)):
        nodes, edges, sizes = seeds, [], []
        for k in fan:
            nb = nbr[nodes][:, rng.permutation(deg)[:k]]
            dst = np.repeat(np.arange(len(nodes)), k)
            new = np.setdiff1d(nb.ravel(), nodes)
            allnodes = np.concatenate([nodes, new])
            order = np.argsort(allnodes)
            src = order[np.searchsorted(allnodes, nb.ravel(), sorter=order)]
            sizes.insert(0, len(nodes))
            edges.insert(0, (torch.from_numpy(src), torch.from_numpy(dst)))
            nodes = allnodes
        return nodes, edges, sizes

    @execution()
    def run(seeds):
        nodes, edges, sizes = sample(seeds)
        x = feats[torch.from_numpy(nodes)].to(D())
        edges = [(a.to(D()), b.to(D())) for a, b in edges]
        return net(x, edges, sizes).argmax(-1).cpu()
    B = S(256, 8)
    ids = rng.permutation(N)[:15 * B + B // 3]
    run(ids[:B])
    with record(shapes=True, stack=True, modules=True):
        preds = torch.cat([run(ids[i:i + B]) for i in range(0, len(ids), B)])
        print(preds.shape)


# ---------------------------------------------------------------- 16. LSTM speech model
@program(executions=6, layers=3, ranges="none", limits=["launches", "kernels"],
         where="the cuDNN LSTM (sequential over time)", remedy="larger batch, shorter sequences after subsampling, another architecture",
         note="6 batches of 16 utterances sorted by length, packed; CTC greedy decoding on the CPU after each batch; a 3-layer bidirectional cuDNN LSTM")
def lstm_ctc():
    "Deep-speech-like: conv front end, 3-layer BiLSTM over packed sequences, CTC greedy decode in python."
    setup()
    H, B = S(512, 16), S(16, 2)
    conv = on_device(lambda: nn.Sequential(nn.Conv1d(80, H, 5, 2, 2), nn.ReLU(), nn.Conv1d(H, H, 5, 2, 2), nn.ReLU()), torch.float32)
    lstm = on_device(lambda: nn.LSTM(H, H, 3, batch_first=True, bidirectional=True), torch.float32)
    fc = on_device(lambda: nn.Linear(2 * H, 32), torch.float32)

    @execution()
    def transcribe(lens):
        x = torch.randn(len(lens), 80, max(lens)).to(D())
        y = conv(x).transpose(1, 2)
        p = nn.utils.rnn.pack_padded_sequence(y, torch.tensor([(l + 3) // 4 for l in lens]), batch_first=True, enforce_sorted=True)
        y, n = nn.utils.rnn.pad_packed_sequence(lstm(p)[0], batch_first=True)
        best = fc(y).argmax(-1).cpu().tolist()
        texts = []
        for row, m in zip(best, n.tolist()):
            s, last = [], 0
            for c in row[:m]:
                if c != last and c:
                    s.append(chr(96 + c))
                last = c
            texts.append("".join(s))
        return texts
    rng = random.Random(0)
    batches = [sorted((rng.randint(50, 80 + 15 * i) // S(1, 4) for _ in range(B)), reverse=True) for i in range(6)]
    transcribe(batches[0])
    with record(shapes=True):
        for i, b in enumerate(batches):
            t = transcribe(b)
            if i % 4 == 0:
                print(i, t[0][:20])


# ---------------------------------------------------------------- 17. embedding + reranker
@program(executions=9, layers=None, kinds={"embed": 9, "rerank": 9},
         ranges='record_function: "retrieve/embed", "retrieve/search", "rerank[q=3,n=40]"', limits=["kernels", "launches"],
         where="the reranker (a cross encoder over 40 to 64 passages)", remedy="fewer candidates, a smaller reranker, batch the queries",
         note="9 queries one by one; embedder 4 layers (1 short text), top-k over a matrix of 500k embeddings, reranker 6 layers over n passages; an execution of the pipeline = one query")
def rag_embed_rerank():
    "Retrieval: embed the query, search by matmul, rerank the candidates; two models in turn."
    setup()
    e, r = S(384, 32), S(768, 32)
    enc = lambda d, L, out: nn.Sequential(nn.Embedding(5000, d), *[_PreNorm(d, 8 if d != 384 else 6) for _ in range(L)], nn.LayerNorm(d), nn.Linear(d, out))
    embedder, reranker = on_device(lambda: enc(e, 4, e)), on_device(lambda: enc(r, 6, 1))
    index = torch.randn(S(500000, 2000), e, device=D(), dtype=DT())

    @execution("query")
    def query(i, n):
        with record_function("retrieve/embed"), execution("stage"), execution("model"):
            q = torch.randint(0, 5000, (1, 24)).to(D())
            v = F.normalize(embedder(q).mean(1), dim=-1)
        with record_function("retrieve/search"), execution("stage"):
            hits = (v @ index.T).float().topk(n).indices[0].tolist()
        with record_function(f"rerank[q={i},n={n}]"), execution("stage"), execution("model"):
            pairs = torch.randint(0, 5000, (n, S(480, 12)))
            scores = reranker(pairs.to(D()))[:, 0, 0].float().cpu()
        return [hits[j] for j in scores.argsort(descending=True)[:5].tolist()]
    query(-1, 64)
    blocks(m for m in [*embedder, *reranker] if isinstance(m, _PreNorm))
    rng = random.Random(2)
    with record():
        for i in range(9):
            query(i, rng.choice([40, 48, 64]))


# ---------------------------------------------------------------- 18. speculative decoding
@program(executions=5, layers=None, kinds={"draft": 20, "verify": 5}, ranges='nvtx: "spec iter 3", "draft", "verify" (torch.cuda.nvtx; seen under nsys only)',
         limits=["launches", "host", "synchronisation"], where="the draft model's steps and the target's verify, all launch-bound; the accept count is fetched each time",
         remedy="CUDA graphs for draft and verify", note="5 rounds: 4 draft steps of a 2-layer model, 1 verify of a 6-layer model over 5 tokens; the caches are cropped on the host; unmarked in a torch.profiler trace")
def speculative_decoding():
    "Draft of 4 tokens by a 2-layer GPT, verified by a 6-layer GPT; KV caches cropped after each round."
    setup()
    V = S(32000, 100)
    draft, target = on_device(lambda: GPT(V, S(512, 32), 8, 2)), on_device(lambda: GPT(V, S(1024, 32), 8, 6))
    crop = lambda past, n: [(k[:, :, :n], v[:, :, :n]) for k, v in past]

    def push(name):
        if CUDA():
            torch.cuda.nvtx.range_push(name)

    def pop():
        if CUDA():
            torch.cuda.nvtx.range_pop()
    prompt = torch.randint(0, V, (1, 80), device=D())

    def run(rounds):
        _, dp = draft(prompt)
        logits, tp = target(prompt)
        tok, n = logits[:, -1:].argmax(-1), 80
        yield
        for i in range(rounds):
            turn = execution("round")
            turn.__enter__()
            push(f"spec iter {i}")
            push("draft")
            guess = [tok]
            for j in range(4):
                with execution("pass"):
                    lg, dp = draft(guess[-1], dp, n + j)
                    guess.append(lg.argmax(-1))
            pop()
            push("verify")
            # 5 tokens on a cache: full attention is fine for random weights
            with execution("pass"):
                seq = torch.cat(guess, 1)
                lg, tp = target(seq, tp, n)
                want = lg.argmax(-1)
                ok = int((want[0, :-1] == seq[0, 1:]).long().cumprod(0).sum())
            ok = max(ok, i % 3)
            pop()
            n += ok + 1
            tok = want[:, ok:ok + 1]
            dp, tp = crop(dp, min(n, dp[0][0].shape[2])), crop(tp, n)
            while dp[0][0].shape[2] < n:
                with execution("pass"):
                    _, dp = draft(tok, dp, n - 1)
            pop()
            turn.__exit__(None, None, None)
        yield
    for _ in run(2):
        pass
    blocks([*draft.blocks, *target.blocks])
    g = run(5)
    next(g)
    with record():
        next(g)


# ---------------------------------------------------------------- 19. recommendation
@program(executions=9, layers=None, ranges="none", limits=["launches", "host", "copies"], where="26 embedding lookups launched one by one, and the copies of their indices",
         remedy="one fused table-batched embedding, one copy for all indices, CUDA graph", note="9 requests' batches of 2048 rows (the last: 300); 26 EmbeddingBags in a python loop")
def dlrm_serving():
    "DLRM: 26 embedding tables, bottom and top MLP, batches of requests."
    setup()
    d, tables = S(64, 8), 26
    emb = on_device(lambda: nn.ModuleList([nn.EmbeddingBag(S(500000, 500), d, mode="sum") for _ in range(tables)]), torch.float32)
    bot = on_device(lambda: nn.Sequential(nn.Linear(13, S(512, 16)), nn.ReLU(), nn.Linear(S(512, 16), d), nn.ReLU()), torch.float32)
    top = on_device(lambda: nn.Sequential(nn.Linear(d + 27 * 26 // 2, S(1024, 16)), nn.ReLU(), nn.Linear(S(1024, 16), 1)), torch.float32)
    iu = torch.triu_indices(27, 27, 1, device=D())

    def request(B):
        return torch.rand(B, 13), [torch.randint(0, S(500000, 500), (B, 1)) for _ in range(tables)]

    def score(dense, sparse):
        x = bot(dense.to(D()))
        es = [e(s.to(D())) for e, s in zip(emb, sparse)]
        z = torch.stack([x] + es, 1)
        inter = torch.bmm(z, z.transpose(1, 2))[:, iu[0], iu[1]]
        return top(torch.cat([x, inter], 1)).sigmoid().cpu()
    requests = [request(S(2048, 32) if i < 8 else S(300, 5)) for i in range(9)]
    score(*requests[0])
    with record(shapes=True):
        for r in requests:
            with execution():
                score(*r)


# ---------------------------------------------------------------- 20. vision-language
@program(executions=14, layers=5, kinds={"vision tower": 2, "prefill": 2, "decode": 12}, ranges='record_function: "vision_tower", "llm.prefill", "llm.decode"',
         limits=["launches", "host"], where="llm.decode: many small kernels per token", remedy="CUDA graphs / static cache; batch the images",
         note="2 images with a question each: vision tower (6 layers) once, prefill of 256+20 tokens, 6 decode steps; executions counts the language model's 14 calls (5 layers each)")
def vlm_describe():
    "LLaVA-like: vision tower once, projector, then a decoder with cache."
    setup()
    V, d = S(32000, 100), S(1024, 32)
    tower = on_device(lambda: nn.Sequential(nn.Conv2d(3, S(768, 32), 14, 14), nn.Flatten(2), _Swap(), *[_PreNorm(S(768, 32), S(12, 4)) for _ in range(6)]))
    proj = on_device(lambda: nn.Sequential(nn.Linear(S(768, 32), d), nn.GELU(), nn.Linear(d, d)))
    llm = on_device(lambda: GPT(V, d, 8, 5))

    def ask(n):
        first = execution("tower and token")
        first.__enter__()
        img = torch.rand(1, 3, 224, 224).to(D(), DT())
        with record_function("vision_tower"), execution("part"):
            v = proj(tower(img))
        with record_function("llm.prefill"), execution("part"), execution():
            x = torch.cat([v, llm.wte(torch.randint(0, V, (1, 20), device=D()))], 1)
            logits, past = llm(embeds=x)
            tok, pos = logits[:, -1:].argmax(-1), x.shape[1]
        first.__exit__(None, None, None)
        words = [tok]
        for i in range(n):
            with record_function("llm.decode"), execution("part"), execution(), execution("tower and token"):
                logits, past = llm(tok, past, pos + i)
                tok = logits[:, -1:].argmax(-1)
                words.append(tok)
        return torch.cat(words, 1).tolist()
    ask(2)
    blocks([m for m in tower if isinstance(m, _PreNorm)] + list(llm.blocks))
    with record(shapes=True):
        for _ in range(2):
            with execution("picture"):
                ask(6)


class _Swap(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


# ---------------------------------------------------------------- 21. batch-size sweep
class Bottleneck(nn.Module):
    def __init__(self, i, m, o, s=1):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(i, m, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU(), nn.Conv2d(m, m, 3, s, 1, bias=False), nn.BatchNorm2d(m),
                               nn.ReLU(), nn.Conv2d(m, o, 1, bias=False), nn.BatchNorm2d(o))
        self.d = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if i != o or s != 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.f(x) + self.d(x))


def resnet(depths, w=64, classes=1000):
    layers, i = [nn.Conv2d(3, w, 7, 2, 3, bias=False), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], w
    for n, (m, k) in enumerate(zip((w, 2 * w, 4 * w, 8 * w), depths)):
        for j in range(k):
            layers.append(Bottleneck(i, m, 4 * m, 2 if j == 0 and n else 1))
            i = 4 * m
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, classes))


@program(executions=20, layers=6, kinds={"batch 1": 5, "batch 2": 5, "batch 4": 5, "batch 8": 5}, ranges="none", limits=["launches", "host"],
         where="every batch size costs about the same: launching the ~70 kernels of a small bottleneck ResNet", remedy="CUDA graph / compile; larger batches",
         note="a sweep: batch 1, 2, 4, 8, each 5 times, synchronised after each call (time.perf_counter); warmed up at every size")
def resnet_batch_sweep():
    "Latency sweep of a small ResNet (6 bottleneck blocks in 4 stages) over the batch size."
    setup()
    import time
    net = on_device(lambda: resnet((1, 2, 2, 1), S(64, 4)))
    xs = {b: torch.randn(b, 3, S(224, 32), S(224, 32), device=D(), dtype=DT()) for b in (1, 2, 4, 8)}
    for x in xs.values():
        net(x)
    with record():
        for b, x in xs.items():
            times = []
            for _ in range(5):
                t0 = time.perf_counter()
                with execution():
                    net(x)
                    sync()
                times.append(time.perf_counter() - t0)
            print(f"batch {b}: {sorted(times)[2] * 1e3:.2f} ms")


# ---------------------------------------------------------------- 22. two models, one after the other
@program(executions=18, layers=None, kinds={"resnet": 9, "vit": 9}, ranges='record_function: "eval:resnet26", "eval:vit_s" (one each, around 9 batches)',
         limits=["kernels"], where="the ResNet's convolutions, and the ViT's matrix products", remedy="channels_last, compile, int8/fp8",
         note="two models evaluated one after the other on the same 9 batches of 128 (the last: 40) that lie on the GPU already; accuracy fetched once per model; ResNet: 8 blocks, ViT: 6 blocks")
def eval_two_models():
    "Accuracy of two models, one after the other, in one process."
    setup()
    models = {"resnet26": on_device(lambda: resnet((2, 2, 2, 2), S(64, 4))), "vit_s": on_device(lambda: ViT(S(384, 32), S(6, 4), 6, patch=16))}
    side = S(224, 32)
    data = [(torch.randn(n, 3, side, side, device=D(), dtype=DT()), torch.randint(0, 1000, (n,), device=D())) for n in [S(128, 2)] * 8 + [S(40, 1)]]
    for m in models.values():
        m(data[0][0]), m(data[-1][0])
    with record():
        for name, m in models.items():
            with record_function(f"eval:{name}"):
                hits = torch.zeros((), device=D())
                for x, y in data:
                    with execution():
                        hits += (m(x).argmax(-1) == y).sum()
                print(name, hits.item())


# the slow to start and the risky ones last
import harness  # noqa: E402
for _late in ("t5_beam", "compiled_reduce_overhead"):
    if _late in harness.PROGRAMS:
        harness.PROGRAMS[_late] = harness.PROGRAMS.pop(_late)
