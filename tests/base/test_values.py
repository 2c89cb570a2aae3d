"""Dataclasses of `base/values.py` against those of the standard library."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from xsp_post.base import values

FIELDS = {"a": int, "b": str, "c": list[int]}


def both(frozen: bool, eq: bool = True) -> tuple[Any, Any]:
    body = {
        "__annotations__": FIELDS,
        "b": "x",
        "c": dataclasses.field(default_factory=list, compare=False, repr=False),
    }
    return (
        dataclasses.dataclass(frozen=frozen, eq=eq)(type("Value", (), dict(body))),
        values.dataclass(frozen=frozen, eq=eq)(type("Value", (), dict(body))),
    )


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("eq", [False, True])
def test_values_compare_show_and_hash_as_the_standard_ones(frozen: bool, eq: bool) -> None:
    standard, ours = both(frozen, eq)
    given = ((1,), (1, "x", [2]), (2,), (1, "y"))
    for one in given:
        assert repr(ours(*one)) == repr(standard(*one))
        for other in given:
            assert (ours(*one) == ours(*other)) == (standard(*one) == standard(*other))
    assert (ours.__hash__ is None) == (standard.__hash__ is None)
    if frozen and eq:
        assert hash(ours(1, "x", [2])) == hash(ours(1)) != hash(ours(2))
    assert ours(1) != standard(1)


def test_a_frozen_value_stays_as_it_was_made() -> None:
    _, ours = both(frozen=True)
    value = ours(1)
    for name in ("a", "b", "unknown"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del value.a
    changed = dataclasses.replace(value, a=5)
    assert (value.a, changed.a, dataclasses.asdict(changed)) == (1, 5, {"a": 5, "b": "x", "c": []})
    assert copy.deepcopy(value) == copy.copy(value) == value


def test_a_value_that_may_change_changes() -> None:
    _, ours = both(frozen=False)
    value = ours(1)
    value.a = 2
    assert value == ours(2)


def test_what_a_class_says_itself_stays() -> None:
    @values.dataclass(frozen=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert repr(Own(1)) == "own" and Own(1) == Own(2) and hash(Own(1)) == 7


def test_values_of_a_module_are_pickled() -> None:
    from xsp_post.model.options import DEFAULTS

    assert pickle.loads(pickle.dumps(DEFAULTS)) == DEFAULTS
