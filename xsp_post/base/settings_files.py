"""Small files that steer a command, TOML or JSON → their content. They may lie in a stranger's folder."""

import json
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    from tomllib import loads as toml_loads
else:
    from tomli import loads as toml_loads

MOST_BYTES = 1_000_000


class BadSettings(Exception):
    """The file cannot be used; the text says why, without its name."""


def read(path: Path) -> Any:
    """The content of a TOML file, or of a JSON file where its name does not end in .toml. Raises `BadSettings`."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise BadSettings(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSettings("cannot be read: is not UTF-8 text") from error
    if len(data) > MOST_BYTES:
        raise BadSettings("is larger than 1 MB, more than such a file needs")
    is_toml = path.suffix.lower() == ".toml"
    try:
        return toml_loads(text) if is_toml else json.loads(text)
    except RecursionError as error:
        raise BadSettings("is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits too
        raise BadSettings(f"is not {'TOML' if is_toml else 'JSON'} ({error})") from error
