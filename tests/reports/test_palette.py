"""Colours that stand side by side stay different for people with a colour-vision deficiency, light and dark."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from xsp_post.reports import theme

# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear sRGB
MATRICES = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
_TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
_WHITE = np.array([0.95047, 1.0, 1.08883])
JUST_SEEN = 2.3  # CIE 1976 difference that is just noticeable (Mahy et al. 1994)
LEAST = 4 * JUST_SEEN

# What is drawn beside one another, by role; the words or shapes beside them say the same.
SETS = {
    "bounds": ("memory", "compute", "latency", "unknown"),
    "changes": ("other", "base", "unknown", "latency"),
    "kernels and gaps": ("kernel", "other"),
    "reads and writes": ("read", "write"),
    "levels": ("base", "overhead"),
}


def lab(hexadecimal: str, vision: str) -> np.ndarray:
    channels = np.array([int(hexadecimal[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(MATRICES[vision]) @ linear, 0, 1)
    ratio = np.array(_TO_XYZ) @ seen / _WHITE
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colors: dict[str, str], vision: str) -> tuple[float, str]:
    """The least difference of two colours, and which two."""
    pairs = itertools.combinations(colors, 2)
    return min((float(np.linalg.norm(lab(colors[a], vision) - lab(colors[b], vision))), f"{a}, {b}") for a, b in pairs)


def test_the_simulation_knows_what_is_confused():
    red_green = {"red": "#c05040", "green": "#708030"}
    assert nearest(red_green, "normal")[0] > 40 > 2 * nearest(red_green, "deuteranopia")[0]
    assert lab("#ffffff", "protanopia") == pytest.approx([100, 0, 0], abs=0.6)


@pytest.mark.parametrize("vision", MATRICES)
@pytest.mark.parametrize("dark", [False, True])
def test_colours_of_one_drawing_stay_different(vision, dark):
    for name, roles in SETS.items():
        found, which = nearest({role: theme.PALETTES[role][dark] for role in roles}, vision)
        assert found >= LEAST, f"{name}: {which} differ by {found:.1f}"


@pytest.mark.parametrize("vision", MATRICES)
@pytest.mark.parametrize("dark", [False, True])
def test_the_first_categories_stay_different(vision, dark):
    """Layer types have up to nine colours."""
    colors = {str(number): pair[dark] for number, pair in enumerate(theme.CATEGORIES)}
    found, which = nearest(colors, vision)
    assert found >= LEAST, f"categories {which} differ by {found:.1f}"
