"""Write docs/holoscan-names.md: which names of the Holoscan SDK are here.

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

These are the public names of the modules of the Holoscan SDK 4.6.0, as [headrace-holoscan](from-holoscan.md) has
them. A name that is not here can be imported, and using it raises an error that gives the reason of these tables.
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
    return "\n".join([_HEAD, *(line for module in MODULES for line in _table(module))])


def _table(module: str) -> Iterator[str]:
    states = {name: state_of(module, name) for name in NAMES[module]["names"]}
    here = [f"`{name}`" for name, state in states.items() if state == "here"]
    others = {name: state for name, state in states.items() if state != "here"}
    yield f"## holoscan.{module}\n"
    if here:
        yield "Here: " + ", ".join(here) + ".\n"
    if others:
        yield "| name | |\n| --- | --- |"
        yield from (f"| `{name}` | {state} |" for name, state in others.items())
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
