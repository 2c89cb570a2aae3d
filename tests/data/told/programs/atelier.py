"""Ten programs of kinds that were not told yet, each as it was found and after one change that should help. Sizes are a CPU's. The truth was
written down before any tool read a recording."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import record_function

from harness import D, blocks, execution, layer, program, record


def both(**truth):
    """NAME and NAME_after: the program, and the program after the change."""
    def keep(function):
        for word in ("", "_after"):
            def one(is_changed=bool(word)):
                function(is_changed)
            one.__name__, one.__doc__ = function.__name__ + word, function.__doc__
            program(**truth)(one)
        return function
    return keep


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, mask=None):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        score = score if mask is None else score.masked_fill(mask, -1e9)
        return self.out((score.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(d), nn.LayerNorm(d), Attention(d, heads)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, mask=None):
        x = x + self.attention(self.n1(x), mask)
        return x + self.down(F.gelu(self.up(self.n2(x))))


# -------------------------------------------------------------------------------------------------- 1. an energy-based model
@both(executions=5, layers=3, kinds={"step": 5, "walk": 40}, ranges="record_function: 'sgld' around the walk of a step",
      limits="host", helps="draw the start and the noise on the device, and keep the buffer there; else a CUDA graph of a walk",
      note="5 training steps, each with 8 steps of Langevin dynamics (40 gradients by the input) and one update; a walk is acceptable. Layers: 3 residual blocks: 3 x (40 + 10) calls forward.")
def ebm_langevin(is_changed):
    "Energy-based model on small images: negatives from a replay buffer on the host, noise of each Langevin step drawn by NumPy."
    device, rng, size = D(), np.random.default_rng(1), (16, 1, 12, 12)

    class Res(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.a, self.b = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)

        def forward(self, x):
            return x + self.b(F.silu(self.a(F.silu(x))))

    net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), *(Res(12) for _ in range(3)), nn.Flatten(), nn.Linear(12 * 144, 1)).to(device)
    blocks(net[1:4])
    best = torch.optim.Adam(net.parameters(), 1e-3)
    kept = rng.uniform(-1, 1, (500, *size[1:])).astype(np.float32)
    kept_here, real = torch.from_numpy(kept), torch.rand(size)

    def step():
        chosen = rng.integers(0, 500, size[0])
        x = kept_here[torch.from_numpy(chosen)] if is_changed else torch.from_numpy(kept[chosen]).to(device)
        with record_function("sgld"):
            for _ in range(8):
                with execution("walk"):
                    noise = torch.randn(size, device=device) if is_changed else torch.from_numpy(rng.normal(0, 1, size).astype(np.float32)).to(device)
                    x = (x + 0.005 * noise).clamp(-1, 1).detach().requires_grad_()
                    (slope,) = torch.autograd.grad(net(x).sum(), x)
                    x = x.detach() - 10 * slope.clamp(-0.03, 0.03)
        if is_changed:
            kept_here[torch.from_numpy(chosen)] = x
        else:
            kept[chosen] = x.cpu().numpy()
        high, low = net(real), net(x)
        loss = (low - high).mean() + 0.1 * (high ** 2 + low ** 2).mean()
        best.zero_grad()
        loss.backward()
        best.step()

    step()
    with record(shapes=True):
        for _ in range(5):
            with execution("step"):
                step()


# -------------------------------------------------------------------------------------------------- 2. GPTQ
@both(executions=3, layers=3, kinds={"block": 3, "matrix": 12, "pass": 24}, ranges="none",
      limits="host", helps="quantise a block of columns at once and update the rest by one product: far fewer launches",
      note="3 blocks, one after the other: 4 calibration batches to collect Hessians, 4 matrices rounded column by column, 4 batches again. A block is one execution; a matrix or a pass is acceptable. "
           "Layers: the passes of a block (24), or the matrices (12).")
def gptq_blocks(is_changed):
    "Post-training quantisation of a language model to 4 bits, column by column with the inverse Hessian's Cholesky factor."
    torch.set_grad_enabled(False)
    device, d = D(), 24
    model = nn.ModuleList(Block(d, 4) for _ in range(3)).to(device)
    blocks(model, "pass")
    batches = [torch.randn(4, 16, d, device=device) for _ in range(4)]

    def quantise(linear, hessian):
        w = linear.weight.clone()
        damp = 0.01 * hessian.diagonal().mean()
        hessian.diagonal().add_(damp)
        factor = torch.linalg.cholesky_ex(torch.cholesky_inverse(torch.linalg.cholesky_ex(hessian)[0]), upper=True)[0]
        scale = w.abs().amax(1) / 7
        width = 8 if is_changed else 1
        for i in range(0, w.shape[1], width):
            part = w[:, i:i + width]
            rounded = (part / scale[:, None]).round().clamp(-8, 7) * scale[:, None]
            error = (part - rounded) / factor.diagonal()[i:i + width]
            w[:, i:i + width] = rounded
            w[:, i + width:] -= error @ factor[i:i + width, i + width:]
        linear.weight.copy_(w)

    def one_block(block, xs):
        matrices = [block.attention.qkv, block.attention.out, block.up, block.down]
        hessians = [torch.zeros(m.in_features, m.in_features, device=device) for m in matrices]

        def watch(h):
            def hook(_, inputs):
                x = inputs[0].flatten(0, -2)
                h.add_(x.T @ x, alpha=2 / len(xs))
            return hook
        hooks = [m.register_forward_pre_hook(watch(h)) for m, h in zip(matrices, hessians)]
        for x in xs:
            with execution("pass"):
                block(x)
        for hook in hooks:
            hook.remove()
        for matrix, hessian in zip(matrices, hessians):
            with execution("matrix"), layer("matrix"):
                quantise(matrix, hessian)
        after = []
        for x in xs:
            with execution("pass"):
                after.append(block(x))
        return after

    with record(shapes=True):
        xs = batches
        for block in model:
            with execution("block"):
                xs = one_block(block, xs)


# -------------------------------------------------------------------------------------------------- 3. spikes
@both(executions=8, layers=3, kinds={"batch": 8, "time step": 64}, ranges="none",
      limits="host", helps="fuse or graph the time loop; as changed: run the convolutions of all time steps in one batch",
      note="8 batches of 8 time steps, each through 3 spiking layers with a membrane; a time step is acceptable. Layers: 3 x 64 = 192 calls.")
def spiking_events(is_changed):
    "Inference of a spiking network on an event camera: leaky neurons, reset by subtraction, rate readout at the end."
    torch.set_grad_enabled(False)
    device, steps = D(), 8
    sizes = ((2, 8), (8, 16), (16, 16))
    convs = nn.ModuleList(nn.Conv2d(i, o, 3, 2, 1) for i, o in sizes).to(device)
    norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o in sizes).to(device).eval()
    readout = nn.Linear(16 * 16, 11).to(device)

    def spike(now, membrane):
        membrane = 0.9 * membrane + now
        fired = (membrane > 1).float()
        return fired, membrane - fired

    def look(events):
        if is_changed:
            x = events
            for conv, norm in zip(convs, norms):
                with layer("spiking"):
                    now = norm(conv(x.flatten(0, 1))).unflatten(0, x.shape[:2])
                    membrane, out = torch.zeros_like(now[0]), []
                    for t in range(steps):
                        fired, membrane = spike(now[t], membrane)
                        out.append(fired)
                    x = torch.stack(out)
            return readout(x.flatten(2)).mean(0).argmax(1)
        membranes, total = [0.0] * 3, 0
        for t in range(steps):
            with execution("time step"):
                x = events[t]
                for k, (conv, norm) in enumerate(zip(convs, norms)):
                    with layer("spiking"):
                        x, membranes[k] = spike(norm(conv(x)), membranes[k])
                total = total + readout(x.flatten(1))
        return (total / steps).argmax(1)

    rng = np.random.default_rng(3)
    frames = [torch.from_numpy((rng.random((steps, 4, 2, 32, 32)) < 0.1).astype(np.float32)) for _ in range(9)]
    look(frames[0].to(device))
    with record(shapes=True):
        for one in frames[1:]:
            with execution("batch"):
                look(one.to(device)).tolist()


# -------------------------------------------------------------------------------------------------- 4. a deep equilibrium model
@both(executions=8, layers=0, kinds={"batch": 8, "iteration": 0}, ranges="record_function: 'solve'",
      limits="synchronisation or host", helps="read the residual every fourth iteration, or on the device; no CUDA graph while the host decides when to stop",
      note="8 batches, each solved by Anderson iterations until the residual, which the host reads each time, is small (6 to 14): a batch is one execution, an iteration is acceptable. Layers: calls of the cell.")
def deq_solver(is_changed):
    "A deep equilibrium classifier: one cell, iterated to its fixed point with Anderson acceleration."
    torch.set_grad_enabled(False)
    device, d, memory = D(), 48, 4

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer, self.norm = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), nn.LayerNorm(d)

        def forward(self, z, x):
            return self.norm(z * 0.5 + x + 0.1 * self.outer(F.relu(self.inner(z))))

    into, cell, head = nn.Linear(20, d).to(device), Cell().to(device), nn.Linear(d, 10).to(device)
    blocks([cell], "cell")

    def solve(x, least):
        b = x.shape[0]
        held, made = torch.zeros(b, memory, d, device=device), torch.zeros(b, memory, d, device=device)
        held[:, 0], made[:, 0] = 0, cell(torch.zeros_like(x), x)
        held[:, 1], made[:, 1] = made[:, 0], cell(made[:, 0], x)
        for k in range(2, 30):
            with execution("iteration"):
                n = min(k, memory)
                g = made[:, :n] - held[:, :n]
                h = g @ g.transpose(1, 2) + 1e-4 * torch.eye(n, device=device)
                alpha = torch.linalg.solve_ex(h, torch.ones(b, n, 1, device=device))[0]
                alpha = alpha / alpha.sum(1, keepdim=True)
                z = (alpha * made[:, :n]).sum(1)
                held[:, k % memory], made[:, k % memory] = z, cell(z, x)
                residual = (made[:, k % memory] - z).norm() / z.norm()
                if (not is_changed or k % 4 == 3) and (residual.item() < 1e-9 or k >= least):
                    break
        return made[:, k % memory]

    def batch(number):
        x = into(torch.randn(16, 20, device=device))
        with record_function("solve"):
            z = solve(x, 7 + 4 * (number % 3 // 2))
        return head(z).argmax(1).tolist()

    batch(0)
    with record(shapes=True):
        for number in range(8):
            with execution("batch"):
                batch(number)


# -------------------------------------------------------------------------------------------------- 5. splats
@both(executions=9, layers=0, kinds={"step": 9}, ranges="none",
      limits="host or synchronisation", helps="tiles of a fixed capacity instead of nonzero for each tile; no CUDA graph while sizes are read back",
      note="9 steps; the number of Gaussians grows after every third. Layers: the 4 tiles of a step, if anything.")
def splat_fit(is_changed):
    "Fit 2-D Gaussians to a picture: depth sort, four tiles, each blends those that touch it, densify where the gradient is large."
    device, side, n = D(), 24, 60
    target = torch.rand(side, side, 3, device=device)
    parts = [torch.rand(n, 2), torch.full((n, 2), 0.08), torch.rand(n, 3), torch.rand(n)]
    axis = (torch.arange(side, device=device) + 0.5) / side
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)

    def fit(parts):
        parts = [p.to(device).requires_grad_() for p in parts]
        return parts, torch.optim.Adam(parts, 0.01)

    def draw(parts):
        place, size, colour, depth = parts
        order = depth.detach().argsort()
        place, size, colour = place[order], size[order], colour[order]
        out = []
        for ty in range(2):
            for tx in range(2):
                with layer("tile"):
                    low = torch.tensor([ty / 2, tx / 2])
                    touches = ((place > low - 0.2) & (place < low + 0.7)).all(1)
                    if is_changed:
                        p, s, c, w = place, size, colour, touches.float()
                    else:
                        index = touches.nonzero()[:, 0]
                        p, s, c, w = place[index], size[index], colour[index], 1.0
                    pixels = grid[ty * side // 2:(ty + 1) * side // 2, tx * side // 2:(tx + 1) * side // 2].reshape(-1, 1, 2)
                    alpha = w * torch.exp(-(((pixels - p) / s.abs().clamp(min=0.01)) ** 2).sum(-1)).clamp(max=0.95)
                    through = torch.cumprod(1 - alpha + 1e-6, 1)
                    out.append(((alpha * through)[..., None] * c).sum(1))
        return torch.stack(out)

    tiles = target.view(2, side // 2, 2, side // 2, 3).permute(0, 2, 1, 3, 4).reshape(4, -1, 3)
    parts, best = fit(parts)
    with record(shapes=True):
        for number in range(9):
            with execution("step"):
                loss = (draw(parts) - tiles).abs().mean()
                best.zero_grad()
                loss.backward()
                best.step()
                if number % 3 == 2:
                    grow = parts[0].grad.norm(dim=1).topk(12).indices
                    parts, best = fit([torch.cat([p.detach(), p.detach()[grow]]) for p in parts])


# -------------------------------------------------------------------------------------------------- 6. travelling salesmen
@both(executions=5, layers=3, kinds={"step": 5, "pass of the encoder": 10}, ranges="record_function: 'rollout' and 'baseline'",
      limits="host", helps="keep the visited cities on the device instead of reading each chosen city and copying a new mask",
      note="5 REINFORCE steps: encoder and 9 decisions by sampling, the same greedily for the baseline, one update. Layers: 3 encoder blocks x 10 passes = 30; the decisions (90) are acceptable.")
def tsp_pomo(is_changed):
    "Attention model for tours, trained by REINFORCE with a greedy baseline; a set of visited cities in Python."
    device, d, cities = D(), 32, 9
    into, encoder = nn.Linear(2, d).to(device), nn.ModuleList(Block(d, 4) for _ in range(3)).to(device)
    query, key = nn.Linear(2 * d, d).to(device), nn.Linear(d, d).to(device)
    blocks(encoder)
    weights = [p for m in (into, encoder, query, key) for p in m.parameters()]
    best = torch.optim.Adam(weights, 1e-3)

    def tour(points, is_greedy):
        b = len(points)
        with execution("pass of the encoder"):
            x = into(points)
            for one in encoder:
                x = one(x)
        keys, mean, rows = key(x), x.mean(1), torch.arange(b, device=device)
        last, mask = torch.zeros_like(mean), torch.zeros(b, cities, dtype=torch.bool, device=device)
        visited = [set() for _ in range(b)]
        path, said = [], 0.0
        for _ in range(cities):
            with layer("decision"):
                score = (keys @ query(torch.cat([mean, last], 1))[..., None])[..., 0] / math.sqrt(d)
                chance = (10 * torch.tanh(score)).masked_fill(mask, -1e9).log_softmax(1)
                next_one = chance.argmax(1) if is_greedy else torch.multinomial(chance.exp(), 1)[:, 0]
                if is_changed:
                    mask = mask.scatter(1, next_one[:, None], True)
                else:
                    for seen, city in zip(visited, next_one.tolist()):
                        seen.add(city)
                    mask = torch.tensor([[c in seen for c in range(cities)] for seen in visited]).to(device)
                said = said + chance[rows, next_one]
                last = x[rows, next_one]
                path.append(points[rows, next_one])
        path = torch.stack(path, 1)
        return (path - path.roll(1, 1)).norm(dim=-1).sum(1), said

    def step():
        points = torch.rand(16, cities, 2, device=device)
        with record_function("rollout"):
            length, said = tour(points, False)
        with record_function("baseline"), torch.no_grad():
            base, _ = tour(points, True)
        loss = ((length - base).detach() * said).mean()
        best.zero_grad()
        loss.backward()
        best.step()

    step()
    with record(shapes=True):
        for _ in range(5):
            with execution("step"):
                step()


# -------------------------------------------------------------------------------------------------- 7. weather
@both(executions=20, layers=4, kinds={"lead time": 20, "forecast": 4}, ranges="record_function: 'forecast 2021-03-01T00'",
      limits="host", helps="write the fields behind the next step: copy without waiting and save in another thread, or save at the end",
      note="4 forecasts of 5 lead times; each is one pass, copied back and written at once. A forecast is acceptable. Layers: 4 processors x 20 = 80.")
def weather_rollout(is_changed):
    "A mesh network for weather, rolled out; every field goes to the host, is checked and packed as 16-bit integers."
    torch.set_grad_enabled(False)
    device, d, nodes, edges = D(), 32, 80, 300
    rng = np.random.default_rng(5)
    source, target = (torch.from_numpy(rng.integers(0, nodes, edges)).to(device) for _ in range(2))

    class Processor(nn.Module):
        def __init__(self):
            super().__init__()
            self.edge = nn.Sequential(nn.Linear(3 * d, d), nn.SiLU(), nn.Linear(d, d), nn.LayerNorm(d))
            self.node = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d), nn.LayerNorm(d))

        def forward(self, x, e):
            e = e + self.edge(torch.cat([e, x[source], x[target]], -1))
            sums = torch.zeros_like(x).index_add(0, target, e)
            return x + self.node(torch.cat([x, sums], -1)), e

    grid, mesh, back = nn.Linear(10, d).to(device), nn.ModuleList(Processor() for _ in range(4)).to(device), nn.Linear(d, 5).to(device)
    blocks(mesh)
    first_edges = torch.randn(edges, d, device=device)

    def advance(now, before):
        x, e = grid(torch.cat([now, before], -1)), first_edges
        for one in mesh:
            x, e = one(x, e)
        return now + back(x)

    def keep(field):
        low, high = field.min(0), field.max(0)
        packed = np.round((field - low) / (high - low + 1e-6) * 65535).astype(np.uint16)
        table = np.sort(np.repeat(packed.astype(np.float64), 60, 0), 0)
        return packed.tobytes(), table[::400].mean()

    def forecast(start):
        now, before, fields = start, start * 0.99, []
        for _ in range(5):
            with execution("lead time"):
                now, before = advance(now, before), now
                if is_changed:
                    fields.append(now)
                else:
                    keep(now.cpu().numpy())
        if is_changed:
            everything = torch.stack(fields).cpu().numpy()
            for field in everything[::5]:  # the others are packed by a thread, behind the next forecast
                keep(field)

    start = torch.randn(nodes, 5, device=device)
    forecast(start)
    with record(shapes=True):
        for day in range(4):
            with record_function(f"forecast 2021-03-{day + 1:02d}T00"), execution("forecast"):
                forecast(start)


# -------------------------------------------------------------------------------------------------- 8. JSON
@both(executions=33, layers=3, kinds={"pass": 33, "token": 30, "answer": 3}, ranges="none",
      limits="host", helps="move the grammar off the path: masks of the states ahead on the device, the choice made there",
      note="3 answers: a prompt and 10 further tokens each, 33 passes; the tokens alone or the answers are acceptable. Layers: 3 x 33 = 99.")
def json_decoder(is_changed):
    "Constrained decoding: a small automaton in Python says which of 300 words may follow; logits go to the host each token."
    torch.set_grad_enabled(False)
    device, d, words, states = D(), 48, 300, 12
    embed, head = nn.Embedding(words, d).to(device), nn.Linear(d, words, bias=False).to(device)
    rng = np.random.default_rng(8)
    follows = [set(rng.choice(words, 60, replace=False).tolist()) for _ in range(states)]
    table = torch.tensor([[w not in one for w in range(words)] for one in follows], device=device)

    class Cached(Block):
        def forward(self, x, cache):
            q, k, v = (y.unflatten(-1, (4, -1)).transpose(1, 2) for y in self.attention.qkv(self.n1(x)).chunk(3, -1))
            if cache is not None:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
            x = x + self.attention.out(y.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.n2(x)))), (k, v)

    model = nn.ModuleList(Cached(d, 4) for _ in range(3)).to(device)
    blocks(model)

    def think(ids, caches):
        x = embed(ids)
        for k, one in enumerate(model):
            x, caches[k] = one(x, caches[k])
        return head(x[:, -1])

    def allowed(state):  # try each word on the automaton, as a naive library does
        mask = np.ones(words, dtype=bool)
        for word in range(words):
            mask[word] = not any(word in follows[(state + hop) % states] for hop in range(5))
        return mask

    def answer(prompt):
        caches, state, ids = [None] * 3, 0, torch.from_numpy(prompt)[None].to(device)
        here = torch.zeros(1, dtype=torch.long, device=device)
        text = []
        for number in range(11):
            with execution("pass"):
                if is_changed:
                    logits = think(ids, caches).masked_fill(table[here], -1e9)
                    ids = logits.argmax(-1, keepdim=True)
                    here = (here + ids[:, 0]) % states
                    text.append(ids)
                else:
                    logits = think(ids, caches)[0].cpu().numpy()
                    logits[allowed(state)] = -np.inf
                    word = int(logits.argmax())
                    state = (state + word) % states
                    ids = torch.tensor([[word]]).to(device)
                    text.append(word)
        return torch.cat(text, 1).tolist() if is_changed else text

    answer(np.arange(6))
    with record(shapes=True):
        for n in (12, 20, 9):
            with execution("answer"):
                answer(rng.integers(0, words, n))


# -------------------------------------------------------------------------------------------------- 9. an audio codec
@both(executions=12, layers=6, kinds={"clip": 12}, ranges="record_function: 'clip_07.wav'",
      limits="host", helps="clips in one batch (as changed: four at a time), or a CUDA graph of a clip",
      note="12 clips of one length: encoder, six stages of residual quantisation, decoder (3 executions of four clips after the change). Layers: 3 + 3 residual blocks: 72 calls; the stages (72) or both are acceptable.")
def rvq_codec(is_changed):
    "Neural audio codec: convolutions down, residual vector quantisation, convolutions up; codes go to the host."
    torch.set_grad_enabled(False)
    device, c = D(), 16

    class Res(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv1d(c, c // 2, 3, padding=1), nn.Conv1d(c // 2, c, 1)

        def forward(self, x):
            return x + self.b(F.elu(self.a(F.elu(x))))

    down = nn.ModuleList(nn.Sequential(Res(), nn.ELU(), nn.Conv1d(c, c, 4, 2, 1)) for _ in range(3)).to(device)
    up = nn.ModuleList(nn.Sequential(nn.ELU(), nn.ConvTranspose1d(c, c, 4, 2, 1), Res()) for _ in range(3)).to(device)
    into, out = nn.Conv1d(1, c, 7, padding=3).to(device), nn.Conv1d(c, 1, 7, padding=3).to(device)
    books = [torch.randn(64, c, device=device) for _ in range(6)]
    blocks([*down, *up])
    blocks([*down, *up], "block or stage")

    def code(wave):
        x = into(wave)
        for one in down:
            x = one(x)
        rest = x.transpose(1, 2)
        total, codes = torch.zeros_like(rest), []
        for book in books:
            with layer("stage"), layer("block or stage"):
                index = torch.cdist(rest, book.expand(len(rest), -1, -1)).argmin(-1)
                picked = F.embedding(index, book)
                rest, total = rest - picked, total + picked
                codes.append(index)
        y = total.transpose(1, 2)
        for one in up:
            y = one(y)
        return torch.stack(codes, 1).cpu(), out(y)

    rng = np.random.default_rng(9)
    waves = rng.normal(0, 0.1, (12, 1, 1, 640)).astype(np.float32)
    code(torch.from_numpy(waves[0]).to(device))
    with record(shapes=True):
        for k in range(0, 12, 4 if is_changed else 1):
            with record_function(f"clip_{k:02d}.wav"), execution("clip"):
                wave = np.concatenate(waves[k:k + 4]) if is_changed else waves[k]
                code(torch.from_numpy(wave).to(device))


# -------------------------------------------------------------------------------------------------- 10. a Perceiver
@both(executions=5, layers=5, kinds={"batch": 5}, ranges="none",
      limits="kernels", helps="fused attention: the scores are written and read by scaling, mask and softmax",
      note="5 batches: cross attention of latents to 1,200 rows, four blocks of self-attention, with masks. Layers: 5 x 5 = 25 calls, 20 without the first.")
def perceiver_rows(is_changed):
    "A Perceiver over rows of tables with missing cells; attention written out."
    torch.set_grad_enabled(False)
    device, d, heads = D(), 64, 8

    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
            self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

        def forward(self, x, rows, mask):
            q = self.q(self.n1(x)).unflatten(-1, (heads, -1)).transpose(1, 2)
            k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in self.kv(self.n2(rows)).chunk(2, -1))
            if is_changed:
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            else:
                score = q @ k.transpose(-1, -2) / math.sqrt(d / heads)
                score = score.masked_fill(~mask, -1e9)
                y = score.softmax(-1) @ v
            x = x + self.o(y.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.n3(x))))

    layers = nn.ModuleList(Mix() for _ in range(5)).to(device)
    blocks(layers)
    blocks(layers[1:], "self-attention")
    latents, into, head = torch.randn(1, 128, d, device=device), nn.Linear(10, d).to(device), nn.Linear(d, 3).to(device)

    def look(table, mask):
        rows = into(table)
        x = layers[0](latents.expand(len(table), -1, -1), rows, mask)
        whole = torch.ones(1, 1, 1, 128, dtype=torch.bool, device=device)
        for one in layers[1:]:
            x = one(x, x, whole)
        return head(x.mean(1))

    tables = [torch.randn(4, 1200, 10) for _ in range(6)]
    known = torch.rand(4, 1, 1, 1200) > 0.1
    look(tables[0].to(device), known.to(device))
    with record(shapes=True):
        for table in tables[1:]:
            with execution("batch"):
                look(table.to(device), known.to(device)).argmax(1).tolist()
