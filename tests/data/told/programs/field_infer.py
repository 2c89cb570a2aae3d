"""Inference as several fields write it: speech, vision, language, molecules, proteins, benchmarks. Sizes are a CPU's."""
import collections
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function

from harness import blocks, execution, layer, program, record, said, D, sync

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def loaded(loader):
    "The batches of a loader, whose own random numbers are the host's."
    with said("host"):
        batches = iter(loader)
    yield from batches


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, memory=None, mask=None, causal=False):
        memory = x if memory is None else memory
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(memory)), split(self.v(memory)), attn_mask=mask, is_causal=causal)
        return self.o(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    "A transformer layer."

    def __init__(self, dim, heads=4, causal=False):
        super().__init__()
        self.causal = causal
        self.attn, self.norm1, self.norm2 = SelfAttention(dim, heads), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask=None):
        x = x + self.attn(self.norm1(x), mask=mask, causal=self.causal)
        return x + self.ff(self.norm2(x))


# -------------------------------------------------------------------------------------------------- 1. streaming speech
class ConformerBlock(nn.Module):
    def __init__(self, dim, heads=4, kernel=7, left=24):
        super().__init__()
        half = lambda: nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))
        self.ff1, self.ff2, self.left, self.kernel = half(), half(), left, kernel
        self.norm, self.attn, self.norm_conv, self.norm_out = nn.LayerNorm(dim), SelfAttention(dim, heads), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.pw1, self.dw = nn.Conv1d(dim, 2 * dim, 1), nn.Conv1d(dim, dim, kernel, groups=dim)
        self.bn, self.pw2 = nn.BatchNorm1d(dim), nn.Conv1d(dim, dim, 1)

    def forward(self, x, cache):
        x = x + 0.5 * self.ff1(x)
        y = self.norm(x)
        memory = y if cache.get("att") is None else torch.cat([cache["att"], y], 1)
        cache["att"] = memory[:, -self.left:]
        x = x + self.attn(y, memory)
        y = F.glu(self.pw1(self.norm_conv(x).transpose(1, 2)), 1)
        pad = cache.get("conv")
        y = torch.cat([y.new_zeros(y.shape[0], y.shape[1], self.kernel - 1) if pad is None else pad, y], 2)
        cache["conv"] = y[..., -(self.kernel - 1):]
        x = x + self.pw2(F.silu(self.bn(self.dw(y)))).transpose(1, 2)
        return self.norm_out(x + 0.5 * self.ff2(x))


@program(executions=19, layers=5, ranges="none", limits=["launches", "host", "synchronisation"],
         where="the conformer blocks, launched kernel by kernel for a chunk of a few frames; the tokens are fetched after each chunk",
         remedy="a CUDA graph for the chunk (its shapes are constant after the second one); serve several streams in a batch",
         note="3 utterances of 7, 5 and 7 chunks of 16 feature frames; caches of attention and convolution; greedy CTC by .tolist() each chunk; "
              "the fbank of a chunk is made on the host by torch.stft")
def conformer_streaming():
    "A streaming conformer (5 blocks): chunk by chunk with caches, greedy CTC."
    torch.set_grad_enabled(False)
    dim = 48

    class Recogniser(nn.Module):
        def __init__(self):
            super().__init__()
            self.sub = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
            self.proj, self.head = nn.Linear(8 * 20, dim), nn.Linear(dim, 64)
            self.encoders = nn.ModuleList(ConformerBlock(dim) for _ in range(5))

        def forward(self, feats, caches):
            x = self.proj(self.sub(feats[:, None]).transpose(1, 2).flatten(2))
            for block, cache in zip(self.encoders, caches):
                x = block(x, cache)
            return self.head(x).log_softmax(-1)

    class Stream:
        def __init__(self, model):
            self.model, self.caches, self.text, self.last = model, [{} for _ in model.encoders], [], 0

        def accept(self, pcm):
            with said("host"):
                spec = torch.stft(pcm, 400, 160, window=window, return_complex=True).abs().square()
                feats = (mel @ spec[:, :16]).clamp_min(1e-6).log().T[None]
            logp = self.model(feats.to(D()), self.caches)
            for token in logp.argmax(-1)[0].tolist():
                if token and token != self.last:
                    self.text.append(token)
                self.last = token

    mel, window = torch.rand(80, 201), torch.hann_window(400)
    model = Recogniser().to(D()).eval()
    blocks(model.encoders)
    warm = Stream(model)
    for _ in range(3):
        warm.accept(torch.randn(2800))
    utterances = [torch.randn(n, 2800) for n in (7, 5, 7)]
    with record():
        for utterance in utterances:
            with execution("utterance"):
                stream = Stream(model)
                for chunk in utterance:
                    with execution():
                        stream.accept(chunk)
                print(stream.text[:5])


# -------------------------------------------------------------------------------------------------- 2. test-time augmentation
class Patches(nn.Module):
    def __init__(self, dim, depth, side=64, patch=8, classes=100, cls=True):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.place = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, dim) * 0.02)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.norm, self.fc = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def features(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        x = x + self.place[:, :x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def forward(self, x):
        return self.fc(self.features(x)[:, 0])


class Folder(torch.utils.data.Dataset):
    def __init__(self, n, side=64):
        self.raw = np.random.default_rng(0).integers(0, 255, (n, side + 16, side + 16, 3), dtype=np.uint8)

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, i):
        image = self.raw[i][8:-8, 8:-8].astype(np.float32) / 255
        image = (image - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), i % 100


@program(executions=6, layers=4, kinds={"view": 30}, ranges="none", limits=["kernels", "launches", "host"],
         where="the five passes of the model over the views of a batch", remedy="stack the views into one batch; bf16; fewer views",
         note="6 batches of 8 images, the last of 3; 5 views each: as is, mirrored, 3 shifted; probabilities are averaged; correct count kept on the device, "
              "read once at the end. An owner would say 6 batches, or 30 passes.")
def deit_tta():
    "DeiT-like classifier over a DataLoader with test-time augmentation."
    model = Patches(48, 4).to(D()).eval()
    blocks(model.layers)
    views = [lambda x: x, lambda x: x.flip(-1)] + [lambda x, s=s: torch.roll(x, (s, -s), (2, 3)) for s in (2, 4, 6)]

    @torch.inference_mode()
    def evaluate(loader):
        correct, seen = torch.zeros((), device=D()), 0
        for images, targets in loaded(loader):
            with execution():
                images, targets = images.to(D(), non_blocking=True), targets.to(D(), non_blocking=True)
                probs = 0
                for view in views:
                    with execution("view"):
                        probs = probs + model(view(images)).softmax(-1)
                correct += ((probs / len(views)).argmax(-1) == targets).sum()
            seen += len(images)
        return correct.item() / seen

    loader = torch.utils.data.DataLoader(Folder(43), batch_size=8, num_workers=0)
    evaluate(torch.utils.data.DataLoader(Folder(11), batch_size=8))
    with record():
        print(f"top-1 {evaluate(loader):.3f}")


# -------------------------------------------------------------------------------------------------- 3. SAM: an image, many prompts
class TwoWay(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.own, self.to_image, self.to_token = SelfAttention(dim, 4), SelfAttention(dim, 4), SelfAttention(dim, 4)
        self.n1, self.n2, self.n3, self.n4 = (nn.LayerNorm(dim) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, q, keys):
        q = self.n1(q + self.own(q))
        q = self.n2(q + self.to_image(q, keys))
        q = self.n3(q + self.mlp(q))
        return q, self.n4(keys + self.to_token(keys, q))


@program(executions=3, layers=6, kinds={"encoder": 3, "prompt batch": 18}, ranges="record_function: set_image, predict",
         limits=["launches", "host", "synchronisation"], where="predict: the mask decoder runs 6 times an image with few kernels' work, each followed by .cpu()",
         remedy="more prompts a call; keep the masks on the device until the image is done",
         note="3 images; the encoder (6 layers) once an image, then 6 batches of 8 points through the prompt encoder and the mask decoder (2 two-way blocks); "
              "masks with a good score are fetched. An owner would say 3 images, or 3 encodings and 18 predictions.")
def sam_prompts():
    "Segment-anything-like automatic masks: one image encoding, a grid of prompts."
    torch.set_grad_enabled(False)
    dim = 48
    encoder = Patches(dim, 6, side=128, patch=16).to(D()).eval()
    two_way = nn.ModuleList(TwoWay(dim) for _ in range(2)).to(D())
    tokens = nn.Parameter(torch.randn(4, dim)).to(D())
    gauss = torch.randn(2, dim // 2).to(D())
    up = nn.Sequential(nn.ConvTranspose2d(dim, 16, 2, 2), nn.GroupNorm(1, 16), nn.GELU(), nn.ConvTranspose2d(16, 8, 2, 2), nn.GELU()).to(D())
    hyper = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 8)) for _ in range(3)).to(D())
    iou_head = nn.Linear(dim, 3).to(D())
    blocks([*encoder.layers, *two_way])

    class Predictor:
        def set_image(self, image):
            with record_function("set_image"), execution("call"):
                x = torch.from_numpy(image).to(D()).permute(2, 0, 1)[None].float().div(255).sub(0.5)
                self.features = encoder.features(x)[:, 1:]

        def predict(self, points):
            with record_function("predict"), execution("call"):
                xy = 2 * math.pi * (torch.from_numpy(points).to(D()) * 2 - 1) @ gauss
                prompt = torch.cat([xy.sin(), xy.cos()], -1)[:, None]
                q = torch.cat([tokens.expand(len(points), -1, -1), prompt], 1)
                keys = self.features.expand(len(points), -1, -1)
                for block in two_way:
                    q, keys = block(q, keys)
                picture = up(keys.transpose(1, 2).unflatten(2, (8, 8)))
                weights = torch.stack([h(q[:, 1 + i]) for i, h in enumerate(hyper)], 1)
                masks = (weights @ picture.flatten(2)).unflatten(2, picture.shape[-2:])
                scores = iou_head(q[:, 0])
                best = scores.argmax(1)
                masks = masks[torch.arange(len(masks), device=masks.device), best]
                return (F.interpolate(masks[:, None], size=(128, 128), mode="bilinear") > 0).cpu(), scores.amax(1).cpu()

    grid = np.stack(np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 6)), -1).reshape(-1, 2).astype(np.float32)
    predictor = Predictor()
    rng = np.random.default_rng(0)

    def generate(image, batches):
        predictor.set_image(image)
        found = []
        for at in range(0, 8 * batches, 8):
            masks, scores = predictor.predict(grid[at:at + 8])
            found += [m for m, s in zip(masks.numpy(), scores.tolist()) if s > 0]
        return found

    generate(rng.integers(0, 255, (128, 128, 3), dtype=np.uint8), 2)
    with record():
        for _ in range(3):
            with execution():
                generate(rng.integers(0, 255, (128, 128, 3), dtype=np.uint8), 6)


# -------------------------------------------------------------------------------------------------- 4. CLIP zero-shot
class TextTower(nn.Module):
    def __init__(self, dim, depth, vocabulary=300, out=32, length=16):
        super().__init__()
        self.words, self.place = nn.Embedding(vocabulary, dim), nn.Parameter(torch.zeros(length, dim))
        self.layers = nn.ModuleList(Layer(dim, causal=True) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, out, bias=False)

    def forward(self, text):
        x = self.words(text) + self.place[:text.shape[1]]
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.out(x[torch.arange(len(x), device=x.device), text.argmax(-1)])


@program(executions=17, layers=4, kinds={"class": 10, "batch of images": 7}, ranges="none", limits=["host", "launches"],
         where="building the classifier: the text tower runs once a class; then the image tower", remedy="all prompts of all classes in one batch",
         note="10 classes with 6 prompt templates each through the text tower (3 layers), averaged; then 7 batches of 8 images through the image tower (4 layers), "
              "top-1 and top-5 by .item() each batch. An owner would say 10 classes and 7 batches; 7 is acceptable.")
def clip_zero_shot():
    "CLIP zero-shot classification: classifier out of prompts, then images."
    torch.set_grad_enabled(False)
    image_tower, text_tower = Patches(48, 4, classes=32).to(D()).eval(), TextTower(32, 3).to(D()).eval()
    blocks([*image_tower.layers, *text_tower.layers])
    templates = ["a photo of a {}.", "a bad photo of a {}.", "a drawing of a {}.", "a {} in a video game.", "art of the {}.", "a small {}."]
    names = ["tench", "goldfish", "shark", "ray", "hen", "ostrich", "finch", "junco", "robin", "jay"]

    def tokenize(texts):
        with said("host"):
            ids = torch.zeros(len(texts), 16, dtype=torch.long)
            for row, text in zip(ids, texts):
                codes = [ord(c) % 290 + 1 for c in text][:15] + [299]
                row[:len(codes)] = torch.tensor(codes)
        return ids

    def classifier(classnames):
        weights = []
        for name in classnames:
            with execution():
                texts = tokenize([t.format(name) for t in templates]).to(D())
                embedding = F.normalize(text_tower(texts), dim=-1).mean(0)
                weights.append(embedding / embedding.norm())
        return torch.stack(weights, 1)

    def run(loader, weights):
        top1 = top5 = n = 0
        for images, target in loader:
            with execution(), execution("images"):
                images, target = images.to(D()), target.to(D())
                logits = 100.0 * F.normalize(image_tower(images), dim=-1) @ weights
                hit = logits.topk(5, 1).indices.eq(target[:, None])
                top1 += hit[:, :1].sum().item()
                top5 += hit.sum().item()
                n += len(images)
        return top1 / n, top5 / n

    loader = [(torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))) for _ in range(7)]
    run(loader[:1], classifier(names[:5]))
    with record():
        print(run(loader, classifier(names)))


# -------------------------------------------------------------------------------------------------- 5. continuous batching
class Decoder(nn.Module):
    def __init__(self, vocabulary, dim, depth, slots, context, heads=4):
        super().__init__()
        self.heads = heads
        self.embed, self.place = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
        self.layers = nn.ModuleList(nn.ModuleDict(dict(
            norm1=nn.LayerNorm(dim), qkv=nn.Linear(dim, 3 * dim), out=nn.Linear(dim, dim), norm2=nn.LayerNorm(dim),
            gate=nn.Linear(dim, 2 * dim), up=nn.Linear(dim, 2 * dim), down=nn.Linear(2 * dim, dim))) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary)
        self.register_buffer("cache", torch.zeros(depth, 2, slots, heads, context, dim // heads))

    def forward(self, ids, slots, positions):
        x = self.embed(ids) + self.place(positions)
        longest = int(positions.max()) + 1 if ids.shape[1] > 1 else self.cache.shape[-2]
        reach = torch.arange(longest, device=ids.device) <= positions[..., None]
        for i, m in enumerate(self.layers):
            q, k, v = m["qkv"](m["norm1"](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
            self.cache[i, 0, slots[:, None], :, positions] = k
            self.cache[i, 1, slots[:, None], :, positions] = v
            keys, values = self.cache[i, 0, slots, :, :longest], self.cache[i, 1, slots, :, :longest]
            y = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=reach[:, None])
            x = x + m["out"](y.transpose(1, 2).flatten(2))
            h = m["norm2"](x)
            x = x + m["down"](F.silu(m["gate"](h)) * m["up"](h))
        return self.head(self.norm(x[:, -1]))


@program(executions=22, layers=4, kinds={"prefill": 7, "decode": 15}, ranges="record_function: schedule, execute_model, process_outputs",
         limits=["launches", "host", "synchronisation"], where="execute_model of the decode steps: few sequences a step, and every step's tokens are fetched",
         remedy="CUDA graphs for the batch sizes of decode; asynchronous scheduling (the next step is planned while this one runs); more requests at once",
         note="an engine loop as vLLM's: a step either prefills one waiting request or decodes all running ones; requests arrive while it runs, end by length; "
              "how many steps there are follows from the arrivals. No module is a layer: the layers are a loop over ModuleDicts.")
def continuous_batching():
    "A serving engine: waiting and running requests, prefill or decode each step."
    torch.set_grad_enabled(False)
    model = Decoder(256, 48, 4, 8, 96).to(D()).eval()
    for m in model.layers:  # a ModuleDict has no call: what stands between a first and a last module
        marks = []
        m["norm1"].register_forward_pre_hook(lambda *_, marks=marks: (marks.append(layer("block")), marks[-1].__enter__(), None)[2])
        m["down"].register_forward_hook(lambda *_, marks=marks: marks.pop().__exit__(None, None, None))

    class Engine:
        def __init__(self):
            self.waiting, self.running, self.free = collections.deque(), [], list(range(8))

        def add(self, prompt, limit):
            self.waiting.append({"tokens": prompt, "left": limit})

        def step(self):
            with record_function("schedule"):
                is_prefill = bool(self.waiting and self.free)
                if is_prefill:
                    request = self.waiting.popleft()
                    request["slot"] = self.free.pop()
                    batch, ids, at = [request], [request["tokens"]], [list(range(len(request["tokens"])))]
                else:
                    batch = list(self.running)
                    ids, at = [r["tokens"][-1:] for r in batch], [[len(r["tokens"]) - 1] for r in batch]
                ids, at, slots = (torch.tensor(x).to(D(), non_blocking=True) for x in (ids, at, [r["slot"] for r in batch]))
            with record_function("execute_model"):
                logits = model(ids, slots, at)
                sampled = (logits / 0.7).softmax(-1).argmax(-1)
            with record_function("process_outputs"):
                for request, token in zip(batch, sampled.tolist()):
                    request["tokens"].append(token)
                    request["left"] -= 1
                self.running = [r for r in self.running + (batch if is_prefill else []) if r["left"] > 0]
                self.free += [r["slot"] for r in batch if r["left"] <= 0]

    def serve(arrivals):
        engine, now = Engine(), 0
        while arrivals or engine.waiting or engine.running:
            while arrivals and arrivals[0][0] <= now:
                _, length, limit = arrivals.pop(0)
                engine.add([random.randrange(256) for _ in range(length)], limit)
            if engine.waiting or engine.running:
                with execution():
                    engine.step()
            now += 1

    random.seed(0)
    serve([(0, 9, 3), (1, 20, 2)])
    with record():
        serve([(0, 12, 8), (0, 30, 6), (3, 7, 9), (6, 41, 4), (11, 22, 7), (12, 5, 5), (20, 18, 3)])


# -------------------------------------------------------------------------------------------------- 6. evaluation harness
class Causal(nn.Module):
    def __init__(self, vocabulary, dim, depth, context=128):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
        self.layers = nn.ModuleList(Layer(dim, causal=True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@program(executions=14, layers=5, kinds={"task": 3}, ranges="none", limits=["synchronisation", "launches", "host"],
         where="after each batch: log-likelihoods gathered and fetched request by request (two waits a request)",
         remedy="gather the whole batch's log-likelihoods at once and fetch them once a batch",
         note="three tasks, requests of each sorted by length, longest first, in batches of 8 (the last one smaller): 5 + 4 + 5 batches. An owner would say 14 batches in 3 tasks.")
def lm_eval_harness():
    "Log-likelihood evaluation of a language model over three tasks, as lm-evaluation-harness has it."
    model = Causal(200, 48, 5).to(D()).eval()
    blocks(model.layers)

    @torch.no_grad()
    def loglikelihood(requests, batch_size=8):
        answers = []
        requests = sorted(requests, key=lambda r: -len(r[0]) - len(r[1]))
        for at in range(0, len(requests), batch_size):
            with execution():
                chunk = requests[at:at + batch_size]
                longest = max(len(c) + len(t) - 1 for c, t in chunk)
                with said("host"):
                    inputs = torch.stack([F.pad(torch.tensor((c + t)[:-1]), (0, longest - len(c) - len(t) + 1)) for c, t in chunk])
                logits = F.log_softmax(model(inputs.to(D())), -1)
                for (context, target), row in zip(chunk, logits):
                    row = row[len(context) - 1:len(context) + len(target) - 1]
                    wanted = torch.tensor(target).to(D(), non_blocking=True)
                    is_greedy = (row.argmax(-1) == wanted).all()
                    answers.append((row.gather(1, wanted[:, None]).sum().item(), bool(is_greedy)))
        return answers

    rng = random.Random(3)
    words = lambda low, high: [rng.randrange(200) for _ in range(rng.randint(low, high))]
    tasks = {"arc_easy": [(words(20, 40), words(1, 6)) for _ in range(36)], "hellaswag": [(words(30, 60), words(8, 16)) for _ in range(28)],
             "lambada": [(words(50, 90), words(1, 2)) for _ in range(37)]}
    loglikelihood(tasks["arc_easy"][:4])
    with record():
        for name, requests in tasks.items():
            with execution("task"):
                answers = loglikelihood(requests)
                print(name, sum(a for a, _ in answers) / len(answers))


# -------------------------------------------------------------------------------------------------- 7. a benchmark script
@program(executions=66, layers=2, kinds={"warm-up": 18, "timed": 48}, ranges="none", limits=["kernels", "launches", "host"],
         where="attention: written out (a matrix of all scores) it takes most at 192 tokens", remedy="scaled_dot_product_attention, which the script shows",
         note="6 settings (2 ways of attention by 3 lengths), each 3 warm-up calls, a wait, 8 timed calls, a wait; two layers a call. An owner would say 66 calls, 18 of them warm-up.")
def bench_attention():
    "A benchmark: warm-up and timed loops over two kinds of attention and three lengths."
    torch.set_grad_enabled(False)

    class Manual(nn.Module):
        def __init__(self, dim, heads=4):
            super().__init__()
            self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
            return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    class Fused(Manual):
        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def timed(f, x, warmup=3, repeats=8):
        for _ in range(warmup):
            with execution():
                f(x)
        sync()
        start = time.perf_counter()
        for _ in range(repeats):
            with execution():
                f(x)
        sync()
        return (time.perf_counter() - start) / repeats * 1e3

    cases = {kind.__name__: nn.Sequential(kind(64), nn.LayerNorm(64), kind(64)).to(D()) for kind in (Manual, Fused)}
    for net in cases.values():
        blocks(m for m in net if isinstance(m, Manual))
        blocks((m for m in net.modules() if isinstance(m, (nn.Linear, nn.LayerNorm))), "operator")
    cases["Manual"](torch.randn(1, 8, 64, device=D()))
    with record():
        for length in (48, 96, 192):
            x = torch.randn(4, length, 64, device=D())
            for name, net in cases.items():
                print(f"{name:8} {length:5} {timed(net, x):8.3f} ms")


# -------------------------------------------------------------------------------------------------- 8. weight-only int8
class Int8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (linear.weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.squeeze(1))
        self.bias = linear.bias

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scale + self.bias


@program(executions=14, layers=6, ranges="record_function: request", limits=["host", "launches", "waiting"],
         where="between the requests: tokenising in Python; within: turning int8 weights into floats before every product",
         remedy="a kernel that multiplies int8 weights directly; batch the requests",
         note="14 requests one by one, texts of other lengths (padded to multiples of 16), classes by .cpu(); a tokenizer in plain Python before each")
def int8_requests():
    "A classifier of texts with weight-only int8 linear layers, request by request."
    torch.set_grad_enabled(False)
    trunk = nn.ModuleList(Layer(48) for _ in range(6))

    def quantize(module):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
            else:
                quantize(child)

    quantize(trunk)
    words, head = nn.Embedding(500, 48).to(D()), nn.Linear(48, 5).to(D())
    blocks(trunk.to(D()))
    pieces = {f"{a}{b}": i for i, (a, b) in enumerate((a, b) for a in "abcdefghijklmnopqrst" for b in "aeioulnrs ")}

    def tokenize(text):
        ids, at = [], 0
        while at < len(text):
            for size in (6, 5, 4, 3, 2, 1):
                if size <= 2 or text[at:at + size] in pieces:
                    ids.append(pieces.get(text[at:at + 2], 0))
                    at += 2
                    break
        return ids

    def classify(text):
        ids = tokenize(text)
        ids += [0] * (-len(ids) % 16)
        with record_function("request"):
            x = words(torch.tensor([ids]).to(D()))
            for layer in trunk:
                x = layer(x)
            return head(x.mean(1)).softmax(-1).cpu()

    rng = random.Random(5)
    texts = ["".join(rng.choice("abcdeiou lnrst") for _ in range(rng.randint(60, 900))) for _ in range(14)]
    classify(texts[0])
    with record():
        for text in texts:
            with execution():
                print(classify(text).argmax().item(), end=" ")


# -------------------------------------------------------------------------------------------------- 9. recycling
class PairBlock(nn.Module):
    "Outer product, triangle multiplication both ways, attention with a bias out of the pairs."

    def __init__(self, single, pair):
        super().__init__()
        self.left, self.right, self.outer = nn.Linear(single, 8), nn.Linear(single, 8), nn.Linear(64, pair)
        self.triangles = nn.ModuleList(nn.ModuleDict(dict(norm=nn.LayerNorm(pair), a=nn.Linear(pair, pair), b=nn.Linear(pair, pair), gate=nn.Linear(pair, pair),
                                                          out=nn.Linear(pair, pair))) for _ in range(2))
        self.bias, self.attn = nn.Linear(pair, 4), SelfAttention(single, 4)
        self.norm_s, self.ff = nn.LayerNorm(single), nn.Sequential(nn.LayerNorm(single), nn.Linear(single, 4 * single), nn.ReLU(), nn.Linear(4 * single, single))

    def forward(self, s, z):
        s = s + self.attn(self.norm_s(s)[None], mask=self.bias(z).permute(2, 0, 1)[None])[0]
        s = s + self.ff(s)
        z = z + self.outer(torch.einsum("ia,jb->ijab", self.left(s), self.right(s)).flatten(2))
        for t, way in zip(self.triangles, ("ikc,jkc->ijc", "kic,kjc->ijc")):
            y = t["norm"](z)
            z = z + torch.sigmoid(t["gate"](y)) * t["out"](torch.einsum(way, t["a"](y), t["b"](y)))
        return s, z


@program(executions=9, layers=3, kinds={"protein": 3, "recycle": 9}, ranges="record_function: 'recycle 2' (its number)", limits=["kernels", "launches"],
         where="the pair blocks: triangle multiplications grow with the third power of the length", remedy="bf16; compile; early stop of recycling",
         note="3 proteins of 40, 72 and 56 residues, each 3 recycles of 3 pair blocks and a structure module of 3 turns of the same weights; coordinates by .cpu() once a protein. "
              "An owner would say 3 proteins, or 9 recycles.")
def evoformer_recycling():
    "Structure prediction with recycling, protein by protein."
    single, pair = 32, 16

    class Fold(nn.Module):
        def __init__(self):
            super().__init__()
            self.aa, self.rel = nn.Embedding(21, single), nn.Embedding(65, pair)
            self.trunk = nn.ModuleList(PairBlock(single, pair) for _ in range(3))
            self.norm_s, self.norm_z, self.dist = nn.LayerNorm(single), nn.LayerNorm(pair), nn.Embedding(15, pair)
            self.ipa, self.move = Layer(single), nn.Linear(single, 6)

        def structure(self, s):
            x = torch.zeros(len(s), 3, device=s.device)
            for _ in range(3):
                s = self.ipa(s[None])[0]
                turn, shift = self.move(s).chunk(2, -1)
                x = x + torch.linalg.cross(turn, x) + shift
            return x

        @torch.no_grad()
        def forward(self, sequence, recycles=3):
            at = torch.arange(len(sequence), device=sequence.device)
            relative = (at[:, None] - at).clamp(-32, 32) + 32
            s_prev = z_prev = x = 0
            for r in range(recycles):
                with record_function(f"recycle {r}"), execution():
                    s, z = self.aa(sequence) + s_prev, self.rel(relative) + z_prev
                    for block in self.trunk:
                        s, z = block(s, z)
                    x = self.structure(s)
                    bins = torch.bucketize(torch.cdist(x, x), torch.linspace(2, 20, 14, device=x.device))
                    s_prev, z_prev = self.norm_s(s), self.norm_z(z) + self.dist(bins)
            return x

    model = Fold().to(D()).eval()
    blocks([*model.trunk, model.ipa])
    model(torch.randint(0, 21, (20,), device=D()), 1)
    proteins = [torch.randint(0, 21, (length,)) for length in (40, 72, 56)]
    with record():
        for sequence in proteins:
            with execution("protein"):
                print(model(sequence.to(D())).cpu().numpy().shape)


# -------------------------------------------------------------------------------------------------- 10. optical flow
@program(executions=5, layers=None, kinds={"pair of frames": 5, "update": 50}, ranges="none", limits=["launches", "host", "kernels"],
         where="the update block: 10 turns a pair, each a lookup in the correlation pyramid and a convolution GRU", remedy="fewer turns; CUDA graph (constant shapes); compile",
         note="5 pairs of frames; features of both frames, context, a pyramid of correlations, 10 turns of the update block, flow fetched once a pair; frames come as uint8 from the host")
def raft_flow():
    "RAFT-like optical flow over a video."
    torch.set_grad_enabled(False)

    class Residual(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.c1, self.c2 = nn.Conv2d(i, o, 3, s, 1), nn.Conv2d(o, o, 3, 1, 1)
            self.n1, self.n2, self.down = nn.InstanceNorm2d(o), nn.InstanceNorm2d(o), nn.Conv2d(i, o, 1, s)

        def forward(self, x):
            y = F.relu(self.n1(self.c1(x)))
            return F.relu(self.down(x) + F.relu(self.n2(self.c2(y))))

    encoder = lambda o: nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), Residual(16, 16, 1), Residual(16, 24, 2), Residual(24, 32, 2), nn.Conv2d(32, o, 1))

    class Update(nn.Module):
        def __init__(self, h=24):
            super().__init__()
            self.motion = nn.Sequential(nn.Conv2d(3 * 25 + 2, 32, 3, 1, 1), nn.ReLU())
            self.z, self.r, self.q = (nn.Conv2d(h + 24 + 32, h, 3, 1, 1) for _ in range(3))
            self.flow = nn.Sequential(nn.Conv2d(h, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 2, 3, 1, 1))

        def forward(self, h, context, corr, flow):
            x = torch.cat([context, self.motion(torch.cat([corr, flow], 1))], 1)
            hx = torch.cat([h, x], 1)
            z, r = torch.sigmoid(self.z(hx)), torch.sigmoid(self.r(hx))
            h = (1 - z) * h + z * torch.tanh(self.q(torch.cat([r * h, x], 1)))
            return h, self.flow(h)

    fnet, cnet, update = encoder(32).to(D()).eval(), encoder(48).to(D()).eval(), Update().to(D()).eval()
    blocks([*(m for net in (fnet, cnet) for m in net if isinstance(m, Residual)), update])
    blocks([update], "turn")
    blocks((m for net in (fnet, cnet, update) for m in net.modules() if isinstance(m, nn.Conv2d)), "convolution")

    def lookup(pyramid, coords):
        d = torch.arange(-2, 3, device=coords.device)
        window = torch.stack(torch.meshgrid(d, d, indexing="ij"), -1).view(1, 5, 5, 2)
        out = []
        for i, corr in enumerate(pyramid):
            at = coords.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) / 2**i + window
            size = torch.tensor([corr.shape[-1], corr.shape[-2]], device=at.device)
            out.append(F.grid_sample(corr, 2 * at / size - 1, align_corners=False).view(*coords.shape[-2:], 25))
        return torch.cat(out, -1).permute(2, 0, 1)[None]

    def estimate(a, b, turns=10):
        a, b = (torch.from_numpy(f).to(D()).permute(2, 0, 1)[None].float() / 127.5 - 1 for f in (a, b))
        fa, fb = fnet(torch.cat([a, b])).chunk(2)
        h, context = cnet(a).chunk(2, 1)
        h, context = torch.tanh(h), torch.relu(context)
        corr = (fa.flatten(2).transpose(1, 2) @ fb.flatten(2) / 32**0.5).view(-1, 1, *fb.shape[-2:])
        pyramid = [corr]
        for _ in range(2):
            pyramid.append(F.avg_pool2d(pyramid[-1], 2))
        height, width = fa.shape[-2:]
        grid = torch.stack(torch.meshgrid(torch.arange(width, device=a.device), torch.arange(height, device=a.device), indexing="xy"))[None].float()
        coords = grid.clone()
        for _ in range(turns):
            h, delta = update(h, context, lookup(pyramid, coords), coords - grid)
            coords = coords + delta
        return F.interpolate(8 * (coords - grid), scale_factor=8, mode="bilinear")[0].cpu()

    video = np.random.default_rng(0).integers(0, 255, (6, 64, 96, 3), dtype=np.uint8)
    estimate(video[0], video[1], 2)
    with record():
        for before, after in zip(video, video[1:]):
            with execution():
                flow = estimate(before, after)
        print(flow.abs().mean())


# -------------------------------------------------------------------------------------------------- 11. text to speech
@program(executions=7, layers=6, kinds={"sentence": 7, "model": 14}, ranges="record_function: acoustic, vocoder", limits=["kernels"],
         where="the vocoder: convolutions at the sampling rate", remedy="channels-last or half precision of the vocoder; several sentences a batch",
         note="7 sentences of other lengths; FastSpeech-like: 3 encoder layers, durations (repeat_interleave waits), 3 decoder layers; then a HiFi-GAN of 3 upsamplings with residual "
              "blocks; the wave is fetched. An owner would say 7 sentences.")
def tts_vocoder():
    "Text to speech: acoustic model and vocoder, sentence by sentence."
    dim = 32

    class Acoustic(nn.Module):
        def __init__(self):
            super().__init__()
            self.phones = nn.Embedding(60, dim)
            self.encoder, self.decoder = (nn.ModuleList(Layer(dim) for _ in range(3)) for _ in range(2))
            self.duration, self.mel = nn.Linear(dim, 1), nn.Linear(dim, 40)

        def forward(self, ids):
            x = self.phones(ids)
            for layer in self.encoder:
                x = layer(x)
            frames = (self.duration(x).sigmoid() * 4 + 2).round().long().squeeze(-1)
            x = torch.repeat_interleave(x[0], frames[0], dim=0)[None]
            for layer in self.decoder:
                x = layer(x)
            return self.mel(x)

    class ResBlock(nn.Module):
        def __init__(self, c, k):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv1d(c, c, k, dilation=d, padding=d * (k - 1) // 2) for d in (1, 3, 5))

        def forward(self, x):
            for conv in self.convs:
                x = x + conv(F.leaky_relu(x, 0.1))
            return x

    class Vocoder(nn.Module):
        def __init__(self):
            super().__init__()
            c = (32, 16, 8, 4)
            self.pre, self.post = nn.Conv1d(40, c[0], 7, padding=3), nn.Conv1d(c[-1], 1, 7, padding=3)
            self.ups = nn.ModuleList(nn.ConvTranspose1d(a, b, 8, 4, 2) for a, b in zip(c, c[1:]))
            self.res = nn.ModuleList(nn.ModuleList(ResBlock(b, k) for k in (3, 7)) for b in c[1:])

        def forward(self, mel):
            x = self.pre(mel.transpose(1, 2))
            for up, group in zip(self.ups, self.res):
                x = up(F.leaky_relu(x, 0.1))
                x = sum(block(x) for block in group) / len(group)
            return torch.tanh(self.post(F.leaky_relu(x)))

    acoustic, vocoder = Acoustic().to(D()).eval(), Vocoder().to(D()).eval()
    blocks([*acoustic.encoder, *acoustic.decoder, *(b for group in vocoder.res for b in group)])
    blocks([*acoustic.encoder, *acoustic.decoder, *(m for m in vocoder.modules() if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d)))], "convolution")

    @torch.inference_mode()
    def speak(text):
        ids = torch.tensor([[ord(c) % 60 for c in text]]).to(D())
        with record_function("acoustic"), execution("model"):
            mel = acoustic(ids)
        with record_function("vocoder"), execution("model"):
            return vocoder(mel).squeeze().cpu().numpy()

    sentences = ["The birch canoe slid on the smooth planks.", "Glue the sheet.", "It is easy to tell the depth of a well.", "These days a chicken leg is a rare dish.",
                 "Rice is often served in round bowls.", "The juice of lemons makes fine punch.", "Four hours of steady work faced us."]
    speak("warm up")
    with record():
        waves = []
        for sentence in sentences:
            with execution():
                waves.append(speak(sentence))
        print(sum(map(len, waves)))


# -------------------------------------------------------------------------------------------------- 12. molecular dynamics
@program(executions=20, layers=3, ranges="none", limits=["host", "launches"],
         where="the steps: a small network and its gradient by positions, launched kernel by kernel; every 5 steps a neighbour list on the host",
         remedy="CUDA graph of energy and forces (padded neighbour list); neighbour list on the GPU; torch.compile",
         note="20 steps of velocity Verlet, forces by autograd of the energy; energies printed every 5 steps; 3 interactions. Backward belongs to each step.")
def schnet_md():
    "Molecular dynamics with a SchNet-like potential."
    n, dim, cutoff = 60, 32, 2.2

    class Interaction(nn.Module):
        def __init__(self):
            super().__init__()
            self.filter = nn.Sequential(nn.Linear(16, dim), nn.Softplus(), nn.Linear(dim, dim))
            self.lin1, self.lin2, self.lin3 = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim), nn.Linear(dim, dim)

        def forward(self, x, rbf, envelope, i, j):
            w = self.filter(rbf) * envelope[:, None]
            y = torch.zeros_like(x).index_add(0, i, self.lin1(x)[j] * w)
            return x + self.lin3(F.softplus(self.lin2(y)))

    class SchNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.atoms, self.interactions = nn.Embedding(10, dim), nn.ModuleList(Interaction() for _ in range(3))
            self.out = nn.Sequential(nn.Linear(dim, dim), nn.Softplus(), nn.Linear(dim, 1))
            self.register_buffer("centres", torch.linspace(0, cutoff, 16))

        def forward(self, z, pos, i, j):
            d = (pos[i] - pos[j]).norm(dim=-1)
            rbf = torch.exp(-10 * (d[:, None] - self.centres) ** 2)
            envelope = 0.5 * (torch.cos(math.pi * d / cutoff) + 1) * (d < cutoff)
            x = self.atoms(z)
            for interaction in self.interactions:
                x = interaction(x, rbf, envelope, i, j)
            return self.out(x).sum()

    model = SchNet().to(D()).requires_grad_(False)
    blocks(model.interactions)
    z = torch.randint(0, 10, (n,), device=D())

    def neighbours(pos):
        p = pos.detach().cpu().numpy()
        pairs = [(a, b) for a in range(n) for b in range(n) if a != b and ((p[a] - p[b]) ** 2).sum() < (cutoff + 0.3) ** 2]
        with said("host"):
            pairs = torch.tensor(pairs).T.contiguous()
        return pairs.to(D())

    def forces(pos, pairs):
        pos = pos.detach().requires_grad_()
        energy = model(z, pos, *pairs)
        return energy.detach(), -torch.autograd.grad(energy, pos)[0]

    def simulate(pos, steps, dt=1e-3):
        v, pairs = torch.zeros_like(pos), neighbours(pos)
        energy, f = forces(pos, pairs)
        yield
        for step in range(steps):
            with execution():
                if step % 5 == 0:
                    pairs = neighbours(pos)
                v = v + 0.5 * dt * f
                pos = pos + dt * v
                energy, f = forces(pos, pairs)
                v = v + 0.5 * dt * f
                if step % 5 == 4:
                    print(f"{step:4} {energy.item():.4f} {0.5 * v.square().sum().item():.2e}")
        yield

    for _ in simulate(torch.rand(n, 3, device=D()) * 5, 2):
        pass
    run = simulate(torch.rand(n, 3, device=D()) * 5, 20)
    next(run)
    with record():
        next(run)


# -------------------------------------------------------------------------------------------------- 13. an ensemble
@program(executions=9, layers=6, kinds={"window": 9, "member": 36}, ranges="none", limits=["launches", "host"],
         where="four small networks of 6 blocks, one after the other, for each window", remedy="torch.func.vmap over the members (stacked weights); several windows a batch",
         note="an ensemble of 4 N-BEATS (6 blocks of 4 linear layers), median of the members, backtest over 9 windows that roll on; the forecast is fetched each window. "
              "An owner would say 9 windows, or 36 member passes.")
def nbeats_ensemble():
    "Backtest of an ensemble of N-BEATS."
    look, ahead, width = 96, 24, 48

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = nn.Sequential(*[m for i in range(4) for m in (nn.Linear(look if i == 0 else width, width), nn.ReLU())])
            self.theta_b, self.theta_f = nn.Linear(width, look), nn.Linear(width, ahead)

        def forward(self, x):
            h = self.stack(x)
            return self.theta_b(h), self.theta_f(h)

    class NBeats(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(6))

        def forward(self, x):
            forecast = 0
            for block in self.blocks:
                back, ahead_ = block(x)
                x, forecast = x - back, forecast + ahead_
            return forecast

    members = [NBeats().to(D()).eval() for _ in range(4)]
    blocks(b for m in members for b in m.blocks)
    blocks((m for one in members for m in one.modules() if isinstance(m, nn.Linear)), "linear")
    series = np.random.default_rng(0).normal(size=(32, 400)).cumsum(1).astype(np.float32)

    @torch.no_grad()
    def predict(window):
        x = torch.from_numpy(window).to(D())
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        x = (x - mean) / std
        each = []
        for member in members:
            with execution("member"):
                each.append(member(x))
        return (torch.stack(each).median(0).values * std + mean).cpu().numpy()

    predict(series[:, :look])
    with record():
        errors = []
        for start in range(0, 9 * ahead, ahead):
            with execution():
                forecast = predict(series[:, start:start + look])
                errors.append(np.abs(forecast - series[:, start + look:start + look + ahead]).mean())
        print(np.mean(errors))


# -------------------------------------------------------------------------------------------------- 14. explanations
@program(executions=8, layers=6, ranges="none", limits=["launches", "host", "synchronisation", "kernels"],
         where="forward and backward of a convolution network on one picture at a time", remedy="batch the pictures; hooks only on the last stage (no gradient of the rest)",
         note="8 pictures, each forward, the class by .item(), backward of its score, a weighted map fetched: a step has a backward but no optimiser.")
def gradcam_explain():
    "Grad-CAM for pictures one by one, hooks on the last stage of a residual network."
    class Bottle(nn.Module):
        def __init__(self, i, o, s=1):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                                      nn.Conv2d(o, 2 * o, 1, bias=False), nn.BatchNorm2d(2 * o))
            self.short = nn.Sequential(nn.Conv2d(i, 2 * o, 1, s, bias=False), nn.BatchNorm2d(2 * o)) if s > 1 or i != 2 * o else nn.Identity()

        def forward(self, x):
            return F.relu(self.body(x) + self.short(x))

    net = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Bottle(16, 8), Bottle(16, 8), Bottle(16, 16, 2), Bottle(32, 16),
                        Bottle(32, 32, 2), Bottle(64, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100)).to(D()).eval()
    blocks(m for m in net if isinstance(m, Bottle))
    blocks((m for m in net.modules() if isinstance(m, nn.Conv2d)), "convolution")
    kept = {}
    net[9].register_forward_hook(lambda _, __, out: kept.update(activation=out))
    net[9].register_full_backward_hook(lambda _, __, out: kept.update(gradient=out[0]))

    def explain(picture):
        x = torch.from_numpy(picture).to(D()).permute(2, 0, 1)[None].float() / 255
        net.zero_grad()
        scores = net(x)
        label = scores.argmax(1).item()
        scores[0, label].backward()
        weights = kept["gradient"].mean((2, 3), keepdim=True)
        cam = F.relu((weights * kept["activation"]).sum(1, keepdim=True))
        cam = F.interpolate(cam, x.shape[-2:], mode="bilinear", align_corners=False)
        return label, (cam / cam.max()).detach().cpu().numpy()

    pictures = np.random.default_rng(0).integers(0, 255, (9, 64, 64, 3), dtype=np.uint8)
    explain(pictures[8])
    with record():
        for picture in pictures[:8]:
            with execution():
                label, cam = explain(picture)
