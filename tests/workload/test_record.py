"""`record`: what a program's own loop does is recorded, read and compared with its last recording."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import called as xsp

from xsp_post.base.errors import UsageError
from xsp_post.ingest.side_files import read_plain
from xsp_post.pipeline import analyze
from xsp_post.workload.recording import next_name, split_command

torch = pytest.importorskip("torch")

from xsp_post.workload import program as program_module  # noqa: E402
from xsp_post.workload.program import Watch  # noqa: E402

TRAINING = """
    import sys, torch
    from beside import WIDTH
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=float(sys.argv[1]))
    for step in range(int(sys.argv[2])):
        loss = net(torch.randn(8, WIDTH)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    open("finished", "w").close()
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/beside.py").write_text("WIDTH = 16")
    path = tmp_path / "sources/train.py"
    path.write_text(textwrap.dedent(TRAINING))
    return path


def test_a_training_loop_is_recorded_and_compared_with_its_last_recording(program, tmp_path):
    """Also: the program is ended behind the recording, and its neighbours are imported as Python would."""
    first = xsp("record", "--steps", "3", "--warmup", "2", "--", sys.executable, program, "0.1", "50", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "profiler_st" not in first.stderr  # what PyTorch's profiler logs of its start and stop
    assert "Verdict" in first.stdout and "Since" not in first.stdout and not (tmp_path / "finished").exists()
    with sqlite3.connect(tmp_path / "xsp-recordings/train.1.xsp.sqlite") as store:
        counts = store.execute("SELECT COUNT(*), SUM(is_warmup) FROM iterations").fetchone()
        layers = {name for (name,) in store.execute("SELECT DISTINCT layer_path FROM layers")}
    assert counts[0] == 3
    assert {"0", "2"} <= {path.partition(":")[0] for path in layers}
    second = xsp(
        "record", "--to-the-end", "--label", "more rate", "--steps", "3", "--", program, "0.2", "8", cwd=tmp_path
    )
    assert second.returncode == 0, second.stderr
    assert (tmp_path / "finished").exists() and (tmp_path / "xsp-recordings/train.2.more-rate.xsp.sqlite").is_file()
    assert "Since xsp-recordings/train.1.xsp.sqlite" in second.stdout


def modules() -> dict[str, torch.nn.Module]:
    """N, M and E: models. T: a transform of the input, L: a loss, W: one with weights of classes, Q: a model whose
    weights are buffers."""
    nn = torch.nn
    weighted, quantised = nn.CrossEntropyLoss(weight=torch.ones(4)), nn.Sequential(nn.Identity())
    quantised[0].register_buffer("packed", torch.ones(4))
    return {"N": nn.Linear(4, 4), "M": nn.Sequential(nn.Linear(4, 4)), "E": nn.Linear(4, 4), "L": nn.MSELoss(),
            "T": nn.Sequential(nn.ReLU()), "W": weighted, "Q": quantised}  # fmt: skip


def test_a_program_that_is_not_there_is_said_to_be_missing(tmp_path):
    done = xsp("record", "--", sys.executable, "missing.py", cwd=tmp_path)
    assert done.returncode == 2 and "missing.py: no such file" in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "calls, steps",
    [
        ("N" * 5, 5), ("Q" * 5, 5),
        ("NL" * 4, 4), ("NW" * 4, 4), ("TTTNL" * 3, 3), ("TL" * 3, 0),
        ("NM" * 4, 4), ("NMMM" * 4, 4), ("EN" + "M" * 7 + "EN", 2),
        ("Nbu" * 4, 4), ("NbNbNbu" * 3, 3), ("NbuNNN" * 2, 8), ("NbN" + "Nb" * 45, 4),
        ("Nbu" + "Nb" * 20 + "uN", 3),
        ("MbNMbuMbu" * 3, 6), ("NMMbuMbu" * 3, 3),
        ("E" + "N" * 30, 10),  # one long generation: each token is a step once the encoder is far
    ],
)  # fmt: skip
def test_a_step_begins_where_the_first_of_the_models_is_called_again(calls, steps, tmp_path):
    """b: backward work, u: an update of the parameters."""
    known, made = modules(), torch.ones(0)
    optimizer = torch.optim.SGD([one for name in "NM" for one in known[name].parameters()], 0.1)
    settings = {"output": str(tmp_path), "warmup_count": 20, "step_count": 1}
    watch = Watch(settings)
    try:
        for name in calls:
            if name == "b":
                made.sum().backward()
            elif name == "u":
                optimizer.step()
            else:
                made = known[name](*[torch.ones(2, 4)] * (2 if name in "LW" else 1))
    finally:
        watch.close()
    begun = json.loads((tmp_path / "summary.json").read_text())["begun_ns"]
    assert len(begun) - 1 == steps


@pytest.mark.parametrize(
    "calls, has_optimizer, recorded",
    [
        (("N" * 9 + "bu") * 4, True, 16),  # until the second update: calls 3 to 18
        ("Nbu" * 9, True, 2),
        ("N" * 50, True, 2 * program_module.MOST_TIMES),
        ("N" * (2 * program_module.MOST_TIMES + 1), True, 2 * program_module.MOST_TIMES - 1),  # then the program ends
        ("N" * 50, False, 2),
    ],
)  # fmt: skip
def test_what_a_program_does_between_its_updates_is_recorded(calls, has_optimizer, recorded, tmp_path, monkeypatch):
    """Many calls of a model lead to one update (reinforcement learning, a recurrent network stepped by hand)."""
    net = modules()["N"]
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    monkeypatch.setattr(program_module.gc, "get_objects", lambda: [optimizer] * has_optimizer)
    monkeypatch.setattr(program_module, "write_recording", lambda *_: None)
    settings = {"warmup_count": 2, "step_count": 2, "profiler": "torch", "ranges": "torch", "to_the_end": True}
    watch = Watch({**settings, "output": str(tmp_path)})
    try:
        for name in calls:
            if name == "N":
                made = net(torch.ones(2, 4))
            elif name == "b":
                made.sum().backward()
            else:
                optimizer.step()
    finally:
        watch.close()
    begun = json.loads((tmp_path / "summary.json").read_text())["begun_ns"]
    assert len(begun) - 1 - 2 == recorded


GAN = """
    import torch
    from torch import nn
    class Generator(nn.Sequential): pass
    class Discriminator(nn.Sequential): pass
    maker, judge = Generator(nn.Linear(8, 16), nn.Tanh()), Discriminator(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    criterion, one, none = nn.BCEWithLogitsLoss(), torch.ones(4, 1), torch.zeros(4, 1)
    of_maker, of_judge = (torch.optim.SGD(one.parameters(), 0.1) for one in (maker, judge))
    for step in range(9):
        made = maker(torch.randn(4, 8))
        of_judge.zero_grad()
        (criterion(judge(torch.randn(4, 16)), one) + criterion(judge(made.detach()), none)).backward()
        of_judge.step()
        of_maker.zero_grad(); criterion(judge(made), one).backward(); of_maker.step()
"""


def test_a_program_of_two_models_and_a_loss_is_recorded_in_its_steps(tmp_path):
    (tmp_path / "gan.py").write_text(textwrap.dedent(GAN))
    made = xsp("record", "--steps", "4", "--", tmp_path / "gan.py", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    with sqlite3.connect(tmp_path / "xsp-recordings/gan.1.xsp.sqlite") as store:
        kinds = store.execute("SELECT kind, COUNT(*) FROM iterations GROUP BY kind").fetchall()
        names = {name for (name,) in store.execute("SELECT name FROM paths WHERE name LIKE 'model:%'")}
    assert kinds == [("training step", 8)]  # two updates in each turn of the loop, and no call of a model beside them
    assert names == {"model:generator", "model:discriminator"}


CHECKPOINTED = """
    import torch
    from torch.utils.checkpoint import checkpoint
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            blocks = (torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in "abc")
            self.blocks = torch.nn.ModuleList(blocks)
        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return x
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(20):
        net(torch.randn(4, 8, requires_grad=True)).square().mean().backward(); optimizer.step(); optimizer.zero_grad()
"""


def test_what_a_checkpoint_computes_again_begins_no_step(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(CHECKPOINTED))
    done = xsp("record", "--warmup", "2", "--steps", "3", "--", "train.py", cwd=tmp_path)
    warnings = [line for line in done.stderr.splitlines() if "Warning" in line]
    # on a busy machine a recorded step may take longer than those before
    assert done.returncode == 0 and all("times as long" in line for line in warnings), done.stderr
    with sqlite3.connect(tmp_path / "xsp-recordings/train.1.xsp.sqlite") as store:
        assert store.execute("SELECT COUNT(*) FROM iterations").fetchone() == (3,)
        (texts,) = zip(*store.execute("SELECT DISTINCT layer_path FROM layers"))
    assert {text.partition(":")[0] for text in texts} >= {"blocks.0", "blocks.1", "blocks.2"}


ALIKE = """
    import torch
    from torch.nn.utils.parametrizations import weight_norm
    class Net(torch.nn.Sequential): pass
    draft, whole = Net(torch.nn.Linear(8, 8)), Net(torch.nn.Linear(8, 8), weight_norm(torch.nn.Linear(8, 8)))
    for _ in range(3):
        whole[1].weight  # calls a module that computes it
    for step in range(20):
        for _ in range(2):
            draft(torch.randn(4, 8))
        whole(torch.randn(4, 8))
"""


def test_models_of_one_class_are_told_apart_and_what_computes_a_weight_is_none(tmp_path):
    (tmp_path / "guess.py").write_text(textwrap.dedent(ALIKE))
    assert xsp("record", "--warmup", "3", "--steps", "4", "--", "guess.py", cwd=tmp_path).returncode == 0
    with sqlite3.connect(tmp_path / "xsp-recordings/guess.1.xsp.sqlite") as store:
        found = dict(store.execute("SELECT name, call_count FROM paths WHERE name LIKE 'model:%'"))
    assert found == {"model:net_1": 8, "model:net_2": 4}


FORKED = """
    import torch
    from torch.utils.data import DataLoader, Dataset
    net, encoder = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    class Encoded(Dataset):
        def __len__(self): return 40
        def __getitem__(self, number):
            with torch.no_grad(): return encoder(torch.ones(4))
    for batch in DataLoader(Encoded(), num_workers=1, multiprocessing_context="fork"):
        net(batch)
"""


def test_models_in_worker_processes_of_a_program_are_not_its_own(tmp_path):
    (tmp_path / "forked.py").write_text(textwrap.dedent(FORKED))
    made = xsp("record", "--", tmp_path / "forked.py", cwd=tmp_path)
    assert made.returncode == 0 and "ended with" not in made.stderr, made.stderr
    with sqlite3.connect(tmp_path / "xsp-recordings/forked.1.xsp.sqlite") as store:
        assert store.execute("SELECT COUNT(*) FROM iterations").fetchone() == (5,)
        assert "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__" in {
            name for (name,) in store.execute("SELECT name FROM paths")
        }


# The same graph and the same record of it, with less of g++: no vector types, not optimised.
QUICK = {"TORCHINDUCTOR_VEC_ISA_OK": "0", "AOT_INDUCTOR_DEBUG_COMPILE": "1"}
COMPILED = """
    import torch, torch.cuda._graph_annotations as graphs
    from torch import nn
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)
        def forward(self, x):
            return x + self.down(self.up(x).relu())
    graphs._kernel_annotations[1 << 32].append({"name": "attention"})
    net = torch.compile(nn.Sequential(Block(), Block()))
    for step in range(9):
        net(torch.randn(4, 8))
"""


def test_what_the_compiler_made_is_recorded_beside_the_trace_and_joined(tmp_path):
    """Its own hooks must not break the graph; equal blocks are told apart; annotations of graphs are written, too."""
    (tmp_path / "net.py").write_text(textwrap.dedent(COMPILED))
    done = xsp("record", "--steps", "3", "--", sys.executable, "net.py", cwd=tmp_path, env=QUICK)
    assert done.returncode == 0, done.stderr
    beside = tmp_path / "xsp-recordings/net.1.recording"
    assert list((beside / "trace_torch_trace").glob("dedicated_log_torch_trace_*.log"))
    assert read_plain((beside / "trace.annotations.pkl").read_bytes()) == {1 << 32: [{"name": "attention"}]}
    with sqlite3.connect(tmp_path / "xsp-recordings/net.1.xsp.sqlite") as store:
        names = {name for (name,) in store.execute("SELECT DISTINCT name FROM nodes")}
        regions = store.execute("SELECT COUNT(DISTINCT name) FROM nodes WHERE name LIKE 'Torch-Compiled%'").fetchone()
    assert {f"{block}.{part}" for block in (0, 1) for part in ("up", "down")} <= names
    assert regions == (1,)


RANKS = """
    import subprocess, sys
    if sys.argv[1:]:
        import torch
        meeting, rank = "file://" + sys.argv[1], int(sys.argv[2])
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(50):
            net(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    else:
        words = [sys.executable, "-u", __file__, __file__ + ".meeting"]
        ranks = [subprocess.Popen((*words, rank)) for rank in "01"]
        sys.exit(max(rank.wait() for rank in ranks))
"""


def test_the_ranks_that_a_launcher_starts_are_one_recording(tmp_path):
    """The launcher is no file named .py: its first line says that Python runs it, as that of `torchrun` does."""
    (tmp_path / "launch").write_text(f"#!{sys.executable}\n{textwrap.dedent(RANKS)}")
    (tmp_path / "launch").chmod(0o755)
    made = xsp("record", "--steps", "3", "--", "./launch", cwd=tmp_path)
    assert made.returncode == 0 and "Verdict" in made.stdout, made.stderr
    with sqlite3.connect(tmp_path / "xsp-recordings/launch.1.xsp.sqlite") as store:
        assert store.execute("SELECT rank FROM ranks ORDER BY rank").fetchall() == [(0,), (1,)]
        assert store.execute("SELECT COUNT(*) FROM iterations GROUP BY capture_id").fetchall() == [(3,), (3,)]
        assert store.execute("SELECT COUNT(DISTINCT source_name) FROM captures").fetchone() == (2,)


@pytest.mark.parametrize(
    "text, said",
    [
        ("print('no model')", "called no torch module"),
        ("import torch; torch.nn.ReLU()(torch.ones(2))", "no torch module with parameters"),
        ("import torch; torch.nn.Linear(2, 2)(torch.ones(2))", "ended with step 1"),
        ("raise ValueError('its own')", "ended with 1 before anything was recorded"),
        ("raise ValueError('its own')", "What it wrote above says why"),
    ],
)
def test_where_nothing_was_recorded_a_sentence_says_so_and_nothing_is_left(tmp_path, text, said):
    (tmp_path / "program.py").write_text(text)
    done = xsp("record", "--", sys.executable, "program.py", cwd=tmp_path)
    assert done.returncode == 3 and said in done.stderr
    assert not (tmp_path / "xsp-recordings").exists()


def test_a_program_that_is_not_python_is_recorded_by_nsys(tmp_path, monkeypatch):
    """By a stand-in that writes down how it was called; what it leaves is no report, and that is said."""
    log = tmp_path / "log"
    fake = tmp_path / "nsys"
    fake.write_text(
        f"#!/bin/sh\necho \"$@\" >> {log}\n[ $1 = --version ] && echo 'NVIDIA Nsight Systems version 2026.1'\nexit 0\n"
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("XSP_NSYS", str(fake))
    done = xsp("record", "--", "true", "one", cwd=tmp_path, env={"XSP_NSYS": str(fake)})
    assert done.returncode == 3
    assert any(line.startswith("profile") and line.endswith("true one") for line in log.read_text().splitlines())


@pytest.mark.parametrize(
    "words, python, rest",
    [
        (["train.py", "-x"], [sys.executable], ["train.py", "-x"]),
        (["python3.12", "-u", "-X", "dev", "-m", "pkg.train", "-m"], ["python3.12", "-u", "-X", "dev"],
         ["-m", "pkg.train", "-m"]),
        (["/usr/bin/python", "a.py"], ["/usr/bin/python"], ["a.py"]),
        (["./a.out", "--x"], [], ["./a.out", "--x"]),
    ],
)  # fmt: skip
def test_a_command_line_is_split(words, python, rest):
    assert split_command(words) == (python, rest)


@pytest.mark.parametrize("words", [["python", "-c", "pass"], ["python"], ["python", "-m"], ["python", "-u"]])
def test_a_command_line_without_a_program_is_refused(words):
    with pytest.raises(UsageError):
        split_command(words)


def test_names_count_on(tmp_path):
    assert next_name(tmp_path / "missing", "a/train.py", "") == ("train.1", "")
    for name in ("train.2.xsp.sqlite", "train.10.a-b.xsp.sqlite", "other.11.xsp.sqlite", "train.12.html"):
        (tmp_path / name).touch()
    assert next_name(tmp_path, "train.py", "c/../d") == ("train.11.c-d", "train.10.a-b.xsp.sqlite")
    assert Path(next_name(tmp_path, "..", "")[0]).name == "program.1"


BLOCK = """
    import sys, torch, xsp_post
    from torch import nn
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)
        def forward(self, x):
            return x + self.down(self.up(x).relu())
    plain = nn.Sequential(Block(), Block())
    for name, net in (("run", torch.compile(plain)), ("eager", plain)):
        with xsp_post.record(f"out/{name}", warmup=1, model=net) as step, torch.no_grad():
            for _ in range(3):
                step()
                net(torch.randn(4, 8))
    try:
        with xsp_post.record("out/run"):
            sys.exit("was overwritten")
    except Exception as error:
        assert "exists already" in str(error)
"""


def test_a_block_of_a_program_is_recorded_with_what_the_compiler_made(tmp_path):
    (tmp_path / "net.py").write_text(textwrap.dedent(BLOCK))
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "net.py"], cwd=tmp_path, env={**os.environ, **QUICK, "PYTHONPATH": root},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    analysis = analyze([tmp_path / "out/run.pt.trace.json.gz"])  # the log is found beside it
    assert len(analysis.frame("iterations")) == 2
    names = set(analysis.frame("nodes")["name"].astype(str))
    assert {"ProfilerStep#2", "ProfilerStep#3"} <= names
    modules = {f"{block}.{part}" for block in (0, 1) for part in ("up", "down")}
    assert modules <= names
    assert set(analysis.frame("kernels")["source_line"].astype(str)) == {"", "net.py:9"}
    eager = analyze([tmp_path / "out/eager.pt.trace.json.gz"])
    assert {f"{one}:Linear#0" for one in modules} <= set(eager.frame("nodes")["name"].astype(str))
    assert len(eager.frame("iterations")) == 2
