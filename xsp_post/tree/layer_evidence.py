"""Tree → the sentence that says what the layers are, how many each execution holds and how much device time they
cover; and the warning where much of a model counts for none of them."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.base.findings import Finding, if_any
from xsp_post.model.levels import Level
from xsp_post.model.schemas.words import confidence_words
from xsp_post.model.tree import NodeKind
from xsp_post.tree.node_names import NodeNames

# A model's [self] is a remainder; above this share of its device time it is one that hides layers.
MOST_SELF = 0.2
_MOST_NAMED = 2
_LEAST_SAID = 0.005  # of the device time: what is none in whole percent says nothing of a layer
# Executions that hold this share of the device time hold all of it, as far as a sentence in whole percent goes.
_ALL = 0.995
_FOUND = {NodeKind.TWIN: "carried over", NodeKind.ANNOTATED: "annotated", NodeKind.PROVENANCE: "compiled",
          NodeKind.INFERRED: "inferred, {} confidence", NodeKind.HOOK_PAIR: "inferred, {} confidence"}  # fmt: skip


def layer_evidence(nodes: pd.DataFrame, activities: pd.DataFrame, names: NodeNames) -> tuple[str, list[Finding]]:
    """``layers: `BertLayer` ×4, 81 % of device time; 2 others, 17 %`` ('' without layers), and findings.

    Counted per execution where there are executions; shares are of the device time of the executions, which is said
    where it is not all of it, else of the capture. nodes need layer_node_id and iteration_index.
    """
    level = nodes["level"].to_numpy()
    layers = np.flatnonzero(level == int(Level.LAYER))
    duration = np.maximum(activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy(), 0)
    home, node = activities["layer_node_id"].to_numpy(), activities["node_id"].to_numpy()
    in_model = (nodes["iteration_index"].to_numpy()[node] >= 0) | (activities["iteration_index"].to_numpy() >= 0)
    counted = in_model if in_model.any() else np.ones(len(duration), bool)
    total = int(duration[counted].sum())
    is_layer = (home >= 0) & (level[np.maximum(home, 0)] == int(Level.LAYER)) & counted
    findings = []
    if total and in_model.any():
        own = int(duration[counted & (home >= 0) & ~is_layer].sum())
        if own > MOST_SELF * total:
            example = f"{own / total * 100:.0f} % of the device time of the model executions is in no layer"
            findings = if_any("model-self", counted & (home >= 0) & ~is_layer, example)
    held = np.bincount(home[is_layer], weights=duration[is_layer].astype(float), minlength=len(nodes))[layers]
    if not len(layers) or held.sum() < _LEAST_SAID * total:
        return "", findings
    is_all = total >= _ALL * int(duration.sum())
    kinds = _kinds(nodes, layers, names)
    return _sentence(
        nodes, layers, kinds, held, total, "device time" if is_all else "the executions' device time"
    ), findings


class _Kinds(NamedTuple):
    """What layers are called: the texts, and of each layer the number of its folded text and that of its kind."""

    called: np.ndarray
    text_of: np.ndarray
    kind_of: np.ndarray
    word: np.ndarray  # per kind, where it was not recorded around the launch: how it was found


def _kinds(nodes: pd.DataFrame, layers: np.ndarray, names: NodeNames) -> _Kinds:
    """Layers by what they are called: their type, else their text."""
    folded = nodes["folded_id"].to_numpy()[layers]
    first = np.full(len(names.folded_names), -1, np.int64)
    first[folded[::-1]] = layers[::-1]  # written backwards, the first stays
    used = np.flatnonzero(first >= 0)
    text_of = (np.cumsum(first >= 0) - 1).astype(np.int32)[folded]
    first = first[used]
    kind = names.node_text("layer_type", first)
    node_kind = nodes["kind"].to_numpy()[first]
    inferred = np.isin(node_kind, [int(NodeKind.INFERRED), int(NodeKind.HOOK_PAIR)])
    texts = names.folded_names[used]
    # texts that a number tells apart are of one kind
    starred = pd.Series(texts, dtype=object).str.replace(r"\d+", "*", regex=True)
    is_row = ~inferred & starred.duplicated(keep=False).to_numpy() | (node_kind == int(NodeKind.HOOK_PAIR))
    texts = np.where(is_row, starred, texts)
    kind_of_text, called = pd.factorize(np.where((kind == "") | inferred, texts, kind))
    word = np.full(len(called), "", object)
    for number, text in _FOUND.items():
        word[kind_of_text[node_kind == int(number)]] = text
    return _Kinds(called, text_of, kind_of_text.astype(np.int32)[text_of], word)


def _usual_count(nodes: pd.DataFrame, layers: np.ndarray, text_of: np.ndarray) -> int:
    """How many layers of one kind an execution holds; of each layer the number of its text is given. Calls of one range
    below the execution that hold as many hold the same layers again (parts of a batch, tokens): these count once."""
    place = nodes["iteration_index"].to_numpy()[layers]
    inside = place >= 0
    if not inside.any():  # what is outside executions counts per process
        place = np.maximum(nodes["process_index"].to_numpy()[layers], 0)
        again = pd.DataFrame({"text": text_of, "place": place}).duplicated().to_numpy()
        counts = np.bincount(place[~again] if (text_of != text_of[0]).any() else place)
        return int(np.median(counts[counts > 0]))
    above = nodes["parent_id"].to_numpy()
    is_below = nodes["level"].to_numpy()[above] == int(Level.MODEL)
    home = forest_of(above).nearest(is_below)[above[layers[inside]]]
    called = np.where(home >= 0, nodes["folded_id"].to_numpy()[home], -1)
    frame = pd.DataFrame({"place": place[inside], "called": called, "home": home})
    held = frame.groupby(["place", "called", "home"]).size().groupby(["place", "called"]).agg(["min", "max", "sum"])
    return int(np.median(held["max"].where(held["min"] == held["max"], held["sum"]).groupby("place").sum()))


def _sentence(
    nodes: pd.DataFrame, layers: np.ndarray, kinds: _Kinds, held: np.ndarray, total: int, of_what: str
) -> str:
    held_ns = np.bincount(kinds.kind_of, weights=held, minlength=len(kinds.called))
    is_around = pd.Series(kinds.called, dtype=object).str.match(r"(?:before|between|after) the blocks")
    heaviest = np.argsort(-held_ns, kind="stable")
    first = int(np.argmin(is_around.to_numpy(bool)[heaviest]))  # what is around layers is named behind one
    heaviest = np.append(heaviest[first], np.delete(heaviest, first))
    leading = heaviest[:1].tolist() + [one for one in heaviest[1:_MOST_NAMED] if held_ns[one] >= 0.1 * total]
    parts = []
    for number in leading:  # at most two
        mine = np.flatnonzero(kinds.kind_of == number)
        text_of, mine = kinds.text_of[mine], layers[mine]
        count = _usual_count(nodes, mine, text_of)
        share = f", {100 * held_ns[number] / total:.0f} % of {of_what}" if total else ""
        sure = nodes["confidence_ratio"].to_numpy()[mine].min()
        word = kinds.word[number] and f" ({kinds.word[number].format(confidence_words(sure).item())})"
        parts.append(f"`{kinds.called[number]}` ×{count}{word}{share}")
    rest = len(heaviest) - len(leading)
    if rest:
        share = f", {held_ns[heaviest[len(leading) :]].sum() / total * 100:.0f} %" if total else ""
        parts.append(f"{rest} other{'s' if rest > 1 else ''}{share}")
    return "layers: " + "; ".join(parts)
