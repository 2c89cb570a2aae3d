"""Captures in: an ``.ncu-rep`` → ``CounterReport``, read in a separate process.

NVIDIA's reader aborts the process on some damaged files and writes its own log lines. `read` starts this module as
a child and takes the report it sends back; whatever the reader does, it does there.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from xsp_post.base import children
from xsp_post.base.errors import CaptureError, XspPostError
from xsp_post.model.counters import CounterReport


def read(path: Path, metrics: Sequence[str] | None) -> CounterReport:
    """The report as a child process reads it. CaptureError where the child does not end well."""
    wanted = json.dumps([os.fspath(path), None if metrics is None else list(metrics)])
    done = subprocess.run(
        children.python("xsp_post.ingest.ncu_child", wanted),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
        env=children.environment(os.path.dirname(path)), preexec_fn=children.end_with_parent(),
    )  # fmt: skip
    if done.returncode:
        how = f"signal {signal.Signals(-done.returncode).name}" if done.returncode < 0 else f"exit {done.returncode}"
        raise CaptureError(
            f"{path}: NVIDIA's reader failed on it ({how}): it is damaged, or written by a newer ncu",
            code="ncu-report-unreadable",
        )
    answer = pickle.loads(done.stdout)  # written by our own child
    if isinstance(answer, XspPostError):
        raise answer
    report: CounterReport = answer
    return report


def main() -> None:
    """The child: reads what its one argument names and writes the pickled report, or the error, to stdout."""
    answer_to = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # the reader's log lines
    from xsp_post.ingest.ncu_actions import read_report

    path, metrics = json.loads(sys.argv[1])
    answer: CounterReport | XspPostError
    try:
        answer = read_report(Path(path), metrics)
    except XspPostError as error:
        answer = error
    with os.fdopen(answer_to, "wb") as stream:
        pickle.dump(answer, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.close()
    os._exit(0)  # the reader may fail once more when it is unloaded


if __name__ == "__main__":
    main()
