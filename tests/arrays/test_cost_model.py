"""The cost model of steps: terms within 2 %, none negative, what is not identified is left out and said."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from xsp_post.arrays.cost_model import (
    CONSTANT,
    FOLLOWS,
    NO_EFFECT,
    TOO_FEW,
    UNKNOWN,
    _held_back,
    _non_negative,
    _slow_change,
    drift_of,
    fit_cost,
    scatter_of,
)


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


@pytest.mark.parametrize("seed", range(5))
def test_drift_lies_between_the_medians_of_the_ends(seed):
    rng = np.random.default_rng(seed)
    ratio = 1 + 0.01 * rng.standard_normal(41 + seed) + np.linspace(0, seed / 50, 41 + seed)
    ratio[rng.integers(0, 41, 3)] = np.nan
    count = len(ratio) // 4
    parts = [[one for one in part if one == one] for part in (ratio[:count].tolist(), ratio[-count:].tolist())]
    middle = [statistics.median(part) for part in parts]
    spread = [statistics.median(abs(x - m) for x in part) * 1.4826 for part, m in zip(parts, middle)]
    errors = 1.2533 * math.hypot(*spread) / math.sqrt(count)
    drift, is_sure = drift_of(ratio)
    assert drift == pytest.approx(middle[1] / middle[0] - 1)
    assert is_sure == (abs(drift) > max(0.01, 5 * errors))
    assert drift_of(ratio[:39])[1] is False and math.isnan(drift_of(ratio[:39])[0])
    assert math.isnan(drift_of(np.full(60, np.nan))[0])


def test_a_slow_change_is_straight_between_quarters_and_beyond_them():
    straight = np.linspace(0.8, 1.2, 41)
    straight[[3, 17]] = np.nan
    whole = _slow_change(straight)
    assert whole == pytest.approx(np.linspace(0.8, 1.2, 41), abs=0.01)
    assert float(np.median(whole)) == pytest.approx(1)
    # of the medians of four quarters of bent times, by hand: 2, 4, 4, 6 at 1.5, 5.5, 9.5, 13.5
    bent = _slow_change(np.repeat([2.0, 4.0, 4.0, 6.0], 4))
    at = np.array([0, 1.5, 5.5, 9.5, 13.5, 16])
    wanted = np.interp(np.arange(16), at, [2 - 1.5 * 0.5, 2, 4, 4, 6, 6 + 2.5 * 0.5])
    assert bent == pytest.approx(wanted / np.median(wanted))


@pytest.mark.parametrize("seed", range(4))
def test_errors_of_terms_are_those_of_least_squares(seed):
    """Without outliers the robust fit is the plain one of times in units of themselves, and so are its errors."""
    rng = np.random.default_rng(seed)
    tokens, keys = (rng.integers(100, 2000, 800).astype(float) for _ in range(2))
    time = (1000 + 3 * tokens + 2 * keys) * (1 + 0.01 * rng.standard_normal(800))
    model = fit_cost(time, {"tokens": tokens, "keys": keys})
    matrix = np.column_stack((np.ones(800), tokens, keys)) / (1000 + 3 * tokens + 2 * keys)[:, None]
    errors = 0.01 * np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix)))
    assert list(model.errors.values()) == pytest.approx(errors, rel=0.15)
    assert np.array(list(model.terms.values())) == pytest.approx([1000, 3, 2], abs=5 * errors.max())
    for one, term, error in zip(model.terms.values(), (1000, 3, 2), errors):
        assert abs(one - term) < 4.5 * error
    asked = {"tokens": np.array([100.0, 5000.0]), "keys": np.array([150.0, 20.0])}
    rows = np.array([[1, 100, 150], [1, 5000, 20]], float)
    wanted = [math.sqrt(row @ model.covariance @ row) / (row @ list(model.terms.values())) for row in rows]
    assert model.error_of(asked) == pytest.approx(wanted)
    assert np.isnan(model.predicted({"tokens": np.array([-1.0]), "keys": np.array([5.0])})[0])


def test_a_fifth_is_held_back_of_any_stretch():
    is_held = _held_back(5000)
    assert is_held.mean() == pytest.approx(0.2, abs=0.01)
    assert all(10 < part.sum() < 30 for part in np.split(is_held, 50))
    assert (~_held_back(60_000)).sum() == pytest.approx(6000, rel=0.03)


def test_of_times_that_drift_the_terms_are_those_in_the_middle():
    sizes, time, terms = mixed(3)
    course = np.linspace(0.8, 1.2, len(time))
    model = fit_cost(time * course, sizes)
    assert model.terms == pytest.approx(terms, rel=0.04)
    assert model.trend == pytest.approx(course, abs=0.02)
    assert fit_cost(time, sizes).trend == 1.0


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_a_size_that_grows_along_does_not_hide_a_drift(drift):
    rng = np.random.default_rng(5)
    at = np.linspace(0, 1, 400)
    tokens = (4 + 30 * at + rng.integers(0, 12, 400)).astype(float)
    time = (3e5 + 900 * tokens) * (1 + drift * (at - 0.5)) * (1 + 0.004 * rng.standard_normal(400))
    model = fit_cost(time, {"tokens": tokens})
    assert (np.ndim(model.trend) > 0) == bool(drift)
    assert abs(model.terms["tokens"] - 900) < 4 * model.errors["tokens"] and model.terms[""] == pytest.approx(
        3e5, rel=0.02
    )


def test_a_size_that_grows_as_the_course_does_is_no_drift():
    rng = np.random.default_rng(6)
    keys = 16.0 * np.arange(1000, 1400)
    model = fit_cost((3e5 + 2.0 * keys) * (1 + 0.004 * rng.standard_normal(400)), {"keys": keys})
    assert model.trend == 1.0 and model.terms["keys"] == pytest.approx(2.0, rel=0.05)
    large = fit_cost(31.0 * keys * (1 + 0.01 * rng.standard_normal(400)), {"keys": keys})  # next to nothing is fixed
    assert large.trend == 1.0 and large.terms["keys"] == pytest.approx(31, rel=0.05)


@pytest.mark.parametrize(("power", "least", "most"), [(0.0, 0.0, 0.2), (0.5, 0.3, 0.7)])
def test_the_scatter_may_shrink_as_steps_get_longer(power, least, most):
    rng = np.random.default_rng(8)
    tokens = np.exp(rng.uniform(3, 9, 900))
    clean = 1e4 + 100 * tokens
    time = clean * (1 + 0.01 * (clean / np.median(clean)) ** -power * rng.standard_normal(900))
    model = fit_cost(time, {"tokens": tokens})
    assert least <= model.scatter_power <= most
    assert scatter_of(np.array([1.0, 4.0, 16.0]), 0.5) == pytest.approx([2, 1, 0.5])


def test_without_steps_there_is_no_model():
    model = fit_cost(np.ones(14), {"tokens": np.arange(14)})
    assert (model.terms, model.missing) == ({}, {"tokens": TOO_FEW})
    assert (model.fitted_count, model.held_back_count) == (0, 0)


def test_times_without_any_scatter_have_a_model():
    model = fit_cost(np.full(64, 4096.0), {"tokens": np.full(64, 5)})
    assert (model.terms, model.missing, model.sigma_ratio) == ({"": 4096.0}, {"tokens": CONSTANT}, 0.0)
