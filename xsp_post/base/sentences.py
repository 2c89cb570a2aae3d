"""Every sentence of a verdict with its slots: `sentence` fills them in.

`sentences.txt` has them, to be read and corrected as a text.
"""

from pathlib import Path

from xsp_post.base.texts import TextTable, read_blocks


def read_sentences(path: Path) -> dict[str, str]:
    """``group.name`` → text, in order; the first lines of the file say how it is written.

    Raises:
        ValueError: a line cannot be read; with file and line.
    """
    return {f"{block.name}.{name}": text for block in read_blocks(path) for name, text in block.texts().items()}


SENTENCES = TextTable(lambda: read_sentences(Path(__file__).with_name("sentences.txt")))


def sentence(key: str, **slots: object) -> str:
    """The sentence ``group.name`` with its slots filled in and a large first letter where it is a whole sentence.

    Raises `KeyError` for a key or a slot that is not there.
    """
    text = SENTENCES[key].format(**slots)
    return text[:1].upper() + text[1:] if text.endswith(".") else text
