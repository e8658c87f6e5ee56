"""``headrace record``: run a program and record the messages of its ports."""

from __future__ import annotations

import argparse

from headrace.cli.run import add_program_arguments, run_program

TAKES_ARGUMENTS = True  # those of the program, after --

EPILOG = """\
examples:
  headrace record app.py                                  record every output to recording.mcap
  headrace record app.py --ports camera.out -o frames.mcap
  headrace replay app.py frames.mcap                       run the program on these messages
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace record PROGRAM [--ports PORTS] [-o FILE] [options] [-- arguments of the program]"
    parser.description = (
        "Run a program and record the messages of its ports to a file, which 'headrace replay' plays."
    )
    parser.epilog = EPILOG
    add_program_arguments(parser)
    parser.add_argument(
        "--ports",
        action="append",
        metavar="OPERATOR.PORT",
        help="the ports to record; patterns and commas allowed; every connected output unless given",
    )
    parser.add_argument(
        "-o", "--output", default="recording.mcap", metavar="FILE", help="the file (default recording.mcap)"
    )


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    variables = {"HEADRACE_RECORD": options.output, "HEADRACE_RECORD_PORTS": ",".join(options.ports or ())}
    return run_program(options, variables)
