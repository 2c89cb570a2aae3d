"""`xsp-post doctor`: which tools for measuring are installed, and what each missing one would add."""

import importlib.util
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from xsp_post.base.errors import ToolError
from xsp_post.base.lazy import package_version
from xsp_post.base.output import write_text
from xsp_post.base.progress import step
from xsp_post.commands import shared

OK, MISSING, WARN = "ok", "missing", "warning"
_MARKS = {OK: "✓", MISSING: "✗", WARN: "!"}


@dataclass(frozen=True)
class Check:
    """One line of the doctor's answer."""

    name: str
    status: str  # ok, missing, warning
    found: str
    gives: str
    remedy: str = ""


def doctor(measure_peaks: bool = False, output: Path | None = None, force: bool = False, as_json: bool = False) -> None:
    """Check nsys, ncu, GPU, driver, permissions and packages; say what each missing one would provide."""
    checks = all_checks()
    peaks = _measured_peaks(output, force) if measure_peaks or output else None
    if as_json:
        shared.print_json("doctor", {"checks": [asdict(check) for check in checks], "peaks": peaks})
        return
    width = max(len(check.name) for check in checks)
    for check in checks:
        typer.echo(f"{_MARKS[check.status]} {check.name:<{width}}  {check.found}")
        typer.echo(f"  {'':<{width}}  gives: {check.gives}")
        if check.remedy:
            typer.echo(f"  {'':<{width}}  to do: {check.remedy}")
    if peaks is not None:
        _print_peaks(peaks)
    is_ready = next(check for check in checks if check.name == "torch").status == OK
    shared.say("Next: xsp-post run --model resnet50" if is_ready else "Next: xsp-post ingest CAPTURE")


# package, module, what it gives, extra
_PACKAGES = (
    ("ncu-report", "ncu_report", "reading .ncu-rep files without ncu", "ncu"),
    ("dask", "distributed", "batch over a cluster", "cluster"),
    ("perfetto", "perfetto", "export to Perfetto", "perfetto"),
    ("mcp", "mcp", "xsp-post mcp: answers for assistants", "mcp"),
    ("xlsxwriter", "xlsxwriter", "export to spreadsheets (xlsx)", "xlsx"),
    ("vl-convert-python", "vl_convert", "charts as pictures (png, svg)", "pictures"),
)


def all_checks() -> list[Check]:
    """Every check, in the order they are shown. Starts nothing that lasts; torch is not imported."""
    packages = (_package(name, module, gives, f"pip install 'xsp-post[{of}]'") for name, module, gives, of in _PACKAGES)
    nvtx = _package("nvtx", "nvtx", "ranges that nsys and ncu see", "pip install 'xsp-post[run]'")
    from xsp_post.workload import collectors

    seen = (collectors.get(name).check() for name in ("nsys", "ncu"))  # as their collectors see them
    tools = [Check(one.name, OK if one.is_available else MISSING, f"{one.found} {one.version}".strip(), one.gives,
                   one.remedy) for one in seen]  # fmt: skip
    return [_gpu(), _torch(), _provenance(), nvtx, *tools, _counters_permitted(), *packages]


def _gpu() -> Check:
    from xsp_post.hardware import machine
    from xsp_post.model.schemas.units import format_bytes, format_hz

    gives = "levels M and M/L on the GPU, and its kernels at M/L/G"
    found = machine.gpus()
    if not found:
        return Check(
            "GPU", MISSING,
            f"no NVIDIA GPU; the CPU is {machine.cpu_name()} with {machine.usable_cpu_count()} cores", gives,
            "if the machine has a GPU: install its driver (nvidia-smi must work); runs use the CPU",
        )  # fmt: skip
    texts = [
        f"{gpu.name}, {format_bytes(gpu.memory_bytes)}, driver {gpu.driver_version}, SM clock "
        f"{format_hz(gpu.sm_clock_hz)} of {format_hz(gpu.max_sm_clock_hz)}"
        for gpu in found
    ]
    if any(gpu.mig_mode == "Enabled" for gpu in found):
        return Check("GPU", WARN, "; ".join(texts), gives, "MIG is on: nsys needs --trace cuda-sw, ncu may be refused")
    if any(gpu.persistence_mode == "Disabled" for gpu in found):
        return Check("GPU", WARN, "; ".join(texts), gives, "for steady numbers: nvidia-smi -pm 1, and lock the clocks")
    return Check("GPU", OK, "; ".join(texts), gives)


_NODES = "names of graph nodes"
_DRIVER = 590  # of CUDA 13.1, the first with cudaGraphNodeGetToolsId
# what it is → the file of torch that writes it, and a word in it
_WRITTEN = (
    ("sources of compiled kernels", "_inductor/debug.py", b"inductor_provenance_tracking"),
    (_NODES, "cuda/_graph_annotations.py", b"def mark_kernels"),
    ("stacks of graph nodes", "cuda/_graph_annotations.py", b"kernel_py_stacks"),
    ("edges of graphs and counters", "profiler/_cuspy/trace.py", b"Counters"),
)


def _provenance() -> Check:
    """What the installed torch writes about graphs and compiled code, by the files that it has: it is not imported."""
    from xsp_post.hardware import machine

    gives = "modules inside compiled code and CUDA graphs (docs/graphs-and-compile.md)"
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return Check("provenance", MISSING, "not installed", gives, "pip install 'torch>=2.12'")
    files = [(what, Path(spec.origin).parent / name, word) for what, name, word in _WRITTEN]
    known = [what for what, file, word in files if file.is_file() and word in file.read_bytes()]
    found = "torch writes " + (", ".join(known) or "nothing of them")
    if _NODES not in known:
        return Check("provenance", WARN, found, gives, "pip install 'torch>=2.12'")
    if importlib.util.find_spec("cuda") is None:
        found += "; without cuda-bindings annotations do nothing"
        return Check("provenance", WARN, found, gives, "pip install 'cuda-bindings>=13.1'")
    drivers = [gpu.driver_version.partition(".")[0] for gpu in machine.gpus()]
    if any(one.isdigit() and int(one) < _DRIVER for one in drivers):
        found += "; with this driver annotations do nothing"
        return Check("provenance", WARN, found, gives, f"install a driver of CUDA 13.1 or newer ({_DRIVER})")
    return Check("provenance", OK, found, gives)


def _torch() -> Check:
    from xsp_post.hardware import machine

    check = _package("torch", "torch", "xsp-post run: models, ranges, the embedded collector",
                     "pip install 'xsp-post[run]'")  # fmt: skip
    if check.status == OK and "+cpu" in check.found and machine.gpus():
        return Check(check.name, WARN, f"{check.found}, a CPU build", check.gives, "install a CUDA build of torch")
    return check


def _package(name: str, module: str, gives: str, remedy: str) -> Check:
    """Whether a distribution is installed; it is not imported."""
    if importlib.util.find_spec(module) is None:
        return Check(name, MISSING, "not installed", gives, remedy)
    return Check(name, OK, f"{name} {package_version(name) or 'of unknown version'}", gives)


def _counters_permitted() -> Check:
    """Whether the driver lets an ordinary user read GPU counters (ERR_NVGPUCTRPERM where it does not)."""
    from xsp_post.workload.collectors.ncu import is_restricted

    gives, is_limited = "ncu for ordinary users", is_restricted()
    if is_limited is None:
        return Check("GPU counters", MISSING, "no NVIDIA driver found", gives)
    if not is_limited:
        return Check("GPU counters", OK, "open to every user", gives)
    if os.geteuid() == 0:
        return Check("GPU counters", OK, "for administrators only; you are administrator", gives)
    return Check(
        "GPU counters", WARN, "for administrators only (RmProfilingAdminOnly is 1)", gives,
        "run as administrator, or load the module with NVreg_RestrictProfilingToAdminUsers=0 "
        "(developer.nvidia.com/ERR_NVGPUCTRPERM)",
    )  # fmt: skip


def _measured_peaks(output: Path | None, force: bool) -> dict[str, Any]:
    """This device's own ceilings (copy bandwidth, matrix product per format), written where wanted."""
    from xsp_post.commands.run import device_of

    try:
        from xsp_post.workload.peaks import measure_peaks
    except ImportError:
        raise ToolError("Measuring peaks needs torch, which is not installed.", code="torch-missing") from None
    with step("measuring the peaks of this device …"):
        table = measure_peaks(device_of("auto"))
    if output is not None:
        write_text(output, json.dumps(table, indent=1) + "\n", force)
    return table


def _print_peaks(table: dict[str, Any]) -> None:
    from xsp_post.model.schemas.units import format_bytes_per_s, format_flop_per_s

    typer.echo(f"Measured on {table['gpu_name']}:")
    for key, value in table.items():
        if key.endswith("_flop_per_s"):
            typer.echo(f"  {key.removesuffix('_flop_per_s'):<12} {format_flop_per_s(value)}")
        elif key == "memory_bandwidth_bytes_per_s":
            typer.echo(f"  {'copy':<12} {format_bytes_per_s(value)}")
