"""Text from a capture as one harmless line."""

from __future__ import annotations

import io
import unicodedata

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.base.text_safety import INVISIBLE, shown, write_csv

HIDDEN = [0, 0x1B, 0x7F, 0x9B, 0xAD, 0x200B, 0x202E, 0x2028, 0x2029, 0x3164, 0xFEFF, 0xD800, 0xE001]


@pytest.mark.parametrize("code", HIDDEN)
def test_what_nobody_can_see_is_spelled_out(code):
    assert shown(f"a{chr(code)}b") == f"a\\u{code:04x}b"


@given(st.text(st.characters() | st.sampled_from([chr(code) for code in INVISIBLE]), max_size=300))
def test_one_short_line_of_visible_characters(text):
    line = shown(text, 40)
    assert len(line) <= 40 and len(line.splitlines()) <= 1
    assert not any(ord(c) in INVISIBLE or unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in line)


def test_plain_text_stays():
    assert shown("conv1:Conv2d ünï 模型") == "conv1:Conv2d ünï 模型"
    assert shown("x" * 101) == "x" * 99 + "…"


def test_a_carriage_return_within_a_name_begins_no_row_of_csv():
    frame = pd.DataFrame({"name": ["a\r=1+1", "b\nc", 'd,"e"', "f"], "count": [1, 2, 3, 4]})
    text = io.StringIO()
    write_csv(frame, text)
    assert text.getvalue() == 'name,count\n"a\r=1+1",1\n"b\nc",2\n"d,""e""",3\nf,4\n'
    assert pd.read_csv(io.StringIO(text.getvalue())).equals(frame)
