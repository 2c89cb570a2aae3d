"""The paper's five systems as its authors' table of GPUs has them → their peaks."""

from __future__ import annotations

from xsp_post.hardware.gpus import Peaks

# Table VII: system → (GPU, flop/s, B/s).
# P4 and M60 reproduce the printed ideal intensities only unrounded; M60 counts both GPUs of the board.
PAPER_SYSTEMS: dict[str, tuple[str, float, float]] = {
    "Quadro_RTX": ("Quadro RTX 6000", 16_300e9, 624e9),
    "Tesla_V100": ("Tesla V100-SXM2-16GB", 15_700e9, 900e9),
    "Tesla_P100": ("Tesla P100-PCIE-16GB", 9_300e9, 732e9),
    "Tesla_P4": ("Tesla P4", 5_442e9, 192e9),
    "Tesla_M60": ("Tesla M60", 9_640e9, 320e9),
}


def paper_system(name: str) -> Peaks:
    """Peaks of one of the paper's five systems (Table VII): its own numbers, for reproduction. KeyError."""
    gpu_name, flop_per_s, bandwidth = PAPER_SYSTEMS[name]
    return Peaks(
        gpu_name,
        {"fp32": flop_per_s},
        bandwidth,
        None,
        "paper",
        "XSP paper, Table VII, with the unrounded peaks of its authors' GPU table",
    )
