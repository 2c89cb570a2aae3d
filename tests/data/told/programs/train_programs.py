"""Training and research loops, as people run them."""
import contextlib
import io
import math
import os

# torch.cuda.is_available() before the fork would forbid CUDA in the children, unless it asks NVML:
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from harness import blocks, execution, program, record, CUDA, D, NSYS, sync  # noqa: E402


def big(gpu, cpu):
    "A size: there, and in rehearsal."
    return gpu if CUDA() else cpu


def half():
    return torch.bfloat16


@contextlib.contextmanager
def mark(text):
    "record_function; under nsys the same text by NVTX."
    if NSYS:
        torch.cuda.nvtx.range_push(text)
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()
    else:
        with torch.profiler.record_function(text):
            yield


def amp(dtype=torch.bfloat16):
    return torch.autocast(D(), dtype=dtype if CUDA() else torch.bfloat16)


class Block(nn.Module):
    "A pre-norm transformer block."

    def __init__(self, d, heads, causal=False, mult=4):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, mult * d), nn.Linear(mult * d, d)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, vocab, d, layers, heads, T):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(T, d)
        self.blocks = nn.ModuleList(Block(d, heads, causal=True) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device))
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.ln(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


# 1 ------------------------------------------------------------------------------------------------------------------
@program(executions=3, layers=3, kinds={"micro-step": 12, "optimiser step": 3}, ranges="none", limits=["kernels"],
         where="matrix products of the blocks, forward and backward (about two thirds in backward)",
         remedy="fewer, larger micro-batches; torch.compile for the elementwise parts (GELU, layer norm, casts of autocast)",
         note="3 optimiser steps, each of 4 accumulated micro-batches (12 forward+backward); an owner would accept 3 or 12. "
              "clip_grad_norm and the scaler's step come only every fourth; loss.item() once per optimiser step; autocast "
              "casts the weights again in every micro-batch.")
def gpt_grad_accum():
    "GPT, 3 layers, fp16 autocast with GradScaler, gradient accumulation of 4, AdamW fused, clip_grad_norm."
    B, T, d, V = big(16, 2), big(1024, 32), big(1024, 64), big(8192, 128)
    model = GPT(V, d, 3, 16 if CUDA() else 4, T).to(D())
    blocks(model.blocks)
    opt = torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.1, fused=CUDA())
    scaler = torch.amp.GradScaler(D(), enabled=CUDA())
    corpus = torch.randint(0, V, (200_000,))

    def batch():
        at = torch.randint(0, len(corpus) - T - 1, (B,))
        x = torch.stack([corpus[i:i + T] for i in at])
        y = torch.stack([corpus[i + 1:i + T + 1] for i in at])
        if CUDA():
            return x.pin_memory().to(D(), non_blocking=True), y.pin_memory().to(D(), non_blocking=True)
        return x, y

    def step():
        total = 0.0
        for k in range(4):
            with execution("micro-step"):
                x, y = batch()
                with amp(torch.float16):
                    loss = model(x, y) / 4
                scaler.scale(loss).backward()
                total = total + loss.detach()
                if k == 3:
                    scaler.unscale_(opt)
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(opt)
                    scaler.update()
                    opt.zero_grad(set_to_none=True)
        return total.item()

    step()
    with record():
        for _ in range(3):
            with execution():
                step()


# 2 ------------------------------------------------------------------------------------------------------------------
class BasicBlock(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.short = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s != 1 or i != o else None

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), True)))
        return F.relu(y + (x if self.short is None else self.short(x)), True)


def resnet18(classes):
    try:
        from torchvision.models import resnet18 as make
        net = make(weights=None)
        net.fc = nn.Linear(net.fc.in_features, classes)
        return net
    except Exception:
        body, i = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], 64
        for o, s in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            body.append(BasicBlock(i, o, s))
            i = o
        return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def residual(nets, kind):
    "Layers of a convolution network: its blocks, or its convolutions (with what stands around each)."
    modules = [m for net in nets for m in net.modules()]
    blocks(m for m in modules if type(m).__name__ == kind)
    blocks((m for m in modules if isinstance(m, (nn.Conv1d, nn.Conv2d))), "convolution")


class Pets(torch.utils.data.Dataset):
    def __init__(self, n, size):
        self.images = np.random.default_rng(0).integers(0, 255, (n, size + 32, size + 32, 3), dtype=np.uint8)
        self.labels = np.arange(n) % 37
        self.size, self.rng = size, np.random.default_rng(1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        a, b = self.rng.integers(0, 32, 2)
        im = self.images[i][a:a + self.size, b:b + self.size].astype(np.float32) / 255
        if self.rng.random() < 0.5:
            im = im[:, ::-1]
        im = im * self.rng.uniform(0.8, 1.2) + self.rng.normal(0, 0.02, im.shape)       # jitter, noise
        im = np.clip((im - im.mean()) * self.rng.uniform(0.8, 1.2) + im.mean(), 0, 1)
        im = (im - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
        return torch.from_numpy(np.ascontiguousarray(im.transpose(2, 0, 1)).astype(np.float32)), int(self.labels[i])


@program(executions=8, layers=8, kinds={"full batch": 7, "ragged last batch": 1}, ranges="none", limits=["host", "waiting"],
         where="the DataLoader: augmentation on the host in the training process (num_workers=0), the GPU idle meanwhile",
         remedy="num_workers > 0 (and pin_memory), or augment on the GPU",
         note="ResNet-18 of 8 basic blocks in 4 stages; 8 batches of 32, the last of 20; running loss by .item() every batch, "
              "cheap beside the loader. The augmentation is NumPy: the recording shows only enumerate(DataLoader) for it.")
def resnet_finetune_loader():
    "Fine-tuning a ResNet-18 with a DataLoader of no workers and augmentation on the host."
    size, bs = big(160, 32), big(32, 6)
    data = Pets(7 * bs + 20, size)
    loader = torch.utils.data.DataLoader(data, batch_size=bs, shuffle=True, num_workers=0)
    net = resnet18(37).to(D())
    residual([net], "BasicBlock")
    opt = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()

    def one(x, y):
        x, y = x.to(D()), y.to(D())
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
        return loss.item() * len(x)

    net.train()
    for n in (32, 20):
        one(torch.randn(n, 3, size, size), torch.zeros(n, dtype=torch.long))
    with record():
        running = 0.0
        for x, y in loader:
            with execution():
                running += one(x, y)


# 3 ------------------------------------------------------------------------------------------------------------------
@program(executions=5, layers=None, kinds={"D step": 10, "G step": 5}, ranges="none", limits=["host", "launches", "synchronisation"],
         where="the discriminator's updates (two per generator's update, real and fake passes each)",
         remedy="less host work per iteration: CUDA graphs or torch.compile, larger batch, no .item() every iteration",
         note="5 iterations; each 2 updates of D (backward of real and of fake apart) and 1 of G; errors printed by .item() per "
              "iteration. G has 4 transposed-convolution stages, D 4 convolution stages: an owner would hardly call those layers.")
def dcgan_two_d_steps():
    "DCGAN at 32x32, batch 64, D twice per G, two Adams."
    bs, nz, f = big(64, 4), 100, big(64, 8)

    def up(i, o, k, s, p):
        return [nn.ConvTranspose2d(i, o, k, s, p, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]

    def dn(i, o):
        return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True)]

    G = nn.Sequential(*up(nz, f * 4, 4, 1, 0), *up(f * 4, f * 2, 4, 2, 1), *up(f * 2, f, 4, 2, 1),
                      nn.ConvTranspose2d(f, 3, 4, 2, 1, bias=False), nn.Tanh()).to(D())
    Dn = nn.Sequential(nn.Conv2d(3, f, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True), *dn(f, f * 2), *dn(f * 2, f * 4),
                       nn.Conv2d(f * 4, 1, 4, 1, 0, bias=False)).to(D())
    oD = torch.optim.Adam(Dn.parameters(), 2e-4, betas=(0.5, 0.999))
    oG = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    images = torch.rand(bs * 14, 3, 32, 32) * 2 - 1

    def d_step(real):
        Dn.zero_grad()
        label = torch.full((len(real),), 1.0, device=D())
        errR = bce(Dn(real).view(-1), label)
        errR.backward()
        fake = G(torch.randn(len(real), nz, 1, 1, device=D()))
        label.fill_(0.0)
        errF = bce(Dn(fake.detach()).view(-1), label)
        errF.backward()
        oD.step()
        return errR + errF

    def iteration(i):
        for k in range(2):
            with execution("update"):
                real = images[(2 * i + k) * bs:(2 * i + k + 1) * bs].to(D())
                eD = d_step(real)
        with execution("update"):
            G.zero_grad()
            fake = G(torch.randn(bs, nz, 1, 1, device=D()))
            eG = bce(Dn(fake).view(-1), torch.full((bs,), 1.0, device=D()))
            eG.backward()
            oG.step()
        print(f"[{i}] loss D {eD.item():.3f} G {eG.item():.3f}", file=io.StringIO())

    iteration(0)
    iteration(1)
    with record(shapes=True):
        for i in range(5):
            with execution():
                iteration(i)


# 4 ------------------------------------------------------------------------------------------------------------------
@program(executions=4, layers=3, kinds={"image tower": 4, "text tower": 4}, limits=["kernels"],
         ranges="record_function: 'train_step', within it 'image_tower', 'text_tower', 'contrastive_loss', 'backward', 'optimizer'",
         where="backward; of the towers the image tower (ViT with 197 tokens; the text tower has 77)",
         remedy="torch.compile; bf16 is on already",
         note="two towers of 3 blocks each (an owner would say 3 image layers + 3 text layers; 6 is acceptable); logit scale clamped "
              "in place after each step; accuracy not read back.")
def clip_two_towers():
    "CLIP-like contrastive training, ViT tower and text tower, symmetric InfoNCE."
    B = big(256, 4)
    dv, dt, V = big(768, 64), big(512, 32), big(16384, 100)
    img = big(224, 32)

    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, dv, 16, 16)
            self.cls = nn.Parameter(torch.zeros(1, 1, dv))
            self.pos = nn.Parameter(torch.zeros(1, (img // 16) ** 2 + 1, dv))
            self.blocks = nn.ModuleList(Block(dv, dv // 64 or 1) for _ in range(3))
            self.ln, self.out = nn.LayerNorm(dv), nn.Linear(dv, big(512, 32), bias=False)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
            for b in self.blocks:
                x = b(x)
            return self.out(self.ln(x[:, 0]))

    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.pos = nn.Embedding(V, dt), nn.Parameter(torch.zeros(1, 77, dt))
            self.blocks = nn.ModuleList(Block(dt, max(1, dt // 64), causal=True) for _ in range(3))
            self.ln, self.out = nn.LayerNorm(dt), nn.Linear(dt, big(512, 32), bias=False)

        def forward(self, t):
            x = self.emb(t) + self.pos
            for b in self.blocks:
                x = b(x)
            return self.out(self.ln(x)[torch.arange(len(t), device=t.device), t.argmax(-1)])

    vision, text = Vision().to(D()), Text().to(D())
    blocks([*vision.blocks, *text.blocks])
    scale = nn.Parameter(torch.tensor(2.66, device=D()))
    params = [*vision.parameters(), *text.parameters(), scale]
    opt = torch.optim.AdamW(params, 1e-4, foreach=True)
    images = torch.randn(B, 3, img, img, device=D())
    texts = torch.randint(1, V, (B, 77), device=D())

    def step():
        with mark("train_step"):
            with amp():
                with mark("image_tower"):
                    i = F.normalize(vision(images), dim=-1)
                with mark("text_tower"):
                    t = F.normalize(text(texts), dim=-1)
                with mark("contrastive_loss"):
                    logits = scale.exp() * i @ t.t()
                    target = torch.arange(B, device=D())
                    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
            with mark("backward"):
                loss.backward()
            with mark("optimizer"):
                opt.step()
                opt.zero_grad()
                with torch.no_grad():
                    scale.clamp_(0, math.log(100))

    step(), step()
    with record():
        for _ in range(4):
            with execution():
                step()


# 5 ------------------------------------------------------------------------------------------------------------------
@program(executions=3, layers=None, kinds={"rollout inference": 48, "update minibatch": 36}, ranges="none",
         limits=["host", "synchronisation", "waiting", "launches"],
         where="the host: launching the many tiny kernels of the updates, and the environment steps on the CPU between tiny inferences, "
               "each waiting for the actions (.cpu())",
         remedy="run the environments in parallel or on the GPU; larger minibatches; CUDA graphs / torch.compile for the update; "
                "keep the small policy on the CPU for the rollout",
         note="3 PPO iterations: a rollout of 16 steps (inference on the GPU, environment in NumPy on the CPU), generalised advantages in "
              "NumPy, then 4 epochs of 3 minibatches; an owner would say 3 iterations, or 48 inferences and 36 updates.")
def ppo_cartpole_like():
    "PPO on 48 NumPy environments."
    N, T, obs_dim, acts = 48, 16, 24, 6
    rng = np.random.default_rng(0)

    class Env:
        def __init__(self):
            self.s = rng.normal(size=(N, obs_dim)).astype(np.float32)
            self.A = (rng.normal(size=(obs_dim, obs_dim)) / 5).astype(np.float32)
            self.Bm = rng.normal(size=(acts, obs_dim)).astype(np.float32)

        def step(self, a):
            rewards, dones = np.zeros(N, np.float32), np.zeros(N, np.float32)
            for i in range(N):                                   # one after the other, as a SyncVectorEnv
                for _ in range(6):
                    self.s[i] = np.tanh(self.s[i] @ self.A + self.Bm[a[i]] * 0.1)
                rewards[i] = -np.square(self.s[i]).mean()
                if rng.random() < 0.02:
                    dones[i] = 1
                    self.s[i] = rng.normal(size=obs_dim)
            return self.s.copy(), rewards, dones

    env = Env()
    body = nn.Sequential(nn.Linear(obs_dim, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh()).to(D())
    pi, vf = nn.Linear(128, acts).to(D()), nn.Linear(128, 1).to(D())
    params = [*body.parameters(), *pi.parameters(), *vf.parameters()]
    opt = torch.optim.Adam(params, 3e-4, eps=1e-5, fused=CUDA())

    def iteration(obs):
        buf, rewards, dones = [], [], []
        for _ in range(T):
            with execution("pass"), torch.no_grad():
                o = torch.as_tensor(obs, device=D())
                h = body(o)
                dist = torch.distributions.Categorical(logits=pi(h), validate_args=False)
                a = dist.sample()
                lp, v = dist.log_prob(a), vf(h).squeeze(-1)
                actions = a.cpu().numpy()
            nobs, r, d = env.step(actions)
            buf.append((o, a, lp, v))
            rewards.append(r), dones.append(d)
            obs = nobs
        O, A, LP, Vv = (torch.stack(x) for x in zip(*buf))
        with torch.no_grad():
            with execution("pass"):
                nextv = vf(body(torch.as_tensor(obs, device=D()))).squeeze(-1).cpu().numpy()
            values, last = Vv.cpu().numpy(), 0.0
            adv = np.zeros_like(values)
            for t in reversed(range(T)):
                alive = 1 - dones[t]
                last = rewards[t] + 0.99 * nextv * alive - values[t] + 0.99 * 0.95 * alive * last
                adv[t], nextv = last, values[t]
            adv = torch.as_tensor(adv, device=D())
            ret = adv + Vv
        O, A, LP, adv, ret = (x.flatten(0, 1) for x in (O, A, LP, adv, ret))
        for _ in range(4):
            for mb in np.array_split(rng.permutation(N * T), 3):
                with execution("pass"), execution("update"):
                    mb = torch.as_tensor(mb, device=D())
                    h = body(O[mb])
                    dist = torch.distributions.Categorical(logits=pi(h), validate_args=False)
                    ratio = (dist.log_prob(A[mb]) - LP[mb]).exp()
                    g = adv[mb]
                    g = (g - g.mean()) / (g.std() + 1e-8)
                    loss = -torch.min(ratio * g, ratio.clamp(0.8, 1.2) * g).mean() \
                        + 0.5 * F.mse_loss(vf(h).squeeze(-1), ret[mb]) - 0.01 * dist.entropy().mean()
                    opt.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(params, 0.5)
                    opt.step()
        return obs

    obs = iteration(env.s.copy())
    with record():
        for _ in range(3):
            with execution():
                obs = iteration(obs)


# 6 ------------------------------------------------------------------------------------------------------------------
@program(executions=6, layers=6, kinds={"teacher forward": 6, "student forward+backward": 6}, ranges="none", limits=["kernels"],
         where="the teacher's forward (6 wide blocks, no gradients): more than the student's forward and backward together",
         remedy="compute the teacher's logits once and keep them (the same batches return), or a smaller/quantised teacher; torch.compile",
         note="teacher of 6 blocks (bf16, d=2048), student of 2 blocks (d=512, autocast); 'layers' of the teacher 6, of the student 2. "
              "The loss' value is logged every 4 steps.")
def distillation():
    "Knowledge distillation: frozen teacher, small student, KL at temperature 2 plus cross entropy."
    B, T, V = big(16, 2), big(512, 16), big(4096, 64)
    teacher = GPT(V, big(2048, 64), 6, big(16, 4), T).to(D(), half()).eval().requires_grad_(False)
    student = GPT(V, big(512, 32), 2, big(8, 2), T).to(D())
    blocks([*teacher.blocks, *student.blocks])
    opt = torch.optim.AdamW(student.parameters(), 5e-4)
    xs = torch.randint(0, V, (4, B, T + 1), device=D())

    def step(i):
        x, y = xs[i % 4][:, :-1], xs[i % 4][:, 1:]
        with torch.no_grad():
            tl = teacher(x)
        with amp():
            sl = student(x)
        kl = F.kl_div(F.log_softmax(sl.float() / 2, -1), F.softmax(tl.float() / 2, -1), reduction="batchmean") * 4 / T
        loss = 0.9 * kl + 0.1 * F.cross_entropy(sl.float().reshape(-1, V), y.reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 4 == 3:
            loss.item()

    step(0), step(1)
    with record(shapes=True):
        for i in range(6):
            with execution():
                step(i)


# 7 ------------------------------------------------------------------------------------------------------------------
@program(executions=6, layers=None, kinds={"training step": 6, "sampling step": 10},
         ranges="ProfilerStep#3 to #8 around the six training steps (as a schedule with wait=2, warmup=1 numbers them); the sampling after "
                "them is unmarked",
         limits=["host", "launches"],
         where="launching small kernels: the U-Net at 32x32, and the EMA that walks the parameters one by one",
         remedy="torch._foreach_lerp_ for the EMA; CUDA graphs or torch.compile; larger batch",
         note="6 training steps with an EMA update per parameter in a Python loop, then one preview of 10 DDIM steps with the EMA model. "
              "16 uses of the U-Net in all, 6 of them with backward.")
def ddpm_with_ema_and_preview():
    "Diffusion training at 32x32 with an EMA and a preview at the end."
    import copy
    B, c = big(32, 2), big(64, 16)

    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, 1, 1)
            self.n2, self.c2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, 1, 1)
            self.t = nn.Linear(4 * c, o)
            self.s = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, t):
            h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
            return self.s(x) + self.c2(F.silu(self.n2(h)))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.temb = nn.Sequential(nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, 4 * c))
            self.inp = nn.Conv2d(3, c, 3, 1, 1)
            self.d1, self.d2 = Res(c, c), Res(c, 2 * c)
            self.dn1, self.dn2 = nn.Conv2d(c, c, 3, 2, 1), nn.Conv2d(2 * c, 2 * c, 3, 2, 1)
            self.mid = Res(2 * c, 2 * c)
            self.u2, self.u1 = Res(4 * c, 2 * c), Res(3 * c, c)
            self.out = nn.Sequential(nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, 3, 3, 1, 1))

        def forward(self, x, t):
            f = torch.exp(-math.log(10000) * torch.arange(c // 2, device=x.device) / (c // 2))
            e = t[:, None].float() * f[None]
            t = self.temb(torch.cat([e.sin(), e.cos()], -1))
            a = self.d1(self.inp(x), t)
            b = self.d2(self.dn1(a), t)
            m = self.mid(self.dn2(b), t)
            m = self.u2(torch.cat([F.interpolate(m, scale_factor=2), b], 1), t)
            m = self.u1(torch.cat([F.interpolate(m, scale_factor=2), a], 1), t)
            return self.out(m)

    net = UNet().to(D())
    ema = copy.deepcopy(net).requires_grad_(False)
    residual([net, ema], "Res")
    opt = torch.optim.Adam(net.parameters(), 2e-4)
    abar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0).to(D())
    data = torch.rand(B, 3, 32, 32, device=D()) * 2 - 1

    def train():
        t = torch.randint(0, 1000, (B,), device=D())
        a = abar[t][:, None, None, None]
        noise = torch.randn_like(data)
        loss = F.mse_loss(net(a.sqrt() * data + (1 - a).sqrt() * noise, t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for pe, p in zip(ema.parameters(), net.parameters()):
                pe.mul_(0.999).add_(p, alpha=0.001)

    @torch.no_grad()
    def preview(steps):
        x = torch.randn(16 if CUDA() else 2, 3, 32, 32, device=D())
        ts = torch.linspace(999, 0, steps + 1).long().tolist()
        for t, s in zip(ts[:-1], ts[1:]):
            with execution("pass"):
                e = ema(x, torch.full((len(x),), t, device=D()))
                x0 = ((x - (1 - abar[t]).sqrt() * e) / abar[t].sqrt()).clamp(-1, 1)
                x = abar[s].sqrt() * x0 + (1 - abar[s]).sqrt() * e
        return x.cpu()

    for _ in range(3):
        train()
    preview(2)
    with record():
        for i in range(6):
            with mark(f"ProfilerStep#{i + 3}"), execution(), execution("pass"), execution("step or preview"):
                train()
        with execution("step or preview"):
            preview(10)


# 8 ------------------------------------------------------------------------------------------------------------------
@program(executions=12, layers=2, kinds={"full chunk of 35": 11, "ragged chunk of 17": 1}, ranges="none", limits=["kernels", "launches", "host"],
         where="the cuDNN LSTM (forward and backward over time)", remedy="a larger batch (20 sequences "
         "leave the GPU mostly empty), bf16/TF32; time steps depend on each other",
         note="12 chunks of truncated BPTT, the last one of 17 instead of 35 tokens; hidden state detached between; loss read every 5 chunks; "
              "SGD by hand (for p in parameters: p.data.add_). 2 LSTM layers inside one cuDNN call.")
def lstm_lm_tbptt():
    "Word language model: 2-layer LSTM of 650, truncated BPTT of 35, clip 0.25."
    H, V, bs = big(650, 32), big(10000, 200), big(20, 4)
    drop = nn.Dropout(0.5)
    enc, dec = nn.Embedding(V, H).to(D()), nn.Linear(H, V).to(D())
    rnn = nn.LSTM(H, H, 2, dropout=0.5).to(D())
    params = [*enc.parameters(), *rnn.parameters(), *dec.parameters()]
    data = torch.randint(0, V, (35 * 11 + 17 + 1, bs), device=D())

    def epoch(upto):
        hidden = (torch.zeros(2, bs, H, device=D()), torch.zeros(2, bs, H, device=D()))
        total = 0.0
        for k, i in enumerate(range(0, upto, 35)):
            with execution():
                n = min(35, upto - i)
                x, y = data[i:i + n], data[i + 1:i + 1 + n].reshape(-1)
                for p in params:
                    p.grad = None
                hidden = tuple(h.detach() for h in hidden)
                out, hidden = rnn(drop(enc(x)), hidden)
                loss = F.nll_loss(F.log_softmax(dec(drop(out)).view(-1, V), dim=1), y)
                loss.backward()
                nn.utils.clip_grad_norm_(params, 0.25)
                for p in params:
                    p.data.add_(p.grad, alpha=-20 * 0.1)
                total += loss.detach()
                if k % 5 == 0 and k:
                    total.item() / 5
                    total = 0.0

    epoch(52)
    with record(stack=True, modules=True):
        epoch(35 * 11 + 17)


# 9 ------------------------------------------------------------------------------------------------------------------
@program(executions=15, layers=3, kinds={"train epoch": 15, "evaluation": 3}, ranges="none", limits=["kernels"],
         where="message passing: gathering features of the edges (x[src]) and index_add; most of all the backward of x[src], an index_put_ with accumulate that sorts",
         remedy="index_select instead of x[src] (its backward is index_add), or a sparse matrix product (CSR SpMM) for both; edges sorted once; bf16 features",
         note="full-batch: 15 epochs of the same graph, an evaluation (forward only, three masks, .item() each) every 5 epochs. 3 convolutions, "
              "the last to 40 classes.")
def gnn_full_batch():
    "GraphSAGE, mean aggregation by index_add, full batch."
    N, E, Fd, H = big(100_000, 500), big(1_000_000, 2000), 128, big(256, 16)
    src, dst = torch.randint(0, N, (2, E), device=D())
    deg = torch.zeros(N, device=D()).index_add_(0, dst, torch.ones(E, device=D())).clamp(min=1)[:, None]
    x, y = torch.randn(N, Fd, device=D()), torch.randint(0, 40, (N,), device=D())
    mask = torch.rand(N, device=D())
    masks = mask < 0.6, (mask >= 0.6) & (mask < 0.8), mask >= 0.8
    train_idx = masks[0].nonzero().squeeze(1)

    class SAGE(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.own, self.nbr = nn.Linear(i, o), nn.Linear(i, o, bias=False)

        def forward(self, x):
            agg = torch.zeros_like(x).index_add(0, dst, x[src]) / deg
            return self.own(x) + self.nbr(agg)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([SAGE(Fd, H), SAGE(H, H), SAGE(H, 40)])
            self.bns = nn.ModuleList([nn.BatchNorm1d(H), nn.BatchNorm1d(H)])

        def forward(self, x):
            for c, b in zip(self.convs, self.bns):
                x = F.dropout(F.relu(b(c(x))), 0.5, self.training)
            return self.convs[-1](x)

    net = Net().to(D())
    blocks(net.convs)
    opt = torch.optim.Adam(net.parameters(), 0.01)

    def train():
        net.train()
        opt.zero_grad()
        loss = F.cross_entropy(net(x)[train_idx], y[train_idx])
        loss.backward()
        opt.step()
        return loss

    @torch.no_grad()
    def test():
        net.eval()
        pred = net(x).argmax(-1)
        return [(pred[m] == y[m]).float().mean().item() for m in masks]

    train(), test()
    with record(shapes=True):
        for epoch in range(1, 16):
            with execution("epoch"):
                with execution(), execution("training"):
                    loss = train()
                if epoch % 5 == 0:
                    with execution():
                        print(epoch, loss.item(), test(), file=io.StringIO())


# 10 -----------------------------------------------------------------------------------------------------------------
@program(executions=8, layers=5, ranges="none", limits=["host", "launches"],
         where="the host: hundreds of tiny kernels (forward, three autograd.grad with create_graph, backward through them)",
         remedy="CUDA graphs or torch.compile of the step; torch.func jvp/forward mode for the derivatives; more collocation points cost nothing",
         note="8 Adam iterations of Burgers' equation, u_t, u_x, u_xx by autograd.grad; MLP of 5 hidden tanh layers of 64; no reading back "
              "in the loop. An iteration has two forwards: collocation points and boundary data.")
def pinn_burgers():
    "Physics-informed network, Burgers' equation."
    n = big(4000, 100)
    dims = [2] + [64] * 5 + [1]
    net = nn.Sequential(*[m for i, (a, b) in enumerate(zip(dims, dims[1:])) for m in ([nn.Linear(a, b)] + ([nn.Tanh()] if i < 5 else []))]).to(D())
    blocks(m for m in net if isinstance(m, nn.Linear))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    xb, ub = torch.rand(200, 2, device=D()), torch.rand(200, 1, device=D())

    def step():
        x = (torch.rand(n, 1, device=D()) * 2 - 1).requires_grad_()
        t = torch.rand(n, 1, device=D()).requires_grad_()
        u = net(torch.cat([x, t], 1))
        u_t = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
        u_x = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
        loss = (u_t + u * u_x - 0.01 / math.pi * u_xx).pow(2).mean() + F.mse_loss(net(xb), ub)
        opt.zero_grad()
        loss.backward()
        opt.step()

    for _ in range(3):
        step()
    with record():
        for _ in range(8):
            with execution():
                step()


# 11 -----------------------------------------------------------------------------------------------------------------
@program(executions=4, layers=None, kinds={"LBFGS step": 4, "closure": 32}, ranges="none", limits=["host", "synchronisation", "launches"],
         where="LBFGS on the host: the two-loop recursion of dot products and additions on flat vectors, comparisons that read scalars back",
         remedy="fewer history vectors; another optimiser; more rays per closure cost little; CUDA graph of the closure",
         note="4 calls of optimizer.step(closure), each of 8 closures (max_iter=8, no line search): an owner would say 4 steps, or 32 evaluations. "
              "The history grows to 10, so that later iterations are longer. Reconstruction of an image from random projections with total variation.")
def lbfgs_reconstruction():
    "Image reconstruction by LBFGS with closures."
    n, m = big(96, 16), big(3000, 50)
    A = torch.randn(m, n * n, device=D()) / n
    truth = torch.zeros(n, n, device=D())
    truth[n // 4:n // 2, n // 3:n // 2 + 4] = 1
    b = A @ truth.flatten() + 0.01 * torch.randn(m, device=D())
    img = torch.zeros(n, n, device=D(), requires_grad=True)
    opt = torch.optim.LBFGS([img], lr=0.2, max_iter=8, history_size=10)
    evaluation = contextlib.ExitStack()  # a closure, and what LBFGS does with its gradient
    opt.register_step_post_hook(lambda *_: evaluation.close())

    def closure():
        evaluation.close()
        evaluation.enter_context(execution("closure"))
        opt.zero_grad()
        residual = A @ img.flatten() - b
        tv = (img[1:] - img[:-1]).abs().mean() + (img[:, 1:] - img[:, :-1]).abs().mean()
        loss = residual.pow(2).sum() + 0.05 * tv + 1e-3 * F.relu(-img).sum()
        loss.backward()
        return loss

    opt.step(closure)
    with record(shapes=True):
        for i in range(4):
            with execution():
                loss = opt.step(closure)
                print(i, loss.item(), file=io.StringIO())


# 12 -----------------------------------------------------------------------------------------------------------------
@program(executions=4, layers=3, kinds={"outer": 4, "task": 8, "inner step": 40},
         ranges="record_function: 'meta_iteration' with 'task 0' and 'task 1' in it, each with 'inner_loop', and 'outer_update'",
         limits=["host", "launches"],
         where="tiny kernels of the inner steps and of the backward through them, launched one by one",
         remedy="torch.func.vmap over the tasks; first-order MAML; CUDA graphs / torch.compile",
         note="4 outer iterations of 2 tasks with 5 inner steps each (second order); MLP of 3 linear layers; one .item() per outer iteration.")
def maml_sinusoids():
    "MAML on sinusoids, 5 inner steps, 2 tasks."
    W = [nn.Parameter(torch.randn(o, i, device=D()) / math.sqrt(i)) for i, o in ((1, 40), (40, 40), (40, 1))]
    Bs = [nn.Parameter(torch.zeros(o, device=D())) for o in (40, 40, 1)]
    meta = [*W, *Bs]
    opt = torch.optim.Adam(meta, 1e-3)

    def net(x, p):
        x = F.relu(F.linear(x, p[0], p[3]))
        x = F.relu(F.linear(x, p[1], p[4]))
        return F.linear(x, p[2], p[5])

    def outer():
        with mark("meta_iteration"):
            opt.zero_grad()
            loss = 0.0
            for k in range(2):
                with mark(f"task {k}"), execution("task"):
                    a, ph = np.random.uniform(0.1, 5), np.random.uniform(0, math.pi)
                    x = torch.rand(20, 1, device=D()) * 10 - 5
                    y = a * torch.sin(x + ph)
                    fast = meta
                    with mark("inner_loop"):
                        for _ in range(5):
                            with execution("inner step"):
                                g = torch.autograd.grad(F.mse_loss(net(x[:10], fast), y[:10]), fast, create_graph=True)
                                fast = [p - 0.01 * d for p, d in zip(fast, g)]
                    loss = loss + F.mse_loss(net(x[10:], fast), y[10:])
            with mark("outer_update"):
                loss.backward()
                opt.step()
            return loss.item()

    outer(), outer()
    with record():
        for _ in range(4):
            with execution():
                outer()


# 13 -----------------------------------------------------------------------------------------------------------------
@program(executions=4, layers=5, ranges="record_function: 'forward', 'backward', 'optimizer' for each step, side by side (no range per step)",
         limits=["kernels"],
         where="backward, which runs every block's forward once more (activation checkpointing), in matrix products and attention",
         remedy="checkpoint fewer blocks (memory allows it), or selective checkpointing; torch.compile",
         note="4 steps of a 5-block transformer in bf16 with torch.utils.checkpoint (use_reentrant=False) on every block: forward kernels of each block "
              "occur twice per step. 5 layers, though their forward runs 10 times per step. No reading back.")
def activation_checkpointing():
    "A large-batch transformer with activation checkpointing."
    from torch.utils.checkpoint import checkpoint
    B, T, d = big(16, 2), big(1024, 16), big(1536, 64)
    layers = nn.ModuleList(Block(d, big(12, 4), causal=True) for _ in range(5)).to(D(), half())
    blocks(layers)
    emb, head = nn.Embedding(big(8192, 64), d).to(D(), half()), nn.Linear(d, big(8192, 64), bias=False).to(D(), half())
    opt = torch.optim.AdamW([*layers.parameters(), *emb.parameters(), *head.parameters()], 1e-4, foreach=True)
    x = torch.randint(0, emb.num_embeddings, (B, T + 1), device=D())

    def step():
        with mark("forward"):
            h = emb(x[:, :-1])
            for b in layers:
                h = checkpoint(b, h, use_reentrant=False)
            loss = F.cross_entropy(head(h).flatten(0, 1), x[:, 1:].flatten())
        with mark("backward"):
            loss.backward()
        with mark("optimizer"):
            opt.step()
            opt.zero_grad(set_to_none=True)

    step(), step()
    with record(shapes=True):
        for _ in range(4):
            with execution():
                step()


# 14 -----------------------------------------------------------------------------------------------------------------
@program(executions=24, layers=3, kinds={"training step": 24, "validation batch": 5}, ranges="none", limits=["host", "launches", "waiting"],
         where="launching the small kernels of the training steps; once, between the two halves, the checkpoint's copy to the host and torch.save",
         remedy="torch.compile or CUDA graphs, larger batch; save the checkpoint asynchronously",
         note="12 training steps, 5 validation batches (.item() each), a checkpoint (state_dict to CPU, torch.save into memory), 12 training steps; "
              "loss read every 5 steps. A checkpoint holds a large embedding (about 25 MB), so that the pause is tens of ms. 3 residual blocks of 1-D convolutions.")
def train_validate_checkpoint_train():
    "A 1-D ResNet for time series; train 12, validate 5, checkpoint, train 12."
    B, c, L = big(64, 4), big(64, 8), big(512, 64)

    class R1(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv1d(c, c, 7, padding=3), nn.Conv1d(c, c, 7, padding=3)
            self.na, self.nb = nn.BatchNorm1d(c), nn.BatchNorm1d(c)

        def forward(self, x):
            return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patient = nn.Embedding(big(100_000, 100), c)
            self.stem = nn.Conv1d(12, c, 15, padding=7)
            self.blocks = nn.Sequential(*[R1() for _ in range(3)])
            self.head = nn.Linear(c, 5)

        def forward(self, x, who):
            x = self.blocks(self.stem(x) + self.patient(who)[:, :, None])
            return self.head(x.mean(-1))

    net = Net().to(D())
    net.patient.requires_grad_(False)
    residual([net], "R1")
    opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-3, total_steps=100)
    xs, ys = torch.randn(12, B, 12, L, device=D()), torch.randint(0, 5, (12, B), device=D())
    who = torch.randint(0, net.patient.num_embeddings, (12, B), device=D())

    def train(steps):
        net.train()
        for i in range(steps):
            with execution(), execution("training step"):
                loss = F.cross_entropy(net(xs[i], who[i]), ys[i])
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                sched.step()
                if (i + 1) % 5 == 0:
                    loss.item()

    def validate():
        net.eval()
        correct, total = 0, 0.0
        with torch.no_grad():
            for i in range(5):
                with execution():
                    out = net(xs[i], who[i])
                    total += F.cross_entropy(out, ys[i]).item()
                    correct += (out.argmax(1) == ys[i]).sum().item()

    def save():
        state = {"model": {k: v.cpu() for k, v in net.state_dict().items()}, "step": 12}
        torch.save(state, io.BytesIO())

    train(2), validate()
    with record():
        train(12)
        validate()
        save()
        train(12)


# 15 -----------------------------------------------------------------------------------------------------------------
@program(executions=16, layers=8, kinds={"full batch": 15, "ragged last batch": 1}, ranges="none", limits=["copies", "waiting", "synchronisation"],
         where="copying the images to the device from pageable memory (about 77 MB per batch), before the model, nothing overlapped",
         remedy="pinned memory and non_blocking copies, uint8 or bf16 images over the bus, prefetch the next batch; metrics kept on the device",
         note="evaluation of a ResNet-18 under bf16 autocast in channels-last; 16 batches of 128, the last of 40; three .item() per batch (loss, top-1, top-5).")
def evaluate_with_item():
    "Evaluation with metrics read back every batch."
    bs, size = big(128, 4), big(224, 32)
    net = resnet18(100).to(D()).eval().to(memory_format=torch.channels_last)
    residual([net], "BasicBlock")
    pool = [torch.randn(bs, 3, size, size) for _ in range(2)]
    last = big(40, 2)
    labels = torch.randint(0, 100, (bs,))

    @torch.inference_mode()
    def run(n):
        seen, loss, top1, top5 = 0, 0.0, 0, 0
        for i in range(n):
            x, y = pool[i % 2], labels
            if i == n - 1:
                x, y = x[:last], y[:last]
            with execution():
                x, y = x.to(D()).contiguous(memory_format=torch.channels_last), y.to(D())
                with amp():
                    out = net(x)
                loss += F.cross_entropy(out.float(), y, reduction="sum").item()
                hit = out.topk(5, 1).indices == y[:, None]
                top1 += hit[:, 0].sum().item()
                top5 += hit.any(1).sum().item()
            seen += len(y)
        return loss / seen, top1 / seen, top5 / seen

    run(2)
    with record(shapes=True):
        run(16)


# 16 -----------------------------------------------------------------------------------------------------------------
@program(executions=21, layers=None, kinds={"trial": 3, "training step": 21, "evaluation": 3},
         ranges="record_function: 'trial factors=16', 'trial factors=64', 'trial factors=128', nothing inside",
         limits=["host", "launches", "synchronisation"],
         where="SparseAdam and the sparse gradients (coalesce: sorting, waits for the number of distinct rows), many small kernels",
         remedy="dense gradients with a fused optimiser (the tables are small enough), or larger batches",
         note="a sweep: 3 models one after the other in one process, each built, trained for 7 steps and evaluated once (RMSE by .item()). "
              "An owner would say 3 trials, or 21 training steps (7 per trial).")
def matrix_factorisation_sweep():
    "Matrix factorisation with sparse embeddings, a sweep over the number of factors."
    users, items, B = big(200_000, 500), big(50_000, 200), big(16384, 128)
    u = torch.randint(0, users, (12, B), device=D())
    i = torch.randint(0, items, (12, B), device=D())
    r = torch.rand(12, B, device=D()) * 4 + 1

    class MF(nn.Module):
        def __init__(self, k):
            super().__init__()
            with torch.device(D()):
                self.U, self.I = nn.Embedding(users, k, sparse=True), nn.Embedding(items, k, sparse=True)
                self.bu, self.bi = nn.Embedding(users, 1, sparse=True), nn.Embedding(items, 1, sparse=True)

        def forward(self, u, i):
            return (self.U(u) * self.I(i)).sum(-1) + self.bu(u).squeeze(-1) + self.bi(i).squeeze(-1)

    def trial(k, steps):
        model = MF(k)
        opt = torch.optim.SparseAdam(list(model.parameters()), 1e-2)
        for s in range(steps):
            with execution(), execution("training step"):
                opt.zero_grad()
                loss = F.mse_loss(model(u[s], i[s]), r[s])
                loss.backward()
                opt.step()
        with execution(), torch.no_grad():
            return F.mse_loss(model(u[11], i[11]), r[11]).sqrt().item()

    trial(16, 2)
    with record():
        results = {}
        for k in (16, 64, 128):
            with mark(f"trial factors={k}"), execution("trial"):
                results[k] = trial(k, 7)
        best = min(results, key=results.get)
        print(best, file=io.StringIO())
