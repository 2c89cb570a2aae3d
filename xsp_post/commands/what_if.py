"""`xsp-post what-if`: what an execution would take if something changed, from a replay of the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.model.options import DEFAULTS, ROOFS, TREE, Options

if TYPE_CHECKING:
    from xsp_post.replay.what_if import Prediction

CHANGE_HELP = (
    "What changes, e.g. kernel:.*sgemm.*=0.5x, layer:layer4.*=roof, launch=graph, copy=overlap, sync=none, comm=0.8x, "
    "host:REGEX=+2ms, batch=2x; several together."
)


@with_options(TREE, ROOFS)
def what_if(
    sources: shared.StoreOrSource,
    change: Annotated[list[str], typer.Option("--change", "-c", metavar="SUBJECT[:REGEX]=VALUE", help=CHANGE_HELP)],
    capture: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Capture to predict, by number; else the one with most kernels."),
    ] = None,
    options: Options = DEFAULTS,
    as_json: shared.AsJson = False,
) -> None:
    """Predict period and latency of an execution under changes, with the replay's own error beside it."""
    from xsp_post.replay.what_if import what_if as predict

    results = shared.results_of(sources, options)
    prediction = predict(results, change, capture)
    if as_json:
        shared.print_json("what-if", document_of(prediction))
        return
    from xsp_post.reports.predictions import print_prediction

    print_prediction(shared.stdout(), prediction)


def document_of(prediction: Prediction) -> dict[str, Any]:
    """What --json prints."""
    return {
        "capture_id": prediction.capture_id,
        "source_name": prediction.source_name,
        "execution": prediction.execution,
        "execution_count": prediction.execution_count,
        "error_ratio": prediction.error_ratio,
        "spread_ratio": prediction.spread_ratio,
        "changes": [
            {
                "change": effect.text, "operation_count": effect.operation_count, "call_count": effect.call_count,
                "device_ns": effect.device_ns, "assumption": effect.assumption, "left_out": effect.left_out,
                "names": effect.names,
            }
            for effect in prediction.effects
        ],
        "predictions": shared.records(prediction.frame()),
        "limit": prediction.limit,
        "limit_ratio": prediction.limit_ratio,
        "limit_before": prediction.limit_before,
        "critical_path": shared.records(prediction.critical_path),
    }  # fmt: skip
