"""Eight programs of training as they are in public repositories: a U-Net for masks, HiFi-GAN, a Conformer with CTC, DreamerV3, CLAP, I-JEPA,
GraphGPS, PCGrad. Sizes are a CPU's. The truth was written down before any tool read a recording."""
import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

from harness import blocks, execution, layer, program, record, said, D


class Tensors(Dataset):
    def __init__(self, make, n):
        self.items = [make(i) for i in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


# -------------------------------------------------------------------------------------------------- 1. U-Net
@program(executions=16, layers=10, kinds={"training batch": 8, "validation batch": 8}, ranges="none",
         note="2 epochs of 4 training batches; after every second one the validation set (2 batches) is evaluated: each batch is one pass, hence 8 + 8 executions; the training batches alone are acceptable. "
              "Layers: inc, 4 down, 4 up, outc; each DoubleConv or each convolution is acceptable.")
def unet_carvana():
    "Pytorch-UNet: RMSprop, cross entropy with Dice, GradScaler, gradient clipping, evaluation inside the epoch."
    device = D()

    class DoubleConv(nn.Module):
        def __init__(self, i, o, mid=None):
            super().__init__()
            mid = mid or o
            self.double_conv = nn.Sequential(nn.Conv2d(i, mid, 3, padding=1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
                                             nn.Conv2d(mid, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        def forward(self, x):
            return self.double_conv(x)

    class Down(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(i, o))

        def forward(self, x):
            return self.maxpool_conv(x)

    class Up(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.up, self.conv = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), DoubleConv(i, o, i // 2)

        def forward(self, x1, x2):
            x1 = self.up(x1)
            dy, dx = x2.size(2) - x1.size(2), x2.size(3) - x1.size(3)
            x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            return self.conv(torch.cat([x2, x1], dim=1))

    class UNet(nn.Module):
        def __init__(self, n_classes=2, c=8):
            super().__init__()
            self.inc, self.outc = DoubleConv(3, c), nn.Conv2d(c, n_classes, 1)
            self.down1, self.down2, self.down3, self.down4 = Down(c, 2 * c), Down(2 * c, 4 * c), Down(4 * c, 8 * c), Down(8 * c, 8 * c)
            self.up1, self.up2, self.up3, self.up4 = Up(16 * c, 4 * c), Up(8 * c, 2 * c), Up(4 * c, c), Up(2 * c, c)

        def forward(self, x):
            x1 = self.inc(x)
            x2 = self.down1(x1)
            x3 = self.down2(x2)
            x4 = self.down3(x3)
            x = self.up1(self.down4(x4), x4)
            x = self.up4(self.up3(self.up2(x, x3), x2), x1)
            return self.outc(x)

    def dice_coeff(input, target, epsilon=1e-6):
        inter = 2 * (input * target).sum(dim=(-1, -2, -3))
        sets_sum = input.sum(dim=(-1, -2, -3)) + target.sum(dim=(-1, -2, -3))
        sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
        return ((inter + epsilon) / (sets_sum + epsilon)).mean()

    def multiclass_dice(input, target):
        return dice_coeff(input.flatten(0, 1), target.flatten(0, 1))

    model = UNet().to(device)
    blocks([model.inc, model.down1, model.down2, model.down3, model.down4, model.up1, model.up2, model.up3, model.up4, model.outc])
    blocks([m for m in model.modules() if isinstance(m, DoubleConv)], "DoubleConv")
    blocks([m for m in model.modules() if isinstance(m, nn.Conv2d)], "convolution")
    make = lambda i: {"image": torch.rand(3, 48, 72), "mask": torch.randint(0, 2, (48, 72))}
    train_loader = DataLoader(Tensors(make, 16), batch_size=4, shuffle=True)
    val_loader = DataLoader(Tensors(make, 8), batch_size=4, drop_last=True)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5, weight_decay=1e-8, momentum=0.999, foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    criterion = nn.CrossEntropyLoss()

    @torch.inference_mode()
    def evaluate():
        model.eval()
        score = 0
        for batch in val_loader:
            with execution("batch"):
                image, true = batch["image"].to(device), batch["mask"].to(device)
                pred = model(image)
                true = F.one_hot(true, 2).permute(0, 3, 1, 2).float()
                pred = F.one_hot(pred.argmax(dim=1), 2).permute(0, 3, 1, 2).float()
                score += multiclass_dice(pred[:, 1:], true[:, 1:])
        model.train()
        return score / len(val_loader)

    def train(epochs):
        step = 0
        for epoch in range(epochs):
            model.train()
            epoch_loss = 0
            for batch in train_loader:
                with execution("batch"), execution("training batch"):
                    images, masks = batch["image"].to(device), batch["mask"].to(device)
                    pred = model(images)
                    loss = criterion(pred, masks)
                    loss = loss + 1 - multiclass_dice(F.softmax(pred, dim=1).float(), F.one_hot(masks, 2).permute(0, 3, 1, 2).float())
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    epoch_loss += loss.item()
                step += 1
                if step % 2 == 0:
                    val_score = evaluate()
                    scheduler.step(val_score)

    train(1)
    with record(shapes=True):
        train(2)


# -------------------------------------------------------------------------------------------------- 2. HiFi-GAN
@program(executions=6, layers=10, kinds={"step": 6, "update": 12}, ranges="none",
         note="6 steps, each with one update of the discriminators and one of the generator: a step is one execution; each update is acceptable. "
              "Layers: the 6 residual blocks of the generator (3 on each of 2 levels), its 2 up-sampling convolutions, and the 4 discriminators (2 periods, 2 scales); each convolution is acceptable.")
def hifigan_train():
    "HiFi-GAN's train.py: mel spectrogram loss, feature matching, multi-period and multi-scale discriminators, two AdamW."
    device = D()
    weight_norm = torch.nn.utils.parametrizations.weight_norm

    class ResBlock1(nn.Module):
        def __init__(self, c, k, dilation=(1, 3)):
            super().__init__()
            self.convs1 = nn.ModuleList(weight_norm(nn.Conv1d(c, c, k, 1, dilation=d, padding=(k * d - d) // 2)) for d in dilation)
            self.convs2 = nn.ModuleList(weight_norm(nn.Conv1d(c, c, k, 1, padding=k // 2)) for _ in dilation)

        def forward(self, x):
            for c1, c2 in zip(self.convs1, self.convs2):
                xt = c1(F.leaky_relu(x, 0.1))
                x = c2(F.leaky_relu(xt, 0.1)) + x
            return x

    class Generator(nn.Module):
        def __init__(self, rates=(4, 4), c=32, kernels=(3, 5, 7)):
            super().__init__()
            self.num_kernels = len(kernels)
            self.conv_pre = weight_norm(nn.Conv1d(20, c, 7, padding=3))
            self.ups = nn.ModuleList(weight_norm(nn.ConvTranspose1d(c // 2 ** i, c // 2 ** (i + 1), 2 * r, r, padding=r // 2)) for i, r in enumerate(rates))
            self.resblocks = nn.ModuleList(ResBlock1(c // 2 ** (i + 1), k) for i in range(len(rates)) for k in kernels)
            self.conv_post = weight_norm(nn.Conv1d(c // 2 ** len(rates), 1, 7, padding=3))

        def forward(self, x):
            x = self.conv_pre(x)
            for i, up in enumerate(self.ups):
                x = up(F.leaky_relu(x, 0.1))
                xs = None
                for j in range(self.num_kernels):
                    y = self.resblocks[i * self.num_kernels + j](x)
                    xs = y if xs is None else xs + y
                x = xs / self.num_kernels
            return torch.tanh(self.conv_post(F.leaky_relu(x)))

    class DiscriminatorP(nn.Module):
        def __init__(self, period):
            super().__init__()
            self.period = period
            sizes = (1, 8, 16, 16)
            self.convs = nn.ModuleList(weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), padding=(2, 0))) for a, b in zip(sizes, sizes[1:]))
            self.conv_post = weight_norm(nn.Conv2d(16, 1, (3, 1), 1, padding=(1, 0)))

        def forward(self, x):
            fmap = []
            b, c, t = x.shape
            if t % self.period != 0:
                n_pad = self.period - t % self.period
                x, t = F.pad(x, (0, n_pad), "reflect"), t + n_pad
            x = x.view(b, c, t // self.period, self.period)
            for conv in self.convs:
                x = F.leaky_relu(conv(x), 0.1)
                fmap.append(x)
            x = self.conv_post(x)
            return torch.flatten(x, 1, -1), fmap + [x]

    class DiscriminatorS(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([weight_norm(nn.Conv1d(1, 8, 15, 1, padding=7)), weight_norm(nn.Conv1d(8, 16, 41, 4, groups=4, padding=20)), weight_norm(nn.Conv1d(16, 16, 5, 1, padding=2))])
            self.conv_post = weight_norm(nn.Conv1d(16, 1, 3, 1, padding=1))

        def forward(self, x):
            fmap = []
            for conv in self.convs:
                x = F.leaky_relu(conv(x), 0.1)
                fmap.append(x)
            x = self.conv_post(x)
            return torch.flatten(x, 1, -1), fmap + [x]

    class Multi(nn.Module):
        def __init__(self, parts, pool=False):
            super().__init__()
            self.discriminators, self.pool = nn.ModuleList(parts), nn.AvgPool1d(4, 2, padding=2) if pool else None

        def forward(self, y, y_hat):
            rs, gs, fr, fg = [], [], [], []
            for i, d in enumerate(self.discriminators):
                if self.pool is not None and i:
                    y, y_hat = self.pool(y), self.pool(y_hat)
                r, a = d(y)
                g, b = d(y_hat)
                rs.append(r), gs.append(g), fr.append(a), fg.append(b)
            return rs, gs, fr, fg

    window, fbank = torch.hann_window(128).to(device), torch.rand(20, 65).to(device)

    def mel_spectrogram(y):
        y = F.pad(y.unsqueeze(1), (56, 56), mode="reflect").squeeze(1)
        spec = torch.stft(y, 128, 16, 128, window, center=False, return_complex=True)
        spec = torch.sqrt(torch.view_as_real(spec).pow(2).sum(-1) + 1e-9)
        return torch.log(torch.clamp(fbank @ spec, min=1e-5))

    def discriminator_loss(real, generated):
        return sum(torch.mean((1 - r) ** 2) + torch.mean(g ** 2) for r, g in zip(real, generated))

    def feature_loss(fr, fg):
        return 2 * sum(torch.mean(torch.abs(r - g)) for a, b in zip(fr, fg) for r, g in zip(a, b))

    def generator_loss(outputs):
        return sum(torch.mean((1 - g) ** 2) for g in outputs)

    generator, mpd, msd = Generator().to(device), Multi([DiscriminatorP(2), DiscriminatorP(3)]).to(device), Multi([DiscriminatorS(), DiscriminatorS()], True).to(device)
    blocks([*generator.ups, *generator.resblocks, *mpd.discriminators, *msd.discriminators])
    blocks([m for net in (generator, mpd, msd) for m in net.modules() if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d))], "convolution")
    optim_g = torch.optim.AdamW(generator.parameters(), 2e-4, betas=(0.8, 0.99))
    optim_d = torch.optim.AdamW([*msd.parameters(), *mpd.parameters()], 2e-4, betas=(0.8, 0.99))
    make = lambda i: (torch.randn(20, 32), torch.rand(512) - 0.5, torch.randn(20, 32))

    def train(n):
        for i, (x, y, y_mel) in enumerate(DataLoader(Tensors(make, 4 * n), batch_size=4, shuffle=True)):
            with execution("step"):
                with execution("update"):
                    x, y, y_mel = x.to(device, non_blocking=True), y.to(device, non_blocking=True).unsqueeze(1), y_mel.to(device, non_blocking=True)
                    y_g_hat = generator(x)
                    y_g_hat_mel = mel_spectrogram(y_g_hat.squeeze(1))
                    optim_d.zero_grad()
                    r, g, _, _ = mpd(y, y_g_hat.detach())
                    loss_f = discriminator_loss(r, g)
                    r, g, _, _ = msd(y, y_g_hat.detach())
                    loss_d = discriminator_loss(r, g) + loss_f
                    loss_d.backward()
                    optim_d.step()
                with execution("update"):
                    optim_g.zero_grad()
                    loss_mel = F.l1_loss(y_mel, y_g_hat_mel) * 45
                    _, gf, frf, fgf = mpd(y, y_g_hat)
                    _, gs, frs, fgs = msd(y, y_g_hat)
                    loss_g = generator_loss(gs) + generator_loss(gf) + feature_loss(frf, fgf) + feature_loss(frs, fgs) + loss_mel
                    loss_g.backward()
                    optim_g.step()
                if i % 3 == 0:
                    print(f"steps {i}, gen {loss_g.item():.3f}, mel {loss_mel.item() / 45:.3f}")

    train(1)
    with record(shapes=True):
        train(6)


# -------------------------------------------------------------------------------------------------- 3. Conformer, CTC
@program(executions=14, layers=4, kinds={"training batch": 10, "validation batch": 4}, ranges="record_function: 'train_epoch' and 'valid_epoch' (each around a loop)",
         note="2 epochs of 5 training batches (bucketed, other lengths) and 2 validation batches with greedy decoding: each batch is one pass, hence an execution; the training batches alone are acceptable. "
              "Layers: the 4 Conformer layers; their parts (feed forward, attention, convolution, feed forward) are acceptable.")
def conformer_ctc():
    "A speech recogniser: SpecAugment, convolutional subsampling, Conformer, CTC loss, Noam schedule, greedy decoding with the word error rate."
    device = D()

    class FeedForward(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.sequential = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * d, d), nn.Dropout(0.1))

        def forward(self, x):
            return self.sequential(x)

    class Attention(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.norm, self.mha, self.drop = nn.LayerNorm(d), nn.MultiheadAttention(d, heads, dropout=0.1, batch_first=True), nn.Dropout(0.1)

        def forward(self, x, mask):
            x = self.norm(x)
            return self.drop(self.mha(x, x, x, key_padding_mask=mask, need_weights=False)[0])

    class ConvolutionModule(nn.Module):
        def __init__(self, d, k=15):
            super().__init__()
            self.norm = nn.LayerNorm(d)
            self.sequential = nn.Sequential(nn.Conv1d(d, 2 * d, 1), nn.GLU(dim=1), nn.Conv1d(d, d, k, padding=k // 2, groups=d), nn.BatchNorm1d(d), nn.SiLU(), nn.Conv1d(d, d, 1), nn.Dropout(0.1))

        def forward(self, x):
            return self.sequential(self.norm(x).transpose(1, 2)).transpose(1, 2)

    class ConformerLayer(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.ffn1, self.attn, self.conv, self.ffn2, self.norm = FeedForward(d), Attention(d, heads), ConvolutionModule(d), FeedForward(d), nn.LayerNorm(d)

        def forward(self, x, mask):
            x = x + 0.5 * self.ffn1(x)
            x = x + self.attn(x, mask)
            x = x + self.conv(x)
            x = x + 0.5 * self.ffn2(x)
            return self.norm(x)

    class Recognizer(nn.Module):
        def __init__(self, vocabulary=32, d=48, layers=4):
            super().__init__()
            self.subsampling = nn.Sequential(nn.Conv2d(1, d, 3, 2), nn.ReLU(), nn.Conv2d(d, d, 3, 2), nn.ReLU())
            self.input, self.out = nn.Linear(d * 9, d), nn.Linear(d, vocabulary)
            self.layers = nn.ModuleList(ConformerLayer(d, 4) for _ in range(layers))

        def forward(self, x, lengths):
            x = self.subsampling(x.unsqueeze(1))
            b, c, t, f = x.shape
            x = self.input(x.transpose(1, 2).contiguous().view(b, t, c * f))
            lengths = ((lengths - 1) // 2 - 1) // 2
            mask = torch.arange(t, device=x.device)[None, :] >= lengths[:, None]
            for one in self.layers:
                x = one(x, mask)
            return self.out(x).log_softmax(-1), lengths

    def spec_augment(x, masks=2):
        for _ in range(masks):
            f, t = random.randint(1, 8), random.randint(1, 12)
            f0, t0 = random.randint(0, 40 - f), random.randint(0, x.shape[1] - t)
            x[:, :, f0:f0 + f] = 0
            x[:, t0:t0 + t] = 0
        return x

    random.seed(3)
    model = Recognizer().to(device)
    blocks(model.layers)
    blocks([m for one in model.layers for m in (one.ffn1, one.attn, one.conv, one.ffn2)], "part")
    mean, istd = torch.zeros(40).to(device), torch.ones(40).to(device)
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) ** -0.5, (s + 1) * 25 ** -1.5))

    def make(i):
        t = 60 + 20 * (i // 4) + random.randint(0, 9)
        return torch.randn(t, 40), torch.randint(1, 32, (t // 8,))

    def collate(items):
        x, y = zip(*items)
        return pad_sequence(x, True), torch.tensor([len(a) for a in x]), torch.cat(y), torch.tensor([len(a) for a in y])

    def edit_distance(a, b):
        row = list(range(len(b) + 1))
        for i, x in enumerate(a, 1):
            last, row[0] = row[0], i
            for j, y in enumerate(b, 1):
                last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
        return row[-1]

    train_loader = DataLoader(Tensors(make, 20), batch_size=4, collate_fn=collate)
    valid_loader = DataLoader(Tensors(make, 8), batch_size=4, collate_fn=collate)

    def train_epoch():
        model.train()
        total = torch.zeros((), device=device)
        for feats, lens, targets, target_lens in train_loader:
            with execution("batch"), execution("training batch"):
                feats, lens, targets, target_lens = (a.to(device) for a in (feats, lens, targets, target_lens))
                feats = spec_augment((feats - mean) * istd)
                log_probs, out_lens = model(feats, lens)
                loss = ctc(log_probs.transpose(0, 1), targets, out_lens, target_lens)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                scheduler.step()
                total += loss.detach()
        return total.item() / len(train_loader)

    @torch.no_grad()
    def valid_epoch():
        model.eval()
        errors = words = 0
        for feats, lens, targets, target_lens in valid_loader:
            with execution("batch"):
                log_probs, out_lens = model((feats.to(device) - mean) * istd, lens.to(device))
                loss = ctc(log_probs.transpose(0, 1), targets.to(device), out_lens, target_lens.to(device)).item()
                best = log_probs.argmax(-1).cpu().numpy()
                lens_out = out_lens.cpu().numpy()
            at = 0
            for row, n, m in zip(best, lens_out, target_lens.numpy()):
                row = row[:n]
                hypothesis = [int(t) for k, t in enumerate(row) if t and (not k or row[k - 1] != t)]
                errors += edit_distance(hypothesis, targets.numpy()[at:at + m])
                words += int(m)
                at += m
        return loss, errors / words

    train_epoch()
    with record(shapes=True):
        for epoch in range(2):
            with record_function("train_epoch"):
                train_loss = train_epoch()
            with record_function("valid_epoch"):
                valid_loss, wer = valid_epoch()
            print(f"epoch {epoch} train {train_loss:.3f} valid {valid_loss:.3f} wer {wer:.2%}")


# -------------------------------------------------------------------------------------------------- 4. DreamerV3
@program(executions=4, layers=18, kinds={"training step": 4, "training step or policy call": 16, "update": 12}, ranges="record_function: 'world_model', 'imagine', 'actor_critic'",
         note="4 training steps (world model, actor, critic; each with its own backward pass and optimiser), between them 3 calls of the policy in the environment: a training step is one execution (4); with the policy's calls (4 + 12) is acceptable, "
              "and so are the updates (12). Layers: the steps of the RSSM (8 observed, 5 imagined, 1 in a policy call); the convolutions and linear layers are acceptable.")
def dreamer_train():
    "DreamerV3 in PyTorch: RSSM over sequences of a replay buffer, imagination, lambda returns, symlog, slow critic; an environment on the host."
    device = D()
    symlog = lambda x: torch.sign(x) * torch.log1p(x.abs())

    def mlp(i, o, hidden=48, n=2):
        parts = []
        for k in range(n):
            parts += [nn.Linear(i if not k else hidden, hidden, bias=False), nn.LayerNorm(hidden), nn.SiLU()]
        return nn.Sequential(*parts, nn.Linear(hidden, o))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.SiLU(), nn.Conv2d(8, 16, 4, 2, 1), nn.SiLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.SiLU())

        def forward(self, obs):
            x = self.layers(obs.flatten(0, 1) - 0.5)
            return x.flatten(1).view(*obs.shape[:2], -1)

    class Decoder(nn.Module):
        def __init__(self, feat):
            super().__init__()
            self.linear = nn.Linear(feat, 32 * 4 * 4)
            self.layers = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1))

        def forward(self, feat):
            x = self.layers(self.linear(feat.flatten(0, 1)).view(-1, 32, 4, 4))
            return x.view(*feat.shape[:2], *x.shape[1:]) + 0.5

    class RSSM(nn.Module):
        def __init__(self, embed, actions, deter=64, stoch=8, classes=8):
            super().__init__()
            self.deter, self.stoch, self.classes = deter, stoch, classes
            self.img_in, self.cell = nn.Sequential(nn.Linear(stoch * classes + actions, deter, bias=False), nn.LayerNorm(deter), nn.SiLU()), nn.Linear(2 * deter, 3 * deter, bias=False)
            self.norm = nn.LayerNorm(3 * deter)
            self.prior, self.post = mlp(deter, stoch * classes, n=1), mlp(deter + embed, stoch * classes, n=1)

        def sample(self, logits):
            logits = logits.view(*logits.shape[:-1], self.stoch, self.classes)
            probs = 0.99 * logits.softmax(-1) + 0.01 / self.classes
            index = torch.multinomial(probs.detach().flatten(0, -2), 1).squeeze(-1)
            sample = F.one_hot(index, self.classes).float().view_as(probs)
            return (sample + probs - probs.detach()).flatten(-2), probs.log()

        def img_step(self, deter, stoch, action):
            x = self.img_in(torch.cat([stoch, action], -1))
            reset, cand, update = self.norm(self.cell(torch.cat([x, deter], -1))).chunk(3, -1)
            cand = torch.tanh(torch.sigmoid(reset) * cand)
            update = torch.sigmoid(update - 1)
            return update * cand + (1 - update) * deter

        def observe(self, deter, stoch, action, embed, is_first):
            with layer():
                keep = 1.0 - is_first
                deter, stoch, action = deter * keep, stoch * keep, action * keep
                deter = self.img_step(deter, stoch, action)
                prior = self.sample(self.prior(deter))[1]
                stoch, post = self.sample(self.post(torch.cat([deter, embed], -1)))
            return deter, stoch, prior, post

    encoder, rssm, decoder = Encoder().to(device), RSSM(512, 4).to(device), Decoder(128).to(device)
    reward_head, cont_head, actor, critic = mlp(128, 1).to(device), mlp(128, 1).to(device), mlp(128, 4).to(device), mlp(128, 1).to(device)
    slow = copy.deepcopy(critic)
    blocks([m for net in (encoder, rssm, decoder, reward_head, cont_head, actor, critic, slow) for m in net.modules() if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear))], "convolution or linear")
    world = [p for net in (encoder, rssm, decoder, reward_head, cont_head) for p in net.parameters()]
    world_opt, actor_opt, critic_opt = torch.optim.Adam(world, 1e-4), torch.optim.Adam(actor.parameters(), 3e-5), torch.optim.Adam(critic.parameters(), 3e-5)
    rng = np.random.default_rng(0)
    B, T, H = 4, 8, 5

    def update(loss, opt, params):
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 100.0)
        opt.step()

    def train_step(batch):
        batch = {k: torch.from_numpy(v).to(device) for k, v in batch.items()}
        with record_function("world_model"), execution("update"):
            embed = encoder(batch["image"])
            deter, stoch = torch.zeros(B, 64, device=device), torch.zeros(B, 64, device=device)
            out = []
            for t in range(T):
                deter, stoch, prior, post = rssm.observe(deter, stoch, batch["action"][:, t], embed[:, t], batch["is_first"][:, t])
                out.append((deter, stoch, prior, post))
            deters, stochs, priors, posts = (torch.stack(o, 1) for o in zip(*out))
            feat = torch.cat([deters, stochs], -1)
            kl = lambda a, b: (a.exp() * (a - b)).sum((-1, -2)).clamp(min=1.0).mean()
            loss = ((decoder(feat) - batch["image"]) ** 2).sum((2, 3, 4)).mean() + ((reward_head(feat).squeeze(-1) - symlog(batch["reward"])) ** 2).mean()
            loss = loss + F.binary_cross_entropy_with_logits(cont_head(feat).squeeze(-1), 1 - batch["terminal"]) + 0.5 * kl(posts.detach(), priors) + 0.1 * kl(posts, priors.detach())
            update(loss, world_opt, world)
        with record_function("imagine"):
            mark = execution("update")
            mark.__enter__()
            deter, stoch = deters.detach().flatten(0, 1), stochs.detach().flatten(0, 1)
            feats, logps, ents = [torch.cat([deter, stoch], -1)], [], []
            for _ in range(H):
                with layer():
                    dist = torch.distributions.Categorical(logits=actor(feats[-1].detach()))
                    action = dist.sample()
                    logps.append(dist.log_prob(action))
                    ents.append(dist.entropy())
                    with torch.no_grad():
                        deter = rssm.img_step(deter, stoch, F.one_hot(action, 4).float())
                        stoch = rssm.sample(rssm.prior(deter))[0]
                    feats.append(torch.cat([deter, stoch], -1))
            feats = torch.stack(feats)
        with record_function("actor_critic"):
            with torch.no_grad():
                reward, cont, value = reward_head(feats).squeeze(-1), torch.sigmoid(cont_head(feats)).squeeze(-1) * 0.997, slow(feats).squeeze(-1)
                ret, returns = value[-1], []
                for t in reversed(range(H)):
                    ret = reward[t] + cont[t] * (0.05 * value[t + 1] + 0.95 * ret)
                    returns.append(ret)
                returns = torch.stack(returns[::-1])
                scale = (torch.quantile(returns, 0.95) - torch.quantile(returns, 0.05)).clamp(min=1.0)
            actor_loss = -(torch.stack(logps) * (returns - value[:-1]) / scale + 3e-4 * torch.stack(ents)).mean()
            update(actor_loss, actor_opt, actor.parameters())
            mark.__exit__(None, None, None)
            with execution("update"):
                critic_loss = ((critic(feats[:-1].detach()).squeeze(-1) - symlog(returns)) ** 2).mean()
                update(critic_loss, critic_opt, critic.parameters())
                with torch.no_grad():
                    for s, c in zip(slow.parameters(), critic.parameters()):
                        s.lerp_(c, 0.02)
        return loss.item()

    @torch.no_grad()
    def policy(image, state):
        deter, stoch, action = state
        embed = encoder(torch.from_numpy(image).to(device)[None, None])[:, 0]
        deter, stoch, _, _ = rssm.observe(deter, stoch, action, embed, torch.zeros(1, 1, device=device))
        choice = torch.distributions.Categorical(logits=actor(torch.cat([deter, stoch], -1))).sample()
        return int(choice.cpu()[0]), (deter, stoch, F.one_hot(choice, 4).float())

    def run(steps):
        state = tuple(torch.zeros(1, n, device=device) for n in (64, 64, 4))
        image = rng.random((3, 32, 32), dtype=np.float32)
        for _ in range(steps):
            for _ in range(3):
                with execution("training step or policy call"):
                    action, state = policy(image, state)
                image = np.clip(np.roll(image, action, axis=1) + rng.normal(0, 0.01, image.shape).astype(np.float32), 0, 1)
            batch = {"image": rng.random((B, T, 3, 32, 32), dtype=np.float32), "action": np.eye(4, dtype=np.float32)[rng.integers(0, 4, (B, T))], "reward": rng.random((B, T), dtype=np.float32),
                     "terminal": np.zeros((B, T), np.float32), "is_first": np.zeros((B, T, 1), np.float32)}
            with execution("training step"), execution("training step or policy call"):
                train_step(batch)

    run(1)
    with record(shapes=True):
        run(4)


# -------------------------------------------------------------------------------------------------- 5. CLAP
@program(executions=9, layers=7, kinds={"training step": 6, "evaluation batch": 3}, ranges="none",
         note="6 training steps, then 3 batches of sounds and captions are embedded for retrieval: each batch is one pass, hence 6 + 3 executions; the training steps alone are acceptable. "
              "Layers: the 4 blocks of the audio transformer and the 3 layers of the text encoder; attention and feed forward of each are acceptable.")
def clap_train():
    "CLAP: log-mel spectrograms, an audio spectrogram transformer, a text encoder, symmetric contrastive loss, then recall at 1."
    device = D()

    class Block(nn.Module):
        def __init__(self, d, heads, act):
            super().__init__()
            self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj, self.mlp = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Sequential(nn.Linear(d, 4 * d), act(), nn.Linear(4 * d, d))
            self.attn_part, self.mlp_part = Part(self.attend), Part(lambda x: self.mlp(self.norm2(x)))

        def attend(self, x, mask):
            b, n, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return self.proj(y.transpose(1, 2).reshape(b, n, d))

        def forward(self, x, mask=None):
            x = x + self.attn_part(x, mask)
            return x + self.mlp_part(x)

    class Part(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def forward(self, *args):
            return self.f(*args)

    class CLAP(nn.Module):
        def __init__(self, d=48):
            super().__init__()
            self.register_buffer("window", torch.hann_window(256))
            self.register_buffer("fbank", torch.rand(32, 129))
            self.bn, self.patch = nn.BatchNorm2d(32), nn.Conv2d(1, d, 8, 8)
            self.audio_pos, self.audio, self.audio_norm = nn.Parameter(torch.zeros(1, 32, d)), nn.ModuleList(Block(d, 4, nn.GELU) for _ in range(4)), nn.LayerNorm(d)
            self.token, self.text_pos, self.text, self.text_norm = nn.Embedding(300, d), nn.Parameter(torch.zeros(1, 24, d)), nn.ModuleList(Block(d, 4, nn.ReLU) for _ in range(3)), nn.LayerNorm(d)
            self.audio_projection, self.text_projection = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 32)), nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 32))
            self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

        def encode_audio(self, wave):
            spec = torch.stft(wave, 256, 64, window=self.window, return_complex=True).abs().pow(2)
            mel = 10 * torch.log10((self.fbank @ spec).clamp(min=1e-10))
            x = self.bn(mel.unsqueeze(1).transpose(1, 2)).transpose(1, 2)
            x = self.patch(F.pad(x, (0, 64 - x.shape[-1]))).flatten(2).transpose(1, 2) + self.audio_pos
            for block in self.audio:
                x = block(x)
            return F.normalize(self.audio_projection(self.audio_norm(x).mean(1)), dim=-1)

        def encode_text(self, ids):
            mask = (ids != 0)[:, None, None, :]
            x = self.token(ids) + self.text_pos[:, :ids.shape[1]]
            for block in self.text:
                x = block(x, mask)
            return F.normalize(self.text_projection(self.text_norm(x)[:, 0]), dim=-1)

    model = CLAP().to(device)
    blocks([*model.audio, *model.text])
    blocks([m for one in (*model.audio, *model.text) for m in (one.attn_part, one.mlp_part)], "part")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, betas=(0.9, 0.99))
    make = lambda i: (torch.randn(3900), F.pad(torch.randint(1, 300, (12 + i % 12,)), (0, 12 - i % 12)))
    loader, tests = DataLoader(Tensors(make, 48), batch_size=8, shuffle=True, drop_last=True), DataLoader(Tensors(make, 24), batch_size=8)

    def train(loader):
        model.train()
        for step, (audio, ids) in enumerate(loader):
            with execution("batch"), execution("training step"):
                audio, ids = audio.to(device, non_blocking=True), ids.to(device, non_blocking=True)
                a, t = model.encode_audio(audio), model.encode_text(ids)
                logits = model.logit_scale.exp() * a @ t.t()
                labels = torch.arange(len(a), device=device)
                loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    model.logit_scale.clamp_(0, math.log(100))
            if step % 3 == 0:
                print(step, loss.item())

    @torch.no_grad()
    def evaluate():
        model.eval()
        sounds, texts = [], []
        for audio, ids in tests:
            with execution("batch"):
                sounds.append(model.encode_audio(audio.to(device)).cpu())
                texts.append(model.encode_text(ids.to(device)).cpu())
        sounds, texts = torch.cat(sounds).numpy(), torch.cat(texts).numpy()
        ranks = (sounds @ texts.T).argmax(1)
        print("R@1", float((ranks == np.arange(len(ranks))).mean()))

    train([make_batch for make_batch in list(loader)[:1]])
    with record(shapes=True):
        train(loader)
        evaluate()


# -------------------------------------------------------------------------------------------------- 6. I-JEPA
@program(executions=6, layers=12, kinds={"training step": 6}, ranges="none",
         note="6 training steps: the target encoder over whole pictures (no gradient), the context encoder over visible patches, the predictor over 4 masks in one batch, loss, update, moving average of the target encoder: a step is one execution. "
              "Layers: the 5 blocks of either encoder and the 2 of the predictor; attention and MLP of each are acceptable.")
def ijepa_train():
    "I-JEPA: masked encoders and a predictor, smooth L1 in latent space, a momentum target, cosine schedules of rate and weight decay."
    device = D()

    class Attention(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads, self.qkv, self.proj = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

        def forward(self, x):
            b, n, c = x.shape
            q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            attn = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
            x = (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, n, c)
            return self.proj(x)

    class MLP(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.fc1, self.act, self.fc2 = nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)

        def forward(self, x):
            return self.fc2(self.act(self.fc1(x)))

    class Block(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(d), Attention(d, heads), nn.LayerNorm(d), MLP(d)

        def forward(self, x):
            x = x + self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    def apply_masks(x, masks):
        return torch.cat([torch.gather(x, 1, m.unsqueeze(-1).repeat(1, 1, x.size(-1))) for m in masks], dim=0)

    class Encoder(nn.Module):
        def __init__(self, d=48, depth=5):
            super().__init__()
            self.patch_embed, self.pos_embed = nn.Conv2d(3, d, 8, 8), nn.Parameter(torch.zeros(1, 64, d), requires_grad=False)
            self.blocks, self.norm = nn.ModuleList(Block(d, 4) for _ in range(depth)), nn.LayerNorm(d)

        def forward(self, x, masks=None):
            x = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
            x = apply_masks(x, masks) if masks is not None else x
            for blk in self.blocks:
                x = blk(x)
            return self.norm(x)

    class Predictor(nn.Module):
        def __init__(self, d=48, e=32, depth=2):
            super().__init__()
            self.predictor_embed, self.mask_token, self.pos = nn.Linear(d, e), nn.Parameter(torch.zeros(1, 1, e)), nn.Parameter(torch.zeros(1, 64, e), requires_grad=False)
            self.predictor_blocks, self.predictor_norm, self.predictor_proj = nn.ModuleList(Block(e, 4) for _ in range(depth)), nn.LayerNorm(e), nn.Linear(e, d)

        def forward(self, x, masks_x, masks):
            b = len(x)
            x = self.predictor_embed(x)
            pos = self.pos.repeat(b, 1, 1)
            x = x + apply_masks(pos, masks_x)
            n = x.size(1)
            tokens = apply_masks(pos, masks)
            tokens = self.mask_token.repeat(tokens.size(0), tokens.size(1), 1) + tokens
            x = torch.cat([x.repeat(len(masks), 1, 1), tokens], dim=1)
            for blk in self.predictor_blocks:
                x = blk(x)
            return self.predictor_proj(self.predictor_norm(x)[:, n:])

    encoder, predictor = Encoder().to(device), Predictor().to(device)
    target = copy.deepcopy(encoder)
    for p in target.parameters():
        p.requires_grad = False
    blocks([*encoder.blocks, *target.blocks, *predictor.predictor_blocks])
    blocks([m for one in (*encoder.blocks, *target.blocks, *predictor.predictor_blocks) for m in (one.attn, one.mlp)], "part")
    named = [*encoder.named_parameters(), *predictor.named_parameters()]
    groups = [{"params": [p for n, p in named if p.dim() > 1 and p.requires_grad]}, {"params": [p for n, p in named if p.dim() == 1 and p.requires_grad], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups)
    rng = np.random.default_rng(0)

    def collate(items):
        def block():
            top, left = rng.integers(0, 5, 2)
            return np.array([(top + i) * 8 + left + j for i in range(3) for j in range(3)])
        enc, pred = [], []
        for _ in items:
            four = [block() for _ in range(4)]
            rest = np.setdiff1d(np.arange(64), np.concatenate(four))[:28]
            pred.append(four), enc.append(rest)
        return torch.stack(items), [torch.tensor(np.stack(enc))], [torch.tensor(np.stack([p[k] for p in pred])) for k in range(4)]

    def train(n, start=0):
        momentum = iter(0.996 + 0.004 * i / 100 for i in range(100))
        for itr, (imgs, masks_enc, masks_pred) in enumerate(DataLoader(Tensors(lambda i: torch.rand(3, 64, 64), 6 * n), batch_size=6, collate_fn=collate)):
            with execution():
                imgs = imgs.to(device, non_blocking=True)
                masks_enc, masks_pred = [m.to(device, non_blocking=True) for m in masks_enc], [m.to(device, non_blocking=True) for m in masks_pred]
                for group in optimizer.param_groups:
                    group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * itr / 100))
                with torch.no_grad():
                    h = target(imgs)
                    h = F.layer_norm(h, (h.size(-1),))
                    h = apply_masks(h, masks_pred)
                z = predictor(encoder(imgs, masks_enc), masks_enc, masks_pred)
                loss = F.smooth_l1_loss(z, h)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    m = next(momentum)
                    for q, k in zip(encoder.parameters(), target.parameters()):
                        k.data.mul_(m).add_((1.0 - m) * q.detach().data)
                value = float(loss)
            assert not np.isnan(value)

    train(1)
    with record(shapes=True):
        train(6)


# -------------------------------------------------------------------------------------------------- 7. GraphGPS
@program(executions=10, layers=3, kinds={"training batch": 4, "validation batch": 6}, ranges="none",
         note="2 epochs of 2 training batches and 3 validation batches of molecules (other numbers of atoms and bonds each): each batch is one pass, hence an execution; the training batches alone are acceptable. "
              "Layers: the 3 GPS layers; their parts (message passing, attention, MLP) are acceptable.")
def graphgps_zinc():
    "GraphGPS on ZINC: GINE message passing beside dense attention, random-walk encodings, mean absolute error."
    device = D()

    class Net(nn.Sequential):
        def __init__(self, d):
            super().__init__(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    class GINEConv(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.eps, self.nn, self.lin = nn.Parameter(torch.zeros(1)), Net(d), nn.Linear(d, d)

        def forward(self, x, edge_index, edge_attr):
            src, dst = edge_index
            message = F.relu(x.index_select(0, src) + self.lin(edge_attr))
            out = torch.zeros_like(x).index_add_(0, dst, message)
            return self.nn(out + (1 + self.eps) * x)

    def to_dense_batch(x, batch, size):
        counts = torch.zeros(size, dtype=torch.long, device=x.device).scatter_add_(0, batch, torch.ones_like(batch))
        start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        most = int(counts.max())
        index = torch.arange(x.size(0), device=x.device) - start[batch] + batch * most
        dense = x.new_zeros(size * most, x.size(1))
        dense[index] = x
        mask = torch.zeros(size * most, dtype=torch.bool, device=x.device)
        mask[index] = True
        return dense.view(size, most, -1), mask.view(size, most)

    class Local(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.conv, self.norm = GINEConv(d), nn.BatchNorm1d(d)

        def forward(self, x, edge_index, edge_attr):
            return self.norm(F.dropout(self.conv(x, edge_index, edge_attr), 0.1, self.training) + x)

    class Global(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.attn, self.norm = nn.MultiheadAttention(d, heads, batch_first=True), nn.BatchNorm1d(d)

        def forward(self, x, batch, size):
            h, mask = to_dense_batch(x, batch, size)
            h = self.attn(h, h, h, key_padding_mask=~mask, need_weights=False)[0][mask]
            return self.norm(F.dropout(h, 0.1, self.training) + x)

    class MLP(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.net, self.norm = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2 * d, d), nn.Dropout(0.1)), nn.BatchNorm1d(d)

        def forward(self, x):
            return self.norm(x + self.net(x))

    class GPSLayer(nn.Module):
        def __init__(self, d, heads=4):
            super().__init__()
            self.local, self.globally, self.mlp = Local(d), Global(d, heads), MLP(d)

        def forward(self, x, edge_index, edge_attr, batch, size):
            return self.mlp(self.local(x, edge_index, edge_attr) + self.globally(x, batch, size))

    class GPS(nn.Module):
        def __init__(self, d=40, layers=3):
            super().__init__()
            self.node_emb, self.pe_lin, self.pe_norm, self.edge_emb = nn.Embedding(28, d - 8), nn.Linear(20, 8), nn.BatchNorm1d(20), nn.Embedding(4, d)
            self.convs = nn.ModuleList(GPSLayer(d) for _ in range(layers))
            self.mlp = nn.Sequential(nn.Linear(d, d // 2), nn.ReLU(), nn.Linear(d // 2, 1))

        def forward(self, x, pe, edge_index, edge_attr, batch, size):
            x, edge_attr = torch.cat([self.node_emb(x), self.pe_lin(self.pe_norm(pe))], 1), self.edge_emb(edge_attr)
            for conv in self.convs:
                x = conv(x, edge_index, edge_attr, batch, size)
            return self.mlp(x.new_zeros(size, x.size(1)).index_add_(0, batch, x)).squeeze(-1)

    random.seed(1)

    def make(i):
        n = random.randint(9, 24)
        bonds = [(k, random.randint(0, k - 1)) for k in range(1, n)] + [(0, n - 1)]
        e = torch.tensor(bonds + [(b, a) for a, b in bonds]).t()
        return torch.randint(0, 28, (n,)), torch.rand(n, 20), e, torch.randint(0, 4, (e.shape[1],)), torch.randn(())

    def collate(items):
        x, pe, e, a, y = zip(*items)
        counts = [len(one) for one in x]
        shift = np.cumsum([0, *counts[:-1]])
        return torch.cat(x), torch.cat(pe), torch.cat([one + int(s) for one, s in zip(e, shift)], 1), torch.cat(a), torch.repeat_interleave(torch.arange(len(x)), torch.tensor(counts)), torch.stack(y)

    model = GPS().to(device)
    blocks(model.convs)
    blocks([m for one in model.convs for m in (one.local, one.globally, one.mlp)], "part")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    train_loader = DataLoader(Tensors(make, 16), batch_size=8, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(Tensors(make, 21), batch_size=8, collate_fn=collate)

    def train():
        model.train()
        total = 0
        for data in train_loader:
            with execution("batch"), execution("training batch"):
                x, pe, e, a, batch, y = (d.to(device) for d in data)
                optimizer.zero_grad()
                loss = (model(x, pe, e, a, batch, len(y)) - y).abs().mean()
                loss.backward()
                total += loss.item() * len(y)
                optimizer.step()
        return total

    @torch.no_grad()
    def test():
        model.eval()
        error = 0
        for data in val_loader:
            with execution("batch"):
                x, pe, e, a, batch, y = (d.to(device) for d in data)
                error += (model(x, pe, e, a, batch, len(y)) - y).abs().sum().item()
        return error

    train()
    with record():
        for epoch in range(2):
            print(epoch, train(), test())


# -------------------------------------------------------------------------------------------------- 8. PCGrad
@program(executions=6, layers=7, kinds={"step": 6}, ranges="none",
         note="6 steps, each with one forward pass of the shared encoder and 3 heads, 3 backward passes (one for each task), projected gradients, one update: a step is one execution. "
              "Layers: the 4 residual blocks of the encoder and the 3 heads; each convolution is acceptable.")
def pcgrad_nyu():
    "Multi-task learning (segmentation, depth, normals) with PCGrad: one backward pass for each task, conflicting gradients projected."
    device = D()

    class BasicBlock(nn.Module):
        def __init__(self, i, o, stride=1):
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 or i != o else None

        def forward(self, x):
            out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(out + (x if self.downsample is None else self.downsample(x)))

    class Head(nn.Module):
        def __init__(self, c, o):
            super().__init__()
            self.conv, self.bn, self.out = nn.Conv2d(c, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.Conv2d(24, o, 1)

        def forward(self, x):
            return F.interpolate(self.out(F.relu(self.bn(self.conv(x)))), scale_factor=8, mode="bilinear", align_corners=True)

    class MultiTask(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU())
            self.encoder = nn.Sequential(BasicBlock(16, 16), BasicBlock(16, 24, 2), BasicBlock(24, 24), BasicBlock(24, 32, 2))
            self.heads = nn.ModuleDict({"semantic": Head(32, 13), "depth": Head(32, 1), "normal": Head(32, 3)})

        def forward(self, x):
            x = self.encoder(self.stem(x))
            return {name: head(x) for name, head in self.heads.items()}

    class PCGrad:
        def __init__(self, optimizer):
            self.optim = optimizer

        def pc_backward(self, objectives):
            grads, shapes = [], None
            for loss in objectives:
                self.optim.zero_grad(set_to_none=True)
                loss.backward(retain_graph=True)
                found = [(p.grad.clone() if p.grad is not None else torch.zeros_like(p)) for g in self.optim.param_groups for p in g["params"]]
                shapes = [f.shape for f in found]
                grads.append(torch.cat([f.flatten() for f in found]))
            projected = [g.clone() for g in grads]
            for g_i in projected:
                for g_j in random.sample(grads, len(grads)):
                    dot = torch.dot(g_i, g_j)
                    if dot < 0:
                        g_i -= dot * g_j / (g_j.norm() ** 2)
            merged, at = torch.stack(projected).sum(0), 0
            for p, shape in zip((p for g in self.optim.param_groups for p in g["params"]), shapes):
                p.grad = merged[at:at + shape.numel()].view(shape).clone()
                at += shape.numel()

    random.seed(5)
    model = MultiTask().to(device)
    blocks([*model.encoder, *model.heads.values()])
    blocks([m for m in model.modules() if isinstance(m, nn.Conv2d)], "convolution")
    optimizer = PCGrad(torch.optim.Adam(model.parameters(), lr=1e-4))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer.optim, 100, 0.5)
    make = lambda i: (torch.rand(3, 64, 80), torch.randint(-1, 13, (64, 80)), torch.rand(1, 64, 80), F.normalize(torch.randn(3, 64, 80), dim=0))

    def confusion(pred, target):
        valid = target >= 0
        return torch.bincount(13 * target[valid] + pred[valid], minlength=169).view(13, 13)

    def train(n):
        matrix = torch.zeros(13, 13, dtype=torch.long, device=device)
        for step, batch in enumerate(DataLoader(Tensors(make, 3 * n), batch_size=3, shuffle=True)):
            with execution():
                image, label, depth, normal = (b.to(device) for b in batch)
                out = model(image)
                mask = (depth.sum(1, keepdim=True) != 0).float()
                losses = [F.cross_entropy(out["semantic"], label, ignore_index=-1), ((out["depth"] - depth).abs() * mask).sum() / mask.sum(),
                          1 - (F.normalize(out["normal"], dim=1) * normal).sum(1).mean()]
                optimizer.pc_backward(losses)
                optimizer.optim.step()
                with torch.no_grad():
                    matrix += confusion(out["semantic"].argmax(1).flatten(), label.flatten())
        scheduler.step()
        return matrix.diag().sum().item()

    train(1)
    with record():
        train(6)
