"""List your runs on this host: the application, the fragment that a process runs, the number of the process,
since when it runs, and the program.

examples:
  headrace ps
  headrace stop Inspection         end one of them
"""

from __future__ import annotations

import argparse
from datetime import datetime


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from headrace.application.listed_runs import listed_runs
    from headrace.observe.figures.tables import table

    rows = [
        (each.name, each.part, str(each.process), _time(each.began), each.command) for each in listed_runs()
    ]
    if not rows:
        print("nothing runs")
        return 0
    print("\n".join(table(("application", "fragment", "process", "since", "program"), rows, left=2)))
    return 0


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "seconds")
