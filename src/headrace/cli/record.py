"""Run a program and record the messages of its ports to a file, which 'headrace replay' plays.

examples:
  headrace record app.py                                  record every output to recording.mcap
  headrace record app.py --ports camera.out -o frames.mcap
  headrace replay app.py frames.mcap                       run the program on these messages
"""

from __future__ import annotations

import argparse

from headrace.cli.run import add_ports, add_program_arguments, main

__all__ = ["add_arguments", "main"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace record PROGRAM [--ports PORTS] [-o FILE] [options] [-- arguments of the program]"
    add_program_arguments(parser)
    add_ports(parser, "HEADRACE_RECORD_PORTS", "the ports to record; every connected output unless given")
    parser.add_argument(
        "-o",
        "--output",
        dest="HEADRACE_RECORD",
        default="recording.mcap",
        metavar="FILE",
        help="the file (default recording.mcap)",
    )
