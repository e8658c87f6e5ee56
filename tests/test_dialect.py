"""One dialect everywhere: what every file of the project has in common."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.sources import parse

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headrace"
FOLDERS = ("src", "tests", "examples", "benchmarks", "tools")
# A docstring of a function says what a call does, in words that a Python programmer expects.
NOT_THE_FIRST_WORD = ("Give", "Gives", "Say", "Says", "Have", "Has", "Tells", "Returns", "Takes", "Makes")
# A source without a text that begins so has no such docstring: reading all of them as trees would take seconds.
MENTION = re.compile(rf"""["']\\?\s*({"|".join(NOT_THE_FIRST_WORD)})\b""")


def modules() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_underscores_are_on_packages_and_never_on_files() -> None:
    assert [file.name for file in PACKAGE.rglob("_*.py") if not file.name.startswith("__")] == []


def test_docstrings_of_functions_begin_with_what_the_call_does() -> None:
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        wrong += [f"{file.relative_to(ROOT)}:{found}" for found in other_docstrings(file.read_text())]
    assert wrong == []


def other_docstrings(source: str) -> Iterator[str]:
    """Return the functions of a source whose docstrings begin with something else, with their lines."""
    if not MENTION.search(source):
        return
    for node in ast.walk(parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_property(node):
            continue
        first = (ast.get_docstring(node) or " ").split()
        if first and first[0].rstrip(",;:.") in NOT_THE_FIRST_WORD:
            yield f"{node.lineno} {node.name}: {' '.join(first[:6])}"


@pytest.mark.parametrize("begin", ['"""', '"', "'", 'r"""', '"""\n    ', '"""\\\n    '])
def test_every_form_of_a_docstring_is_seen(begin: str) -> None:
    end = begin.strip("r\\\n ")
    assert list(other_docstrings(f"def f():\n    {begin}Gives: so much.{end}"))


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_the_project_speaks_of_the_project_alone() -> None:
    """Names of one machine or workplace have no place in files that everybody reads."""
    foreign = ("/" + "work/", "/" + "opt/pypi", "localhost" + ":4873")
    texts = [*modules(), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.toml")]
    found = [
        f"{file.relative_to(ROOT)}: {word}" for file in texts for word in foreign if word in file.read_text()
    ]
    assert found == []
