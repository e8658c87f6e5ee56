"""The table of the SDK's variables in docs/command-line.md lists those that headrace reads."""

from __future__ import annotations

import re

from tests.harness.processes import ROOT

FILES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "packages" / "holoscan" / "src").rglob("*.py")]
VARIABLE = re.compile(r"\bHOLOSCAN_[A-Z_]+[A-Z]\b")


def test_the_table_lists_the_variables_that_are_read() -> None:
    read = {name for path in FILES for name in VARIABLE.findall(path.read_text())}
    # Its name is put together.
    read |= {f"HOLOSCAN_{kind}_WORKER_THREADS" for kind in ("MULTITHREAD", "EVENTBASED")}
    page = (ROOT / "docs" / "command-line.md").read_text()
    table = page.partition("## Variables of the Holoscan SDK")[2].partition("\n\nPrograms read")[0]
    assert set(VARIABLE.findall(table)) == read
