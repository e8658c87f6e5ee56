"""Every page in docs/ does what it says: its python blocks run, in order, as one program.

A block fenced as ``output`` right after a python block is what that block prints, word for word. A block
fenced as ``python skip`` is shown and not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
MARK = "--- end of block {} ---"


def blocks(text: str) -> list[tuple[int, str, str | None]]:
    """Give the line, the code and the expected output of each python block of a page."""
    found: list[tuple[int, str, str | None]] = []
    for match in FENCE.finditer(text):
        language = match[1].strip()
        if language == "python":
            found.append((text.count("\n", 0, match.start(2)), match[2], None))
        elif language == "output" and found:
            line, code, _ = found[-1]
            found[-1] = (line, code, match[2])
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(DOCS)) for page in PAGES])
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    parts = blocks(page.read_text())
    if not parts:
        return
    program = ["import sys as _sys"]
    for number, (line, code, _) in enumerate(parts):
        # Compiled with blank lines before it, so that a traceback shows the line of the page.
        source = "\n" * line + code
        program.append(f"exec(compile({source!r}, {str(page)!r}, 'exec'))")
        program.append(f"print({MARK.format(number)!r}, flush=True)")
    script = tmp_path / "page.py"
    script.write_text("\n".join(program))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PENSTOCK_DEVICE": "sim"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rest = done.stdout
    for number, (line, _, expected) in enumerate(parts):
        printed, _, rest = rest.partition(MARK.format(number) + "\n")
        if expected is not None:
            assert printed == expected, f"{page.name}, the block at line {line} printed something else"


def test_a_page_is_read_as_meant() -> None:
    page = "x\n```python\na = 1\n```\n\n```output\n1\n```\n```python skip\nb\n```\n```text\nc\n```\n"
    assert blocks(page) == [(2, "a = 1\n", "1\n")]
