"""Random programs of known structure, from a seed: a recording, and which kernels are one execution and one layer.

They are made as PyTorch, TensorRT, JAX and C++ programs look in a recording: names, order and grids of kernels come
from real ones. Nothing here knows how structure is found. `FAMILIES` says what there is; `draw` makes one.
"""

from __future__ import annotations

from collections.abc import Callable

from generators.draft import Program
from generators.families import inference, others, serving, training

FAMILIES: dict[str, Callable[[int], Program]] = {
    "inference loop": inference.inference_loop,
    "tokens and layers": inference.tokens,
    "training": training.training,
    "serving": serving.serving,
    "noise": others.noise,
    "mixture of experts": inference.experts,
    "replays of a graph": serving.replays,
    "encoder and decoder": inference.other_networks,
    "ranges around loops": inference.outermost,
    "two ranks": training.ranks,
    "data loading": training.data_loading,
    "JAX": others.jax,
    "convolution network": inference.convolutions,
    "stages of a frame": inference.stages,
    "gradient accumulation": training.accumulation,
    "several streams": others.streams,
    "compiled training": training.compiled,
    "something beside it": others.beside,
    "time steps": others.time_steps,
    "TensorRT": others.tensorrt,
    "single call": inference.single_call,
    "phases without steps": training.phases_only,
    "training and evaluation": training.evaluation,
    "one call of many passes": inference.host_loop,
    "pieces of graphs": serving.piecewise,
    "launched by another thread": others.other_thread,
    "device rows only": others.device_only,
    "window cut out": others.cut_out,
    "recurrent network": inference.recurrent,
    "two workers": others.two_workers,
    "diffusion": inference.diffusion,
}


def draw(seed: int) -> Program:
    """The program of a seed; seeds go through the families in turn."""
    families = list(FAMILIES.values())
    return families[seed % len(families)](seed)
