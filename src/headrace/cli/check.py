"""``headrace check``: what in a program looks as if it broke the contract of captured operators."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from headrace.capture import CONTRACT
from headrace.cli.errors import print_error
from headrace.cli.graph import compose_program
from headrace.cli.program import Program, ProgramError
from headrace.cli.run import add_program_arguments, changed_environment, variables_of
from headrace.core.lint import lint

if TYPE_CHECKING:
    from headrace.application import Fragment

TAKES_ARGUMENTS = True
DESCRIPTION = """\
Look into the code of the operators that say capturable = True, and list what their compute
reads or changes without a declaration. The program is executed up to the point where it
would run its application, and ends there. What is listed may be right: a constant, a cache.
"""
EPILOG = """\
examples:
  headrace check app.py
  headrace check package.module:Live -- --input video.mp4

exit status: 0 nothing was found, 1 something was found or the program failed, 2 wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace check PROGRAM [options] [-- arguments of the program]"
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_program_arguments(parser)


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    try:
        with changed_environment(variables_of(options)):
            return _check(compose_program(Program.of(options.program), options.arguments, "check"))
    except ProgramError as error:
        print(f"headrace check: {error}", file=sys.stderr)
        return 2
    except SystemExit as exit_:  # of the program, before it ran anything
        print(f"headrace check: {options.program} ended without running an application", file=sys.stderr)
        return exit_.code if isinstance(exit_.code, int) and exit_.code else 1
    except Exception as error:
        print_error("check", error, debug=options.debug)
        return 1


def _check(fragment: Fragment) -> int:
    operators = [operator for operator in fragment.graph if operator.capturable is True]
    found = [finding for operator in operators for finding in lint(operator)]
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
