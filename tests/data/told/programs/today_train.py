"""Eight programs of training (and a reader of documents) as they are in public repositories in 2026: nanoGPT, a fine-tuned ViT with AMP, a BiLSTM-CRF,
SASRec, QLoRA, a video network, CycleGAN, Donut. Sizes are a CPU's. The truth was written down before any tool read a recording."""
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from harness import blocks, execution, program, record, said, D


# -------------------------------------------------------------------------------------------------- 1. nanoGPT
@program(executions=16, layers=6, kinds={"iteration": 4, "micro step": 16, "evaluation batch": 12}, ranges="none",
         note="4 iterations of 4 micro steps with one clip and update each; estimate_loss before iterations 0 and 2 (2 splits of 3 batches): an iteration's update with its micro steps is one execution and so is each evaluation batch "
              "(4 + 12); a micro step (16 + 12) is acceptable, and so are the iterations alone. Layers: the 6 blocks.")
def nanogpt_shakespeare():
    "nanoGPT's train.py: estimate_loss, gradient accumulation, autocast, GradScaler, clip, cosine learning rate, mfu."
    device = D()

    class LayerNorm(nn.Module):
        def __init__(self, ndim):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(ndim))

        def forward(self, x):
            return F.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)

    class CausalSelfAttention(nn.Module):
        def __init__(self, n_embd, n_head):
            super().__init__()
            self.n_head, self.c_attn, self.c_proj, self.resid_dropout = n_head, nn.Linear(n_embd, 3 * n_embd, bias=False), nn.Linear(n_embd, n_embd, bias=False), nn.Dropout(0.2)

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(C, dim=2)
            q, k, v = (y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for y in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))

    class MLP(nn.Module):
        def __init__(self, n_embd):
            super().__init__()
            self.c_fc, self.gelu, self.c_proj, self.dropout = nn.Linear(n_embd, 4 * n_embd, bias=False), nn.GELU(), nn.Linear(4 * n_embd, n_embd, bias=False), nn.Dropout(0.2)

        def forward(self, x):
            return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))

    class Block(nn.Module):
        def __init__(self, n_embd, n_head):
            super().__init__()
            self.ln_1, self.attn, self.ln_2, self.mlp = LayerNorm(n_embd), CausalSelfAttention(n_embd, n_head), LayerNorm(n_embd), MLP(n_embd)

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, vocab_size=65, n_layer=6, n_head=4, n_embd=64, block_size=64):
            super().__init__()
            self.wte, self.wpe, self.drop = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd), nn.Dropout(0.2)
            self.h, self.ln_f, self.lm_head = nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer)), LayerNorm(n_embd), nn.Linear(n_embd, vocab_size, bias=False)
            self.wte.weight = self.lm_head.weight

        def forward(self, idx, targets):
            pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
            x = self.drop(self.wte(idx) + self.wpe(pos))
            for block in self.h:
                x = block(x)
            logits = self.lm_head(self.ln_f(x))
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    data = {split: np.random.default_rng(n).integers(0, 65, 20_000).astype(np.uint16) for n, split in enumerate(("train", "val"))}
    block_size, batch_size, accumulation = 64, 4, 4
    model = GPT().to(device)
    blocks(model.h)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1}, {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99))
    ctx = torch.autocast(device_type="cpu", dtype=torch.bfloat16)

    def get_batch(split):
        with said("host"):
            ix = torch.randint(len(data[split]) - block_size, (batch_size,))
            x = torch.stack([torch.from_numpy(data[split][i:i + block_size].astype(np.int64)) for i in ix])
            y = torch.stack([torch.from_numpy(data[split][i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
        return x.to(device, non_blocking=True), y.to(device, non_blocking=True)

    @torch.no_grad()
    def estimate_loss(eval_iters=3):
        out = {}
        model.eval()
        for split in ("train", "val"):
            losses = np.zeros(eval_iters)
            for k in range(eval_iters):
                with execution("iteration or evaluation batch"), execution("micro step or evaluation batch"):
                    X, Y = get_batch(split)
                    with ctx:
                        logits, loss = model(X, Y)
                    losses[k] = loss.item()
            out[split] = losses.mean()
        model.train()
        return out

    def get_lr(it, warmup=2, decay=5, lr=1e-3, min_lr=1e-4):
        if it < warmup:
            return lr * (it + 1) / (warmup + 1)
        ratio = min(1.0, (it - warmup) / (decay - warmup))
        return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (lr - min_lr)

    def train(max_iters, eval_interval=2):
        X, Y = get_batch("train")
        t0 = time.time()
        for iter_num in range(max_iters):
            for group in optimizer.param_groups:
                group["lr"] = get_lr(iter_num)
            if iter_num % eval_interval == 0:
                losses = estimate_loss()
                print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
            with execution("iteration"), execution("iteration or evaluation batch"):
                for micro_step in range(accumulation):
                    last = micro_step == accumulation - 1
                    mark = execution("micro step or evaluation batch")
                    mark.__enter__()
                    with ctx:
                        logits, loss = model(X, Y)
                        loss = loss / accumulation
                    X, Y = get_batch("train")
                    loss.backward()
                    if not last:
                        mark.__exit__(None, None, None)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                mark.__exit__(None, None, None)
            dt, t0 = time.time() - t0, time.time()
            if iter_num % 1 == 0:
                print(f"iter {iter_num}: loss {loss.item() * accumulation:.4f}, time {dt * 1000:.2f}ms")

    train(1)
    with record():
        train(4)


# -------------------------------------------------------------------------------------------------- 2. ViT with AMP
@program(executions=14, layers=6, kinds={"training step": 8, "validation batch": 6}, ranges="none",
         note="2 epochs of 4 training steps (autocast, scaler, clip, moving average) and 3 validation batches (the last one smaller): each batch is one pass, hence an execution; the training steps alone are acceptable. "
              "Layers: the 6 encoder blocks.")
def vit_finetune_amp():
    "A timm-like script: a ViT with a new head, Mixup, autocast and GradScaler, EMA of the weights, top-1 after each epoch."
    device = D()

    class Attention(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

        def forward(self, x):
            B, N, C = x.shape
            q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
            return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, C))

    class LayerScale(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.gamma = nn.Parameter(1e-1 * torch.ones(dim))

        def forward(self, x):
            return x * self.gamma

    class DropPath(nn.Module):
        def forward(self, x, p=0.1):
            if not self.training:
                return x
            mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - p)
            return x * mask.div_(1 - p)

    class Block(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.norm1, self.attn, self.ls1, self.norm2 = nn.LayerNorm(dim), Attention(dim, heads), LayerScale(dim), nn.LayerNorm(dim)
            self.mlp, self.ls2, self.drop_path = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)), LayerScale(dim), DropPath()

        def forward(self, x):
            x = x + self.drop_path(self.ls1(self.attn(self.norm1(x))))
            return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))

    class VisionTransformer(nn.Module):
        def __init__(self, dim=64, depth=6, heads=4, classes=10):
            super().__init__()
            self.patch_embed, self.cls_token, self.pos_embed = nn.Conv2d(3, dim, 8, 8), nn.Parameter(torch.zeros(1, 1, dim)), nn.Parameter(torch.randn(1, 17, dim) * 0.02)
            self.blocks, self.norm, self.head = nn.Sequential(*(Block(dim, heads) for _ in range(depth))), nn.LayerNorm(dim), nn.Linear(dim, classes)

        def forward(self, x):
            x = self.patch_embed(x).flatten(2).transpose(1, 2)
            x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
            return self.head(self.norm(self.blocks(x))[:, 0])

    class Pictures(Dataset):
        def __init__(self, n):
            rng = np.random.default_rng(n)
            self.x, self.y = rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, n)

        def __len__(self):
            return len(self.y)

        def __getitem__(self, i):
            x = torch.from_numpy(self.x[i]).float().div(255)
            return (x - 0.5) / 0.25, int(self.y[i])

    model, ema = VisionTransformer().to(device), VisionTransformer().to(device)
    ema.load_state_dict(model.state_dict())
    ema.eval()
    blocks(model.blocks)
    blocks(ema.blocks)
    head = list(model.head.parameters())
    body = [p for n, p in model.named_parameters() if not n.startswith("head")]
    optimizer = torch.optim.AdamW([{"params": body, "lr": 1e-4}, {"params": head, "lr": 1e-3}], weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    loader_train, loader_eval = DataLoader(Pictures(32), batch_size=8, shuffle=True), DataLoader(Pictures(40), batch_size=16)

    def mixup(x, y, alpha=0.8):
        lam = np.random.beta(alpha, alpha)
        y1 = F.one_hot(y, 10).float() * 0.9 + 0.01
        return x * lam + x.flip(0) * (1 - lam), y1 * lam + y1.flip(0) * (1 - lam)

    @torch.no_grad()
    def update_ema(decay=0.99):
        for e, p in zip(ema.state_dict().values(), model.state_dict().values()):
            e.mul_(decay).add_(p, alpha=1 - decay)

    def train_one_epoch(epoch):
        model.train()
        total = 0.0
        for i, (input, target) in enumerate(loader_train):
            with execution("step or validation batch"), execution("training step"):
                input, target = input.to(device, non_blocking=True), target.to(device, non_blocking=True)
                input, target = mixup(input, target)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    output = model(input)
                    loss = torch.sum(-target * F.log_softmax(output.float(), dim=-1), dim=-1).mean()
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                update_ema()
            total += loss.detach()
            scheduler.step()
            if i % 2 == 0:
                print(f"Train: {epoch} [{i}/{len(loader_train)}] Loss: {loss.item():.3f} LR: {optimizer.param_groups[0]['lr']:.3e}")
        return total

    @torch.no_grad()
    def validate(net):
        net.eval()
        correct, seen = 0, 0
        for input, target in loader_eval:
            with execution("step or validation batch"):
                input, target = input.to(device, non_blocking=True), target.to(device, non_blocking=True)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    output = net(input)
                loss = F.cross_entropy(output.float(), target)
                pred = output.topk(5, 1, True, True)[1].t()
                hits = pred.eq(target.reshape(1, -1).expand_as(pred))
                correct += hits[:1].reshape(-1).float().sum(0).item()
            seen += len(input)
        return 100 * correct / seen, loss.item()

    train_one_epoch(-1)
    validate(ema)
    with record():
        for epoch in range(2):
            train_one_epoch(epoch)
            print("Acc@1", validate(ema))


# -------------------------------------------------------------------------------------------------- 3. BiLSTM-CRF
@program(executions=13, layers=1, kinds={"training step": 8, "sentence": 5}, ranges="none",
         note="8 training steps over batches of sentences of other lengths, then 5 sentences tagged one by one (Viterbi): each is one pass, hence an execution; the training steps alone are acceptable. "
              "Layers: the embedding with the LSTM, and the CRF; each step of the CRF's recursion over words is acceptable.")
def bilstm_crf_ner():
    "A tagger of names: embeddings, a packed bidirectional LSTM, a CRF with a Python loop over words, Viterbi decoding."
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

    from harness import layer
    device = D()

    class CRF(nn.Module):
        def __init__(self, tags):
            super().__init__()
            self.transitions, self.start, self.end = (nn.Parameter(torch.empty(*s).uniform_(-0.1, 0.1)) for s in ((tags, tags), (tags,), (tags,)))

        def forward(self, emissions, tags, mask):
            return -(self.numerator(emissions, tags, mask) - self.normalizer(emissions, mask)).mean()

        def numerator(self, emissions, tags, mask):
            rows = torch.arange(tags.shape[1], device=tags.device)
            score = self.start[tags[0]] + emissions[0, rows, tags[0]]
            for i in range(1, tags.shape[0]):
                with layer("word"):
                    score = score + self.transitions[tags[i - 1], tags[i]] * mask[i]
                    score = score + emissions[i, rows, tags[i]] * mask[i]
            ends = mask.long().sum(0) - 1
            return score + self.end[tags[ends, rows]]

        def normalizer(self, emissions, mask):
            score = self.start + emissions[0]
            for i in range(1, emissions.shape[0]):
                with layer("word"):
                    nxt = torch.logsumexp(score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1), dim=1)
                    score = torch.where(mask[i].unsqueeze(1), nxt, score)
            return torch.logsumexp(score + self.end, dim=1)

        def decode(self, emissions):
            score, history = self.start + emissions[0], []
            for i in range(1, emissions.shape[0]):
                with layer("word"):
                    best, index = (score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)).max(dim=1)
                    score = best
                    history.append(index)
            best = (score + self.end)[0].argmax(0)
            tags = [best.item()]
            for h in reversed(history):
                with layer("word"):
                    best = h[0][tags[-1]]
                    tags.append(best.item())
            return tags[::-1]

    class Encoder(nn.Module):
        def __init__(self, words=800, dim=48, hidden=64, tags=9):
            super().__init__()
            self.embedding, self.dropout = nn.Embedding(words, dim, padding_idx=0), nn.Dropout(0.3)
            self.lstm, self.hidden2tag = nn.LSTM(dim, hidden // 2, bidirectional=True), nn.Linear(hidden, tags)

        def forward(self, ids, lengths):
            packed = pack_padded_sequence(self.dropout(self.embedding(ids)), lengths, enforce_sorted=False)
            out, _ = pad_packed_sequence(self.lstm(packed)[0])
            return self.hidden2tag(self.dropout(out))

    encoder, crf = Encoder().to(device), CRF(9).to(device)
    rng = np.random.default_rng(0)

    def sentence():
        n = int(rng.integers(6, 17))
        return torch.from_numpy(rng.integers(1, 800, n)), torch.from_numpy(rng.integers(0, 9, n))

    def collate(rows):
        ids, tags = zip(*rows)
        return pad_sequence(ids), pad_sequence(tags), torch.tensor([len(i) for i in ids])

    train_set, test_set = [sentence() for _ in range(64)], [sentence() for _ in range(5)]
    loader = DataLoader(train_set, batch_size=8, shuffle=True, collate_fn=collate)
    params = [*encoder.parameters(), *crf.parameters()]
    optimizer = torch.optim.Adam(params, lr=1e-3)
    parts = [encoder, crf]
    blocks(parts, "part")

    def train():
        encoder.train()
        total = 0.0
        for ids, tags, lengths in loader:
            with execution("step or sentence"), execution("training step"):
                ids, tags = ids.to(device), tags.to(device)
                mask = (ids != 0)
                optimizer.zero_grad()
                loss = crf(encoder(ids, lengths), tags, mask)
                loss.backward()
                nn.utils.clip_grad_norm_(params, 5.0)
                optimizer.step()
                total += loss.item()
        return total / len(loader)

    @torch.no_grad()
    def evaluate():
        encoder.eval()
        right = seen = 0
        for ids, tags in test_set:
            with execution("step or sentence"):
                emissions = encoder(ids[:, None].to(device), torch.tensor([len(ids)]))
                with layer("part"):
                    path = crf.decode(emissions)
            right, seen = right + sum(a == b for a, b in zip(path, tags.numpy())), seen + len(path)
        return right / seen

    optimizer.zero_grad()
    train()
    with record():
        print("loss", train())
        print("accuracy", evaluate())


# -------------------------------------------------------------------------------------------------- 4. SASRec
@program(executions=22, layers=2, kinds={"training step": 10, "evaluation batch": 12}, ranges="none",
         note="2 epochs of 5 training steps, after each 6 batches of users of which all items are ranked: each is one pass, hence an execution; the training steps alone are acceptable. "
              "Layers: the 2 blocks; attention and feed forward of each are acceptable.")
def sasrec_movielens():
    "SASRec (pmixer's PyTorch code): positive and negative items, BCE on those that are no padding, HR@10 and NDCG@10."
    device = D()
    items, maxlen, hidden = 300, 40, 48

    class PointWiseFeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.dropout1, self.conv2, self.dropout2 = nn.Conv1d(hidden, hidden, 1), nn.Dropout(0.2), nn.Conv1d(hidden, hidden, 1), nn.Dropout(0.2)

        def forward(self, x):
            out = self.dropout2(self.conv2(F.relu(self.dropout1(self.conv1(x.transpose(-1, -2))))))
            return out.transpose(-1, -2) + x

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attention, self.norm2, self.forward_layer = nn.LayerNorm(hidden), nn.MultiheadAttention(hidden, 2, 0.2), nn.LayerNorm(hidden), PointWiseFeedForward()

        def forward(self, seqs, mask, keep):
            seqs = seqs.transpose(0, 1)
            q = self.norm1(seqs)
            out, _ = self.attention(q, seqs, seqs, attn_mask=mask)
            seqs = self.forward_layer(self.norm2((q + out).transpose(0, 1)))
            return seqs * keep

    class SASRec(nn.Module):
        def __init__(self, depth=2):
            super().__init__()
            self.item_emb, self.pos_emb, self.dropout = nn.Embedding(items + 1, hidden, padding_idx=0), nn.Embedding(maxlen, hidden), nn.Dropout(0.2)
            self.layers, self.last_norm = nn.ModuleList(Layer() for _ in range(depth)), nn.LayerNorm(hidden)

        def log2feats(self, seqs_np):
            ids = torch.from_numpy(seqs_np).to(device)
            seqs = self.item_emb(ids) * hidden ** 0.5
            positions = np.tile(np.arange(seqs_np.shape[1]), [seqs_np.shape[0], 1])
            seqs = self.dropout(seqs + self.pos_emb(torch.from_numpy(positions).to(device)))
            keep = ~(ids == 0).unsqueeze(-1)
            seqs = seqs * keep
            mask = ~torch.tril(torch.ones((seqs.shape[1], seqs.shape[1]), dtype=torch.bool, device=device))
            for layer in self.layers:
                seqs = layer(seqs, mask, keep)
            return self.last_norm(seqs)

        def forward(self, seq, pos, neg):
            feats = self.log2feats(seq)
            pos_embs, neg_embs = self.item_emb(torch.from_numpy(pos).to(device)), self.item_emb(torch.from_numpy(neg).to(device))
            return (feats * pos_embs).sum(dim=-1), (feats * neg_embs).sum(dim=-1)

        def predict(self, seq):
            return self.log2feats(seq)[:, -1] @ self.item_emb.weight.T

    rng = np.random.default_rng(0)
    users = [rng.integers(1, items + 1, rng.integers(10, 60)) for _ in range(96)]

    def sample(batch=24):
        seq, pos, neg = (np.zeros((batch, maxlen), np.int64) for _ in range(3))
        for r, u in enumerate(rng.integers(0, len(users), batch)):
            history, at = users[u][:-1], maxlen - 1
            for prev, nxt in zip(reversed(history[:-1]), reversed(history[1:])):
                if at < 0:
                    break
                seq[r, at], pos[r, at], neg[r, at], at = prev, nxt, rng.integers(1, items + 1), at - 1
        return seq, pos, neg

    model = SASRec().to(device)
    blocks(model.layers)
    blocks([m for layer in model.layers for m in (layer.attention, layer.forward_layer)], "part")
    adam = torch.optim.Adam(model.parameters(), lr=0.001, betas=(0.9, 0.98))
    bce = nn.BCEWithLogitsLoss()

    def epoch(steps):
        model.train()
        for step in range(steps):
            seq, pos, neg = sample()
            with execution("step or batch"), execution("training step"):
                pos_logits, neg_logits = model(seq, pos, neg)
                ones, zeros = torch.ones(pos_logits.shape, device=device), torch.zeros(neg_logits.shape, device=device)
                adam.zero_grad()
                indices = np.where(pos != 0)
                indices = tuple(torch.from_numpy(i).to(device) for i in indices)
                loss = bce(pos_logits[indices], ones[indices])
                loss = loss + bce(neg_logits[indices], zeros[indices])
                for param in model.item_emb.parameters():
                    loss = loss + 0.0001 * torch.sum(param ** 2)
                loss.backward()
                adam.step()
                print(f"loss in iteration {step}: {loss.item():.4f}")

    @torch.no_grad()
    def evaluate(batch=16):
        model.eval()
        ndcg = hr = 0.0
        for at in range(0, len(users), batch):
            rows = users[at:at + batch]
            seq = np.zeros((len(rows), maxlen), np.int64)
            for r, history in enumerate(rows):
                h = history[:-1][-maxlen:]
                seq[r, maxlen - len(h):] = h
            with execution("step or batch"):
                scores = model.predict(seq)
                target = torch.from_numpy(np.array([h[-1] for h in rows])).to(device)
                rank = (scores > scores.gather(1, target[:, None])).sum(1)
                ranks = rank.cpu().numpy()
            hits = ranks < 10
            hr, ndcg = hr + hits.sum(), ndcg + (hits / np.log2(ranks + 2)).sum()
        return ndcg / len(users), hr / len(users)

    epoch(2)
    with record():
        for n in range(2):
            epoch(5)
            print("epoch", n, "NDCG@10 %.4f HR@10 %.4f" % evaluate())


# -------------------------------------------------------------------------------------------------- 5. QLoRA
@program(executions=4, layers=4, kinds={"optimizer step": 4, "micro batch": 8}, ranges="none",
         note="4 optimizer steps of 2 micro batches each (texts of other lengths, padded): an optimizer step is one execution; a micro batch is acceptable. Layers: the 4 decoder layers (they are recomputed in the backward pass).")
def qlora_sft():
    "QLoRA fine-tuning: 4-bit weights dequantized in each forward, LoRA on all projections, gradient checkpointing, paged-like AdamW, accumulation."
    device = D()
    dim, heads, hidden, vocabulary = 64, 4, 128, 400
    code = torch.tensor([-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.723, 1.0])

    class Linear4bit(nn.Module):
        def __init__(self, i, o, block=32):
            super().__init__()
            w = (torch.randn(o, i) / i ** 0.5).view(-1, block)
            absmax = w.abs().amax(1, keepdim=True)
            index = ((w / absmax)[..., None] - code).abs().argmin(-1).view(-1)
            self.shape = (o, i)
            self.register_buffer("packed", (index[0::2] << 4 | index[1::2]).to(torch.uint8))
            self.register_buffer("absmax", absmax)
            self.register_buffer("code", code)

        def forward(self, x):
            index = torch.stack((self.packed >> 4, self.packed & 15), -1).view(-1).long()
            w = (self.code[index].view(self.absmax.shape[0], -1) * self.absmax).view(self.shape).to(x.dtype)
            return x @ w.t()

    class LoraLinear(nn.Module):
        def __init__(self, i, o, r=8):
            super().__init__()
            self.base_layer, self.lora_A, self.lora_B, self.lora_dropout, self.scaling = Linear4bit(i, o), nn.Linear(i, r, bias=False), nn.Linear(r, o, bias=False), nn.Dropout(0.05), 2.0
            nn.init.zeros_(self.lora_B.weight)

        def forward(self, x):
            return self.base_layer(x) + self.lora_B(self.lora_A(self.lora_dropout(x))) * self.scaling

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(dim), requires_grad=False)

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    class LlamaDecoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = (LoraLinear(dim, dim) for _ in range(4))
            self.gate_proj, self.up_proj, self.down_proj = LoraLinear(dim, hidden), LoraLinear(dim, hidden), LoraLinear(hidden, dim)
            self.input_layernorm, self.post_attention_layernorm = RMSNorm(), RMSNorm()

        def forward(self, x, mask, cos, sin):
            b, t, _ = x.shape
            h = self.input_layernorm(x)
            q, k, v = (p(h).view(b, t, heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
            turn = lambda y: y * cos + torch.cat((-y[..., dim // heads // 2:], y[..., :dim // heads // 2]), -1) * sin  # noqa: E731
            y = F.scaled_dot_product_attention(turn(q), turn(k), v, attn_mask=mask)
            x = x + self.o_proj(y.transpose(1, 2).reshape(b, t, dim))
            h = self.post_attention_layernorm(x)
            return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))

    class Llama(nn.Module):
        def __init__(self, depth=4):
            super().__init__()
            self.embed_tokens, self.layers, self.norm = nn.Embedding(vocabulary, dim), nn.ModuleList(LlamaDecoderLayer() for _ in range(depth)), RMSNorm()
            self.lm_head = nn.Linear(dim, vocabulary, bias=False)
            for p in (*self.embed_tokens.parameters(), *self.lm_head.parameters()):
                p.requires_grad_(False)
            self.register_buffer("inv_freq", 1 / 10000 ** (torch.arange(0, dim // heads, 2).float() / (dim // heads)))

        def forward(self, input_ids, attention_mask, labels):
            x = self.embed_tokens(input_ids)
            x.requires_grad_(True)
            t = input_ids.shape[1]
            freqs = torch.outer(torch.arange(t, device=x.device).float(), self.inv_freq)
            emb = torch.cat((freqs, freqs), -1)
            cos, sin = emb.cos(), emb.sin()
            causal = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
            mask = causal[None, None] & attention_mask[:, None, None].bool()
            for layer in self.layers:
                x = checkpoint(layer, x, mask, cos, sin, use_reentrant=False)
            logits = self.lm_head(self.norm(x)).float()
            return F.cross_entropy(logits[:, :-1].reshape(-1, vocabulary), labels[:, 1:].reshape(-1), ignore_index=-100)

    model = Llama().to(device)
    blocks(model.layers)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=2e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 3))
    rng = np.random.default_rng(0)
    texts = [rng.integers(3, vocabulary, rng.integers(16, 49)) for _ in range(40)]

    def collate(rows):
        longest = -(-max(map(len, rows)) // 8) * 8
        ids, mask, labels = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest), np.int64), np.full((len(rows), longest), -100)
        for r, row in enumerate(rows):
            ids[r, :len(row)], mask[r, :len(row)], labels[r, 8:len(row)] = row, 1, row[8:]
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask), "labels": torch.from_numpy(labels)}

    loader = DataLoader(texts, batch_size=4, shuffle=True, collate_fn=collate)

    def train(max_steps, accumulation=2, logging_steps=2):
        model.train()
        batches, losses = iter(loader), []
        for step in range(max_steps):
            with execution("optimizer step"):
                for n in range(accumulation):
                    mark = execution("micro batch")
                    mark.__enter__()
                    batch = {k: v.to(device) for k, v in next(batches).items()}
                    loss = model(**batch) / accumulation
                    losses.append(loss.detach())
                    loss.backward()
                    if n < accumulation - 1:
                        mark.__exit__(None, None, None)
                norm = nn.utils.clip_grad_norm_(trainable, 0.3)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                mark.__exit__(None, None, None)
            if (step + 1) % logging_steps == 0:
                print({"loss": round(torch.stack(losses).sum().item() / logging_steps, 4), "grad_norm": round(norm.item(), 4), "lr": scheduler.get_last_lr()[0]})
                losses.clear()

    train(1)
    with record():
        train(4)


# -------------------------------------------------------------------------------------------------- 6. video
@program(executions=9, layers=8, kinds={"training iteration": 6, "test video": 3}, ranges="record_function: 'train_epoch', 'perform_test' (each around a loop)",
         note="6 training iterations over clips, then 3 videos tested in 3 views each (one batch a video): each is one pass, hence an execution; the training iterations alone are acceptable. "
              "Layers: the stem and the residual blocks of both paths; each convolution with its norm is acceptable.")
def slowfast_kinetics():
    "SlowFast networks: a slow and a fast path of 3D convolutions with lateral connections; training, then a test by several views."
    device = D()

    class ResBlock(nn.Module):
        def __init__(self, i, o, temporal, stride):
            super().__init__()
            inner = o // 4
            self.a, self.a_bn = nn.Conv3d(i, inner, (temporal, 1, 1), padding=(temporal // 2, 0, 0), bias=False), nn.BatchNorm3d(inner)
            self.b, self.b_bn = nn.Conv3d(inner, inner, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False), nn.BatchNorm3d(inner)
            self.c, self.c_bn = nn.Conv3d(inner, o, 1, bias=False), nn.BatchNorm3d(o)
            self.branch1, self.branch1_bn = (nn.Conv3d(i, o, 1, (1, stride, stride), bias=False), nn.BatchNorm3d(o)) if i != o or stride > 1 else (None, None)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            h = self.relu(self.a_bn(self.a(x)))
            h = self.relu(self.b_bn(self.b(h)))
            h = self.c_bn(self.c(h))
            return self.relu(h + (x if self.branch1 is None else self.branch1_bn(self.branch1(x))))

    class Stem(nn.Module):
        def __init__(self, o, temporal):
            super().__init__()
            self.conv, self.bn, self.pool = nn.Conv3d(3, o, (temporal, 5, 5), (1, 2, 2), (temporal // 2, 2, 2), bias=False), nn.BatchNorm3d(o), nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))

        def forward(self, x):
            return self.pool(F.relu(self.bn(self.conv(x))))

    class FuseFastToSlow(nn.Module):
        def __init__(self, c, alpha=4):
            super().__init__()
            self.conv, self.bn = nn.Conv3d(c, 2 * c, (5, 1, 1), (alpha, 1, 1), (2, 0, 0), bias=False), nn.BatchNorm3d(2 * c)

        def forward(self, slow, fast):
            return torch.cat([slow, F.relu(self.bn(self.conv(fast)))], 1), fast

    class SlowFast(nn.Module):
        def __init__(self, classes=12):
            super().__init__()
            self.s1, self.f1, self.fuse1 = Stem(16, 1), Stem(4, 5), FuseFastToSlow(4)
            self.s2, self.f2 = nn.Sequential(ResBlock(24, 32, 1, 1), ResBlock(32, 32, 1, 1)), nn.Sequential(ResBlock(4, 8, 3, 1), ResBlock(8, 8, 3, 1))
            self.fuse2 = FuseFastToSlow(8)
            self.s3, self.f3 = nn.Sequential(ResBlock(48, 64, 1, 2), ResBlock(64, 64, 1, 1)), nn.Sequential(ResBlock(8, 16, 3, 2), ResBlock(16, 16, 3, 1))
            self.fuse3 = FuseFastToSlow(16)
            self.s4, self.f4 = nn.Sequential(ResBlock(96, 96, 3, 2)), nn.Sequential(ResBlock(16, 24, 3, 2))
            self.dropout, self.projection = nn.Dropout(0.5), nn.Linear(120, classes)

        def forward(self, slow, fast):
            slow, fast = self.fuse1(self.s1(slow), self.f1(fast))
            slow, fast = self.fuse2(self.s2(slow), self.f2(fast))
            slow, fast = self.fuse3(self.s3(slow), self.f3(fast))
            slow, fast = self.s4(slow), self.f4(fast)
            x = torch.cat([slow.mean((2, 3, 4)), fast.mean((2, 3, 4))], 1)
            x = self.projection(self.dropout(x))
            return x if self.training else x.softmax(1)

    model = SlowFast().to(device)
    blocks([m for m in model.modules() if isinstance(m, (Stem, ResBlock))])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, nesterov=True)
    rng = np.random.default_rng(0)

    def clip(views, size=48, frames=8):
        fast = torch.from_numpy(rng.standard_normal((views, 3, frames, size, size), dtype=np.float32))
        return fast[:, :, ::4].contiguous(), fast

    def train_epoch(iters):
        model.train()
        with record_function("train_epoch"):
            for n in range(iters):
                slow, fast = clip(4)
                labels = torch.from_numpy(rng.integers(0, 12, 4))
                with execution("iteration or video"), execution("training iteration"):
                    slow, fast, labels = slow.to(device, non_blocking=True), fast.to(device, non_blocking=True), labels.to(device, non_blocking=True)
                    for group in optimizer.param_groups:
                        group["lr"] = 0.01 * 0.5 * (math.cos(math.pi * n / 20) + 1)
                    preds = model(slow, fast)
                    loss = F.cross_entropy(preds, labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    top5 = preds.topk(5, 1)[1].eq(labels[:, None]).any(1).float().mean()
                    stats = loss.item(), top5.item()
                if n % 3 == 0:
                    print({"iter": n, "loss": round(stats[0], 4), "top5_err": 100 * (1 - stats[1])})

    @torch.no_grad()
    def perform_test(videos):
        model.eval()
        with record_function("perform_test"):
            for n in range(videos):
                slow, fast = clip(3, 56)
                with execution("iteration or video"):
                    preds = model(slow.to(device), fast.to(device))
                    scores = preds.sum(0).cpu().numpy()
                print("video", n, scores.argmax())

    train_epoch(1)
    with record():
        train_epoch(6)
        perform_test(3)


# -------------------------------------------------------------------------------------------------- 7. CycleGAN
@program(executions=4, layers=18, kinds={"step": 4, "update": 12}, ranges="none",
         note="4 steps of optimize_parameters, each with one update of both generators and one of both discriminators: a step is one execution; each update (generators; discriminators) is acceptable. "
              "Layers: the modules of the generators as they are listed in the program (stem, 2 down, 3 residual blocks, 2 up, head) and of the discriminators; each convolution with what follows it is acceptable.")
def cyclegan_train():
    "pytorch-CycleGAN: two generators with residual blocks, two PatchGAN discriminators, image pools, identity and cycle losses."
    device = D()

    def cna(i, o, k, s, p):
        return nn.Sequential(nn.Conv2d(i, o, k, s, p), nn.InstanceNorm2d(o), nn.ReLU(True))

    class ResnetBlock(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.conv_block = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, 3), nn.InstanceNorm2d(dim), nn.ReLU(True), nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, 3), nn.InstanceNorm2d(dim))

        def forward(self, x):
            return x + self.conv_block(x)

    def up(i, o):
        return nn.Sequential(nn.ConvTranspose2d(i, o, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(o), nn.ReLU(True))

    class ResnetGenerator(nn.Module):
        def __init__(self, ngf=8, n_blocks=3):
            super().__init__()
            self.model = nn.Sequential(nn.Sequential(nn.ReflectionPad2d(3), cna(3, ngf, 7, 1, 0)), cna(ngf, 2 * ngf, 3, 2, 1), cna(2 * ngf, 4 * ngf, 3, 2, 1), *(ResnetBlock(4 * ngf) for _ in range(n_blocks)),
                                       up(4 * ngf, 2 * ngf), up(2 * ngf, ngf), nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(ngf, 3, 7), nn.Tanh()))

        def forward(self, x):
            return self.model(x)

    class NLayerDiscriminator(nn.Module):
        def __init__(self, ndf=8):
            super().__init__()
            part = lambda i, o, s: nn.Sequential(nn.Conv2d(i, o, 4, s, 1), nn.InstanceNorm2d(o), nn.LeakyReLU(0.2, True))  # noqa: E731
            self.model = nn.Sequential(nn.Sequential(nn.Conv2d(3, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True)), part(ndf, 2 * ndf, 2), part(2 * ndf, 4 * ndf, 1), nn.Conv2d(4 * ndf, 1, 4, 1, 1))

        def forward(self, x):
            return self.model(x)

    class ImagePool:
        def __init__(self, size=4):
            self.size, self.images = size, []

        def query(self, images):
            out = []
            for image in images.data:
                image = image.unsqueeze(0)
                if len(self.images) < self.size:
                    self.images.append(image)
                    out.append(image)
                elif random.uniform(0, 1) > 0.5:
                    at = random.randint(0, self.size - 1)
                    out.append(self.images[at].clone())
                    self.images[at] = image
                else:
                    out.append(image)
            return torch.cat(out, 0)

    netG_A, netG_B, netD_A, netD_B = ResnetGenerator().to(device), ResnetGenerator().to(device), NLayerDiscriminator().to(device), NLayerDiscriminator().to(device)
    blocks([m for net in (netG_A, netG_B, netD_A, netD_B) for m in net.model])
    optimizer_G = torch.optim.Adam([*netG_A.parameters(), *netG_B.parameters()], lr=2e-4, betas=(0.5, 0.999))
    optimizer_D = torch.optim.Adam([*netD_A.parameters(), *netD_B.parameters()], lr=2e-4, betas=(0.5, 0.999))
    pool_A, pool_B, l1 = ImagePool(), ImagePool(), nn.L1Loss()
    random.seed(0)

    def gan_loss(prediction, is_real):
        return F.mse_loss(prediction, torch.full_like(prediction, float(is_real)))

    def set_requires_grad(nets, wanted):
        for net in nets:
            for p in net.parameters():
                p.requires_grad = wanted

    def backward_D(netD, real, fake):
        loss = (gan_loss(netD(real), True) + gan_loss(netD(fake.detach()), False)) * 0.5
        loss.backward()
        return loss

    def optimize_parameters(real_A, real_B):
        with execution("update"):
            fake_B = netG_A(real_A)
            rec_A = netG_B(fake_B)
            fake_A = netG_B(real_B)
            rec_B = netG_A(fake_A)
            set_requires_grad([netD_A, netD_B], False)
            optimizer_G.zero_grad()
            idt = l1(netG_A(real_B), real_B) * 5 + l1(netG_B(real_A), real_A) * 5
            loss_G = idt + gan_loss(netD_A(fake_B), True) + gan_loss(netD_B(fake_A), True) + l1(rec_A, real_A) * 10 + l1(rec_B, real_B) * 10
            loss_G.backward()
            optimizer_G.step()
        with execution("update"):
            set_requires_grad([netD_A, netD_B], True)
            optimizer_D.zero_grad()
            loss_D_A = backward_D(netD_A, real_B, pool_B.query(fake_B))
            loss_D_B = backward_D(netD_B, real_A, pool_A.query(fake_A))
            optimizer_D.step()
        return {"G": loss_G, "D_A": loss_D_A, "D_B": loss_D_B}

    rng = np.random.default_rng(0)

    def train(steps, print_freq=2):
        for total_iters in range(steps):
            a, b = (torch.from_numpy(rng.uniform(-1, 1, (1, 3, 48, 48)).astype(np.float32)) for _ in range(2))
            with execution("step"):
                losses = optimize_parameters(a.to(device), b.to(device))
            if total_iters % print_freq == 0:
                print(total_iters, {k: round(float(v), 3) for k, v in losses.items()})

    train(1)
    with record():
        train(4)


# -------------------------------------------------------------------------------------------------- 8. documents
@program(executions=4, layers=9, kinds={"page": 4, "forward": 0}, ranges="none",
         note="4 pages; each goes once through the Swin encoder, then token by token through the decoder until its end: a page is one execution; each pass of the encoder or the decoder is acceptable. "
              "Layers: the 6 Swin blocks and the 3 decoder layers.")
def donut_parse_pages():
    "Donut: a Swin encoder with shifted windows, a BART decoder with caches, tokens to JSON."
    torch.set_grad_enabled(False)
    device = D()
    dim = 64

    class SwinBlock(nn.Module):
        def __init__(self, c, heads, window, shift):
            super().__init__()
            self.heads, self.window, self.shift = heads, window, shift
            self.norm1, self.qkv, self.proj, self.norm2, self.fc1, self.fc2 = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c), nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
            self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
            at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
            rel = (at[:, :, None] - at[:, None]).permute(1, 2, 0) + window - 1
            self.register_buffer("index", rel[..., 0] * (2 * window - 1) + rel[..., 1])

        def forward(self, x):
            b, h, w, c = x.shape
            n = self.window
            y = self.norm1(x)
            if self.shift:
                y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
            y = y.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)
            q, k, v = self.qkv(y).reshape(-1, n * n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
            a = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
            a = a + self.table[self.index.view(-1)].view(n * n, n * n, -1).permute(2, 0, 1)[None]
            y = self.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(-1, n * n, c))
            y = y.view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
            if self.shift:
                y = torch.roll(y, (self.shift, self.shift), (1, 2))
            x = x + y
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class PatchMerging(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.norm, self.reduction = nn.LayerNorm(4 * c), nn.Linear(4 * c, 2 * c, bias=False)

        def forward(self, x):
            return self.reduction(self.norm(torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)))

    class SwinEncoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch_embed, self.norm0 = nn.Conv2d(3, 32, 4, 4), nn.LayerNorm(32)
            self.stage1, self.merge = nn.ModuleList(SwinBlock(32, 2, 5, s) for s in (0, 2)), PatchMerging(32)
            self.stage2, self.norm = nn.ModuleList(SwinBlock(64, 4, 5, s) for s in (0, 2, 0, 2)), nn.LayerNorm(64)

        def forward(self, x):
            x = self.norm0(self.patch_embed(x).permute(0, 2, 3, 1))
            for block in self.stage1:
                x = block(x)
            x = self.merge(x)
            for block in self.stage2:
                x = block(x)
            return self.norm(x).flatten(1, 2)

    class BartAttention(nn.Module):
        def __init__(self, heads=4):
            super().__init__()
            self.heads, self.cache = heads, None
            self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

        def split(self, x):
            return x.view(x.shape[0], -1, self.heads, dim // self.heads).transpose(1, 2)

        def forward(self, x, memory=None):
            q = self.split(self.q_proj(x))
            if memory is not None:
                if self.cache is None:
                    self.cache = self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
            else:
                k, v = self.split(self.k_proj(x)), self.split(self.v_proj(x))
                self.cache = (k, v) if self.cache is None else (torch.cat([self.cache[0], k], 2), torch.cat([self.cache[1], v], 2))
            y = F.scaled_dot_product_attention(q, *self.cache)
            return self.out_proj(y.transpose(1, 2).reshape(x.shape))

    class BartDecoderLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn, self.encoder_attn, self.fc1, self.fc2 = BartAttention(), BartAttention(), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
            self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))

        def forward(self, x, memory):
            x = x + self.self_attn(self.norm1(x))
            x = x + self.encoder_attn(self.norm2(x), memory)
            return x + self.fc2(F.gelu(self.fc1(self.norm3(x))))

    class Decoder(nn.Module):
        def __init__(self, vocabulary=200, depth=3):
            super().__init__()
            self.tokens, self.positions, self.layernorm_embedding = nn.Embedding(vocabulary, dim), nn.Embedding(64, dim), nn.LayerNorm(dim)
            self.layers, self.layer_norm, self.lm_head = nn.ModuleList(BartDecoderLayer() for _ in range(depth)), nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

        def forward(self, ids, memory, past):
            x = self.tokens(ids) * dim ** 0.5 + self.positions(torch.arange(past, past + ids.shape[1], device=ids.device))
            x = self.layernorm_embedding(x)
            for layer in self.layers:
                x = layer(x, memory)
            return self.lm_head(self.layer_norm(x))

        def reset(self):
            for layer in self.layers:
                layer.self_attn.cache = layer.encoder_attn.cache = None

    encoder, decoder = SwinEncoder().to(device).eval(), Decoder().to(device).eval()
    blocks([*encoder.stage1, *encoder.stage2, *decoder.layers])

    def prepare(page, height=80, width=80):
        rows, cols = np.linspace(0, page.shape[0] - 1, height).astype(int), np.linspace(0, page.shape[1] - 1, width).astype(int)
        x = page[rows][:, cols].astype(np.float32).transpose(2, 0, 1) / 255
        return torch.from_numpy((x - 0.5) / 0.5)[None]

    def parse(page, longest):
        with execution("page"):
            with execution("forward"):
                memory = encoder(prepare(page).to(device))
            decoder.reset()
            ids = torch.zeros(1, 1, dtype=torch.long).to(device)
            out = []
            for past in range(longest):
                with execution("forward"):
                    logits = decoder(ids, memory, past)[:, -1]
                    logits[:, 3] = -float("inf")
                    ids = logits.argmax(-1, keepdim=True)
                    token = ids.item()
                out.append(token)
                if token == 2:
                    break
        fields = {}
        for key, value in zip(out[::2], out[1::2]):
            fields.setdefault(f"<s_{key}>", []).append(value)
        return fields

    rng = np.random.default_rng(0)
    pages = [rng.integers(0, 256, (int(rng.integers(200, 400)), 300, 3), dtype=np.uint8) for _ in range(5)]
    parse(pages[4], 4)
    with record():
        for page, longest in zip(pages[:4], (18, 11, 22, 14)):
            print(len(parse(page, longest)), "fields")
