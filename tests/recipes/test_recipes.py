"""The recipe for `nsys recipe`, run under a stand-in of NVIDIA's base classes in its three modes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from builders import ExportBuilder

from xsp_post.base.errors import OutputError
from xsp_post.recipes import RECIPES, install

FAKES = Path(__file__).parents[1] / "fakes"


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Two reports of two and four kernels, and one that is none."""
    tmp_path = tmp_path_factory.mktemp("reports")
    paths = []
    for count in (1, 2):
        builder = ExportBuilder().process(100 + count).range("model:forward#0", 0, 100_000, domain="xsp")
        builder.range("fc:Linear#0", 1_000, 90_000, domain="xsp")
        for k in range(2 * count):
            at = 2_000 + 10_000 * k
            builder.kernel("gemm", launch=(at, at + 1_000), run=(at + 2_000, at + 5_000))
        paths.append(tmp_path / f"r{count}.sqlite")
        builder.write(paths[-1])
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database")
    return [*paths, broken]


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The recipe as nsys loads it: from the folder of NSYS_RECIPE_PATH, by the name in metadata.json."""
    folder = install(tmp_path_factory.mktemp("installed") / "recipes") / "xsp_tree"
    name = json.loads((folder / "metadata.json").read_text())["module_name"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FAKES))
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        loaded = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        loaded.XspTree._recipe_file = str(folder / f"{name}.py")
        yield loaded
    for imported in [m for m in sys.modules if m.split(".")[0] == "nsys_recipe"]:
        del sys.modules[imported]


def run_recipe(module, reports, output, context_of):
    arguments = ["--input", *map(str, reports), "--output", str(output), "--csv"]
    parsed = module.XspTree.get_argument_parser().parse_args(arguments)
    recipe = module.XspTree(parsed)
    from nsys_recipe.lib import recipe as base

    with context_of(base) as context:
        recipe.run(context)
    return output


class _Serial:
    def __init__(self, base):
        self.context = base.SerialContext()

    def __enter__(self):
        return self.context

    def __exit__(self, *_):
        pass


@pytest.fixture(scope="module")
def one_by_one(module, reports, tmp_path_factory):
    """What the recipe writes without workers."""
    return run_recipe(module, reports, tmp_path_factory.mktemp("none") / "out", _Serial)


@pytest.mark.parametrize("mode", ["none", "concurrent", "dask-futures"])
def test_tree_of_many_reports(module, reports, tmp_path, mode, capfd, request):
    if mode == "dask-futures":
        distributed = pytest.importorskip("distributed")
        with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
            out = run_recipe(module, reports, tmp_path / "out", lambda base: _Wrapped(base.DaskFuturesContext(client)))
    elif mode == "concurrent":
        out = run_recipe(module, reports, tmp_path / "out", lambda base: base.ConcurrentContext())
    else:
        out = request.getfixturevalue("one_by_one")
    tree = pd.read_parquet(out / "xsp_tree.parquet")
    files = pd.read_parquet(out / "files.parquet")
    assert [Path(name).name for name in files["File"]] == ["r1.sqlite", "r2.sqlite"]
    roots = tree[tree["depth"] == 0].set_index("Rank")["kernel_count"]
    assert roots.to_dict() == {0: 2, 1: 4}
    assert (tree[tree["depth"] == 0]["kernel_ns"] == [6_000, 12_000]).all()
    kernels = pd.read_parquet(out / "a10.parquet")
    assert set(kernels["Rank"]) == {0, 1}
    analysis = json.loads((out / "out.nsys-analysis").read_text())
    assert {"xsp_tree.parquet", "xsp_tree.ipynb", "xsp_tree.csv"} <= set(analysis["Outputs"])
    if mode != "none":  # its fixture wrote before this test
        assert "broken.sqlite" in capfd.readouterr().err  # named, and the rest went on


class _Wrapped(_Serial):
    def __init__(self, context):
        self.context = context


def test_no_report_that_can_be_read_is_said(module, reports, tmp_path):
    with pytest.raises(ValueError, match="no report could be analysed"):
        run_recipe(module, reports[-1:], tmp_path / "out", _Serial)


def test_notebook_runs_on_what_the_recipe_writes(one_by_one, monkeypatch):
    notebook = json.loads((one_by_one / "xsp_tree.ipynb").read_text())
    monkeypatch.chdir(one_by_one)
    scope: dict = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    assert len(scope["tree"])


def test_recipe_asks_an_interpreter_that_has_xsp_post(module, tmp_path):
    """It executes no module of the current folder: Python 3.13 imports `linecache` before it runs a program."""
    (tmp_path / "linecache.py").write_text("raise SystemExit('executed')")
    command, environment = module.XspTree._interpreter()
    called = [*command, "xsp_post", "--version"]
    done = subprocess.run(called, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "xsp-post" in done.stdout, done.stderr
    assert "PYTHONHOME" not in environment


def test_installing_again_changes_nothing(tmp_path):
    first = install(tmp_path / "recipes")
    before = {p: p.stat().st_mtime_ns for p in first.rglob("*") if p.is_file()}
    assert install(tmp_path / "recipes") == first
    assert {p: p.stat().st_mtime_ns for p in first.rglob("*") if p.is_file()} == before
    assert {p.name for p in first.iterdir()} == set(RECIPES)


def test_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as failed:
        install(tmp_path / "file" / "recipes")
    assert failed.value.code == "recipe-folder"


def test_command_prints_the_folder_alone(tmp_path):
    command = [sys.executable, "-m", "xsp_post.cli", "recipe-path"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{(tmp_path / 'xsp-post' / 'recipes').resolve()}\n"
    assert (tmp_path / "xsp-post/recipes/xsp_tree/metadata.json").is_file()
