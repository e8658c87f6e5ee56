"""End a run of yours on this host, by the name of its application, of one of its fragments, or by the number
of its process, as `headrace ps` shows them; wait until its process has ended. It is sent SIGTERM: a run with
a stop_timeout ends its sources first, and computes what is under way. In a run with several processes, all
of them end with the one that is sent it.

With --kill, a process is ended at once, such as that of a fragment that is started again then.

examples:
  headrace stop Inspection
  headrace stop Plant/edge --kill
"""

from __future__ import annotations

import argparse
import os
import select
import signal
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from headrace import waits
from headrace.cli import Failed
from headrace.cli.run import checked
from headrace.core.run_options import parse_duration

if TYPE_CHECKING:
    from headrace.application.listed_runs import ListedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "name", metavar="NAME", help="APPLICATION, FRAGMENT, APPLICATION/FRAGMENT, or a process"
    )
    parser.add_argument("--kill", action="store_true", help="end it at once (SIGKILL)")
    parser.add_argument(
        "--timeout",
        type=checked(parse_duration),
        metavar="TIME",
        help="wait no longer than that: 500ms, 10s; as long as it takes unless given",
    )


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from headrace.application.listed_runs import listed_runs

    found = _named(options.name, listed_runs())
    if len(found) != 1:
        known = ", ".join(f"{_name(each)} (process {each.process})" for each in found or listed_runs())
        there = (
            f"choose by the process: {known}" if found else f"there are {known}" if known else "nothing runs"
        )
        what = "no run of that name" if not found else f"{len(found)} runs are named so"
        raise Failed(f"{options.name}: {what}; {there}")
    (run,) = found
    try:
        process = os.pidfd_open(run.process)
    except ProcessLookupError:
        return 0  # it has just ended
    try:
        if run not in listed_runs():  # the number may be that of another process now
            return 0
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL if options.kill else signal.SIGTERM)
        if _ends(process, None if options.timeout is None else parse_duration(options.timeout) / 1e3):
            return 0
        raise Failed(f"{_name(run)} (process {run.process}) has not ended yet")
    except PermissionError:
        raise Failed(f"process {run.process} belongs to another user") from None
    finally:
        os.close(process)


def _named(name: str, runs: list[ListedRun]) -> list[ListedRun]:
    """Return the runs that a name means: a process, an application, or one of its fragments."""
    for matches in (
        [each for each in runs if str(each.process) == name],
        [each for each in runs if not each.part and each.name == name],
        [each for each in runs if each.part and name in (each.part, _name(each))],
    ):
        if matches:
            return list({each.process: each for each in matches}.values())
    return []


def _name(run: ListedRun) -> str:
    return f"{run.name}/{run.part}" if run.part else run.name


def _ends(process: int, seconds: float | None) -> bool:
    """Wait until a process has ended; return False if it has not in time."""
    poll, until = select.poll(), None if seconds is None else monotonic() + seconds
    poll.register(process, select.POLLIN)
    while True:
        left = None if until is None else max(until - monotonic(), 0.0)
        part = waits.limit(left)
        if poll.poll(None if part is None else part * 1e3):
            return True
        if left == 0.0:
            return False
