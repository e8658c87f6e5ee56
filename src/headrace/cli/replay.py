"""``headrace replay``: run a program on recorded messages, or list what a recording holds."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from headrace.cli.run import add_program_arguments, run_program

if TYPE_CHECKING:
    from headrace.observe import Recording

TAKES_ARGUMENTS = True  # those of the program, after --

EPILOG = """\
examples:
  headrace replay app.py recording.mcap         at the recorded times
  headrace replay app.py recording.mcap --fast
  headrace replay recording.mcap --list         what a recording holds
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "headrace replay PROGRAM FILE [--ports PORTS] [--fast] [options] [-- arguments of the program]\n"
        "       headrace replay FILE --list"
    )
    parser.description = (
        "Run a program in which the recorded operators are replaced by the messages that they emitted,\n"
        "or show what a recording holds."
    )
    parser.epilog = EPILOG
    add_program_arguments(parser)
    parser.add_argument("recording", nargs="?", metavar="FILE", help="the recording")
    parser.add_argument(
        "--ports",
        action="append",
        metavar="OPERATOR.PORT",
        help="the ports to play; patterns and commas allowed; every recorded output unless given",
    )
    parser.add_argument("--fast", action="store_true", help="play as fast as possible, not at recorded times")
    parser.add_argument(
        "--no-strict",
        dest="strict",
        action="store_false",
        help="play a damaged recording up to the damage, with a warning",
    )
    parser.add_argument("--list", action="store_true", help="show what the recording holds, and run nothing")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from headrace.observe import Recording, RecordingError

    path = options.program if options.list else options.recording
    if path is None or (options.list and options.recording is not None):
        wanted = "one recording" if options.list else "a program and a recording, or a recording and --list"
        print(f"headrace replay: name {wanted}", file=sys.stderr)
        return 2
    try:
        with Recording(path, strict=options.strict, _warns=options.list) as recording:
            if options.list:
                print(_listed(recording))
                return 0
    except (RecordingError, OSError) as error:
        print(f"headrace replay: {error}", file=sys.stderr)
        return 1
    variables = {
        "HEADRACE_REPLAY": path,
        "HEADRACE_REPLAY_PACE": "fast" if options.fast else "recorded",
        "HEADRACE_REPLAY_PORTS": ",".join(options.ports or ()),
        "HEADRACE_REPLAY_STRICT": "1" if options.strict else "0",
    }
    return run_program(options, variables)


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
    lines = table(("port", "direction", "messages", "first", "last"), rows, is_ruled=False, left=2)
    title = f"{recording.run.application}: {len(recording)} messages, {seconds:.3f} s{state}"
    return "\n".join([title, "", *lines])
