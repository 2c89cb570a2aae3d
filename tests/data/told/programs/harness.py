"""Records programs whose truth is known, each in a child of its own, by torch.profiler (or under nsys, see NSYS).

    python harness.py OUT FILE… [--only NAME,NAME] [--limit SECONDS]

A FILE defines programs:

    from harness import program, record, CUDA, D, sync

    @program(executions=12, layers=6, limits=["host"], note="a sentence of the owner")
    def name():
        ... build, warm up ...
        with record(shapes=True):          # stack=, modules=, steps= : as torch.profiler has them
            for _ in range(12): step()
            sync()
"""
import contextlib, importlib, json, os, signal, subprocess, sys, time
from pathlib import Path

PROGRAMS = {}


def program(**truth):
    def keep(function):
        PROGRAMS[function.__name__] = (function, {**truth, "says": (function.__doc__ or "").strip()})
        return function
    return keep


import torch  # noqa: E402

NSYS = bool(os.environ.get("NSYS_PROGRAM"))
_OUT = None


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    elif os.environ.get("AS_GPU"):
        with said("sync"):
            pass


def said(word):
    """On a CPU, not seen by the reader: sync (the host waits for the device), host (what is inside runs on the CPU of a
    GPU's host, too), @graph (one launch of a CUDA graph of what is inside)."""
    return torch.profiler.record_function(f"##{word}")


class _Device:
    def __str__(self):
        return "cuda" if torch.cuda.is_available() else "cpu"


class _Cpu(str):
    """The device of the program: what moves to it would be a copy to a GPU."""


def D():
    return "cuda" if torch.cuda.is_available() else _Cpu("cpu")


@contextlib.contextmanager
def execution(name="execution"):
    """Truth, not seen by the reader: one execution of the model (a step). Another ``name``: another accepted answer
    (the whole request and the token, say); give each name to all of its kind."""
    with torch.profiler.record_function(f"##@e:{name}"):
        yield


@contextlib.contextmanager
def layer(name="layer"):
    """Truth, not seen by the reader: a layer that is no call of a module."""
    with torch.profiler.record_function(f"##@b:{name}"):
        yield


def blocks(modules, name="block"):
    """Truth, not seen by the reader: every call of one of these modules is a layer. Returns the modules."""
    open_marks = []

    def enter(*_):
        mark = torch.profiler.record_function(f"##@b:{name}")
        mark.__enter__()
        open_marks.append(mark)

    def leave(*_):
        open_marks.pop().__exit__(None, None, None)
    modules = list(modules)
    for one in modules if os.environ.get("AS_GPU") else ():
        one.register_forward_pre_hook(enter)
        one.register_forward_hook(leave, always_call=True)
    return modules


if os.environ.get("AS_GPU"):  # on a CPU: say where a GPU would copy
    _to, _cpu = torch.Tensor.to, torch.Tensor.cpu

    def _moves(word, function):
        def move(self, *args, **more):
            if word == "HtoD" and not any(isinstance(a, _Cpu) for a in (*args, *more.values())):
                return function(self, *args, **more)
            waits = 0 if more.get("non_blocking") else 1
            with torch.profiler.record_function(f"##{word} {self.numel() * self.element_size()} {waits}"):
                return function(self, *args, **more)
        return move
    torch.Tensor.to = _moves("HtoD", _to)
    torch.Tensor.cpu = _moves("DtoH", _cpu)
    torch.Tensor.tolist = _moves("DtoH", torch.Tensor.tolist)


def CUDA():
    return torch.cuda.is_available()


@contextlib.contextmanager
def record(shapes=False, stack=False, modules=False, memory=False, cpu=True):
    """The recorded part. Under nsys the flags mean nothing."""
    sync()
    if NSYS:
        torch.cuda.cudart().cudaProfilerStart()
        with torch.autograd.profiler.emit_nvtx() if os.environ.get("NSYS_EMIT") else contextlib.nullcontext():
            yield None
        sync()
        torch.cuda.cudart().cudaProfilerStop()
        return
    from torch.profiler import ProfilerActivity, profile
    acts = [ProfilerActivity.CPU] * cpu + [ProfilerActivity.CUDA] * CUDA()
    shapes = shapes or bool(os.environ.get("FORCE_SHAPES"))
    p = profile(activities=acts, record_shapes=shapes, with_stack=stack, with_modules=modules, profile_memory=memory)
    p.__enter__()
    try:
        yield p
        sync()
    finally:
        p.__exit__(None, None, None)
    p.export_chrome_trace(str(_OUT))


def main():
    global _OUT
    argv = sys.argv[1:]
    only, limit, files = None, 40, []
    while argv:
        word = argv.pop(0)
        if word == "--only":
            only = argv.pop(0).split(",")
        elif word == "--limit":
            limit = float(argv.pop(0))
        else:
            files.append(word)
    out = Path(files.pop(0))
    out.mkdir(parents=True, exist_ok=True)
    sys.modules["harness"] = sys.modules["__main__"]
    for file in files:
        sys.path.insert(0, str(Path(file).resolve().parent))
        importlib.import_module(Path(file).stem)
    if NSYS:
        torch.manual_seed(0)
        PROGRAMS[os.environ["NSYS_PROGRAM"]][0]()
        return
    truth, packing = {}, []
    for name, (function, says) in PROGRAMS.items():
        if only and name not in only:
            continue
        began = time.time()
        path = out / f"{name}.json"
        _OUT = path
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                torch.manual_seed(0)
                function()
                code = 0
            except BaseException as error:
                import traceback
                print(name, "FAILED", type(error).__name__, str(error)[:300], traceback.format_exc()[-600:], flush=True)
            sys.stdout.flush()
            os._exit(code)
        while time.time() - began < limit:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            time.sleep(0.02)
        else:
            os.killpg(child, signal.SIGKILL) if os.getpgid(child) == child else os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            print(name, "TOO LONG", flush=True)
            continue
        if path.exists():
            truth[name] = says
            print(f"{name:28} {time.time() - began:5.1f} s {path.stat().st_size / 1e6:6.2f} MB", flush=True)
            packing.append(subprocess.Popen(["gzip", "-9f", str(path)]))
            (out / "truth.json").write_text(json.dumps(truth, indent=1))
    for one in packing:
        one.wait()


if __name__ == "__main__":
    main()
