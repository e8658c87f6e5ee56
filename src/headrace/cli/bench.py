"""Measure headrace beside its peers on this machine: the Holoscan SDK, ezmsg, and the same by hand.
What needs a GPU is measured with --gpu, everything else without it. A peer that is not installed is
skipped by name, and one whose results differ is struck out.

examples:
  headrace bench                       everything that needs no GPU
  headrace bench --gpu                 everything that needs one
  headrace bench --list                what there is
  headrace bench chain-5 join --quick  some of it, and only to see that it runs
  headrace bench --holoscan-python holoscan/bin/python -o results
  headrace bench --from results/bench.json --page   the page, with figures of another machine
"""

# What is measured, and how, is in `benchmarks/sides`, which came along with the package.

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from headrace.cli import Failed
from headrace.cli.run import checked
from headrace.core.run_options import parse_count
from headrace.installation import bundled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="some of those of --list")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--gpu", action="store_true", help="those that need a GPU, instead of the others")
    parser.add_argument(
        "--from", dest="take", type=Path, metavar="FILE", help="measure nothing; take this bench.json"
    )
    parser.add_argument("--quick", action="store_true", help="a twentieth of the work, once")
    parser.add_argument(
        "--rounds", type=checked(parse_count), metavar="N", help="how often each runs; the median counts"
    )
    parser.add_argument(
        "--holoscan-python",
        action="append",
        default=[],
        metavar="PYTHON",
        help="an interpreter with the Holoscan SDK; again for another version of it",
    )
    parser.add_argument("--compiled", metavar="FOLDER", help="measure the compiled build there, too")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("out"), metavar="FOLDER", help="default out"
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="make a page, bench.md, too; in a checkout that of the docs, with the figures that are there",
    )


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    try:
        sys.path.insert(0, str(bundled("benchmarks").parent))
    except FileNotFoundError as error:
        raise Failed(error) from None
    command: Any = import_module("benchmarks.sides.command")
    status: int = command.main(options)
    return status
