"""The ``penstock`` command."""

import argparse
import sys
from collections.abc import Sequence

from penstock.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    # Each command is a file of its own and is imported only when it is the one that was given.
    parser = argparse.ArgumentParser(prog="penstock", description="Streaming GPU pipelines in Python.")
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    commands.add_parser("info", help="what device there is, what it can do, and what would make more work")

    partition = commands.add_parser(
        "partition",
        help="what the device would give for some SM counts",
        description="Show how a device would be divided; nothing is made.",
    )
    partition.add_argument("counts", help="SM counts, as in 16,40 or control=16,vision=40")
    partition.add_argument("--device", type=int, default=0, metavar="N", help="which device (default 0)")
    partition.add_argument("--exact", action="store_true", help="refuse to round counts up")

    options = parser.parse_args(arguments)
    if options.command == "info":
        from penstock.cli.info import info

        try:
            print(info())
        except ValueError as error:  # what the environment says makes no sense, in one line
            print(f"penstock info: {error}", file=sys.stderr)
            return 1
        return 0
    from penstock.cli.partition import draw

    try:
        print(draw(options.counts, device_id=options.device, exact=options.exact))
    except (ValueError, RuntimeError) as error:  # what the device or the request lacks, in one line
        print(f"penstock partition: {error}", file=sys.stderr)
        return 1
    return 0
