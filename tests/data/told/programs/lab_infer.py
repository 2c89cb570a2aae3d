"""Three programs of inference: molecules by an equivariant diffusion, Fusion-in-Decoder, a vision mixture of experts. Sizes are a CPU's.
The truth was written down before any tool read a recording."""
import math

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


# -------------------------------------------------------------------------------------------------- 1. EDM
@program(executions=30, layers=4, kinds={"denoising step": 30, "batch": 3}, ranges="record_function: 'bs=6' and so on around the sampling of a batch",
         note="3 batches of molecules (6, 6 and 4), each sampled in 10 denoising steps: a step is one execution, a batch is acceptable. "
              "Layers: the 4 equivariant blocks; each of their two parts (GCL, coordinate update) is acceptable.")
def edm_molecules():
    "E(3) equivariant diffusion for molecules: an EGNN as the network, zero centre of mass noise, atom types at the end."
    torch.set_grad_enabled(False)
    device = D()

    class GCL(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.edge_mlp = nn.Sequential(nn.Linear(2 * d + 2, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU())
            self.att = nn.Sequential(nn.Linear(d, 1), nn.Sigmoid())
            self.node_mlp = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))

        def forward(self, h, row, col, attr, node_mask, edge_mask):
            m = self.edge_mlp(torch.cat([h[row], h[col], attr], 1))
            m = m * self.att(m) * edge_mask
            agg = torch.zeros_like(h).index_add_(0, row, m) / 100
            return (h + self.node_mlp(torch.cat([h, agg], 1))) * node_mask

    class Coordinates(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(2 * d + 2, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1, bias=False))

        def forward(self, h, x, row, col, diff, attr, node_mask, edge_mask):
            trans = diff * torch.tanh(self.mlp(torch.cat([h[row], h[col], attr], 1))) * 15 * edge_mask
            return (x + torch.zeros_like(x).index_add_(0, row, trans) / 100) * node_mask

    class Equivariant(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.gcl, self.update = GCL(d), Coordinates(d)

        def forward(self, h, x, row, col, first, node_mask, edge_mask):
            diff = x[row] - x[col]
            radial = (diff ** 2).sum(1, keepdim=True)
            diff = diff / (torch.sqrt(radial + 1e-8) + 1)
            attr = torch.cat([radial, first], 1)
            h = self.gcl(h, row, col, attr, node_mask, edge_mask)
            return h, self.update(h, x, row, col, diff, attr, node_mask, edge_mask)

    class EGNN(nn.Module):
        def __init__(self, types=5, d=32, layers=4):
            super().__init__()
            self.embedding, self.out = nn.Linear(types + 1, d), nn.Linear(d, types)
            self.e_blocks = nn.ModuleList(Equivariant(d) for _ in range(layers))

        def forward(self, t, z, row, col, node_mask, edge_mask):
            x, h = z[:, :3], torch.cat([z[:, 3:], t.expand(len(z), 1)], 1)
            first = ((x[row] - x[col]) ** 2).sum(1, keepdim=True)
            h, y = self.embedding(h), x
            for block in self.e_blocks:
                h, y = block(h, y, row, col, first, node_mask, edge_mask)
            return torch.cat([(y - x) * node_mask, self.out(h) * node_mask], 1)

    model = EGNN().to(device).eval()
    blocks(model.e_blocks)
    blocks([m for one in model.e_blocks for m in (one.gcl, one.update)], "part")
    betas = torch.linspace(0.02, 0.3, 10)
    alphas = torch.cumprod(1 - betas, 0)

    def noise(b, n, mask):
        x = torch.randn(b, n, 3, device=device) * mask
        x = x - (x.sum(1, keepdim=True) / mask.sum(1, keepdim=True)) * mask
        return torch.cat([x, torch.randn(b, n, 5, device=device) * mask], 2).reshape(b * n, 8)

    def sample(sizes):
        b, n = len(sizes), max(sizes)
        mask = (torch.arange(n)[None] < torch.tensor(sizes)[:, None]).float()[..., None].to(device)
        i = torch.arange(n, device=device)
        pairs = torch.cartesian_prod(i, i)
        offset = (torch.arange(b, device=device) * n).repeat_interleave(n * n)
        row, col = pairs[:, 0].repeat(b) + offset, pairs[:, 1].repeat(b) + offset
        node_mask = mask.reshape(b * n, 1)
        edge_mask = node_mask[row] * node_mask[col] * (row != col)[:, None]
        z = noise(b, n, mask)
        for s in reversed(range(10)):
            with execution("denoising step"):
                t = torch.tensor([[s / 10]]).to(device)
                eps = model(t, z, row, col, node_mask, edge_mask)
                a, beta = alphas[s].item(), betas[s].item()
                z = (z - beta / math.sqrt(1 - a) * eps) / math.sqrt(1 - beta)
                z = z + math.sqrt(beta) * noise(b, n, mask) if s else z
                x = z[:, :3].reshape(b, n, 3)
                x = x - (x.sum(1, keepdim=True) / mask.sum(1, keepdim=True)) * mask
                z = torch.cat([x.reshape(b * n, 3), z[:, 3:]], 1)
        types = F.one_hot(z[:, 3:].argmax(1), 5) * node_mask.long()
        return z[:, :3].cpu().numpy(), types.cpu().numpy()

    sample([9, 7])
    with record(shapes=True):
        for sizes in ([9, 12, 7, 11, 8, 10], [14, 9, 9, 12, 10, 13], [8, 11, 9, 10]):
            with record_function(f"bs={len(sizes)}"), execution("batch"):
                sample(sizes)


# -------------------------------------------------------------------------------------------------- 2. Fusion-in-Decoder
@program(executions=33, layers=4, kinds={"pass": 33, "question": 4}, ranges="none",
         note="4 questions: each is embedded by the retriever (one pass), 6 passages are found and encoded together by the reader (one pass), and the answer is decoded token by token "
              "(7, 5, 8, 5 tokens: as many passes of the decoder): 4 + 4 + 25 = 33 passes, each one execution; a question is acceptable. "
              "Layers: 2 of the retriever, 4 of the reader's encoder, 4 of its decoder.")
def fid_reader():
    "A retrieval-augmented reader: a dense retriever, exact search over passage vectors, Fusion-in-Decoder (T5) with a cache of keys and values."
    torch.set_grad_enabled(False)
    device = D()

    class RMS(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    class Attention(nn.Module):
        def __init__(self, d, heads=4):
            super().__init__()
            self.heads, self.q, self.k, self.v, self.o = heads, nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)

        def split(self, x):
            return x.view(x.shape[0], -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2)

        def forward(self, x, bias=None, past=None, kv=None):
            q = self.split(self.q(x))
            if kv is not None:
                k, v = past if past is not None else (self.split(self.k(kv)), self.split(self.v(kv)))
            else:
                k, v = self.split(self.k(x)), self.split(self.v(x))
                if past is not None:
                    k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            scores = q @ k.transpose(3, 2)
            scores = scores + bias if bias is not None else scores
            out = (scores.float().softmax(-1).type_as(scores) @ v).transpose(1, 2).flatten(2)
            return self.o(out), (k, v)

    class EncoderBlock(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.n1, self.attention, self.n2, self.wi, self.wo = RMS(d), Attention(d), RMS(d), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

        def forward(self, x, bias):
            x = x + self.attention(self.n1(x), bias)[0]
            return x + self.wo(F.relu(self.wi(self.n2(x))))

    class DecoderBlock(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.n1, self.n2, self.n3, self.own, self.cross, self.wi, self.wo = RMS(d), RMS(d), RMS(d), Attention(d), Attention(d), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

        def forward(self, x, memory, mask, past):
            h, own = self.own(self.n1(x), past=past[0])
            x = x + h
            h, cross = self.cross(self.n2(x), mask, past=past[1], kv=memory)
            x = x + h
            return x + self.wo(F.relu(self.wi(self.n3(x)))), (own, cross)

    d = 40
    q_token, q_layers, q_norm = nn.Embedding(500, d).to(device), nn.ModuleList(EncoderBlock(d) for _ in range(2)).to(device), nn.LayerNorm(d).to(device)
    token, encoder, enc_norm = nn.Embedding(500, d).to(device), nn.ModuleList(EncoderBlock(d) for _ in range(4)).to(device), RMS(d).to(device)
    decoder, dec_norm, bucket = nn.ModuleList(DecoderBlock(d) for _ in range(4)).to(device), RMS(d).to(device), nn.Embedding(32, 4).to(device)
    blocks([*q_layers, *encoder, *decoder])
    index = torch.randn(3000, d).to(device)
    passages = [torch.randint(1, 500, (int(n),)).tolist() for n in torch.randint(20, 36, (3000,))]

    def relative(n):
        i = torch.arange(n, device=device)
        distance = (i[None] - i[:, None]).abs().clamp(max=31)
        return bucket(distance).permute(2, 0, 1)[None]

    def answer(question, length):
        with execution("pass"):
            x = q_token(torch.tensor([question]).to(device))
            for one in q_layers:
                x = one(x, None)
            vector = q_norm(x[:, 0])
            found = (vector @ index.T).topk(6).indices[0].tolist()
        with execution("pass"):
            texts = [question + passages[i] for i in found]
            width = max(map(len, texts))
            ids = torch.tensor([t + [0] * (width - len(t)) for t in texts]).to(device)
            mask = (1.0 - (ids != 0).float()) * torch.finfo(torch.float32).min
            x, bias = token(ids), relative(width) + mask[:, None, None, :]
            for one in encoder:
                x = one(x, bias)
            memory = enc_norm(x).reshape(1, -1, d)
            mask = mask.reshape(1, 1, 1, -1)
        out, past = [0], [(None, None)] * 4
        for _ in range(length):
            with execution("pass"):
                x = token(torch.tensor([[out[-1]]]).to(device))
                for k, one in enumerate(decoder):
                    x, past[k] = one(x, memory, mask, past[k])
                logits = (dec_norm(x) * d ** -0.5) @ token.weight.T
                out.append(logits[0, -1].argmax().item())
        return out

    answer([5, 6, 7], 2)
    with record(shapes=True):
        for length, n in ((7, 9), (5, 6), (8, 12), (5, 8)):
            with execution("question"):
                answer(torch.randint(1, 500, (n,)).tolist(), length)


# -------------------------------------------------------------------------------------------------- 3. V-MoE
@program(executions=13, layers=6, kinds={"batch": 13, "data set": 2}, ranges="none (DataLoader's own)",
         note="2 test sets (7 batches of 8 of which the last has 5, and 6 batches of 8 of which the last has 2) through one model: a batch is one execution. "
              "Layers: the 6 blocks, in 3 of which the MLP is 4 experts of which some may get no token.")
def vmoe_eval():
    "A vision mixture of experts evaluated on two test sets: top-2 routing with a Python loop over experts, accuracy at the end of each set."
    torch.set_grad_enabled(False)
    device = D()

    class Mlp(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

        def forward(self, x):
            return self.fc2(F.gelu(self.fc1(x)))

    class Experts(nn.Module):
        def __init__(self, d, n=4):
            super().__init__()
            self.router, self.experts = nn.Linear(d, n, bias=False), nn.ModuleList(Mlp(d) for _ in range(n))

        def forward(self, x):
            flat = x.reshape(-1, x.shape[-1])
            gates = self.router(flat).softmax(-1)
            weight, chosen = gates.topk(2, -1)
            out = torch.zeros_like(flat)
            for i, expert in enumerate(self.experts):
                token, slot = torch.where(chosen == i)
                if token.numel() == 0:
                    continue
                out.index_add_(0, token, expert(flat[token]) * weight[token, slot, None])
            return out.view_as(x)

    class Block(nn.Module):
        def __init__(self, d, moe):
            super().__init__()
            self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(d), nn.MultiheadAttention(d, 4, batch_first=True), nn.LayerNorm(d), Experts(d) if moe else Mlp(d)

        def forward(self, x):
            y = self.norm1(x)
            x = x + self.attn(y, y, y, need_weights=True)[0]
            return x + self.mlp(self.norm2(x))

    class VMoE(nn.Module):
        def __init__(self, d=40, depth=6, classes=50):
            super().__init__()
            self.patch, self.cls, self.pos = nn.Conv2d(3, d, 8, 8), nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.randn(1, 17, d))
            self.blocks, self.norm, self.head = nn.ModuleList(Block(d, i % 2 == 1) for i in range(depth)), nn.LayerNorm(d), nn.Linear(d, classes)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)[:, 0])

    model = VMoE().to(device).eval()
    blocks(model.blocks)
    make = lambda i: (torch.randn(3, 32, 32), torch.tensor(i % 50))

    def evaluate(loader):
        correct = torch.zeros(2).to(device)
        n = 0
        for images, target in loader:
            with execution("batch"):
                images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
                images = (images - 0.5) / 0.25
                output = model(images)
                _, pred = output.topk(5, 1)
                hit = pred.eq(target[:, None])
                correct += torch.stack([hit[:, :1].sum(), hit.sum()])
                n += len(target)
        return (correct / n).tolist()

    model(torch.zeros(2, 3, 32, 32).to(device))
    with record():
        for n in (53, 42):
            with execution("data set"):
                print(evaluate(DataLoader(Tensors(make, n), batch_size=8)))
