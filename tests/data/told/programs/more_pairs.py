"""Eighteen more pairs, before and after of changes that people make, on one GPU (see tests/data/h200/programs.py).

python more_pairs.py time|kineto|truth OUT [NAME…]

time: ten turns a side, ABBA, no profiler; OUT/times.json and OUT/truth.json (the rows of `truth` with before_ms, after_ms).
kineto: OUT/NAME_before.json.gz, OUT/NAME_after.json.gz (on a CPU: AS_GPU=1, and generators/told.py packs and tells them;
tests/data/told/pairs). Loops are of three styles: `steps` (prof.step() and a wait each
step), `ranges` (record_function of people's own, no prof.step()), `bare` (nothing but the loop).
"""
import contextlib, gc, json, math, random, re, sys, time
from pathlib import Path
import torch
import torch.nn as nn
import torch.nn.functional as F
import harness
from harness import execution, said, sync
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

CUDA = torch.cuda.is_available()
D = harness.D()
S = 1 if CUDA else 4  # the rehearsal is smaller
H = torch.bfloat16
PAIRS, TRUTH = {}, {}
LIMIT_S = 25  # a pair that takes longer than this in one mode is reported, not stopped


def pair(style, remedies, limits, steps=6, near=(), note=""):
    """`remedies`: ids of xsp-post's advice that are this change, best first ([]: none of them names it); `near`: what a
    fair judge lets pass besides, since it would help, too; `limits`: acceptable first limits of *before*, best first."""
    def keep(f):
        PAIRS[f.__name__] = f
        TRUTH[f.__name__] = {"name": f.__name__, "remedies": remedies, "near": list(near), "limits": limits, "style": style,
                             "steps": steps, "says": " ".join(f.__doc__.split()), "note": note}
        return f
    return keep


def n(size, least=1):
    return max(size // S, least)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def parts(self, x):
        b, t, w = x.shape
        return self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4).unbind(0)

    def rest(self, x, y):
        b, t, w = x.shape
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def forward(self, x):
        return self.rest(x, F.scaled_dot_product_attention(*self.parts(x), is_causal=True))


def blocks(count, width, heads):
    return nn.ModuleList(Block(n(width), max(heads // min(S, 4), 1)) for _ in range(count))


def convs():
    return nn.Sequential(nn.Conv2d(3, 64 // min(S, 4), 7, 4, 3), nn.ReLU(), nn.Conv2d(64 // min(S, 4), 128 // min(S, 4), 3, 2, 1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128 // min(S, 4), 10)).to(D)


@pair("ranges", [], ["kernels"], steps=6, near=["fuse-elementwise", "tensor-cores", "cuda-graphs"],
      note="no remedy is named 'keep keys and values'; what counts: limit of before, and the words of compare")
def kv_cache(after):
    """Generating text, one token for 16 sequences a step, at a context of about 1,000 tokens: all tokens go through the model
    again for each new one; after: keys and values are kept."""
    net, heads = blocks(4, 1024, 16).to(D, H).eval(), max(16 // min(S, 4), 1)
    embed, head = nn.Embedding(8000, n(1024)).to(D, H), nn.Linear(n(1024), 8000).to(D, H)
    room, start, count = n(1088, 40), n(1024, 32), [0]
    ids = torch.randint(8000, (16, room), device=D)
    kept = [torch.randn(2, 16, heads, room, n(1024) // heads, device=D, dtype=H) for _ in net]
    def step():
        at = start + count[0] % (room - start)
        count[0] += 1
        with torch.no_grad(), record_function(f"generate token {at}"):
            if after:
                x = embed(ids[:, at - 1:at])
                for block, kv in zip(net, kept):
                    q, k, v = block.parts(x)
                    kv[0, :, :, at - 1:at], kv[1, :, :, at - 1:at] = k, v
                    x = block.rest(x, F.scaled_dot_product_attention(q, kv[0, :, :, :at], kv[1, :, :, :at]))
            else:
                x = embed(ids[:, :at])
                for block in net:
                    x = block(x)
            if at < room:
                ids[:, at] = head(x[:, -1]).argmax(-1)
    return step


@pair("ranges", ["larger-batch"], ["host", "launches"], steps=3, near=["cuda-graphs", "narrow-weights"],
      note="a step is one token for each of eight requests on both sides")
def decode_batch(after):
    """A server answers eight requests: each request's next token in a pass of its own (keys and values kept); after: all eight
    in one pass."""
    net, heads, t = blocks(2, 1024, 16).to(D, H).eval(), max(16 // min(S, 4), 1), n(512, 16)
    size = 8 if after else 1
    kept = [torch.randn(2, size, heads, t, n(1024) // heads, device=D, dtype=H) for _ in net]
    x0, head = torch.randn(size, 1, n(1024), device=D, dtype=H), nn.Linear(n(1024), 4000).to(D, H)
    def token():
        x = x0
        for block, kv in zip(net, kept):
            q, k, v = block.parts(x)
            x = block.rest(x, F.scaled_dot_product_attention(q, torch.cat([kv[0], k], 2), torch.cat([kv[1], v], 2)))
        return head(x[:, -1]).argmax(-1)
    def step():
        with torch.no_grad(), record_function("answer eight requests"):
            return [token() for _ in range(8 // size)]
    return step


@pair("steps", ["remove-synchronization", "item-in-step", "batch-host-loop"], ["host", "synchronisation", "launches"], steps=3,
      near=["cuda-graphs", "larger-batch"])
def experts(after):
    """Mixture of 16 experts, two layers: a Python loop over experts picks each one's tokens by a mask (the host waits for how
    many they are); after: tokens are sorted into equal slots, and two batched products do all experts."""
    w, e, tokens = n(512), 16, n(4096, 64)
    ups = [torch.randn(e, w, 2 * w, device=D, dtype=H) * 0.02 for _ in range(2)]
    downs = [torch.randn(e, 2 * w, w, device=D, dtype=H) * 0.02 for _ in range(2)]
    gates = [torch.randn(w, e, device=D, dtype=H) for _ in range(2)]
    x0 = torch.randn(tokens, w, device=D, dtype=H)
    room = 2 * tokens // e
    def layer(x, gate, up, down):
        which = (x @ gate).argmax(-1)
        if not after:
            y = torch.zeros_like(x)
            for i in range(e):
                mine = torch.where(which == i)[0]
                y[mine] = F.gelu(x[mine] @ up[i]) @ down[i]
            return x + y
        order = which.argsort()
        sorted_ = which[order]
        first = torch.searchsorted(sorted_, torch.arange(e, device=D))
        slot = torch.arange(tokens, device=D) - first[sorted_]
        slot = sorted_ * room + slot.clamp(max=room - 1)
        slots = torch.zeros(e * room, w, device=D, dtype=H).index_copy(0, slot, x[order])
        y = torch.bmm(F.gelu(torch.bmm(slots.view(e, room, w), up)), down).view(e * room, w)
        return x + torch.zeros_like(x).index_copy(0, order, y[slot])
    def step():
        with torch.no_grad():
            x = x0
            for parts in zip(gates, ups, downs):
                x = layer(x, *parts)
            return x
    return step


@pair("bare", ["cuda-graphs"], ["host", "launches"], steps=3, near=["larger-batch", "fuse-elementwise", "batch-host-loop"],
      note="the step's own remedy is the library's GRU; of the advice 'launch less' is nearest")
def time_loop(after):
    """A recurrent network over 40 time steps, written as a Python loop of small operations; after: nn.GRU (cuDNN)."""
    w, t, b = n(512), 40, 32
    gru = nn.GRU(w, w, batch_first=True).to(D).eval()
    x = torch.randn(b, t, w, device=D)
    def step():
        with torch.no_grad():
            if after:
                return gru(x)[0]
            h, seen = x.new_zeros(b, w), []
            given = F.linear(x, gru.weight_ih_l0, gru.bias_ih_l0)
            for i in range(t):
                r, z, m = given[:, i].chunk(3, -1)
                hr, hz, hm = F.linear(h, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3, -1)
                z = torch.sigmoid(z + hz)
                h = torch.tanh(m + torch.sigmoid(r + hr) * hm) * (1 - z) + z * h
                seen.append(h)
            return torch.stack(seen, 1)
    return step


@pair("bare", ["item-in-step", "remove-synchronization"], ["host", "kernels", "synchronisation"], steps=20,
      near=["cuda-graphs"], note="20 steps are recorded, of which 'after' reads the loss in two")
def print_loss(after):
    """Training of a plain network: the loss is read for the progress bar in every step; after: in every tenth."""
    w = n(2048)
    net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(w, w), nn.ReLU())]).to(D, H)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x, count, bar = torch.randn(n(4096), w, device=D, dtype=H), [0], []
    def step():
        loss = net(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        count[0] += 1
        if not after or count[0] % 10 == 0:
            value = loss.detach().cpu()
            with said("host"):
                bar.append(f"step {count[0]}: loss {value:.4f}")
                del bar[:-3]
    return step


@pair("steps", ["copy-less", "copy-together", "remove-synchronization", "host-code"], ["host", "copies", "synchronisation"], steps=4,
      near=["overlap-copies", "cuda-graphs", "copy-once"])
def rotary_tables(after):
    """Every layer makes its sine and cosine tables on the CPU and moves them with .to(device) in forward; after: buffers, made once."""
    net, x0 = blocks(6, 512, 8).to(D, H).eval(), torch.randn(4, n(256, 16), n(512), device=D, dtype=H)
    t, d = x0.shape[1], n(512) // max(8 // min(S, 4), 1)
    def tables():
        with said("host"):
            angle = torch.outer(torch.arange(t).float(), 10_000 ** (-torch.arange(0, d, 2).float() / d))
            cos, sin = angle.cos(), angle.sin()
        return cos.to(D, H), sin.to(D, H)
    kept = tables()
    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    def step():
        with torch.no_grad():
            x = x0
            for block in net:
                cos, sin = kept if after else tables()
                q, k, v = block.parts(x)
                x = block.rest(x, F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True))
            return x
    return step


@pair("ranges", ["overlap-copies"], ["copies"], steps=6, near=["copy-less"],
      note="the copy stays on the stream of the model: it gets faster, and the host no longer waits for it")
def pinned_only(after):
    """Training on images from ordinary memory, x.to(device); after: the same from pinned memory, non_blocking=True, nothing else."""
    net, count = convs(), [0]
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    host = [torch.randn(n(128), 3, 224 // min(S, 4), 224 // min(S, 4)) for _ in range(2)]
    labels = torch.randint(10, (n(128),), device=D)
    if after and CUDA:
        host = [x.pin_memory() for x in host]
    def step():
        with record_function("fetch"):
            x = host[count[0] % 2].to(D, non_blocking=after)
            count[0] += 1
        with record_function("train"):
            loss = F.cross_entropy(net(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return step


@pair("ranges", ["host-code"], ["host"], steps=4, near=["num-workers", "prepare-ahead", "host-blocked", "copy-less", "overlap-copies"])
def augment(after):
    """Images are cropped, mirrored and normalised on the CPU in the step; after: they go to the GPU as bytes, which does that."""
    net = convs()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    side, crop = 256 // min(S, 4), 224 // min(S, 4)
    raw = torch.randint(256, (n(64, 4), 3, side, side), dtype=torch.uint8)
    labels = torch.randint(10, (n(64, 4),), device=D)
    rng = random.Random(0)
    mean, deviation = (torch.tensor(v, device=D if after else "cpu").view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    def changed(x):
        y, z = rng.randrange(side - crop), rng.randrange(side - crop)
        x = x[:, :, y:y + crop, z:z + crop].float() / 255
        if rng.random() < 0.5:
            x = x.flip(-1)
        x = (x * rng.uniform(0.8, 1.2)).clamp(0, 1)
        return (x - mean) / deviation
    def step():
        with record_function("augment"):
            if after:
                x = changed(raw.to(D))
            else:
                with said("host"):
                    x = changed(raw)
                x = x.to(D)
        with record_function("forward"):
            loss = F.cross_entropy(net(x), labels)
        with record_function("backward"):
            loss.backward()
        with record_function("update"):
            optimizer.step()
            optimizer.zero_grad()
    return step


@pair("steps", ["tensor-cores"], ["kernels"], steps=5, near=["layout"],
      note="TF32 of cuDNN is off on both sides, as in scripts that ask for reproducible numbers")
def autocast(after):
    """Training of a network of convolutions and batch norms in fp32; after: forward under autocast to bfloat16."""
    c = n(128, 8)
    net = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1), *[layer for _ in range(5) for layer in (nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU())],
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10)).to(D)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    x, labels = torch.randn(n(32, 2), 3, 112 // min(S, 4), 112 // min(S, 4), device=D), torch.randint(10, (n(32, 2),), device=D)
    def step():
        torch.backends.cudnn.allow_tf32 = False
        with torch.autocast(D, H) if after else contextlib.nullcontext():
            loss = F.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.backends.cudnn.allow_tf32 = True
    return step


@pair("bare", ["fused-optimiser"], ["kernels"], steps=6, near=["fuse-elementwise"],
      note="foreach is torch's default; fused reads each parameter once")
def adam_fused(after):
    """A model of a large vocabulary, whose AdamW (torch's default, foreach) takes most of the step; after: fused=True."""
    w = n(1024)
    net = nn.Sequential(nn.Embedding(n(100_000), w, device=D), *[layer for _ in range(3) for layer in (nn.Linear(w, w), nn.GELU())]).to(D)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, **({"fused": True} if after else {}))
    ids = torch.randint(n(100_000), (8, 128), device=D)
    def step():
        loss = net(ids).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


@pair("ranges", ["recompute-less"], ["kernels"], steps=3, near=["tensor-cores", "fuse-elementwise"],
      note="use_reentrant=False, as the documentation asks for")
def checkpoint_off(after):
    """Training of three transformer blocks under activation checkpointing, for which there is memory enough; after: without it."""
    net = blocks(3, 1024, 16).to(D, H)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    x0 = torch.randn(8, n(1024, 8), n(1024), device=D, dtype=H)
    def step():
        with record_function("fwd"):
            x = x0
            for block in net:
                x = block(x) if after else checkpoint(block, x, use_reentrant=False)
            loss = x.float().square().mean()
        with record_function("bwd"):
            loss.backward()
        with record_function("opt"):
            optimizer.step()
            optimizer.zero_grad()
    return step


@pair("bare", ["fuse-attention"], ["kernels"], steps=4, near=["fuse-elementwise"])
def need_weights(after):
    """Training of three nn.MultiheadAttention called as in the manual, which returns weights that nobody reads; after:
    need_weights=False, which takes fused attention."""
    w, heads = n(512), max(8 // min(S, 4), 1)
    net = nn.ModuleList(nn.MultiheadAttention(w, heads, batch_first=True) for _ in range(3)).to(D, H)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    x0 = torch.randn(4, n(2048, 16), w, device=D, dtype=H)
    def step():
        x = x0
        for layer in net:
            y, _ = layer(x, x, x, need_weights=not after)
            x = x + y
        loss = x.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


@pair("bare", ["remove-synchronization", "item-in-step"], ["host", "synchronisation", "kernels"], steps=3,
      near=["cuda-graphs", "larger-batch"])
def masked_loss(after):
    """Training with eight output heads, each with a loss over valid entries only, picked by a mask (prediction[valid]: the host
    waits for how many they are); after: torch.where and a sum."""
    w = n(1024)
    trunk = nn.Sequential(nn.Linear(w, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU()).to(D)
    heads = nn.ModuleList(nn.Linear(w, 64) for _ in range(8)).to(D)
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=1e-3)
    x = torch.randn(n(4096, 16), w, device=D)
    wanted = [torch.randn(len(x), 64, device=D) for _ in heads]
    def step():
        y, losses = trunk(x), []
        for head, target in zip(heads, wanted):
            prediction, valid = head(y), target > -0.5
            if after:
                losses.append(torch.where(valid, (prediction - target).square(), 0.0).sum() / valid.sum())
            else:
                losses.append((prediction[valid] - target[valid]).square().mean())
        torch.stack(losses).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


@pair("steps", ["cuda-graphs"], ["host", "launches"], steps=4, near=["larger-batch", "fuse-elementwise"],
      note="the owner's remedy: merge the adapters into the weights, and q, k, v into one product; of the advice 'launch less' is nearest")
def lora_merged(after):
    """Inference of six blocks whose q, k and v are products of their own, each with a low-rank adapter beside it; after: one
    merged product."""
    w, heads, r = n(512), max(8 // min(S, 4), 1), 8
    net = blocks(6, 512, 8).to(D, H).eval()
    adapters = [[(torch.randn(r, w, device=D, dtype=H) * 0.01, torch.randn(w, r, device=D, dtype=H) * 0.01) for _ in range(3)] for _ in net]
    x0 = torch.randn(1, 64, w, device=D, dtype=H)
    def apart(block, adapter, x):
        b, t, _ = x.shape
        y, found = block.norm1(x), []
        for i, (down, up) in enumerate(adapter):
            part = F.linear(y, block.qkv.weight[i * w:(i + 1) * w], block.qkv.bias[i * w:(i + 1) * w])
            part = part + F.linear(F.linear(y, down), up) * 2.0
            found.append(part.view(b, t, heads, w // heads).transpose(1, 2))
        return found
    def step():
        with torch.no_grad():
            x = x0
            for block, adapter in zip(net, adapters):
                q, k, v = block.parts(x) if after else apart(block, adapter, x)
                x = block.rest(x, F.scaled_dot_product_attention(q, k, v))
            return x
    return step


@pair("steps", ["copy-less"], ["copies"], steps=6, near=["overlap-copies"])
def as_bytes(after):
    """A batch of images of 64-bit floats (as numpy made them) goes to the GPU each step, where it becomes float32; after: the
    bytes that they once were, from the same kind of memory."""
    net, side = convs().eval(), 224 // min(S, 4)
    raw = torch.randint(256, (n(64), 3, side, side), dtype=torch.uint8)
    host = raw if after else raw.double() / 255
    def step():
        with torch.no_grad():
            x = host.to(D)
            x = x.float() / 255 if after else x.float()
            return net(x)
    return step


WORDS = "the of and a to in is you that it he was for on are as with his they I at be this have from or one had by word".split()


@pair("ranges", ["host-code"], ["host"], steps=6, near=["num-workers", "prepare-ahead", "host-blocked"])
def tokenise(after):
    """Text is cleaned and split by regular expressions and looked up in the loop, before each step of training; after: once, ahead."""
    rng = random.Random(0)
    texts = [" ".join(rng.choice(WORDS) + rng.choice(["", ",", ".", "'s"]) for _ in range(n(12_000, 64))) for _ in range(2)]
    ids, pattern, count = {word: i for i, word in enumerate(WORDS)}, re.compile(r"[A-Za-z]+|[^\sA-Za-z]"), [0]
    w, length = n(512), n(4096, 32)
    net = nn.Sequential(nn.Embedding(64, w), nn.Linear(w, w), nn.GELU(), nn.Linear(w, 64)).to(D)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    def made(text):
        found = pattern.findall(re.sub(r"\s+", " ", text.lower()))
        with said("host"):
            return torch.tensor([ids.get(token, 40) for token in found][:length + 1])
    ready = [made(text).to(D) for text in texts]
    def step():
        i = count[0] % 2
        count[0] += 1
        with record_function("tokenise"):
            x = ready[i] if after else made(texts[i]).to(D)
        with record_function("learn"):
            loss = F.cross_entropy(net(x[:-1]), x[1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return step


@pair("steps", ["cuda-graphs"], ["host", "launches"], steps=3, near=["larger-batch"])
def train_graph(after):
    """A training step of a small transformer: forward, backward and SGD launched one by one; after: one CUDA graph of all of it."""
    net, x0 = blocks(3, 256, 4).to(D), torch.randn(4, n(64, 8), n(256), device=D)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    def step():
        optimizer.zero_grad(set_to_none=True)
        x = x0
        for block in net:
            x = block(x)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        return loss
    if not after:
        return step
    if not CUDA:
        def replay():
            with said("@graph"):
                return step()
        return replay
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step()
    return lambda: (graph.replay(), kept)[1]


@pair("bare", ["fuse-elementwise"], ["kernels"], steps=6)
def layer_norm(after):
    """Six blocks of a product and a layer norm that is written out (mean, variance, scale, shift); after: F.layer_norm."""
    w = n(1024)
    products = nn.ModuleList(nn.Linear(w, w) for _ in range(6)).to(D, H)
    norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(6)).to(D, H)
    x0 = torch.randn(16, n(1024), w, device=D, dtype=H)
    def step():
        with torch.no_grad():
            x = x0
            for product, norm in zip(products, norms):
                y = product(x)
                if after:
                    x = x + F.layer_norm(y, (w,), norm.weight, norm.bias, 1e-5)
                else:
                    z = y.float()
                    mean = z.mean(-1, keepdim=True)
                    variance = (z - mean).pow(2).mean(-1, keepdim=True)
                    z = (z - mean) / torch.sqrt(variance + 1e-5)
                    x = x + (z.to(y.dtype) * norm.weight + norm.bias)
            return x
    return step


def seconds(step, count):
    sync()
    start = time.perf_counter()
    for _ in range(count):
        step()
    sync()
    return (time.perf_counter() - start) / count


def recorded(step, style, steps, path):
    from torch.profiler import ProfilerActivity, profile, schedule
    acts = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * CUDA
    if style == "steps":
        with profile(activities=acts, record_shapes=True, schedule=schedule(wait=0, warmup=2, active=steps, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
            for _ in range(2 + steps):
                with execution():
                    step()
                sync()
                prof.step()
        return
    sync()
    with profile(activities=acts, record_shapes=style == "ranges" or not CUDA) as prof:
        for _ in range(steps):
            with execution():
                step()
        sync()
    prof.export_chrome_trace(path)


def main(mode, out, names):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    if mode == "truth":
        (out / "truth.json").write_text("[\n " + ",\n ".join(json.dumps(row) for row in TRUTH.values()) + "\n]\n")
        return
    results, rows = {}, []
    if mode == "kineto":  # the profiler's first start takes a second or two, once
        with torch.profiler.profile():
            torch.ones(8, device=D).add_(1)
            sync()
    for name in names or PAIRS:
        began, row = time.time(), TRUTH[name]
        try:
            torch.manual_seed(0)
            sides = [PAIRS[name](False), PAIRS[name](True)]
            for step in sides:
                for _ in range(4):
                    step()
            sync()
            if mode == "time":
                counts = [max(3, min(200, int(0.05 / max(seconds(step, 3), 1e-6)))) for step in sides]
                if name == "print_loss":
                    counts = [max(count // 10 * 10, 10) for count in counts]
                times = [[], []]
                for turn in range(10):
                    for side in (0, 1) if turn % 2 == 0 else (1, 0):
                        times[side].append(seconds(sides[side], counts[side]))
                results[name] = {"before_s": times[0], "after_s": times[1], "steps": counts}
                rows.append({**row, **{f"{word}_ms": [round(t * 1e3, 4) for t in ts] for word, ts in zip(("before", "after"), times)}})
                mid = [sorted(t)[len(t) // 2] for t in times]
                print(f"{name:16} {mid[0] * 1e3:9.3f} ms -> {mid[1] * 1e3:9.3f} ms  {mid[1] / mid[0] - 1:+.1%}  {time.time() - began:.1f} s", flush=True)
                (out / "times.json").write_text(json.dumps(results))
                (out / "truth.json").write_text("[\n " + ",\n ".join(json.dumps(row) for row in rows) + "\n]\n")
            else:
                sizes = []
                for word, step in zip(("before", "after"), sides):
                    path = out / f"{name}_{word}.json.gz"
                    recorded(step, row["style"], row["steps"], str(path))
                    sizes.append(f"{path.stat().st_size / 1e3:.0f} kB")
                print(f"{name:16} {', '.join(sizes)}  {time.time() - began:.1f} s", flush=True)
            if time.time() - began > LIMIT_S:
                print(name, "took too long", flush=True)
        except Exception as error:
            print(name, "failed", type(error).__name__, str(error)[:300], flush=True)
        sides = step = None
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
