"""Paths, operations and waits → source lines of modules, where they were written down, and what ran after host code."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.model.results import Results, frame_or_empty, of_captures

_MODULES = ("module", "annotated", "provenance", "twin")
NAMELESS = re.compile(r"(?:block|repeated part)\b")  # inferred ranges of no known kind
_KIND = re.compile(r" \(\d+\)(?=,| ·|$)")


def places_of(results: Results) -> pd.DataFrame:
    """One row per range, module around it (the range itself where there is none) and source line of kernels: name,
    module, source_line, device_ns; most first. Empty where no line is known."""
    return results.kept("places", lambda: _places(results))


def _places(results: Results) -> pd.DataFrame:
    key = ["capture_id", "path_id"]
    work = frame_or_empty(results, "operations", [*key, "source_line", "device_ns"]).astype({"source_line": object})
    known = work[work["source_line"].fillna("") != ""]
    if known.empty:
        return pd.DataFrame({"name": [], "module": [], "source_line": [], "device_ns": []})
    paths = frame_or_empty(results, "paths", [*key, "parent_path_id", "span_kind", "name"])
    said = [
        rows.assign(module=rows["name"].astype(object).to_numpy()[_module_of(rows)])
        for _, rows in paths.groupby("capture_id")
    ]
    lines = known.merge(pd.concat(said)[[*key, "name", "module"]], on=key)
    spent = lines.astype({"name": object}).groupby(["name", "module", "source_line"])["device_ns"].sum().reset_index()
    return spent.sort_values("device_ns", ascending=False, kind="stable", ignore_index=True)


def _module_of(paths: pd.DataFrame) -> np.ndarray:
    """Row of the nearest module at or above each path of one capture, else its own."""
    row = pd.Series(np.arange(len(paths)), index=paths["path_id"].to_numpy())
    parent = row.reindex(paths["parent_path_id"].to_numpy()).fillna(-1).to_numpy(np.int64)
    nearest = forest_of(parent).nearest(paths["span_kind"].isin(_MODULES).to_numpy())
    return np.where(nearest >= 0, nearest, np.arange(len(paths)))


def line_of(results: Results, owner: str) -> str:
    """The source line with most device time of a module, the only one of another range; '' unknown."""
    return results.kept("lines", lambda: _lines(places_of(results))).get(owner, "")


def _lines(places: pd.DataFrame) -> dict[str, str]:
    own = places.drop_duplicates(["name", "source_line"]).drop_duplicates("name", keep=False)
    of_modules = places.drop_duplicates("module")
    return dict(zip(own["name"], own["source_line"])) | dict(zip(of_modules["module"], of_modules["source_line"]))


def inside(name: str) -> str:
    """``in forward``; ``after the blocks`` as it is."""
    return name if name.startswith(("before the ", "after the ", "between the ")) else f"in {name}"


def of_any_kind(name: str) -> str:
    """``block · gemm`` of ``block (2) · gemm``: an inferred name without what tells it from others like it."""
    return _KIND.sub("", name) if NAMELESS.match(name) else name


def with_line(results: Results, owner: str) -> str:
    """``layers.0.attn (net.py:66)``; the range alone where no line of it is known."""
    line = line_of(results, owner)
    return f"{owner} ({line})" if line else owner


def place_text(results: Results, line: str) -> str:
    """``layers.0.attn (net.py:66)`` of a source line, with the module that has most of its time."""
    places = places_of(results)
    modules = places.loc[places["source_line"].eq(line), "module"]
    return f"{modules.iloc[0]} ({line})" if len(modules) else line


def followed(results: Results, captures: Sequence[int]) -> pd.DataFrame:
    """Host code that devices waited for, in no call, and what they ran next: paths of both, name, time_ns."""
    waits = of_captures(results, "idle", captures)
    keys, columns = {"capture_id": np.int64, "device_id": np.int64}, ["device_id", "start_ns", "node_id", "name"]
    copies = of_captures(results, "memory_operations", captures)
    directions = "copies " + copies["direction"].astype(object).str.replace(" to ", "→")
    copies = copies.assign(name=directions.where(copies["kind"].eq("memcpy"), "memset"))
    work = pd.concat([of_captures(results, "kernels", captures, columns), copies[["capture_id", *columns]]])
    waits = waits[waits["cause"].eq("host_code") & waits["call_name"].fillna("").eq("")]
    found = pd.merge_asof(
        waits.astype(keys).sort_values("end_ns"), work.astype(keys).sort_values("start_ns"), left_on="end_ns",
        right_on="start_ns", by=[*keys], direction="forward", suffixes=("", "_next"),
    )  # fmt: skip
    path = frame_or_empty(results, "nodes", ["node_id", "path_id"]).set_index("node_id")["path_id"]
    of_node = {f"path_id{of}": found[f"node_id{of}"].map(path) for of in ("", "_next")}
    return found.assign(**of_node, time_ns=found["end_ns"] - found["start_ns"])
