"""Busy share and pace of executions that overlap on the device, follow one another, or stand alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from xsp_post.tables.analyses.inputs import windows_of


def executions(*rows, process=0):
    """(host start, latency, device offset, projection, busy) of each; one case."""
    frame = pd.DataFrame(rows, columns=["start_ns", "latency_ns", "device_offset_ns", "projection_ns", "busy_ns"])
    following = frame["start_ns"].shift(-1) - frame["start_ns"]
    return frame.assign(
        case_index=0, capture_id=0, process_id=process, iteration_index=np.arange(len(frame)), period_ns=following
    )


def one(frame):
    found = windows_of(frame, np.ones(len(frame), bool), 1)
    return [float(values[0]) for values in (found.window_ns, found.busy_ns, found.period_ns)], bool(
        found.is_overlapping[0]
    )


def test_executions_that_overlap_are_one_window():
    # the device works without a pause from 10 to 310; each latency counts the queue before it
    frame = executions((0, 110, 10, 100, 100), (20, 190, 90, 100, 100), (40, 270, 170, 100, 100))
    assert one(frame) == ([300.0, 300.0, 100.0], True)


def test_executions_apart_are_windows_of_their_own():
    # pauses between executions, and the way from the host to the first kernel, are not idle time of them
    frame = executions((0, 100, 20, 80, 40), (200, 100, 20, 80, 40), (400, 100, 20, 80, 40))
    assert one(frame) == ([240.0, 120.0, 200.0], False)


def test_one_execution_without_device_work_lasts_its_latency():
    assert one(executions((5, 100, np.nan, np.nan, 0)))[0][:2] == [100.0, 0.0]


def test_two_processes_at_the_same_time_do_not_overlap():
    frame = pd.concat([executions((0, 100, 0, 100, 90)), executions((0, 100, 0, 100, 70), process=1)])
    found, overlaps = one(frame.reset_index(drop=True))
    assert found[:2] == [200.0, 160.0] and not overlaps


def test_an_execution_of_another_kind_between_two_is_no_period():
    frame = executions((0, 100, 0, 100, 90), (300, 100, 0, 100, 90)).assign(period_ns=np.nan)
    assert np.isnan(one(frame)[0][2])


@pytest.mark.parametrize("origin", [0, 1_712_195_495_502_094_565])
def test_times_since_1970_stay_exact(origin):
    frame = executions((0, 110, 10, 100, 100), (20, 190, 90, 100, 100), (40, 270, 170, 100, 100))
    frame["start_ns"] += origin
    assert one(frame) == ([300.0, 300.0, 100.0], True)


def test_no_executions_leave_every_case_unknown():
    found = windows_of(executions(), np.zeros(0, bool), 2)
    assert np.isnan(found.window_ns).all() and not found.is_overlapping.any()
