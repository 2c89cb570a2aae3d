"""Three programs of training: SimCLR with a linear probe, federated averaging, a video transformer with a factorised encoder. Sizes are a
CPU's. The truth was written down before any tool read a recording."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

from harness import blocks, execution, program, record, D


class Tensors(Dataset):
    def __init__(self, make, n):
        self.items = [make(i) for i in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


# -------------------------------------------------------------------------------------------------- 1. SimCLR
@program(executions=18, layers=4, kinds={"training batch": 10, "probe batch": 8}, ranges="record_function: 'epoch=0 batch=3' around each training batch, 'linear probe' around all of a probe",
         note="2 epochs of 5 training batches (two views side by side in one pass); after each epoch 4 batches of features by the frozen encoder and a linear classifier on them: each batch is one pass of the encoder, hence 10 + 8 executions; "
              "the training batches alone are acceptable. Layers: the 4 residual blocks; each convolution is acceptable. The steps of the linear classifier are no pass.")
def simclr_probe():
    "SimCLR: augmentations on the GPU, NT-Xent over two views, cosine schedule, a linear probe after each epoch."
    device = D()

    class Basic(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.short = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s > 1 or i != o else nn.Identity()

        def forward(self, x):
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))

    class SimCLR(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
            self.layers = nn.Sequential(Basic(12, 12, 1), Basic(12, 24, 2), Basic(24, 24, 1), Basic(24, 48, 2))
            self.projector = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 24))

        def features(self, x):
            return self.layers(self.stem(x)).mean((2, 3))

        def forward(self, x):
            return self.projector(self.features(x))

    model = SimCLR().to(device)
    blocks(model.layers)
    blocks([m for m in model.modules() if isinstance(m, nn.Conv2d)], "convolution")

    def augment(x):
        x = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5, x.flip(-1), x)
        theta = torch.eye(2, 3, device=x.device).repeat(len(x), 1, 1)
        theta[:, 0, 0] = theta[:, 1, 1] = torch.rand(len(x), device=x.device) * 0.6 + 0.4
        theta[:, :, 2] = torch.rand(len(x), 2, device=x.device) * 0.4 - 0.2
        x = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)
        x = x * (torch.rand(len(x), 3, 1, 1, device=x.device) * 0.8 + 0.6)
        gray = x.mean(1, keepdim=True).expand_as(x)
        x = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.2, gray, x)
        return (x - 0.5) / 0.25

    def nt_xent(z, temperature=0.5):
        n = len(z) // 2
        z = F.normalize(z)
        sim = z @ z.T / temperature
        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), -1e9)
        target = torch.arange(2 * n, device=z.device).roll(n)
        return F.cross_entropy(sim, target)

    optimizer = torch.optim.SGD(model.parameters(), 0.06, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    make = lambda i: (torch.rand(3, 16, 16), torch.tensor(i % 10))
    train_loader = DataLoader(Tensors(make, 40), batch_size=8, shuffle=True, drop_last=True)
    probe_loader = DataLoader(Tensors(make, 60), batch_size=16)

    def probe():
        model.eval()
        found, labels = [], []
        with torch.no_grad():
            for x, y in probe_loader:
                with execution("batch"):
                    found.append(model.features((x.to(device) - 0.5) / 0.25))
                    labels.append(y.to(device))
        found, labels = torch.cat(found), torch.cat(labels)
        head = nn.Linear(48, 10).to(device)
        tune = torch.optim.SGD(head.parameters(), 0.5)
        for _ in range(6):
            loss = F.cross_entropy(head(found), labels)
            tune.zero_grad()
            loss.backward()
            tune.step()
        model.train()
        return (head(found).argmax(1) == labels).float().mean().item()

    def train(epochs):
        for epoch in range(epochs):
            total = 0.0
            for i, (x, _) in enumerate(train_loader):
                with execution("batch"), execution("training batch"), record_function(f"epoch={epoch} batch={i}"):
                    x = x.to(device, non_blocking=True)
                    z = model(torch.cat([augment(x), augment(x)]))
                    loss = nt_xent(z)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
            scheduler.step()
            with record_function("linear probe"):
                print(epoch, total, probe())

    train(1)
    with record(shapes=True):
        train(2)


# -------------------------------------------------------------------------------------------------- 2. FedAvg
@program(executions=32, layers=5, kinds={"local step": 24, "server batch": 8}, ranges="record_function: 'round 1/client 2' around the local training of a client (3 or 2 steps), 'aggregate', 'server eval'",
         note="3 rounds, each with 3 clients drawn from 5 that train a copy of the model for 2 to 3 local batches (8 a round), and an evaluation by the server on 2 batches; the model is evaluated once before: 24 + 8 executions; "
              "the local steps alone are acceptable. Layers: the 5 convolution layers (with batch norm and activation).")
def fedavg_rounds():
    "Federated averaging simulated in one process: copies of the model, local SGD with a proximal term, weighted averaging, evaluation."
    device = D()

    class ConvLayer(nn.Module):
        def __init__(self, i, o, s=1):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o)

        def forward(self, x):
            return F.relu(self.norm(self.conv(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.drop = nn.Sequential(ConvLayer(1, 8), ConvLayer(8, 8), ConvLayer(8, 16, 2), ConvLayer(16, 16), ConvLayer(16, 32, 2)), nn.Dropout(0.2)
            self.fc = nn.Linear(32, 10)

        def forward(self, x):
            return self.fc(self.drop(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1)))

    make = lambda i: (torch.randn(1, 14, 14), i % 10)
    sizes = (48, 32, 40, 48, 32)
    clients = [DataLoader(Tensors(make, n), batch_size=16, shuffle=True) for n in sizes]
    test = DataLoader(Tensors(make, 56), batch_size=32)
    server = Net().to(device)

    def watch(net):
        blocks(net.features)
        return net

    watch(server)

    def evaluate():
        server.eval()
        loss, correct = 0.0, 0
        with torch.no_grad():
            for x, y in test:
                with execution("batch"):
                    x, y = x.to(device), y.to(device)
                    out = server(x)
                    loss += F.cross_entropy(out, y, reduction="sum").item()
                    correct += (out.argmax(1) == y).sum().item()
        return loss / 56, correct / 56

    def local(k, mu=0.01):
        net = Net().to(device)
        net.load_state_dict(server.state_dict())
        watch(net)
        net.train()
        start = [p.detach().clone() for p in net.parameters()]
        optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
        for x, y in clients[k]:
            with execution("batch"), execution("local step"):
                x, y = x.to(device), y.to(device)
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss = loss + mu / 2 * sum(((p - q) ** 2).sum() for p, q in zip(net.parameters(), start))
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 10.0)
                optimizer.step()
        return net.state_dict(), sizes[k]

    def aggregate(states):
        total = sum(n for _, n in states)
        new = {}
        for key in states[0][0]:
            new[key] = sum(s[key].float() * (n / total) for s, n in states).to(states[0][0][key].dtype)
        server.load_state_dict(new)

    def run(rounds):
        print(evaluate())
        for r in rounds:
            states = []
            for k in r:
                with record_function(f"round {rounds.index(r)}/client {k}"):
                    states.append(local(k))
            with record_function("aggregate"):
                aggregate(states)
            with record_function("server eval"):
                print(evaluate())

    run([[1]])
    with record(shapes=True):
        run([[0, 1, 3], [2, 4, 0], [3, 1, 2]])


# -------------------------------------------------------------------------------------------------- 3. ViViT
@program(executions=9, layers=7, kinds={"iteration": 6, "clip of a test video": 3}, ranges="record_function, nested: 'iter 12' and so on, in it 'data', 'fwd', 'bwd', 'opt'; 'test video 0 (3 clips)' around 3 passes",
         note="6 training iterations with autocast and a gradient scaler, then one test video of which 3 clips are read one by one and averaged: 6 + 3 passes, each one execution; the iterations alone are acceptable. "
              "Layers: 4 spatial and 3 temporal encoder layers (factorised encoder).")
def vivit_factorised():
    "A video transformer with a factorised encoder (ViViT): tubelets, mixup, label smoothing, autocast in bf16, layer decay of the learning rate."
    device = D()

    class Layer(nn.Module):
        def __init__(self, d, heads=4):
            super().__init__()
            self.heads, self.norm1, self.qkv, self.proj, self.norm2, self.fc1, self.fc2 = heads, nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d), nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

        def forward(self, x):
            b, n, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class ViViT(nn.Module):
        def __init__(self, d=48, classes=20):
            super().__init__()
            self.tubelet, self.pos, self.time = nn.Conv3d(3, d, (2, 8, 8), (2, 8, 8)), nn.Parameter(torch.randn(1, 17, d)), nn.Parameter(torch.randn(1, 5, d))
            self.cls_s, self.cls_t = nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.zeros(1, 1, d))
            self.spatial, self.temporal = nn.ModuleList(Layer(d) for _ in range(4)), nn.ModuleList(Layer(d) for _ in range(3))
            self.norm_s, self.norm_t, self.head = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, classes)

        def forward(self, video):
            x = self.tubelet(video)
            b, d, t = x.shape[:3]
            x = x.permute(0, 2, 3, 4, 1).reshape(b * t, -1, d)
            x = torch.cat([self.cls_s.expand(b * t, -1, -1), x], 1) + self.pos
            for one in self.spatial:
                x = one(x)
            x = self.norm_s(x)[:, 0].reshape(b, t, d)
            x = torch.cat([self.cls_t.expand(b, -1, -1), x], 1) + self.time
            for one in self.temporal:
                x = one(x)
            return self.head(self.norm_t(x)[:, 0])

    model = ViViT().to(device)
    blocks([*model.spatial, *model.temporal])
    groups = [{"params": list(m.parameters()), "lr": 1e-3 * 0.75 ** (7 - k)} for k, m in enumerate([*model.spatial, *model.temporal])]
    groups.append({"params": [*model.tubelet.parameters(), *model.norm_s.parameters(), *model.norm_t.parameters(), *model.head.parameters(), model.pos, model.time, model.cls_s, model.cls_t], "lr": 1e-3})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.05)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    make = lambda i: (torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8), torch.tensor(i % 20))
    loader = DataLoader(Tensors(make, 24), batch_size=4, shuffle=True)

    def video_of(x):
        return (x.to(device).permute(0, 4, 1, 2, 3).float() / 255 - 0.45) / 0.225

    def train(first, n):
        it = iter(loader)
        for i in range(first, first + n):
            with record_function(f"iter {i}"), execution("pass"), execution("iteration"):
                with record_function("data"):
                    x, y = next(it)
                    x, y = video_of(x), F.one_hot(y.to(device), 20) * 0.9 + 0.005
                    lam = float(torch.distributions.Beta(0.8, 0.8).sample())
                    x, y = lam * x + (1 - lam) * x.flip(0), lam * y + (1 - lam) * y.flip(0)
                with record_function("fwd"), torch.autocast("cpu", torch.bfloat16):
                    loss = torch.sum(-y * F.log_softmax(model(x).float(), dim=-1), dim=-1).mean()
                with record_function("bwd"):
                    optimizer.zero_grad()
                    scaler.scale(loss).backward()
                with record_function("opt"):
                    scaler.unscale_(optimizer)
                    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
                if i % 3 == 0:
                    print(i, loss.item(), norm.item())

    def test(k):
        model.eval()
        clips = torch.randint(0, 256, (3, 8, 32, 32, 3), dtype=torch.uint8)
        total = 0
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), record_function(f"test video {k} (3 clips)"):
            for clip in clips:
                with execution("pass"):
                    total = total + model(video_of(clip[None])).float().softmax(-1)
        return total.argmax(-1).item()

    train(0, 2)
    with record(shapes=True):
        train(12, 6)
        print(test(0))
