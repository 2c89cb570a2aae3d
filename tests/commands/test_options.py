"""One `Options` value from the command line to the steps: a new choice is a field, its option follows."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest
import typer

from xsp_post.base.errors import UsageError
from xsp_post.commands.options import with_options, with_texts
from xsp_post.model.options import DEFAULTS, ROOFS, TREE, Options, choices, rules_text


def test_every_field_of_a_group_is_one_option_with_its_default_and_help():
    @with_options(TREE, ROOFS)
    def command(paths: list[str], options: Options = DEFAULTS, force: bool = False) -> None:
        pass

    parameters = inspect.signature(with_texts("batch", command)).parameters
    fields = choices(TREE, ROOFS)
    names = [*parameters]
    assert names[0] == "paths" and names[-1] == "force"
    assert len(parameters) == len(fields) + 2 and {"model_range", "no_infer", "peaks"} < set(parameters)
    for field, name in zip(fields, list(parameters)[1:-1]):
        option = get_args(parameters[name].annotation)[1]
        assert isinstance(option, typer.models.OptionInfo) and option.help
        assert option.default == "--" + name.replace("_", "-")  # the first flag
        if field.name == "executions":
            assert rules_text() in option.help
    assert parameters["no_infer"].default is False and parameters["roof"].default == "pipe"


def test_a_command_gets_the_values_as_one_value(tmp_path):
    got = []

    @with_options(TREE, ROOFS)
    def command(options: Options = DEFAULTS) -> None:
        got.append(options)

    peaks = tmp_path / "peaks.json"
    peaks.write_text('{"gpu_name": "Mine", "memory_bandwidth_bytes_per_s": 1e12, "fp32_flop_per_s": 2e12}')
    given = {name: parameter.default for name, parameter in inspect.signature(command).parameters.items()}
    command(**given | {"model_range": "m", "layer_depth": 2, "no_infer": True, "roof": "fp32", "peaks": peaks})
    assert got[0].model_range == "m" and got[0].layer_depth == 2 and not got[0].infer and got[0].roof == "fp32"
    assert list(got[0].peaks) == ["Mine"]


def test_an_impossible_value_is_refused():
    with pytest.raises(UsageError) as caught:
        Options(layer_depth=-1)
    assert caught.value.code == "bad-layer-depth"
    for wrong in ({"executions": "steps"}, {"executions": "cycle", "model_range": "x"}):
        with pytest.raises(UsageError) as caught:
            Options(**wrong)
        assert caught.value.code == "bad-executions"


def test_whether_a_group_is_at_its_defaults():
    assert DEFAULTS.is_default(TREE) and DEFAULTS.is_default(ROOFS)
    assert not Options(infer=False).is_default(TREE) and Options(infer=False).is_default(ROOFS)
    assert not Options(roof="fp32").is_default(ROOFS)
    assert Options(layer_range="x").names_levels and not Options(infer=False).names_levels
