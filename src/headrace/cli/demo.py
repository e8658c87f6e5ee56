"""Run the demo, or another of the examples, which came along with headrace.

examples:
  headrace demo                        an endoscope beside a control loop: a table and a picture
  headrace demo --list                 the examples, with a line on each
  headrace demo two_cameras            one of them
  headrace demo first_pipeline --show  its source
  headrace demo -- --view              words after -- are the example's own
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from pathlib import Path

from headrace.cli import Failed
from headrace.installation import bundled, environment

DEMO = "endoscope"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace demo [NAME] [options] [-- arguments of the example]"
    parser.add_argument("program", nargs="?", default=DEMO, metavar="NAME", help=f"default {DEMO}")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the examples")
    what.add_argument("--show", action="store_true", help="print the source instead")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    try:
        found = examples()
    except FileNotFoundError as error:
        raise Failed(error) from None
    if options.list:
        width = max(map(len, found))
        for name, path in found.items():
            print(f"{name:<{width}}  {_first_line(path)}")
        return 0
    if options.program not in found:
        options.error(f"no example {options.program!r}: there are {', '.join(found)}")
    path = found[options.program]
    if options.show:
        print(path.read_text(), end="")
        return 0
    return subprocess.run([sys.executable, str(path), *options.arguments], env=environment()).returncode


def examples() -> dict[str, Path]:
    """Return the programs among the examples, by name."""
    folder = bundled("examples")
    found = [path for path in folder.glob("*.py") if path.stem != "__init__"]
    return {path.stem: path for path in sorted([*found, *folder.glob("service/*.py")])}


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
