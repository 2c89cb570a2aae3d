"""Fleet tables → one self-contained page (Tables VIII–X, Figures 10–12 of the paper)."""

import pandas as pd

from xsp_post.base.texts import SENTENCES
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import counted, format_count
from xsp_post.names.families import FAMILIES, OTHER
from xsp_post.reports import theme
from xsp_post.reports.cases import Case
from xsp_post.reports.document import sections_of
from xsp_post.reports.frames import ROOFLINE_AXES, Frame, rank_lateness, rank_parts
from xsp_post.reports.rank_sentences import rank_sentence
from xsp_post.reports.shell import render_page
from xsp_post.reports.text import distinct

BAR_LIMIT = 40
LINE_LIMIT = 12


def render(results: Results) -> str:
    """The page of a fleet (tables `fleet_…`) as text."""
    fleet = results.frame("fleet")
    done = fleet[fleet["status"] == "done"]
    failed = fleet[fleet["status"] != "done"]
    with_kernels, kernels = (done["kernel_count"] > 0).sum(), done["kernel_count"].sum()
    facts = [
        ("captures", format_count(len(fleet)), f"{format_count(len(failed))} failed"),
        ("with kernels", format_count(int(with_kernels)), counted(int(kernels), "kernel", "kernels")),
        ("systems", format_count(int(done["system_name"].replace("", pd.NA).nunique())), "by GPU name"),
    ]
    statements = headlines(results)
    if len(failed):
        share = f"{format_count(len(failed))} of {counted(len(fleet), 'capture', 'captures')}"
        statements.append(("", f"{share} could not be analysed: {_some(failed['capture_name'].tolist())}."))
    sections = sections_of("fleet", results, _FRAMES)
    if _is_job(results):
        sections.sort(key=lambda one: one.id != "fleet-ranks")
    return render_page(
        "Fleet of captures",
        f"{counted(len(fleet), 'capture', 'captures')} side by side",
        "xsp-post fleet",
        facts,
        statements,
        sections,
    )


def headlines(results: Results) -> list[tuple[str, str]]:
    """What the captures say together, (kind, sentence): which rank of a job is late and why, what limits how many;
    first what most captures are of."""
    ranks, fleet = frame_or_empty(results, "ranks"), results.frame("fleet")
    said = [("", f"{name}: {rank_sentence(of_job)}") for name, of_job in ranks.groupby("job_name", sort=False)]
    is_done = fleet["status"].eq("done")
    limits = _limits(fleet[is_done & (fleet["store_name"].ne("") | fleet["limit"].ne("unknown"))])
    return said + limits if _is_job(results) else limits + said


def _is_job(results: Results) -> bool:
    """Whether most captures are ranks of jobs."""
    ranks, fleet = frame_or_empty(results, "ranks"), results.frame("fleet")
    return bool(2 * ranks["capture_name"].nunique() > fleet["status"].eq("done").sum())


def _limits(done: pd.DataFrame) -> list[tuple[str, str]]:
    """What limits the captures, one sentence a limit, last what is not known; each capture's own is in the table.
    Of limits of as many captures, the most, none is said before the others: they are one headline."""
    by_limit = done.astype({"limit": object}).groupby("limit", sort=False)["capture_name"].agg(list)
    ordered = sorted(by_limit.items(), key=lambda one: (one[0] == "unknown", -len(one[1])))
    said = []
    for limit, names in ordered:
        word = SENTENCES.get(f"word.{limit}", SENTENCES["word.unknown"])
        said.append((str(limit), f"{len(names)} of {len(done)}: {word}: {_some(names)}."))
    first = max(sum(limit != "unknown" and len(names) == len(ordered[0][1]) for limit, names in ordered), 1)
    return [(kind, " ".join(text for _, text in said[:first])) for kind, _ in said[:1]] + said[first:]


def _some(names: list[str]) -> str:
    return ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# -- frames of `page.txt` -----------------------------------------------------------------------------------


def _labelled(results: Results, table: str) -> pd.DataFrame:
    """The rows of a table with ``label``: the workload, and system, framework and phase where it has several."""
    frame = results.frame(table)
    label = frame["workload_name"].astype(str)
    for column in ("system_name", "framework", "phase"):
        value = frame[column].astype(str)
        label = label + (" · " + value).where(value.ne("") & (value.groupby(label).transform("nunique") > 1), "")
    return frame.assign(label=label)


def _points(results: Results, case: Case | None) -> pd.DataFrame:
    frame = _labelled(results, "fleet_models")
    return frame[frame[ROOFLINE_AXES[0]] > 0]


def _alike(results: Results, case: Case | None) -> pd.DataFrame:
    """Workloads that were measured on several systems: latencies of different workloads are of different work."""
    timed = _labelled(results, "fleet_models").dropna(subset=["batch_latency_ns"])
    alike = timed[timed.duplicated(["workload_name", "phase"], keep=False)]
    return alike.assign(label=distinct(alike["label"].astype(str)))  # one bar each


def _scaled(most: int) -> Frame:
    def rows(results: Results, case: Case | None) -> pd.DataFrame:
        frame = _labelled(results, "fleet_scalability")
        frame = frame[frame["label"].isin(frame["label"].drop_duplicates().head(most))]
        return frame.sort_values("batch_size", kind="stable").assign(batch=frame["batch_size"].astype(str))

    return rows


def main_families(family: pd.Series, share: pd.Series) -> pd.Series:
    """The family of each row; those that have no colour of their own, the smallest ones, become ``other``."""
    largest = share.groupby(family).sum().drop(OTHER, errors="ignore").nlargest(theme.HUE_COUNT).index
    return family.where(family.isin(largest), OTHER)


def _shares(results: Results, case: Case | None) -> pd.DataFrame:
    """Per capture the families of its heaviest case, the largest first: label, family, latency_ratio, latency_ns."""
    frame = results.frame("fleet_families")
    weight = frame.groupby(["capture_index", "case_index"])["latency_ns"].sum()
    heaviest = weight.groupby(level="capture_index").idxmax().tolist() if len(weight) else []
    keys = pd.MultiIndex.from_frame(frame[["capture_index", "case_index"]])
    shown = frame[keys.isin(heaviest)]
    shown = shown[shown["capture_name"].isin(shown["capture_name"].drop_duplicates().head(BAR_LIMIT))]
    shown = shown.assign(family=main_families(shown["family"].astype(str), shown["latency_ratio"]))
    sums = shown.groupby(["capture_name", "family"], sort=False)[["latency_ratio", "latency_ns"]].sum().reset_index()
    place = sums["family"].map({family: i for i, family in enumerate(FAMILIES)}).fillna(len(FAMILIES))
    return sums.rename(columns={"capture_name": "label"}).loc[place.sort_values(kind="stable").index]


_FRAMES: dict[str, Frame] = {
    "fleet_points": _points,
    "fleet_alike": _alike,
    "fleet_scaled": _scaled(BAR_LIMIT),
    "fleet_scaled_few": _scaled(LINE_LIMIT),
    "fleet_shares": _shares,
    "rank_lateness": rank_lateness,
    "rank_parts": rank_parts,
}
