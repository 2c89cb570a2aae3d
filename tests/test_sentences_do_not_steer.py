"""Sentences are for people: no code looks for words in a column of sentences of ours."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import xsp_post

PACKAGE = Path(xsp_post.__file__).parent
# columns (and attributes) that hold English of ours; what they say stands in columns of codes, numbers and flags too
SENTENCES = {"level_rule", "execution_evidence", "layer_evidence", "verdict", "label", "statement", "note", "hint"}
ASKING = {"startswith", "endswith", "contains", "fullmatch", "match"}


def steering(source: str) -> list[int]:
    """Lines that compare a column of sentences with a text, or look for a text in it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            asked = any(
                isinstance(one, ast.Constant) and isinstance(one.value, str) and " " in one.value for one in parts
            )
            if asked and any(_is_sentence(one) for one in parts):
                found.append(node.lineno)
        is_asked = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKING
        if is_asked and _is_sentence(node.func.value):
            found.append(node.lineno)
    return found


def _is_sentence(node: ast.AST) -> bool:
    """Whether an expression is a column or attribute of sentences, as it is or as text."""
    if isinstance(node, ast.Call):
        arguments = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return any(_is_sentence(one) for one in arguments)
    if isinstance(node, ast.Subscript):
        key = node.slice
        return isinstance(key, ast.Constant) and key.value in SENTENCES
    if isinstance(node, ast.Attribute):
        return node.attr in SENTENCES or (node.attr == "str" and _is_sentence(node.value))
    return False


@pytest.mark.parametrize("source", [
    'tree.level_rule.startswith("own ranges")', 'x = "per unit of work" in str(row["label"])',
    'rows["verdict"].str.startswith("negative")', 'a = row["verdict"] == "no overhead shown"',
])  # fmt: skip
def test_the_check_sees_a_sentence_that_steers(source):
    assert steering(source) == [1]


def test_no_sentence_of_ours_steers():
    seen = {str(file.relative_to(PACKAGE)): steering(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}
    assert {name: lines for name, lines in seen.items() if lines} == {}
