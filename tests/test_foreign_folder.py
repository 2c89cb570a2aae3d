"""A folder of captures may hold anything: none of its files is executed, however xsp-post was installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pandas as pd
import pytest
from builders import ExportBuilder

import xsp_post
from xsp_post.base import children, module_path

PACKAGE = Path(xsp_post.__file__).parent
DEPENDENCIES = Path(pd.__file__).parents[1]
SCRIPT = "#!{python}\nimport sys\nfrom xsp_post.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
FINDER = """import importlib.util, sys
class Finder:
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, {start!r}) if name == "xsp_post" else None
sys.meta_path.insert(0, Finder)  # the dependencies may lie beside a copy of the package
"""
EVENTS = """{"schemaVersion": 1, "traceEvents": [
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":1,"dur":1,"pid":1,"tid":1,"args":{"correlation":1}},
{"ph":"X","cat":"kernel","name":"k","ts":3.5,"dur":2,"pid":0,"tid":7,"args":{"device":0,"correlation":1}}]}"""


def installed(kind: str, place: Path) -> tuple[list[str], dict[str, str]]:
    """(the console script, the variables of its user) of an installation of this kind."""
    place.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if kind == "user":
        python = Path(sys._base_executable)
        env["PYTHONUSERBASE"] = str(place)
        packages = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(place)}))
    else:
        venv.create(place, with_pip=False, symlinks=True)
        python = place / "bin" / "python"
        packages = Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(place)}))
    packages.mkdir(parents=True, exist_ok=True)
    paths = [str(DEPENDENCIES)]
    if kind == "editable":
        paths.insert(0, str(PACKAGE.parent))  # the dependencies may lie beside a copy of the package
    elif kind == "editable finder":
        (packages / "xsp_post_finder.py").write_text(FINDER.format(start=str(PACKAGE / "__init__.py")))
        paths.append("import xsp_post_finder")
    else:
        (packages / "xsp_post").symlink_to(PACKAGE)
    (packages / "others.pth").write_text("\n".join(paths) + "\n")
    script = place / "bin" / "xsp-post"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT.format(python=python))
    return [str(python), str(script)], env


@pytest.fixture
def folder(tmp_path, captures_or_none) -> Path:
    """A folder with a capture of each kind, and a module of every name that Python or a package of ours could import.
    Each of them leaves a line when it is executed."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    ExportBuilder().range("step", 0, 10_000).kernel("k", launch=(10, 11), run=(12, 19)).write(folder / "a.sqlite")
    (folder / "b.pt.trace.json").write_text(EVENTS)
    if captures_or_none is not None:
        shutil.copyfile(captures_or_none / "ncu/sgemm_roofline_a10g_2023.1.ncu-rep", folder / "c.ncu-rep")
    ours = {entry.name.partition(".")[0] for entry in DEPENDENCIES.iterdir()}
    for name in {*sys.stdlib_module_names, *ours, "sitecustomize", "usercustomize", "xsp_post"}:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\n")
    return folder


@pytest.fixture
def captures_or_none() -> Path | None:
    """The shared captures where they are here and NVIDIA's reader is installed."""
    try:
        import ncu_report  # noqa: F401
    except ImportError:
        return None
    found = Path(os.environ.get("XSP_POST_CAPTURES") or PACKAGE.parents[1] / "shared" / "captures")
    return found if found.is_dir() else None


def executed(folder: Path) -> str:
    note = folder.parent / "executed"
    return note.read_text() if note.exists() else ""


def ran(folder: Path, command: list[str], env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert executed(folder) == "", command
    assert done.returncode == 0, done.stderr


@pytest.mark.guard
def test_no_command_executes_a_module_of_the_folder(folder, tmp_path):
    script, env = installed("environment", tmp_path / "installed")
    for source in sources(folder):
        for words in (["tree"], ["ingest", "-o", f"../{source}.xsp.sqlite"], ["why"]):
            if (words[0], source) != ("why", "c.ncu-rep"):  # counters have no timeline
                ran(folder, [*script, *words, source], env)
    ran(folder, [*script, "batch", ".", "-o", "../out", "--workers", "2"], env)
    ran(folder, [*script, "report", "a.sqlite", "-o", "../a.html"], env)


@pytest.mark.parametrize("kind", ["user", "editable", "editable finder"])
def test_however_it_was_installed_none_is_executed(kind, folder, tmp_path):
    script, env = installed(kind, tmp_path / "installed")
    for source in sources(folder):
        ran(folder, [*script, "tree", source], env)
    ran(folder, [*script, "batch", ".", "-o", "../out", "--workers", "2"], env)


def sources(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".py")


@pytest.mark.guard
def test_the_module_as_a_program_executes_none_either(folder):
    """But for what Python itself loads before it looks for the program: that nobody can prevent but `python -P`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    (folder.parent / "nothing.py").write_text("import sys\nprint(*sys.modules)")
    before = subprocess.run(
        [sys.executable, "-m", "nothing"], cwd=folder.parent, env=env, capture_output=True, text=True, check=True
    )
    for name in (*before.stdout.split(), "xsp_post"):
        (folder / f"{name}.py").unlink(missing_ok=True)
    ran(folder, [sys.executable, "-m", "xsp_post", "tree", "a.sqlite"], env)
    ran(folder, [sys.executable, "-m", "xsp_post", "batch", ".", "-o", "../out"], env)


@pytest.mark.guard
def test_a_measured_child_of_a_known_model_executes_none(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}{folder}")  # an empty entry is the current folder
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(folder)])
    monkeypatch.chdir(folder)
    levels = [("M", "none", str(tmp_path))]
    request = {"command_id": 0, "workload": {"model": "none"}, "levels": levels, "batch_size": 1, "repeat": 0}
    command = children.python("xsp_post.workload", json.dumps(request))
    done = subprocess.run(command, cwd=folder, env=children.environment(str(folder)), capture_output=True, check=False)
    assert executed(folder) == ""
    pytest.importorskip("torch")
    assert done.returncode == 2 and b"no model" in done.stderr


def test_the_module_path_is_without_foreign_folders(tmp_path, monkeypatch):
    here, capture, link = tmp_path / "here", tmp_path / "capture", tmp_path / "link"
    here.mkdir(), capture.mkdir(), link.symlink_to(here)
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", ["", ".", "sub", str(here), str(link), str(capture), str(tmp_path)])
    assert module_path.trusted(str(capture)) == [str(tmp_path), str(PACKAGE.parent)]
    monkeypatch.chdir(PACKAGE.parent)  # who can write there can change xsp_post
    monkeypatch.setattr(sys, "path", [str(PACKAGE.parent), str(tmp_path)])
    assert module_path.trusted() == [str(PACKAGE.parent), str(tmp_path)]


def test_what_was_changed_to_start_processes_is_put_back(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    with pytest.raises(KeyError), children.apart(*path[:1]):
        assert ".py" not in {Path(name).suffix for name in os.listdir(".")} and os.environ["PYTHONPATH"]
        raise KeyError
    assert (os.getcwd(), sys.path, "PYTHONPATH" in os.environ) == (str(tmp_path), path, False)
