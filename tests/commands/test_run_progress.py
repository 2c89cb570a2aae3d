"""The lines of `run` say how long the captures to come may take, once one is made."""

from types import SimpleNamespace

from xsp_post.commands.run import _StepLines


def test_the_time_left_is_the_mean_of_those_made_times_those_to_come(capsys):
    lines = _StepLines()
    step, made = (
        SimpleNamespace(name="M"),
        SimpleNamespace(status="done", wall_ns=4e9, collector="torch", metric_set=""),
    )
    lines(1, 6, step, None)
    lines(1, 6, step, [made])
    lines(2, 6, step, None)
    said = capsys.readouterr().err
    assert said.splitlines()[0] == "[1/6] M … 4.0 s (torch)"
    assert said.splitlines()[1] == "[2/6] M (about 20 s left) … "
