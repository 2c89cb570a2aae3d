"""Jobs → outcomes, with workers that may die: one loop over a process pool here or a Dask cluster elsewhere.

Both engines are `concurrent.futures` executors, so that the code is the same. A job whose worker died is tried
again: on the pool alone in a fresh process, to find the one that kills; on a cluster by the scheduler, which
hands it to another worker. Nothing else is lost by it. Where the system gives no worker (too little memory, too many
processes), the jobs are done one after another in this process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from xsp_post.base import children, limits, stops
from xsp_post.base.errors import OutputError, ToolError, XspPostError, defect, in_words
from xsp_post.batch.jobs import Job
from xsp_post.batch.work import Outcome, failure, process
from xsp_post.model.options import Options, Paths, choices_of

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

_CLUSTER_RETRIES = 3
_CONNECT_TIMEOUT_S = 20
_GRACE_S = 1.0  # for workers to clear away what is half-written
_LOOK_S = 5.0
# Below this limit of a process (ulimit -v) there are no workers: each needs 1.5 GB of addresses before it has begun.
_ADDRESSES_BYTES = 4 << 30
# What starting a worker raises: it, its server or a thread was not to be had, or ended at once.
_NO_WORKER = (EOFError, MemoryError, OSError, RuntimeError)
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
    if not jobs:
        return
    if scheduler:
        with _cluster(scheduler) as (executor, width):
            yield from _on(executor, work, jobs, width * 2)
        return
    yield from _on_pool(work, jobs, workers) if _has_room_for_workers() else _here(work, jobs)


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
        done, _ = wait(running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        if not done and not _is_served(executor):
            raise BrokenProcessPool("nobody waits for the workers")
        for future in done:
            # a broken pool breaks all its futures: those that had finished are handed on first
            if not isinstance(future.exception(), BrokenProcessPool):
                job = running.pop(future)
                yield job, _outcome(job, future)
        if any(isinstance(future.exception(), BrokenProcessPool) for future in done & running.keys()):
            raise BrokenProcessPool("a worker died")


def _is_served(executor: Executor) -> bool:
    """Whether a pool still has the thread that hands on what its workers did; true of what is no pool."""
    thread = getattr(executor, "_executor_manager_thread", None)
    return thread is None or thread.is_alive()


def _outcome(job: Job, future: Future[Outcome]) -> Outcome:
    """What a finished future says: an outcome, or why there is none."""
    try:
        error = future.exception()
    except CancelledError as cancelled:
        error = cancelled
    if error is None:
        return future.result()
    if isinstance(error, (OutputError, KeyboardInterrupt)):
        raise error
    if isinstance(error, (XspPostError, OSError)) and not isinstance(error, BrokenProcessPool):
        return failure(job, in_words(error))
    # by its name, so that distributed need not be imported where it is not used
    died = type(error).__name__ in ("KilledWorker", "CancelledError", "FutureCancelledError")
    if died:
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


def _on_pool(work: Work, jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Outcome]]:
    """A process pool; after a death its unfinished jobs go on, those that may have caused it one at a time."""
    work, left = partial(_within_limits, work), list(jobs)
    suspects: list[Job] = []
    apart = partial(children.apart, *{os.path.dirname(source) for job in jobs for source in job.sources})
    while left or suspects:
        if suspects:
            yield _alone(work, suspects.pop(0), apart)
            continue
        # one more than workers: a worker that finishes finds the next job waiting
        window = workers + 1
        pool = None
        try:
            pool = _pool(min(workers, len(left)), apart)
            for job, outcome in _on(pool, work, list(left), window, apart):
                left.remove(job)
                yield job, outcome
        except BrokenProcessPool:
            suspects, left = left[:window], left[window:]
        except _NO_WORKER:
            break
        finally:
            _stop(pool)
    yield from _here(work, left)


def _alone(work: Work, job: Job, apart: Apart) -> tuple[Job, Outcome]:
    """A job that may have killed its worker, in a process of its own."""
    pool = None
    try:
        pool = _pool(1, apart)
        return next(iter(_on(pool, work, [job], 1, apart)))
    except _NO_WORKER:  # a broken pool too; it is not tried in this process, which it might kill
        return job, _died(job)
    finally:
        _stop(pool)


def _within_limits(work: Work, job: Job) -> Outcome:
    """The work in this process, which the system ends where it takes far too much time, or denies too much memory."""
    if resource is not None and not limits.are_lifted():
        size = sum(os.path.getsize(source) for source in job.sources if os.path.isfile(source))
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = used.ru_utime + used.ru_stime + limits.CPU_S + size * limits.CPU_S_PER_BYTE
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for kind, most in ((resource.RLIMIT_CPU, int(cpu_s)), (resource.RLIMIT_DATA, memory)):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    return work(job)


def _has_room_for_workers() -> bool:
    """Whether the addresses that a process may use suffice for workers."""
    if resource is None:
        return True
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return limit == resource.RLIM_INFINITY or limit >= _ADDRESSES_BYTES


def _here(work: Work, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
    """The jobs one after another in this process. Raises at once what keeps it from analysing anything."""
    if jobs:
        import_module("xsp_post.batch.warm")
    for job in jobs:
        future: Future[Outcome] = Future()
        try:
            future.set_result(work(job))
        except Exception as error:
            future.set_exception(error)
        yield job, _outcome(job, future)


def _pool(workers: int, apart: Apart) -> ProcessPoolExecutor:
    with apart():
        return ProcessPoolExecutor(workers, mp_context=_context(), initializer=_begin_worker)


def _context() -> multiprocessing.context.BaseContext:
    """Workers are forked from a clean server that has imported everything once: cheap to start, safe to fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "xsp_post.batch.warm"])
    from multiprocessing import forkserver, resource_tracker

    # Ctrl-C reaches every process of the terminal: the server and all it forks never see it
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _silent():
            resource_tracker.ensure_running()
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return context


@contextmanager
def _silent() -> Iterator[None]:
    """Processes started here, and what they start, have nobody to speak to: that they ended says enough."""
    if os.environ.get("XSP_POST_DEBUG"):
        yield
        return
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _begin_worker() -> None:
    """Ctrl-C is the parent's business: it ends the workers, which then clear away what is half-written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from xsp_post.batch import warm

    warm.up()


def _end_with_parent() -> None:
    """A worker whose command was killed clears away what is half-written and ends too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        stops.remove_unfinished()
        os._exit(1)


def _leave(signal_number: int, frame: object) -> None:
    stops.remove_unfinished()
    os._exit(128 + signal_number)


def _stop(pool: ProcessPoolExecutor | None) -> None:
    """End a pool at once when there is unfinished work (an interrupt, an error), else let it go."""
    if pool is None:
        return
    unfinished = bool(getattr(pool, "_pending_work_items", None))
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=not unfinished, cancel_futures=True)
    if unfinished:
        stops.give_time(3 * _GRACE_S)
        for one in processes:
            one.terminate()
        deadline = time.monotonic() + _GRACE_S
        for one in processes:  # they use semaphores that end with this process
            one.join(max(0.0, deadline - time.monotonic()))
            one.kill()


# -- a cluster ----------------------------------------------------------------------------------------------


@contextmanager
def _cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """(executor, threads of the cluster). Raises `ToolError` when there is none."""
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
        yield client.get_executor(pure=False, retries=_CLUSTER_RETRIES), _width(client)
    finally:
        client.close()


def _width(client: Any) -> int:
    """Threads of all workers; a cluster that is still starting counts as eight."""
    return sum(client.nthreads().values()) or 8
