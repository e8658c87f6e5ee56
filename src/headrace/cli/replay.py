"""Run a program in which the recorded operators are replaced by the messages that they emitted,
or show what a recording holds.

examples:
  headrace replay app.py recording.mcap         at the recorded times
  headrace replay app.py recording.mcap --fast
  headrace replay recording.mcap --list         what a recording holds
  headrace replay recording.mcap --page         look at it in the browser, message by message
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from headrace.cli import Failed
from headrace.cli.run import add_ports, add_program_arguments
from headrace.cli.run import main as run_program

if TYPE_CHECKING:
    from headrace.observe import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "headrace replay PROGRAM FILE [--ports PORTS] [--fast] [options] [-- arguments of the program]\n"
        "       headrace replay FILE --list | --page [--page-port PORT]"
    )
    add_program_arguments(parser)
    parser.add_argument("HEADRACE_REPLAY", nargs="?", metavar="FILE", help="the recording")
    add_ports(parser, "HEADRACE_REPLAY_PORTS", "the ports to play; every recorded output unless given")
    parser.add_argument(
        "--fast",
        dest="HEADRACE_REPLAY_PACE",
        action="store_const",
        const="fast",
        default="recorded",
        help="play as fast as possible, not at recorded times",
    )
    parser.add_argument(
        "--no-strict",
        dest="HEADRACE_REPLAY_STRICT",
        action="store_const",
        const="0",
        default="1",
        help="play a damaged recording up to the damage, with a warning",
    )
    parser.add_argument("--list", action="store_true", help="show what the recording holds, and run nothing")
    parser.add_argument("--page", action="store_true", help="serve a page to look at it, and run nothing")
    parser.add_argument(
        "--page-port",
        type=int,
        default=0,
        metavar="PORT",
        help="the port of that page; any free one unless given",
    )


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from headrace.observe import Recording, RecordingError

    recorded = options.HEADRACE_REPLAY
    shows = options.list or options.page
    path = options.program if shows else recorded
    if path is None or (shows and recorded is not None):
        wanted = (
            "one recording" if shows else "a program and a recording, or a recording and --list or --page"
        )
        print(f"headrace replay: name {wanted}", file=sys.stderr)
        return 2
    is_strict = options.HEADRACE_REPLAY_STRICT == "1"
    try:
        with Recording(path, strict=is_strict, _warns=shows) as recording:
            if options.list:
                print(_listed(recording))
                return 0
            if options.page:
                return _serve(recording, options.page_port)
    except (RecordingError, OSError, ImportError) as error:
        raise Failed(error) from None
    return run_program(options)


def _serve(recording: Recording, port: int) -> int:
    """Serve a page with the recording until Ctrl-C; return the exit status."""
    from headrace.observe.dashboard.recording_page import RecordingPage

    page = RecordingPage(recording, port=port)
    try:
        print(f"{recording.name}: {page.url} (Ctrl-C ends)", flush=True)
        page.wait()
    finally:
        page.close()
    return 0


def _listed(recording: Recording) -> str:
    """Return a table of the ports of a recording."""
    from headrace.observe.figures.tables import table

    outline = recording.outline()
    state = "" if recording.is_complete else ", incomplete"
    seconds = max((time for _, time in outline), default=0) / 1e9
    rows = []
    for port in recording.ports:
        times = [time / 1e9 for one, time in outline if one == port]
        span = (f"{times[0]:.3f} s", f"{times[-1]:.3f} s") if times else ("", "")
        rows.append((port.name, "output" if port.is_output else "input", str(len(times)), *span))
    lines = table(("port", "direction", "messages", "first", "last"), rows, left=2)
    title = f"{recording.run.application}: {len(recording)} messages, {seconds:.3f} s{state}"
    return "\n".join([title, "", *lines])
