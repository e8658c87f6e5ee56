"""headrace graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli import main
from tests.cli.programs import write

LATER = "\nprint('before')\nShows().run()\nprint('after')\n"


def test_a_program_is_drawn_and_not_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", write(folder, LATER)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "before",
        "numbers (FunctionOperator)",
        "  out -> show.value",
        "show (FunctionOperator)",
    ]


def test_no_except_clause_of_the_program_keeps_it_running(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = write(folder, "try:\n    Shows().run()\nexcept Exception:\n    print('kept')\n")
    assert main(["graph", f"{app}", "--format", "mermaid"]) == 0
    assert "kept" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "beginning"),
    [("a.svg", "<svg"), ("a.dot", "digraph"), ("a.mmd", "flowchart"), ("a.txt", "numbers (")],
)
def test_the_name_of_the_file_chooses_the_format(folder: Path, name: str, beginning: str) -> None:
    assert main(["graph", write(folder, ""), "-o", name]) == 0
    assert (folder / name).read_text().startswith(beginning)


@pytest.mark.parametrize(
    ("ending", "status", "text"),
    [
        ("if __name__ == '__main__':\n    pass", 2, "app.py ended without running an application"),
        ("sys.exit()", 2, "app.py ended without running an application"),
        ("sys.exit('usage: ...')", 1, "usage: ..."),
        ("sys.exit(5)", 5, ""),
        ("1 / 0", 1, "headrace graph: ZeroDivisionError: division by zero; app.py:"),
    ],
)
def test_where_nothing_can_be_drawn_it_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], ending: str, status: int, text: str
) -> None:
    assert main(["graph", write(folder, ending)]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err


def test_a_file_that_cannot_be_written_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", write(folder, ""), "-o", "no/such/folder.svg"]) == 1
    assert capsys.readouterr().err == (
        "headrace graph: cannot write 'no/such/folder.svg': No such file or directory\n"
    )


def test_subgraphs_are_folded_unless_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = """
from headrace import Subgraph

class Counted(Subgraph):
    def compose(self):
        self.add_output("out", numbers(self))

class Grouped(Application):
    def compose(self):
        Counted(self, name="left") >> show(self)

Grouped().run()
"""
    app = write(folder, program)
    assert main(["graph", app, "--format", "mermaid"]) == 0
    assert 'n0["left"]' in capsys.readouterr().out
    assert main(["graph", app, "--format", "mermaid", "--unfold"]) == 0
    assert 'n0["left.numbers"]' in capsys.readouterr().out
