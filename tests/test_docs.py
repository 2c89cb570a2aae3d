"""Documentation that is read by tests: codes, columns, commands, generated pages."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import io
import re
import shlex
from functools import cache

import pytest
from conftest import ROOT
from helpers import called

from xsp_post.base import settings_files

PACKAGE = ROOT / "xsp_post"
DTYPES = {"int64", "int32", "int8", "float64", "bool", "str"}
FOREIGN_UNITS = re.compile(r"(?<!_per)_(ms|us|s|sec|seconds|mb|gb|kb|percent|pct|gflops?|tflops?)$")


def load_script(name):
    """A script of scripts/, which has no .py at its end, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gen_docs():
    script = load_script("gen_docs")
    return script


@cache
def calls():
    """(file, line, called name, call) of every call in the package."""
    return [
        (path.relative_to(ROOT), node.lineno, getattr(node.func, "attr", getattr(node.func, "id", "")), node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def constants(node):
    """The text constants that an expression may be: of a constant itself, of both arms of a choice."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return constants(node.body) + constants(node.orelse)
    return []


def test_every_failure_has_a_listed_code(gen_docs):
    from xsp_post.base import errors, messages

    families = {name for name in vars(errors) if name.endswith("Error")}
    seen = 0
    for path, line, name, call in calls():
        if name not in families:
            continue
        code = next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)
        assert code is not None, f"{path}:{line}: {name} without code="
        for text in constants(code):
            assert text in messages.ERRORS, f"{path}:{line}: {text!r} is not in messages.ERRORS"
            seen += 1
    assert seen > 10


def test_every_finding_has_a_listed_code(gen_docs):
    from xsp_post.base.messages import FINDINGS

    seen = 0
    for path, line, name, call in calls():
        if name in ("finding", "Finding") and call.args:
            for text in constants(call.args[0]):
                assert text in FINDINGS, f"{path}:{line}: {text!r} is not in messages.FINDINGS"
                seen += 1
    assert seen > 10


def test_no_listed_code_is_dead(gen_docs):
    from xsp_post.base.findings import FINDINGS
    from xsp_post.base.messages import ERRORS

    used: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)
    dead = [code for code in [*ERRORS, *FINDINGS] if code not in used]
    assert not dead, f"listed, never used: {dead}"


def test_messages_say_what_to_do(gen_docs):
    from xsp_post.base.findings import FINDINGS
    from xsp_post.base.messages import ERRORS, SEVERITIES

    for code, text in ERRORS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code), code
        assert len(text.cause) > 10 and len(text.cure) > 10, code
    for code, entry in FINDINGS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code), code
        assert entry.severity in SEVERITIES and entry.title and len(entry.cause) > 10 and len(entry.cure) > 10, code
    assert not ERRORS.keys() & FINDINGS.keys()


def test_every_column_has_type_meaning_and_our_units(gen_docs):
    from xsp_post.model.schemas import TABLES

    assert len(TABLES) > 20
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names) > 0, table.name
        assert table.title and table.one_row_per, table.name
        for column in table.columns:
            where = f"{table.name}.{column.name}"
            assert re.fullmatch(r"[a-z][a-z0-9_]*", column.name), where
            assert column.dtype in DTYPES and len(column.meaning) >= 3, where
            assert not FOREIGN_UNITS.search(column.name), f"{where}: times are _ns, sizes _bytes, shares _ratio"
            assert not column.name.endswith("_ns") or column.dtype in ("int64", "float64"), where


@pytest.mark.parametrize("name", ["columns.md", "messages.md", "advice.md", "cli.md", "paper.md"])
def test_generated_pages_are_up_to_date(gen_docs, name):
    text = gen_docs.PAGES[name]()
    if text is None:
        pytest.skip(f"nothing to generate docs/{name} from")
    path = ROOT / "docs" / name
    assert path.exists() and path.read_text(encoding="utf-8") == text, "run scripts/gen_docs"


def documented_commands():
    """(page, words) of every `xsp-post …` line in an indented or fenced block of the hand-written pages."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md"]
    generated = {"columns.md", "messages.md", "cli.md", "paper.md"}
    pages += [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in generated]
    for page in pages:
        fenced = False
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                fenced = not fenced
            stripped = line.strip().removeprefix("$ ")
            if (fenced or line.startswith("    ")) and stripped.startswith("xsp-post "):
                yield page.name, shlex.split(stripped.split("  #")[0].rstrip("\\"), comments=True)


def test_documented_commands_exist(gen_docs):
    cli = pytest.importorskip("xsp_post.cli")
    import typer

    commands = {name: command for name, command in gen_docs.walk(typer.main.get_command(cli.app), "xsp-post")}
    found = 0
    for page, words in documented_commands():
        name = " ".join(words[:2])
        assert name in commands, f"{page}: {name} is not a command"
        options = {option for p in commands[name].params for option in [*p.opts, *p.secondary_opts]} | {"--help"}
        ours = words[: words.index("--")] if "--" in words else words  # behind it: the user's program
        for word in ours[2:]:
            if word.startswith("-") and not re.fullmatch(r"-\d+", word):
                assert word.split("=")[0] in options, f"{page}: {name} has no option {word}"
        found += 1
    assert found >= 3


def test_links_of_the_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" in target:
                continue
            assert (page.parent / target).exists() or target == "docs/cli.md", f"{page.name}: {target}"


def test_places_that_contributing_names_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Where a change goes")[2].partition("## Tests")[0]
    files = re.findall(r"`([a-z_]+/[a-z_/]+\.(?:py|txt|md))`", table)
    assert len(files) > 20
    assert not [name for name in files if not any((root / name).is_file() for root in (PACKAGE, ROOT))]
    for name, module in re.findall(r"`(\w+)` (?:of|in) `([a-z_/]+\.py)`", table):
        assert re.search(rf"\b{name}\b", (PACKAGE / module).read_text(encoding="utf-8")), f"{module}: no {name}"


def test_scripts_are_executable_and_say_what_they_do():
    for name in ("test", "quickstart", "bench", "make_export", "gen_docs"):
        path = ROOT / "scripts" / name
        assert path.stat().st_mode & 0o111, name
        assert path.read_text(encoding="utf-8").startswith("#!"), name


def test_architecture_has_a_place_for_every_room():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = [f"{p.name}/" for p in PACKAGE.iterdir() if (p / "__init__.py").exists()]
    rooms += [p.name for p in PACKAGE.glob("*.py") if p.name != "__init__.py"]
    assert len(rooms) > 20
    assert not [room for room in rooms if f"`{room}`" not in text]
    steps = [p.name for p in (PACKAGE / "tree").glob("*.py") if p.name != "__init__.py"]
    assert not [step for step in steps if f"`{step}`" not in text]
    for named in re.findall(r"`([a-z_]+\.py|[a-z_]+/)`", text):
        assert any(p.name == named.rstrip("/") for p in PACKAGE.rglob("*")), f"architecture.md: no {named}"


def test_glossary_has_every_level_and_way_of_attribution():
    from xsp_post.model.levels import Level
    from xsp_post.model.tree import Attribution, LayerAttribution

    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    for member in (*Level, *Attribution, *LayerAttribution):
        if member.name not in ("NONE", "NO_LAUNCH"):  # "unattributed" and "orphan" to a reader
            assert re.search(rf"\b{member.name.lower()}\b", text), member


def test_the_tree_of_the_start_page_is_what_is_printed():
    text = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- tree of the example.*?```text\n(.*?)```", text, re.DOTALL)
    command = re.search(r"`xsp-post (tree\s+examples/[^`]+)`", text)
    assert shown and command
    done = called(*command.group(1).split(), columns=110, cwd=ROOT)
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.group(1).splitlines()


def test_the_first_lines_of_the_readme_are_what_is_printed():
    from rich.console import Console

    from xsp_post.pipeline import analyze
    from xsp_post.reports import why

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- first lines of the command above.*?```text\n(.*?)```", text, re.DOTALL)
    assert shown
    printed = io.StringIO()
    results = analyze([ROOT / "examples/resnet50_generated.sqlite"])
    why.print_why(Console(file=printed, width=110, highlight=False), why.why(results))
    lines = shown.group(1).splitlines()
    assert len(lines) >= 8 and [line.rstrip() for line in printed.getvalue().splitlines()][: len(lines)] == lines


def test_every_package_is_in_the_page_about_installing():
    project = settings_files.read(ROOT / "pyproject.toml")["project"]
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    packages = list(project["dependencies"])
    extras = {name: rows for name, rows in project["optional-dependencies"].items() if name not in ("dev", "test")}
    names = {re.split(r"[>=<\[]", one)[0] for one in [*packages, *(row for rows in extras.values() for row in rows)]}
    assert not [name for name in names - {"distributed"} if name not in text and name.replace("-", "_") not in text]
    assert not [extra for extra in extras if f"`{extra}`" not in text]


def test_every_file_of_the_package_is_installed():
    """What is not Python stands in package-data, or a wheel lacks it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    patterns = re.findall(r'"(.+?)"', re.search(r"^xsp_post = \[(.+)\]$", text, re.MULTILINE).group(1))
    installed = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    others = {p for p in PACKAGE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    assert others and others <= installed, sorted(others - installed)
