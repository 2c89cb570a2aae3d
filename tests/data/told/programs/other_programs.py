"""Programs that are not plain eager PyTorch: JAX, CuPy, Triton, numba, CUDA C++, graphs, torch.compile, threads, parts."""
import ctypes
import math
import os
import queue
import subprocess
import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for the GPU must not forbid it to the forked children

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import CUDA, D, PROGRAMS, blocks, execution, layer, program, record, sync
from torch.profiler import record_function


def s(n, by=8, least=1):
    """The size on the GPU, or a small one on a CPU (asked for in the child only)."""
    return n if CUDA() else max(least, n // by)


# ------------------------------------------------------------------------------------------------ JAX

def jax_here(command_buffers=True):
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0" + ("" if command_buffers else " --xla_gpu_enable_command_buffer=")
    import jax
    import jax.numpy as jnp
    return jax, jnp


def jax_layer_weights(jax, jnp, key, d, n):
    def one(k):
        a, b, c, e = jax.random.split(k, 4)
        w = lambda k, i, o: jax.random.normal(k, (i, o), jnp.bfloat16) * (0.5 / math.sqrt(i))
        return {"qkv": w(a, d, 3 * d), "out": w(b, d, d), "up": w(c, d, 4 * d), "down": w(e, 4 * d, d),
                "g1": jnp.ones((d,), jnp.bfloat16), "g2": jnp.ones((d,), jnp.bfloat16)}
    return [one(k) for k in jax.random.split(key, n)]


def jax_rms(jnp, x, g):
    x32 = x.astype(jnp.float32)
    return (x32 / jnp.sqrt((x32 * x32).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def jax_block(jax, jnp, p, x, heads):
    b, t, d = x.shape
    q, k, v = jnp.split(jax_rms(jnp, x, p["g1"]) @ p["qkv"], 3, -1)
    q, k, v = (y.reshape(b, t, heads, d // heads) for y in (q, k, v))
    a = jnp.einsum("bqhc,bkhc->bhqk", q, k).astype(jnp.float32) / math.sqrt(d // heads)
    a = jnp.where(jnp.tril(jnp.ones((t, t), bool)), a, -1e9)
    a = jax.nn.softmax(a, -1).astype(x.dtype)
    x = x + jnp.einsum("bhqk,bkhc->bqhc", a, v).reshape(b, t, d) @ p["out"]
    return x + jax.nn.gelu(jax_rms(jnp, x, p["g2"]) @ p["up"]) @ p["down"]


@program(executions=32, layers=8, kinds={"prefill": 1, "decode": 31}, ranges="record_function: prefill, decode",
         limits=["host", "launches", "synchronisation", "kernels"], where="the decode steps (31 of 32)",
         remedy="keep the loop on the device (lax.while_loop), or do not read the token after each step",
         note="JAX text generation: one prefill of 256 tokens, 31 decode steps with a KV cache, the token read by numpy each step")
def jax_generate():
    "An 8-layer GPT in JAX generates: jitted prefill, then a Python loop of a jitted decode step."
    jax, jnp = jax_here(command_buffers=False)
    d, heads, n, b, t0, new, vocab = s(1024), 16, 8, s(16), s(256), 31, s(32000)
    c = d // heads
    total = t0 + new + 1
    ks = jax.random.split(jax.random.PRNGKey(0), 3)
    layers = jax_layer_weights(jax, jnp, ks[0], d, n)
    emb = jax.random.normal(ks[1], (vocab, d), jnp.bfloat16) * 0.02

    @jax.jit
    def prefill(layers, emb, ids):
        x, cache = emb[ids], []
        for p in layers:
            q, k, v = jnp.split(jax_rms(jnp, x, p["g1"]) @ p["qkv"], 3, -1)
            pad = lambda y: jnp.pad(y.reshape(b, t0, heads, c), ((0, 0), (0, total - t0), (0, 0), (0, 0)))
            cache.append((pad(k), pad(v)))
            x = jax_block(jax, jnp, p, x, heads)
        return jnp.argmax((x[:, -1] @ emb.T).astype(jnp.float32), -1), cache

    @jax.jit
    def decode(layers, emb, ids, cache, pos):
        x, new_cache = emb[ids], []
        for p, (ck, cv) in zip(layers, cache):
            q, k, v = (y.reshape(b, heads, c) for y in jnp.split(jax_rms(jnp, x, p["g1"]) @ p["qkv"], 3, -1))
            ck = jax.lax.dynamic_update_slice(ck, k[:, None], (0, pos, 0, 0))
            cv = jax.lax.dynamic_update_slice(cv, v[:, None], (0, pos, 0, 0))
            a = jnp.einsum("bhc,bthc->bht", q, ck).astype(jnp.float32) / math.sqrt(c)
            a = jax.nn.softmax(jnp.where(jnp.arange(total) <= pos, a, -1e9), -1).astype(x.dtype)
            x = x + jnp.einsum("bht,bthc->bhc", a, cv).reshape(b, d) @ p["out"]
            x = x + jax.nn.gelu(jax_rms(jnp, x, p["g2"]) @ p["up"]) @ p["down"]
            new_cache.append((ck, cv))
        return jnp.argmax((x @ emb.T).astype(jnp.float32), -1), new_cache

    def generate(ids, new):
        with record_function("prefill"):
            tok, cache = prefill(layers, emb, ids)
            out = [np.asarray(tok)]
        for i in range(new):
            with record_function("decode"):
                tok, cache = decode(layers, emb, tok, cache, t0 + i)
                out.append(np.asarray(tok))
        return np.stack(out, 1)

    ids = jnp.asarray(np.random.default_rng(0).integers(0, vocab, (b, t0)))
    generate(ids, 3)
    with record():
        generate(ids, new)


@program(executions=20, layers=4, ranges="none", limits=["kernels"], where="forward and backward of the 4 blocks",
         remedy="faster attention (the scores are materialised), or fewer / larger kernels",
         note="JAX/optax training, 4 blocks, loss read every 5 steps, the batch copied from numpy each step")
def jax_train():
    "A small GPT trained in JAX with optax's AdamW, one jitted step."
    jax, jnp = jax_here()
    d, heads, n, b, t, vocab = s(1024), 16, 4, s(16), s(512), s(16000)
    ks = jax.random.split(jax.random.PRNGKey(1), 2)
    params = {"layers": jax_layer_weights(jax, jnp, ks[0], d, n), "emb": jax.random.normal(ks[1], (vocab, d), jnp.bfloat16) * 0.02}

    def loss_of(params, ids):
        x = params["emb"][ids[:, :-1]]
        for p in params["layers"]:
            x = jax_block(jax, jnp, p, x, heads)
        logits = (x @ params["emb"].T).astype(jnp.float32)
        gold = jnp.take_along_axis(logits, ids[:, 1:, None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, -1) - gold).mean()

    try:
        import optax
        tx = optax.adamw(1e-3)
        state = tx.init(params)

        def update(grads, state, params):
            new, state = tx.update(grads, state, params)
            return optax.apply_updates(params, new), state
    except Exception:
        state = jax.tree.map(lambda p: (jnp.zeros_like(p)), params)

        def update(grads, state, params):
            state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
            return jax.tree.map(lambda p, m: p - 1e-3 * m.astype(p.dtype), params, state), state

    @jax.jit
    def step(params, state, ids):
        loss, grads = jax.value_and_grad(loss_of)(params, ids)
        params, state = update(grads, state, params)
        return params, state, loss

    rng = np.random.default_rng(0)
    batches = [rng.integers(0, vocab, (b, t + 1)) for _ in range(23)]
    for ids in batches[:3]:
        params, state, loss = step(params, state, jnp.asarray(ids))
    loss.block_until_ready()
    with record():
        for i, ids in enumerate(batches[3:]):
            params, state, loss = step(params, state, jnp.asarray(ids))
            if i % 5 == 4:
                float(loss)
        jax.block_until_ready(params)


@program(executions=16, layers=12, ranges="none", limits=["kernels", "host", "launches"], where="the scanned block",
         remedy="unroll the scan a little, or a larger batch",
         note="JAX: lax.scan over 12 stacked layers (one while loop in XLA), 16 requests, each waited for")
def jax_scan():
    "A 12-layer encoder as lax.scan over stacked weights; requests one after another."
    jax, jnp = jax_here()
    d, heads, n, b, t = s(1024), 16, 12, s(8), s(384)
    layers = jax_layer_weights(jax, jnp, jax.random.PRNGKey(2), d, n)
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *layers)

    @jax.jit
    def encode(stacked, x):
        x, _ = jax.lax.scan(lambda x, p: (jax_block(jax, jnp, p, x, heads), None), x, stacked)
        return x.mean(1)

    rng = np.random.default_rng(0)
    xs = [np.asarray(jnp.asarray(rng.standard_normal((b, t, d), np.float32), jnp.bfloat16)) for _ in range(4)]
    for _ in range(3):
        encode(stacked, jnp.asarray(xs[0])).block_until_ready()
    with record():
        for i in range(16):
            np.asarray(encode(stacked, jnp.asarray(xs[i % 4])))


# ------------------------------------------------------------------------------------------------ CuPy

DENOISE = r"""
extern "C" __global__ void bilateral5(const float* in, float* out, int h, int w, float sr) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float c = in[y * w + x], acc = 0.f, wt = 0.f;
    for (int j = -2; j <= 2; j++) for (int i = -2; i <= 2; i++) {
        int xx = min(max(x + i, 0), w - 1), yy = min(max(y + j, 0), h - 1);
        float v = in[yy * w + xx], d = v - c, g = __expf(-(i * i + j * j) * 0.125f - d * d * sr);
        acc += g * v; wt += g;
    }
    out[y * w + x] = acc / wt;
}
"""


def frame_program(cp):
    """Returns f(frame uint8 on the host) -> mask on the device, mean."""
    bilateral = cp.RawKernel(DENOISE, "bilateral5")
    sobel = cp.ElementwiseKernel("float32 c, raw float32 a, int32 h, int32 w", "float32 m", """
        int x = i % w, y = i / w;
        if (x == 0 || y == 0 || x == w - 1 || y == h - 1) { m = 0; }
        else {
            float gx = a[i - w + 1] + 2 * a[i + 1] + a[i + w + 1] - a[i - w - 1] - 2 * a[i - 1] - a[i + w - 1];
            float gy = a[i + w - 1] + 2 * a[i + w] + a[i + w + 1] - a[i - w - 1] - 2 * a[i - w] - a[i - w + 1];
            m = sqrtf(gx * gx + gy * gy);
        }""", "sobel")
    lowpass = {}

    def one(frame):
        h, w = frame.shape
        if (h, w) not in lowpass:
            fy, fx = cp.fft.fftfreq(h)[:, None], cp.fft.rfftfreq(w)[None]
            lowpass[h, w] = cp.exp(-(fy * fy + fx * fx) * 60).astype(cp.float32)
        x = cp.asarray(frame).astype(cp.float32) / 255
        x = cp.fft.irfft2(cp.fft.rfft2(x) * lowpass[h, w], s=(h, w)).astype(cp.float32)
        y = cp.empty_like(x)
        bilateral(((w + 31) // 32, (h + 7) // 8), (32, 8), (x, y, np.int32(h), np.int32(w), np.float32(40)))
        edges = sobel(y, y, h, w)
        mask = (edges > edges.mean() * 2).astype(cp.uint8)
        return mask, y
    return one


@program(executions=60, layers=None, ranges="none", limits=["host", "copies", "kernels"], where="per frame: FFT low-pass, bilateral filter, Sobel, threshold",
         remedy="pinned memory and a second stream for upload and download; fuse the small element-wise kernels",
         note="CuPy video pipeline: 60 frames of 1080p, upload, FFT, own kernel, edges, mask back; every 15th frame a histogram too")
def cupy_frames():
    "Frames of a video through CuPy: FFT low-pass, a RawKernel, Sobel; the mask read back for each frame."
    import cupy as cp
    one = frame_program(cp)
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (1080, 1920), dtype=np.uint8) for _ in range(6)]
    for f in frames[:3]:
        mask, y = one(f)
        cp.asnumpy(mask)
        cp.histogram(y, bins=64, range=(0.0, 1.0))
    with record():
        for i in range(60):
            mask, y = one(frames[i % 6])
            cp.asnumpy(mask)
            if i % 15 == 14:
                cp.asnumpy(cp.histogram(y, bins=64, range=(0.0, 1.0))[0])


@program(executions=160, layers=None, ranges="none", limits=["synchronisation", "host", "waiting", "launches"],
         where="the iterations; each ends by reading the norm of the residual",
         remedy="check the norm only every k-th iteration; fuse the vector updates; a CUDA graph of an iteration",
         note="conjugate gradient on a 2-D Poisson matrix (sparse), 160 iterations, float(norm) in each")
def cupy_cg():
    "A CG solver in CuPy, the textbook loop."
    import cupy as cp
    n = 1024
    try:
        import cupyx.scipy.sparse as sp
        main = cp.full(n * n, 4.0, cp.float32)
        side = cp.full(n * n, -1.0, cp.float32)
        side1 = side.copy()
        side1[n - 1::n] = 0
        side2 = side.copy()
        side2[::n] = 0
        A = sp.diags([main, side1[:-1], side2[1:], side[:-n], side[:-n]], [0, 1, -1, n, -n], format="csr", dtype=cp.float32)
        mul = lambda p: A @ p
        mul(main)
    except Exception as error:
        print("cupy_cg: stencil instead of csr,", repr(error)[:100])

        def mul(p):
            g = cp.pad(p.reshape(n, n), 1)
            return (4 * g[1:-1, 1:-1] - g[:-2, 1:-1] - g[2:, 1:-1] - g[1:-1, :-2] - g[1:-1, 2:]).ravel()

    def solve(b, iterations):
        x = cp.zeros_like(b)
        r = b - mul(x)
        p = r.copy()
        rs = r @ r
        for k in range(iterations):
            Ap = mul(p)
            alpha = rs / (p @ Ap)
            x += alpha * p
            r -= alpha * Ap
            new = r @ r
            if float(cp.sqrt(new)) < 1e-12:
                break
            p = r + (new / rs) * p
            rs = new
        return x

    rng = np.random.default_rng(0)
    b = cp.asarray(rng.standard_normal(n * n).astype(np.float32))
    solve(b, 5)
    with record():
        solve(b, 160)


# ------------------------------------------------------------------------------------------------ Triton and numba

TRITON = '''
import torch, triton
import triton.language as tl

@triton.jit
def layernorm_kernel(X, Y, G, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    ok = cols < n
    x = tl.load(X + row * n + cols, mask=ok, other=0.).to(tl.float32)
    mean = tl.sum(x, 0) / n
    d = tl.where(ok, x - mean, 0.)
    var = tl.sum(d * d, 0) / n
    y = d / tl.sqrt(var + eps) * tl.load(G + cols, mask=ok, other=0.).to(tl.float32)
    tl.store(Y + row * n + cols, y.to(Y.dtype.element_ty), mask=ok)

@triton.jit
def softmax_kernel(X, n, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    ok = cols < n
    x = tl.load(X + row * n + cols, mask=ok, other=-float("inf")).to(tl.float32) * scale
    e = tl.exp(x - tl.max(x, 0))
    tl.store(X + row * n + cols, (e / tl.sum(e, 0)).to(X.dtype.element_ty), mask=ok)

@triton.jit
def linear_kernel(A, B, C, R, M, N, K, ACT: tl.constexpr, RES: tl.constexpr,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    a = A + rm[:, None] * K + rk[None, :]
    b = B + rk[:, None] * N + rn[None, :]
    for k in range(0, K, BK):
        acc += tl.dot(tl.load(a), tl.load(b))
        a += BK
        b += BK * N
    if ACT:
        acc = acc * tl.sigmoid(1.702 * acc)
    off = rm[:, None] * N + rn[None, :]
    if RES:
        acc += tl.load(R + off).to(tl.float32)
    tl.store(C + off, acc.to(C.dtype.element_ty))

def layernorm(x, g):
    y = torch.empty_like(x)
    n = x.shape[-1]
    layernorm_kernel[(x.numel() // n,)](x, y, g, n, 1e-5, BLOCK=triton.next_power_of_2(n), num_warps=4)
    return y

def softmax_(x, scale):
    n = x.shape[-1]
    softmax_kernel[(x.numel() // n,)](x, n, scale, BLOCK=triton.next_power_of_2(n), num_warps=4)
    return x

def linear(x, w, act=False, res=None):
    M, K = x.shape
    N = w.shape[1]
    out = torch.empty(M, N, device=x.device, dtype=x.dtype)
    BM, BN, BK = BLOCKS
    linear_kernel[(M // BM, N // BN)](x, w, out, res if res is not None else out, M, N, K, ACT=act, RES=res is not None,
                                      BM=BM, BN=BN, BK=BK, num_warps=8, num_stages=3)
    return out
'''


def triton_here():
    """Triton wants the source of its kernels in a file."""
    import importlib.util
    if not CUDA():
        os.environ["TRITON_INTERPRET"] = "1"
    path = Path(tempfile.mkdtemp()) / "research_kernels.py"
    path.write_text(TRITON)
    spec = importlib.util.spec_from_file_location("research_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.BLOCKS = (128, 128, 64) if CUDA() else (16, 16, 16)
    return module


@program(executions=36, layers=6, ranges="record_function: forward", limits=["kernels"], where="linear_kernel (four per layer)",
         remedy="a faster matmul (cuBLAS, or autotune the blocks); flash attention instead of bmm, softmax, bmm",
         note="six blocks of own Triton kernels (layernorm, linear with activation and residual, softmax), bmm by PyTorch")
def triton_blocks():
    "A research transformer of hand-written Triton kernels, 36 forward passes."
    k = triton_here()
    d, heads, n, b, t = s(1536, 24), s(12, 3), 6, s(8), s(512, 32)
    dt = torch.bfloat16 if CUDA() else torch.float32
    w = lambda i, o: torch.randn(i, o, device=D(), dtype=dt) * (0.5 / math.sqrt(i))
    layers = [{"g1": torch.ones(d, device=D(), dtype=dt), "g2": torch.ones(d, device=D(), dtype=dt), "qkv": w(d, 3 * d),
               "out": w(d, d), "up": w(d, 4 * d), "down": w(4 * d, d)} for _ in range(n)]
    steps = 36 if CUDA() else 2

    def forward(x):
        for p in layers:
            qkv = k.linear(k.layernorm(x, p["g1"]), p["qkv"]).view(b, t, 3, heads, d // heads)
            q, key, v = (y.transpose(1, 2).reshape(b * heads, t, d // heads) for y in qkv.unbind(2))
            a = k.softmax_(torch.bmm(q, key.transpose(1, 2)).contiguous(), 1 / math.sqrt(d // heads))
            y = torch.bmm(a, v).view(b, heads, t, d // heads).transpose(1, 2).reshape(b * t, d)
            x = k.linear(y, p["out"], res=x)
            x = k.linear(k.linear(k.layernorm(x, p["g2"]), p["up"], act=True), p["down"], res=x)
        return x

    x = torch.randn(b * t, d, device=D(), dtype=dt)
    for _ in range(2 if CUDA() else 1):
        forward(x)
    with record(shapes=True):
        for _ in range(steps):
            with record_function("forward"):
                y = forward(x)
        sync()
    assert torch.isfinite(y.float()).all()


FDTD = r"""
extern "C" __global__ void update_h(float* hx, float* hy, const float* ez, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n - 1 && j < n - 1) { hx[i*n+j] -= 0.5f * (ez[i*n+j+1] - ez[i*n+j]); hy[i*n+j] += 0.5f * (ez[(i+1)*n+j] - ez[i*n+j]); }
}
extern "C" __global__ void update_e(const float* hx, const float* hy, float* ez, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && j > 0 && i < n && j < n) ez[i*n+j] += 0.5f * (hy[i*n+j] - hy[(i-1)*n+j] - hx[i*n+j] + hx[i*n+j-1]);
}
extern "C" __global__ void add_source(float* ez, int n, float value) { ez[(n / 2) * n + n / 2] += value; }
"""


@program(executions=400, layers=None, ranges="none", limits=["host", "launches"], where="the time steps (three kernels each)",
         remedy="launch less: a CUDA graph of some time steps, or several steps in one kernel",
         note="FDTD simulation with numba.cuda: 400 time steps of three kernels; a probe value read every 20 steps")
def numba_fdtd():
    "A 2-D FDTD wave simulation in numba.cuda (CuPy RawKernels where numba does not work)."
    global cuda
    n, steps = s(1024, 16), s(400, 20)
    block = (32, 8) if CUDA() else (8, 8)
    grid = (n // block[0], n // block[1])
    try:
        if not CUDA():
            os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
        from numba import cuda

        @cuda.jit
        def update_h(hx, hy, ez):
            j, i = cuda.grid(2)
            if i < ez.shape[0] - 1 and j < ez.shape[1] - 1:
                hx[i, j] -= np.float32(0.5) * (ez[i, j + 1] - ez[i, j])
                hy[i, j] += np.float32(0.5) * (ez[i + 1, j] - ez[i, j])

        @cuda.jit
        def update_e(hx, hy, ez):
            j, i = cuda.grid(2)
            if 0 < i < ez.shape[0] and 0 < j < ez.shape[1]:
                ez[i, j] += np.float32(0.5) * (hy[i, j] - hy[i - 1, j] - hx[i, j] + hx[i, j - 1])

        @cuda.jit
        def add_source(ez, value):
            ez[ez.shape[0] // 2, ez.shape[1] // 2] += value

        hx, hy, ez = (cuda.to_device(np.zeros((n, n), np.float32)) for _ in range(3))

        def step(k):
            update_h[grid, block](hx, hy, ez)
            update_e[grid, block](hx, hy, ez)
            add_source[1, 1](ez, np.float32(math.sin(0.1 * k)))

        probe = lambda: ez[n // 4, n // 4:n // 4 + 8].copy_to_host()
        step(0), probe()
    except Exception as error:
        print("numba_fdtd: CuPy instead,", repr(error)[:200])
        import cupy as cp
        module = cp.RawModule(code=FDTD)
        h, e, source = (module.get_function(name) for name in ("update_h", "update_e", "add_source"))
        hx, hy, ez = (cp.zeros((n, n), cp.float32) for _ in range(3))

        def step(k):
            h(grid, block, (hx, hy, ez, np.int32(n)))
            e(grid, block, (hx, hy, ez, np.int32(n)))
            source((1,), (1,), (ez, np.int32(n), np.float32(math.sin(0.1 * k))))

        probe = lambda: cp.asnumpy(ez[n // 4, n // 4:n // 4 + 8])
    for k in range(5):
        step(k)
    probe()
    with record():
        seen = []
        for k in range(steps):
            step(k)
            if k % 20 == 19:
                seen.append(probe())


# ------------------------------------------------------------------------------------------------ CUDA C++

PIPELINE = r"""
#include <cuda_runtime.h>
#include <cstdlib>
__global__ void unpack_counts(const unsigned short* in, float* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i] * (1.f / 65535.f);
}
__global__ void smooth_line(const float* in, float* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int a = i > 0 ? i - 1 : 0, b = i < n - 1 ? i + 1 : n - 1;
        out[i] = 0.25f * in[a] + 0.5f * in[i] + 0.25f * in[b];
    }
}
__global__ void pack_counts(const float* in, unsigned short* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = (unsigned short)(in[i] * 65535.f);
}
#define DEPTH 3
static unsigned short *hin, *hout, *din[DEPTH], *dout[DEPTH];
static float *fa[DEPTH], *fb[DEPTH];
static cudaStream_t up, work, down;
static cudaEvent_t copied[DEPTH], done[DEPTH], back[DEPTH];
static int N;
extern "C" int prepare(int n) {
    N = n;
    cudaHostAlloc((void**)&hin, n * 2ul * 4, 0); cudaHostAlloc((void**)&hout, n * 2ul * 4, 0);
    for (size_t i = 0; i < n * 4ul; i++) hin[i] = (unsigned short)(i * 2654435761u >> 16);
    for (int k = 0; k < DEPTH; k++) {
        cudaMalloc((void**)&din[k], n * 2ul); cudaMalloc((void**)&dout[k], n * 2ul);
        cudaMalloc((void**)&fa[k], n * 4ul); cudaMalloc((void**)&fb[k], n * 4ul);
        cudaEventCreateWithFlags(&copied[k], cudaEventDisableTiming);
        cudaEventCreateWithFlags(&done[k], cudaEventDisableTiming);
        cudaEventCreateWithFlags(&back[k], cudaEventDisableTiming);
    }
    cudaStreamCreateWithFlags(&up, cudaStreamNonBlocking); cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&down, cudaStreamNonBlocking);
    return (int)cudaGetLastError();
}
extern "C" int process(int chunks, int passes) {
    for (int c = 0; c < chunks; c++) {
        int k = c % DEPTH;
        if (c >= DEPTH) cudaStreamWaitEvent(up, done[k], 0);
        cudaMemcpyAsync(din[k], hin + (size_t)(c % 4) * N, N * 2ul, cudaMemcpyHostToDevice, up);
        cudaEventRecord(copied[k], up);
        cudaStreamWaitEvent(work, copied[k], 0);
        if (c >= DEPTH) cudaStreamWaitEvent(work, back[k], 0);
        unpack_counts<<<1056, 256, 0, work>>>(din[k], fa[k], N);
        for (int p = 0; p < passes; p++) {
            smooth_line<<<1056, 256, 0, work>>>(fa[k], fb[k], N);
            float* t = fa[k]; fa[k] = fb[k]; fb[k] = t;
        }
        pack_counts<<<1056, 256, 0, work>>>(fa[k], dout[k], N);
        cudaEventRecord(done[k], work);
        cudaStreamWaitEvent(down, done[k], 0);
        cudaMemcpyAsync(hout + (size_t)(c % 4) * N, dout[k], N * 2ul, cudaMemcpyDeviceToHost, down);
        cudaEventRecord(back[k], down);
    }
    cudaDeviceSynchronize();
    return (int)cudaGetLastError();
}
"""


@program(executions=24, layers=None, ranges="none", limits=["copies"], where="copies in and out of the chunks (they overlap; the link to the GPU is full)",
         remedy="move less data (compress, keep it on the GPU); the kernels are already hidden behind the copies",
         note="CUDA C++: a pipeline of three streams over 24 chunks of 32 MB, ten smoothing passes each; called by ctypes")
def cpp_pipeline():
    "A C++ program part: copy in, compute, copy out on three streams, triple-buffered."
    here = Path(tempfile.mkdtemp())
    (here / "pipeline.cu").write_text(PIPELINE)
    nvcc = next((p for p in ("/usr/local/cuda/bin/nvcc", "/usr/local/bin/nvcc", "/opt/cuda/bin/nvcc") if os.path.exists(p)), "nvcc")
    subprocess.run([nvcc, "-O2", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC", "-o", str(here / "libpipeline.so"), str(here / "pipeline.cu")],
                   check=True, timeout=90)
    lib = ctypes.CDLL(str(here / "libpipeline.so"))
    if not CUDA():
        return
    torch.zeros(1, device=D())
    for code in (lib.prepare(16 * 2**20), lib.process(6, 10)):
        if code:
            raise RuntimeError(f"CUDA error {code}")
    with record():
        lib.process(24, 10)


# ------------------------------------------------------------------------------------------------ graphs

class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2, self.att = nn.LayerNorm(d), nn.LayerNorm(d), Attention(d, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        x = x + self.att(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Encoder(nn.Module):
    def __init__(self, d, heads, n, classes=100, block=Block):
        super().__init__()
        self.blocks = nn.ModuleList(block(d, heads) for _ in range(n))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x).mean(1))


def half():
    return torch.bfloat16 if CUDA() else torch.float32


class Captured:
    """A function with static input and output, as a CUDA graph (the plain function on a CPU)."""

    def __init__(self, function, *inputs, pool=None):
        self.function, self.inputs, self.graph = function, inputs, None
        if not CUDA():
            self.output = function(*inputs)
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                function(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.output = function(*inputs)

    def replay(self):
        if self.graph is None:
            self.output = self.function(*self.inputs)
        else:
            self.graph.replay()
        return self.output


@program(executions=30, layers=6, ranges="record_function: request", limits=["kernels"], where="the six encoder layers in the graph",
         remedy="a smaller or quantised model, a larger batch; the launches are already one graph",
         note="inference by a CUDA graph: 30 requests, input copied into the static buffer, class read back for each")
def graph_requests():
    "A 6-layer encoder captured once and replayed for 30 requests."
    d, b, t = s(1024), 16, s(256)
    net = Encoder(d, 16, 6).to(D(), half()).eval()
    blocks(net.blocks)
    requests = [torch.randn(b, t, d, dtype=half()) for _ in range(5)]
    if CUDA():
        requests = [r.pin_memory() for r in requests]
    with torch.no_grad():
        x = torch.empty(b, t, d, device=D(), dtype=half()).normal_()
        g = Captured(net, x)
        for _ in range(3):
            g.replay()
        with record(shapes=True, stack=True, modules=True):
            for i in range(30):
                with record_function("request"), execution():
                    x.copy_(requests[i % 5], non_blocking=True)
                    g.replay().argmax(-1).tolist()


@program(executions=10, layers=8, ranges="none", limits=["kernels", "host", "launches"], where="the graph parts (projections and MLP)",
         remedy="larger graphs: also the attention for fixed lengths",
         note="piecewise CUDA graphs, as a serving engine has them: per layer one graph, attention eager, one graph; 8 layers, 10 steps")
def graph_pieces():
    "Piecewise graphs: between two graphs the attention is called eagerly with the lengths of the step."
    d, heads, n, b, t = s(1024), 16, 8, s(16), s(512)
    blocks = [Block(d, heads).to(D(), half()).eval() for _ in range(n)]
    with torch.no_grad():
        x = torch.randn(b, t, d, device=D(), dtype=half())
        h = torch.randn_like(x)
        a = torch.randn_like(x)
        pool = torch.cuda.graph_pool_handle() if CUDA() else None
        pieces = []
        for block in blocks:
            before = Captured(lambda h, block=block: block.att.qkv(block.ln1(h)), h, pool=pool)

            def after_(h, a, block=block):
                y = h + block.att.out(a)
                h.copy_(y + block.mlp(block.ln2(y)))
                return h
            pieces.append((before, Captured(after_, h, a, pool=pool)))

        def step(x, length):
            h.copy_(x)
            for before, after in pieces:
                with layer():
                    q, k, v = before.replay().view(b, t, 3, heads, d // heads).permute(2, 0, 3, 1, 4).unbind(0)
                    a.copy_(F.scaled_dot_product_attention(q, k[:, :, :length], v[:, :, :length]).transpose(1, 2).reshape(b, t, d))
                    after.replay()
            return h.float().mean()

        for _ in range(2):
            step(x, t)
        with record(shapes=True):
            for i in range(10):
                with execution():
                    float(step(x, t - s(16) * i))


# ------------------------------------------------------------------------------------------------ torch.compile

def end_workers():
    """The compile workers must not outlive the program (they hold its standard output)."""
    try:
        from torch._inductor.async_compile import shutdown_compile_workers
        shutdown_compile_workers()
    except Exception as error:
        print("compile workers:", repr(error)[:100])


@program(executions=18, layers=4, ranges="record_function: train_step", limits=["kernels", "host"], where="forward and backward of the compiled model",
         remedy="larger batch or better matmuls; the element-wise work is fused already",
         note="torch.compile of the model of a training loop, 4 layers, fused AdamW, loss logged every 6 steps")
def compiled_training():
    "A compiled 4-layer transformer trained for 18 steps."
    d, b, t = s(768), 32, s(256)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "8")
    net = Encoder(d, 12, 4).to(D())
    run = torch.compile(net, backend="inductor" if CUDA() else "aot_eager")
    try:
        opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=CUDA())
    except Exception:
        opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    xs = [torch.randn(b, t, d, device=D()) for _ in range(4)]
    ys = [torch.randint(0, 100, (b,), device=D()) for _ in range(4)]

    def step(i):
        with torch.autocast(D(), dtype=torch.bfloat16):
            loss = F.cross_entropy(run(xs[i % 4]), ys[i % 4])
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

    for i in range(3):
        step(i)
    with record():
        for i in range(18):
            with record_function("train_step"):
                loss = step(i)
            if i % 6 == 5:
                loss.item()
    end_workers()


class Guarded(Block):
    """Somebody's protection against overflow: a condition on values, in the middle of the layer."""

    def forward(self, x):
        y = x + self.att(self.ln1(x))
        if y.abs().max() > 1e4:
            y = y.clamp(-1e4, 1e4)
        return y + self.mlp(self.ln2(y))


@program(executions=20, layers=6, ranges="none", limits=["synchronisation", "host", "waiting", "launches"], where="the condition on values in each layer",
         remedy="take the condition out (torch.where / clamp always): it breaks the graph and waits for the GPU in each layer",
         note="torch.compile with a graph break (data-dependent if) in each of 6 layers; 20 inference batches, the last one smaller")
def compiled_breaks():
    "Compiled inference whose layers each hold a data-dependent branch."
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "8")
    d, b, t = s(768), 8, s(128)
    net = Encoder(d, 12, 6, block=Guarded).to(D(), half()).eval()
    run = torch.compile(net, backend="inductor" if CUDA() else "eager", dynamic=False)
    batches = [torch.randn(b, t, d, device=D(), dtype=half()) for _ in range(20)]
    with torch.no_grad():
        for x in batches[:3]:
            run(x)
        with record():
            for x in batches:
                with execution():
                    run(x).argmax(-1).cpu()
    end_workers()


# ------------------------------------------------------------------------------------------------ threads, streams, host

@program(executions=28, layers=4, ranges="none", limits=["host", "waiting"], where="waiting for the thread that prepares batches",
         remedy="more preparing threads or processes, cheaper preparation; the GPU is idle most of the time",
         note="a server-like loop: one thread prepares padded batches by numpy (about 10 ms each), the main thread runs the model")
def threaded_server():
    "Two Python threads: one makes batches, the other runs a 4-layer encoder."
    d, n = s(1024), 28
    net = Encoder(d, 16, 4).to(D(), half()).eval()
    blocks(net.blocks)
    emb = nn.Embedding(5000, d).to(D(), half())
    rng = np.random.default_rng(0)

    def prepare(k):
        texts = [rng.integers(0, 5000, int(rng.integers(s(40), s(256) + 1))) for _ in range(16)]
        for _ in range(s(30)):
            np.sort(rng.standard_normal(8000))  # "tokenising"
        longest = -(-max(map(len, texts)) // 32) * 32
        ids = np.zeros((16, longest), np.int64)
        for row, text in zip(ids, texts):
            row[:len(text)] = text
        ids = torch.from_numpy(ids)
        return ids.pin_memory() if CUDA() else ids

    def serve(n):
        ready = queue.Queue(maxsize=4)

        def producer():
            for k in range(n):
                ready.put(prepare(k))
            ready.put(None)
        thread = threading.Thread(target=producer)
        thread.start()
        answers = []
        while (ids := ready.get()) is not None:
            with execution():
                answers += net(emb(ids.to(D(), non_blocking=True))).argmax(-1).tolist()
        thread.join()
        return answers

    with torch.no_grad():
        serve(6)
        with record(shapes=True):
            serve(n)


@program(executions=20, layers=None, ranges="none", limits=["kernels", "host"], where="the larger of the two models (8 layers)",
         remedy="little: the two models overlap only in part, since each fills the GPU",
         note="two encoders (8 and 4 layers) on two streams, 20 rounds; each round joins them; 40 executions (of two models) is right as well")
def two_models():
    "An ensemble: two models of different sizes on two streams, results averaged on the main stream."
    b, t = s(32), s(256)
    big, small = Encoder(s(1024), 16, 8).to(D(), half()).eval(), Encoder(s(512), 8, 4).to(D(), half()).eval()
    blocks([*big.blocks, *small.blocks])
    xs, ys = torch.randn(b, t, s(1024), device=D(), dtype=half()), torch.randn(b, t, s(512), device=D(), dtype=half())
    streams = [torch.cuda.Stream(), torch.cuda.Stream()] if CUDA() else [None, None]

    def round_():
        outs = []
        for stream, net, x in zip(streams, (big, small), (xs, ys)):
            if stream:
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream) if stream else nullcontext(), execution("model"):
                outs.append(net(x))
        for stream in streams:
            if stream:
                torch.cuda.current_stream().wait_stream(stream)
        return ((outs[0].softmax(-1) + outs[1].softmax(-1)) / 2).argmax(-1)

    with torch.no_grad():
        for _ in range(3):
            round_()
        with record():
            for i in range(20):
                with execution():
                    answer = round_()
                    if i % 4 == 3:
                        answer.cpu()


@program(executions=25, layers=6, ranges="record_function: encode, beam search", limits=["host", "waiting"], where="the beam search by numpy between the encodings",
         remedy="decode in another process or on the GPU, so that the next utterance is encoded meanwhile",
         note="speech recognition: 25 utterances of different lengths are encoded on the GPU, each then decoded by numpy on the host")
def numpy_between():
    "Encoder on the GPU, beam search in numpy, one utterance after another."
    d, vocab = s(768), 100
    net = Encoder(d, 12, 6).to(D(), half()).eval()
    blocks(net.blocks)
    front = nn.Conv1d(80, d, 3, stride=2, padding=1).to(D(), half())
    out = nn.Linear(d, vocab).to(D(), half())
    rng = np.random.default_rng(0)
    lengths = rng.integers(s(400), s(1200), 25)

    def encode(feats):
        x = front(torch.from_numpy(feats).to(D(), half())).transpose(1, 2)
        for block in net.blocks:
            x = block(x)
        return out(net.ln(x)).float().log_softmax(-1)[0].cpu().numpy()

    def search(logp, beam=8):
        scores, paths = np.zeros(1), [()]
        for row in logp:
            table = scores[:, None] + row[None]
            best = np.argpartition(-table.ravel(), beam)[:beam]
            scores = table.ravel()[best]
            paths = [paths[k // vocab] + (k % vocab,) for k in best.tolist()]
        return paths[0]

    with torch.no_grad():
        for t in lengths[:2]:
            search(encode(rng.standard_normal((1, 80, t), np.float32)))
        with record():
            for t in lengths:
                feats = rng.standard_normal((1, 80, t), np.float32)
                with record_function("encode"), execution():
                    logp = encode(feats)
                with record_function("beam search"):
                    search(logp)


# ------------------------------------------------------------------------------------------------ several programs in one process

@program(parts=[{"executions": 40, "layers": None}, {"executions": 10, "layers": 4}, {"executions": 20, "layers": 4}],
         executions=None, layers=None, ranges="none", limits=["kernels", "host"], where="the ten training steps (or the preprocessing, by its host time)",
         remedy="look at each part alone", note="CuPy preprocesses 40 frames, then 10 training steps of a 4-layer model on them, then 20 evaluations")
def parts_frames_train_evaluate():
    "Preprocessing by CuPy, then training, then evaluation by PyTorch, in one process."
    d, b = s(1024, 16), s(32, 4)
    patch = nn.Linear(256, d).to(D())
    net = Encoder(d, 16, 4).to(D())
    blocks(net.blocks)
    opt = torch.optim.AdamW([*patch.parameters(), *net.parameters()], lr=1e-4, fused=CUDA() or None)
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (480, 640), dtype=np.uint8) for _ in range(4)]
    if CUDA():
        import cupy as cp
        one = frame_program(cp)
        prepare = lambda frame: torch.as_tensor(one(frame)[1], device="cuda")[:256, :256].reshape(256, 256).clone()
    else:
        prepare = lambda frame: torch.from_numpy(frame[:256, :256].astype(np.float32))

    def program_(n_frames, n_train, n_eval):
        data = torch.stack([prepare(frames[i % 4]) for i in range(n_frames)])
        for i in range(n_train):
            with execution():
                x = data[torch.randint(0, n_frames, (b,), device=data.device)]
                with torch.autocast(D(), dtype=torch.bfloat16):
                    loss = F.cross_entropy(net(patch(x)), torch.randint(0, 100, (b,), device=data.device))
                opt.zero_grad()
                loss.backward()
                opt.step()
        net.eval()
        with torch.no_grad(), torch.autocast(D(), dtype=torch.bfloat16):
            for i in range(n_eval):
                with execution():
                    net(patch(data[torch.randint(0, n_frames, (b,), device=data.device)])).argmax(-1).cpu()
        net.train()

    program_(3, 2, 2)
    with record():
        program_(40, 10, 20)


@program(parts=[{"executions": 16, "layers": 6}, {"executions": 25, "layers": None}, {"executions": 60, "layers": None}],
         executions=None, layers=None, ranges="record_function: features, kmeans iteration, probe step", limits=["host", "kernels", "launches"],
         where="no part stands out by much", remedy="look at each part alone",
         note="JAX features of 16 batches (6 layers), then 25 iterations of k-means in PyTorch, then 60 steps of a linear probe")
def parts_features_kmeans_probe():
    "Features by a JAX encoder, clustering by PyTorch, then a linear probe."
    jax, jnp = jax_here(command_buffers=False)
    d, heads, b, t = s(768), 12, s(32), s(128)
    layers = jax_layer_weights(jax, jnp, jax.random.PRNGKey(3), d, 6)

    @jax.jit
    def features(layers, x):
        for p in layers:
            x = jax_block(jax, jnp, p, x, heads)
        return x.mean(1).astype(jnp.float32)

    rng = np.random.default_rng(0)
    xs = [rng.standard_normal((b, t, d), np.float32) for _ in range(4)]
    probe = nn.Linear(d, 10).to(D())
    opt = torch.optim.SGD(probe.parameters(), lr=0.1, momentum=0.9)

    def program_(n_batches, n_kmeans, n_probe):
        rows = []
        for i in range(n_batches):
            with record_function("features"):
                rows.append(np.asarray(features(layers, jnp.asarray(xs[i % 4], jnp.bfloat16))))
        data = torch.from_numpy(np.concatenate(rows)).to(D()).repeat(s(64), 1)
        centres = data[torch.randperm(len(data), device=data.device)[:32]].clone()
        for i in range(n_kmeans):
            with record_function("kmeans iteration"):
                which = torch.cdist(data, centres).argmin(1)
                sums = torch.zeros_like(centres).index_add_(0, which, data)
                counts = torch.bincount(which, minlength=32).clamp(min=1)
                centres = sums / counts[:, None]
        which = which % 10
        for i in range(n_probe):
            with record_function("probe step"):
                at = torch.randint(0, len(data), (1024,), device=data.device)
                loss = F.cross_entropy(probe(data[at]), which[at])
                opt.zero_grad()
                loss.backward()
                opt.step()
        return loss.item()

    program_(2, 2, 2)
    with record():
        program_(16, 25, 60)


class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(8, c), nn.GroupNorm(8, c)
        self.c1, self.c2, self.time = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1), nn.Linear(64, c)

    def forward(self, x, emb):
        h = self.c1(F.silu(self.n1(x))) + self.time(emb)[:, :, None, None]
        return x + self.c2(F.silu(self.n2(h)))


class Denoiser(nn.Module):
    def __init__(self, c, n):
        super().__init__()
        self.into, self.outof = nn.Conv2d(4, c, 3, padding=1), nn.Conv2d(c, 4, 3, padding=1)
        self.blocks = nn.ModuleList(Res(c) for _ in range(n))

    def forward(self, x, step):
        emb = torch.cat([torch.sin(step[:, None] * torch.arange(32, device=x.device) / 10), torch.cos(step[:, None] * torch.arange(32, device=x.device) / 10)], 1)
        h = self.into(x)
        for block in self.blocks:
            h = block(h, emb.to(h.dtype))
        return self.outof(h)


@program(parts=[{"executions": 8, "layers": None}, {"executions": 8, "layers": 6}, {"executions": 20, "layers": 6}],
         executions=None, layers=None, ranges="none", limits=["kernels", "host"], where="the eight training steps",
         remedy="channels_last and torch.compile for the residual blocks",
         note="latent diffusion: 8 batches are encoded to latents, 8 training steps of the denoiser (6 residual blocks), 20 sampling steps; then one decode")
def parts_diffusion():
    "Encode images, train a denoiser on the latents, sample from it; all in one script."
    c, b, size = s(256, 8, 16), 16, s(32)
    dev = D()
    enc = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.SiLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.SiLU(), nn.Conv2d(128, 128, 4, 2, 1), nn.SiLU(), nn.Conv2d(128, 4, 1)).to(dev)
    dec = nn.Sequential(nn.Conv2d(4, 128, 3, 1, 1), nn.SiLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.SiLU(),
                        nn.ConvTranspose2d(64, 3, 4, 2, 1)).to(dev)
    net = Denoiser(c, 6).to(dev)
    blocks(net.blocks)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    if CUDA():
        enc, dec, net = enc.bfloat16(), dec.bfloat16(), net.bfloat16()
    dt = half()
    images = torch.rand(b, 3, size * 8, size * 8)

    def script(n_enc, n_train, n_sample):
        with torch.no_grad():
            latents = []
            for _ in range(n_enc):
                with execution(), execution("and decoding"):
                    latents.append(enc(images.to(dev, dt)))
            latents = torch.cat(latents)
        for _ in range(n_train):
            with execution(), execution("and decoding"):
                x = latents[torch.randint(0, len(latents), (b,), device=dev)]
                step = torch.rand(b, device=dev)
                noise, mix = torch.randn_like(x), step.to(dt)[:, None, None, None]
                got = net(x * (1 - mix) + noise * mix, step)
                loss = F.mse_loss(got.float(), (noise - x).float())
                opt.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
        print("loss", round(loss.item(), 3))
        with torch.no_grad():
            x = torch.randn(b, 4, size, size, device=dev, dtype=dt)
            for k in range(n_sample):
                with execution(), execution("and decoding"):
                    step = torch.full((b,), 1 - k / n_sample, device=dev)
                    x = x - net(x, step) / n_sample
            with execution("and decoding"):
                return dec(x).clamp(0, 1).float().cpu()

    script(1, 2, 2)
    with record():
        script(8, 8, 20)


# The slow ones last: where the time for all ends, they are the ones to lose.
for _slow in ("jax_generate", "jax_scan", "parts_features_kmeans_probe", "jax_train", "compiled_breaks", "compiled_training"):
    PROGRAMS[_slow] = PROGRAMS.pop(_slow)
