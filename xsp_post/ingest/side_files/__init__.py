"""``ingest``: files that a framework wrote beside a trace → what they say of its kernels, joined to the ``Trace``.

Known by content: annotations of CUDA graph nodes (a pickle of plain values), the Python stack of each node's launch
(gzipped JSON), and what PyTorch's compiler wrote (`inductor`). A file that is none of these, damaged, or of another
program is refused by a finding, and nothing of it is used. Most captures have none: what reads them is imported then.
"""

import io
import json
import os
import pickle
import re
from collections import defaultdict
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import with_more
from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import finding
from xsp_post.ingest import collective_messages
from xsp_post.ingest.json_text import head, head_bytes, open_bytes, open_text, value_of
from xsp_post.model.trace import Trace
from xsp_post.names.families import families
from xsp_post.names.file_names import stated_rank

if TYPE_CHECKING:
    from xsp_post.ingest.side_files.inductor import Call

# Files of a pickle's size hold a million graph nodes; more is none.
_MOST_PICKLED, _MOST_TEXT, _MOST_FILES, _LONGEST_TEXT = 64 << 20, 128 << 20, 1_000, 500
# A file whose graphs ran must know their nodes: of those that it names so many must have run.
_LEAST_SHARE = 0.9
# Named so, a file beside the capture is looked at; in a folder that is given, each that begins as a side file does.
_NAMES = ("*annotation*.pkl*", "*stacks*.json*", "dedicated_log_torch_trace_*.log*", "kernel_information.json*")
_SUFFIXES = re.compile(r"\.(?:pkl|pickle|json|log|txt)(?:\.gz)?$")
_INNER = r'"(?:stack_traces|p(?:re|ost)_grad_nodes)"'
_JSON = re.compile(rf'\s*\{{\s*(?:"\d+"\s*:\s*"|"[^"]+"\s*:\s*\{{\s*{_INNER}|"(?:preToPost|cppCodeToPost)")')
_MAPPINGS = "node_mappings.json"
_REGION_KEYS = ("name", "str", "annotation", "module", "module_fqn")


class _Refused(Exception):
    """The text says why nothing of a file is used."""


def with_side_files(trace: Trace, given: tuple[Path, ...], source: Path) -> Trace:
    """The trace with what side files say: those ``given`` (files or folders), and those beside ``source``, the
    capture's path, that are named after it. Raises FileNotFoundError for one that is given and is not there."""
    for one in given:
        one.stat()
    ranks = set(trace.processes["rank"].tolist()) - {-1}
    found = [(file, one.parent) for one in given for file in _files(one)]
    for path, root in [*found, *((file, file.parent) for file in _beside(source))]:
        names = reversed(path.relative_to(root).parts)  # the file's, the folders' around it
        rank = next((one for one in map(stated_rank, names) if one >= 0), -1)
        if rank >= 0 and ranks and rank not in ranks:
            continue  # another rank's
        try:
            trace = _joined(trace, path, rank)
        except (_Refused, NotPlain, CaptureError, OSError, EOFError) as error:
            reason = str(error).removeprefix(f"{path}: ") or type(error).__name__
            trace = replace(
                trace, findings=[*trace.findings, finding("side-file-refused", example=f"{path.name}: {reason}")]
            )
    return trace


def _files(path: Path) -> list[Path]:
    from xsp_post.ingest.side_files import inductor

    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if _SUFFIXES.search(file.name) and file.is_file())
    found = [file for file in files[:_MOST_FILES] if _is_side_file(file)]
    logs = [file.name for file in found if inductor.is_log(head(file, 4096))]  # a debug folder's files say no more
    return [file for file in found if not logs or not file.name.endswith(_MAPPINGS)] or [path]


def _is_side_file(path: Path) -> bool:
    from xsp_post.ingest.side_files import inductor

    start = head(path, 4096)
    return _is_pickle(path) or inductor.is_log(start) or _JSON.match(start) is not None


def _is_pickle(path: Path) -> bool:
    return head_bytes(path, 64)[:1] == b"\x80" or path.name.removesuffix(".gz").endswith((".pkl", ".pickle"))


def _beside(source: Path) -> list[Path]:
    """Side files that are named after the capture (``run.annotations.pkl``, ``run_torch_trace/`` beside
    ``run.pt.trace.json.gz``), and those of its rank where torch itself puts them."""
    stem = source.name.split(".")[0]
    try:
        near = sorted(name for name in os.listdir(source.parent) if stem and name.startswith(stem))
    except OSError:
        near = []
    tails = {name: name.removeprefix(stem) for name in near}
    wanted = [source.parent / name for name, tail in tails.items() if any(fnmatch(tail, f".{one}") for one in _NAMES)]
    folders = [source.parent / name for name, tail in tails.items() if tail[1:] == "torch_trace"]
    if stem.isdigit():
        wanted += sorted(source.parent.parent.glob(f"kernel_annotations_rank{int(stem)}_*.pkl"))[:1]
    return [
        *(one for one in wanted if one != source),
        *(file for one in folders for file in _files(one) if file != one),
    ]


def _joined(trace: Trace, path: Path, rank: int) -> Trace:
    """Raises `_Refused`, `NotPlain`, `CaptureError` with the reason why nothing of the file is used."""
    from xsp_post.ingest.side_files import inductor

    if path.is_dir():
        raise _Refused("holds no file that PyTorch writes beside a trace")
    if _is_pickle(path):
        said = _annotations(path)
        told = {
            key: collective_messages.message_text(one) for key, entries in said.items() if (one := message(entries))
        }
        named = {key: text for key, entries in said.items() if (text := said_text(entries))}
        return _with_texts(trace, path, {"said_text_id": named, "message_text_id": told}, rank)
    if inductor.is_log(head(path, 4096)):
        return _with_calls(trace, path, inductor.read_log(path))
    try:
        with open_text(path) as stream:
            text = stream.read(_MOST_TEXT + 1)
        value = None if len(text) > _MOST_TEXT else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Refused("is no file that PyTorch writes beside a trace") from error
    if value is None:
        raise _Refused(f"holds more than {_MOST_TEXT >> 20} MiB of text")
    if isinstance(value, dict) and value and all(isinstance(one, dict) for one in value.values()):
        return _with_calls(trace, path, inductor.read_kernel_information(path))
    return _with_texts(trace, path, {"source_text_id": _stacks(value)}, rank)


def _annotations(path: Path) -> dict[int, list[dict[str, Any]]]:
    with open_bytes(path) as stream:
        data = stream.read(_MOST_PICKLED + 1)
    if len(data) > _MOST_PICKLED:
        raise _Refused(f"is larger than {_MOST_PICKLED >> 20} MiB")
    value = read_plain(data)
    if not isinstance(value, dict) or not all(type(key) is int for key in value):
        raise _Refused("holds no annotations by the number of a graph node")
    return {key: said_entries(entries) for key, entries in value.items()}


def said_entries(said: Any) -> list[dict[str, Any]]:
    """The annotations of one kernel, the outer ones first; among the arguments of an event they are JSON in one."""
    entries: list[dict[str, Any]] = []
    for entry in said if isinstance(said, list) else [said]:
        values = entry if isinstance(entry, dict) else {"name": entry}
        inner = values.get("annotation")
        listed = value_of(inner.encode()) if isinstance(inner, str) and inner.startswith("[{") else None
        entries += [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else [values]
    return entries


def message(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """What `said_entries` say of a collective, the inner ones first; empty: of none."""
    said = {key: value for values in entries for key, value in values.items()}
    return said if collective_messages.NAME in said else {}


def said_text(entries: list[dict[str, Any]]) -> str:
    """`said_entries` → their regions, one a line, after the phase; '' none."""
    regions, phase = [], ""
    for values in entries:
        texts = (values.get(key) for key in _REGION_KEYS)
        regions += [one for one in texts if isinstance(one, str) and one.strip()][:1]
        phase = str(values.get("autograd_phase") or phase)
    lines = [phase, *regions] if phase == "backward" else regions
    return "\n".join(" ".join(line.split())[:_LONGEST_TEXT] for line in lines)


def _stacks(value: Any) -> dict[int, str]:
    from xsp_post.ingest.side_files.modules import place_text

    is_known = isinstance(value, dict) and all(key.isdigit() and isinstance(one, str) for key, one in value.items())
    if not is_known or not value:
        raise _Refused("holds no stacks by the number of a graph node")
    first = {int(key[:20]): one.strip().split("\n")[0].rsplit(":", 2) for key, one in value.items()}
    return {key: place_text(parts[0], parts[1]) for key, parts in first.items() if len(parts) == 3}


def _with_texts(trace: Trace, path: Path, texts: dict[str, dict[int, str]], rank: int) -> Trace:
    """By column a text per activity, joined by graph node: its number alone, or below that of its graph."""
    activities = trace.activities
    node, graph = (activities[name].to_numpy().astype(np.int64) for name in ("graph_node_id", "graph_id"))
    process = activities["process_index"].to_numpy()
    mine = node != 0
    if rank >= 0 and (trace.processes["rank"] == rank).any():
        mine &= trace.processes["rank"].to_numpy()[process] == rank
    if not mine.any():
        raise _Refused("no kernel of this recording has the number of a graph node")
    if len(np.unique(process[mine])) > 1:
        raise _Refused("several processes replay graphs, and its name states no rank")
    known = np.array([key for key in {key: 0 for of in texts.values() for key in of} if 0 <= key < 1 << 63], np.int64)
    low = node & 0xFFFFFFFF
    forms = [np.where(mine, one, 0) for one in (node, (graph << 32) | low, low)]
    ids = max(forms, key=lambda one: int(np.isin(one, known).sum()))
    ran = np.unique(ids[mine])
    of_graphs = known[np.isin(known >> 32, ran >> 32)]
    hit = np.isin(of_graphs, ran)
    if not hit.any():
        raise _Refused(f"none of its {len(known):,} graph nodes ran in this recording")
    if hit.mean() < _LEAST_SHARE:
        raise _Refused(f"it names {len(of_graphs):,} nodes of these graphs, of which {int(hit.sum()):,} ran")
    found, strings = mine & np.isin(ids, of_graphs[hit]), trace.strings
    talking = found & np.isin(ids, np.array(list(texts.get("message_text_id", {})), np.int64))
    names = [str(strings[one]) for one in np.unique(activities["name_id"].to_numpy()[talking]).tolist()]
    if names and "communication" not in families(names):
        raise _Refused(f"it names collectives on {int(talking.sum()):,} kernels, none of which is one here")
    for column, of_node in texts.items():
        number, unique = pd.factorize(pd.Series(np.where(found, ids, -1)).map(of_node).to_numpy(object))
        values: Any = activities.get(column, -1)
        activities = activities.assign(
            **{column: np.where(found & (number >= 0), len(strings) + number, values).astype(np.int32)}
        )
        strings = with_more(strings, unique.tolist())
    said = f"{path.name}: {int(found.sum()):,} of {int(mine.sum()):,} in graphs"
    raised = finding("side-file-joined", count=int(found.sum()), example=said)
    return replace(trace, strings=strings, activities=activities, findings=[*trace.findings, raised])


def _with_calls(trace: Trace, path: Path, graphs: "list[list[Call]]") -> Trace:
    if not any(graphs):
        raise _Refused("holds no kernels of a compiled graph; was INDUCTOR_PROVENANCE=1 set?")
    first = int(trace.compiled_calls["graph"].max()) + 1 if len(trace.compiled_calls) else 0
    numbered = [(first + k, n, call) for k, graph in enumerate(graphs) for n, call in enumerate(graph)]
    calls = [(k, n, c.symbol, c.module, c.source, c.is_backward, path.name) for k, n, c in numbered]
    parts = [(k, n, module, count) for k, n, call in numbered for module, count in call.modules.items()]
    return replace(
        trace, compiled_calls=_appended(trace.compiled_calls, calls),
        compiled_modules=_appended(trace.compiled_modules, parts),
    )  # fmt: skip


def _appended(frame: pd.DataFrame, rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    added = pd.DataFrame(rows, columns=list(frame))
    return pd.concat([frame, added], ignore_index=True) if len(frame) else added


_PLAIN = (
    " PROTO FRAME STOP MARK INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT UNICODE BINUNICODE "
    "SHORT_BINUNICODE BINUNICODE8 NONE NEWTRUE NEWFALSE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 "
    "TUPLE2 TUPLE3 SETITEM SETITEMS APPEND APPENDS MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET GLOBAL "
    "STACK_GLOBAL REDUCE "
)
_CLASSES = {
    ("collections", "defaultdict"): defaultdict, ("collections", "OrderedDict"): dict,
    ("builtins", "list"): list, ("__builtin__", "list"): list,
}  # fmt: skip


class NotPlain(Exception):
    """The text says what the pickle holds besides plain values, or that it is damaged."""


class _Loader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CLASSES:
            raise NotPlain(f"names {module}.{name}, which is no plain container: it was not executed")
        return _CLASSES[module, name]


def read_plain(data: bytes) -> Any:
    """The value of a pickle. Raises `NotPlain`."""
    import pickletools  # as long to import as this package, and few captures have a pickle beside them

    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
            name = operation.name
            if f" {name} " not in _PLAIN:
                raise NotPlain(f"holds the instruction {name}, which plain containers do not need: it was not executed")
            if name.endswith("PUT") and int(str(argument)) > count:  # a place in memory that no such file needs
                raise NotPlain("is damaged or cut off")
        return _Loader(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except Exception as error:  # whatever a damaged one makes the loader raise
        raise NotPlain("is damaged or cut off") from error
