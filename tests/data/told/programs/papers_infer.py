"""Six programs of inference as they are in public repositories: Mamba-2, RIFE, a benchmark of EfficientNet, Medusa, ControlNet with LCM, PP-OCR.
Sizes are a CPU's. The truth was written down before any tool read a recording."""
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function

from harness import blocks, execution, program, record, said, sync, D


# -------------------------------------------------------------------------------------------------- 1. Mamba-2
@program(executions=24, layers=5, kinds={"forward": 24, "request": 3}, ranges="none",
         note="3 requests; each is one forward over the prompt (chunked scan) and 7 over a token: each forward is one execution; a request is acceptable. Layers: the 5 residual blocks.")
def mamba2_generate():
    "Mamba-2 minimal: chunked state space duality over the prompt, the recurrent step over tokens, top-p sampling."
    torch.set_grad_enabled(False)
    device = D()

    def segsum(x):
        t = x.size(-1)
        x = x[..., None].expand(*x.shape, t)
        mask = torch.tril(torch.ones(t, t, dtype=torch.bool, device=x.device), diagonal=-1)
        x = x.transpose(-1, -2).masked_fill(~mask.transpose(-1, -2), 0).transpose(-1, -2).cumsum(dim=-2)
        return x.masked_fill(~torch.tril(torch.ones(t, t, dtype=torch.bool, device=x.device)), -torch.inf)

    def ssd(x, a, b, c, chunk):
        x, a, b, c = (m.unflatten(1, (-1, chunk)) for m in (x, a, b, c))
        a = a.permute(0, 3, 1, 2)
        a_cumsum = a.cumsum(-1)
        decay = torch.exp(segsum(a))
        y_diag = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, decay, x)
        decay_states = torch.exp(a_cumsum[..., -1:] - a_cumsum)
        states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, decay_states, x)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], dim=1)
        decay_chunk = torch.exp(segsum(F.pad(a_cumsum[..., -1], (1, 0))))
        new = torch.einsum("bhzc,bchpn->bzhpn", decay_chunk, states)
        states, final = new[:, :-1], new[:, -1]
        y_off = torch.einsum("bclhn,bchpn,bhcl->bclhp", c, states, torch.exp(a_cumsum))
        return (y_diag + y_off).flatten(1, 2), final

    class RMSNorm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x, z=None):
            x = x * F.silu(z) if z is not None else x
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

    class Mamba2(nn.Module):
        def __init__(self, d, state=16, headdim=16, conv=4):
            super().__init__()
            self.inner, self.state, self.headdim, self.heads, self.conv = 2 * d, state, headdim, 2 * d // headdim, conv
            self.in_proj = nn.Linear(d, 2 * self.inner + 2 * state + self.heads, bias=False)
            self.conv1d = nn.Conv1d(self.inner + 2 * state, self.inner + 2 * state, conv, groups=self.inner + 2 * state, padding=conv - 1)
            self.dt_bias, self.a_log, self.d = nn.Parameter(torch.zeros(self.heads)), nn.Parameter(torch.zeros(self.heads)), nn.Parameter(torch.ones(self.heads))
            self.norm, self.out_proj = RMSNorm(self.inner), nn.Linear(self.inner, d, bias=False)

        def forward(self, u, h):
            if h is not None:
                return self.step(u, h)
            a = -torch.exp(self.a_log)
            z, xbc, dt = torch.split(self.in_proj(u), [self.inner, self.inner + 2 * self.state, self.heads], dim=-1)
            dt = F.softplus(dt + self.dt_bias)
            conv_state = F.pad(xbc.transpose(1, 2), (self.conv - u.shape[1], 0))
            xbc = F.silu(self.conv1d(xbc.transpose(1, 2)).transpose(1, 2)[:, :u.shape[1]])
            x, b, c = torch.split(xbc, [self.inner, self.state, self.state], dim=-1)
            x = x.unflatten(-1, (self.heads, self.headdim))
            y, ssm = ssd(x * dt.unsqueeze(-1), a * dt, b.unsqueeze(2), c.unsqueeze(2), 16)
            y = (y + x * self.d.unsqueeze(-1)).flatten(-2)
            return self.out_proj(self.norm(y, z)), (conv_state, ssm)

        def step(self, u, h):
            conv_state, ssm = h
            z, xbc, dt = torch.split(self.in_proj(u.squeeze(1)), [self.inner, self.inner + 2 * self.state, self.heads], dim=-1)
            conv_state.copy_(torch.roll(conv_state, shifts=-1, dims=-1))
            conv_state[:, :, -1] = xbc
            xbc = torch.sum(conv_state * self.conv1d.weight.squeeze(1), dim=-1) + self.conv1d.bias
            x, b, c = torch.split(F.silu(xbc), [self.inner, self.state, self.state], dim=-1)
            a, dt = -torch.exp(self.a_log), F.softplus(dt + self.dt_bias)
            da = torch.exp(dt * a)
            x = x.unflatten(-1, (self.heads, self.headdim))
            ssm.copy_(ssm * da[..., None, None] + torch.einsum("bh,bn,bhp->bhpn", dt, b, x))
            y = (torch.einsum("bhpn,bn->bhp", ssm, c) + self.d[:, None] * x).flatten(-2)
            return self.out_proj(self.norm(y, z)).unsqueeze(1), h

    class Residual(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.mixer, self.norm = Mamba2(d), RMSNorm(d)

        def forward(self, x, h):
            y, h = self.mixer(self.norm(x), h)
            return y + x, h

    class LM(nn.Module):
        def __init__(self, vocabulary=256, d=48, layers=5):
            super().__init__()
            self.embedding, self.layers, self.norm_f, self.lm_head = nn.Embedding(vocabulary, d), nn.ModuleList(Residual(d) for _ in range(layers)), RMSNorm(d), nn.Linear(d, vocabulary, bias=False)

        def forward(self, ids, h=None):
            h = h or [None] * len(self.layers)
            x = self.embedding(ids)
            for i, one in enumerate(self.layers):
                x, h[i] = one(x, h[i])
            return self.lm_head(self.norm_f(x)), h

    model = LM().to(device).eval()
    blocks(model.layers)

    def generate(prompt, new=7, temperature=1.0, top_k=50, top_p=0.9):
        tokens, h = prompt.to(device).unsqueeze(0), None
        for _ in range(new + 1):
            with execution("forward"):
                out, h = model(tokens, h)
                logits = out[0, -1] / temperature
                least = torch.topk(logits, k=top_k)[0][-1]
                logits[logits < least] = -torch.inf
                ordered, index = torch.sort(logits, descending=True)
                remove = torch.cumsum(F.softmax(ordered, dim=-1), dim=-1) > 0.9
                remove[1:] = remove[:-1].clone()
                remove[0] = False
                logits[index[remove]] = -torch.inf
                token = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
                tokens = token.unsqueeze(0)
                yield int(token.cpu()[0])

    def answer(n):
        with execution("request"):
            list(generate(torch.randint(0, 256, (n,))))

    answer(16)
    with record():
        for n in (48, 32, 64):
            answer(n)
            time.sleep(0.002)


# -------------------------------------------------------------------------------------------------- 2. RIFE
@program(executions=9, layers=13, kinds={"pair of frames": 9, "call": 8}, ranges="none",
         note="10 frames of a video: between each two of them one is made (the network is not called for the last pair, a cut, where only the likeness is computed): each of the 9 pairs is one execution; the 8 calls of the network alone are acceptable. "
              "Layers: the 3 IFBlocks (each called once), the 4 levels of the context network (for 2 frames), the 3 down and 3 up levels of the fusion network; each convolution is acceptable.")
def rife_video():
    "Practical-RIFE: doubles the frame rate; SSIM of small pictures finds still frames and cuts, coarse-to-fine flow, fusion."
    torch.set_grad_enabled(False)
    device = D()
    conv = lambda i, o, k=3, s=1, p=1: nn.Sequential(nn.Conv2d(i, o, k, s, p), nn.PReLU(o))
    grids = {}

    def warp(img, flow):
        key = str(flow.shape)
        if key not in grids:
            h, w = flow.shape[2:]
            horizontal = torch.linspace(-1.0, 1.0, w, device=flow.device).view(1, 1, 1, w).expand(1, -1, h, -1)
            vertical = torch.linspace(-1.0, 1.0, h, device=flow.device).view(1, 1, h, 1).expand(1, -1, -1, w)
            grids[key] = torch.cat([horizontal, vertical], 1)
        flow = torch.cat([flow[:, 0:1] / ((img.shape[3] - 1.0) / 2.0), flow[:, 1:2] / ((img.shape[2] - 1.0) / 2.0)], 1)
        return F.grid_sample(img, (grids[key] + flow).permute(0, 2, 3, 1), mode="bilinear", padding_mode="border", align_corners=True)

    class IFBlock(nn.Module):
        def __init__(self, i, c=24):
            super().__init__()
            self.conv0 = nn.Sequential(conv(i, c // 2, 3, 2, 1), conv(c // 2, c, 3, 2, 1))
            self.convblock0, self.convblock1, self.convblock2 = (nn.Sequential(conv(c, c), conv(c, c)) for _ in range(3))
            self.conv1 = nn.ConvTranspose2d(c, 5, 4, 2, 1)

        def forward(self, x, flow=None, scale=1):
            x = F.interpolate(x, scale_factor=1.0 / scale, mode="bilinear", align_corners=False)
            if flow is not None:
                x = torch.cat((x, F.interpolate(flow, scale_factor=1.0 / scale, mode="bilinear", align_corners=False) / scale), 1)
            feat = self.conv0(x)
            feat = self.convblock0(feat) + feat
            feat = self.convblock1(feat) + feat
            feat = self.convblock2(feat) + feat
            out = F.interpolate(self.conv1(feat), scale_factor=2 * scale, mode="bilinear", align_corners=False)
            return out[:, :4] * scale, out[:, 4:5]

    class Conv2(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.conv1, self.conv2 = conv(i, o, 3, 2, 1), conv(o, o)

        def forward(self, x):
            return self.conv2(self.conv1(x))

    class Contextnet(nn.Module):
        def __init__(self, c=8):
            super().__init__()
            self.levels = nn.ModuleList([Conv2(3, c), Conv2(c, 2 * c), Conv2(2 * c, 4 * c), Conv2(4 * c, 4 * c)])

        def forward(self, x, flow):
            found = []
            for level in self.levels:
                x = level(x)
                flow = F.interpolate(flow, scale_factor=0.5, mode="bilinear", align_corners=False) * 0.5
                found.append(warp(x, flow))
            return found

    class Unet(nn.Module):
        def __init__(self, c=8):
            super().__init__()
            self.downs = nn.ModuleList([Conv2(17, 2 * c), Conv2(4 * c, 4 * c), Conv2(8 * c, 8 * c)])
            self.ups = nn.ModuleList([nn.Sequential(nn.ConvTranspose2d(16 * c, 4 * c, 4, 2, 1), nn.PReLU(4 * c)), nn.Sequential(nn.ConvTranspose2d(8 * c, 2 * c, 4, 2, 1), nn.PReLU(2 * c)), nn.Sequential(nn.ConvTranspose2d(4 * c, c, 4, 2, 1), nn.PReLU(c))])
            self.conv = nn.Conv2d(c, 3, 3, 1, 1)

        def forward(self, x, c0, c1):
            s0 = self.downs[0](x)
            s1 = self.downs[1](torch.cat((s0, c0[0], c1[0]), 1))
            s2 = self.downs[2](torch.cat((s1, c0[1], c1[1]), 1))
            x = self.ups[0](torch.cat((s2, c0[2], c1[2]), 1))
            x = self.ups[1](torch.cat((x, s1), 1))
            return torch.sigmoid(self.conv(self.ups[2](torch.cat((x, s0), 1))))

    class IFNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.contextnet, self.unet = nn.ModuleList([IFBlock(7), IFBlock(18), IFBlock(18)]), Contextnet(), Unet()

        def forward(self, img0, img1, timestep=0.5):
            timestep = (img0[:, :1] * 0 + 1) * timestep
            flow, warped0, warped1 = None, img0, img1
            for block, scale in zip(self.blocks, (4, 2, 1)):
                if flow is None:
                    flow, mask = block(torch.cat((img0, img1, timestep), 1), None, scale)
                else:
                    f, m = block(torch.cat((img0, img1, warped0, warped1, timestep, mask), 1)[:, :14], flow, scale)
                    flow, mask = flow + f, mask + m
                warped0, warped1 = warp(img0, flow[:, :2]), warp(img1, flow[:, 2:4])
            mask = torch.sigmoid(mask)
            merged = warped0 * mask + warped1 * (1 - mask)
            c0, c1 = self.contextnet(img0, flow[:, :2]), self.contextnet(img1, flow[:, 2:4])
            res = self.unet(torch.cat((img0, img1, warped0, warped1, mask, flow), 1), c0, c1) * 2 - 1
            return torch.clamp(merged + res, 0, 1)

    gauss = torch.exp(-((torch.arange(11).float() - 5) ** 2) / 4.5)
    window = (gauss[:, None] * gauss[None, :] / gauss.sum() ** 2).expand(3, 1, 11, 11).contiguous().to(device)

    def ssim(a, b):
        mu1, mu2 = F.conv2d(F.pad(a, (5, 5, 5, 5), mode="replicate"), window, groups=3), F.conv2d(F.pad(b, (5, 5, 5, 5), mode="replicate"), window, groups=3)
        s1 = F.conv2d(F.pad(a * a, (5, 5, 5, 5), "replicate"), window, groups=3) - mu1 ** 2
        s2 = F.conv2d(F.pad(b * b, (5, 5, 5, 5), "replicate"), window, groups=3) - mu2 ** 2
        s12 = F.conv2d(F.pad(a * b, (5, 5, 5, 5), "replicate"), window, groups=3) - mu1 * mu2
        return (((2 * mu1 * mu2 + 1e-4) * (2 * s12 + 9e-4)) / ((mu1 ** 2 + mu2 ** 2 + 1e-4) * (s1 + s2 + 9e-4))).mean()

    net = IFNet().to(device).eval()
    blocks([*net.blocks, *net.contextnet.levels, *net.unet.downs, *net.unet.ups])
    blocks([m for m in net.modules() if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d))], "convolution")
    rng = np.random.default_rng(2)
    base = rng.integers(0, 256, (70, 100, 3), dtype=np.uint8)
    frames = [np.roll(base, 2 * i, axis=1) for i in range(11)]
    frames[4], frames[8:] = frames[3], [255 - f for f in frames[8:]]

    def load(frame):
        img = torch.from_numpy(np.transpose(frame, (2, 0, 1)).copy()).to(device, non_blocking=True).unsqueeze(0).float() / 255.0
        return F.pad(img, (0, 128 - 100, 0, 96 - 70))

    def run(frames):
        i1, written = load(frames[0]), [frames[0]]
        for frame in frames[1:]:
            with execution("pair"):
                i0, i1 = i1, load(frame)
                small0, small1 = (F.interpolate(i, (32, 32), mode="bilinear", align_corners=False) for i in (i0, i1))
                likeness = ssim(small0[:, :3], small1[:, :3]).item()
                if likeness > 0.996 or likeness < 0.2:
                    middle = i0
                else:
                    with execution("call"):
                        middle = net(i0, i1)
                mid = (middle[0] * 255.0).byte().cpu().numpy().transpose(1, 2, 0)
            written += [mid[:70, :100], frame]
        return written

    run(frames[:3])
    with record(shapes=True):
        run(frames[1:])


# -------------------------------------------------------------------------------------------------- 3. EfficientNet benchmark
@program(executions=21, layers=8, kinds={"forward": 21}, ranges="record_function: 'bs=1', 'bs=8', 'bs=32' (each around warm-up and timed calls)",
         note="3 batch sizes; for each 2 warm-up and 5 timed forwards, each waited for: 21 forwards, each one execution. Layers: the 8 MBConv blocks; each convolution is acceptable.")
def efficientnet_bench():
    "A benchmark of EfficientNet in channels-last half precision over batch sizes: warm-up, timed calls, median and images per second."
    torch.set_grad_enabled(False)
    device = D()

    class ConvNorm(nn.Sequential):
        def __init__(self, i, o, k, s=1, g=1, act=True):
            super().__init__(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), *([nn.SiLU(inplace=True)] if act else []))

    class SqueezeExcitation(nn.Module):
        def __init__(self, c, r):
            super().__init__()
            self.avgpool, self.fc1, self.fc2 = nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, r, 1), nn.Conv2d(r, c, 1)

        def forward(self, x):
            return x * torch.sigmoid(self.fc2(F.silu(self.fc1(self.avgpool(x)))))

    class MBConv(nn.Module):
        def __init__(self, i, o, expand, k, s):
            super().__init__()
            c = i * expand
            self.skip = i == o and s == 1
            self.block = nn.Sequential(*([ConvNorm(i, c, 1)] if expand > 1 else []), ConvNorm(c, c, k, s, c), SqueezeExcitation(c, max(1, i // 4)), ConvNorm(c, o, 1, act=False))

        def forward(self, x):
            return x + self.block(x) if self.skip else self.block(x)

    settings = [(16, 8, 1, 3, 1), (8, 12, 4, 3, 2), (12, 12, 4, 3, 1), (12, 20, 4, 5, 2), (20, 20, 4, 5, 1), (20, 32, 4, 5, 1), (32, 32, 4, 5, 1), (32, 48, 4, 3, 2)]
    stages = [MBConv(*s) for s in settings]
    model = nn.Sequential(ConvNorm(3, 16, 3, 2), *stages, ConvNorm(48, 128, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 100)).to(device).eval().to(memory_format=torch.channels_last)
    blocks(stages)
    blocks([m for m in model.modules() if isinstance(m, nn.Conv2d)], "convolution")

    def forward(x):
        with execution():
            return model(x)

    def bench(batch, warm=2, repeat=5):
        x = torch.randn(batch, 3, 64, 64, device=device).contiguous(memory_format=torch.channels_last)
        with record_function(f"bs={batch}"):
            for _ in range(warm):
                forward(x)
            sync()
            times = []
            for _ in range(repeat):
                t = time.perf_counter()
                forward(x)
                sync()
                times.append(time.perf_counter() - t)
        print(f"bs={batch} {np.median(times) * 1e3:.2f} ms {batch / np.median(times):.0f} img/s")

    forward(torch.randn(1, 3, 64, 64, device=device))
    with record(shapes=True):
        for batch in (1, 8, 32):
            bench(batch)


# -------------------------------------------------------------------------------------------------- 4. Medusa
@program(executions=0, layers=5, kinds={"forward": 0, "request": 3}, ranges="none",
         note="3 prompts; each is a forward over the prompt, then forwards over a tree of 13 candidate tokens, of which some are accepted, until 24 tokens are there: each forward is one execution; a request is acceptable. "
              "Layers: the 5 decoder layers; with them the Medusa heads are acceptable.")
def medusa_tree():
    "Medusa: extra heads guess the next tokens, a tree of candidates is checked in one forward, keys and values of the accepted path are kept."
    torch.set_grad_enabled(False)
    device = D()

    class RMSNorm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    class Layer(nn.Module):
        def __init__(self, d, heads, i):
            super().__init__()
            self.i, self.heads, self.norm1, self.norm2 = i, heads, RMSNorm(d), RMSNorm(d)
            self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
            self.gate, self.up, self.down = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

        def forward(self, x, cos, sin, mask, cache, length):
            b, t, d = x.shape
            h = self.norm1(x)
            q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            cache[self.i, 0, :, :, length:length + t] = k
            cache[self.i, 1, :, :, length:length + t] = v
            k, v = cache[self.i, 0, :, :, :length + t], cache[self.i, 1, :, :, :length + t]
            att = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(d // self.heads) + mask
            y = torch.matmul(F.softmax(att, dim=-1, dtype=torch.float32), v).transpose(1, 2).reshape(b, t, d)
            x = x + self.o(y)
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class ResBlock(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.linear, self.act = nn.Linear(d, d), nn.SiLU()

        def forward(self, x):
            return x + self.act(self.linear(x))

    class Medusa(nn.Module):
        def __init__(self, vocabulary=64, d=48, layers=5, heads=3):
            super().__init__()
            self.embed, self.layers, self.norm, self.lm_head = nn.Embedding(vocabulary, d), nn.ModuleList(Layer(d, 4, i) for i in range(layers)), RMSNorm(d), nn.Linear(d, vocabulary, bias=False)
            self.medusa_head = nn.ModuleList(nn.Sequential(ResBlock(d), nn.Linear(d, vocabulary, bias=False)) for _ in range(heads))
            self.register_buffer("inv", 1.0 / 10000 ** (torch.arange(0, 12, 2).float() / 12))

        def forward(self, ids, positions, mask, cache, length):
            x = self.embed(ids)
            f = positions[:, None].float() * self.inv
            cos, sin = torch.cat((f, f), -1).cos(), torch.cat((f, f), -1).sin()
            for one in self.layers:
                x = one(x, cos, sin, mask, cache, length)
            x = self.norm(x)
            return torch.stack([head(x) for head in self.medusa_head]), self.lm_head(x)

    model = Medusa().to(device).eval()
    blocks(model.layers)
    blocks([*model.layers, *model.medusa_head], "layer or head")
    choices = [(0,), (1,), (2,), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    n = len(choices) + 1
    tree_mask, depth, flat = torch.eye(n), torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.long)
    tree_mask[:, 0] = 1
    for i, path in enumerate(choices, 1):
        depth[i], flat[i] = len(path), 1 + 3 * (len(path) - 1) + path[-1]
        for k in range(1, len(path)):
            tree_mask[i, 1 + choices.index(path[:k])] = 1
    leaves = [p for p in choices if not any(q[:len(p)] == p and len(q) > len(p) for q in choices)]
    retrieve = torch.tensor([[0] + [1 + choices.index(p[:k + 1]) if k < len(p) else -1 for k in range(3)] for p in leaves])
    tree_bias, depth, flat, retrieve = ((1 - tree_mask) * -1e9).to(device), depth.to(device), flat.to(device), retrieve.to(device)

    def generate(prompt, new=24):
        cache = torch.zeros(len(model.layers), 2, 1, 4, 96, 12, device=device)
        with execution("forward"):
            ids = prompt.to(device)[None]
            t = ids.shape[1]
            mask = torch.triu(torch.full((t, t), -1e9, device=device), 1)
            medusa, logits = model(ids, torch.arange(t, device=device), mask, cache, 0)
            medusa, logits = medusa[:, :, -1], logits[:, -1]
        length, out = t, []
        while len(out) < new:
            with execution("forward"):
                candidates = torch.cat([logits.argmax(-1), torch.topk(medusa[:, 0], 3, dim=-1).indices.view(-1)])
                tree = candidates[flat]
                mask = torch.cat([torch.zeros(n, length, device=device), tree_bias], 1)
                heads, tree_logits = model(tree[None], depth + length, mask, cache, length)
                guesses = tree_logits.argmax(-1)[0]
                padded = torch.cat([tree, tree.new_full((1,), -7)])
                cart = padded[retrieve]
                match = (cart[:, 1:] == guesses[retrieve[:, :-1].clamp(min=0)]).int()
                accept = torch.cumprod(match, dim=1).sum(dim=1)
                best = int(torch.argmax(accept))
                count = int(accept.max()) + len(out) % 3 // 2 + (len(out) % 5 == 0)  # as a trained network would accept
                count = min(count, 3)
                chosen = retrieve[best, :count + 1].clamp(min=0)
                cache[:, :, :, :, length:length + count + 1] = cache[:, :, :, :, length + chosen]
                length += count + 1
                out += cart[best, :count + 1].tolist()
                logits, medusa = tree_logits[:, chosen[-1]], heads[:, :, chosen[-1]]
        return out

    def answer(n):
        with execution("request"):
            generate(torch.randint(0, 64, (n,)))

    answer(12)
    with record(shapes=True):
        for n_prompt in (20, 35, 28):
            answer(n_prompt)


# -------------------------------------------------------------------------------------------------- 5. ControlNet, LCM
@program(executions=2, layers=16, kinds={"image": 2, "forward": 0, "denoising step": 6}, ranges="record_function: 'pipe' around each image, 'vae.decode' around the decoder",
         note="2 images; each: edges on the host, text encoder once, picture into latents by the VAE's encoder, 3 steps of ControlNet and UNet, the VAE's decoder: an image is one execution; each denoising step is acceptable, and so is each pass "
              "(text, encoder, steps, decoder). Layers: the 2 text layers, the blocks of the VAE (3 down; 3 up), of the ControlNet (2 down, middle) and of the UNet (2 down, middle, 2 up); each residual block and transformer is acceptable.")
def controlnet_lcm():
    "Picture to picture with ControlNet and a latent consistency model: Canny edges, a few steps, no guidance."
    torch.set_grad_enabled(False)
    device = D()

    class ResnetBlock2D(nn.Module):
        def __init__(self, i, o, temb=None):
            super().__init__()
            self.norm1, self.conv1, self.norm2, self.conv2 = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, 1, 1), nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, 1, 1)
            self.time_emb_proj = nn.Linear(temb, o) if temb else None
            self.conv_shortcut = nn.Conv2d(i, o, 1) if i != o else None

        def forward(self, x, temb=None):
            h = self.conv1(F.silu(self.norm1(x)))
            if temb is not None:
                h = h + self.time_emb_proj(F.silu(temb))[:, :, None, None]
            h = self.conv2(F.silu(self.norm2(h)))
            return h + (self.conv_shortcut(x) if self.conv_shortcut is not None else x)

    class Attention(nn.Module):
        def __init__(self, d, context=None, heads=4):
            super().__init__()
            self.heads, self.to_q, self.to_k, self.to_v, self.to_out = heads, nn.Linear(d, d, bias=False), nn.Linear(context or d, d, bias=False), nn.Linear(context or d, d, bias=False), nn.Linear(d, d)

        def forward(self, x, context=None):
            context = x if context is None else context
            q, k, v = (f(a).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f, a in ((self.to_q, x), (self.to_k, context), (self.to_v, context)))
            return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    class Transformer2D(nn.Module):
        def __init__(self, d, context):
            super().__init__()
            self.norm, self.proj_in, self.proj_out = nn.GroupNorm(4, d), nn.Conv2d(d, d, 1), nn.Conv2d(d, d, 1)
            self.norm1, self.attn1, self.norm2, self.attn2, self.norm3 = nn.LayerNorm(d), Attention(d), nn.LayerNorm(d), Attention(d, context), nn.LayerNorm(d)
            self.geglu, self.ff = nn.Linear(d, 4 * d), nn.Linear(2 * d, d)

        def forward(self, x, context):
            b, c, h, w = x.shape
            y = self.proj_in(self.norm(x)).flatten(2).transpose(1, 2)
            y = y + self.attn1(self.norm1(y))
            y = y + self.attn2(self.norm2(y), context)
            a, g = self.geglu(self.norm3(y)).chunk(2, -1)
            y = y + self.ff(a * F.gelu(g))
            return x + self.proj_out(y.transpose(1, 2).reshape(b, c, h, w))

    class Level(nn.Module):
        def __init__(self, i, o, context=None, temb=None, down=False, up=False, skip=0):
            super().__init__()
            self.resnets = nn.ModuleList(ResnetBlock2D((i if not k else o) + skip * (not k), o, temb) for k in range(2))
            self.attentions = nn.ModuleList(Transformer2D(o, context) for _ in range(2)) if context else None
            self.down, self.up = nn.Conv2d(o, o, 3, 2, 1) if down else None, nn.Conv2d(o, o, 3, 1, 1) if up else None

        def forward(self, x, temb=None, context=None):
            for k, resnet in enumerate(self.resnets):
                x = resnet(x, temb)
                x = self.attentions[k](x, context) if self.attentions is not None else x
            if self.down is not None:
                x = self.down(x)
            return self.up(F.interpolate(x, scale_factor=2.0, mode="nearest")) if self.up is not None else x

    class Mid(nn.Module):
        def __init__(self, c, context, temb):
            super().__init__()
            self.first, self.attention, self.second = ResnetBlock2D(c, c, temb), Transformer2D(c, context), ResnetBlock2D(c, c, temb)

        def forward(self, x, temb, context):
            return self.second(self.attention(self.first(x, temb), context), temb)

    class Time(nn.Module):
        def __init__(self, d, out):
            super().__init__()
            self.d, self.linear_1, self.linear_2 = d, nn.Linear(d, out), nn.Linear(out, out)

        def forward(self, t):
            f = torch.exp(-math.log(10000) * torch.arange(self.d // 2, device=t.device) / (self.d // 2)) * t[:, None].float()
            return self.linear_2(F.silu(self.linear_1(torch.cat([f.cos(), f.sin()], -1))))

    class UNet(nn.Module):
        def __init__(self, control=False, c=16, context=32, temb=48):
            super().__init__()
            self.time, self.conv_in = Time(c, temb), nn.Conv2d(4, c, 3, 1, 1)
            self.down_blocks = nn.ModuleList([Level(c, c, context, temb, down=True), Level(c, 2 * c, None, temb)])
            self.mid_block, self.control = Mid(2 * c, context, temb), control
            if control:
                self.hint = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.SiLU(), nn.Conv2d(8, 12, 3, 2, 1), nn.SiLU(), nn.Conv2d(12, c, 3, 2, 1))
                self.zeros = nn.ModuleList([nn.Conv2d(c, c, 1), nn.Conv2d(2 * c, 2 * c, 1), nn.Conv2d(2 * c, 2 * c, 1)])
            else:
                self.up_blocks = nn.ModuleList([Level(2 * c, 2 * c, None, temb, up=True, skip=2 * c), Level(2 * c, c, context, temb, skip=c)])
                self.norm_out, self.conv_out = nn.GroupNorm(4, c), nn.Conv2d(c, 4, 3, 1, 1)

        def forward(self, x, t, context, hint=None, residuals=None):
            temb = self.time(t)
            x = self.conv_in(x)
            x = x + self.hint(hint) if self.control else x
            first = x = self.down_blocks[0](x, temb, context)
            second = x = self.down_blocks[1](x, temb, context)
            x = self.mid_block(x, temb, context)
            if self.control:
                return [zero(y) for zero, y in zip(self.zeros, (first, second, x))]
            x = x + residuals[2]
            x = self.up_blocks[0](torch.cat([x, second + residuals[1]], 1), temb, context)
            x = self.up_blocks[1](torch.cat([x, F.interpolate(first + residuals[0], scale_factor=2.0)], 1), temb, context)
            return self.conv_out(F.silu(self.norm_out(x)))

    class TextLayer(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.layer_norm1, self.self_attn, self.layer_norm2, self.fc1, self.fc2 = nn.LayerNorm(d), Attention(d), nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            x = x + self.self_attn(self.layer_norm1(x))
            h = self.fc1(self.layer_norm2(x))
            return x + self.fc2(h * torch.sigmoid(1.702 * h))

    class VAE(nn.Module):
        def __init__(self, c=8):
            super().__init__()
            self.conv_in, self.down_blocks = nn.Conv2d(3, c, 3, 1, 1), nn.ModuleList([Level(c, c, down=True), Level(c, 2 * c, down=True), Level(2 * c, 2 * c)])
            self.enc_norm, self.enc_out = nn.GroupNorm(4, 2 * c), nn.Conv2d(2 * c, 8, 3, 1, 1)
            self.dec_in, self.up_blocks = nn.Conv2d(4, 2 * c, 3, 1, 1), nn.ModuleList([Level(2 * c, 2 * c, up=True), Level(2 * c, c, up=True), Level(c, c)])
            self.dec_norm, self.dec_out = nn.GroupNorm(4, c), nn.Conv2d(c, 3, 3, 1, 1)

        def encode(self, x):
            x = self.conv_in(x)
            for block in self.down_blocks:
                x = block(x)
            mean, logvar = self.enc_out(F.silu(self.enc_norm(x))).chunk(2, 1)
            return (mean + torch.exp(0.5 * logvar.clamp(-30, 20)) * torch.randn_like(mean)) * 0.18215

        def decode(self, z):
            x = self.dec_in(z / 0.18215)
            for block in self.up_blocks:
                x = block(x)
            return self.dec_out(F.silu(self.dec_norm(x)))

    token, position = nn.Embedding(100, 32).to(device), torch.zeros(1, 16, 32).to(device)
    text = nn.ModuleList(TextLayer(32) for _ in range(2)).to(device)
    final = nn.LayerNorm(32).to(device)
    vae, unet, controlnet = VAE().to(device).eval(), UNet().to(device).eval(), UNet(control=True).to(device).eval()
    levels = [*vae.down_blocks, *vae.up_blocks, *controlnet.down_blocks, controlnet.mid_block, *unet.down_blocks, unet.mid_block, *unet.up_blocks]
    blocks([*text, *levels])
    blocks([*text, *(m for one in levels for m in one.modules() if isinstance(m, (ResnetBlock2D, Transformer2D)))], "residual block or transformer")
    alphas = torch.cumprod(1 - torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000) ** 2, 0)

    def canny(picture):
        gray = picture.mean(-1)
        gx, gy = np.gradient(gray)
        return ((np.hypot(gx, gy) > 40) * 1.0).astype(np.float32)

    def pipe(picture, prompt, steps=(799, 499, 199)):
        hint = torch.from_numpy(canny(picture))[None, None].to(device)
        image = torch.from_numpy(picture.astype(np.float32) / 127.5 - 1).permute(2, 0, 1)[None].to(device)
        with execution("pass"):
            x = token(prompt.to(device)) + position
            for one in text:
                x = one(x)
            context = final(x)
        with execution("pass"):
            latents = vae.encode(image)
        a = alphas[steps[0]].item()
        latents = a ** 0.5 * latents + (1 - a) ** 0.5 * torch.randn_like(latents)
        for i, t in enumerate(steps):
            with execution("pass"), execution("denoising step"):
                step = torch.tensor([t]).to(device)
                residuals = controlnet(latents, step, context, hint=hint)
                noise = unet(latents, step, context, residuals=residuals)
                a, scaled = alphas[t].item(), t * 10.0
                c_skip, c_out = 0.25 / (scaled ** 2 + 0.25), scaled / (scaled ** 2 + 0.25) ** 0.5
                x0 = (latents - (1 - a) ** 0.5 * noise) / a ** 0.5
                denoised = c_out * x0 + c_skip * latents
                if i < len(steps) - 1:
                    b = alphas[steps[i + 1]].item()
                    latents = b ** 0.5 * denoised + (1 - b) ** 0.5 * torch.randn_like(denoised)
                else:
                    latents = denoised
        with execution("pass"), record_function("vae.decode"):
            out = (vae.decode(latents) / 2 + 0.5).clamp(0, 1)
            return (out.permute(0, 2, 3, 1).cpu().numpy() * 255).round().astype(np.uint8)

    rng = np.random.default_rng(0)
    make = lambda: rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    pipe(make(), torch.randint(0, 100, (1, 16)))
    with record():
        for _ in range(2):
            with execution("image"), record_function("pipe"):
                pipe(make(), torch.randint(0, 100, (1, 16)))


# -------------------------------------------------------------------------------------------------- 6. PP-OCR
@program(executions=5, layers=10, kinds={"page": 5, "batch": 0}, ranges="record_function: 'page 0' and so on, in it 'det' and 'rec'",
         note="5 pages; each goes through the detector once; the boxes found are cut out on the host, sorted by width and recognised in batches of up to 6 (1 to 3 batches a page): a page is one execution; each pass of the detector or recogniser is acceptable. "
              "Layers: the 4 stages of the detector's backbone, its neck and its head, and the recogniser's 4 mixing blocks; each convolution of the detector with the recogniser's blocks is acceptable.")
def ppocr_pages():
    "PP-OCR: a detector by differentiable binarisation, box finding on the host, a recogniser (SVTR) over batches of lines, greedy CTC decoding."
    torch.set_grad_enabled(False)
    device = D()

    class ConvBNAct(nn.Module):
        def __init__(self, i, o, k=3, s=1, g=1):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o)

        def forward(self, x):
            return F.hardswish(self.bn(self.conv(x)))

    class Depthwise(nn.Module):
        def __init__(self, i, o, s=1):
            super().__init__()
            self.dw, self.pw = ConvBNAct(i, i, 3, s, i), ConvBNAct(i, o, 1)

        def forward(self, x):
            return self.pw(self.dw(x))

    class Stage(nn.Sequential):
        def __init__(self, i, o, n):
            super().__init__(Depthwise(i, o, 2), *(Depthwise(o, o) for _ in range(n - 1)))

    class FPN(nn.Module):
        def __init__(self, channels, c=24):
            super().__init__()
            self.lateral = nn.ModuleList(nn.Conv2d(i, c, 1) for i in channels)
            self.smooth = nn.ModuleList(nn.Conv2d(c, c // 4, 3, 1, 1) for _ in channels)

        def forward(self, found):
            xs = [f(x) for f, x in zip(self.lateral, found)]
            for k in range(len(xs) - 2, -1, -1):
                xs[k] = xs[k] + F.interpolate(xs[k + 1], scale_factor=2, mode="nearest")
            return torch.cat([F.interpolate(f(x), size=xs[0].shape[2:], mode="nearest") for f, x in zip(self.smooth, xs)], 1)

    class DBHead(nn.Module):
        def __init__(self, c=24):
            super().__init__()
            self.conv1, self.conv2, self.conv3 = ConvBNAct(c, 8), nn.ConvTranspose2d(8, 8, 2, 2), nn.ConvTranspose2d(8, 1, 2, 2)

        def forward(self, x):
            return torch.sigmoid(self.conv3(F.relu(self.conv2(self.conv1(x)))))

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.stages = ConvBNAct(3, 8, 3, 2), nn.ModuleList([Stage(8, 12, 2), Stage(12, 16, 2), Stage(16, 24, 3), Stage(24, 32, 2)])
            self.neck, self.head = FPN((12, 16, 24, 32)), DBHead()

        def forward(self, x):
            x, found = self.stem(x), []
            for stage in self.stages:
                x = stage(x)
                found.append(x)
            return self.head(self.neck(found))

    class Mixing(nn.Module):
        def __init__(self, d, heads, local):
            super().__init__()
            self.heads, self.local, self.norm1, self.qkv, self.proj = heads, local, nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.norm2, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

        def forward(self, x):
            b, n, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            attn = q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5
            if self.local:
                i = torch.arange(n, device=x.device)
                attn = attn.masked_fill((i[:, None] - i[None, :]).abs() > 5, -torch.inf)
            x = x + self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class Recogniser(nn.Module):
        def __init__(self, d=40, classes=97):
            super().__init__()
            self.embed = nn.Sequential(ConvBNAct(3, d // 2, 3, 2), ConvBNAct(d // 2, d, 3, 2))
            self.blocks, self.norm, self.fc = nn.ModuleList(Mixing(d, 4, k < 2) for k in range(4)), nn.LayerNorm(d), nn.Linear(d, classes)

        def forward(self, x):
            x = self.embed(x).mean(2).transpose(1, 2)
            for block in self.blocks:
                x = block(x)
            return self.fc(self.norm(x)).softmax(-1)

    detector, recogniser = Detector().to(device).eval(), Recogniser().to(device).eval()
    blocks([*detector.stages, detector.neck, detector.head, *recogniser.blocks])
    blocks([*(m for m in detector.modules() if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d))), *recogniser.blocks], "convolution or block")
    rng = np.random.default_rng(4)

    def boxes_of(probability, lines):
        mask = probability > probability.mean()
        mask = mask & np.roll(mask, 1, 0) | np.roll(mask, 1, 1)
        assert mask.any()
        return [(int(rng.integers(0, 40)), int(rng.integers(0, 80)), int(rng.integers(24, 110))) for _ in range(lines)]

    def page(picture, lines):
        with record_function("det"), execution("pass"):
            with said("host"):
                image = (torch.from_numpy(picture.astype(np.float32)).permute(2, 0, 1)[None] / 255.0 - 0.45) / 0.22
            probability = detector(image.to(device)).cpu().numpy()[0, 0]
        boxes = sorted(boxes_of(probability, lines), key=lambda b: b[2])
        texts = []
        with record_function("rec"):
            for at in range(0, len(boxes), 6):
                group = boxes[at:at + 6]
                width = max(b[2] for b in group)
                batch = np.zeros((len(group), 3, 16, -(-width // 4) * 4), np.float32)
                for k, (y, x, w) in enumerate(group):
                    crop = picture[y:y + 16, x:x + w].transpose(2, 0, 1) / 127.5 - 1
                    batch[k, :, :crop.shape[1], :crop.shape[2]] = crop
                with execution("pass"):
                    score, index = recogniser(torch.from_numpy(batch).to(device)).max(dim=2)
                    index, score = index.cpu().numpy(), score.cpu().numpy()
                for row in index:
                    texts.append("".join(chr(32 + int(c)) for k, c in enumerate(row) if c and (not k or row[k - 1] != c)))
        return texts

    make = lambda h, w: rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
    page(make(96, 128), 3)
    with record(shapes=True):
        for i, (h, w, lines) in enumerate([(96, 128, 9), (128, 96, 4), (96, 128, 14), (160, 128, 7), (96, 160, 12)]):
            with execution("page"), record_function(f"page {i}"):
                page(make(h, w), lines)
