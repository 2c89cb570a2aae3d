"""Where `xsp-post` begins: what needs no command is answered at once, everything else by `commands.application`.

``--version`` and ``--help`` import nothing: the text of the latter is `commands/help.txt` (scripts/gen_docs makes it).
"""

import os
import sys

from xsp_post.base.module_path import leave_current_folder

_IS_OURS = __name__ == "__main__" or os.path.basename(sys.argv[0]) == "xsp-post"  # else another program imports this
if _IS_OURS:
    leave_current_folder()

_WIDTH = 80  # of the text of --help; a narrower terminal gets one that Typer makes for it


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from xsp_post.commands.application import app

    return app


def main() -> None:
    """Entry point: every failure a user can understand is one sentence and its exit code."""
    if _is_answered():
        return
    import signal

    if _IS_OURS and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command begins: no traceback out of an import
    from xsp_post.commands.application import command_line

    command_line()


def _is_answered() -> bool:
    """Whether the answer was printed. Where that fails, nothing was, and the application says why."""
    asked = sys.argv[1:]
    try:
        if asked == ["--version"]:
            from xsp_post import __version__

            text = f"xsp-post {__version__}\n"
        elif asked in (["--help"], ["-h"]) and _columns() >= _WIDTH and "_XSP_POST_COMPLETE" not in os.environ:
            with open(os.path.join(os.path.dirname(__file__), "commands", "help.txt"), encoding="utf-8") as file:
                text = file.read()
        else:
            return False
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # no stdout, or one that cannot take it
        return False
    return True


def _columns() -> int:
    """Of the terminal; of a pipe as many as the text has."""
    try:
        return int(os.environ.get("COLUMNS", "")) or _WIDTH
    except ValueError:
        pass
    try:
        return os.get_terminal_size(1).columns or _WIDTH
    except OSError:
        return _WIDTH


if __name__ == "__main__":
    main()
