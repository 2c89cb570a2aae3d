"""``xsp_post.recipes REPORT FOLDER NAME...``: called by the recipe in this Python."""

from __future__ import annotations

import sys
from pathlib import Path

from xsp_post.base.errors import XspPostError
from xsp_post.recipes import tables_of


def main(arguments: list[str]) -> int:
    """Exit code; the reason of a failure is one sentence on stderr."""
    report, folder, *names = arguments
    try:
        tables_of(Path(report), Path(folder), names)
    except XspPostError as error:
        sys.stderr.write(f"{error.message} [{error.code}]\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
