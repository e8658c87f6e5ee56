"""``headrace run``: run a program, with another device, scheduler, duration and so on.

Each option only sets an environment variable before the program runs, so that the same can be done where there is
no command line. The program itself is not changed.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.capture import MODES
from headrace.cli.errors import print_error
from headrace.cli.program import Program, ProgramError
from headrace.cli.runs import Runs
from headrace.core.booleans import flag
from headrace.core.log_output import LEVELS, configure_log, level_of
from headrace.core.outcome import EndedBy, Outcome
from headrace.core.run_options import parse_count, parse_duration, parse_scheduler, parse_workers

TAKES_ARGUMENTS = True
STARVED = 3
INTERRUPTED = 130

DESCRIPTION = """\
Run a program. PROGRAM is a file (app.py), a module (package.module), or one of them with
an application class (app.py:Live). The program runs as `python PROGRAM` would run it. If a
class is named, or if the program has one application and does not run it, headrace makes
and runs the application.

Words after -- are the program's own arguments. Every option sets an environment variable
before the program starts; the variable alone does the same.
"""
EPILOG = """\
examples:
  headrace run app.py --device sim --count 100
  headrace run app.py --scheduler event:4 --duration 10s
  headrace run app.py --set camera.fps=60 --config fast.yaml
  headrace run app.py --track --trace out.json
  headrace run app.py --capture auto
  headrace run app.py:Live --log 'camera.*' --log-level info
  headrace run package.module --dashboard -- --input video.mp4

exit status: 0 the program ended, 1 it raised an exception, 2 wrong usage, 3 its last run
starved, 130 Ctrl-C, 143 SIGTERM; a program that calls sys.exit keeps its own status
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace run PROGRAM [options] [-- arguments of the program]"
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_program_arguments(parser)
    how = parser.add_argument_group("how it runs")
    how.add_argument(
        "--scheduler",
        type=_checked(parse_scheduler),
        metavar="KIND",
        help="greedy (all operators on one thread, each waiting for the others), multithread[:N] or event[:N] "
        "with N workers (HEADRACE_SCHEDULER)",
    )
    how.add_argument(
        "--workers",
        type=_checked(parse_workers),
        metavar="N",
        help="the number of workers; alone, it means --scheduler event:N",
    )
    how.add_argument(
        "--duration",
        type=_checked(parse_duration),
        metavar="TIME",
        help="end the run after this time: 500ms, 10s, 2min (HEADRACE_DURATION)",
    )
    how.add_argument(
        "--count",
        type=_checked(parse_count),
        metavar="N",
        help="end each source after N computes (HEADRACE_COUNT)",
    )
    how.add_argument(
        "--capture",
        choices=MODES,
        help="record chains of operators as CUDA graphs (auto), or do with the program's own segments what is "
        "asked for: off, verify, strict; what became of them is printed at the end (HEADRACE_CAPTURE)",
    )
    seen = parser.add_argument_group("what is shown and recorded")
    seen.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="a line with rates on the terminal; shown unless switched off (HEADRACE_PROGRESS)",
    )
    seen.add_argument(
        "--log-level",
        type=_checked(level_of),
        metavar="LEVEL",
        help=f"{', '.join(LEVELS)}; default warning (HEADRACE_LOG_LEVEL)",
    )
    seen.add_argument(
        "--log",
        action="append",
        metavar="OPERATOR.PORT",
        help="print the messages of a port; patterns and commas allowed (HEADRACE_LOG)",
    )
    seen.add_argument(
        "--track",
        nargs="?",
        const="1",
        metavar="FILE",
        help="print rates and latencies at the end, or write them to a .json, .prom or .txt file (HEADRACE_TRACK)",
    )
    seen.add_argument("--trace", metavar="FILE", help="write a trace for Perfetto (HEADRACE_TRACE)")
    seen.add_argument("--record", metavar="FILE", help="record messages to a file (HEADRACE_RECORD)")
    seen.add_argument(
        "--ports",
        action="append",
        metavar="OPERATOR.PORT",
        help="the ports that --record records (HEADRACE_RECORD_PORTS)",
    )
    seen.add_argument("--replay", metavar="FILE", help="replay recorded messages (HEADRACE_REPLAY)")
    seen.add_argument(
        "--dashboard",
        nargs="?",
        const="1",
        metavar="HOST:PORT",
        help="serve the live page of the run (HEADRACE_DASHBOARD)",
    )
    seen.add_argument(
        "--view",
        nargs="?",
        const="page",
        metavar="WHERE",
        help="where a viewer shows: page, none, file.png, file.mp4, rerun (HEADRACE_VIEW)",
    )


def add_program_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that loads a program."""
    parser.add_argument("program", metavar="PROGRAM", help="app.py, package.module, or app.py:ClassName")
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "sim", "none"),
        help="the device that the program uses (HEADRACE_DEVICE)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=_checked(_parse_setting),
        metavar="SECTION.KEY=VALUE",
        help="set a value of the configuration (HEADRACE_SET_section__key)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="read this configuration file instead (HEADRACE_CONFIG)"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def prepare(words: list[str]) -> list[str]:
    """Decide which words are values of --track, --dashboard and --view, whose values may be missing.

    Otherwise ``headrace run --view app.py`` would show the program in a file named app.py.
    """
    prepared: list[str] = []
    for word in words:
        before = prepared[-1] if prepared else ""
        if before in _OPTIONAL_VALUES and re.fullmatch(_OPTIONAL_VALUES[before], word):
            prepared[-1] = f"{before}={word}"
        else:
            prepared.append(word)
    defaults = {"--track": "--track=1", "--dashboard": "--dashboard=1", "--view": "--view=page"}
    return [defaults.get(word, word) for word in prepared]


_OPTIONAL_VALUES = {
    "--track": r"0|1|off|on|.+\.(?:json|prom|txt)",
    "--dashboard": r"0|1|off|on|[\w.\-\[\]:]*:\d+",
    "--view": r"(?:(?:auto|page|none|0|1|rerun|rerun-web|[^,]+\.(?:png|mp4|rrd))(?:,|$))+",
}


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    return run_program(options, variables_of(options))


def variables_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables that the options stand for."""
    variables: dict[str, str] = {}
    if options.device is not None:
        variables["HEADRACE_DEVICE"] = options.device
    if options.config is not None:
        variables["HEADRACE_CONFIG"] = options.config
    for setting in options.set:
        key, _, value = setting.partition("=")
        variables[f"HEADRACE_SET_{key.replace('.', '__')}"] = value
    given = vars(options)
    for name, variable in _PLAIN.items():
        if given.get(name) is not None:
            variables[variable] = given[name]
    for name, variable in _LISTS.items():
        if given.get(name):
            variables[variable] = ",".join(given[name])
    if given.get("ports") and not given.get("record"):
        options.error("--ports needs --record FILE, which says where to record them")
    if given.get("progress") is not None:
        variables["HEADRACE_PROGRESS"] = "1" if options.progress else "0"
    if given.get("workers") is not None:
        kind = given.get("scheduler") or "event"
        if ":" in kind or parse_scheduler(kind)[0] == "greedy":
            options.error(f"--workers {options.workers} contradicts --scheduler {kind}")
        variables["HEADRACE_SCHEDULER"] = f"{kind}:{options.workers}"
    return variables


_PLAIN = {
    "capture": "HEADRACE_CAPTURE",
    "scheduler": "HEADRACE_SCHEDULER",
    "duration": "HEADRACE_DURATION",
    "count": "HEADRACE_COUNT",
    "log_level": "HEADRACE_LOG_LEVEL",
    "track": "HEADRACE_TRACK",
    "trace": "HEADRACE_TRACE",
    "record": "HEADRACE_RECORD",
    "replay": "HEADRACE_REPLAY",
    "dashboard": "HEADRACE_DASHBOARD",
    "view": "HEADRACE_VIEW",
}
_LISTS = {"log": "HEADRACE_LOG", "ports": "HEADRACE_RECORD_PORTS"}


def run_program(options: argparse.Namespace, variables: Mapping[str, str]) -> int:
    """Run a program with additional environment variables; return its exit status."""
    program = Program.of(options.program)
    defaults = {"HEADRACE_PROGRESS": "1"}
    if not os.environ.get("HOLOSCAN_LOG_LEVEL"):
        defaults["HEADRACE_LOG_LEVEL"] = "warning"
    with changed_environment(variables, defaults):
        return _run(program, options)


@contextmanager
def changed_environment(
    variables: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Set environment variables for the duration of a ``with`` block; `defaults` only where they are not set."""
    before = dict(os.environ)
    for name, value in (defaults or {}).items():
        os.environ.setdefault(name, value)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(program: Program, options: argparse.Namespace) -> int:
    command = options.command
    try:
        handler = configure_log()
    except ValueError as error:  # a mistake in the environment
        print(f"headrace {command}: {error}", file=sys.stderr)
        return 2
    shorten = _Shorten(options.debug)
    if handler is not None:
        handler.addFilter(shorten)
    try:
        with Runs() as runs:
            program.execute(options.arguments, lambda kind: kind().run(), lambda: runs.began > 0)
    except ProgramError as error:
        print(f"headrace {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"headrace {command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as exit_:
        return _status(exit_)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads_stdout():
            raise  # the reader, such as `head`, has seen enough
        print_error(command, error, debug=options.debug)
        return 1
    finally:
        if handler is not None:
            handler.removeFilter(shorten)
    if not runs.began:
        print(f"headrace {command}: {options.program} ended without running an application", file=sys.stderr)
    _report_unused_settings(options, runs)
    outcome = runs.last_outcome
    if outcome is not None and getattr(options, "capture", None) is not None:
        _report_segments(options, outcome)
    return STARVED if outcome is not None and outcome.ended_by is EndedBy.STARVED else 0


def _nobody_reads_stdout() -> bool:
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no stdout, or none with a file
        return False


def _status(exit_: SystemExit) -> int:
    """Return the exit status of a program that called ``sys.exit``."""
    if exit_.code is None or isinstance(exit_.code, int):
        return exit_.code or 0
    print(exit_.code, file=sys.stderr)
    return 1


def _report_unused_settings(options: argparse.Namespace, runs: Runs) -> None:
    given = [*(["--config"] if options.config is not None else []), *(["--set"] if options.set else [])]
    if given and runs.began and not runs.read_settings:
        print(
            f"headrace {options.command}: {' and '.join(given)} had no effect, because the program reads no "
            "configuration (app.config, app.from_config)",
            file=sys.stderr,
        )


def _report_segments(options: argparse.Namespace, outcome: Outcome) -> None:
    """Print what became of the segments of the last run, unless the progress line or the log has shown it."""
    if not outcome.segments:
        print(
            f"headrace {options.command}: --capture {options.capture}: the program has no segments to capture",
            file=sys.stderr,
        )
    elif not _shows_progress() and not logging.getLogger("headrace.capture").isEnabledFor(logging.INFO):
        for segment in outcome.segments:
            print(segment, file=sys.stderr)


def _shows_progress() -> bool:
    return flag(os.environ.get("HEADRACE_PROGRESS", "0")) and sys.stderr.isatty()


class _Shorten(logging.Filter):
    """Leaves out of the log what the command itself prints, and tracebacks."""

    def __init__(self, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message is shown; shorten that of a skipped error to one line."""
        if self._debug or logging.root.handlers:
            return True
        if record.name == "headrace.run" and record.levelno >= logging.ERROR:
            return False
        if record.name == "headrace.errors":
            first, _, trace = record.getMessage().partition("\n")
            raised = [line for line in trace.splitlines() if line and not line.startswith((" ", "Traceback"))]
            record.msg, record.args = f"{first}: {raised[0]}" if raised else first, ()
        return True


def _parse_setting(text: str) -> None:
    key, equals, _ = text.partition("=")
    if not equals or not key:
        raise ValueError("must be section.key=value, as in camera.fps=30")


def _checked(parse: Callable[[str], Any]) -> Callable[[str], str]:
    """Return a type for argparse that checks a value with `parse` and keeps its text."""

    def check(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
        return text

    return check
