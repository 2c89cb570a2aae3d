"""A capture → everything the product says about it, cut into named sections (`scripts/golden` hashes them).

Only the public interface is used: the command line's Typer app and `xsp_post.load`. A *section* is a column of a
table, a top-level key of a JSON document, or a part of an exported file; sections stand in *groups*
(``table kernels``, ``page``, ``export chrome``). What may differ between two machines is taken out of the values:
the version of xsp-post, paths, digits of a float beyond the twelfth.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = "example/resnet50_generated"
ENDINGS = {"nsys": ".sqlite", "kineto": ".pt.trace.json.gz", "ncu": ".ncu-rep"}
PAIRS = {"kineto/vllm_decode_cuda_graph+capture": ("vllm_decode_cuda_graph.capture", "vllm_decode_cuda_graph")}
PACKAGES = {"ncu": "ncu_report", "perfetto": "perfetto"}  # optional packages: folder or export → module it needs

CANARY = b"xsp-canary"  # stands in the shared captures wherever private values stood
Sections = dict[str, Any]  # name of a section → its values, JSON-ready
Groups = dict[str, Sections]


@dataclass(frozen=True)
class Case:
    """One capture, or several of one workload."""

    name: str  # FOLDER/STEM
    sources: tuple[Path, ...]

    @property
    def missing_package(self) -> str:
        """The optional package that is needed to read it and is not installed, or ""."""
        module = PACKAGES.get(self.name.partition("/")[0], "")
        return module if module and find_spec(module) is None else ""


def captures_folder() -> Path:
    """Where shared captures lie; the folder need not exist."""
    return Path(os.environ.get("XSP_POST_CAPTURES") or ROOT.parent / "shared/captures").resolve()


def cases() -> list[Case]:
    """The shipped example and every shared capture that is here, the largest first."""
    folder = captures_folder()
    found = [Case(EXAMPLE, (ROOT / "examples/resnet50_generated.sqlite",))]
    for kind, ending in ENDINGS.items():
        found += [
            Case(f"{kind}/{path.name.removesuffix(ending)}", (path,))
            for path in sorted((folder / kind).glob(f"*{ending}"))
        ]
    for name, stems in PAIRS.items():
        kind = name.partition("/")[0]
        sources = tuple(folder / kind / f"{stem}{ENDINGS[kind]}" for stem in stems)
        if all(path.is_file() for path in sources):
            found.append(Case(name, sources))
    return sorted(found, key=lambda case: -sum(path.stat().st_size for path in case.sources))


def outputs(case: Case) -> dict[str, dict[str, str]]:
    """All groups of one case, each section as JSON text. What a command refuses is a section: what it says."""
    temporary = Path(tempfile.mkdtemp(prefix="xsp-golden-")).resolve()
    try:
        with _inside(temporary), _made_once():
            groups = _outputs(case, temporary)
        if private := [path.name for path in _files(temporary) if CANARY in path.read_bytes()]:
            raise ValueError(f"{case.name}: private values of the capture are in {', '.join(private)}")
        clean = _cleaner(temporary, case)
        return {
            group: {name: clean(text_of(values)) for name, values in sections.items()}
            for group, sections in groups.items()
        }
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def text_of(values: Any) -> str:
    """Values as JSON text."""
    return json.dumps(values, ensure_ascii=True, sort_keys=True, separators=(",", ":"), default=_plain)


def _rounded(number: str) -> float:
    """A float at twelve significant digits: what two machines agree on."""
    return float(number) if len(number) < 14 else float(f"{float(number):.12g}")


def _parsed(text: str | bytes) -> Any:
    return json.loads(text, parse_float=_rounded)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterable[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _made_once() -> Iterator[None]:
    """One store, one graph of its tables and one report for all commands of a case: else each command reads the
    tables and makes their values, and the page and the JSON of `report` each make the same document."""
    from xsp_post import pipeline
    from xsp_post.reports import html, json_form
    from xsp_post.store import store

    class KeptStore(store.Store):
        def frame(self, name: str, columns: Sequence[str] | None = None) -> Any:
            key = name, None if columns is None else tuple(columns)
            if key not in frames:
                frames[key] = super().frame(name, columns)
            return frames[key].copy(deep=False)

    frames: dict[Any, Any] = {}
    graphs: dict[Any, Any] = {}
    documents: dict[Any, Any] = {}
    build, results_of = html.build, pipeline.results_of

    def results(paths: list[Path], options: Any = pipeline.DEFAULTS, reading: Any = None) -> Any:
        if reading is not None or pipeline.store_of(paths) is None:
            return results_of(paths, options, reading)
        key = tuple(paths), repr(options)
        if key not in graphs:
            graphs[key] = results_of(paths, options)
        return graphs[key]

    def built(results: Any, *, case: int | None = None, only: Sequence[str] = ()) -> Any:
        key = results, case, tuple(only)
        if key not in documents:
            documents[key] = build(results, case=case, only=only)
        return documents[key]

    with (
        mock.patch.object(pipeline, "results_of", results),
        mock.patch.object(store, "open_store", functools.cache(KeptStore)),
        mock.patch.object(html, "build", built),
        mock.patch.object(json_form, "build", built),
    ):
        yield


def _cleaner(temporary: Path, case: Case) -> Callable[[str], str]:
    """Takes out of a text what may differ between two runs of the same program."""
    import xsp_post

    replaced = {
        str(temporary): "FOLDER",
        **{str(path.parent): "CAPTURES" for path in case.sources},
        f"xsp-post {xsp_post.__version__}": "xsp-post VERSION",
        f"xsp-post@{xsp_post.__version__}": "xsp-post@VERSION",
    }

    def clean(text: str) -> str:
        for old, new in replaced.items():
            text = text.replace(old, new)
        return text

    return clean


def _outputs(case: Case, folder: Path) -> Groups:
    store = folder / f"{case.name.rpartition('/')[2]}.xsp.sqlite"
    groups: Groups = {"ingest": _document("ingest", *case.sources, "-o", store)}
    groups["tree"] = _document("tree", *case.sources)
    if not store.exists():
        return groups
    groups |= tables(store, by_command=case.name == EXAMPLE)
    groups["report"] = _document("report", store)
    page = folder / "page.html"
    groups["page"] = _said(lambda: _page(page), "report", store, "-o", page)
    for to, (file, read) in EXPORTS.items():
        if to in EXPORTS_LEFT_OUT.get(case.name.partition("/")[0], ()):
            continue
        if f"export {to}" in groups_left_out():
            continue
        path = folder / file
        groups[f"export {to}"] = _said(lambda path=path, read=read: read(path), "export", store, "--to", to, "-o", path)
    return groups


# -- commands ---------------------------------------------------------------------------------------------------


def _run(*arguments: object) -> tuple[str, Sections]:
    """Standard output of a command, and what it said instead where it failed."""
    from typer.testing import CliRunner

    from xsp_post.cli import app

    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    error = result.exception
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return result.stdout, {}
    if not hasattr(error, "exit_code"):
        raise error  # no sentence for the user but a fault of the program
    return "", {"(error)": {key: getattr(error, key, None) for key in ("exit_code", "code", "message", "hint")}}


def _said(read: Callable[[], Sections], *arguments: object) -> Sections:
    """What ``read`` makes of the files a command wrote, or what the command said instead."""
    _, failure = _run(*arguments)
    return failure or read()


def _document(*arguments: object) -> Sections:
    """The JSON document a command prints, one section a key."""
    stdout, failure = _run(*arguments, "--json")
    return failure or _keys(_parsed(stdout))


def _keys(document: Any) -> Sections:
    """One section a key; parts of a report that have an id are sections by it. An envelope is opened."""
    if not isinstance(document, dict):
        return {"(all)": document}
    if set(document) == {"format", "version", "data"} and isinstance(document["data"], dict):
        document = {"format": document["format"], "version": document["version"], **document["data"]}
    found: Sections = {}
    for key, value in document.items():
        if key == "sections":
            found["(sections)"] = [part["id"] for part in value]
            found |= {f"section {part['id']}": part for part in value}
        else:
            found[key] = value
    return found


def groups_left_out() -> frozenset[str]:
    """Groups that cannot be made here, because an optional package is not installed."""
    return frozenset(f"export {to}" for to, module in PACKAGES.items() if to in EXPORTS and find_spec(module) is None)


def tables(store: Path, by_command: bool = False) -> Groups:
    """Every table of a store, one section a column. ``by_command``: as `xsp-post table NAME STORE` prints it."""
    import xsp_post

    profile = xsp_post.load(store)
    groups: Groups = {}
    for name in profile:
        frame = profile.table(name)
        columns = {str(column): _values(frame[column]) for column in frame.columns}
        if by_command:
            stdout, failure = _run("table", name, store, "--json")
            groups[f"table {name}"] = failure or as_columns(_rows_of(_parsed(stdout)), list(columns))
        else:
            groups[f"table {name}"] = as_columns(columns, list(columns))
    return groups


def _rows_of(document: Any) -> dict[str, list[Any]]:
    """The rows of a table's JSON, turned into columns."""
    rows = document["data"] if isinstance(document, dict) else document
    return {key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}


def as_columns(columns: dict[str, list[Any]], order: list[str]) -> Sections:
    """A table as sections: the order of its columns, how many rows there are, and each column that has rows."""
    count = len(next(iter(columns.values()), []))
    return {"(columns)": order, "(rows)": count, **(columns if count else {})}


def _values(column: Any) -> list[Any]:
    values = column.astype(object)
    values = values.where(values.notna(), None).tolist()
    if column.dtype.kind == "f":
        return [value if value is None else float(f"{value:.12g}") for value in values]
    return list(values)


# -- files ------------------------------------------------------------------------------------------------------

_PAGE_DATA = re.compile(r'<script type="application/json" id="xsp-data">(.*?)</script>', re.S)
_CODE = re.compile(r"<(script|style)\b.*?</\1>", re.S)
_LONG_FLOAT = re.compile(r"\d+\.\d{4,}(?:e[+-]?\d+)?")
_DATASET = re.compile(r"data-[0-9a-f]{32}")  # Altair names a data set by a hash of its exact floats
_VEGA_SCHEMA = re.compile(r"https://vega\.github\.io/schema/[\w.-]+/v[\d.]+\.json")


def _page(path: Path) -> Sections:
    """The data of an HTML page by key (charts, tables and drawings by name), and its text without code."""
    html = path.read_text(encoding="utf-8")
    found = _PAGE_DATA.search(html)
    sections: Sections = {"(html)": _CODE.sub("", html).split("\n")}
    if not found:
        return sections
    data = _parsed(found[1])
    data["datasets"] = list(data.get("datasets", {}).values())
    data = json.loads(_VEGA_SCHEMA.sub("VEGA", _DATASET.sub("data", json.dumps(data))))
    for key, value in data.items():
        if key in ("charts", "drawings", "tables"):
            sections |= {f"{key} {name}": part for name, part in value.items()}
        else:
            sections[key] = value
    return sections


def _json(path: Path) -> Any:
    data = path.read_bytes()
    return _parsed(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def _chrome(path: Path) -> Sections:
    """Events by phase and category."""
    document = _json(path)
    sections: Sections = {}
    for event in document.pop("traceEvents"):
        sections.setdefault(f"events {event['ph']} {event.get('cat', '-')}", []).append(event)
    return {**document, **sections}


def _speedscope(path: Path) -> Sections:
    document = _json(path)
    profiles = {f"profile {profile['name']}": profile for profile in document.pop("profiles")}
    return {**document, **profiles}


def _jaeger(path: Path) -> Sections:
    traces = _json(path)["data"]
    spans = [span for trace in traces for span in trace.pop("spans")]
    return {"traces": traces, **as_columns(_rows_of(spans), [])}


def _otlp(path: Path) -> Sections:
    resources = _json(path)["resourceSpans"]
    spans = [span for resource in resources for scope in resource["scopeSpans"] for span in scope.pop("spans")]
    return {"resources": resources, **as_columns(_rows_of(spans), [])}


def _csv(path: Path) -> Sections:
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(io.StringIO(_rounded_text(file.read())))
    return as_columns({name: [row[i] for row in rows] for i, name in enumerate(header)}, header)


def _csv_folder(path: Path) -> Sections:
    return {file.name: _rounded_text(file.read_text(encoding="utf-8")).split("\n") for file in sorted(path.iterdir())}


def _rounded_text(text: str) -> str:
    return _LONG_FLOAT.sub(lambda found: found[0] if len(found[0]) < 14 else repr(_rounded(found[0])), text)


def _parquet_folder(path: Path) -> Sections:
    import pandas as pd

    sections: Sections = {}
    for file in sorted(path.iterdir()):
        frame = pd.read_parquet(file)
        sections[file.name] = {str(name): [str(frame[name].dtype), *_values(frame[name])] for name in frame.columns}
    return sections


def _perfetto(path: Path) -> Sections:
    """The packets of the trace as bytes: protobuf, every packet a length-delimited field 1."""
    data, packets, at = path.read_bytes(), [], 0
    while at < len(data):
        at, length, shift = at + 1, 0, 0
        while True:
            byte = data[at]
            at, length, shift = at + 1, length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        packets.append(data[at : at + length].hex())
        at += length
    return {"packets": packets}


# format → the file it is written to and how that is cut into sections
EXPORTS: dict[str, tuple[str, Callable[[Path], Sections]]] = {
    "perfetto": ("trace.perfetto-trace", _perfetto),
    "chrome": ("trace.json.gz", _chrome),
    "speedscope": ("stacks.speedscope.json", _speedscope),
    "jaeger": ("spans.jaeger.json", _jaeger),
    "otlp": ("spans.otlp.json", _otlp),
    "nvtx_gpu_proj_trace": ("proj_trace.csv", _csv),
    "csv": ("tables_csv", _csv_folder),
    "parquet": ("tables_parquet", _parquet_folder),
}
# folder → exports that would take too long and hold what other sections of these captures hold
EXPORTS_LEFT_OUT = {
    "nsys": ("otlp", "parquet"),
    "kineto": ("jaeger", "otlp", "csv", "parquet"),
    "ncu": ("jaeger", "otlp", "csv", "parquet"),
}
