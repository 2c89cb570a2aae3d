"""The critical path of the executions → one line: which parts of the stack decide how long they take."""

import numpy as np
import pandas as pd

from xsp_post.arrays.repeats import dense
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results, of_captures
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.reports.facts import device_of
from xsp_post.reports.memory_line import LEAST_RATIO, LONGEST_NAME, MOST_PARTS
from xsp_post.reports.text import are_plain

_DEVICE = {"kernel": "kernels", "memcpy": "copies", "memset": "memsets", "graph": "graphs"}


def critical_path_line(results: Results, capture_id: int) -> str:
    """``Critical path of 3 executions, together 9.24 s: 62 % kernels of block, 30 % …``; "" where no path is known."""
    columns = ["iteration_index", "kind", "layer_index", "duration_ns"]
    steps = of_captures(results, "critical_path", capture_id, columns)
    total = int(steps["duration_ns"].sum())
    if not total:
        return ""
    named = _large_parts(results, steps, total)
    texts = [f"{format_ratio_percent(ratio)} {name}" for name, ratio in named.items()]
    if (rest := 1 - float(named.sum())) >= 0.005:
        texts.append(f"{format_ratio_percent(rest)} other")
    which = steps["iteration_index"].dropna().unique()
    what = "the recording," if not len(which) else f"execution {int(which[0])},"
    if len(which) > 1:
        what = f"{format_count(len(which))} executions, together"
    return f"Critical path of {what} {format_ns(total)}: {', '.join(texts)}"


def _large_parts(results: Results, steps: pd.DataFrame, total_ns: int) -> pd.Series:
    """The largest shares of a path's time by what they go to, largest first."""
    owner, owners = _owners(results, int(steps["capture_id"].iloc[0]))
    device = _DEVICE | {"kernel": device_of(results).work}
    kind, kinds = pd.factorize(steps["kind"].astype(object))
    works = np.isin(kinds.astype(str), list(device))[kind]
    owned = np.where(works, steps["layer_index"].map(owner).fillna(len(owners)).to_numpy(np.int64), -1)
    number = dense(owned, kind)[0]
    first = np.unique(number, return_index=True)[1]
    ratio = sums_per_node(number, steps["duration_ns"].to_numpy(), len(first)) / total_ns
    shares, texts = {}, [*owners, "no layer"]
    for row, of in zip(first[ratio >= LEAST_RATIO].tolist(), ratio[ratio >= LEAST_RATIO].tolist()):
        part = kinds[kind[row]]
        shares[f"{device[part]} of {texts[owned[row]]}" if works[row] else part] = of
    return pd.Series(shares, dtype="float64").sort_index().sort_values(ascending=False, kind="stable").head(MOST_PARTS)


def _owners(results: Results, capture_id: int) -> tuple[pd.Series, list[str]]:
    """By layer the number of its text, and the texts: its type where it has one, else its path; layers of one type
    count as one part."""
    layers = of_captures(results, "layers", capture_id, ["layer_index", "layer_path", "layer_type"])
    layers = layers.drop_duplicates("layer_index")
    kinds = layers["layer_type"].astype(object)
    codes, distinct = pd.factorize(kinds.where(kinds.ne(""), layers["layer_path"].astype(object)))
    names = [str(name) for name in distinct]
    if are_plain(names, LONGEST_NAME):
        return pd.Series(codes, index=layers["layer_index"].to_numpy()), names
    number, texts = pd.factorize(np.array([shown(name, LONGEST_NAME) for name in names], object))
    return pd.Series(number[codes], index=layers["layer_index"].to_numpy()), texts.tolist()
