"""Where Python looks for modules: not in the current folder, whose files may be a stranger's.

Loaded before everything else, so it imports only what Python itself has loaded at its start.
"""

import os
import sys

OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def trusted(*folders: str) -> list[str]:
    """``sys.path`` without the current folder, the given ones and relative entries; absolute paths.

    The folder of xsp_post itself is always there: who can write to it can change xsp_post.
    """
    try:  # noqa: SIM105  (contextlib is not loaded yet)
        folders = (os.getcwd(), *folders)
    except OSError:  # it was deleted
        pass
    foreign = {os.path.realpath(folder) for folder in folders} - {os.path.realpath(OWN_FOLDER)}
    kept = [entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) not in foreign]
    return kept if OWN_FOLDER in kept else [*kept, OWN_FOLDER]


def leave_current_folder() -> None:
    """From here on this process imports nothing from the current folder."""
    sys.path[:] = trusted()
