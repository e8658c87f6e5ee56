"""What programs use most can be imported from `headrace` itself."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import headrace
from tests.harness.processes import ROOT


def programs() -> Iterator[str]:
    """Yield the programs of the pages, and the examples."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield from re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(), re.DOTALL)
    for example in sorted((ROOT / "examples").rglob("*.py")):
        yield example.read_text()


def test_every_name_that_the_pages_use_more_than_twice_is_at_the_top() -> None:
    used: Counter[str] = Counter()
    for text in programs():
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a part of a program
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headrace":
                used.update(alias.name for alias in node.names)
    often = {name for name, count in used.items() if count > 2}
    assert len(often) > 20
    assert {name for name in often if not hasattr(headrace, name)} <= {"sim"}  # of `headrace.gpu`
