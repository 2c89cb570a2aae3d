"""A kernel that computes operations of several modules counts for all of them: its time is divided in proportion to the
operations of each, in whole nanoseconds, so that the parts add up to what was measured. It is one kernel of the module
with most of its operations."""

import numpy as np
import pandas as pd

# Rows of one activity follow one another, that of the module with most operations first.
PIECES = ("activity", "node_id", "operation_count")


def with_layers(pieces: pd.DataFrame, nodes: pd.DataFrame, activities: pd.DataFrame) -> pd.DataFrame:
    """The pieces with layer_node_id and layer_key; a node that no layer has a key for leaves its part to the first."""
    node, at = pieces["node_id"].to_numpy(), pieces["activity"].to_numpy()
    layer = nodes["layer_node_id"].to_numpy()[node]
    key = np.where(layer >= 0, nodes["layer_key"].to_numpy()[layer], -1)
    own = {column: activities[column].to_numpy()[at] for column in ("node_id", "layer_node_id", "layer_key")}
    is_first = ~pd.Series(at).duplicated().to_numpy()
    keeps = is_first | ((key < 0) & (own["layer_key"] >= 0))
    made = {"node_id": node, "layer_node_id": layer, "layer_key": key}
    return pieces.assign(**{name: np.where(keeps, own[name], values) for name, values in made.items()})


def spans(activities: pd.DataFrame, pieces: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of each piece: one after another in time, in whole nanoseconds; together the whole activity."""
    at, count = pieces["activity"].to_numpy(), pieces["operation_count"]
    start, end = (activities[column].to_numpy()[at] for column in ("start_ns", "end_ns"))
    whole, upto = (count.groupby(at).transform(how).to_numpy() for how in ("sum", "cumsum"))
    return start + (end - start) * (upto - count.to_numpy()) // whole, start + (end - start) * upto // whole


def in_pieces(activities: pd.DataFrame, pieces: pd.DataFrame) -> pd.DataFrame:
    """The activities, those in ``pieces`` (`PIECES`, and other columns of activities) replaced by a row for each part;
    ``is_counted``: one row of each activity."""
    if not len(pieces):
        return activities
    at = pieces["activity"].to_numpy()
    start, end = spans(activities, pieces)
    replaced = {str(column): pieces[column].to_numpy() for column in pieces if column in activities}
    is_first = ~pieces["activity"].duplicated().to_numpy()
    parts = activities.iloc[at].assign(**replaced, start_ns=start, end_ns=end, is_counted=is_first)
    parts["launch_node_id"] = np.where(is_first, parts["launch_node_id"].to_numpy(), -1)  # launched by the first only
    rest = np.ones(len(activities), bool)
    rest[at] = False
    both = pd.concat([activities[rest].assign(is_counted=True), parts])
    return both.sort_values("start_ns", kind="stable", ignore_index=True)
