"""Regular expressions of users: found where Python finds them, and no search without an end."""

from __future__ import annotations

import re
import time

import pytest
from builders import ExportBuilder
from helpers import called

from xsp_post.base.errors import UsageError
from xsp_post.names import user_patterns
from xsp_post.names.user_patterns import UserPattern

TEXTS = ["layer1.conv", "Layer2\n", "a" * 40 + "!", "ä12", "x\ty", "", "Schicht_ü", "a{,2}", "aab", "line\nlayer1"]
PATTERNS = ["layer1", "(?i)^layer", r"\d$", "2$", r"^\w+$", "a{,2}b",
            r"(?=lay)l", r"(a)\1", r"(?<!1)\.?y$", "^$", "[[a]", r"\s",
            "ü|Ä", "(?i)Ü", "(?m)^layer1$", r"\bconv\b", r"a\Z", "(?P<x>a)(?P=x)", "[^ -~]", "(?s)e.l"]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Possible nested set")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_found_where_python_finds_it(pattern):
    found = UserPattern(pattern, "--layer").found_in(TEXTS)
    assert found.tolist() == [re.search(pattern, text) is not None for text in TEXTS]
    assert UserPattern(pattern, "--layer").found_in([]).tolist() == []


@pytest.mark.parametrize("pattern", ["(", "*", "a" * 20_000, "a{99999999999}", "(" * 5000 + ")" * 5000, r"\z(?<n>"])
def test_what_is_no_pattern_is_one_sentence(pattern):
    with pytest.raises(UsageError) as caught:
        UserPattern(pattern, "--layer-range")
    assert caught.value.code == "bad-range-pattern" and len(caught.value.message) < 400


def test_a_pattern_without_end_for_python_ends_at_once():
    before = time.process_time()
    assert not UserPattern("(a+)+$", "--layer").found_in(["a" * 5000 + "!"]).any()
    assert not UserPattern("(.*.*.*.*.*.*.*)*x$", "--layer").found_in(["a" * 5000]).any()
    assert time.process_time() - before < 1


@pytest.mark.parametrize("text", ["a" * 50 + "!", "ä" + "a" * 50 + "!"])
def test_a_search_that_only_python_can_do_is_ended(text, monkeypatch):
    monkeypatch.setattr(user_patterns, "_LIMIT_S", 0.5)
    with pytest.raises(UsageError, match="without an end"):
        UserPattern(r"(?=a|ä)ä?(a+)+$", "--layer").found_in([text])


@pytest.mark.parametrize(
    ("option", "words"),
    [("--layer-range", ["tree"]), ("--model-range", ["tree"]), ("--layer", ["tree"]), ("--layer", ["why"])],
)  # fmt: skip
def test_each_option_with_a_pattern_ends(option, words, tmp_path, monkeypatch):
    monkeypatch.setattr(user_patterns, "_LIMIT_S", 0.5)
    name = "a" * 60 + "!"
    builder = ExportBuilder().range(name, 0, 10_000)
    for k in range(4):
        builder.range(name, 1000 * k, 1000 * k + 900)
        for layer in range(2):
            at = 1000 * k + 400 * layer + 10
            builder.range(f"{name}{layer}", at, at + 380)
            builder.kernel(name, launch=(at, at + 10), run=(at + 20, at + 90))
    path = builder.write(tmp_path / "a.sqlite")
    pattern = r"(?=a)(a+)+$"  # RE2 looks ahead nowhere
    done = called(*words, path, option, pattern)
    assert done.returncode == 2 and "without an end" in done.stderr, done.stdout + done.stderr
