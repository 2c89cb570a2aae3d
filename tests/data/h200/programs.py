"""Before and after of changes that people make, on one GPU: times without a profiler (ABBA), one recording a side.

python pairs.py time|kineto|nsys OUT [NAME…]
"""
import gc, json, math, sys, time
from pathlib import Path
import torch
import torch.nn as nn
import torch.nn.functional as F

CUDA = torch.cuda.is_available()
D = "cuda" if CUDA else "cpu"
S = 1 if CUDA else 16  # the rehearsal is smaller
PAIRS = {}


def pair(f):
    PAIRS[f.__name__] = f
    return f


def sync():
    if CUDA:
        torch.cuda.synchronize()


class Block(nn.Module):
    def __init__(self, width, heads, fused=True):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = torch.softmax((q @ k.transpose(-2, -1)) / math.sqrt(w // self.heads), -1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, w))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(nn.Module):
    def __init__(self, blocks=6, width=1024, heads=16, fused=True):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width // S, heads // min(S, 4), fused) for _ in range(blocks))
        self.head = nn.Linear(width // S, 1000 // S)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def tokens(b, t, w=1024, dtype=torch.float32):
    return torch.randn(b, max(t // S, 8), w // S, device=D, dtype=dtype)


def inference(net, x):
    def step():
        with torch.no_grad():
            return net(x)
    return step


@pair
def tf32(after):
    net, x = Net(4).to(D).eval(), tokens(8, 512)
    run = inference(net, x)
    def step():
        torch.backends.cuda.matmul.allow_tf32 = after
        run()
        torch.backends.cuda.matmul.allow_tf32 = False
    return step


@pair
def bf16(after):
    dtype = torch.bfloat16 if after else torch.float32
    net, x = Net(4).to(D, dtype).eval(), tokens(8, 512, dtype=dtype)
    torch.backends.cuda.matmul.allow_tf32 = False
    return inference(net, x)


@pair
def sdpa(after):
    net, x = Net(4, fused=after).to(D, torch.bfloat16).eval(), tokens(4, 2048, dtype=torch.bfloat16)
    return inference(net, x)


@pair
def fused_optimizer(after):
    net, x = Net(12, 512, 8).to(D), tokens(4, 128, 512)
    how = {"fused": True} if after else {"foreach": False}
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, **how)
    def step():
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


@pair
def cuda_graph(after):
    net, x = Net(12, 512, 8).to(D, torch.bfloat16).eval(), tokens(1, 16, 512, torch.bfloat16)
    run = inference(net, x)
    if not (after and CUDA):
        return run
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


@pair
def pinned(after):
    """An image batch of 77 MB is copied each step; after: from pinned memory, one step ahead, on a stream of its own."""
    net = nn.Sequential(nn.Conv2d(3, 64, 7, 4, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(),
                        nn.Conv2d(128, 256, 3, 2, 1), nn.ReLU(), nn.Conv2d(256, 256, 3, 1, 1), nn.AdaptiveAvgPool2d(1)).to(D).eval()
    n = 128 // S
    if not (after and CUDA):
        host = [torch.randn(n, 3, 224, 224) for _ in range(2)]
        count = [0]
        def step():
            with torch.no_grad():
                x = host[count[0] % 2].to(D)
                count[0] += 1
                return net(x)
        return step
    host = [torch.randn(n, 3, 224, 224).pin_memory() for _ in range(2)]
    side, count = torch.cuda.Stream(), [0]
    def fetch(i):
        with torch.cuda.stream(side):
            return host[i % 2].to(D, non_blocking=True)
    ahead = [fetch(0)]
    def step():
        with torch.no_grad():
            torch.cuda.current_stream().wait_stream(side)
            x = ahead[0]
            x.record_stream(torch.cuda.current_stream())
            count[0] += 1
            ahead[0] = fetch(count[0])
            return net(x)
    return step


@pair
def item(after):
    """The largest value of every block's output is read back (`.item()`); after: once a step."""
    net, x = Net(12, 512, 8).to(D, torch.bfloat16).eval(), tokens(2, 128, 512, torch.bfloat16)
    def step():
        with torch.no_grad():
            y, seen = x, []
            for block in net.blocks:
                y = block(y)
                seen.append(y.abs().max() if after else y.abs().max().item())
            return torch.stack(seen).max().item() if after else max(seen)
    return step


@pair
def batch(after):
    """32 samples, one by one or eight at a time."""
    net = Net(6, 512, 8).to(D, torch.bfloat16).eval()
    size = 8 if after else 1
    x = tokens(size, 32, 512, torch.bfloat16)
    def step():
        with torch.no_grad():
            for _ in range(32 // size):
                net(x)
    return step


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        x = torch.rand(3, 160, 160)
        for _ in range(3):
            x = F.avg_pool2d(x, 3, 1, 1) * 0.9 + x.flip(-1) * 0.1
        return x


@pair
def workers(after):
    net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to(D)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Images(), batch_size=16, num_workers=8 if after else 0, pin_memory=CUDA, prefetch_factor=4 if after else None)
    batches = iter(loader)
    def step():
        x = next(batches).to(D, non_blocking=True)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


@pair
def launch_shape(after):
    if not CUDA:
        return lambda: None
    import cupy
    code = r"""extern "C" __global__ void blur(const float* a, float* b, int n) {
      int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
      if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
      float s = 0; for (int i = -1; i < 2; i++) for (int j = -1; j < 2; j++) s += a[(y + i) * n + x + j];
      b[y * n + x] = s / 9; }"""
    kernel = cupy.RawKernel(code, "blur")
    n = 8192
    a, b = cupy.random.rand(n, n, dtype=cupy.float32), cupy.zeros((n, n), cupy.float32)
    side = (32, 8) if after else (2, 2)
    def step():
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            for _ in range(4):
                kernel((n // side[0], n // side[1]), side, (a, b, n))
    return step


@pair
def empty_cache(after):
    """`torch.cuda.empty_cache()` after every step, or not."""
    net, x = Net(6, 1024, 16).to(D, torch.bfloat16), tokens(8, 256, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    def step():
        loss = net(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if CUDA and not after:
            torch.cuda.empty_cache()
    return step


@pair
def synchronize(after):
    """`torch.cuda.synchronize()` after every block, as of someone who timed them."""
    net, x = Net(16, 512, 8).to(D, torch.bfloat16).eval(), tokens(8, 256, 512, torch.bfloat16)
    def step():
        with torch.no_grad():
            y = x
            for block in net.blocks:
                y = block(y)
                if not after:
                    sync()
            return net.head(y)
    return step


@pair
def small_copies(after):
    """64 small tensors go to the GPU each step, one by one; after: as one."""
    net, x = Net(2, 512, 8).to(D, torch.bfloat16).eval(), tokens(2, 64, 512, torch.bfloat16)
    parts = [torch.randn(2_000) for _ in range(64)]
    def step():
        with torch.no_grad():
            if after:
                moved = torch.cat(parts).to(D).split(2_000)
            else:
                moved = [part.to(D) for part in parts]
            return net(x).float().mean() + torch.stack(list(moved)).mean()
    return step


@pair
def channels_last(after):
    """fp16 convolutions in NHWC instead of NCHW."""
    half = torch.float16 if CUDA else torch.float32
    layers = [nn.Conv2d(64 // S, 128 // S, 3, 1, 1), nn.BatchNorm2d(128 // S), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(128 // S, 128 // S, 3, 1, 1), nn.BatchNorm2d(128 // S), nn.ReLU()]
    net, x = nn.Sequential(*layers).to(D, half).eval(), torch.randn(32, 64 // S, 112 // S, 112 // S, device=D, dtype=half)
    if after:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return inference(net, x)


@pair
def streams(after):
    """Four independent small networks, after each other or on four streams."""
    nets = [Net(4, 512, 8).to(D, torch.bfloat16).eval() for _ in range(4)]
    x = tokens(1, 256, 512, torch.bfloat16)
    graphs = []
    if not CUDA:
        return inference(nets[0], x)
    side = [torch.cuda.Stream() for _ in nets]
    for s in side:
        with torch.cuda.stream(s), torch.no_grad():
            nets[0](x)
    sync()
    for net in nets:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.no_grad():
            net(x)
        graphs.append(graph)
    def step():
        main = torch.cuda.current_stream()
        for s, graph in zip(side, graphs):
            if after:
                s.wait_stream(main)
                with torch.cuda.stream(s):
                    graph.replay()
            else:
                graph.replay()
        if after:
            for s in side:
                main.wait_stream(s)
    return step


@pair
def compiled(after):
    """Norms, gates and rotations of small kernels, eager or by torch.compile."""
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.ModuleList(nn.Linear(1024 // S, 1024 // S) for _ in range(4))
        def forward(self, x):
            for a in self.a:
                y = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)
                y = a(y)
                one, two = y.chunk(2, -1)
                y = torch.cat([one * torch.cos(two) - two * torch.sin(one), one * torch.sin(two) + two], -1)
                x = x + torch.sigmoid(y) * y * 0.5
            return x
    net, x = Chain().to(D, torch.bfloat16).eval(), tokens(16, 1024, dtype=torch.bfloat16)
    return inference(torch.compile(net) if after and CUDA else net, x)


def seconds(step, count):
    sync()
    start = time.perf_counter()
    for _ in range(count):
        step()
    sync()
    return (time.perf_counter() - start) / count


def main(mode, out, names):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    results = {}
    for number, name in enumerate(names or PAIRS):
        began = time.time()
        try:
            torch.manual_seed(0)
            sides = [PAIRS[name](False), PAIRS[name](True)]
            for step in sides:
                for _ in range(4):
                    step()
            sync()
            if mode == "time":
                counts = [max(3, min(200, int(0.05 / max(seconds(step, 3), 1e-6)))) for step in sides]
                times = [[], []]
                for turn in range(10):
                    for side in (0, 1) if turn % 2 == 0 else (1, 0):
                        times[side].append(seconds(sides[side], counts[side]))
                results[name] = {"before_s": times[0], "after_s": times[1], "steps": counts}
                mid = [sorted(t)[len(t) // 2] for t in times]
                print(f"{name:16} {mid[0] * 1e3:9.3f} ms -> {mid[1] * 1e3:9.3f} ms  {mid[1] / mid[0] - 1:+.1%}  {time.time() - began:.1f} s", flush=True)
                (out / "times.json").write_text(json.dumps(results))
            elif mode == "kineto":
                from torch.profiler import ProfilerActivity, profile, schedule
                for word, step in zip(("before", "after"), sides):
                    acts = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * CUDA
                    with profile(activities=acts, record_shapes=True, with_stack=False,
                                 schedule=schedule(wait=0, warmup=2, active=6, repeat=1),
                                 on_trace_ready=lambda p: p.export_chrome_trace(str(out / f"{name}_{word}.json.gz"))) as prof:
                        for _ in range(8):
                            step()
                            if number % 3 == 2:  # a loop that waits each step, as one that prints does
                                sync()
                            prof.step()
                print(name, f"{time.time() - began:.1f} s", flush=True)
            else:
                for word, step in zip(("before", "after"), sides):
                    sync()
                    torch.cuda.cudart().cudaProfilerStart()
                    for i in range(8):
                        if number % 2:
                            torch.cuda.nvtx.range_push(f"step {i}")
                        step()
                        if number % 2:
                            torch.cuda.nvtx.range_pop()
                    sync()
                    torch.cuda.cudart().cudaProfilerStop()
                    print("recorded", name, word, flush=True)
                    time.sleep(0.3)
        except Exception as error:
            print(name, "failed", type(error).__name__, str(error)[:300], flush=True)
        sides = step = None
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
