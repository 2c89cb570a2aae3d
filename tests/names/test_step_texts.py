"""Texts of inference steps: every dialect of step_texts.txt, the sums of both parts, and what must stay unknown."""

from __future__ import annotations

import numpy as np
import pytest

from xsp_post.names import parse_names
from xsp_post.names.range_text import format_step
from xsp_post.names.step_texts import ANY, SIZES, capture_size, dialects, kind_of_word, step_sizes


def array(*texts):
    return np.array(texts, dtype=object)


def sizes(text):
    """requests, tokens, keys, squares, products, longest, bucket; None unknown."""
    found = step_sizes(array(text))
    values = [int(found[column][0]) for column in SIZES.values()]
    return [None if value < 0 else value for value in values]


VLLM = "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)"
SGLANG = "step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=2050 c_sqsq=2097152 c_sqsk=2097160 g_sq=64 g_sk=65600 g_sqsq=64 g_sqsk=65600]"  # noqa: E501


@pytest.mark.parametrize(
    ("text", "kind", "known"),
    [
        (VLLM, "mixed", [5, 6147, 13288, 20971523, 23025664, None, None]),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", [1, 888, None, 788544, None, None, None]),
        ("execute_context_2(6144)_generation_3(3)", "mixed", [5, 6147, *[None] * 5]),
        ("execute_64_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq64sk900sqsq128sqsk1800)", "verify",
         [32, 64, 900, 128, 1800, None, None]),
        ("execute_context_0(0)_generation_0(0)", "idle", [None] * 7),
        (SGLANG, "mixed", [66, 2112, 67650, 2097216, 2162760, None, None]),
        ("step[EXTEND bs=1 toks=1025 c_sqsq=1050625 c_sqsk=1050625 c_sk=1025]", "prefill",
         [1, 1025, 1025, 1050625, 1050625, None, None]),
        ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]", "verify",
         [64, 128, 131072, 256, 262144, None, None]),
        ("step[MIXED bs=2]", "mixed", [2, *[None] * 6]),
        ("step[TARGET_VERIFY bs=4]", "verify", [4, *[None] * 6]),
        ("prefill[bs=6 tok=17408 ctx=[4096, 4096]...+3]", "prefill", [6, 17408, *[None] * 5]),
        ("decode[bs=117/128 tok=117 d=117]", "decode", [117, 117, None, None, None, None, 128]),
        ("decode[bs=32 tok=128 d=32 spec=3 sqsq=512 sqsk=262144 sk=65536]", "verify",
         [32, 128, 65536, 512, 262144, None, None]),
        ("decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048 tbo=1]", "mixed",
         [128, 384, 258048, 132612, 1114112, None, None]),
        # a generating request computes one token where nothing says more
        ("[Executor] _forward_step 12: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", "decode", [32, 32, *[None] * 5]),
        ("[Executor] _forward_step 12: 3 ctx reqs, 5120 ctx tokens, 8 gen reqs", "mixed", [11, 5128, *[None] * 5]),
        ("[Executor] _forward_step 12: 3 ctx reqs, 5120 ctx tokens, 0 gen reqs", "prefill", [3, 5120, *[None] * 5]),
        ("executeStep: 2 ctx reqs, 8 gen reqs", "mixed", [10, *[None] * 6]),
        ("decode{id=7 size=12}", "decode", [12, 12, *[None] * 5]),
        ("prefill_b4", "prefill", [4, *[None] * 6]),
        ("Decode step 7 batch_size=4, num_tokens: 12", "verify", [4, 12, *[None] * 5]),
        ("prefill_bs8_input_length512", "prefill", [8, *[None] * 6]),
        ("prefill request_ids=r1,r2 tokens=96", "prefill", [None, 96, *[None] * 5]),
    ],
)  # fmt: skip
def test_what_a_step_text_says(text, kind, known):
    parsed = parse_names(array(text))
    assert (parsed["role"][0], parsed["phase"][0]) == ("iteration", kind)
    assert sizes(text) == known


@pytest.mark.parametrize(
    "text", ["decode_layer_3", "prefill_video_layer_3", "decode_block_2_b4", "decode 12", "prefill_beam4"]
)
def test_a_word_for_a_kind_is_no_step_without_a_size(text):
    assert parse_names(array(text))["dialect"][0] != "step"


def test_every_dialect_reads_its_own_example():
    assert int(capture_size(array(dialects()["capture"].like))[0]) == 32
    for dialect in [one for one in dialects().values() if one.name != "capture"]:
        found = step_sizes(array(dialect.like))
        named = {size for _, size, _ in dialect.sizes} | {"tokens"}  # of a decode by its requests
        assert dialect.name == "param" or max(int(values[0]) for values in found.values()) > 0, dialect.name
        assert {size for size, column in SIZES.items() if found[column][0] >= 0} <= named
        if dialect.name != ANY:
            assert parse_names(array(dialect.like))["role"][0] == "iteration", dialect.name


def test_our_own_text_is_read_back_and_folds_to_its_kind():
    for kind in {*kind_of_word().values()}:
        text = format_step(kind, [1, 3, 5], [10, 20, 50], bucket=4)
        assert sizes(text) == [3, 9, 80, 35, 320, 50, 4]
        for written in (text, f"xsp/{text}"):
            parsed = parse_names(array(written))
            assert (parsed["phase"][0], parsed["folded_name"][0], parsed["dialect"][0]) == (
                kind,
                f"step:{kind}",
                "step",
            )


@pytest.mark.parametrize(
    "text",
    ["execute_context_{c}({c}00)_generation_{g}({g})", "_forward_step 7: {c} ctx reqs, {c}00 ctx tokens, {g} gen reqs"],
)
def test_steps_of_each_kind_fold_to_a_name_of_their_own(text):
    """Also where no word of the text says the kind: each has its row in the tree."""
    for c, g, kind in ((2, 0, "prefill"), (2, 3, "mixed"), (0, 3, "decode"), (0, 0, "idle")):
        name = parse_names(array(text.format(c=c, g=g)))["folded_name"][0]
        assert name.endswith(f" ({kind})") and not set(name) & set("0123456789")


def test_texts_of_no_step_say_nothing():
    texts = array("step:decode now", "execute_this", "prefill", "decode[3]", "aten::add", "jobs=3 tokens", "step[")
    found = step_sizes(texts)
    assert all((values == -1).all() for values in found.values())
    assert step_sizes(np.array([], object))["batch_size"].shape == (0,)


def test_a_number_too_long_is_unknown():
    assert sizes(f"step[EXTEND bs=2 toks={'9' * 40}]")[:2] == [2, None]
