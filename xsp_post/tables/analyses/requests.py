"""Logs of an engine, step texts that name requests, ranges of a request → ``requests``: time to the first token, time
per output token, queueing. Rows only where one of these names requests."""

import numpy as np
import pandas as pd

from xsp_post.model.options import Options
from xsp_post.model.results import Results, empty_table, frame_or_empty, shaped
from xsp_post.model.schemas import column_names
from xsp_post.names.patterns import groups, to_arrow
from xsp_post.names.request_logs import read_requests
from xsp_post.names.step_texts import PREFILL
from xsp_post.tables.analyses.frames import text_codes

_NAME = r"[\w.-]+"
_OF_STEP = rf"(?i)\b(?:(?:request_?|req_?|r)?ids?)\s?[=:]\s?[\[(]?(?P<n>'?{_NAME}'?(?:, ?'?{_NAME}'?)*)"
_OF_RANGE = rf"(?i)^(?:request|req|rid)[ _:=#-]+(?P<n>{_NAME})$"


def requests_table(results: Results, options: Options) -> pd.DataFrame:
    """One row a request and source."""
    parts = [*(read_requests(path) for path in options.requests), _of_steps(results)]
    parts = [part for part in parts if len(part)]
    if not parts:
        return empty_table("requests")
    found = pd.concat(parts, ignore_index=True).reindex(columns=column_names("requests"))
    return shaped("requests", dict(found.fillna({"capture_id": -1, "prompt_token_count": -1, "token_count": -1})))


def _of_steps(results: Results) -> pd.DataFrame:
    """Requests that the texts of steps name: the first token is there when the last prefill of it has ended (else its
    first step), and each step after that makes one. A range that names the request begins when it arrived."""
    nodes = frame_or_empty(results, "nodes", ["capture_id", "node_id", "name", "start_ns"])
    steps = frame_or_empty(results, "iterations", ["capture_id", "node_id", "kind", "start_ns", "latency_ns"])
    codes, texts = text_codes(nodes["name"])
    words = to_arrow(texts)
    of_step, of_range = (np.array([*groups(words, one)["n"].to_pylist(), ""], object) for one in (_OF_STEP, _OF_RANGE))
    if not of_step.any():
        return steps.iloc[:0]
    steps = steps.merge(nodes.assign(request_id=of_step[codes]).drop(columns="start_ns"), on=["capture_id", "node_id"])
    steps = steps[steps["request_id"] != ""]
    if not len(steps):
        return steps
    steps = steps.assign(request_id=steps["request_id"].str.replace(r"[' ]", "", regex=True).str.split(","))
    steps = steps.explode("request_id").assign(end_ns=steps["start_ns"] + steps["latency_ns"]).reset_index(drop=True)
    key = ["capture_id", "request_id"]
    steps["order"] = steps.sort_values("start_ns").groupby(key).cumcount()
    first = steps[(steps["kind"] == PREFILL) | (steps["order"] == 0)].groupby(key).agg(first=("end_ns", "max"))
    found = steps.groupby(key).agg(began=("start_ns", "min"), ended=("end_ns", "max")).join(first).reset_index()
    after = steps.merge(found[[*key, "first"]], on=key)
    later = after[after["end_ns"] > after["first"]].groupby(key).size().rename("later")
    arrived = nodes.assign(request_id=of_range[codes]).groupby(key)["start_ns"].min().rename("arrived")
    found = found.join(arrived, on=key).join(later, on=key).fillna({"later": 0})
    return found.assign(
        source="step texts",
        token_count=found["later"] + 1,
        arrival_ns=found["arrived"],
        queue_ns=found["began"] - found["arrived"],
        first_token_ns=found["first"] - found["arrived"],
        time_per_token_ns=(found["ended"] - found["first"]) / found["later"].where(found["later"] > 0),
        latency_ns=found["ended"] - found["arrived"],
    )
