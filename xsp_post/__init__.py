"""xsp-post: one model → layer → kernel tree from NVIDIA Nsight captures, with the evidence for every latency."""

__version__ = "0.2.0"

# public name -> module; imported on first use (torch is heavy)
_LAZY = {"load": "xsp_post.api", "ranges": "xsp_post.workload.ranges", "record": "xsp_post.workload.recording_block",
         "step": "xsp_post.workload.ranges"}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'xsp_post' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
