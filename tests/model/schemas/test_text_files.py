"""Files of columns, labels and messages: what cannot be read is refused with file and line; nothing is read early."""

from __future__ import annotations

import subprocess
import sys

import pytest

from xsp_post.base.messages import read_messages
from xsp_post.model.schemas.base import Column, read_tables
from xsp_post.model.schemas.views import read_views

COLUMNS = """# a comment
[*who]
rank  int64?  of the job

[cases] Cases
one row per case
source: page 3
*who
name     str      with  two spaces
time_ns  float64  when
may lack:
end_ns   int64    its end
"""
MESSAGES = """[*how]
Do this:
    a line of code
[bad-thing]
cause: It is
  bad.
cure: *how
[odd-thing] info: It is odd
cause: Why: this.
cure: Nothing.
"""
VIEWS = """[*all]
- name  who
[cases]
*all
time_ns  when it was
name
"""


def test_a_file_of_columns_is_read(tmp_path):
    (tmp_path / "c.txt").write_text(COLUMNS)
    table = read_tables(tmp_path / "c.txt")["cases"]
    assert (table.title, table.one_row_per, table.source) == ("Cases", "case", "page 3")
    assert table.columns[0] == Column("rank", "int64", "of the job", is_optional=True)
    assert table.columns[1] == Column("name", "str", "with  two spaces")
    assert [c.name for c in table.columns] == ["rank", "name", "time_ns"]
    assert [c.name for c in table.may_lack] == ["end_ns"]


def test_a_file_of_messages_is_read(tmp_path):
    (tmp_path / "m.txt").write_text(MESSAGES)
    bad, odd = read_messages(tmp_path / "m.txt").values()
    assert (bad.severity, bad.cause, bad.cure) == ("", "It is bad.", "Do this:\n    a line of code")
    assert (odd.severity, odd.title, odd.cause) == ("info", "It is odd", "Why: this.")


def test_a_file_of_views_is_read(tmp_path):
    (tmp_path / "v.txt").write_text(VIEWS)
    view = read_views(tmp_path / "v.txt")["cases"]
    assert view.columns == ("time_ns", "name")
    assert view.labels == {"name": "who", "time_ns": "when it was"}


@pytest.mark.parametrize(
    ("read", "text", "old", "new", "line"),
    [
        (read_tables, COLUMNS, "rank  int64?  of the job", "rank  int64?", 3),
        (read_tables, COLUMNS, "rank  int64?", "rank  str?", 3),
        (read_tables, COLUMNS, "str      with", "text  with", 9),
        (read_tables, COLUMNS, "*who\nname", "*whom\nname", 8),
        (read_tables, COLUMNS, "time_ns ", "name ", 5),
        (read_tables, COLUMNS, "one row per case\n", "", 5),
        (read_tables, COLUMNS, "# a comment", "rank  str  above", 1),
        (read_tables, COLUMNS, "may lack:", "[cases]", 11),
        (read_messages, MESSAGES, "cure: *how", "what to do", 7),
        (read_messages, MESSAGES, "cure: *how\n", "", 4),
        (read_messages, MESSAGES, "cure: *how", "cure: *how\ncure: again", 8),
        (read_messages, MESSAGES, "info:", "notice:", 8),
        (read_messages, MESSAGES, "odd-thing", "bad-thing", 8),
        (read_views, VIEWS, "- name  who", "- name", 2),
        (read_views, VIEWS, "\nname", "\ntime_ns", 6),
        (read_views, VIEWS, "*all\ntime", "*most\ntime", 4),
        (read_views, VIEWS, "[cases]", "[*all]", 3),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path, read, text, old, new, line):
    assert old in text
    (tmp_path / "bad.txt").write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=rf"^bad\.txt, line {line}: "):
        read(tmp_path / "bad.txt")


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_files_are_not_read_where_no_table_is_asked_for(option):
    program = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == 'open' else None)\n"
        f"sys.argv = ['xsp-post', {option!r}]\n"
        "from xsp_post.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in opened if name.endswith('.txt') and 'xsp_post' in name and 'help' not in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
