"""`xsp-post doctor`: which tools for measuring are installed, and what each missing one would add."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import typer

from xsp_post.base.errors import ToolError
from xsp_post.base.lazy import package_version
from xsp_post.base.output import write_text
from xsp_post.base.progress import step
from xsp_post.base.texts import TextTable, read_blocks
from xsp_post.commands import shared

OK, MISSING, WARN = "ok", "missing", "warning"
_MARKS = {OK: "✓", MISSING: "✗", WARN: "!"}
_BLOCKS = TextTable(lambda: {one.name: one for one in read_blocks(Path(__file__).with_name("doctor.txt"))})


class Check(NamedTuple):
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
        shared.print_json("doctor", {"checks": [check._asdict() for check in checks], "peaks": peaks})
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


def _check(name: str, status: str, case: str = "", found: str = "", **slots: object) -> Check:
    """A check with the texts of its block in doctor.txt; what the block says of the case goes behind `found`."""
    texts = _BLOCKS[name].texts()
    said, remedy = (texts.get(key, "").format(**slots) for key in (case, f"{case}, to do"))
    return Check(name, status, f"{found}{said}", texts["gives"], remedy)


def all_checks() -> list[Check]:
    """Every check, in the order they are shown. Starts nothing that lasts; torch is not imported."""
    from xsp_post.workload import collectors

    seen = (collectors.get(name).check() for name in ("nsys", "ncu"))  # as their collectors see them
    tools = [Check(one.name, OK if one.is_available else MISSING, f"{one.found} {one.version}".strip(), one.gives,
                   one.remedy) for one in seen]  # fmt: skip
    packages = (_package(name) for name in ("ncu-report", "dask", "perfetto", "mcp", "xlsxwriter", "vl-convert-python"))
    return [_gpu(), _torch(), _provenance(), _package("nvtx"), *tools, _counters_permitted(), *packages]


def _gpu() -> Check:
    from xsp_post.hardware import machine
    from xsp_post.model.schemas.units import format_bytes, format_hz

    found = machine.gpus()
    if not found:
        return _check("GPU", MISSING, "none", cpu=machine.cpu_name(), cores=machine.usable_cpu_count())
    text = "; ".join(
        f"{gpu.name}, {format_bytes(gpu.memory_bytes)}, driver {gpu.driver_version}, SM clock "
        f"{format_hz(gpu.sm_clock_hz)} of {format_hz(gpu.max_sm_clock_hz)}"
        for gpu in found
    )
    if any(gpu.mig_mode == "Enabled" for gpu in found):
        return _check("GPU", WARN, "MIG", text)
    if any(gpu.persistence_mode == "Disabled" for gpu in found):
        return _check("GPU", WARN, "unsteady", text)
    return _check("GPU", OK, found=text)


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

    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return _check("provenance", MISSING, "missing")
    files = [(what, Path(spec.origin).parent / name, word) for what, name, word in _WRITTEN]
    known = [what for what, file, word in files if file.is_file() and word in file.read_bytes()]
    found = "torch writes " + (", ".join(known) or "nothing of them")
    if _NODES not in known:
        return _check("provenance", WARN, "too old", found)
    if importlib.util.find_spec("cuda") is None:
        return _check("provenance", WARN, "no bindings", found)
    drivers = [gpu.driver_version.partition(".")[0] for gpu in machine.gpus()]
    if any(one.isdigit() and int(one) < _DRIVER for one in drivers):
        return _check("provenance", WARN, "old driver", found, driver=_DRIVER)
    return _check("provenance", OK, found=found)


def _torch() -> Check:
    from xsp_post.hardware import machine

    check = _package("torch")
    if check.status == OK and "+cpu" in check.found and machine.gpus():
        return _check("torch", WARN, "CPU build", check.found)
    return check


def _package(name: str) -> Check:
    """Whether a distribution is installed; it is not imported."""
    if importlib.util.find_spec(_BLOCKS[name].title) is None:
        return _check(name, MISSING, "missing", "not installed")
    return _check(name, OK, found=f"{name} {package_version(name) or 'of unknown version'}")


def _counters_permitted() -> Check:
    """Whether the driver lets an ordinary user read GPU counters (ERR_NVGPUCTRPERM where it does not)."""
    from xsp_post.workload.collectors.ncu import is_restricted

    is_limited = is_restricted()
    if is_limited is None:
        return _check("GPU counters", MISSING, "none")
    if not is_limited:
        return _check("GPU counters", OK, "open")
    if os.geteuid() == 0:
        return _check("GPU counters", OK, "administrator")
    return _check("GPU counters", WARN, "restricted")


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
