"""``run`` → capture: the measured child process, ``python -m xsp_post.workload REQUEST`` (`collectors.base`).

REQUEST is JSON: the workload, and level, profiler and output folder of each level that the process measures.

Exit codes: 0 recorded · 6 disk full · 12 out of memory · otherwise that of the error. Why it failed is written to
``failure.json`` in the output folder; an error of the user's own code is left to Python's traceback.
"""

import errno
import json
import sys
from pathlib import Path
from typing import Any

from xsp_post.base.children import end_with
from xsp_post.base.errors import EXIT_OUTPUT, XspPostError
from xsp_post.model.capture import Workload

EXIT_OUT_OF_MEMORY = 12
_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


def main(words: list[str]) -> int:
    asked = json.loads(words[0])
    if asked["command_id"]:  # with xsp-post, or the profiler, this process goes too and disturbs no resumed run
        end_with(asked["command_id"])
    from xsp_post.workload.measure import Request, measure
    from xsp_post.workload.recorder import Recording

    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in asked["workload"].items()
    }
    recordings = tuple(Recording(level, profiler, Path(output)) for level, profiler, output in asked["levels"])
    request = Request(Workload(**settings), asked["batch_size"], recordings, asked["repeat"])
    folder = recordings[0].output
    try:
        measure(request)
    except XspPostError as error:
        _write_failure(folder, "error", error.message, code=error.code, hint=error.hint)
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if not isinstance(error, MemoryError) and not any(part in text for part in _MEMORY_TEXTS):
            raise
        _write_failure(folder, "out_of_memory", text.splitlines()[0] if text else "out of memory")
        sys.stderr.write(f"out of memory: {text}\n")
        return EXIT_OUT_OF_MEMORY
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.stderr.write(f"{error}\n")  # nothing more can be written: the exit code alone tells
        return EXIT_OUTPUT
    return 0


def _write_failure(folder: Path, kind: str, message: str, **more: str) -> None:
    (folder / "failure.json").write_text(json.dumps({"kind": kind, "message": message, **more}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
