"""``ingest``: an Nsight Compute report (``.ncu-rep``, or the CSV of its raw page) → ``CounterReport``.

Reports are read by NVIDIA's own ``ncu_report`` (extra ``ncu``; needs no GPU), in a child process, else by a local
``ncu --import``.
"""

import os
import pickle
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from xsp_post.base import children
from xsp_post.base.errors import CaptureError, ToolError, XspPostError
from xsp_post.hardware import tools
from xsp_post.ingest.recognition import is_ncu_report, sniff_ncu
from xsp_post.model.counters import CounterReport


def read_ncu(path: Path) -> CounterReport:
    """Counters of a report.

    Values are in base units (ns, byte, hz …). Raises CaptureError when the file holds no result, ToolError when
    nothing is there to read it with. Memory: 16 bytes per value.
    """
    from xsp_post.ingest.ncu_csv import read_ncu_csv

    if not is_ncu_report(path):
        if sniff_ncu(path):
            return read_ncu_csv(path.read_text(encoding="utf-8", errors="replace"), path.name)
        raise CaptureError(f"{path}: is not an Nsight Compute report.", code="ncu-report-unreadable")
    if find_spec("ncu_report") is None:
        return read_ncu_csv(asked_before.pop(path, "") or import_by_tool(path), path.name)
    return read(path)


def needs_tool(path: Path) -> bool:
    """Whether a file is a report that only ncu can read here."""
    return path.suffix == ".ncu-rep" and find_spec("ncu_report") is None and is_ncu_report(path)


asked_before: dict[Path, str] = {}  # imported for a sealed process, which starts no ncu


def import_by_tool(path: Path) -> str:
    """The raw page of a report as CSV text, printed by a local ncu."""
    tool = tools.find_ncu()
    if tool is None:
        raise ToolError(
            f"{path}: neither NVIDIA's ncu_report package nor ncu is here to read it.", code="ncu-reader-missing"
        )
    command = [str(tool.path), "--import", str(path), "--csv", "--page", "raw", "--print-units", "base",
               "--print-kernel-base", "demangled"]  # fmt: skip
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=600, check=False,
            env={**os.environ, "LC_ALL": "C"},  # else numbers are written as the locale writes them
            preexec_fn=children.end_with_parent(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{path}: {tool.path} could not import it ({error}).", code="ncu-import-failed") from error
    if ended.returncode != 0:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:] or ["no message"]
        raise ToolError(
            f"{path}: ncu --import ended with {ended.returncode}: {last[0][:300]}", code="ncu-import-failed"
        )
    return ended.stdout


def read(path: Path) -> CounterReport:
    """The report as a child process reads it. CaptureError where the child does not end well."""
    done = subprocess.run(
        children.python("xsp_post.ingest.ncu", os.fspath(path)),
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

    answer: CounterReport | XspPostError
    try:
        answer = read_report(Path(sys.argv[1]))
    except XspPostError as error:
        answer = error
    with os.fdopen(answer_to, "wb") as stream:
        pickle.dump(answer, stream, protocol=pickle.HIGHEST_PROTOCOL)
    os._exit(0)  # the reader may fail once more when it is unloaded


if __name__ == "__main__":
    main()
