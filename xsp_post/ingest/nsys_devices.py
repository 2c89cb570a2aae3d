"""Captures in: the GPUs of an Nsight Systems export and which process calls them by which number."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, finding
from xsp_post.ingest.tables import TableSource, real, whole


def device_frame(source: TableSource, processes: pd.DataFrame) -> pd.DataFrame:
    """Each CUDA device of each process with the hardware facts of its GPU."""
    gpu_columns = ("id", "cuDevice", "name", "smCount", "clockRate", "memoryBandwidth", "totalMemory", "l2CacheSize",
                   "computeMajor", "computeMinor", "deviceId", "uuid", "busLocation")  # fmt: skip
    gpus: dict[int, dict[str, Any]] = {}
    for row in source.rows("TARGET_INFO_GPU", gpu_columns):
        facts = dict(zip(gpu_columns, row))
        gpus[whole(facts["id"], whole(facts["deviceId"], 0))] = facts
    if not gpus:
        old = ("deviceId", "name", "globalMemoryBandwidth", "numMultiprocessors", "coreClockRate",
               "computeCapabilityMajor", "computeCapabilityMinor")  # fmt: skip
        for number, name, bandwidth, sms, clock, major, minor in source.rows("TARGET_INFO_CUDA_GPU", old):
            gpus[whole(number, 0)] = {
                "name": name, "memoryBandwidth": bandwidth, "smCount": sms, "clockRate": clock,
                "computeMajor": major, "computeMinor": minor,
            }  # fmt: skip
    same = _physical(gpus)
    by_uuid = {str(facts["uuid"]).lower(): gpu for gpu, facts in gpus.items() if facts.get("uuid")}
    of_process: dict[tuple[int, int], int] = {}
    named = ("gpuId", "cudaId", "pid", "uuid")
    for gpu, cuda, pid, uuid in source.rows("TARGET_INFO_CUDA_DEVICE", named):
        found = by_uuid.get(str(uuid).lower(), whole(gpu))
        if found >= 0 and whole(cuda) >= 0 and whole(pid) >= 0:
            of_process[whole(pid), whole(cuda)] = same.get(found, found)
    rows = []
    for index, pid in enumerate(processes["process_id"].tolist()):
        mine = {cuda: gpu for (p, cuda), gpu in of_process.items() if p == pid} or {g: g for g in gpus}
        for cuda, gpu in sorted(mine.items()):
            if max(cuda, gpu) >= 2**31:  # a damaged export: numbers of devices are int32
                continue
            facts = gpus.get(gpu, {})
            major, minor = facts.get("computeMajor"), facts.get("computeMinor")
            rows.append((
                index, cuda, gpu, str(facts.get("name") or ""), _amount(facts.get("smCount")),
                real(facts.get("clockRate")) or np.nan, real(facts.get("memoryBandwidth")) or np.nan,
                _amount(facts.get("totalMemory")), _amount(facts.get("l2CacheSize")),
                f"{major}.{minor}" if major is not None else "",
            ))  # fmt: skip
    columns = ["process_index", "device_id", "gpu_index", "gpu_name", "sm_count", "clock_hz",
               "memory_bandwidth_bytes_per_s", "memory_bytes", "l2_bytes", "compute_capability"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _amount(value: object) -> int:
    """A fact of a GPU, −1 unknown: NULL, 0, text, or more than a float holds exactly, as no GPU has."""
    number = whole(value)
    return number if 0 < number < 2**53 else -1


def _physical(gpus: dict[int, dict[str, Any]]) -> dict[int, int]:
    """Every GPU's number, or that of the first one with the same UUID (without UUIDs: at the same place of the bus)."""
    first: dict[str, int] = {}
    result = {}
    for gpu in sorted(gpus):
        identity = str(gpus[gpu].get("uuid") or gpus[gpu].get("busLocation") or f"GPU {gpu}").lower()
        result[gpu] = first.setdefault(identity, gpu)
    return result


def assumed_identity(source: TableSource, processes: pd.DataFrame, activities: pd.DataFrame) -> list[Finding]:
    """A finding where several processes used a device of one number and the capture does not say which GPU each of
    them means by it: they are taken as one GPU."""
    process = activities["process_index"].to_numpy()
    if not len(process) or (process == process[0]).all():
        return []
    used = activities[["process_index", "device_id"]].drop_duplicates()
    known = {whole(pid) for (pid,) in source.rows("TARGET_INFO_CUDA_DEVICE", ("pid",))}
    pid = processes["process_id"].to_numpy()[used["process_index"].to_numpy()]
    unknown = used[~np.isin(pid, list(known))]
    shared = unknown["device_id"][unknown["device_id"].duplicated(keep=False)]
    if shared.empty:
        return []
    numbers = ", ".join(f"GPU {number}" for number in sorted(shared.unique().tolist())[:8])
    return [finding("gpu-identity-assumed", count=len(shared), example=f"{numbers} of {len(shared)} processes")]


# -- Captures in: problems that nsys reported while recording (DIAGNOSTIC_EVENT) → findings, the most relevant first ---

_SERIOUS = (2, 3)  # severity: warning, error
# Events are missing from the recording.
_LOSS = re.compile(
    r"not all .*(?:collected|recorded)|\blost\b|dropped|discard|overflow|incomplete|truncat|out of memory|"
    r"(?:size|time|disk) limit|buffers? (?:was|were|is|are) full|no space left",
    re.IGNORECASE,
)
# About what this program does not read: samples of the CPU, schedules, symbols, graphics, calls of the system.
_BESIDE = re.compile(
    r"\bCPU\b.*(?:sampl|backtrace)|\bIP samples|perf[_ ]event|paranoid|context switch|scheduling information|"
    r"\bMMAP\b|symbol(?:s|ic)? .*(?:resolve|process)|debuginfod|OpenGL|Vulkan|OS runtime|unwind|DWARF",
    re.IGNORECASE,
)
# Said of every process that did not use the library, whatever the others did.
_OF_ONE_PROCESS = re.compile(
    r"No (?P<a>\w+) events collected|(?P<b>\w+) profiling might have not been started", re.IGNORECASE
)
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/](?:[^\s'\"()\\/]+[\\/])+")
_NUMBER = re.compile(r"\d+")


def without_paths(text: str) -> str:
    """Folders stay out of findings: they hold user names."""
    return _PATH.sub("", text)


def diagnostic_findings(rows: Sequence[tuple[object, object]], *, has_kernels: bool) -> list[Finding]:
    """Findings of (severity, text) rows: events lost, other problems, notes; equal texts once, errors first."""
    found: dict[str, list[tuple[int, str]]] = {"diagnostic-loss": [], "diagnostic-event": [], "diagnostic-note": []}
    for severity, said in rows:
        if severity in _SERIOUS:
            text = " ".join(without_paths(str(said)).split())
            found[_code(text, has_kernels)].append((-int(str(severity)), text))
    result = []
    for code, texts in found.items():
        if texts:
            texts.sort(key=lambda one: one[0])
            distinct = {_NUMBER.sub("#", text): text for _, text in texts}
            example = " | ".join(list(distinct.values())[:3])
            result.append(finding(code, count=len(texts), example=example))
    return result


def _code(text: str, has_kernels: bool) -> str:
    of_process = _OF_ONE_PROCESS.search(text)
    if of_process:
        is_cuda = "cuda" in (of_process["a"] or of_process["b"]).lower()
        return "diagnostic-event" if is_cuda and not has_kernels else "diagnostic-note"
    if _BESIDE.search(text):
        return "diagnostic-note"
    return "diagnostic-loss" if _LOSS.search(text) else "diagnostic-event"
