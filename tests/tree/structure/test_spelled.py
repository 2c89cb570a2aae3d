"""Inference from launch sequences that are spelled: a letter for each kernel, a program in a line."""

from __future__ import annotations

import numpy as np
import pytest
from sequences import launch_frame

from xsp_post.tree.structure.find import infer

KERNELS = {
    "n": "vectorized_layer_norm_kernel", "E": "indexSelectLargeIndex_embedding", "+": "vectorized_add_kernel",
    "s": "softmax_warp_forward", "A": "flash_fwd_kernel", "B": "flash_fwd_splitkv_kernel", "c": "direct_copy_kernel",
    "u": "gelu_kernel", "v": "relu_kernel", "x": "reduce_max_kernel", "K": "implicit_convolve_sgemm",
    "N": "cudnn_bn_fw_inf_kernel",
}  # fmt: skip
ATTENTION, MLP = "nqcAo+", "nfug+"  # other letters are matrix products


def found_in(launches: str, kind: str, level: str, pause_before: str = "") -> list[str]:
    """The executions or the layers that are found, as they are spelled."""
    letters = sorted(set(launches))
    names = np.array([KERNELS.get(letter, f"ampere_sgemm_{ord(letter)}x64_tn") for letter in letters], object)
    frame = launch_frame(np.array([letters.index(letter) for letter in launches]))
    paused = 80_000 * np.cumsum([letter in pause_before for letter in launches])
    times = ["launch_start_ns", "launch_end_ns", "start_ns", "end_ns"]
    nodes = infer(frame.assign(**{time: frame[time] + paused for time in times}), names).nodes
    found = nodes[(nodes["level"] == level) & (nodes["kind"] == kind)]
    return [launches[a:b] for a, b in zip(found["first_launch"], found["end_launch"], strict=True)]


def layers_of(launches: str) -> list[str]:
    return found_in(launches, "block", "LAYER")


def test_tokens_whose_passes_end_with_their_layers_hold_all_of_them():
    """A layer begins at its norm, behind the addition of the one before; a token ends where its last layer does."""
    layer = ATTENTION + MLP
    prompt, token = (f"E+{one * 3}nLsx" for one in (layer, layer.replace("A", "B")))
    found = layers_of(("KvKv+E+" + (prompt + token * 7)) * 4)
    assert found.count(layer.replace("A", "B")) == 4 * 7 * 3


def test_layers_that_a_head_follows_are_of_one_pass():
    """Layers of a scan take more launches than a network is thought to; what computes behind them is shorter."""
    layer = "nigkvtcdscpxcs+vscpxcs+vupcKsp+fxvuxcvs+xcvupysksqw+csvKsvxpouscxvu+vxc"
    token = f"E{(ATTENTION + MLP) * 5}nLsxvcu+x"
    requests = [f"E{layer.replace('p', product) * 5}nLsxvcu+x{token * 10}" for product in "pyzj"]
    assert found_in("".join(requests), "iteration", "MODEL", pause_before="E") == requests


@pytest.mark.parametrize(("first", "last"), [(MLP, ""), ("", "nqyBzo+"), (MLP, "nqyBzo+")])
def test_a_first_and_a_last_layer_may_have_other_work_inside(first, last):
    """A dense one before those with experts; behind layers of one attention one of another. The head is no layer."""
    experts = "nriturwg+"
    layers = [ATTENTION + first] * bool(first) + [ATTENTION + experts] * 6 + [last + experts] * bool(last)
    assert layers_of(f"E+{''.join(layers)}nLsx" * 8) == layers * 8


def test_blocks_of_several_products_are_no_groups_of_single_products():
    block = "KNvKNvKN+v"
    found = layers_of("".join(f"PNKNv{block * 5}xLsx" for _ in range(6)))
    assert [one.count("K") for one in found] == [3] * 30


def test_layers_begin_sooner_where_a_turn_is_cut_off_at_the_beginning_of_the_recording():
    """Final norm and head look like the beginning of a layer, so that turns could begin behind both."""
    layer = "ngcAAgngug"
    one = f"E{layer * 8}ngsx"
    found = layers_of(one[43:] + one * 7)  # from the third launch of the fifth layer
    assert found[-1] == layer


@pytest.mark.parametrize("odd", ["nqcAo+nfudw+", "nqcAo+ndw+"])
def test_an_odd_layer_between_two_of_one_kind_is_a_layer(odd):
    usual = "nqcAo+nrxefug+"
    found = layers_of(f"E+{usual * 2}{odd}{usual * 2}Lsx" * 5)
    assert found == [usual, usual, odd, usual, usual] * 5


@pytest.mark.parametrize("between", ["nLsxE+", "nLsxwdE+", "cvvcvvxcvx"])
def test_what_does_no_layers_work_between_layers_is_no_layer(between):
    layer = ATTENTION + MLP
    assert layers_of(f"E+{(layer * 4 + between) * 3}{layer * 4}wLsx" * 5) == [layer] * 80


def test_what_does_as_a_part_of_an_execution_does_is_none():
    """Tiles of pictures: each shape has kernels of its own, and one that occurs once repeats its blocks only."""

    def tile(one: str, two: str, last: str) -> str:
        dense = f"{one}v{two}v{two}v{two}v{last}+" * 3 + "+"
        return f"c{one}v{dense * 4}{one}v{last}x"

    most, once, again, more = (tile(*letters) for letters in ("abd", "efg", "hij", "klm"))
    tiles = [most] * 3 + [once] + [most] * 2 + [again] + [once] * 2 + [more] + [most] * 2
    assert len(found_in("".join(tiles), "iteration", "MODEL")) == len(tiles)


def test_the_norm_of_an_embedding_is_not_of_the_first_layer():
    layer = ATTENTION + MLP
    assert layers_of("".join(f"EE+n{layer * 3}nLsx" for _ in range(9))) == [layer] * 27
