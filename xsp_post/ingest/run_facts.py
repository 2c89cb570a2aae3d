"""Capture → Trace, for captures of `xsp-post run`: settings and facts of the run are added to the trace.

The manifest beside the recording says level, batch size, model and device (`Provenance`); ``facts.json``
says each layer's shape, flops, least bytes and allocated bytes (`Trace.attributes`), joined to the ranges by
(phase, module path, call index) as the ranges' texts say them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import nest
from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding, finding
from xsp_post.model import capture
from xsp_post.model.capture import DONE, FAILED, Capture
from xsp_post.model.counters import DURATION, CounterReport
from xsp_post.model.trace import Trace
from xsp_post.names import range_text

_NO_PATH = "/"  # of a range that is neither a layer's nor a model's; no module path holds it
_NUMBERS = ("flop_count", "least_bytes", "allocated_bytes")


def with_capture(trace: Trace, made: Capture) -> Trace:
    """The trace with a capture's provenance and layer facts; a new Trace, the old one stays as it is."""
    environment = made.environment
    provenance = replace(
        trace.provenance, source_name=f"{made.directory.name}/{trace.provenance.source_name}", level=made.level,
        collector=made.collector, batch_size=made.batch_size, run_process=made.process,
        workload_name=str(made.settings.get("model", "")), framework=str(environment.get("framework", "")),
        gpu_name=str(environment.get("device_name", "")) or trace.provenance.gpu_name,
        driver_version=str(environment.get("driver_version", "")) or trace.provenance.driver_version,
        tool_version=str(made.settings.get("tool_version", "")) or trace.provenance.tool_version,
    )  # fmt: skip
    findings = list(trace.findings)
    path = made.path("facts")
    facts = capture.read_json(path) if path is not None and path.is_file() else {}
    attributes = trace.attributes
    if "layers" in facts:
        attributes = _attributes(trace, _known_layers(facts), made.batch_size)
        if facts.get("allocated_source") == "output tensors":
            findings.append(finding("allocation-is-output-size"))
    findings += _hook_effect(facts.get("hook_effect") or {})
    devices = trace.devices
    is_cpu = devices["device_id"] < 0
    if provenance.gpu_name and is_cpu.any():  # not just "CPU": its peaks are found by its name
        devices = devices.assign(gpu_name=devices["gpu_name"].mask(is_cpu, provenance.gpu_name))
    return replace(trace, provenance=provenance, attributes=attributes, devices=devices, findings=findings)


_NAMED = 3  # operators that a finding names, each way


def _hook_effect(effect: dict[str, Any]) -> list[Finding]:
    """A finding where one iteration with layer ranges runs other operators (or kernels) than one without."""
    without, hooked = effect.get("without") or {}, effect.get("with") or {}
    if without == hooked:
        return []
    sides = []
    for side, mine, others in (("without ranges", without, hooked), ("with them", hooked, without)):
        more = {name: count - others.get(name, 0) for name, count in mine.items() if count > others.get(name, 0)}
        largest = sorted(more, key=lambda name: (others.get(name, 0) > 0, -more[name]))  # what only one of them runs
        named = [f"{more[name]} × {name}" for name in largest[:_NAMED]]
        rest = [f"{len(more) - _NAMED} more"] if len(more) > _NAMED else []
        sides.append(f"more {side}: {', '.join(named + rest) or 'none'}")
    count = sum(1 for name in {*without, *hooked} if without.get(name, 0) != hooked.get(name, 0))
    return [finding("hooks-change-program", count=count, example=f"{effect.get('kind')} {'; '.join(sides)}")]


def _known_layers(facts: dict[str, Any]) -> pd.DataFrame:
    """The layers' facts, followed by the functional work of the modules around them and of the model (path '')."""
    layers = pd.DataFrame(facts["layers"])
    functional = pd.DataFrame(facts.get("functional") or {})
    if functional.empty:
        return layers
    keys = ["phase", "layer_path", "call_index"]
    return pd.concat([layers, functional], ignore_index=True).drop_duplicates(keys)


def _attributes(trace: Trace, facts: pd.DataFrame, batch_size: int) -> pd.DataFrame:
    """`Trace.attributes` with the facts of the layers' ranges; −1 and '' where a range is none of them."""
    keys = _keys(trace)
    joined = keys.merge(facts, how="left", on=["phase", "layer_path", "call_index"], validate="many_to_one")
    attributes = trace.attributes.reindex(trace.spans.index).copy()
    for name in _NUMBERS:
        is_known = joined[name].notna().to_numpy()  # of functional work only flop and bytes are
        said = attributes[name].fillna(-1) if name in attributes else -1  # by the ranges themselves
        attributes[name] = np.where(is_known, joined[name].to_numpy(float), said).astype(np.int64)
    for name in ("shape_text", "layer_type"):
        before: Any = (
            attributes[name].astype(object).fillna("") if name in attributes else pd.Series("", index=attributes.index)
        )
        is_known = joined[name].notna().to_numpy()
        attributes[name] = pd.Categorical(np.where(is_known, joined[name].to_numpy(object), before.to_numpy(object)))
    attributes["batch_size"] = np.where(keys["is_model"].to_numpy(), batch_size, -1)
    return attributes


def _keys(trace: Trace) -> pd.DataFrame:
    """Per range: phase of the model range around it, module path and call index; '' and −1 where none."""
    name_id = trace.spans["name_id"].to_numpy()
    unique, inverse = np.unique(name_id, return_inverse=True)
    parsed = [range_text.parse(str(trace.strings[i])) if i >= 0 else None for i in unique.tolist()]
    is_model_text = [p is not None and p.kind in (range_text.MODEL, range_text.WARMUP) for p in parsed]
    is_layer_text = [p is not None and p.kind == range_text.LAYER for p in parsed]
    names = [p.name if p is not None else "" for p in parsed]
    calls = [p.index if p is not None else -1 for p in parsed]
    is_model, is_layer = np.array(is_model_text, bool)[inverse], np.array(is_layer_text, bool)[inverse]
    name = np.array(names, dtype=object)[inverse]
    columns = ["thread_index", "start_ns", "end_ns"]
    models = trace.spans[is_model]
    around = nest(*(models[column].to_numpy().astype(np.int64) for column in columns)).innermost(
        *(trace.spans[column].to_numpy().astype(np.int64) for column in columns)
    )
    phases = np.append(name[is_model], "")
    return pd.DataFrame({
        "phase": phases[around], "layer_path": np.where(is_layer, name, np.where(is_model, "", _NO_PATH)),
        "call_index": np.where(is_layer, np.array(calls, np.int64)[inverse], -1), "is_model": is_model,
    })  # fmt: skip


_SAME_KERNELS = ("name", "range_path", "workload_type", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def failed_sets(made: Capture) -> list[Finding]:
    """The metric sets of this capture's batch size that its run tried in vain; reads the folders beside it."""
    alike = []
    for file in sorted(made.directory.parent.glob(f"*/{capture.CAPTURE_NAME}")):
        try:
            other = capture.load_capture(file)
        except CaptureError:
            continue  # reported where the run directory is read
        if (other.level, other.batch_size) == (made.level, made.batch_size):
            alike.append(other)
    recorded = {other.metric_set for other in alike if other.status == DONE}
    failed = {other.metric_set: other for other in alike if other.status == FAILED}
    return [
        finding("counters-set-failed", example=f"{name}, batch {other.batch_size}: {other.reason}")
        for name, other in failed.items()
        if name and name not in recorded
    ]


def one_per_program(reports: Sequence[CounterReport]) -> list[CounterReport]:
    """Of reports that complement each other (more metrics of the same kernels in the same order), the first.

    A report that has no metric of its own is another recording, and stays.
    """
    chosen = list[CounterReport]()
    programs = list[tuple[CounterReport, set[str]]]()  # the first report of some kernels, and all metrics seen of them
    for report in reports:
        names = set(report.metrics["metric_name"].cat.categories) - {DURATION}
        for first, seen in programs:
            is_alike = report.actions[list(_SAME_KERNELS)].equals(first.actions[list(_SAME_KERNELS)])
            if is_alike and report.batch_size == first.batch_size and names - seen:
                seen |= names
                break
        else:
            chosen.append(report)
            programs.append((report, names))
    return chosen
