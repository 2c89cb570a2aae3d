"""Eight programs of inference as they are in public repositories in 2026: a generate loop, a text-to-image pipeline, a detector on
video, a transducer, tiles of a super-resolution network, prompt lookup, a latency benchmark, a server of embeddings.
Sizes are a CPU's. The truth was written down before any tool read a recording."""
import asyncio
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function

from harness import blocks, execution, layer, program, record, sync, D


# -------------------------------------------------------------------------------- parts that several programs import
class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-x2, x1), dim=-1)


class DynamicCache:
    def __init__(self, layers):
        self.keys, self.values = [None] * layers, [None] * layers

    def update(self, k, v, i):
        self.keys[i] = k if self.keys[i] is None else torch.cat([self.keys[i], k], dim=-2)
        self.values[i] = v if self.values[i] is None else torch.cat([self.values[i], v], dim=-2)
        return self.keys[i], self.values[i]

    def get_seq_length(self):
        return 0 if self.keys[0] is None else self.keys[0].shape[-2]

    def crop(self, length):
        for i in range(len(self.keys)):
            self.keys[i], self.values[i] = self.keys[i][..., :length, :], self.values[i][..., :length, :]


class DecoderLayer(nn.Module):
    def __init__(self, i, dim, heads, kv_heads, hidden):
        super().__init__()
        self.i, self.heads, self.kv_heads, self.size = i, heads, kv_heads, dim // heads
        self.q_proj, self.o_proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(dim, kv_heads * self.size, bias=False) for _ in range(2))
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(dim), RMSNorm(dim)

    def attend(self, x, mask, cos, sin, cache):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = cache.update(k, v, self.i)
        n = self.heads // self.kv_heads
        k = k[:, :, None].expand(b, self.kv_heads, n, *k.shape[-2:]).reshape(b, self.heads, *k.shape[-2:])
        v = v[:, :, None].expand(b, self.kv_heads, n, *v.shape[-2:]).reshape(b, self.heads, *v.shape[-2:])
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).contiguous().view(b, t, -1))

    def forward(self, x, mask, cos, sin, cache):
        x = x + self.attend(self.input_layernorm(x), mask, cos, sin, cache)
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class CausalLM(nn.Module):
    def __init__(self, vocabulary=512, layers=6, dim=64, heads=4, kv_heads=2, hidden=160):
        super().__init__()
        self.embed_tokens, self.norm, self.lm_head = nn.Embedding(vocabulary, dim), RMSNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        self.layers = nn.ModuleList(DecoderLayer(i, dim, heads, kv_heads, hidden) for i in range(layers))
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, dim // heads, 2).float() / (dim // heads))))

    def forward(self, input_ids, attention_mask, position_ids, cache, num_logits=1):
        x = self.embed_tokens(input_ids)
        past, t = cache.get_seq_length(), input_ids.shape[1]
        i = torch.arange(past, past + t, device=x.device)
        j = torch.arange(past + t, device=x.device)
        mask = (j[None, :] <= i[:, None])[None, None] & attention_mask[:, None, None, :].bool()
        freqs = position_ids[:, :, None].float() * self.inv_freq[None, None, :]
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos()[:, None], emb.sin()[:, None]
        for layer in self.layers:
            x = layer(x, mask, cos, sin, cache)
        return self.lm_head(self.norm(x)[:, -num_logits:])


# -------------------------------------------------------------------------------------------------- 1. model.generate
@program(executions=42, layers=6, kinds={"forward": 42, "generate": 3}, ranges="none",
         note="3 batches of 4 left-padded prompts are answered by generate(), each with 14 forwards (one over the prompts, 13 over a token): each forward is one execution; a call of generate is acceptable. "
              "Layers: the 6 decoder layers.")
def hf_batch_generate():
    "model.generate(do_sample=True) of a batch with left padding: logits processors, stopping criteria, a growing cache."
    torch.set_grad_enabled(False)
    device = D()
    model = CausalLM().to(device).eval()
    blocks(model.layers)
    pad, eos = 0, 2

    def processors(input_ids, scores, temperature=0.7, top_k=50, top_p=0.9, penalty=1.1):
        score = torch.gather(scores, 1, input_ids)
        score = torch.where(score < 0, score * penalty, score / penalty)
        scores = scores.scatter(1, input_ids, score)
        scores = scores / temperature
        scores = scores.masked_fill(scores < torch.topk(scores, top_k)[0][..., -1, None], -float("inf"))
        sorted_logits, sorted_indices = torch.sort(scores, descending=False)
        cumulative = sorted_logits.softmax(dim=-1).cumsum(dim=-1)
        remove = cumulative <= (1 - top_p)
        remove[..., -1:] = 0
        return scores.masked_fill(remove.scatter(1, sorted_indices, remove), -float("inf"))

    def generate(input_ids, attention_mask, max_new_tokens=14):
        cache = DynamicCache(len(model.layers))
        unfinished = torch.ones(input_ids.shape[0], dtype=torch.long, device=input_ids.device)
        fed, n = input_ids, 0
        while True:
            with execution("forward"):
                positions = attention_mask.long().cumsum(-1) - 1
                positions.masked_fill_(attention_mask == 0, 1)
                logits = model(fed, attention_mask, positions[:, -fed.shape[1]:], cache)[:, -1].float()
                probs = F.softmax(processors(input_ids, logits), dim=-1)
                next_tokens = torch.multinomial(probs, num_samples=1).squeeze(1)
                next_tokens = next_tokens * unfinished + pad * (1 - unfinished)
                input_ids = torch.cat([input_ids, next_tokens[:, None]], dim=-1)
                attention_mask = torch.cat([attention_mask, attention_mask.new_ones((attention_mask.shape[0], 1))], dim=-1)
                unfinished = unfinished * (next_tokens != eos).long()
                n += 1
                stop = unfinished.max() == 0
            if bool(stop) or n == max_new_tokens:
                return input_ids
            fed = next_tokens[:, None]

    rng = np.random.default_rng(0)

    def tokenize(texts):
        longest = max(map(len, texts))
        ids, mask = np.full((len(texts), longest), pad), np.zeros((len(texts), longest), np.int64)
        for r, text in enumerate(texts):
            ids[r, longest - len(text):], mask[r, longest - len(text):] = text, 1
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)

    batches = [[rng.integers(3, 512, rng.integers(9, 30)) for _ in range(4)] for _ in range(4)]
    generate(*tokenize(batches[3]), 3)
    with record():
        for texts in batches[:3]:
            with execution("generate"):
                out = generate(*tokenize(texts))
                rows = out.cpu().tolist()
            answers = [" ".join(map(str, row[-14:])) for row in rows]
            print(len(answers), answers[0][:40])


# -------------------------------------------------------------------------------------------------- 2. text to image
@program(executions=3, layers=13, kinds={"image": 3, "forward": 24, "denoising step": 15}, ranges="none",
         note="3 prompts; each goes through the text encoder twice (the prompt, the empty prompt), then 5 denoising steps with guidance in one batch, then the VAE's decoder: an image is one execution; "
              "a forward (2 + 5 + 1 of them) is acceptable, and so are the 15 denoising steps. Layers: the 4 encoder layers of CLIP, the 8 blocks of the UNet "
              "(CrossAttnDownBlock2D, DownBlock2D and so on), the VAE's up blocks; each residual block and transformer is acceptable.")
def diffusers_text_to_image():
    "StableDiffusionPipeline: CLIP text, UNet with cross attention, Euler scheduler, VAE decode."
    torch.set_grad_enabled(False)
    device = D()

    class CLIPEncoderLayer(nn.Module):
        def __init__(self, dim=48, heads=4):
            super().__init__()
            self.heads, self.layer_norm1, self.layer_norm2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            b, t, c = x.shape
            h = self.layer_norm1(x)
            q, k, v = (w(h).view(b, t, self.heads, -1).transpose(1, 2) for w in (self.q_proj, self.k_proj, self.v_proj))
            x = x + self.out_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
            h = self.fc1(self.layer_norm2(x))
            return x + self.fc2(h * torch.sigmoid(1.702 * h))

    class CLIPTextModel(nn.Module):
        def __init__(self, dim=48):
            super().__init__()
            self.token_embedding, self.position_embedding, self.final_layer_norm = nn.Embedding(400, dim), nn.Embedding(32, dim), nn.LayerNorm(dim)
            self.layers = nn.ModuleList(CLIPEncoderLayer() for _ in range(4))

        def forward(self, ids):
            x = self.token_embedding(ids) + self.position_embedding(torch.arange(ids.shape[1], device=ids.device))
            for layer in self.layers:
                x = layer(x)
            return self.final_layer_norm(x)

    class ResnetBlock2D(nn.Module):
        def __init__(self, i, o, temb=96):
            super().__init__()
            self.norm1, self.conv1, self.norm2, self.conv2 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
            self.time_emb_proj = nn.Linear(temb, o) if temb else None
            self.conv_shortcut = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, temb=None):
            h = self.conv1(F.silu(self.norm1(x)))
            if self.time_emb_proj is not None:
                h = h + self.time_emb_proj(F.silu(temb))[:, :, None, None]
            return self.conv_shortcut(x) + self.conv2(F.silu(self.norm2(h)))

    class Attention(nn.Module):
        def __init__(self, dim, context=None, heads=4):
            super().__init__()
            self.heads, self.to_q, self.to_out = heads, nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim)
            self.to_k, self.to_v = (nn.Linear(context or dim, dim, bias=False) for _ in range(2))

        def forward(self, x, context=None):
            b, t, c = x.shape
            context = x if context is None else context
            q, k, v = (y.view(b, -1, self.heads, c // self.heads).transpose(1, 2) for y in (self.to_q(x), self.to_k(context), self.to_v(context)))
            return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))

    class Transformer2DModel(nn.Module):
        def __init__(self, dim, context=48):
            super().__init__()
            self.norm, self.proj_in, self.proj_out = nn.GroupNorm(8, dim), nn.Conv2d(dim, dim, 1), nn.Conv2d(dim, dim, 1)
            self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
            self.attn1, self.attn2 = Attention(dim), Attention(dim, context)
            self.ff_in, self.ff_out = nn.Linear(dim, 8 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x, context):
            b, c, h, w = x.shape
            y = self.proj_in(self.norm(x)).permute(0, 2, 3, 1).reshape(b, h * w, c)
            y = y + self.attn1(self.norm1(y))
            y = y + self.attn2(self.norm2(y), context)
            a, gate = self.ff_in(self.norm3(y)).chunk(2, dim=-1)
            y = y + self.ff_out(a * F.gelu(gate))
            return x + self.proj_out(y.reshape(b, h, w, c).permute(0, 3, 1, 2))

    class DownBlock(nn.Module):
        def __init__(self, i, o, attends, downsamples):
            super().__init__()
            self.resnets = nn.ModuleList([ResnetBlock2D(i, o), ResnetBlock2D(o, o)])
            self.attentions = nn.ModuleList(Transformer2DModel(o) for _ in range(2 * attends))
            self.downsampler = nn.Conv2d(o, o, 3, stride=2, padding=1) if downsamples else None

        def forward(self, x, temb, context):
            out = []
            for k, resnet in enumerate(self.resnets):
                x = resnet(x, temb)
                x = self.attentions[k](x, context) if self.attentions else x
                out.append(x)
            if self.downsampler is not None:
                x = self.downsampler(x)
                out.append(x)
            return x, out

    class UpBlock(nn.Module):
        def __init__(self, i, o, skips, attends, upsamples):
            super().__init__()
            self.resnets = nn.ModuleList(ResnetBlock2D((i if k == 0 else o) + s, o) for k, s in enumerate(skips))
            self.attentions = nn.ModuleList(Transformer2DModel(o) for _ in range(3 * attends))
            self.upsampler = nn.Conv2d(o, o, 3, padding=1) if upsamples else None

        def forward(self, x, skips, temb, context):
            for k, resnet in enumerate(self.resnets):
                x = resnet(torch.cat([x, skips.pop()], 1), temb)
                x = self.attentions[k](x, context) if self.attentions else x
            return x if self.upsampler is None else self.upsampler(F.interpolate(x, scale_factor=2.0, mode="nearest"))

    class MidBlock(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.resnets, self.attention = nn.ModuleList([ResnetBlock2D(c, c), ResnetBlock2D(c, c)]), Transformer2DModel(c)

        def forward(self, x, temb, context):
            return self.resnets[1](self.attention(self.resnets[0](x, temb), context), temb)

    class UNet2DConditionModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv_in, self.linear_1, self.linear_2 = nn.Conv2d(4, 24, 3, padding=1), nn.Linear(24, 96), nn.Linear(96, 96)
            self.down_blocks = nn.ModuleList([DownBlock(24, 24, True, True), DownBlock(24, 48, True, True), DownBlock(48, 48, False, False)])
            self.mid_block = MidBlock(48)
            self.up_blocks = nn.ModuleList([UpBlock(48, 48, (48, 48, 48), False, True), UpBlock(48, 48, (48, 48, 24), True, True), UpBlock(48, 24, (24, 24, 24), True, False)])
            self.conv_norm_out, self.conv_out = nn.GroupNorm(8, 24), nn.Conv2d(24, 4, 3, padding=1)

        def forward(self, sample, t, context):
            freqs = torch.exp(-np.log(10000) * torch.arange(12, dtype=torch.float32, device=sample.device) / 12)
            arg = t.expand(sample.shape[0])[:, None].float() * freqs[None]
            temb = self.linear_2(F.silu(self.linear_1(torch.cat([arg.cos(), arg.sin()], -1))))
            x = self.conv_in(sample)
            skips = [x]
            for block in self.down_blocks:
                x, out = block(x, temb, context)
                skips += out
            x = self.mid_block(x, temb, context)
            for block in self.up_blocks:
                x = block(x, skips, temb, context)
            return self.conv_out(F.silu(self.conv_norm_out(x)))

    class UpDecoderBlock(nn.Module):
        def __init__(self, i, o, upsamples):
            super().__init__()
            self.resnets = nn.ModuleList([ResnetBlock2D(i, o, 0), ResnetBlock2D(o, o, 0), ResnetBlock2D(o, o, 0)])
            self.upsampler = nn.Conv2d(o, o, 3, padding=1) if upsamples else None

        def forward(self, x):
            for resnet in self.resnets:
                x = resnet(x)
            return x if self.upsampler is None else self.upsampler(F.interpolate(x, scale_factor=2.0, mode="nearest"))

    class AutoencoderKLDecoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.post_quant_conv, self.conv_in = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 32, 3, padding=1)
            self.mid = nn.ModuleList([ResnetBlock2D(32, 32, 0), ResnetBlock2D(32, 32, 0)])
            self.group_norm, self.attention = nn.GroupNorm(8, 32), Attention(32, heads=1)
            self.up_blocks = nn.ModuleList([UpDecoderBlock(32, 32, True), UpDecoderBlock(32, 16, True), UpDecoderBlock(16, 16, False)])
            self.conv_norm_out, self.conv_out = nn.GroupNorm(8, 16), nn.Conv2d(16, 3, 3, padding=1)

        def forward(self, z):
            x = self.mid[0](self.conv_in(self.post_quant_conv(z)))
            b, c, h, w = x.shape
            y = self.group_norm(x.view(b, c, h * w)).transpose(1, 2)
            x = self.mid[1](x + self.attention(y).transpose(1, 2).view(b, c, h, w))
            for block in self.up_blocks:
                x = block(x)
            return self.conv_out(F.silu(self.conv_norm_out(x)))

    text_encoder, unet, vae = CLIPTextModel().to(device).eval(), UNet2DConditionModel().to(device).eval(), AutoencoderKLDecoder().to(device).eval()
    blocks([*text_encoder.layers, *unet.down_blocks, unet.mid_block, *unet.up_blocks, *vae.up_blocks])
    parts = [m for net in (unet, vae) for m in net.modules() if isinstance(m, (ResnetBlock2D, Transformer2DModel))]
    blocks([*text_encoder.layers, *parts], "residual block or transformer")
    alphas = np.cumprod(1 - np.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000) ** 2)

    def pipe(ids, num_inference_steps, guidance_scale=7.5):
        with execution("forward"):
            cond = text_encoder(torch.from_numpy(ids[None]).to(device))
        with execution("forward"):
            uncond = text_encoder(torch.zeros(1, len(ids), dtype=torch.long).to(device))
        context = torch.cat([uncond, cond])
        timesteps = np.linspace(0, 999, num_inference_steps)[::-1].copy()
        sigmas = np.append(np.interp(timesteps, np.arange(1000), ((1 - alphas) / alphas) ** 0.5), 0).astype(np.float32)
        ts, sigmas = torch.from_numpy(timesteps.astype(np.float32)).to(device), torch.from_numpy(sigmas)
        latents = torch.randn(1, 4, 16, 16, device=device) * float(sigmas[0])
        for i, t in enumerate(ts):
            with execution("forward"), execution("denoising step"):
                sigma, after = float(sigmas[i]), float(sigmas[i + 1])
                model_input = torch.cat([latents] * 2) / (sigma ** 2 + 1) ** 0.5
                noise_uncond, noise_text = unet(model_input, t, context).chunk(2)
                noise = noise_uncond + guidance_scale * (noise_text - noise_uncond)
                original = latents - sigma * noise
                derivative = (latents - original) / sigma
                latents = latents + derivative * (after - sigma)
        with execution("forward"):
            image = vae(latents / 0.18215)
            image = (image / 2 + 0.5).clamp(0, 1)
        return (image.permute(0, 2, 3, 1).float().cpu().numpy() * 255).round().astype("uint8")

    rng = np.random.default_rng(0)
    pipe(rng.integers(0, 400, 20), 2)
    with record():
        for n in range(3):
            with execution("image"):
                images = pipe(rng.integers(0, 400, 20), 5)
            print(f"image_{n}.png", images.mean())


# -------------------------------------------------------------------------------------------------- 3. detection on video
@program(executions=12, layers=22, kinds={"frame": 12}, ranges="record_function: preprocess, inference, postprocess",
         note="12 frames of a video, one by one: each is one pass and its non-maximum suppression, hence an execution. Layers: the modules of model.model (Conv, C2f, SPPF, Upsample, Concat, Detect); "
              "each Conv (convolution, norm, SiLU) is acceptable.")
def yolov8_track_video():
    "YOLOv8 on a video: letterbox on the host, C2f network, decoding of boxes, a greedy NMS in a loop, a tracker in NumPy."
    torch.set_grad_enabled(False)
    device = D()

    class Conv(nn.Module):
        def __init__(self, i, o, k=1, s=1):
            super().__init__()
            self.conv, self.bn, self.act = nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU()

        def forward(self, x):
            return self.act(self.bn(self.conv(x)))

    class Bottleneck(nn.Module):
        def __init__(self, c, shortcut):
            super().__init__()
            self.cv1, self.cv2, self.add = Conv(c, c, 3), Conv(c, c, 3), shortcut

        def forward(self, x):
            return x + self.cv2(self.cv1(x)) if self.add else self.cv2(self.cv1(x))

    class C2f(nn.Module):
        def __init__(self, i, o, n=1, shortcut=False):
            super().__init__()
            self.c, self.cv1, self.cv2 = o // 2, Conv(i, o), Conv((2 + n) * (o // 2), o)
            self.m = nn.ModuleList(Bottleneck(self.c, shortcut) for _ in range(n))

        def forward(self, x):
            y = list(self.cv1(x).chunk(2, 1))
            y.extend(m(y[-1]) for m in self.m)
            return self.cv2(torch.cat(y, 1))

    class SPPF(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.cv1, self.cv2, self.m = Conv(c, c // 2), Conv(c * 2, c), nn.MaxPool2d(5, 1, 2)

        def forward(self, x):
            y = [self.cv1(x)]
            y.extend(self.m(y[-1]) for _ in range(3))
            return self.cv2(torch.cat(y, 1))

    class Concat(nn.Module):
        def forward(self, x):
            return torch.cat(x, 1)

    class Detect(nn.Module):
        def __init__(self, nc, ch):
            super().__init__()
            self.nc, self.reg_max, self.strides = nc, 16, (8, 16, 32)
            self.cv2 = nn.ModuleList(nn.Sequential(Conv(c, 32, 3), Conv(32, 32, 3), nn.Conv2d(32, 64, 1)) for c in ch)
            self.cv3 = nn.ModuleList(nn.Sequential(Conv(c, 32, 3), Conv(32, 32, 3), nn.Conv2d(32, nc, 1)) for c in ch)

        def forward(self, xs):
            out, points, strides = [], [], []
            for x, cv2, cv3, s in zip(xs, self.cv2, self.cv3, self.strides):
                h, w = x.shape[2:]
                out.append(torch.cat((cv2(x), cv3(x)), 1).view(x.shape[0], -1, h * w))
                sy, sx = torch.meshgrid(torch.arange(h, device=x.device) + 0.5, torch.arange(w, device=x.device) + 0.5, indexing="ij")
                points.append(torch.stack((sx, sy), -1).view(-1, 2))
                strides.append(torch.full((h * w, 1), s, dtype=torch.float, device=x.device))
            box, cls = torch.cat(out, 2).split((64, self.nc), 1)
            points, strides = torch.cat(points).T[None], torch.cat(strides).T[None]
            b, _, a = box.shape
            weights = torch.arange(16, dtype=torch.float, device=box.device)
            dist = (box.view(b, 4, 16, a).transpose(2, 1).softmax(1) * weights.view(1, 16, 1, 1)).sum(1)
            lt, rb = dist.chunk(2, 1)
            x1y1, x2y2 = points - lt, points + rb
            return torch.cat((torch.cat(((x1y1 + x2y2) / 2, x2y2 - x1y1), 1) * strides, cls.sigmoid()), 1)

    class DetectionModel(nn.Module):
        def __init__(self, nc=20):
            super().__init__()
            up = lambda: nn.Upsample(scale_factor=2, mode="nearest")  # noqa: E731
            self.model = nn.ModuleList([
                Conv(3, 8, 3, 2), Conv(8, 16, 3, 2), C2f(16, 16, 1, True), Conv(16, 32, 3, 2), C2f(32, 32, 2, True), Conv(32, 64, 3, 2), C2f(64, 64, 2, True),
                Conv(64, 96, 3, 2), C2f(96, 96, 1, True), SPPF(96), up(), Concat(), C2f(160, 64), up(), Concat(), C2f(96, 32), Conv(32, 32, 3, 2), Concat(), C2f(96, 64),
                Conv(64, 64, 3, 2), Concat(), C2f(160, 96), Detect(nc, (32, 64, 96))])
            self.f = {11: [-1, 6], 14: [-1, 4], 17: [-1, 12], 20: [-1, 9], 22: [15, 18, 21]}

        def forward(self, x):
            y = []
            for i, m in enumerate(self.model):
                if i in self.f:
                    x = [x if j == -1 else y[j] for j in self.f[i]]
                x = m(x)
                y.append(x)
            return x

    model = DetectionModel().to(device).eval()
    blocks(model.model)
    blocks([m for m in model.modules() if isinstance(m, Conv)], "Conv")

    def letterbox(frame, size=160):
        scale = size / max(frame.shape[:2])
        rows = (np.arange(int(frame.shape[0] * scale)) / scale).astype(int)
        cols = (np.arange(int(frame.shape[1] * scale)) / scale).astype(int)
        out = np.full((size, size, 3), 114, np.uint8)
        top = (size - len(rows)) // 2
        out[top:top + len(rows), :len(cols)] = frame[rows][:, cols]
        return np.ascontiguousarray(out.transpose(2, 0, 1))

    def box_iou(a, b):
        lt, rb = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
        inter = (rb - lt).clamp(min=0).prod(2)
        area = lambda z: (z[:, 2] - z[:, 0]) * (z[:, 3] - z[:, 1])  # noqa: E731
        return inter / (area(a)[:, None] + area(b) - inter + 1e-7)

    def non_max_suppression(prediction, conf=0.5, iou=0.6, max_det=12):
        candidates = prediction[:, 4:].amax(1) > conf
        out = []
        for xi, x in enumerate(prediction.transpose(-1, -2)):
            x = x[candidates[xi]]
            if not x.shape[0]:
                out.append(x.new_zeros(0, 6))
                continue
            box, cls = x.split((4, 20), 1)
            box = torch.cat((box[:, :2] - box[:, 2:] / 2, box[:, :2] + box[:, 2:] / 2), 1)
            score, j = cls.max(1, keepdim=True)
            x = torch.cat((box, score, j.float()), 1)
            x = x[x[:, 4].argsort(descending=True)[:300]]
            boxes, keep = x[:, :4] + x[:, 5:6] * 7680, []
            order = torch.arange(x.shape[0], device=x.device)
            while order.numel() > 0 and len(keep) < max_det:
                i = order[0]
                keep.append(i)
                if order.numel() == 1:
                    break
                order = order[1:][box_iou(boxes[i][None], boxes[order[1:]])[0] <= iou]
            out.append(x[torch.stack(keep)])
        return out

    class Tracker:
        def __init__(self):
            self.tracks, self.next = [], 0

        def update(self, dets):
            matched = []
            for d in dets:
                centre = (d[:2] + d[2:4]) / 2
                near = min(self.tracks, key=lambda t: np.abs(t[1] - centre).sum(), default=None)
                if near is not None and np.abs(near[1] - centre).sum() < 12:
                    matched.append((near[0], centre))
                else:
                    matched.append((self.next, centre))
                    self.next += 1
            self.tracks = matched
            return matched

    rng = np.random.default_rng(0)
    video = [rng.integers(0, 256, (270, 480, 3), dtype=np.uint8) for _ in range(12)]
    tracker = Tracker()
    bias = torch.quantile(model(torch.from_numpy(letterbox(video[0]))[None].float() / 255)[:, 4:].amax(1), 0.9)

    def predict(frame):
        with record_function("preprocess"):
            im = torch.from_numpy(letterbox(frame)[None]).to(device).float()
            im /= 255
        with record_function("inference"):
            preds = model(im)
        with record_function("postprocess"):
            det = non_max_suppression(preds, conf=limit)[0]
            return det.cpu().numpy()

    limit = float(bias)
    predict(video[0])
    with record():
        for frame in video:
            with execution("frame"):
                boxes = predict(frame)
            tracks = tracker.update(boxes)
            print(len(boxes), "boxes", len(tracks), "tracks")


# -------------------------------------------------------------------------------------------------- 4. transducer
@program(executions=5, layers=6, kinds={"utterance": 5, "encoder pass or decoder step": 0}, ranges="record_function: encoder (around the encoder), greedy_search",
         note="5 utterances of other lengths: each is filter banks, one pass of the Conformer and a greedy search frame by frame: an utterance is one execution; the encoder's pass and each step of the predictor and joiner "
              "are acceptable. Layers: the 6 Conformer layers; with them each step of the search is acceptable.")
def rnnt_transcribe():
    "A Conformer transducer (as in icefall or NeMo): greedy search with the predictor in a Python loop."
    torch.set_grad_enabled(False)
    device = D()
    dim, vocabulary, blank = 64, 60, 0

    class FeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear1, self.linear2 = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            return self.linear2(F.silu(self.linear1(self.norm(x))))

    class ConvModule(nn.Module):
        def __init__(self, kernel=15):
            super().__init__()
            self.norm, self.pointwise1, self.pointwise2 = nn.LayerNorm(dim), nn.Conv1d(dim, 2 * dim, 1), nn.Conv1d(dim, dim, 1)
            self.depthwise, self.bn = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim), nn.BatchNorm1d(dim)

        def forward(self, x):
            x = F.glu(self.pointwise1(self.norm(x).transpose(1, 2)), 1)
            return self.pointwise2(F.silu(self.bn(self.depthwise(x)))).transpose(1, 2)

    class RelAttention(nn.Module):
        def __init__(self, heads=4):
            super().__init__()
            self.heads, self.norm, self.qkv, self.pos, self.out = heads, nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim)
            self.bias_u, self.bias_v = (nn.Parameter(torch.randn(heads, dim // heads) * 0.1) for _ in range(2))

        def forward(self, x, pos):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).unbind(2)
            p = self.pos(pos).view(1, -1, self.heads, dim // self.heads).transpose(1, 2)
            ac = (q + self.bias_u).transpose(1, 2) @ k.permute(0, 2, 3, 1)
            bd = (q + self.bias_v).transpose(1, 2) @ p.transpose(-2, -1)
            bd = F.pad(bd, (1, 0)).view(b, self.heads, -1, t)[:, :, 1:].reshape(b, self.heads, t, -1)[..., :t]
            a = ((ac + bd) / (dim // self.heads) ** 0.5).softmax(-1)
            return self.out((a @ v.transpose(1, 2)).transpose(1, 2).reshape(b, t, dim))

    class ConformerLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ff1, self.attention, self.conv, self.ff2, self.norm = FeedForward(), RelAttention(), ConvModule(), FeedForward(), nn.LayerNorm(dim)

        def forward(self, x, pos):
            x = x + 0.5 * self.ff1(x)
            x = x + self.attention(x, pos)
            x = x + self.conv(x)
            return self.norm(x + 0.5 * self.ff2(x))

    class Encoder(nn.Module):
        def __init__(self, depth=6):
            super().__init__()
            self.conv1, self.conv2, self.out = nn.Conv2d(1, 16, 3, 2), nn.Conv2d(16, 16, 3, 2), nn.Linear(16 * 9, dim)
            self.layers = nn.ModuleList(ConformerLayer() for _ in range(depth))

        def forward(self, x):
            x = F.relu(self.conv2(F.relu(self.conv1(x[:, None]))))
            b, c, t, f = x.shape
            x = self.out(x.transpose(1, 2).reshape(b, t, c * f)) * dim ** 0.5
            at = torch.arange(t - 1, -t, -1, device=x.device).float()[:, None] * torch.exp(torch.arange(0, dim, 2, device=x.device) * -(np.log(1e4) / dim))
            pos = torch.stack((at.sin(), at.cos()), -1).reshape(1, 2 * t - 1, dim)
            for layer in self.layers:
                x = layer(x, pos)
            return x

    class Predictor(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm = nn.Embedding(vocabulary, dim), nn.LSTM(dim, dim, batch_first=True)

        def forward(self, y, state=None):
            return self.lstm(self.embed(y), state)

    class Joiner(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder_proj, self.decoder_proj, self.output_linear = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, vocabulary)

        def forward(self, e, d):
            return self.output_linear(torch.tanh(self.encoder_proj(e) + self.decoder_proj(d)))

    encoder, predictor, joiner = (m.to(device).eval() for m in (Encoder(), Predictor(), Joiner()))
    blocks(encoder.layers)
    blocks(encoder.layers, "layer or step")
    mel = torch.rand(129, 40).to(device)
    window = torch.hann_window(256).to(device)

    def greedy_search(out, max_sym_per_frame=2):
        hyp, t, sym = [], 0, 0
        with execution("encoder pass or decoder step"):
            d, state = predictor(torch.full((1, 1), blank, dtype=torch.long).to(device))
        while t < out.shape[1]:
            with execution("encoder pass or decoder step"), layer("layer or step"):
                logits = joiner(out[:, t:t + 1], d)
                y = logits.log_softmax(-1).argmax(-1)
                token = y.item()
                if token != blank and sym < max_sym_per_frame:
                    hyp.append(token)
                    sym += 1
                    d, state = predictor(y.view(1, 1), state)
                else:
                    t, sym = t + 1, 0
        return hyp

    def transcribe(wave):
        with execution("encoder pass or decoder step"):
            x = torch.from_numpy(wave).to(device)[None]
            spectrum = torch.stft(x, 256, 128, 256, window, return_complex=True).abs().pow(2)
            feats = (spectrum.transpose(1, 2) @ mel).clamp(min=1e-10).log()
            feats = (feats - feats.mean(1, keepdim=True)) / (feats.std(1, keepdim=True) + 1e-5)
            with record_function("encoder"):
                out = encoder(feats)
        with record_function("greedy_search"):
            return greedy_search(out)

    joiner.output_linear.bias[blank] += 0.22
    rng = np.random.default_rng(0)
    waves = [rng.standard_normal(n).astype(np.float32) for n in (13000, 9000, 17000, 11000, 15000, 8000)]
    transcribe(waves[5])
    with record():
        for n, wave in enumerate(waves[:5]):
            with execution("utterance"):
                hyp = transcribe(wave)
            print(f"utt{n}", len(hyp), hyp[:8])


# -------------------------------------------------------------------------------------------------- 5. tiles
@program(executions=14, layers=12, kinds={"tile": 14, "picture": 3}, ranges="none",
         note="3 pictures cut into 6, 4 and 4 padded tiles (those at the edges are smaller): each tile is one pass of the network, hence an execution; a picture is acceptable. "
              "Layers: the 4 RRDB blocks; each of the 3 dense blocks in them is acceptable.")
def realesrgan_tiles():
    "Real-ESRGAN: RRDBNet on tiles with padding, put together on the device, saved by a host loop."
    torch.set_grad_enabled(False)
    device = D()

    class ResidualDenseBlock(nn.Module):
        def __init__(self, num_feat=24, grow=12):
            super().__init__()
            self.conv1, self.conv2, self.conv3, self.conv4 = (nn.Conv2d(num_feat + k * grow, grow, 3, 1, 1) for k in range(4))
            self.conv5, self.lrelu = nn.Conv2d(num_feat + 4 * grow, num_feat, 3, 1, 1), nn.LeakyReLU(0.2, inplace=True)

        def forward(self, x):
            x1 = self.lrelu(self.conv1(x))
            x2 = self.lrelu(self.conv2(torch.cat((x, x1), 1)))
            x3 = self.lrelu(self.conv3(torch.cat((x, x1, x2), 1)))
            x4 = self.lrelu(self.conv4(torch.cat((x, x1, x2, x3), 1)))
            x5 = self.conv5(torch.cat((x, x1, x2, x3, x4), 1))
            return x5 * 0.2 + x

    class RRDB(nn.Module):
        def __init__(self):
            super().__init__()
            self.rdb1, self.rdb2, self.rdb3 = ResidualDenseBlock(), ResidualDenseBlock(), ResidualDenseBlock()

        def forward(self, x):
            return self.rdb3(self.rdb2(self.rdb1(x))) * 0.2 + x

    class RRDBNet(nn.Module):
        def __init__(self, num_feat=24, num_block=4):
            super().__init__()
            self.conv_first, self.body, self.conv_body = nn.Conv2d(3, num_feat, 3, 1, 1), nn.Sequential(*(RRDB() for _ in range(num_block))), nn.Conv2d(num_feat, num_feat, 3, 1, 1)
            self.conv_up1, self.conv_up2, self.conv_hr = (nn.Conv2d(num_feat, num_feat, 3, 1, 1) for _ in range(3))
            self.conv_last, self.lrelu = nn.Conv2d(num_feat, 3, 3, 1, 1), nn.LeakyReLU(0.2, inplace=True)

        def forward(self, x):
            feat = self.conv_first(x)
            feat = feat + self.conv_body(self.body(feat))
            feat = self.lrelu(self.conv_up1(F.interpolate(feat, scale_factor=2, mode="nearest")))
            feat = self.lrelu(self.conv_up2(F.interpolate(feat, scale_factor=2, mode="nearest")))
            return self.conv_last(self.lrelu(self.conv_hr(feat)))

    model = RRDBNet().to(device).eval()
    blocks(model.body)
    blocks([m for m in model.modules() if isinstance(m, ResidualDenseBlock)], "dense block")

    def tile_process(img, tile_size=32, pad=4, scale=4):
        _, channel, height, width = img.shape
        output = img.new_zeros(1, channel, height * scale, width * scale)
        for y in range(-(-height // tile_size)):
            for x in range(-(-width // tile_size)):
                x0, y0 = x * tile_size, y * tile_size
                x1, y1 = min(x0 + tile_size, width), min(y0 + tile_size, height)
                xp, yp = max(x0 - pad, 0), max(y0 - pad, 0)
                with execution("tile"):
                    tile = img[:, :, yp:min(y1 + pad, height), xp:min(x1 + pad, width)]
                    out = model(tile)
                    ox, oy = (x0 - xp) * scale, (y0 - yp) * scale
                    output[:, :, y0 * scale:y1 * scale, x0 * scale:x1 * scale] = out[:, :, oy:oy + (y1 - y0) * scale, ox:ox + (x1 - x0) * scale]
        return output

    def enhance(img):
        x = torch.from_numpy(img.transpose(2, 0, 1).astype(np.float32) / 255)[None].to(device)
        x = F.pad(x, (0, 2, 0, 2), "reflect")
        out = tile_process(x)[:, :, :-8, :-8]
        out = out.squeeze(0).float().cpu().clamp_(0, 1).numpy()
        return (out.transpose(1, 2, 0) * 255).round().astype(np.uint8)

    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in ((62, 80), (50, 62), (44, 56), (30, 30))]
    enhance(images[3])
    with record():
        for n, img in enumerate(images[:3]):
            with execution("picture"):
                out = enhance(img)
            print("Testing", n, out.shape)


# -------------------------------------------------------------------------------------------------- 6. prompt lookup
@program(executions=20, layers=6, kinds={"forward": 0, "request": 3}, ranges="record_function: 'request 0' and so on",
         note="3 summaries; each is a forward over the prompt, then forwards over the last token and up to 5 candidates found in the prompt (no candidates: one token): each forward is one execution; a request is acceptable. "
              "Layers: the 6 decoder layers.")
def prompt_lookup_summaries():
    "Assisted decoding with prompt_lookup_num_tokens: candidates by n-grams of the prompt, a check in one forward, a cropped cache."
    torch.set_grad_enabled(False)
    device = D()
    model = CausalLM(vocabulary=64).to(device).eval()
    blocks(model.layers)

    def find_candidates(ids, max_ngram=2, num_pred=5):
        n = ids.shape[1]
        for ngram in range(max_ngram, 0, -1):
            windows = ids.unfold(dimension=1, size=ngram, step=1)
            matches = (windows == ids[0, -ngram:]).all(dim=2)
            for idx in matches.nonzero(as_tuple=True)[1]:
                start, end = int(idx) + ngram, min(int(idx) + ngram + num_pred, n)
                if start < end:
                    return ids[0, start:end][None]
        return None

    def generate(ids, max_new=24):
        prompt, cache = ids.shape[1], DynamicCache(len(model.layers))
        while ids.shape[1] < prompt + max_new:
            with execution("forward"):
                found = find_candidates(ids) if cache.get_seq_length() else None
                candidate = ids if found is None else torch.cat([ids, found], 1)
                count = candidate.shape[1] - ids.shape[1]
                past = cache.get_seq_length()
                fed = candidate[:, past:]
                mask = torch.ones(1, candidate.shape[1], dtype=torch.long, device=ids.device)
                positions = torch.arange(past, candidate.shape[1], device=ids.device)[None]
                logits = model(fed, mask, positions, cache, count + 1)
                selected = logits.argmax(-1) % 9
                if count:
                    n_matches = ((~(candidate[:, -count:] == selected[:, :-1])).cumsum(-1) < 1).sum()
                    n_matches = int(n_matches)
                else:
                    n_matches = 0
                ids = torch.cat([ids, selected[:, :n_matches + 1]], 1)
                cache.crop(ids.shape[1] - 1)
        return ids

    rng = np.random.default_rng(0)
    prompts = [torch.from_numpy(rng.integers(0, 40, n))[None] for n in (90, 60, 120, 30)]
    generate(prompts[3].to(device), 4)
    with record():
        for n, prompt in enumerate(prompts[:3]):
            with record_function(f"request {n}"), execution("request"):
                out = generate(prompt.to(device))
                text = out[0].cpu().tolist()
            print(n, len(text) - prompt.shape[1], text[-8:])


# -------------------------------------------------------------------------------------------------- 7. latency benchmark
@program(executions=50, layers=6, kinds={"forward": 50, "call": 10}, ranges="none",
         note="2 batch sizes; for each 2 warm-up calls and 3 timed calls, each a forward over 32 tokens and 4 over one token, with a synchronisation after the first and after the last: "
              "2 x 5 x 5 = 50 forwards, each one execution; a call (10) is acceptable. Layers: the 6 decoder layers.")
def bench_llm_latency():
    "benchmark_latency.py: warm-up, time to first token and time per token for batch sizes 1 and 8."
    torch.set_grad_enabled(False)
    device = D()
    model = CausalLM().to(device).eval()
    blocks(model.layers)

    def run(batch_size, input_len, output_len):
        ids = torch.randint(0, 512, (batch_size, input_len), device=device)
        cache = DynamicCache(len(model.layers))
        sync()
        begin = time.perf_counter()
        first = None
        for step in range(output_len):
            with execution("forward"):
                past = cache.get_seq_length()
                mask = torch.ones(batch_size, past + ids.shape[1], dtype=torch.long, device=device)
                positions = torch.arange(past, past + ids.shape[1], device=device).expand(batch_size, -1)
                ids = model(ids, mask, positions, cache)[:, -1].argmax(-1, keepdim=True)
            if first is None:
                sync()
                first = time.perf_counter() - begin
        sync()
        return first, (time.perf_counter() - begin - first) / (output_len - 1)

    run(1, 32, 2)
    with record():
        for batch_size in (1, 8):
            for _ in range(2):
                with execution("call of generate"):
                    run(batch_size, 32, 5)
            rows = []
            for _ in range(3):
                with execution("call of generate"):
                    rows.append(run(batch_size, 32, 5))
            ttft, tpot = np.median(rows, 0)
            print(f"bs {batch_size}: TTFT {1000 * ttft:.2f} ms, TPOT {1000 * tpot:.2f} ms, {batch_size / tpot:.0f} tok/s")


# -------------------------------------------------------------------------------------------------- 8. embedding server
@program(executions=10, layers=6, kinds={"batch": 10}, ranges="record_function: 'embed bs=3 len=41' and so on (batch size and longest text)",
         note="64 requests come in by and by and are put into batches of up to 8 (whatever waits): each batch is one pass of the encoder, hence an execution. Layers: the 6 encoder layers.")
def embed_server():
    "A server of embeddings: asyncio, a queue, dynamic batches padded to the longest text, mean pooling."
    torch.set_grad_enabled(False)
    device = D()
    dim, heads = 64, 4

    class BertSelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))

        def forward(self, x, mask):
            b, t, _ = x.shape
            q, k, v = (w(x).view(b, t, heads, -1).permute(0, 2, 1, 3) for w in (self.query, self.key, self.value))
            scores = torch.matmul(q, k.transpose(-1, -2)) / (dim // heads) ** 0.5
            probs = F.softmax(scores + mask, dim=-1)
            return torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous().view(b, t, dim)

    class BertLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.dense, self.norm = BertSelfAttention(), nn.Linear(dim, dim), nn.LayerNorm(dim)
            self.intermediate, self.output, self.output_norm = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim), nn.LayerNorm(dim)

        def forward(self, x, mask):
            x = self.norm(self.dense(self.attention(x, mask)) + x)
            return self.output_norm(self.output(F.gelu(self.intermediate(x))) + x)

    class Bert(nn.Module):
        def __init__(self, depth=6):
            super().__init__()
            self.word, self.position, self.token_type, self.norm = nn.Embedding(500, dim), nn.Embedding(128, dim), nn.Embedding(2, dim), nn.LayerNorm(dim)
            self.layer = nn.ModuleList(BertLayer() for _ in range(depth))

        def forward(self, ids, attention_mask):
            mask = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
            x = self.word(ids) + self.token_type(torch.zeros_like(ids)) + self.position(torch.arange(ids.shape[1], device=ids.device)[None])
            x = self.norm(x)
            for layer in self.layer:
                x = layer(x, mask)
            return x

    model = Bert().to(device).eval()
    blocks(model.layer)

    def embed(texts):
        longest = max(map(len, texts))
        ids, mask = np.zeros((len(texts), longest), np.int64), np.zeros((len(texts), longest), np.int64)
        for r, text in enumerate(texts):
            ids[r, :len(text)], mask[r, :len(text)] = text, 1
        with record_function(f"embed bs={len(texts)} len={longest}"), execution("batch"):
            ids, mask = torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
            hidden = model(ids, mask)
            m = mask.unsqueeze(-1).expand(hidden.size()).float()
            pooled = torch.sum(hidden * m, 1) / torch.clamp(m.sum(1), min=1e-9)
            return F.normalize(pooled, p=2, dim=1).cpu().numpy()

    class Server:
        def __init__(self, max_batch=8, max_delay=0.003):
            self.queue, self.max_batch, self.max_delay, self.batches = deque(), max_batch, max_delay, 0
            self.wake = asyncio.Event()

        async def submit(self, text):
            future = asyncio.get_running_loop().create_future()
            self.queue.append((text, future))
            self.wake.set()
            return await future

        async def serve(self):
            while True:
                await self.wake.wait()
                await asyncio.sleep(self.max_delay)
                batch = [self.queue.popleft() for _ in range(min(self.max_batch, len(self.queue)))]
                if not self.queue:
                    self.wake.clear()
                self.batches += 1
                for (_, future), row in zip(batch, embed([t for t, _ in batch])):
                    future.set_result(row)

    rng = np.random.default_rng(0)
    texts = [rng.integers(1, 500, rng.integers(6, 60)) for _ in range(64)]

    async def client(server, text, after):
        await asyncio.sleep(after)
        return await server.submit(text)

    async def main():
        server = Server()
        task = asyncio.create_task(server.serve())
        out = await asyncio.gather(*(client(server, text, rng.exponential(0.004) * n) for n, text in enumerate(texts)))
        task.cancel()
        return np.stack(out), server.batches

    embed(texts[:3])
    with record():
        out, n = asyncio.run(main())
    print(out.shape, n, "batches")
