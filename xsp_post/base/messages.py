"""Every code of xsp-post with its texts: errors end a command (`ERRORS`), findings are kept with results (`FINDINGS`).

`messages.txt` has them, a block a code; docs/messages.md is made from it.
"""

from pathlib import Path
from typing import NamedTuple

from xsp_post.base.texts import TextTable, read_blocks

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)


class Message(NamedTuple):
    """What a code means: of a finding its default severity and its title (of an error ''), cause and cure."""

    severity: str
    title: str
    cause: str
    cure: str


def read_messages(path: Path) -> dict[str, Message]:
    """The messages of a file, in order; its first lines say how it is written.

    Raises:
        ValueError: a line cannot be read; with file and line.
    """
    messages: dict[str, Message] = {}
    shared: dict[str, str] = {}
    for block in read_blocks(path):
        if block.name.startswith("*"):
            shared[block.name] = "\n".join(line for _, line in block.lines)
            continue
        severity, _, title = block.title.partition(": ")
        if block.title and (severity not in SEVERITIES or not title):
            block.refuse(f"behind [{block.name}] stands not: severity: title")
        fields = block.texts()
        if fields.keys() != {"cause", "cure"}:
            block.refuse(f"[{block.name}] needs one cause and one cure")
        messages[block.name] = Message(severity, title, fields["cause"], shared.get(fields["cure"], fields["cure"]))
    return messages


MESSAGES = TextTable(lambda: read_messages(Path(__file__).with_name("messages.txt")))
ERRORS = TextTable(lambda: {code: message for code, message in MESSAGES.items() if not message.severity})
FINDINGS = TextTable(lambda: {code: message for code, message in MESSAGES.items() if message.severity})
