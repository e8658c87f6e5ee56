"""Look at what a running program publishes, in the browser; the program is not changed by it.

examples:
  headrace view plant/video             a page in the browser, whose address is printed
  headrace view plant/video --to out.png
"""

from __future__ import annotations

import argparse
import os
import sys

from headrace.application import Application
from headrace.cli.program import status_of
from headrace.core.errors import TopicError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("topic", metavar="TOPIC", help="the topic, such as plant/video")
    parser.add_argument(
        "--to", default="page", metavar="WHERE", help="page (default), file.png, file.mp4, rerun"
    )
    parser.add_argument("--once", action="store_true", help="end when the topic ends")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from headrace.topics.discovery import check_topic

    try:
        check_topic(options.topic)
    except TopicError as error:
        options.error(str(error))
    return status_of(options, _view)


def _view(options: argparse.Namespace) -> int:
    os.environ["HEADRACE_VIEW"] = options.to
    print(f"waiting for {options.topic} (Ctrl-C ends)", file=sys.stderr, flush=True)
    TopicViewer(options.topic, ends_with_topic=options.once).run()
    return 0


class TopicViewer(Application):
    """Shows a topic; it ends by its page, by Ctrl-C or, if asked, with the topic."""

    def __init__(self, topic: str, *, ends_with_topic: bool = False) -> None:
        super().__init__([], name=f"view {topic}")
        self._topic, self._ends_with_topic = topic, ends_with_topic

    def compose(self) -> None:
        """Connect the topic to a viewer."""
        from headrace.operators import HolovizOp

        viewer = HolovizOp(self, name="viewer", window_title=self._topic, interrupt_app_on_window_close=True)
        self.import_topic(self._topic, viewer, "receivers", ends_with_topic=self._ends_with_topic)
