"""`xsp-post what-if`: what an execution would take if something changed, from a replay of the recording."""

from pathlib import Path

from xsp_post.base.errors import UsageError
from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.model.options import DEFAULTS, PART, ROOFS, TREE, Options


@with_options(TREE, ROOFS, PART)
def what_if(
    sources: list[Path],
    change: list[str] | None = None,
    capture: int | None = None,
    options: Options = DEFAULTS,
    as_json: bool = False,
) -> None:
    """Predict the time of all executions, and latency and period of one, under changes; state the replay's error."""
    from xsp_post.replay.what_if import what_if as predict

    if not change and as_json:
        raise UsageError("--json needs a --change", code="bad-change")
    results = shared.results_of(sources, options)
    if not change:
        from xsp_post.reports.predictions import candidates, print_candidates

        print_candidates(shared.stdout(), candidates(results))
        return
    prediction = predict(results, change, capture)
    from xsp_post.model.results import part_text
    from xsp_post.reports.predictions import data_of, print_prediction

    if as_json:
        shared.print_json("what-if", {"part": part_text(results) or None, **data_of(prediction)})
        return
    print_prediction(shared.stdout(), prediction, part_text(results))
