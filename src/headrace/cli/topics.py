"""List the topics that programs publish on this host, or show what one of them carries: its rate,
its size, its delay, and a look at its last message.

examples:
  headrace topics                       who publishes what
  headrace topics show plant/boxes      for five seconds
  headrace topics show plant/boxes --count 100
  headrace view plant/video             look at its pictures in the browser
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Any

from headrace import waits
from headrace.cli import Failed
from headrace.cli.run import checked
from headrace.core.errors import TopicError
from headrace.core.run_options import parse_count, parse_duration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace topics [list]\n       headrace topics show TOPIC [--count N] [--duration TIME]"
    parser.add_argument(
        "action", nargs="?", choices=("list", "show"), default="list", help="list unless given"
    )
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="the topic to show, such as plant/boxes")
    parser.add_argument("--count", type=checked(parse_count), metavar="N", help="end after so many messages")
    parser.add_argument(
        "--duration",
        type=checked(parse_duration),
        metavar="TIME",
        help="end so long after the first message: 500ms, 10s; 5s unless there is a count",
    )


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    if (options.action == "show") != (options.topic is not None):
        options.error("name the topic to show" if options.topic is None else "list takes no topic")
    try:
        return _list() if options.action == "list" else _show(options)
    except (TopicError, ImportError, OSError) as error:
        raise Failed(error) from None


def _list() -> int:
    """Print a table of the publishers that answer."""
    from headrace.observe.figures.tables import table
    from headrace.topics.discovery import list_topics

    rows = [
        (
            each.topic,
            each.description.get("program", ""),
            str(each.pid),
            each.host,
            each.description.get("policy", "") or "does not answer",
            str(each.description.get("published", "")),
            str(len(each.description.get("subscribers", ()))),
        )
        for each in list_topics()
    ]
    if not rows:
        print("no program publishes a topic")
        return 0
    header = ("topic", "program", "process", "host", "policy", "messages", "subscribers")
    print("\n".join(table(header, rows, left=2)))
    return 0


def _show(options: argparse.Namespace) -> int:
    """Receive a topic for a while, and print its figures."""
    from headrace.topics import Subscription
    from headrace.topics.figures import TopicFigures

    figures = TopicFigures()
    changed = threading.Event()
    count = None if options.count is None else parse_count(options.count)
    given = options.duration or ("5s" if count is None else None)
    seconds = None if given is None else parse_duration(given) / 1e3
    until: float | None = None
    subscription = Subscription(options.topic, program="headrace topics", size=8, on_change=changed.set)
    try:
        print(f"waiting for {options.topic} (Ctrl-C ends)", file=sys.stderr)
        while count is None or figures.count < count:
            if until is not None and time.monotonic() >= until:
                break
            message: Any = subscription.take()
            if message is not None:
                figures.add(message, time.time_ns())
                if until is None and seconds is not None:
                    until = time.monotonic() + seconds
                continue
            waits.wait(changed, None if until is None else max(until - time.monotonic(), 0))
            changed.clear()
    except KeyboardInterrupt:
        if not figures.count:
            raise
    finally:
        subscription.close()
    said = subscription.description
    print(f"{options.topic}: published by {said.get('program') or 'a program'}, process {said.get('pid')}")
    print("\n".join(figures.lines()))
    if subscription.missed:
        print(f"{subscription.missed} messages were missed here")
    return 0
