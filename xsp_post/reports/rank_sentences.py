"""The table ``ranks`` → sentences: communication, how much of it compute hides, who holds the others up and why."""

import pandas as pd

from xsp_post.base.text_safety import shown
from xsp_post.base.texts import sentence
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.tables.analyses.rank_causes import held_up_ns


def rank_sentence(ranks: pd.DataFrame) -> str:
    """What is to be known of the ranks: communication, how much of it compute hides, who holds the others up."""
    jobs = ranks.groupby("job_name", sort=False) if len(ranks) else ()
    if len(jobs) != 1:
        return " ".join(f"{name}: {rank_sentence(part)}" for name, part in jobs)
    busy = ranks["busy_ns"].astype(float)
    said = [sentence("ranks.busy", count=len(ranks), low=format_ns(busy.min()), high=format_ns(busy.max()))]
    communication, exposed = (float(ranks[c].median()) for c in ("communication_ns", "exposed_ns"))
    if not ranks["communication_count"].sum():
        spread = format_ratio_percent(busy.max() / max(busy.min(), 1.0) - 1)
        return " ".join((*said, sentence("ranks.alone", spread=spread)))
    if communication:
        hidden = format_ratio_percent(1 - exposed / communication)
        said.append(sentence("ranks.communication", time=format_ns(communication), share=hidden))
    return " ".join((*said, *late_ranks(ranks)))


def late_ranks(ranks: pd.DataFrame) -> list[str]:
    """Sentences: which ranks the others wait for, and why the slowest of these is late."""
    slow = ranks[ranks["is_straggler"].astype(bool)].sort_values("compute_excess_ratio", ascending=False)
    if slow.empty:
        return [sentence("ranks.none")]
    row = slow.iloc[0]
    named = sorted(slow["rank"].head(8).tolist())
    others = f" and {len(slow) - len(named)} more" * (len(slow) > len(named))
    names = ", ".join(f"rank {rank}" for rank in named) + others
    key = "ranks.late" if len(slow) == 1 and row["last_count"] > 0 else "ranks.later"
    said = [sentence(key, names=names, last=row["last_count"], count=row["matched_count"])]
    chain, who = float(ranks["chain_ns"].sum()) if "chain_ns" in ranks else 0.0, f"Rank {row['rank']}"
    if chain and row["chain_ns"] > 0:
        said.append(sentence("ranks.chain", who=who, share=format_ratio_percent(row["chain_ns"] / chain)))
    if row["compute_excess_ratio"] > 0:
        said.append(sentence("ranks.excess", who=who, share=format_ratio_percent(row["compute_excess_ratio"])))
    if row.get("late_cause", "") not in ("", "unknown"):  # a store of before lacks it
        cause, detail = str(row["late_cause"]), shown(str(row["late_detail"]), 80)
        cause = detail if detail.startswith(cause) else f"{cause}: {detail}"  # ``host``: ``host code in loss``
        said.append(sentence("ranks.cause", who=who, time=format_ns(held_up_ns(ranks)), cause=cause))
    return said
