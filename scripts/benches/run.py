"""What measuring costs: a hook per layer call, and each collector on whole models.

Hook cost: a chain of 200 layers that do nothing, called with and without ranges; the difference per layer call.
Collector cost: captures of a model at M (nothing on), M/L (clock) and M/L/G (torch.profiler, and nsys where it
is found), interleaved; what each adds to the model's latency.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HOOKS = """
import json, statistics, sys, time
import torch
from xsp_post.workload import ranges

class Nothing(torch.nn.Module):
    def forward(self, x):
        return x

model = torch.nn.Sequential(*[Nothing() for _ in range(LAYERS)])
x = torch.zeros(1)

def per_call_ns():
    best = []
    for _ in range(REPEAT):
        start = time.perf_counter_ns()
        model(x)
        best.append((time.perf_counter_ns() - start) / LAYERS)
    return statistics.median(best)

def cost_ns(make_sink):
    samples = []
    for _ in range(5):
        plain = per_call_ns()
        sink = make_sink()
        layers = ranges.LayerRanges(model, sink)
        best = []
        for _ in range(REPEAT):
            layers.begin_iteration()
            start = time.perf_counter_ns()
            model(x)
            best.append((time.perf_counter_ns() - start) / LAYERS)
        layers.remove()
        samples.append(statistics.median(best) - plain)
    return statistics.median(samples)

class NoSink:
    def prepare(self, text, category, payload): return None
    def push(self, prepared): pass
    def pop(self, shape): pass

with torch.inference_mode():
    found = {
        "hooks alone": cost_ns(NoSink),
        "clock readings (M/L)": cost_ns(ranges.ClockSink),
        "NVTX, no tool listening": cost_ns(ranges.NvtxSink),
        "annotations, no profiler": cost_ns(ranges.AnnotationSink),
    }
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        found["annotations under torch.profiler (M/L/G)"] = cost_ns(ranges.AnnotationSink)
print(json.dumps(found))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="resnet50", help="the model of the second table")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5, help="captures of every level")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--hooks-only", action="store_true", help="only the first table")
    parser.add_argument("--independent", action="store_true", help="also a plain timing loop, to compare with (CPU)")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a hook costs over 20 µs per layer call")


def main(options: argparse.Namespace) -> int:
    costs = hook_costs()
    print("| per layer call | adds |\n|---|---:|")
    for name, cost_ns in costs.items():
        print(f"| {name} | {cost_ns / 1000:.2f} µs |")
    if not options.hooks_only:
        collectors(options)
        if options.independent:
            independent(options)
    return 1 if options.check and max(costs.values()) > 20_000 else 0


def hook_costs() -> dict[str, float]:
    """Name of the sink → nanoseconds added per layer call, measured in a process of its own."""
    script = HOOKS.replace("LAYERS", "200").replace("REPEAT", "100")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def collectors(options: argparse.Namespace) -> None:
    """The table of what each collector adds to the model's latency."""
    from xsp_post import pipeline, run
    from xsp_post.commands.run import device_of
    from xsp_post.model.capture import Workload
    from xsp_post.model.schemas.units import format_ns, format_ratio_percent
    from xsp_post.workload import collectors

    device = device_of("auto")
    workload = Workload(options.model, device=device, iteration_count=options.iterations)
    kinds = ["torch"] + (["nsys"] if collectors.get("nsys").check().is_available else [])
    print(f"\n{options.model}, batch {options.batch_size}, {device}; {options.repeat} captures of each level\n")
    print("| level | collector | latency | adds to the level above | 95 % interval | |\n|---|---|---:|---:|---|---|")
    for kind in kinds:
        plan = run.RunPlan(workload, (options.batch_size,), collector=kind, repeat_count=options.repeat)
        with tempfile.TemporaryDirectory() as folder:
            result = run.execute(plan, Path(folder) / "run")
            table = pipeline.analyze([result.directory]).frame("overhead")
            wall = {
                level: statistics.median(made.wall_ns for made in result.captures if made.level == level) / 1e9
                for level in plan.levels
            }
        for row in table[table["event_kind"] == "model"].to_dict("records"):
            name = "none" if row["level"] == "M" else "clock" if row["level"] == "M/L" else kind
            interval = f"{format_ns(row['ci_low_overhead_ns'])} … {format_ns(row['ci_high_overhead_ns'])}"
            added = f"{format_ns(row['overhead_ns'])} ({format_ratio_percent(row['overhead_ratio'])})"
            is_first = not row["compared_level"]
            cells = [
                row["level"],
                name,
                format_ns(row["latency_ns"]),
                "" if is_first else added,
                "" if is_first else interval,
                f"{row['verdict']}; capture {wall[row['level']]:.1f} s",
            ]
            print(f"| {' | '.join(cells)} |")


PLAIN = """
import json, sys, time
import torch
from xsp_post.arrays import statistics
from xsp_post.model.capture import Workload
from xsp_post.workload import models, ranges

built = models.build(Workload(sys.argv[1], warmup_count=3), int(sys.argv[2]))
count, samples = int(sys.argv[3]) + 3, []

def go(layers):
    for _ in range(count):
        if layers:
            layers.begin_iteration()
        start = time.perf_counter_ns()
        for phase in built.phases:
            phase.run()
        samples.append(time.perf_counter_ns() - start)

with torch.inference_mode():
    if sys.argv[4] == "profiled":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            go(ranges.LayerRanges(built.model, ranges.AnnotationSink()))
    else:
        go(None)
print(json.dumps(statistics.trimmed_mean(samples[3:])))
"""


def independent(options: argparse.Namespace) -> None:
    """The same model in a plain timing loop without and with torch.profiler: what the table must agree with."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    from helpers import compare_samples

    from xsp_post.model.schemas.units import format_ns

    means: dict[str, list[float]] = {"plain": [], "profiled": []}
    for _ in range(options.repeat):
        for kind, values in means.items():
            sizes = [str(options.batch_size), str(options.iterations)]
            command = [sys.executable, "-c", PLAIN, options.model, *sizes, kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            values.append(json.loads(done.stdout.splitlines()[-1]))
    found = compare_samples(means["plain"], means["profiled"], trim_ratio=0.0)
    print(
        f"\nIndependent (plain loop, CPU): {format_ns(found.base)} without and {format_ns(found.other)} with "
        f"torch.profiler: {format_ns(found.difference)} [{format_ns(found.ci_low)} … {format_ns(found.ci_high)}]"
    )
