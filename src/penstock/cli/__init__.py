"""The ``penstock`` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from penstock.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # here, not at exit, because here a closed pipe can be handled
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        # Python flushes stdout once more at exit, so it must stay writable.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: Sequence[str] | None) -> int:
    # Each command has its own file, which is imported only when it is used.
    parser = argparse.ArgumentParser(prog="penstock", description="Streaming GPU pipelines in Python.")
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    commands.add_parser("info", help="show the device, its capabilities, the libraries, and what is missing")

    partition = commands.add_parser(
        "partition",
        help="show the partitions that the device would provide for the given SM counts",
        description="Show how a device would be divided, without creating anything on it.",
    )
    partition.add_argument("counts", help="SM counts, as in 16,40 or control=16,vision=40")
    partition.add_argument("--device", type=int, default=0, metavar="N", help="the device (default 0)")
    partition.add_argument("--exact", action="store_true", help="refuse to round counts up")

    options = parser.parse_args(arguments)
    if options.command == "info":
        from penstock.cli.info import info

        try:
            print(info())
        except ValueError as error:  # a mistake in the environment, shown in one line
            print(f"penstock info: {error}", file=sys.stderr)
            return 1
        return 0
    from penstock.cli.partition import draw

    try:
        print(draw(options.counts, device_id=options.device, exact=options.exact))
    except (ValueError, RuntimeError) as error:  # a mistake in the request, shown in one line
        print(f"penstock partition: {error}", file=sys.stderr)
        return 1
    return 0
