"""Run a program. PROGRAM is a file (app.py), a module (package.module), or one of them with
an application class (app.py:Live). The program runs as `python PROGRAM` would run it. If a
class is named, or if the program has one application and does not run it, headrace makes
and runs the application.

Words after -- are the program's own arguments. Every option sets an environment variable
before the program starts; the variable alone does the same.

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

# Each option only sets an environment variable before the program runs, so that the same can be done where there is
# no command line: the `dest` of the option is the variable. The program itself is not changed.

from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.capture import MODES
from headrace.cli.program import Program, Runs, status_of
from headrace.core.log import FORMATS, LEVELS, configure_log, has_own_handlers, level_of
from headrace.core.outcome import EndedBy, Outcome
from headrace.core.run_options import parse_count, parse_duration, parse_scheduler, parse_workers
from headrace.core.values import is_set

STARVED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace run PROGRAM [options] [-- arguments of the program]"
    add_program_arguments(parser)
    how = parser.add_argument_group("how it runs")
    text = "greedy (all operators on one thread, each waiting for the others), multithread[:N] or event[:N] "
    _add(how, "--scheduler", f"{text}with N workers", type=checked(parse_scheduler), metavar="KIND")
    how.add_argument(
        "--workers",
        type=checked(parse_workers),
        metavar="N",
        help="the number of workers; alone, it means --scheduler event:N",
    )
    text = "end the run after this time: 500ms, 10s, 2min"
    _add(how, "--duration", text, type=checked(parse_duration), metavar="TIME")
    text = "fail if the run has not stopped this long after it was asked to: 10s"
    _add(how, "--stop-timeout", text, type=checked(parse_duration), metavar="TIME")
    _add(how, "--count", "end each source after N computes", type=checked(parse_count), metavar="N")
    text = (
        "record chains of operators as CUDA graphs (auto), or do with the program's own segments what is asked "
        "for: off, verify, strict; what became of them is printed at the end"
    )
    _add(how, "--capture", text, choices=MODES)
    _add(how, "--plan", "use the slices, streams and segments of a plan", metavar="FILE")
    text = "run each fragment of the application in a process of its own"
    _add(how, "--processes", text, action="store_const", const="1")
    text = "run each fragment as an actor of Ray: on this machine (auto), or on the cluster at ADDRESS"
    _add(how, "--cluster", text, metavar="auto|ADDRESS")
    hosts = parser.add_argument_group("fragments on several hosts")
    text = "wait until workers run every fragment, then run the program with them"
    _add(hosts, "--driver", text, action="store_const", const="1")
    text = "run fragments of a program whose driver listens at --address; with --driver, also in this command"
    _add(hosts, "--worker", text, action="store_const", const="1")
    text = "where the driver listens; a port of this machine alone unless given"
    _add(hosts, "--address", text, metavar="HOST:PORT")
    text = "where the fragments of this worker listen for frames; on the way to the driver unless given"
    _add(hosts, "--worker-address", text, metavar="HOST")
    text = "the fragments of this worker, separated by commas, or all that nobody else runs; one unless given"
    _add(hosts, "--fragments", text, metavar="NAMES")
    _add(hosts, "--tls", "encrypt what travels between hosts", action="store_const", const="1")
    text = "read the configuration file again on SIGHUP, and set the live parameters that changed"
    _add(how, "--reload", text, action="store_const", const="1")
    seen = parser.add_argument_group("what is shown and recorded")
    text = "a line with rates on the terminal; shown unless switched off"
    _add(seen, "--progress", text, action=argparse.BooleanOptionalAction, default=None)
    text = f"{', '.join(LEVELS)}; default warning"
    _add(seen, "--log-level", text, type=checked(level_of), metavar="LEVEL")
    text = "text, or json: one object a line, with the operator, the fragment and the run"
    _add(seen, "--log-format", text, choices=FORMATS)
    text = "print the messages of a port; patterns and commas allowed"
    _add(seen, "--log", text, action="append", metavar="OPERATOR.PORT")
    text = "print rates and latencies at the end, or write them to a .json, .prom or .txt file"
    _add(seen, "--track", text, nargs="?", const="1", metavar="FILE")
    _add(seen, "--trace", "write a trace for Perfetto", metavar="FILE")
    _add(seen, "--record", "record messages to a file", metavar="FILE")
    add_ports(seen, "HEADRACE_RECORD_PORTS", "the ports that --record records")
    _add(seen, "--replay", "replay recorded messages", metavar="FILE")
    _add(seen, "--dashboard", "serve the live page of the run", nargs="?", const="1", metavar="HOST:PORT")
    text = "serve /metrics for Prometheus, /health and /ready"
    _add(seen, "--metrics", text, nargs="?", const="1", metavar="HOST:PORT")
    text = "where a viewer shows: page, none, file.png, file.mp4, rerun"
    _add(seen, "--view", text, nargs="?", const="page", metavar="WHERE")


def add_program_arguments(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Add the arguments of every command that loads a program."""
    how: dict[str, Any] = {} if is_required else {"nargs": "?"}
    parser.add_argument(
        "program", metavar="PROGRAM", help="app.py, package.module, or app.py:ClassName", **how
    )
    _add(parser, "--device", "the device that the program uses", choices=("auto", "cuda", "sim", "none"))
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=checked(_parse_setting),
        metavar="NAME=VALUE",
        help="set section.key of the configuration, or operator.parameter (HEADRACE_SET_section__key)",
    )
    _add(parser, "--config", "read this configuration file instead", metavar="FILE")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def add_ports(group: argparse._ActionsContainer, variable: str, text: str) -> None:
    """Add the option that selects ports."""
    text = f"{text}; patterns and commas allowed ({variable})"
    group.add_argument("--ports", dest=variable, action="append", metavar="OPERATOR.PORT", help=text)


def _add(group: argparse._ActionsContainer, option: str, text: str, **arguments: Any) -> None:
    """Add an option that sets the environment variable of its name."""
    variable = f"HEADRACE_{option.removeprefix('--').replace('-', '_').upper()}"
    group.add_argument(option, dest=variable, help=f"{text} ({variable})", **arguments)


def prepare(words: list[str]) -> list[str]:
    """Decide which words are values of --track, --dashboard, --metrics and --view, whose values may be missing.

    Otherwise ``headrace run --view app.py`` would show the program in a file named app.py.
    """
    prepared: list[str] = []
    for word in words:
        before = prepared[-1] if prepared else ""
        if before in _OPTIONAL_VALUES and re.fullmatch(_OPTIONAL_VALUES[before], word):
            prepared[-1] = f"{before}={word}"
        else:
            prepared.append(word)
    defaults = {
        **{option: f"{option}=1" for option in ("--track", "--dashboard", "--metrics")},
        "--view": "--view=page",
    }
    return [defaults.get(word, word) for word in prepared]


_OPTIONAL_VALUES = {
    "--track": r"0|1|off|on|.+\.(?:json|prom|txt)",
    "--dashboard": r"0|1|off|on|[\w.\-\[\]:]*:\d+",
    "--metrics": r"0|1|off|on|[\w.\-\[\]:]*:\d+",
    "--view": r"(?:(?:auto|page|none|0|1|rerun|rerun-web|[^,]+\.(?:png|mp4|rrd))(?:,|$))+",
}


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    defaults = {"HEADRACE_PROGRESS": "1"}
    if not os.environ.get("HOLOSCAN_LOG_LEVEL"):
        defaults["HEADRACE_LOG_LEVEL"] = "warning"
    with changed_environment(variables_of(options), defaults):
        return _run(options)


def variables_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables that the options stand for."""
    variables: dict[str, str] = {}
    for name, value in vars(options).items():
        if name.startswith("HEADRACE_") and value is not None:
            is_flag = isinstance(value, bool)
            variables[name] = (
                str(int(value)) if is_flag else value if isinstance(value, str) else ",".join(value)
            )
    for setting in options.set:
        key, _, value = setting.partition("=")
        variables[f"HEADRACE_SET_{key.replace('.', '__')}"] = value
    if "HEADRACE_RECORD_PORTS" in variables and not variables.get("HEADRACE_RECORD"):
        options.error("--ports needs --record FILE, which says where to record them")
    if not (variables.get("HEADRACE_WORKER") or os.environ.get("HEADRACE_WORKER")):
        for option, value in (("fragments", "NAMES"), ("worker-address", "HOST")):
            if f"HEADRACE_{option.replace('-', '_').upper()}" in variables:
                options.error(f"--{option} {value} needs --worker: it is about the fragments of a worker")
    workers = getattr(options, "workers", None)
    if workers is not None:
        kind = variables.get("HEADRACE_SCHEDULER", "event")
        if ":" in kind or parse_scheduler(kind)[0] == "greedy":
            options.error(f"--workers {workers} contradicts --scheduler {kind}")
        variables["HEADRACE_SCHEDULER"] = f"{kind}:{workers}"
    return variables


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


def _run(options: argparse.Namespace) -> int:
    try:
        handler = configure_log()
    except ValueError as error:  # a mistake in the environment
        print(f"headrace {options.command}: {error}", file=sys.stderr)
        return 2
    shorten = _Shorten(options.debug)
    if handler is not None:
        handler.addFilter(shorten)
    try:
        return status_of(options, _run_program)
    finally:
        if handler is not None:
            handler.removeFilter(shorten)


def _run_program(options: argparse.Namespace) -> int:
    if os.environ.get("HEADRACE_WORKER") and not os.environ.get("HEADRACE_DRIVER"):
        from headrace.parts.agent import serve_from_options

        _shorten_exit(options)
        serve_from_options(os.environ, Program.of(options.program).name)
        return 0
    is_elsewhere = os.environ.get("HEADRACE_DRIVER") or os.environ.get("HEADRACE_CLUSTER")
    if is_elsewhere or is_set("HEADRACE_PROCESSES"):
        import headrace.parts.driver  # noqa: F401  (which the run needs)

        _shorten_exit(options)
    with Runs() as runs:
        program = Program.of(options.program)
        runs.program = program.name, program.class_name, tuple(options.arguments)
        program.execute(options.arguments, lambda kind: kind().run(), lambda: runs.began > 0)
    if not runs.began:
        print(
            f"headrace {options.command}: {options.program} ended without running an application",
            file=sys.stderr,
        )
    _report_unused_settings(options, runs)
    outcome = runs.last_outcome
    capture = getattr(options, "HEADRACE_CAPTURE", None)
    if outcome is not None and capture is not None:
        _report_segments(f"headrace {options.command}: --capture {capture}", outcome)
    return STARVED if outcome is not None and outcome.ended_by is EndedBy.STARVED else 0


def _shorten_exit(options: argparse.Namespace) -> None:
    """Let Python not look for garbage in what was imported so far.

    At exit, that took a driver 0.1 s and more, within which a run should have ended whose host is cut off. What the
    program makes is looked through as ever.
    """
    if options.is_whole_process:
        gc.freeze()


def _report_unused_settings(options: argparse.Namespace, runs: Runs) -> None:
    if options.HEADRACE_CONFIG is not None and runs.began and not runs.read_settings:
        print(
            f"headrace {options.command}: --config had no effect, because the program reads no configuration "
            "(app.config, app.from_config)",
            file=sys.stderr,
        )


def _report_segments(prefix: str, outcome: Outcome) -> None:
    """Print what became of the segments of the last run, unless the progress line or the log has shown it."""
    is_shown = is_set("HEADRACE_PROGRESS") and sys.stderr.isatty()
    if not outcome.segments:
        print(f"{prefix}: the program has no segments to capture", file=sys.stderr)
    elif not is_shown and not logging.getLogger("headrace.capture").isEnabledFor(logging.INFO):
        for segment in outcome.segments:
            print(segment, file=sys.stderr)


class _Shorten(logging.Filter):
    """Leaves out of the log what the command itself prints, and tracebacks."""

    def __init__(self, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message is shown; shorten that of a skipped error to one line."""
        if has_own_handlers() or os.environ.get("HEADRACE_LOG_FORMAT") == "json":
            return True
        if self._debug:
            if record.name == "headrace.run":
                record.exc_info = record.exc_text = None
            return True
        if record.name == "headrace.run" and record.levelno >= logging.ERROR:
            return False
        if record.name == "headrace.errors" and record.exc_info:
            raised = "".join(traceback.format_exception_only(record.exc_info[1])).splitlines()
            record.msg, record.args = f"{record.getMessage()}: {raised[0]}", ()
            record.exc_info = record.exc_text = None
        return True


def _parse_setting(text: str) -> None:
    key, equals, _ = text.partition("=")
    if not equals or not key:
        raise ValueError("must be section.key=value, as in camera.fps=30")


def checked(parse: Callable[[str], Any]) -> Callable[[str], str]:
    """Return a type for argparse that checks a value with `parse` and keeps its text."""

    def check(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
        return text

    return check
