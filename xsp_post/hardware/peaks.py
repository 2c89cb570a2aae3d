"""The peaks of each GPU, unrounded where possible: `gpus.txt` → rows of `Gpu`, read when the first one is asked for.

A data sheet rounds ("19.5 TFLOPS"). An unrounded peak is multiprocessors × flop per clock and
multiprocessor × boost clock; the rates are those of NVIDIA's architecture white papers and of the
CUDA C++ Programming Guide's table "Throughput of native arithmetic instructions" (a multiply-add counts
2; tensor rates are dense, without structured sparsity). Memory bandwidth is bus width × effective data
rate where the clock is known. Where only printed values exist the source says "as printed".

GeForce boards halve tensor throughput with 32-bit accumulation, which is what frameworks use; the full
rate is kept under ``fp16_tensor_fp16_accumulate``.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from xsp_post.base.texts import Block, TextTable, read_blocks

PIPES = (
    "fp64", "fp32", "fp16", "bf16", "fp64_tensor", "tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor",
    "fp4_tensor", "int8_tensor", "fp16_tensor_fp16_accumulate",
)  # fmt: skip

MHZ = 10**6
T = 10**12
MIB = 2**20


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


@cache
def _blocks() -> list[Block]:
    return read_blocks(Path(__file__).with_name("gpus.txt"))


def _rates_of(kind: str) -> dict[str, dict[str, int]]:
    """Compute capability → flop per clock and multiprocessor, by pipe."""
    found = [block for block in _blocks() if block.name.startswith(f"{kind} ")]
    return {block.name.partition(" ")[2]: _rates(" ".join(line for _, line in block.lines)) for block in found}


def _rates(text: str) -> dict[str, int]:
    return {pipe: int(rate) for pipe, rate in _pairs(text).items()}


def _pairs(text: str) -> dict[str, float]:
    return {pipe: float(value) for pipe, _, value in (word.partition("=") for word in text.split())}


_CHIP = re.compile(r"([\d.]+), (\d+) SM, ([\d.]+) MHz(?:, ([\d.]+) MiB)?(?:, tensor ([\d.]+) MHz)?(, geforce)?$")
_MEMORY = re.compile(r"(?:([\d.]+) MHz x (\d+) bit|([\d.e+]+) B/s)$")


def _gpu(block: Block) -> Gpu:
    lines = dict(line.split(": ", 1) for _, line in block.lines)
    chip, memory = _CHIP.match(lines["chip"]), _MEMORY.match(lines["memory"])
    if chip is None or memory is None:
        block.refuse(f"the chip or the memory of {block.name} cannot be read")
    capability, multiprocessors, clock, l2, tensor_clock, geforce = chip.groups()
    effective_mhz, bus_bits, printed_bandwidth = (float(value or 0) for value in memory.groups())
    return Gpu(
        name=block.name,
        aliases=tuple(lines["aliases"].split(", ")),
        compute_capability=capability,
        sm_count=int(multiprocessors),
        clock_hz=float(clock) * MHZ,
        memory_bandwidth_bytes_per_s=float(printed_bandwidth or 0)
        or float(effective_mhz) * MHZ * 2 * int(bus_bits) / 8,
        source=block.title,
        l2_bytes=int(float(l2) * MIB) if l2 else None,
        tensor_clock_hz=float(tensor_clock) * MHZ if tensor_clock else None,
        is_geforce=bool(geforce),
        rates=_rates(lines.get("rates", "")),
        printed={pipe: value * T for pipe, value in _pairs(lines.get("printed", "")).items()},
        datasheet=_pairs(lines.get("datasheet", "")),
    )


RATES = TextTable(lambda: _rates_of("compute"))
GEFORCE_RATES = TextTable(lambda: _rates_of("geforce"))
LINKS = TextTable(lambda: _rates_of("link"))  # MB/s
GPUS = TextTable(lambda: {block.name: _gpu(block) for block in _blocks() if block.title})  # by name
