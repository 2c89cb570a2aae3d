"""``run`` → capture: the command line of the measured child process, ``python -m xsp_post.workload``.

``--level``, ``--profiler`` and ``--output`` are given once for each level that the process measures.

Exit codes: 0 recorded · 6 disk full · 12 out of memory · otherwise that of the error. Why it failed is written to
``failure.json`` in the output folder; an error of the user's own code is left to Python's traceback.
"""

from __future__ import annotations

import argparse
import errno
import json
import sys
from pathlib import Path

from xsp_post.base.children import end_with
from xsp_post.base.errors import EXIT_OUTPUT, XspPostError
from xsp_post.model.capture import Workload
from xsp_post.model.levels import RUN_LEVELS

EXIT_OUT_OF_MEMORY = 12
_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if (
        options.command_id
    ):  # when xsp-post is killed, or the profiler, this process goes too and disturbs no resumed run
        end_with(options.command_id)
    from xsp_post.workload.measure import Request, measure
    from xsp_post.workload.recorder import Recording

    names = vars(Workload(model="")).keys()
    workload = Workload(**{name: getattr(options, name) for name in names})
    profilers = options.profiler or ["none"] * len(options.level)
    recordings = tuple(
        Recording(level, profiler, Path(output))
        for level, profiler, output in zip(options.level, profilers, options.output, strict=True)
    )
    request = Request(workload, options.batch_size, recordings, options.repeat)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m xsp_post.workload", description="Measure one capture.")
    parser.add_argument("--command-id", type=int, default=0, help="process whose end is also the end of this one")
    parser.add_argument("--model", required=True)
    parser.add_argument("--level", required=True, action="append", choices=RUN_LEVELS)
    parser.add_argument("--profiler", action="append", choices=("none", "torch", "cuda", "nvtx"))
    parser.add_argument("--output", required=True, action="append")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--repeat", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--mode", choices=("inference", "train"), default="inference")
    parser.add_argument("--input-shape", type=_sizes, default=())
    parser.add_argument("--compiled", dest="is_compiled", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", dest="warmup_count", type=int, default=3)
    parser.add_argument("--iterations", dest="iteration_count", type=int, default=10)
    parser.add_argument("--fitted", dest="is_fitted", action="store_true")
    parser.add_argument("--layer-depth", type=int, default=-1)
    parser.add_argument("--layer-kinds", type=_words, default=())
    parser.add_argument("--no-serialize", dest="is_serialized", action="store_false")
    parser.add_argument("--launch-blocking", dest="is_launch_blocking", action="store_true")
    parser.add_argument("--threads", dest="thread_count", type=int, default=0)
    return parser


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _words(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


if __name__ == "__main__":
    sys.exit(main())
