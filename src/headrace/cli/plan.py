"""Find slices, shared streams and segments by which a program reaches its goals, and write
them into a file. The program runs several times: as declared, on a slice of each size that
the device offers, and with the plans that were found. Without a GPU the simulated one serves.

A goal is an operator or a path, a figure and its bound. The latency of an operator's frames
counts from their sources on.

examples:
  headrace plan app.py --goal 'control: p99 < 500us' --goal 'vision: rate >= 60'
  headrace plan app.py --goal 'camera->display: p50 < 20ms' -o plan.yaml --report report.html
  headrace run app.py --plan plan.yaml

exit status: 0 every goal was met when the plan ran, 1 one was not or the program failed,
2 wrong usage
"""

from __future__ import annotations

import argparse
import sys
from datetime import date
from functools import partial
from pathlib import Path

from headrace.cli import Failed
from headrace.cli.graph import of_composed
from headrace.cli.plan_simulation import simulate_apart
from headrace.cli.program import status_of
from headrace.cli.run import add_program_arguments, checked
from headrace.core.run_options import parse_count
from headrace.planner.deciding import Decision, compared, make_plan
from headrace.planner.plan import write_plan
from headrace.planner.report import report
from headrace.planner.targets import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace plan PROGRAM --goal GOAL [options] [-- arguments of the program]"
    add_program_arguments(parser)
    text = "what to reach, as in 'control: p99 < 500us' or 'vision: rate >= 60'; may be repeated"
    parser.add_argument(
        "--goal", action="append", required=True, type=checked(Target.parse), metavar="GOAL", help=text
    )
    parser.add_argument(
        "--frames",
        type=checked(parse_count),
        default="200",
        metavar="N",
        help="ticks of the slowest clock in a run",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("plan.yaml"), metavar="FILE", help="the plan (plan.yaml)"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page with all figures, too")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    return status_of(options, _plan)


def _plan(options: argparse.Namespace) -> int:
    for file in filter(None, (options.output, options.report)):  # before minutes of measuring
        if not file.parent.is_dir():
            raise Failed(f"cannot write {str(file)!r}: there is no folder {str(file.parent)!r}")
    make = partial(
        make_plan,
        targets=[Target.parse(goal) for goal in options.goal],
        simulate=simulate_apart,
        frames=parse_count(options.frames),
        report=lambda line: print(line, file=sys.stderr),
    )
    decision = of_composed(options, "plan", make)
    title = f"Plan for {options.program}"
    head = [f"{title}, {date.today()}.", *_notes(decision)]
    try:
        options.output.write_text(write_plan(decision.plan, decision.reasons, head), encoding="utf-8")
        if options.report is not None:
            options.report.write_text(report(decision, title), encoding="utf-8")
    except OSError as error:
        raise Failed(f"cannot write {error.filename!r}: {error.strerror}") from None
    print("\n".join(_notes(decision)))
    return 0 if all(figure.is_met for figure in decision.figures) else 1


def _notes(decision: Decision) -> list[str]:
    """Return what was found, a line each."""
    notes = [compared(figure) for figure in decision.figures]
    if not decision.agrees:
        notes.append("prediction and measurement do not agree within a fifth")
    for target, lacking in decision.impossible.items():
        notes.append(f"{target} fails even alone on the whole device, by {-lacking:.0%} of its bound")
    return notes
