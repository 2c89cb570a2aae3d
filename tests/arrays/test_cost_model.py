"""The cost model of steps: terms within 2 %, none negative, what is not identified is left out and said."""

from __future__ import annotations

import numpy as np
import pytest

from xsp_post.arrays.cost_model import CONSTANT, FOLLOWS, NO_EFFECT, UNKNOWN, _non_negative, fit_cost


def mixed(seed, count=1500, noise=0.02):
    """Sizes of steps that tell all terms apart, and their times with known terms."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, 2048, count)
    keys = rng.integers(1, 64, count) * rng.integers(16, 8192, count)
    products = tokens * rng.integers(16, 4096, count)
    terms = {"": 2e6, "tokens": 3000.0, "keys": 12.0, "products": 0.9}
    sizes = {"tokens": tokens, "keys": keys, "products": products}
    time = terms[""] + sum(terms[name] * values for name, values in sizes.items())
    return sizes, time * (1 + noise * rng.standard_normal(count)), terms


@pytest.mark.parametrize("seed", range(6))
def test_terms_are_found_within_two_percent_beside_outliers(seed):
    sizes, time, terms = mixed(seed)
    time[::25] *= 8
    model = fit_cost(time, sizes)
    assert model.terms == pytest.approx(terms, rel=0.02)
    assert model.sigma_ratio == pytest.approx(0.02, rel=0.15)
    assert 0.01 < model.error_ratio < 0.02 < model.p90_error_ratio
    assert model.fitted_count + model.held_back_count == len(time)


def test_terms_that_the_steps_do_not_tell_apart_are_left_out_and_said():
    sizes, time, _ = mixed(1)
    # one request of one new token each: the products are the keys, the tokens are constant
    decode = {"tokens": np.full(1500, 32), "keys": sizes["keys"], "products": sizes["keys"]}
    model = fit_cost(5e6 + 12.0 * sizes["keys"], decode)
    assert model.missing == {"tokens": CONSTANT, "products": FOLLOWS}
    assert model.terms == pytest.approx({"": 5e6, "keys": 12.0}, rel=0.001)
    idle = {**sizes, "idle": np.random.default_rng(0).integers(0, 1000, 1500)}
    assert fit_cost(time, idle).missing == {"idle": NO_EFFECT}
    unknown = {**sizes, "products": np.full(1500, -1)}
    assert fit_cost(time, unknown).missing["products"] == UNKNOWN


def test_the_last_size_has_a_term_only_where_the_others_clearly_leave_something_to_it():
    sizes, time, terms = mixed(4, noise=0.001)
    requests = np.random.default_rng(4).integers(1, 64, 1500)
    plain = fit_cost(time, {**sizes, "requests": requests}, "requests")
    assert plain.missing == {"requests": NO_EFFECT} and plain.terms == fit_cost(time, sizes).terms
    model = fit_cost(time + 200_000.0 * requests, {**sizes, "requests": requests}, "requests")
    assert model.terms == pytest.approx({**terms, "requests": 200_000.0}, rel=0.02)
    # one token a request: what requests cost, tokens cost
    tokens = {"tokens": requests, "requests": requests}
    assert fit_cost(1e6 + 200_000.0 * requests, tokens, "requests").missing == {"requests": FOLLOWS}


def test_what_follows_no_size_has_no_model():
    rng = np.random.default_rng(3)
    model = fit_cost(np.exp(3 * rng.standard_normal(400)), {"tokens": rng.integers(1, 999, 400)})
    assert not model.terms and model.error_ratio > 0.3
    assert np.isnan(model.predicted({"tokens": np.array([5])})).all()
    assert not fit_cost(np.ones(14), {"tokens": np.arange(14)}).terms


def test_a_size_beyond_what_was_fitted_is_extrapolated():
    sizes, time, terms = mixed(2, noise=0.001)
    model = fit_cost(time, sizes)
    inside = {name: float(np.median(values)) for name, values in sizes.items()}
    assert not model.is_extrapolated(inside)
    assert model.is_extrapolated(inside | {"keys": 1e7})
    asked = {name: np.array([value]) for name, value in inside.items()}
    expected = terms[""] + sum(terms[name] * value for name, value in inside.items())
    assert model.predicted(asked) == pytest.approx([expected], rel=0.01)


def test_no_term_is_negative_and_none_could_be_better():
    rng = np.random.default_rng(0)
    for _ in range(50):
        matrix, time = rng.random((30, 4)), rng.standard_normal(30)
        found = _non_negative(matrix.T @ matrix, matrix.T @ time)
        assert (found >= 0).all()
        slope = matrix.T @ (matrix @ found - time)
        # where a term is positive nothing is gained either way, where it is 0 only by making it negative
        assert np.abs(slope[found > 0]).max(initial=0) < 1e-8 and slope.min() > -1e-8
