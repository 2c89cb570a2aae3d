"""Is level M of `xsp-post run` what a plain loop takes? Each measurement is a process of its own.

python plain_loop.py plain BATCH             a plain loop of torchvision's resnet50 (else xsp_post's own); JSON on stdout
python plain_loop.py M BATCH                 one level-M process of `xsp-post run`, alone (python -m xsp_post.workload); JSON
python plain_loop.py abba OUT.json [1,64] [TURNS]   plain M M plain …, TURNS of each (default 4); a summary on stdout

Both sides: same model, fp32 (cuDNN may use TF32: torch's default), inference_mode, 20 warm-ups, 40 executions.
`plain` measures three times, one after another, 40 executions each (first two after 20 warm-ups together):
  each_ms    clock around each execution, which waits for the GPU: what level M measures, too
  events_ms  CUDA events around each execution of a loop that waits once, at its end
  loop_ms    the clock around that loop, a execution of it (throughput)
"""
import json, statistics, subprocess, sys, tempfile, time
from pathlib import Path

WARMUPS, EXECUTIONS = 20, 40
ROOT = Path(__file__).resolve().parents[1]


def name_of_model():
    try:
        import torchvision.models  # noqa: F401
        return "torchvision:resnet50"
    except Exception:
        return "resnet50"


def shape():
    import torch
    return (3, 224, 224) if torch.cuda.is_available() else (3, 64, 64)


def plain(batch):
    import torch
    if name_of_model() == "resnet50":
        sys.path.insert(0, str(ROOT))
        from xsp_post.workload.vision import ResNet50
        build = ResNet50
    else:
        from torchvision.models import resnet50 as build
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    wait = torch.cuda.synchronize if cuda else lambda: None
    torch.manual_seed(0)
    net = build().to(device).eval()
    x = torch.rand(shape()).expand(batch, *shape()).contiguous().to(device)
    each, events = [], []
    with torch.inference_mode():
        for _ in range(WARMUPS):
            net(x)
        wait()
        for _ in range(EXECUTIONS):
            wait()
            start = time.perf_counter()
            net(x)
            wait()
            each.append((time.perf_counter() - start) * 1e3)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(EXECUTIONS + 1)] if cuda else []
        wait()
        start = time.perf_counter()
        if cuda:
            marks[0].record()
        for i in range(EXECUTIONS):
            net(x)
            if cuda:
                marks[i + 1].record()
        wait()
        loop = (time.perf_counter() - start) * 1e3 / EXECUTIONS
        events = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    return {"kind": "plain", "model": name_of_model(), "batch": batch, "each_ms": each, "events_ms": events, "loop_ms": loop}


def request(batch, folder):
    """The words of `python -m xsp_post.workload` for one level-M process without a profiler."""
    import torch
    workload = {"model": name_of_model(), "device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32",
                "mode": "inference", "input_shape": list(shape()), "warmup_count": WARMUPS, "iteration_count": EXECUTIONS}
    return {"levels": [["M", "none", str(folder)]], "command_id": 0, "batch_size": batch, "repeat": 0, "workload": workload}


def level_m(batch):
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "xsp_post.workload", json.dumps(request(batch, folder))]
        print(" ".join(words[:-1]), f"'{words[-1]}'", file=sys.stderr)
        subprocess.run(words, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        spans = json.loads((Path(folder) / "spans.json").read_text())
    each = [(end - start) / 1e6 for index, start, end in zip(spans["text_indexes"], spans["start_ns"], spans["end_ns"])
            if spans["texts"][index].startswith("model:")]
    return {"kind": "M", "model": name_of_model(), "batch": batch, "each_ms": each}


def abba(out, batches, turns):
    rows = []
    for batch in batches:
        for turn in range(turns):
            for kind in ("plain", "M") if turn % 2 == 0 else ("M", "plain"):
                began = time.time()
                done = subprocess.run([sys.executable, __file__, kind, str(batch)], capture_output=True, text=True)
                if done.returncode:
                    print(kind, batch, "failed", done.stderr[-300:], flush=True)
                    continue
                row = json.loads(done.stdout.strip().splitlines()[-1])
                rows.append(row)
                Path(out).write_text(json.dumps(rows))
                more = f", loop {row['loop_ms']:.3f}" if kind == "plain" else ""
                if row.get("events_ms"):
                    more += f", events {statistics.median(row['events_ms']):.3f}"
                print(f"batch {batch:3} {kind:5} median {statistics.median(row['each_ms']):.3f}, mean {statistics.mean(row['each_ms']):.3f}"
                      f"{more} ms  ({time.time() - began:.1f} s)", flush=True)
        by = {kind: [statistics.mean(row["each_ms"]) for row in rows if row["kind"] == kind and row["batch"] == batch] for kind in ("plain", "M")}
        if all(by.values()):
            means = {kind: statistics.mean(values) for kind, values in by.items()}
            spread = {kind: statistics.stdev(values) if len(values) > 1 else 0.0 for kind, values in by.items()}
            print(f"batch {batch:3} plain {means['plain']:.3f} ± {spread['plain']:.3f} ms, M {means['M']:.3f} ± {spread['M']:.3f} ms "
                  f"(means of processes, standard deviation): M / plain − 1 = {means['M'] / means['plain'] - 1:+.2%}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "abba":
        abba(sys.argv[2], [int(b) for b in (sys.argv[3] if len(sys.argv) > 3 else "1,64").split(",")],
             int(sys.argv[4]) if len(sys.argv) > 4 else 4)
    else:
        print(json.dumps((plain if sys.argv[1] == "plain" else level_m)(int(sys.argv[2]))))
