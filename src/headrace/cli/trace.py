"""Read a trace file. The summary compares, for each path, the messages around the p99 with
those around the median, and names the part of their time that grows.

examples:
  headrace run app.py --trace out.json
  headrace trace summary out.json
  headrace trace summary --json out.json.gz
"""

from __future__ import annotations

import argparse
import json

from headrace.cli import Failed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    summary = actions.add_parser("summary", help="show where the p99 of each path goes")
    summary.add_argument("file", help="the trace, compressed or not")
    summary.add_argument("--json", action="store_true", help="print JSON")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from headrace.observe.traces.trace_summary import TraceError, summarize_trace

    try:
        summary = summarize_trace(options.file)
    except TraceError as error:
        raise Failed(error) from None
    print(json.dumps(summary.to_dict(), indent=2) if options.json else summary)
    return 0
