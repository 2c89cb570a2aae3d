"""`xsp-post explain CODE`: what a finding or an error means, and what to do."""

import typer

from xsp_post.base.errors import UsageError
from xsp_post.base.messages import ERRORS, FINDINGS
from xsp_post.base.text_safety import did_you_mean
from xsp_post.commands import shared


def explain(code: str, as_json: bool = False) -> None:
    """Explain a finding or an error by the code that stands in brackets behind it: its cause, and what to do."""
    wanted = code.strip("[] ").partition(" ")[0]  # as it was copied: [module-loading ×17]
    message = FINDINGS.get(wanted) or ERRORS.get(wanted)
    if message is None:
        hint = did_you_mean(wanted, [*FINDINGS, *ERRORS], most=2) or "All codes stand in docs/messages.md."
        raise UsageError(f"{wanted!r} is not the code of a finding or an error", code="unknown-code", hint=hint)
    if as_json:
        shared.print_json("explain", {"code": wanted, **message._asdict()})
        return
    title = f"{message.title} [{wanted}]" if message.title else f"[{wanted}]"
    typer.echo(f"{title}\n\n{message.cause}\n\nWhat to do: {message.cure}")
