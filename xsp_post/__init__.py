"""xsp-post: one model → layer → kernel tree from NVIDIA Nsight captures, with latencies that can be believed."""

__version__ = "0.1.0"
