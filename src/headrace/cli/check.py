"""Look into the code of the operators that say capturable = True, and list what their compute
reads or changes without a declaration. The program is executed up to the point where it
would run its application, and ends there; what it declares wrongly, of its streams too, is an
error. What is listed may be right: a constant, a cache.

examples:
  headrace check app.py
  headrace check package.module:Live -- --input video.mp4

exit status: 0 nothing was found, 1 something was found or the program failed, 2 wrong usage
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headrace.capture import CONTRACT
from headrace.capture.lint import lint
from headrace.cli.graph import of_composed
from headrace.cli.program import status_of
from headrace.cli.run import add_program_arguments

if TYPE_CHECKING:
    from headrace.application import Fragment
    from headrace.capture.lint import Finding
    from headrace.core import Operator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace check PROGRAM [options] [-- arguments of the program]"
    add_program_arguments(parser)


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    return status_of(options, _check)


def _linted(fragment: Fragment) -> tuple[list[Operator], list[Finding]]:
    operators = [operator for operator in fragment.graph if operator.capturable is True]
    return operators, [finding for operator in operators for finding in lint(operator)]


def _check(options: argparse.Namespace) -> int:
    operators, found = of_composed(options, "check", _linted)
    for finding in found:
        print(f"{finding.file}:{finding.line}: operator {finding.operator!r}: {finding.what}")
    if found:
        print(f"The contract: {CONTRACT}.")
    of = (
        f"{len(operators)} operators that may be captured"
        if operators
        else "no operator that may be captured"
    )
    print(f"{len(found)} findings in {of}")
    return 1 if found else 0
