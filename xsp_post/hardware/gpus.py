"""GPU name → its peaks, the roofs of A9, A14 and A15 (paper, Tables I and VII).

`find_peaks` answers from, in this order: the user's file, the table of products (`gpus.txt`, read when the first row is
asked for), the device's own attributes (multiprocessors × rate of its compute capability × clock). What none of them
knows is None: an unknown GPU is said, not guessed.

Peaks are unrounded where possible: a data sheet rounds ("19.5 TFLOPS"). An unrounded peak is multiprocessors × flop per
clock and multiprocessor × boost clock; the rates are those of NVIDIA's architecture white papers and of the
CUDA C++ Programming Guide's table "Throughput of native arithmetic instructions" (a multiply-add counts
2; tensor rates are dense, without structured sparsity). Memory bandwidth is bus width × effective data
rate where the clock is known. Where only printed values exist the source says "as printed".

GeForce boards halve tensor throughput with 32-bit accumulation, which is what frameworks use; the full
rate is kept under ``fp16_tensor_fp16_accumulate``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from xsp_post.base.errors import UsageError
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


WARP = 32  # threads that a multiprocessor runs together
_OTHERS = re.compile(r"\bamd\b|instinct|radeon|intel", re.IGNORECASE)  # their capabilities mean something else
_BESIDE_CPU = re.compile(r"\bG[HB]\d+|orin|thor|xavier", re.IGNORECASE)  # no PCIe lies between them and their memory
FROM_FILE, FROM_TABLE, FROM_ATTRIBUTES = "file", "table", "attributes"


@dataclass(frozen=True)
class Peaks:
    """The roofs of one GPU: flop/s per pipe (a missing pipe is unknown), bytes/s, and where they come from."""

    gpu_name: str
    flop_per_s: dict[str, float] = field(default_factory=dict)
    memory_bandwidth_bytes_per_s: float | None = None
    l2_bytes: int | None = None
    origin: str = FROM_TABLE
    source: str = ""

    def peak(self, pipe: str) -> float | None:
        """flop/s of a pipe of `PIPES`, None when unknown."""
        return self.flop_per_s.get(pipe)

    def ideal_intensity(self, pipe: str = "fp32") -> float | None:
        """Peak ÷ bandwidth in flop per byte: below it a kernel is memory-bound (paper, §III). None if unknown."""
        peak = self.peak(pipe)
        if peak is None or not self.memory_bandwidth_bytes_per_s:
            return None
        return peak / self.memory_bandwidth_bytes_per_s


def find_peaks(gpu_name: str, *, overrides: Mapping[str, Peaks] | None = None, **known: Any) -> Peaks | None:
    """The peaks of a GPU by its name as the driver or Nsight gives it, or by its attributes; None if unknown.

    ``known``: sm_count, clock_hz, compute_capability, memory_bandwidth_bytes_per_s, l2_bytes, as far as they are. A
    table entry is taken only when its multiprocessor count agrees with ``sm_count`` (where that is
    known): a MIG slice or a cut-down board that shares the name is computed from its attributes instead.
    """
    user = _from_overrides(gpu_name, overrides or {})
    if user is not None:
        return user
    gpu, sm_count = _by_words().get(frozenset(_words(gpu_name))), known.get("sm_count")
    if gpu is not None and (not _is_known(sm_count) or sm_count == gpu.sm_count):
        return _of_product(gpu)
    return _from_attributes(gpu_name, known)


def peaks_of_device(device: Mapping[str, Any], overrides: Mapping[str, Peaks] | None = None) -> Peaks | None:
    """`find_peaks` for a row of the ``devices`` table; unknown columns may lack."""
    known = {name: device.get(name) for name in _ATTRIBUTES}
    return find_peaks(str(device.get("gpu_name") or ""), overrides=overrides, **known)


_ATTRIBUTES = ("sm_count", "clock_hz", "compute_capability", "memory_bandwidth_bytes_per_s")


def relative_rates(device: Mapping[str, Any]) -> dict[str, float]:
    """Peaks by pipe, to be compared with one another: in flop/s, or in flop per clock where only the compute capability
    of a row of ``devices`` is known; none of an unknown one."""
    peaks = peaks_of_device(device)
    if peaks is not None and peaks.flop_per_s:
        return peaks.flop_per_s
    name, capability = str(device.get("gpu_name") or ""), str(device.get("compute_capability") or "")
    return {} if _OTHERS.search(name) else dict(_without_guesses(RATES.get(capability, {}), name, capability))


def pinned_bytes_per_s(device: Mapping[str, Any]) -> float:
    """What large copies from and to pinned memory reach on a device (a row of ``devices``); 0.0 unknown."""
    name, capability = str(device.get("gpu_name") or ""), str(device.get("compute_capability") or "")
    return 0.0 if _OTHERS.search(name) or _BESIDE_CPU.search(name) else LINKS.get(capability, {}).get("pinned", 0) * 1e6


def peaks_of_ncu_attributes(attributes: Mapping[str, Any]) -> Peaks | None:
    """`find_peaks` for Nsight Compute's ``device__attribute_*`` metrics, named without that prefix.

    Reads display_name, compute_capability_major/_minor, multiprocessor_count, clock_rate and
    memory_clock_rate (kHz), global_memory_bus_width (bits; double data rate), l2_cache_size (bytes).
    """

    def number(name: str) -> float | None:
        value = attributes.get(name)
        return float(value) if value else None

    width, memory_khz, core_khz = (number(n) for n in ("global_memory_bus_width", "memory_clock_rate", "clock_rate"))
    major, minor, sm_count = (
        number(n) for n in ("compute_capability_major", "compute_capability_minor", "multiprocessor_count")
    )
    l2_bytes = number("l2_cache_size")
    return find_peaks(
        str(attributes.get("display_name") or ""),
        sm_count=int(sm_count) if sm_count else None,
        clock_hz=core_khz * 1000 if core_khz else None,
        compute_capability=f"{int(major)}.{int(minor or 0)}" if major else "",
        memory_bandwidth_bytes_per_s=memory_khz * 1000 * 2 * width / 8 if memory_khz and width else None,
        l2_bytes=int(l2_bytes) if l2_bytes else None,
    )


def similar_names(gpu_name: str) -> list[str]:
    """Products of the table that share a telling word with ``gpu_name``, for messages about unknown GPUs."""
    words = {word for word in _words(gpu_name) if any(c.isdigit() for c in word)}
    return [gpu.name for gpu in GPUS.values() if any(words & set(alias.split()) for alias in gpu.aliases)]


# Names ------------------------------------------------------------------------------------------------

_BRANDS = {"nvidia", "tesla", "geforce", "quadro", "corporation", "generation", "graphics", "gpu", "device", "cuda"}


def _words(name: str) -> list[str]:
    """Lower-case words without brands; SXM2…SXM6 are one word, because lists disagree on the digit."""
    words = re.findall(r"[a-z0-9.]+", name.lower())
    return [re.sub(r"^sxm\d$", "sxm", word) for word in words if word not in _BRANDS]


@cache
def _by_words() -> dict[frozenset[str], Gpu]:
    """The product whose alias has exactly these words (in any order): "3080 Ti" is no "3080"."""
    return {frozenset(_words(alias)): gpu for gpu in GPUS.values() for alias in (gpu.name, *gpu.aliases)}


_MOST = 1e30  # of a peak, in any unit


# The three origins ------------------------------------------------------------------------------------


def _of_product(gpu: Gpu) -> Peaks:
    rates = {**RATES[gpu.compute_capability], **gpu.rates}
    if gpu.is_geforce:
        rates |= GEFORCE_RATES.get(gpu.compute_capability, {})
    peaks = _computed(rates, gpu.sm_count, gpu.clock_hz, gpu.tensor_clock_hz or gpu.clock_hz) | gpu.printed
    return Peaks(gpu.name, peaks, gpu.memory_bandwidth_bytes_per_s, gpu.l2_bytes, FROM_TABLE, gpu.source)


def _from_attributes(gpu_name: str, known: Mapping[str, Any]) -> Peaks | None:
    sm_count, clock_hz, bandwidth = (known.get(one) for one in ("sm_count", "clock_hz", "memory_bandwidth_bytes_per_s"))
    compute_capability = str(known.get("compute_capability") or "")
    rates = RATES.get(compute_capability)
    flop_per_s: dict[str, float] = {}
    if rates is not None and _is_known(sm_count) and _is_known(clock_hz):
        sure, clock = _without_guesses(rates, gpu_name, compute_capability), float(clock_hz)
        flop_per_s = _computed(sure, int(sm_count), clock, clock)
    known_bandwidth = float(bandwidth) if _is_known(bandwidth) else None
    if not flop_per_s and known_bandwidth is None:
        return None
    source = "computed from the device's attributes: multiprocessors × flop per clock × clock"
    return Peaks(gpu_name, flop_per_s, known_bandwidth, known.get("l2_bytes"), FROM_ATTRIBUTES, source)


def _without_guesses(rates: dict[str, int], gpu_name: str, compute_capability: str) -> dict[str, int]:
    """Tensor rates differ between boards of one compute capability; keep them only where the name tells."""
    geforce = GEFORCE_RATES.get(compute_capability)
    if geforce is None:
        return rates
    lower = gpu_name.lower()
    if "geforce" in lower:
        return rates | geforce
    if re.search(r"\brtx a\d|quadro|tesla|titan|rtx pro|\bada generation", lower):
        return rates
    return {pipe: rate for pipe, rate in rates.items() if pipe not in geforce}


def _computed(rates: Mapping[str, int], sm_count: int, clock_hz: float, tensor_clock_hz: float) -> dict[str, float]:
    # fp64 runs at the vector clock in tensor code too (Hopper white paper: 66.9 Tflop/s at 1980 MHz).
    return {
        pipe: sm_count * rate * (tensor_clock_hz if "tensor" in pipe and pipe != "fp64_tensor" else clock_hz)
        for pipe, rate in rates.items()
    }


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and value == value and value > 0


# The user's file --------------------------------------------------------------------------------------


def load_overrides(path: Path) -> dict[str, Peaks]:
    """Peaks from the user's JSON or TOML file, by GPU name; "*" stands for every GPU.

    The file holds one table, or a list of them under ``gpus``, each with ``gpu_name``,
    ``memory_bandwidth_bytes_per_s`` and any of ``fp32_flop_per_s``, ``fp16_tensor_flop_per_s``, … (pipes of
    `PIPES`), optionally ``l2_bytes`` and ``source``. `doctor --measure-peaks` writes one.
    Raises UsageError (``peaks-file``) naming the file and the key.
    """
    from xsp_post.base import settings_files

    try:
        content = settings_files.read(path)
    except settings_files.BadSettings as error:
        raise _bad_file(path, str(error)) from error
    entries = content.get("gpus", [content]) if isinstance(content, dict) else content
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise _bad_file(path, "holds no table of peaks")
    return {str(entry.get("gpu_name", "*")): _override(path, entry) for entry in entries}


def _from_overrides(gpu_name: str, overrides: Mapping[str, Peaks]) -> Peaks | None:
    words = frozenset(_words(gpu_name))
    for name, peaks in overrides.items():
        if name != "*" and frozenset(_words(name)) == words:
            return peaks
    return overrides.get("*")


def _override(path: Path, entry: Mapping[str, Any]) -> Peaks:
    flop_per_s: dict[str, float] = {}
    others: dict[str, float] = {}
    for key, value in entry.items():
        if key in ("gpu_name", "source"):
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _MOST:
            raise _bad_file(path, f"gives {key} a value that is not a positive number")
        pipe = key.removesuffix("_flop_per_s")
        if pipe != key and pipe in PIPES:
            flop_per_s[pipe] = float(value)
        elif key in ("memory_bandwidth_bytes_per_s", "l2_bytes"):
            others[key] = float(value)
        else:
            raise _bad_file(path, f"has an unknown key {key!r}")
    l2_bytes = others.get("l2_bytes")
    name, source = str(entry.get("gpu_name", "*")), str(entry.get("source") or f"file {path.name}")
    bandwidth, l2 = others.get("memory_bandwidth_bytes_per_s"), int(l2_bytes) if l2_bytes else None
    return Peaks(name, flop_per_s, bandwidth, l2, FROM_FILE, source)


def _bad_file(path: Path, what: str) -> UsageError:
    keys = "Keys: gpu_name, memory_bandwidth_bytes_per_s, l2_bytes, source, and <pipe>_flop_per_s with <pipe> one of"
    hint = f"{keys} {', '.join(PIPES)}."
    return UsageError(f"The peaks file {path.name} {what}.", code="peaks-file", hint=hint)
