"""Write docs/holoscan-names.md: which names of the Holoscan SDK are not here.

Run it after a change of `headrace_holoscan`: ``python -m packages.holoscan.tests.names_table``.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

from headrace_holoscan.absent import reason_of

NAMES = json.loads(Path(__file__).with_name("sdk_names.json").read_text())
# The modules that do not have all names yet.
PENDING: tuple[str, ...] = ()
MODULES = [module for module in NAMES if module not in PENDING]
PAGE = Path(__file__).parents[3] / "docs" / "holoscan-names.md"
_HEAD = """# Names of the Holoscan SDK

[headrace-holoscan](from-holoscan.md) has the public names of the modules of the Holoscan SDK 4.6.0, but those of
these tables. They can be imported, and using one raises an error that gives its reason.
`python -m packages.holoscan.tests.names_table` writes this page.
"""


def state_of(module: str, name: str) -> str:
    """Return "here", or why a name is not here, or "missing"."""
    found = getattr(importlib.import_module(f"headrace_holoscan.{module}"), name, NAMES)
    if found is NAMES:
        return "missing"
    reason = reason_of(found)
    if reason is None and getattr(found, "reason", ""):
        return f"can be made; an operator that is given one raises an error: {found.reason}"
    return "here" if reason is None else f"not here: {reason}"


def page() -> str:
    """Return the page."""
    tables = {module: list(_rows(module)) for module in MODULES}
    whole = [f"`holoscan.{module}`" for module, rows in tables.items() if not rows]
    sections = [
        "\n".join([f"## holoscan.{module}\n", "| name | |", "| --- | --- |", *rows, ""])
        for module, rows in tables.items()
        if rows
    ]
    return "\n".join([_HEAD, *sections, "All public names are here of " + ", ".join(whole) + ".\n"])


def _rows(module: str) -> Iterator[str]:
    for name in NAMES[module]["names"]:
        state = state_of(module, name)
        if state != "here":
            yield f"| `{name}` | {state} |"


if __name__ == "__main__":
    PAGE.write_text(page())
