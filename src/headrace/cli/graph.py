"""Draw the operators and flows of a program, without running it. The program is executed up
to the point where it would run its application, and ends there.

examples:
  headrace graph app.py
  headrace graph app.py -o app.svg
  headrace graph app.py:Live --format mermaid
  headrace graph package.module --set camera.count=2 -- --input video.mp4
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.cli import Failed
from headrace.cli.program import Program, ProgramError, Runs, status_of
from headrace.cli.run import add_program_arguments, changed_environment, variables_of

if TYPE_CHECKING:
    from headrace.application import Fragment

Result = TypeVar("Result")
FORMATS = ("text", "mermaid", "dot", "svg")
SUFFIXES = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace graph PROGRAM [options] [-- arguments of the program]"
    add_program_arguments(parser)
    parser.add_argument(
        "--format", choices=FORMATS, help="the kind of drawing; that of the file's name, or else text"
    )
    parser.add_argument(
        "--unfold", action="store_true", help="draw the operators of subgraphs, not a box for each subgraph"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the drawing to a file")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    return status_of(options, _graph)


def _graph(options: argparse.Namespace) -> int:
    kind = options.format or (SUFFIXES.get(options.output.suffix.lower()) if options.output else None)
    text = of_composed(options, "draw", lambda fragment: fragment.draw(kind or "text", unfold=options.unfold))
    if options.output is None:
        print(text)
        return 0
    try:
        options.output.write_text(text + ("" if text.endswith("\n") else "\n"), encoding="utf-8")
    except OSError as error:
        raise Failed(f"cannot write {str(options.output)!r}: {error.strerror}") from None
    return 0


class _Composed(BaseException):
    """Ends a program that has come to the run of its application; no ``except Exception`` keeps it."""


def of_composed(options: argparse.Namespace, what: str, use: Callable[[Fragment], Result]) -> Result:
    """Return what `use` makes of the first application that the program would run, composed; `what` says what for.

    It is called where the program would run it, while files and other things that the program holds are there.
    """
    program = Program.of(options.program)
    made: Future[Result] = Future()

    def compose(fragment: Fragment) -> None:
        try:
            fragment.compose_graph()
            made.set_result(use(fragment))
        except Exception as error:
            made.set_exception(error)  # no ``except`` of the program keeps it either
        raise _Composed

    with changed_environment(variables_of(options)), Runs(instead=compose) as runs:
        try:
            program.execute(options.arguments, lambda kind: kind().run(), lambda: runs.began > 0)
        except _Composed:
            return made.result()
        except SystemExit as exit_:
            if exit_.code not in (None, 0):
                raise
    raise ProgramError(f"{program.name} ended without running an application, and there is nothing to {what}")
