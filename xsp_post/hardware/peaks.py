"""Data of `hardware.gpus`: the peaks of each GPU, unrounded where possible.

A data sheet rounds ("19.5 TFLOPS"). An unrounded peak is multiprocessors × flop per clock and
multiprocessor × boost clock; the rates below are those of NVIDIA's architecture white papers and of the
CUDA C++ Programming Guide's table "Throughput of native arithmetic instructions" (a multiply-add counts
2; tensor rates are dense, without structured sparsity). Memory bandwidth is bus width × effective data
rate where the clock is known. Where only printed values exist the source says "as printed".

GeForce boards halve tensor throughput with 32-bit accumulation, which is what frameworks use; the full
rate is kept under ``fp16_tensor_fp16_accumulate``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PIPES = (
    "fp64", "fp32", "fp16", "bf16", "fp64_tensor", "tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor",
    "fp4_tensor", "int8_tensor", "fp16_tensor_fp16_accumulate",
)  # fmt: skip

# flop per clock and multiprocessor, by compute capability.
_PASCAL_100 = {"fp64": 64, "fp32": 128, "fp16": 256}
_PASCAL_104 = {"fp64": 8, "fp32": 256, "fp16": 4}
_TURING = {"fp64": 4, "fp32": 128, "fp16": 256, "fp16_tensor": 1024, "int8_tensor": 2048}
_GA10X = {
    "fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256, "tf32_tensor": 512, "fp16_tensor": 1024, "bf16_tensor": 1024,
    "int8_tensor": 2048,
}  # fmt: skip
_ADA = {**_GA10X, "fp8_tensor": 2048}
_BLACKWELL_PRO = {**_ADA, "fp4_tensor": 4096}
RATES: dict[str, dict[str, int]] = {
    "5.2": {"fp64": 8, "fp32": 256}, "6.0": _PASCAL_100, "6.1": _PASCAL_104,
    "7.0": {"fp64": 64, "fp32": 128, "fp16": 256, "fp16_tensor": 1024}, "7.5": _TURING,
    "8.0": {
        "fp64": 64, "fp32": 128, "fp16": 512, "bf16": 256, "fp64_tensor": 128, "tf32_tensor": 1024, "fp16_tensor": 2048,
        "bf16_tensor": 2048, "int8_tensor": 4096,
    },
    "8.6": _GA10X,
    "8.7": {
        "fp64": 4, "fp32": 256, "fp16": 512, "tf32_tensor": 1024, "fp16_tensor": 2048, "bf16_tensor": 2048,
        "int8_tensor": 4096,
    },
    "8.9": _ADA,
    "9.0": {
        "fp64": 128, "fp32": 256, "fp16": 512, "bf16": 512, "fp64_tensor": 256, "tf32_tensor": 2048,
        "fp16_tensor": 4096, "bf16_tensor": 4096, "fp8_tensor": 8192, "int8_tensor": 8192,
    },
    "10.0": {
        "fp64": 128, "fp32": 256, "fp16": 512, "bf16": 512, "fp64_tensor": 128, "tf32_tensor": 4096,
        "fp16_tensor": 8192, "bf16_tensor": 8192, "fp8_tensor": 16384, "fp4_tensor": 32768, "int8_tensor": 16384,
    },
    "12.0": _BLACKWELL_PRO,
}  # fmt: skip

# What GeForce boards of a compute capability do otherwise.
_GEFORCE_AMPERE = {"tf32_tensor": 256, "fp16_tensor": 512, "bf16_tensor": 512, "fp16_tensor_fp16_accumulate": 1024}
_GEFORCE_ADA = {**_GEFORCE_AMPERE, "fp8_tensor": 1024}
GEFORCE_RATES: dict[str, dict[str, int]] = {
    "7.5": {"fp16_tensor": 512, "fp16_tensor_fp16_accumulate": 1024}, "8.6": _GEFORCE_AMPERE, "8.9": _GEFORCE_ADA,
    "12.0": _GEFORCE_ADA,
}  # fmt: skip

MHZ = 10**6
GB = 10**9
T = 10**12
MIB = 2**20


def _bandwidth(effective_mhz: float, bus_bits: int) -> float:
    return effective_mhz * MHZ * 2 * bus_bits / 8


@dataclass(frozen=True)
class Gpu:
    """One product. ``aliases`` are its names as drivers report them, compared without brand words."""

    name: str
    aliases: tuple[str, ...]
    compute_capability: str
    sm_count: int
    clock_hz: float
    memory_bandwidth_bytes_per_s: float
    source: str
    l2_bytes: int | None = None
    tensor_clock_hz: float | None = None  # Hopper and Blackwell data-centre parts boost less in tensor code
    is_geforce: bool = False
    rates: dict[str, int] = field(default_factory=dict)  # instead of RATES, per pipe
    printed: dict[str, float] = field(default_factory=dict)  # flop/s as printed, instead of rate × clock
    datasheet: dict[str, float] = field(default_factory=dict)  # Tflop/s as printed, a check on the above


GPUS: tuple[Gpu, ...] = (
    # Maxwell and Pascal: the paper's other systems.
    Gpu(
        "Tesla M60", ("m60",), "5.2", 16, 1178 * MHZ, _bandwidth(2505, 256),
        "Tesla M60 data sheet, one of its two GPUs", 2 * MIB, datasheet={"fp32": 4.8},
    ),
    Gpu(
        "Tesla P4", ("p4",), "6.1", 20, 1063 * MHZ, _bandwidth(3003, 256), "Tesla P4 data sheet", 2 * MIB,
        datasheet={"fp32": 5.5},
    ),
    Gpu(
        "Tesla P100-PCIE-16GB", ("p100 pcie 16gb", "p100 pcie"), "6.0", 56, 1303 * MHZ, _bandwidth(715, 4096),
        "Tesla P100 data sheet (PCIe, 16 GB)", 4 * MIB, datasheet={"fp32": 9.3, "fp64": 4.7, "fp16": 18.7},
    ),
    Gpu(
        "Tesla P100-SXM2-16GB", ("p100 sxm 16gb", "p100 sxm"), "6.0", 56, 1480 * MHZ, _bandwidth(715, 4096),
        "Tesla P100 data sheet (NVLink)", 4 * MIB, datasheet={"fp32": 10.6, "fp64": 5.3, "fp16": 21.2},
    ),
    # Volta
    Gpu(
        "Tesla V100-SXM2", ("v100 sxm 16gb", "v100 sxm 32gb", "v100 sxm"), "7.0", 80, 1530 * MHZ, _bandwidth(877, 4096),
        "V100 data sheet (SXM2); Volta white paper", 6 * MIB, datasheet={"fp64": 7.8, "fp32": 15.7, "fp16_tensor": 125},
    ),
    Gpu(
        "Tesla V100-PCIE", ("v100 pcie 16gb", "v100 pcie 32gb", "v100 pcie"), "7.0", 80, 1380 * MHZ,
        _bandwidth(877, 4096), "V100 data sheet (PCIe)", 6 * MIB,
        datasheet={"fp64": 7.0, "fp32": 14.0, "fp16_tensor": 112},
    ),
    Gpu(
        "Tesla V100S-PCIE-32GB", ("v100s pcie 32gb", "v100s"), "7.0", 80, 1597 * MHZ, _bandwidth(1107, 4096),
        "V100 data sheet (V100S)", 6 * MIB, datasheet={"fp64": 8.2, "fp32": 16.4, "fp16_tensor": 130},
    ),
    # Turing
    Gpu(
        "Tesla T4", ("t4",), "7.5", 40, 1590 * MHZ, _bandwidth(5001, 256), "T4 data sheet", 4 * MIB,
        datasheet={"fp32": 8.1, "fp16_tensor": 65, "int8_tensor": 130},
    ),
    Gpu(
        "Quadro RTX 6000", ("rtx 6000",), "7.5", 72, 1770 * MHZ, _bandwidth(7001, 384), "Quadro RTX 6000 data sheet",
        6 * MIB, datasheet={"fp32": 16.3, "fp16_tensor": 130.5},
    ),
    Gpu(
        "Quadro RTX 8000", ("rtx 8000",), "7.5", 72, 1770 * MHZ, _bandwidth(7001, 384), "Quadro RTX 8000 data sheet",
        6 * MIB, datasheet={"fp32": 16.3, "fp16_tensor": 130.5},
    ),
    Gpu(
        "TITAN RTX", ("titan rtx",), "7.5", 72, 1770 * MHZ, _bandwidth(7001, 384), "Titan RTX product page", 6 * MIB,
        datasheet={"fp32": 16.3, "fp16_tensor": 130},
    ),
    Gpu(
        "GeForce RTX 2080 Ti", ("rtx 2080 ti",), "7.5", 68, 1545 * MHZ, _bandwidth(7000, 352),
        "Turing white paper (reference board)", int(5.5 * MIB), is_geforce=True,
        datasheet={"fp32": 13.4, "fp16_tensor": 53.8},
    ),
    # Ampere
    Gpu(
        "A100-SXM4-40GB", ("a100 sxm 40gb",), "8.0", 108, 1410 * MHZ, _bandwidth(1215, 5120),
        "A100 data sheet; Ampere white paper", 40 * MIB,
        datasheet={
            "fp64": 9.7, "fp64_tensor": 19.5, "fp32": 19.5, "fp16": 78, "bf16": 39, "tf32_tensor": 156,
            "fp16_tensor": 312, "int8_tensor": 624,
        },
    ),
    Gpu(
        "A100-SXM4-80GB", ("a100 sxm 80gb",), "8.0", 108, 1410 * MHZ, _bandwidth(1593, 5120),
        "A100 data sheet (80 GB SXM)", 40 * MIB, datasheet={"fp32": 19.5, "fp16_tensor": 312},
    ),
    Gpu(
        "A100-PCIE-40GB", ("a100 pcie 40gb",), "8.0", 108, 1410 * MHZ, _bandwidth(1215, 5120),
        "A100 data sheet (40 GB PCIe)", 40 * MIB, datasheet={"fp32": 19.5, "fp16_tensor": 312},
    ),
    Gpu(
        "A100 80GB PCIe", ("a100 pcie 80gb",), "8.0", 108, 1410 * MHZ, _bandwidth(1512, 5120),
        "A100 data sheet (80 GB PCIe)", 40 * MIB, datasheet={"fp32": 19.5, "fp16_tensor": 312},
    ),
    Gpu(
        "A800-SXM4-80GB", ("a800 sxm 80gb",), "8.0", 108, 1410 * MHZ, _bandwidth(1593, 5120),
        "A100 data sheet (same chip, slower NVLink)", 40 * MIB,
        datasheet={"fp32": 19.5, "fp64": 9.7, "fp16_tensor": 312, "int8_tensor": 624},
    ),
    Gpu(
        "A30", ("a30",), "8.0", 56, 1440 * MHZ, _bandwidth(1215, 3072), "A30 data sheet", 24 * MIB,
        datasheet={"fp64": 5.2, "fp32": 10.3, "tf32_tensor": 82, "fp16_tensor": 165},
    ),
    Gpu(
        "A10", ("a10",), "8.6", 72, 1695 * MHZ, _bandwidth(6251, 384), "A10 data sheet", 6 * MIB,
        datasheet={"fp32": 31.2, "tf32_tensor": 62.5, "fp16_tensor": 125, "int8_tensor": 250},
    ),
    # ncu's own roofline chart on an A10G holds 40 960 tensor flop per clock for 80 multiprocessors.
    Gpu(
        "A10G", ("a10g",), "8.6", 80, 1710 * MHZ, _bandwidth(6251, 384),
        "A10G board as Nsight Compute describes it (device attributes, roofline chart)", 6 * MIB,
        rates={"tf32_tensor": 256, "fp16_tensor": 512, "bf16_tensor": 512, "int8_tensor": 1024},
        datasheet={"fp32": 35, "tf32_tensor": 35, "fp16_tensor": 70, "bf16_tensor": 70, "int8_tensor": 140},
    ),
    Gpu(
        "A40", ("a40",), "8.6", 84, 1740 * MHZ, _bandwidth(7251, 384), "A40 data sheet", 6 * MIB,
        datasheet={"fp32": 37.4, "tf32_tensor": 74.8, "fp16_tensor": 149.7, "int8_tensor": 299.3},
    ),
    Gpu(
        "RTX A6000", ("rtx a6000",), "8.6", 84, 1800 * MHZ, _bandwidth(8001, 384), "RTX A6000 data sheet", 6 * MIB,
        datasheet={"fp32": 38.7, "fp16_tensor": 154.8},
    ),
    Gpu(
        "RTX A2000 12GB", ("rtx a2000 12gb", "rtx a2000"), "8.6", 26, 1200 * MHZ, _bandwidth(6001, 192),
        "RTX A2000 data sheet", 3 * MIB, datasheet={"fp32": 8.0, "fp16_tensor": 31.95},
    ),
    Gpu(
        "GeForce RTX 3070 Ti", ("rtx 3070 ti",), "8.6", 48, 1770 * MHZ, _bandwidth(9501, 256),
        "GA102 white paper family; product page (reference clock)", 4 * MIB, is_geforce=True, datasheet={"fp32": 21.7},
    ),
    Gpu(
        "GeForce RTX 3080", ("rtx 3080 10gb", "rtx 3080"), "8.6", 68, 1710 * MHZ, _bandwidth(9501, 320),
        "GA102 white paper", 5 * MIB, is_geforce=True,
        datasheet={
            "fp32": 29.8, "fp16_tensor": 59.5, "fp16_tensor_fp16_accumulate": 119, "tf32_tensor": 29.8,
            "int8_tensor": 238,
        },
    ),
    Gpu(
        "GeForce RTX 3090", ("rtx 3090",), "8.6", 82, 1695 * MHZ, _bandwidth(9751, 384), "GA102 white paper", 6 * MIB,
        is_geforce=True, datasheet={"fp32": 35.6, "fp16_tensor": 71, "fp16_tensor_fp16_accumulate": 142},
    ),
    Gpu(
        "Jetson AGX Orin 64GB", ("jetson agx orin 64gb", "agx orin 64gb"), "8.7", 16, 1300 * MHZ, 204.8 * GB,
        "Jetson AGX Orin technical brief", 4 * MIB, datasheet={"fp32": 5.3, "int8_tensor": 85},
    ),
    # Ada
    Gpu(
        "L4", ("l4",), "8.9", 58, 2040 * MHZ, _bandwidth(6251, 192), "L4 data sheet (dense: half of printed)", 48 * MIB,
        datasheet={"fp32": 30.3, "tf32_tensor": 60, "fp16_tensor": 121, "fp8_tensor": 242.5},
    ),
    Gpu(
        "L40", ("l40",), "8.9", 142, 2490 * MHZ, _bandwidth(9001, 384), "L40 data sheet (dense)", 96 * MIB,
        rates={**GEFORCE_RATES["8.9"], "int8_tensor": 1024},
        datasheet={"fp32": 90.5, "tf32_tensor": 90.5, "fp16_tensor": 181, "fp8_tensor": 362, "int8_tensor": 362},
    ),
    Gpu(
        "L40S", ("l40s",), "8.9", 142, 2520 * MHZ, _bandwidth(9001, 384), "L40S data sheet", 96 * MIB,
        datasheet={"fp32": 91.6, "tf32_tensor": 183, "fp16_tensor": 366.5, "fp8_tensor": 733},
    ),
    Gpu(
        "RTX 6000 Ada Generation", ("rtx 6000 ada",), "8.9", 142, 2505 * MHZ, 960 * GB, "RTX 6000 Ada data sheet",
        96 * MIB, datasheet={"fp32": 91.1, "fp8_tensor": 728.5},
    ),
    Gpu(
        "GeForce RTX 4070 Ti", ("rtx 4070 ti",), "8.9", 60, 2610 * MHZ, _bandwidth(10501, 192),
        "Ada white paper family; product page (reference clock)", 48 * MIB, is_geforce=True, datasheet={"fp32": 40.1},
    ),
    Gpu(
        "GeForce RTX 4080", ("rtx 4080",), "8.9", 76, 2505 * MHZ, _bandwidth(11201, 256), "Ada white paper", 64 * MIB,
        is_geforce=True, datasheet={"fp32": 48.7, "fp16_tensor": 97.5},
    ),
    Gpu(
        "GeForce RTX 4090", ("rtx 4090",), "8.9", 128, 2520 * MHZ, _bandwidth(10501, 384), "Ada white paper", 72 * MIB,
        is_geforce=True,
        datasheet={
            "fp32": 82.6, "tf32_tensor": 82.6, "fp16_tensor": 165.2, "fp8_tensor": 330.3,
            "fp16_tensor_fp16_accumulate": 330.3, "int8_tensor": 660.6,
        },
    ),
    # Hopper; the driver calls the SXM board "H100 80GB HBM3".
    Gpu(
        "H100 SXM5 80GB", ("h100 80gb hbm3", "h100 sxm 80gb", "h100 sxm"), "9.0", 132, 1980 * MHZ,
        _bandwidth(2619, 5120), "H100 data sheet; Hopper white paper", 50 * MIB, 1830 * MHZ,
        datasheet={
            "fp64": 33.5, "fp64_tensor": 66.9, "fp32": 66.9, "fp16": 133.8, "tf32_tensor": 494.7, "fp16_tensor": 989.4,
            "fp8_tensor": 1978.9,
        },
    ),
    Gpu(
        "H100 PCIe", ("h100 pcie 80gb", "h100 pcie"), "9.0", 114, 1755 * MHZ, _bandwidth(1593, 5120),
        "H100 data sheet (PCIe); Hopper white paper", 50 * MIB, 1620 * MHZ,
        datasheet={"fp64": 25.6, "fp32": 51.2, "fp16_tensor": 756, "fp8_tensor": 1513},
    ),
    Gpu(
        "H100 NVL", ("h100 nvl",), "9.0", 132, 1785 * MHZ, _bandwidth(2619, 6016),
        "H100 data sheet (NVL; tensor peaks as printed, halved to dense)", 50 * MIB,
        printed={
            "tf32_tensor": 417.5 * T, "fp16_tensor": 835.5 * T, "bf16_tensor": 835.5 * T, "fp8_tensor": 1670.5 * T,
            "int8_tensor": 1670.5 * T,
        },
        datasheet={"fp64": 30, "fp32": 60, "fp64_tensor": 60},
    ),
    Gpu(
        "H200 SXM", ("h200", "h200 sxm", "h200 141gb hbm3e"), "9.0", 132, 1980 * MHZ, _bandwidth(3201, 6144),
        "H200 data sheet; bandwidth from the memory clock of the board (printed: 4.8 TB/s)", 60 * MIB, 1830 * MHZ,
        datasheet={"fp64": 34, "fp32": 67, "fp16_tensor": 989.5, "fp8_tensor": 1979},
    ),
    Gpu(
        "H200 NVL", ("h200 nvl",), "9.0", 132, 1785 * MHZ, 4.8e12,
        "H200 data sheet (NVL; tensor peaks and bandwidth as printed, halved to dense)", 60 * MIB,
        printed={
            "tf32_tensor": 417.5 * T, "fp16_tensor": 835.5 * T, "bf16_tensor": 835.5 * T, "fp8_tensor": 1670.5 * T,
            "int8_tensor": 1670.5 * T,
        },
        datasheet={"fp64": 30, "fp32": 60},
    ),
    Gpu(
        "H800 SXM5 80GB", ("h800", "h800 80gb hbm3", "h800 sxm"), "9.0", 132, 1980 * MHZ, _bandwidth(2619, 5120),
        "H800 data sheet (H100 SXM with fp64 cut to 1 Tflop/s, as printed)", 50 * MIB, 1830 * MHZ,
        printed={"fp64": 1 * T, "fp64_tensor": 1 * T}, datasheet={"fp32": 67, "fp16_tensor": 989.5, "fp8_tensor": 1979},
    ),
    Gpu(
        "GH200 96GB", ("gh200 480gb", "gh200 120gb", "gh200 96gb hbm3"), "9.0", 132, 1980 * MHZ, _bandwidth(2619, 6144),
        "GH200 data sheet (96 GB HBM3)", None, 1830 * MHZ,
        datasheet={"fp64": 34, "fp32": 67, "fp16_tensor": 990, "fp8_tensor": 1979},
    ),
    Gpu(
        "GH200 144GB", ("gh200 144g hbm3e", "gh200 144gb hbm3e"), "9.0", 132, 1980 * MHZ, 4.9e12,
        "GH200 data sheet (144 GB HBM3e; bandwidth as printed)", None, 1830 * MHZ,
        datasheet={"fp64": 34, "fp32": 67, "fp16_tensor": 990},
    ),
    # Blackwell
    Gpu(
        "B200", ("b200", "b200 180gb hbm3e"), "10.0", 148, 1980 * MHZ, 7.7e12,
        "HGX B200 data sheet (bandwidth as printed)", None, 1860 * MHZ,
        datasheet={
            "fp64": 37, "fp32": 75, "tf32_tensor": 1125, "fp16_tensor": 2250, "fp8_tensor": 4500, "fp4_tensor": 9000,
        },
    ),
    Gpu(
        "GB200", ("gb200",), "10.0", 152, 2056 * MHZ, 8.0e12,
        "GB200 NVL72 data sheet, per GPU (as printed, halved to dense)", 135_528_448,
        printed={
            "fp64": 40 * T, "fp64_tensor": 40 * T, "fp32": 80 * T, "tf32_tensor": 1250 * T, "fp16_tensor": 2500 * T,
            "bf16_tensor": 2500 * T, "fp8_tensor": 5000 * T, "int8_tensor": 5000 * T, "fp4_tensor": 10000 * T,
        },
    ),
    Gpu(
        "RTX PRO 6000 Blackwell", ("rtx pro 6000 blackwell", "rtx pro 6000 blackwell workstation edition"), "12.0", 188,
        2617 * MHZ, _bandwidth(14001, 512), "RTX PRO 6000 Blackwell data sheet", 128 * MIB,
        datasheet={"fp32": 125, "fp4_tensor": 2000},
    ),
    Gpu(
        "GeForce RTX 5080", ("rtx 5080",), "12.0", 84, 2617 * MHZ, _bandwidth(15001, 256), "RTX Blackwell white paper",
        64 * MIB, is_geforce=True, datasheet={"fp32": 56.3, "fp16_tensor": 112.6},
    ),
    Gpu(
        "GeForce RTX 5090", ("rtx 5090",), "12.0", 170, 2407 * MHZ, _bandwidth(14001, 512), "RTX Blackwell white paper",
        96 * MIB, is_geforce=True,
        datasheet={
            "fp32": 104.8, "tf32_tensor": 104.8, "fp16_tensor": 209.5, "fp8_tensor": 419,
            "fp16_tensor_fp16_accumulate": 419, "fp4_tensor": 1676, "int8_tensor": 838,
        },
    ),
)  # fmt: skip
