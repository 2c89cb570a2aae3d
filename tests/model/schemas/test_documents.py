"""Real outputs of --json against docs/json-schema.json."""

from __future__ import annotations

import json

import pytest
from conftest import ROOT
from helpers import called
from json_documents import document_schema

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def check():
    text = (ROOT / "docs/json-schema.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == document_schema()

    def check(printed):
        document = _cut(json.loads(printed))
        name = document["format"].removeprefix("xsp-post.")
        one = {**schema, "oneOf": [{"$ref": f"#/$defs/command_{name}"}]}  # the message names the place
        wrong = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(one).iter_errors(document))
        if wrong is not None:
            raise jsonschema.ValidationError(f"{wrong.json_path}: {wrong.message}"[:400])
        return document

    return check


def _cut(value):
    """The document with the first 100 rows of every list: checking all of 20,000 kernels takes half a minute."""
    if isinstance(value, dict):
        return {key: _cut(one) for key, one in value.items()}
    return [_cut(one) for one in value[:100]] if isinstance(value, list) else value


def xsp(*words, cwd):
    done = called(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_prints_what_the_schema_says(check, captures, tmp_path):
    source = captures / "nsys" / "transformer_backward_rtx3070ti.sqlite"
    store = tmp_path / "s.xsp.sqlite"
    made = check(xsp("ingest", source, "-o", store, "--json", cwd=tmp_path))
    latency = next(q for q in made["data"]["quantities"] if q["name"] == "execution_latency")
    assert latency["ci_low"] < latency["value"] < latency["ci_high"] and latency["sample_count"] > 2
    for words in (
        ("tree", source), ("tree", store), ("why", store), ("table", "A10", store), ("table", "findings", store),
        ("table", "kernels", store), ("report", store), ("compare", store, store),
        ("what-if", store, "-c", "kernel:.*gemm.*=0.5x"), ("export", store, "--to", "csv"), ("doctor",),
    ):  # fmt: skip
        check(xsp(*words, "--json", cwd=tmp_path))


def test_the_schema_can_fail(check):
    good = {"format": "xsp-post.recipe-path", "version": 2, "data": {"folder": "x", "recipes": ["y"]}}
    check(json.dumps(good))
    for bad in ({**good, "version": 1}, {**good, "data": {"folder": "x"}}, {**good, "more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            check(json.dumps(bad))


def test_a_number_without_interval_needs_a_reason():
    schema = {**document_schema(), "oneOf": [{"$ref": "#/$defs/quantity"}]}
    one = {"name": "a", "of": "", "value": 1.0, "unit": "ns", "sample_count": 1, "ci_low": None, "ci_high": None,
           "interval_over": "",           "reason": "one value only"}  # fmt: skip
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(one)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**one, "reason": ""})
