"""Four programs: a Conformer that listens in chunks, faces against a gallery, ProteinMPNN, DQN on many environments. Sizes are a CPU's. The truth was
written down before any tool read a recording."""
import copy
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import record_function

from harness import D, blocks, execution, program, record


# -------------------------------------------------------------------------------------------------- 1. a Conformer in chunks
@program(executions=9, layers=4, kinds={"chunk": 9, "utterance": 2}, ranges="none",
         limits="host", note="2 utterances of 5 and 4 chunks; each chunk goes through the network with the caches of the chunk before, and its best symbols are read at once: a chunk is one execution, an utterance is acceptable. "
              "Layers: the 4 Conformer blocks (36 calls).")
def conformer_stream():
    "Live captions: log-mel of a chunk, a Conformer with caches for attention and convolution, greedy CTC with the text so far."
    device = D()
    d, heads, kernel, left = 40, 4, 7, 16

    class Forward(nn.Sequential):
        def __init__(self):
            super().__init__(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))

    class Conformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ff1, self.ff2, self.na, self.nc, self.last = Forward(), Forward(), nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
            self.q, self.kv, self.o, self.bias = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d), nn.Parameter(torch.randn(heads, 1, 64) / 10)
            self.p1, self.depth, self.bn, self.p2 = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, kernel, groups=d), nn.BatchNorm1d(d), nn.Conv1d(d, d, 1)

        def forward(self, x, cache):
            x = x + 0.5 * self.ff1(x)
            h = self.na(x)
            keys = torch.cat([cache[0], h], 1)
            q = self.q(h).unflatten(-1, (heads, -1)).transpose(1, 2)
            k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in self.kv(keys).chunk(2, -1))
            score = (q @ k.transpose(-1, -2) + self.bias[:, :, : k.shape[2]]) / math.sqrt(d / heads)
            x = x + self.o((score.softmax(-1) @ v).transpose(1, 2).flatten(2))
            h = F.glu(self.p1(self.nc(x).transpose(1, 2)), 1)
            h = torch.cat([cache[1], h], 2)
            x = x + self.p2(F.silu(self.bn(self.depth(h)))).transpose(1, 2)
            x = x + 0.5 * self.ff2(x)
            return self.last(x), (keys[:, -left:], h[:, :, -(kernel - 1):])

    class Captions(nn.Module):
        def __init__(self):
            super().__init__()
            self.sub = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
            self.into, self.layers, self.ctc = nn.Linear(8 * 10, d), nn.ModuleList(Conformer() for _ in range(4)), nn.Linear(d, 60)

        def forward(self, mel, caches):
            x = self.into(self.sub(mel[:, None]).transpose(1, 2).flatten(2))
            for k, one in enumerate(self.layers):
                x, caches[k] = one(x, caches[k])
            return self.ctc(x).log_softmax(-1)

    model = Captions().to(device).eval()
    blocks(model.layers)
    bank, window = torch.rand(40, 101).to(device), torch.hann_window(200).to(device)

    @torch.inference_mode()
    def listen(pcm, size=3200):
        caches = [(torch.zeros(1, left, d, device=device), torch.zeros(1, d, kernel - 1, device=device)) for _ in range(4)]
        text, last = [], 0
        for start in range(0, len(pcm), size):
            with execution("chunk"):
                piece = torch.from_numpy(pcm[start:start + size].astype(np.float32) / 32768).to(device)
                power = torch.stft(piece, 200, 100, window=window, return_complex=True).abs() ** 2
                mel = torch.log((bank @ power).clamp(min=1e-6)).T[None, :32]
                best = model(mel, caches)[0].argmax(-1).tolist()
                for symbol in best:
                    if symbol not in (last, 0):
                        text.append(chr(64 + symbol))
                    last = symbol
        return "".join(text)

    rng = np.random.default_rng(2)
    voice = lambda n: rng.integers(-3000, 3000, n * 3200)
    listen(voice(1))
    with record(shapes=True):
        for n in (5, 4):
            with execution("utterance"):
                listen(voice(n))
            time.sleep(0.002)


# -------------------------------------------------------------------------------------------------- 2. faces
@program(executions=10, layers=6, kinds={"photo": 10, "network pass": 19}, ranges="record_function, nested: 'photo_0012.jpg' around a photo, in it 'detect', 'align+embed', 'match'",
         limits="host", note="10 photos with 2, 0, 3, 1, 2, 4, 1, 2, 1, 3 faces: a photo is one execution; it calls the detector once and the recogniser once for all its faces (none of one photo), 19 passes, acceptable. "
              "Layers: the 6 residual blocks of the recogniser (54 calls); the 4 depthwise stages of the detector may be added (94).")
def faces_gallery():
    "An album app: a one-stage face detector with NMS in Python, warps to 5 landmarks, an ArcFace-like recogniser, cosine search in a gallery."
    torch.set_grad_enabled(False)
    device = D()

    class Stage(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.dw, self.b1, self.pw, self.b2 = nn.Conv2d(i, i, 3, 2, 1, groups=i, bias=False), nn.BatchNorm2d(i), nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o)

        def forward(self, x):
            x = F.leaky_relu(self.b1(self.dw(x)), 0.1)
            return F.leaky_relu(self.b2(self.pw(x)), 0.1)

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList(Stage(i, o) for i, o in ((3, 8), (8, 16), (16, 24), (24, 24)))
            self.heads = nn.ModuleList(nn.Conv2d(24, 2 * n, 1) for n in (1, 4, 10))

        def forward(self, x):
            for one in self.stages:
                x = one(x)
            score, box, mark = (h(x).permute(0, 2, 3, 1).reshape(-1, h.out_channels // 2) for h in self.heads)
            return score.sigmoid()[:, 0], box, mark

    class Unit(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.body = nn.Sequential(nn.BatchNorm2d(i), nn.Conv2d(i, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.PReLU(o), nn.Conv2d(o, o, 3, s, 1, bias=False), nn.BatchNorm2d(o))
            self.short = nn.MaxPool2d(1, s) if i == o else nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))

        def forward(self, x):
            return self.body(x) + self.short(x)

    class Recogniser(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.PReLU(12))
            self.body = nn.Sequential(*(Unit(i, o, s) for i, o, s in ((12, 12, 2), (12, 12, 1), (12, 24, 2), (24, 24, 1), (24, 48, 2), (48, 48, 1))))
            self.out = nn.Sequential(nn.BatchNorm2d(48), nn.Flatten(), nn.Linear(48 * 16, 64), nn.BatchNorm1d(64))

        def forward(self, x):
            return F.normalize(self.out(self.body(self.stem(x))))

    detector, recogniser = Detector().to(device).eval(), Recogniser().to(device).eval()
    blocks(recogniser.body)
    blocks([*recogniser.body, *detector.stages], "block or stage")
    gallery = F.normalize(torch.randn(500, 64)).to(device)
    rng = np.random.default_rng(7)

    def suppress(boxes, scores, limit):
        order, keep = np.argsort(-scores), []
        while len(order) and len(keep) < limit:
            i = order[0]
            keep.append(i)
            top, low = np.maximum(boxes[i, :2], boxes[order, :2]), np.minimum(boxes[i, 2:], boxes[order, 2:])
            inter = np.clip(low - top, 0, None).prod(1)
            area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
            order = order[inter / (area[i] + area[order] - inter + 1e-6) < 0.4]
            order = order[order != i]
        return keep

    def look(number, faces, height, width):
        image = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
        with record_function(f"photo_{number:04d}.jpg"), execution("photo"):
            with record_function("detect"), execution("network pass"):
                x = (torch.from_numpy(image).to(device).permute(2, 0, 1)[None].float() - 127.5) / 128
                score, box, mark = detector(x)
                score, box, mark = score.cpu().numpy(), box.cpu().numpy(), mark.cpu().numpy()
            centre = rng.uniform(10, 60, (len(box), 2))
            kept = suppress(np.concatenate([centre - 8, centre + 8 + np.abs(box[:, 2:])], 1), score, faces)
            if not kept:
                return []
            with record_function("align+embed"), execution("network pass"):
                theta = []
                for i in kept:
                    source = np.stack([mark[i, 0::2], mark[i, 1::2], np.ones(5)], 1)
                    theta.append(np.linalg.lstsq(source, rng.standard_normal((5, 2)), rcond=None)[0].T)
                theta = torch.tensor(np.array(theta), dtype=torch.float32).to(device)
                crops = F.grid_sample(x.expand(len(kept), -1, -1, -1), F.affine_grid(theta, (len(kept), 3, 32, 32), align_corners=False), align_corners=False)
                vectors = recogniser(crops)
            with record_function("match"):
                value, index = (vectors @ gallery.T).max(1)
                return [(i, v) for i, v in zip(index.tolist(), value.tolist()) if v > 0.3]

    look(0, 1, 96, 96)
    with record(shapes=True):
        for k, n in enumerate((2, 0, 3, 1, 2, 4, 1, 2, 1, 3)):
            look(12 + k, n, 96 + 32 * (k % 2), 128)
            time.sleep(0.0015)


# -------------------------------------------------------------------------------------------------- 3. ProteinMPNN
@program(executions=46, layers=3, kinds={"encoder pass": 2, "residue": 44, "protein": 2}, ranges="record_function: 'design T=0.1 L=20' around a protein",
         limits="host", note="2 proteins of 20 and 24 residues: the encoder runs once, then residues are drawn one after the other in a random order, each by a pass of 3 decoder layers: 44 passes + 2 of the encoder = 46; "
              "the residues alone or a protein are acceptable. Layers: 3 of the encoder and 3 of the decoder: 6 + 132 = 138 calls.")
def proteinmpnn_design():
    "Sequence design for a backbone: k nearest neighbours, message passing encoder with edge updates, autoregressive decoder in random order with temperature."
    torch.set_grad_enabled(False)
    device = D()
    d, k = 32, 8

    def gather(x, index):
        return x[index.flatten()].view(*index.shape, -1)

    class EncLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.w2, self.w3, self.e1, self.e2 = nn.Linear(3 * d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(3 * d, d), nn.Linear(d, d)
            self.n1, self.n2, self.n3, self.ff = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d), nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, h, e, index):
            m = torch.cat([h[:, None].expand(-1, k, -1), gather(h, index), e], -1)
            m = self.w3(F.gelu(self.w2(F.gelu(self.w1(m))))).sum(1) / 30
            h = self.n1(h + m)
            h = self.n2(h + self.ff(h))
            m = torch.cat([h[:, None].expand(-1, k, -1), gather(h, index), e], -1)
            return h, self.n3(e + self.e2(F.gelu(self.e1(m))))

    class DecLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.w2, self.w3 = nn.Linear(4 * d, d), nn.Linear(d, d), nn.Linear(d, d)
            self.n1, self.n2, self.ff = nn.LayerNorm(d), nn.LayerNorm(d), nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, h, e):
            m = self.w3(F.gelu(self.w2(F.gelu(self.w1(torch.cat([h[None].expand(k, -1), e], -1))))))
            h = self.n1(h + m.sum(0) / 30)
            return self.n2(h + self.ff(h))

    edge, encoder, decoder = nn.Linear(16, d).to(device), nn.ModuleList(EncLayer() for _ in range(3)).to(device), nn.ModuleList(DecLayer() for _ in range(3)).to(device)
    amino, out = nn.Embedding(21, d).to(device), nn.Linear(d, 21).to(device)
    blocks([*encoder, *decoder])

    def design(length, temperature=0.1):
        with record_function(f"design T={temperature} L={length}"), execution("protein"):
            with execution("pass"):
                xyz = torch.randn(length, 3).to(device)
                distance, index = torch.cdist(xyz, xyz).topk(k, largest=False)
                e = edge(torch.exp(-((distance[..., None] - torch.linspace(0, 4, 16, device=device)) ** 2)))
                h = torch.zeros(length, d, device=device)
                for one in encoder:
                    h, e = one(h, e, index)
                stack = [h] + [torch.zeros_like(h) for _ in decoder]
                tokens = torch.zeros(length, dtype=torch.long, device=device)
                embedded = torch.zeros(length, d, device=device)
            for at in torch.randperm(length).tolist():
                with execution("pass"), execution("residue"):
                    near = index[at]
                    for n, one in enumerate(decoder):
                        context = torch.cat([stack[n][near], embedded[near], e[at]], -1)
                        stack[n + 1][at] = one(stack[n][at], context)
                    probs = torch.softmax(out(stack[-1][at]) / temperature, -1)
                    token = torch.multinomial(probs, 1)[0]
                    tokens[at] = token
                    embedded[at] = amino(token)
            return "".join("ACDEFGHIKLMNPQRSTVWYX"[i] for i in tokens.tolist())

    design(8)
    with record(shapes=True):
        print(design(20), design(24))


# -------------------------------------------------------------------------------------------------- 4. DQN
@program(executions=42, layers=3, kinds={"action pass": 32, "update": 10}, ranges="record_function: 'env.step' around the environments, 'learn' around an update",
         limits="host", note="32 steps of 8 environments, each with one pass of the network for actions; after 12 steps of filling, every second step is followed by an update (online, online again for double Q, target: 3 passes): 32 + 10 = 42 executions; "
              "the 32 steps of the loop (with their update) or the updates alone are acceptable. Layers: the 3 convolutions with their activation (32 x 3 + 10 x 9 = 186 calls).")
def dqn_vector_env():
    "Double dueling DQN on vectorised environments written in NumPy: epsilon-greedy, prioritised replay, n-step, Polyak target."
    device = D()

    class Conv(nn.Module):
        def __init__(self, i, o, k, s):
            super().__init__()
            self.conv = nn.Conv2d(i, o, k, s)

        def forward(self, x):
            return F.relu(self.conv(x))

    class Q(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(Conv(4, 12, 4, 2), Conv(12, 16, 3, 2), Conv(16, 16, 3, 1))
            self.value, self.advantage = nn.Sequential(nn.Linear(16 * 9, 48), nn.ReLU(), nn.Linear(48, 1)), nn.Sequential(nn.Linear(16 * 9, 48), nn.ReLU(), nn.Linear(48, 5))

        def forward(self, x):
            h = self.trunk(x.float() / 255).flatten(1)
            a = self.advantage(h)
            return self.value(h) + a - a.mean(1, keepdim=True)

    online = Q().to(device)
    blocks(online.trunk)
    target = copy.deepcopy(online).requires_grad_(False)
    if not list(target.trunk[0]._forward_hooks):
        blocks(target.trunk)
    optimizer = torch.optim.Adam(online.parameters(), 1e-4, eps=1.5e-4)
    rng = np.random.default_rng(0)
    memory, priority = [], []

    class Envs:
        def __init__(self, n):
            self.at, self.n = rng.integers(0, 24, (n, 2)), n

        def draw(self):
            frames = np.zeros((self.n, 4, 24, 24), np.uint8)
            frames[np.arange(self.n), :, self.at[:, 0], self.at[:, 1]] = 255
            return frames

        def step(self, actions):
            move = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])[actions]
            self.at = np.clip(self.at + move, 0, 23)
            done = rng.random(self.n) < 0.02
            self.at[done] = rng.integers(0, 24, (done.sum(), 2))
            return self.draw(), self.at.sum(1) / 46.0, done

    def act(obs, epsilon):
        with torch.no_grad():
            q = online(torch.from_numpy(obs).to(device))
            greedy = q.argmax(1).cpu().numpy()
        return np.where(rng.random(len(obs)) < epsilon, rng.integers(0, 5, len(obs)), greedy)

    def learn(n=24, gamma=0.97):
        p = np.array(priority) ** 0.6
        chosen = rng.choice(len(memory), n, p=p / p.sum())
        weight = (len(memory) * p[chosen] / p.sum()) ** -0.4
        s, a, r, s2, done = (torch.as_tensor(np.stack(x)).to(device) for x in zip(*[memory[i] for i in chosen]))
        weight = torch.as_tensor(weight / weight.max(), dtype=torch.float32).to(device)
        q = online(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            best = online(s2).argmax(1, keepdim=True)
            y = r.float() + gamma * (1 - done.float()) * target(s2).gather(1, best).squeeze(1)
        error = y - q
        loss = (F.smooth_l1_loss(q, y, reduction="none") * weight).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10)
        optimizer.step()
        for i, e in zip(chosen, error.abs().detach().cpu().numpy()):
            priority[i] = float(e) + 1e-3
        with torch.no_grad():
            for a, b in zip(target.parameters(), online.parameters()):
                a.lerp_(b, 0.01)

    def play(steps, fill):
        envs = Envs(8)
        obs = envs.draw()
        for step in range(steps):
            with execution("loop"):
                with execution("pass or update"):
                    actions = act(obs, max(0.05, 1 - step / 20))
                with record_function("env.step"):
                    after, reward, done = envs.step(actions)
                memory.extend(zip(obs, actions, reward, after, done))
                priority.extend([1.0] * 8)
                obs = after
                if step >= fill and step % 2 == 1:
                    with record_function("learn"), execution("pass or update"), execution("update"):
                        learn()

    play(6, 4)
    memory.clear(), priority.clear()
    with record(shapes=True):
        play(32, 12)
