"""An export with the shape of a real ResNet-50 inference on a GPU; no GPU made it, and it says so.

What is copied from real runs: the ranges that `xsp-post run` writes, in execution order; which kernels a
layer launches; launches far ahead of their execution; module loading and allocation in the first
iteration. Durations are the larger of flop ÷ sustained flop rate and bytes ÷ sustained bandwidth of an
A100, plus a floor per kernel, with noise from the seed: plausible, not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from builders import LAZY_LOADING, MODULE_LOADING, ExportBuilder

from xsp_post.names import range_text
from xsp_post.work.convolutions import read_positions

PID, THREAD = 4242, 4242
STREAM = 7
FLOAT = 4  # bytes

# A100 (data sheet: 156 Tflop/s TF32 dense, 19.5 Tflop/s FP32, 1555 GB/s) and how much of it kernels sustain
TENSOR_FLOP_PER_S, VECTOR_FLOP_PER_S, BYTES_PER_S = 0.42 * 156e12, 0.6 * 19.5e12, 0.78 * 1555e9
KERNEL_FLOOR_NS = 2_200
PCIE_BYTES_PER_S = 24e9

EDGE_NS = 1_600  # host time of a range's edge: the hook
CALL_NS = 4_300  # cudaLaunchKernel
DISPATCH_NS = {"Conv2d": 21_000, "BatchNorm2d": 15_000, "Linear": 14_000}  # PyTorch's own work per call
OTHER_DISPATCH_NS = 8_000

_FUNCTOR = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, {}ul> >(int, {})"
_IMPLICIT = (
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize{}_stage4_warpsize2x2x1_g1_"
    "tensor16x8x8_simple_t1r{}s{}_kernel_cudnn"
)
RELU = _FUNCTOR.format("(anonymous namespace)::launch_clamp_scalar", 2, "at::native::clamp_scalar_functor")
ADD = _FUNCTOR.format("CUDAFunctor_add<float>", 3, "at::native::CUDAFunctor_add<float>")
BATCH_NORM = "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float, float, cudnnTensorStruct)"
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(float)"
MAX_POOL = "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*, long)"
AVERAGE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >()"
WINOGRAD = "void cudnn::winograd_nonfused::winogradForward{}4x4<float, float>(cudnn::maxwell::winograd::Params)"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_{}_tn_align4>(cutlass_80_tensorop_s1688gemm::Params)"
SPLIT_K = "void splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(float const*)"


@dataclass(frozen=True)
class Work:
    """One kernel of a layer."""

    name: str
    flop: float
    bytes: float
    threads: int  # per block
    registers: int
    is_tensor: bool = False
    elements_per_block: int = 512
    shared_bytes: int = 0


@dataclass(frozen=True)
class Layer:
    """One layer call: what `xsp-post run` writes as ``path:kind#0`` and what it launches."""

    path: str
    kind: str
    shape: tuple[int, ...]
    work: list[Work] = field(default_factory=list)
    library_call: str = ""
    least: tuple[int, int] | None = None  # forward flop and least bytes, as the hooks say them of torch.nn's layers

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape))


def _convolution(path: str, n: int, c_in: int, c_out: int, size: int, kernel: int, stride: int) -> Layer:
    out = size // stride
    shape = (n, c_out, out, out)
    elements = float(np.prod(shape))
    flop = 2.0 * elements * c_in * kernel * kernel
    in_bytes, out_bytes = FLOAT * n * c_in * size * size, FLOAT * elements
    weights = FLOAT * c_in * c_out * kernel * kernel
    if kernel == 3 and stride == 1:  # Winograd F(4x4, 3x3): 36 products for 16 outputs
        tiles = n * ((out + 3) // 4) ** 2
        domain_in, domain_out = FLOAT * 36.0 * tiles * c_in, FLOAT * 36.0 * tiles * c_out
        work = [
            Work(WINOGRAD.format("Data"), 144.0 * tiles * c_in, in_bytes + domain_in, 256, 64),
            Work(WINOGRAD.format("Filter"), 72.0 * c_in * c_out, weights * 5, 256, 40),
            Work(GEMM.format("128x64_16x6"), 72.0 * tiles * c_in * c_out, domain_in + domain_out + 4 * weights,
                 128, 168, True, 8192, 73728),
            Work(WINOGRAD.format("Output"), 144.0 * tiles * c_out, domain_out + out_bytes, 256, 56),
        ]  # fmt: skip
    else:
        tile = "128x128x16" if c_out >= 256 else "64x64x16"
        gemm = Work(_IMPLICIT.format(tile, kernel, kernel), flop, in_bytes + out_bytes + weights, 128, 202, True,
                    16384 if c_out >= 256 else 4096, 65536)  # fmt: skip
        work = [Work(TO_NHWC, 0.0, 2 * in_bytes, 256, 32, False, 1024, 4224), gemm]
    seen = read_positions(size, kernel, stride, kernel // 2, 1)  # a strided 1x1 kernel skips most of its input
    least = int(FLOAT * n * c_in * seen * seen + out_bytes + weights)
    return Layer(path, "Conv2d", shape, work, "cudnnBackendExecute", (int(flop), least))


def _batch_norm(path: str, shape: tuple[int, ...]) -> Layer:
    moved = 2.0 * FLOAT * np.prod(shape)
    work = [Work(BATCH_NORM, 2.0 * np.prod(shape), moved, 512, 30, False, 2048)]
    # weight, bias, mean and variance per channel, and the counter of batches
    least = (0, int(moved) + 4 * FLOAT * shape[1] + 8)
    return Layer(path, "BatchNorm2d", shape, work, "cudnnBatchNormalizationForwardInference", least)


def _elementwise(path: str, kind: str, name: str, shape: tuple[int, ...], inputs: int) -> Layer:
    elements = float(np.prod(shape))
    moved = (inputs + 1) * FLOAT * elements
    return Layer(path, kind, shape, [Work(name, elements, moved, 128, 22)], least=(0, int(moved)))


def _bottleneck(path: str, n: int, c_in: int, width: int, size: int, stride: int) -> Iterator[Layer]:
    """Residual block of ResNet-50 v1.5 (stride in the 3x3 convolution)."""
    inner, outer, out = width, 4 * width, size // stride
    plan = ((1, c_in, inner, size, 1, 1), (2, inner, inner, size, 3, stride), (3, inner, outer, out, 1, 1))
    for i, a, b, edge, kernel, step in plan:
        convolution = _convolution(f"{path}.conv{i}", n, a, b, edge, kernel, step)
        yield convolution
        yield _batch_norm(f"{path}.bn{i}", convolution.shape)
        if i < 3:
            yield _elementwise(f"{path}.relu{i}", "ReLU", RELU, convolution.shape, 1)
    shape = (n, outer, out, out)
    if stride != 1 or c_in != outer:
        yield _convolution(f"{path}.downsample.0", n, c_in, outer, size, 1, stride)
        yield _batch_norm(f"{path}.downsample.1", shape)
    yield _elementwise(f"{path}.add", "Add", ADD, shape, 2)
    yield _elementwise(f"{path}.relu3", "ReLU", RELU, shape, 1)


def layers(batch_size: int) -> list[Layer]:
    """The leaf layers of ResNet-50 v1.5 at 224 × 224 in execution order."""
    n = batch_size
    found = [_convolution("conv1", n, 3, 64, 224, 7, 2)]
    found.append(_batch_norm("bn1", (n, 64, 112, 112)))
    found.append(_elementwise("relu", "ReLU", RELU, (n, 64, 112, 112), 1))
    pooled = float(n * 64 * 56 * 56)
    found.append(Layer("maxpool", "MaxPool2d", (n, 64, 56, 56),
                       [Work(MAX_POOL, 9 * pooled, 5.0 * FLOAT * pooled, 256, 40, False, 256)],
                       least=(0, int(5 * FLOAT * pooled))))  # fmt: skip
    channels, size = 64, 56
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            found += _bottleneck(f"layer{stage}.{block}", n, channels, width, size, stride)
            channels, size = 4 * width, size // stride
    features = float(n * 2048 * 49)
    found.append(Layer("avgpool", "AdaptiveAvgPool2d", (n, 2048, 1, 1),
                       [Work(AVERAGE, features, FLOAT * features, 128, 34, False, 6272)],
                       least=(0, int(FLOAT * (features + n * 2048)))))  # fmt: skip
    found.append(Layer("flatten", "Flatten", (n, 2048), least=(0, 0)))  # a view
    fc_bytes = FLOAT * (2048.0 * 1000 + n * 3048)
    gemm = Work(GEMM.format("64x64_32x6"), 2.0 * n * 2048 * 1000, fc_bytes, 128, 128, True, 512, 49152)
    reduction = Work(SPLIT_K, 9.0 * n * 1000, FLOAT * 10.0 * n * 1000, 512, 32)
    found.append(
        Layer(
            "fc",
            "Linear",
            (n, 1000),
            [gemm, reduction],
            "cublasSgemm_v2",
            (2 * n * 2048 * 1000, int(fc_bytes) + FLOAT * 1000),
        )
    )
    return found


class _Recorder:
    """Plays the host thread and the one stream, writing what nsys would have seen. Times in ns."""

    def __init__(self, batch_size: int, seed: int, *, containers: bool) -> None:
        self.export = ExportBuilder(interned=True)  # the nvtx package registers its strings
        self.random = np.random.default_rng(seed)
        self.batch_size, self.containers = batch_size, containers
        self.now = 1_200_000_000
        self.device_free = 0
        self.loaded: set[str] = set()
        self.slowness = 1.0  # of the host, against its settled pace

    def wait(self, ns: float) -> None:
        self.now += max(100, int(ns * self.slowness * self.random.lognormal(0, 0.08)))

    def call(self, name: str, ns: float) -> None:
        start = self.now
        self.wait(ns)
        self.export.api(name, start, self.now)

    def range_at(self, text: str, start: int, category: int, payload: int) -> None:
        """A range from `start` until now."""
        self.export.range(text, start, self.now, domain="xsp", category=category, int64Value=payload)

    def launch(self, work: Work, elements: int) -> None:
        start = self.now
        first_use = work.name not in self.loaded
        if first_use:  # CUDA_MODULE_LOADING=LAZY: a kernel's code is loaded at its first launch
            self.loaded.add(work.name)
            self.wait(650_000 if work.is_tensor else 180_000)
            kind = MODULE_LOADING if work.is_tensor else LAZY_LOADING
            text = "Runtime Triggered Module Loading" if work.is_tensor else "Lazy Function Loading"
            self.export.overhead(text, start + 1_000, self.now - 500, kind=kind)
        self.wait(CALL_NS)
        rate = TENSOR_FLOP_PER_S if work.is_tensor else VECTOR_FLOP_PER_S
        ideal_ns = 1e9 * max(work.flop / rate, work.bytes / BYTES_PER_S)
        duration = int((KERNEL_FLOOR_NS + ideal_ns) * self.random.lognormal(0, 0.02))
        begin = max(self.now + 1_500, self.device_free + 900)
        self.device_free = begin + duration
        blocks = max(1, -(-elements // work.elements_per_block))
        self.export.kernel(
            work.name, launch=(start, self.now), run=(begin, self.device_free), stream=STREAM,
            short=_short(work.name), grid=(blocks, 1, 1), block=(work.threads, 1, 1),
            registersPerThread=work.registers, dynamicSharedMemory=work.shared_bytes,
        )  # fmt: skip

    def copy(self, bytes_: int, kind: str) -> None:
        start = self.now
        self.wait(6_000)
        begin = max(self.now + 800, self.device_free + 900)
        self.device_free = begin + int(1_500 + 1e9 * bytes_ / PCIE_BYTES_PER_S * self.random.lognormal(0, 0.03))
        self.export.memcpy(bytes_, kind=kind, launch=(start, self.now), run=(begin, self.device_free), stream=STREAM,
                           srcKind=1 if kind == "HtoD" else 2, dstKind=2 if kind == "HtoD" else 1)  # fmt: skip

    def clear(self, bytes_: int) -> None:
        start = self.now
        self.wait(4_000)
        begin = max(self.now + 800, self.device_free + 900)
        self.device_free = begin + 1_300
        self.export.memset(bytes_, launch=(start, self.now), run=(begin, self.device_free), stream=STREAM)

    def layer(self, layer: Layer, *, is_first: bool) -> None:
        start = self.now
        self.wait(EDGE_NS)
        if is_first and layer.work:  # the caching allocator has nothing to reuse yet
            self.call("cudaMalloc_v3020", 90_000)
        self.wait(DISPATCH_NS.get(layer.kind, OTHER_DISPATCH_NS))
        library_start = self.now
        if layer.library_call:
            self.wait(2_000)
        if layer.kind == "Linear":
            self.clear(FLOAT * self.batch_size * 1000)
        for work in layer.work:
            self.launch(work, layer.elements)
        if layer.library_call:
            self.wait(900)
            table = "CUBLAS_EVENTS" if layer.library_call.startswith("cublas") else "CUDNN_EVENTS"
            self.export.library(layer.library_call, library_start, self.now, table=table)
        self.wait(EDGE_NS)
        self.export.mark(range_text.format_shape(layer.shape, layer.least), self.now, domain="xsp")
        self.export.set_last("NVTX_EVENTS", category=3)
        self.wait(400)
        self.range_at(f"{layer.path}:{layer.kind}#0", start, 2, 0)

    def iteration(self, text: str, plan: list[Layer], *, is_first: bool) -> None:
        start = self.now
        self.wait(3_000)
        self.copy(FLOAT * self.batch_size * 3 * 224 * 224, "HtoD")
        open_container, container_start = "", 0
        for layer in plan:
            container = layer.path.rsplit(".", 1)[0] if layer.path.startswith("layer") else ""
            container = container.removesuffix(".downsample")
            if self.containers and container != open_container:
                if open_container:
                    self.range_at(f"{open_container}:Bottleneck#0", container_start, 2, 0)
                self.wait(EDGE_NS)
                open_container, container_start = container, self.now
            self.layer(layer, is_first=is_first)
        self.copy(FLOAT * self.batch_size * 1000, "DtoH")
        sync = self.now
        self.now = max(self.now + 2_000, self.device_free + 4_000)
        self.export.sync("cudaDeviceSynchronize_v3020", sync, self.now)
        self.wait(1_500)
        self.range_at(text, start, 1, self.batch_size)
        self.wait(9_000)


def _short(name: str) -> str:
    """The bare function name, as in KERNEL.shortName."""
    bare = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return bare.split("<")[0].split("(")[0].split("::")[-1]


def resnet50_export(
    *, batch_size: int = 8, iterations: int = 12, warmup: int = 2, seed: int = 0, containers: bool = False
) -> ExportBuilder:
    """The export, not yet written. containers: also a range around each residual block."""
    recorder = _Recorder(batch_size, seed, containers=containers)
    export = recorder.export
    export.process(PID, "python3").thread(THREAD, "python3")
    export.export_meta("EXPORT_PRODUCT_NAME", "generated by xsp-post scripts/make_export")
    export.capture_meta("CAPTURE_EVENT_TYPE", "CuDNN").capture_meta("CAPTURE_EVENT_TYPE", "CuBLAS")
    export.gpu()
    for name, number, value in (("CudaDriverVersion", 611, "13000"), ("NvDriverVersion", 205, "580.95.05")):
        export.row("TARGET_INFO_SYSTEM_ENV", globalVid=1 << 48, name=name, nameEnum=number, value=value)
    export.row("TARGET_INFO_CUDA_STREAM", streamId=STREAM, vmId=1, processId=PID, flag=3)
    export.domain("xsp", at=900_000_000)
    for category, text in enumerate(("model", "layer", "shape"), start=1):
        export.row("NVTX_EVENTS", start=900_100_000, eventType=33, text=text, category=category, domainId=1,
                   globalTid=export.rows["NVTX_EVENTS"][0]["globalTid"])  # fmt: skip
    plan = layers(batch_size)
    for i in range(warmup):
        recorder.slowness = 1.0 + 0.6 / (1 + 3 * i)  # caches, allocator and interpreter settle
        recorder.iteration(f"warmup:forward#{i}", plan, is_first=i == 0)
    recorder.slowness = 1.0
    for i in range(iterations):
        recorder.iteration(f"model:forward#{i}", plan, is_first=False)
    export.row("ANALYSIS_DETAILS", globalVid=1 << 48, duration=recorder.now + 50_000_000)
    export.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1767225600000000000, utcTime="2026-01-01T00:00:00",
               localTime="2026-01-01T00:00:00")  # fmt: skip
    export.diagnostic("Generated by xsp-post scripts/make_export: durations are modelled, not measured.", severity=1)
    export.rows["NVTX_EVENTS"].sort(key=lambda row: (row["start"], -(row.get("end") or row["start"])))
    return export


def write_resnet50_export(path: str | Path, **options: int | bool) -> Path:
    """Write `resnet50_export` to a SQLite file."""
    return resnet50_export(**options).write(path)  # type: ignore[arg-type]
