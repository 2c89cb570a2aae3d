"""Jobs → outcomes: each in a sealed process of its own on this machine, or on a Dask cluster elsewhere.

What ends such a process ends one job, which is tried again: here once, after the others; on a cluster by the scheduler,
which hands it to another worker. Where no process can be forked (macOS, Windows) a pool of new ones does the jobs.
"""

import os
import select
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from xsp_post.base import children, sealed, stops
from xsp_post.base.errors import EXIT_OUTPUT, CaptureError, OutputError, ToolError, XspPostError, defect, in_words
from xsp_post.base.output import for_child, make_folder
from xsp_post.batch.jobs import Job
from xsp_post.batch.work import Outcome, as_outcome, failure, plain, process, record_path, store_path
from xsp_post.ingest.sources import make_before
from xsp_post.model.options import Options, Paths, choices_of

_CLUSTER_RETRIES = 3
_CONNECT_TIMEOUT_S = 20
Work = Callable[[Job], Outcome]
Apart = Callable[[], AbstractContextManager[None]]


def outcomes(
    jobs: Sequence[Job], folder: str, options: Options, *, workers: int = 1, scheduler: str = ""
) -> Iterator[tuple[Job, Outcome]]:
    """Every job with what came of it, in the order they finish. With ``scheduler`` on that Dask cluster.

    Raises `ToolError` (no cluster) and `OutputError` (the output folder cannot be written: every job would fail).
    """
    absolute = {one.name: [path.absolute() for path in getattr(options, one.name)] for one in choices_of(Paths)}
    options = replace(options, **absolute)  # type: ignore[arg-type]  # workers have another current folder
    work = partial(process, folder=folder, options=options)
    for job, outcome in _found(work, jobs, Path(folder), workers, scheduler) if jobs else ():
        if outcome.row.get("exit_code") == EXIT_OUTPUT:  # every other job would fail too
            raise OutputError(outcome.row["message"], code=outcome.row["code"])
        if not outcome.row.get("store_name"):
            store_path(Path(folder), job).unlink(missing_ok=True)  # of an earlier state of the capture
        yield job, outcome


def _found(
    work: Work, jobs: Sequence[Job], folder: Path, workers: int, scheduler: str
) -> Iterator[tuple[Job, Outcome]]:
    if scheduler:
        with _cluster(scheduler) as (executor, width):
            yield from _on(executor, work, jobs, width * 2)
    elif sealed.is_possible():
        yield from _in_children(work, jobs, workers, folder)
    else:
        yield from _on_pool(work, jobs, workers)


def _on(
    executor: Executor, work: Work, jobs: Sequence[Job], window: int, apart: Apart = nullcontext
) -> Iterator[tuple[Job, Outcome]]:
    """At most ``window`` jobs are submitted at a time. Raises `BrokenProcessPool` when a worker of a pool died."""
    waiting = list(reversed(jobs))
    running: dict[Future[Outcome], Job] = {}
    while waiting or running:
        while waiting and len(running) < window:
            job = waiting.pop()
            with stops.held(), apart():  # it may start a worker, which must be known to be ended
                running[executor.submit(work, job)] = job
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            # a broken pool breaks all its futures: those that had finished are handed on first
            if not isinstance(future.exception(), BrokenProcessPool):
                job = running.pop(future)
                yield job, _outcome(job, future)
        if any(isinstance(future.exception(), BrokenProcessPool) for future in done & running.keys()):
            raise BrokenProcessPool("a worker died")


def _outcome(job: Job, future: Future[Outcome]) -> Outcome:
    """What a finished future says: an outcome, or why there is none."""
    try:
        return future.result()
    except BaseException as raised:
        error = raised
    if isinstance(error, (OutputError, KeyboardInterrupt)):
        raise error
    if isinstance(error, (XspPostError, OSError)) and not isinstance(error, BrokenProcessPool):
        return failure(job, in_words(error))
    # by its name, so that distributed need not be imported where it is not used
    if type(error).__name__ in ("KilledWorker", "CancelledError", "FutureCancelledError"):
        return _died(job)
    known = in_words(error)
    if known.code == "out-of-memory":
        known.message = f"{job.sources[0]}: there is not enough memory for this"
        return failure(job, known)
    sentence = f"{job.sources[0]}: xsp-post failed ({defect(error)})"
    return failure(job, ToolError(sentence, code="batch-defect"))


def _died(job: Job) -> Outcome:
    return failure(job, ToolError(f"{job.sources[0]}: its worker process died", code="batch-worker-died"))


# -- this machine -------------------------------------------------------------------------------------------


def _in_children(work: Work, jobs: Sequence[Job], workers: int, folder: Path) -> Iterator[tuple[Job, Outcome]]:
    """Each job in a sealed process of its own, forked from this one, which has imported everything; one that was ended
    is tried once more, after the others: memory may have been short."""
    import_module("xsp_post.batch.warm")
    waiting, tried = list(reversed(jobs)), set()
    running: dict[int, tuple[sealed.Child, Job]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop()
                try:
                    with stops.held():  # it must be known to be ended
                        child = _begun(work, job, folder)
                        running[child.ending] = child, job
                except (XspPostError, BlockingIOError):  # what nsys says it says again, and that is kept
                    yield job, _settled(work, job)
            for ending in select.select(list(running), [], [])[0] if running else ():
                child, job = running.pop(ending)
                try:
                    outcome = as_outcome(child.answer())
                except CaptureError as error:
                    outcome = failure(job, error)
                    if job.name not in tried:
                        tried.add(job.name)
                        waiting.insert(0, job)
                        continue
                yield job, outcome
    finally:
        for child, _ in running.values():
            child.kill()


def _begun(work: Work, job: Job, folder: Path) -> sealed.Child:
    sources = [Path(source) for source in job.sources]
    make_before(sources)
    for path in (store_path(folder, job), record_path(folder, job)):
        make_folder(path.parent)
        for_child(path)
    return sealed.begin(lambda: plain(_in_child(work, job)), sources)


def _in_child(work: Work, job: Job) -> Outcome:
    # a column of a frame is found by its name: four times as fast as of Arrow's texts; not a caller's setting
    import_module("pandas").set_option("mode.string_storage", "python")
    return _settled(work, job)


def _settled(work: Work, job: Job) -> Outcome:
    """What comes of the work here, its error in words."""
    future: Future[Outcome] = Future()
    try:
        future.set_result(work(job))
    except OutputError as error:
        return failure(job, error)
    except Exception as error:
        future.set_exception(error)
    return _outcome(job, future)


def _on_pool(work: Work, jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Outcome]]:
    """Where no process can be forked: new ones, each for many jobs; where one dies, what it may have had is lost."""
    left, window = list(jobs), workers + 1  # a worker that finishes finds the next job waiting
    apart = partial(children.apart, *{os.path.dirname(source) for job in jobs for source in job.sources})
    while left:
        with apart():
            pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        try:
            for job, outcome in _on(pool, work, list(left), window, apart):
                left.remove(job)
                yield job, outcome
        except BrokenProcessPool:
            yield from ((job, _died(job)) for job in left[:window])
            left = left[window:]
        finally:
            pool.shutdown(cancel_futures=True)


# -- a cluster ----------------------------------------------------------------------------------------------


@contextmanager
def _cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """(executor, threads of the cluster; eight where it is still starting). Raises `ToolError` when there is none."""
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise ToolError(
            "--scheduler needs the package distributed, which is not installed", code="cluster-missing"
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, ImportError) as error:
        raise ToolError(
            f"{address}: no Dask scheduler answers there ({type(error).__name__})", code="cluster-unreachable"
        ) from error
    try:
        yield client.get_executor(pure=False, retries=_CLUSTER_RETRIES), sum(client.nthreads().values()) or 8
    finally:
        client.close()
