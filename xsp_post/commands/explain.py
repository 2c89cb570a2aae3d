"""`xsp-post explain CODE`: what a finding or an error means, and what to do."""

import difflib

import typer

from xsp_post.base.errors import UsageError
from xsp_post.base.messages import ERRORS, FINDINGS
from xsp_post.commands import shared


def explain(code: str, as_json: bool = False) -> None:
    """Explain a finding or an error by the code that stands in brackets behind it: its cause, and what to do."""
    wanted = code.strip("[] ").partition(" ")[0]  # as it was copied: [module-loading ×17]
    message = FINDINGS.get(wanted) or ERRORS.get(wanted)
    if message is None:
        close = difflib.get_close_matches(wanted, [*FINDINGS, *ERRORS], n=2)
        raise UsageError(
            f"{wanted!r} is not the code of a finding or an error",
            code="unknown-code",
            hint=f"Did you mean {' or '.join(close)}?" if close else "All codes stand in docs/messages.md.",
        )
    if as_json:
        shared.print_json("explain", {"code": wanted, **vars(message)})
        return
    title = f"{message.title} [{wanted}]" if message.title else f"[{wanted}]"
    typer.echo(f"{title}\n\n{message.cause}\n\nWhat to do: {message.cure}")
