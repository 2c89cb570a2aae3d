"""A progress line on stderr for anything that may take over two seconds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show a spinner with elapsed time while a step runs; nothing where stderr is not a terminal.

    It is drawn after two seconds only, so that short work stays silent.
    """
    if not sys.stderr.isatty():
        yield
        return
    import threading

    from rich.console import Console

    finished = threading.Event()

    def show() -> None:
        if finished.wait(2.0):
            return
        with Console(stderr=True).status(text):
            finished.wait()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
