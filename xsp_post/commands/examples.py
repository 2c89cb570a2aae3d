"""Examples that stand at the end of every command's help and in docs/cli.md."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": ("xsp-post run --model resnet50 --batch-size 1,2,4",
            "xsp-post run --model net.py:build --mode train -o net.xsp-run"),
    "record": ("xsp-post record -- python train.py --epochs 1",
               "xsp-post record --label fused-optimizer -- python train.py --epochs 1"),
    "ingest": ("xsp-post ingest report.sqlite -o report.xsp.sqlite --report report.html",),
    "tree": ("xsp-post tree report.sqlite", "xsp-post tree run.xsp.sqlite --depth 3 --json"),
    "why": ("xsp-post why report.sqlite", "xsp-post why run.xsp.sqlite --layer 'layer4.*'"),
    "table": ("xsp-post table --list", "xsp-post table A10 run.xsp.sqlite --format csv -o kernels.csv"),
    "report": ("xsp-post report run.xsp.sqlite -o run.html", "xsp-post report run.xsp.sqlite --only A9 --format svg"),
    "compare": ("xsp-post compare before.xsp.sqlite after.xsp.sqlite --fail-if 'model_latency>3%'",),
    "what-if": ("xsp-post what-if run.xsp.sqlite --change 'kernel:.*gemm.*=0.5x'",),
    "batch": ("xsp-post batch captures/ -o fleet --workers 4",),
    "history": ("xsp-post history captures/ --fail-if 'model_latency>3% since last'",),
    "baseline": ("xsp-post baseline save release run.xsp.sqlite", "xsp-post baseline list"),
    "export": ("xsp-post export run.xsp.sqlite --to perfetto", "xsp-post export run.xsp.sqlite --to xlsx -o run.xlsx"),
    "doctor": ("xsp-post doctor", "xsp-post doctor --measure-peaks -o peaks.json"),
    "open": ("xsp-post open run.xsp.sqlite",),
    "explain": ("xsp-post explain module-loading",),
    "mcp": ("xsp-post mcp captures/",),
    "recipe-path": ("xsp-post recipe-path",),
}  # fmt: skip


def examples_text(name: str) -> str | None:
    """The examples of a command as the end of its help, each on a line of its own."""
    lines = EXAMPLES.get(name)
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) if lines else None
