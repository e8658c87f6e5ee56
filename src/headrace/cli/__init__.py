"""Streaming GPU pipelines in Python.

examples:
  headrace run app.py --count 100             end each source after 100 computes
  headrace run app.py --device sim -- --fast  words after -- are the program's own

exit status: 0 success, 1 failed, 2 wrong usage, 3 starved, 130 Ctrl-C, 143 SIGTERM
"""

# Each command is a module with two functions, `add_arguments(parser)` and `main(options) -> int`, listed in
# `COMMANDS`. Its docstring is its help. Only the module of the command in use is imported. A command whose
# arguments include a program gets the words after -- in `options.arguments`; for other commands there must be none.
# The optional `prepare(words)` of a module may rewrite the words before -- first.

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from headrace.version import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("headrace.cli.run", "run a program; choose device, scheduler, duration"),
    "record": ("headrace.cli.record", "run a program and record messages of its ports"),
    "replay": ("headrace.cli.replay", "run a program on recorded messages"),
    "graph": ("headrace.cli.graph", "draw the operators and flows of a program"),
    "ps": ("headrace.cli.ps", "list the runs of this host, with their processes"),
    "stop": ("headrace.cli.stop", "end a run, or the process of a fragment, by its name"),
    "topics": ("headrace.cli.topics", "list the topics that programs publish, or show one"),
    "view": ("headrace.cli.view", "look at the pictures of a topic in the browser"),
    "check": ("headrace.cli.check", "look for what captured operators do not declare"),
    "info": ("headrace.cli.info", "show the device and the libraries, or the streams of a program"),
    "plan": ("headrace.cli.plan", "find slices and streams by which a program reaches its goals"),
    "partition": ("headrace.cli.partition", "show the slices that a device would give"),
    "demo": ("headrace.cli.demo", "run the demo, or another of the examples"),
    "bench": ("headrace.cli.bench", "measure headrace beside its peers on this machine"),
    "completion": ("headrace.cli.completion", "print a completion script for a shell"),
}


class Failed(Exception):
    """Ends a command with status 1; its text is what the command could not do."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions, and leaves room for the names of options."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)
        # argparse forgets the indentation of commands when it measures their names.
        self._action_max_length = 14


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    _replace_closed_outputs()
    with _signals_as_exceptions():
        return _run_and_flush(arguments)


def _run_and_flush(arguments: Sequence[str] | None) -> int:
    status = 0
    try:
        try:
            words = sys.argv[1:] if arguments is None else arguments
            status = _run(list(words), is_whole_process=arguments is None)
        finally:
            _flush()
    except KeyboardInterrupt:  # before the program runs, as in an import
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _discard_output()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _discard_output()
        print(f"headrace: cannot write the output: {error.strerror}", file=sys.stderr)
        return status or 1
    return status


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, from the beginning: a run that it ends has processes to end."""
    is_default = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_default:
        signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        if is_default and signal.getsignal(signal.SIGTERM) is _exit:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def _replace_closed_outputs() -> None:
    """Discard what is written to an output that was closed when Python started (``headrace info >&-``).

    Python has None in its place, and the next file that is opened would get its number.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for the whole process)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _flush() -> None:
    """Write what is left of the output: here, not at exit, because here an error can be handled."""
    if not sys.stdout.closed:  # by the program
        sys.stdout.flush()


def _discard_output() -> None:
    """Discard the rest of the output: Python flushes stdout once more at exit, so it must stay writable."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_parser(command: str | None = None, *, every: bool = False) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of one command or of every command.

    The parsers of the commands are in its ``commands``, by name.
    """
    parser = argparse.ArgumentParser(
        prog="headrace", formatter_class=_Formatter, allow_abbrev=False, **_help_in(__doc__)
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command", title="commands")
    made: dict[str, argparse.ArgumentParser] = {}
    for name, (module, text) in COMMANDS.items():
        loaded: Any = import_module(module) if every or name == command else None
        texts = _help_in(getattr(loaded, "__doc__", ""))
        made[name] = commands.add_parser(
            name, help=text, formatter_class=_Formatter, allow_abbrev=False, **texts
        )
        if loaded is not None:
            loaded.add_arguments(made[name])
    parser.set_defaults(commands=made)
    return parser


def _help_in(docstring: str | None) -> dict[str, Any]:
    """Return what a docstring says before the arguments of a command, and after them: the examples."""
    description, _, examples = (docstring or "").partition("\nexamples:\n")
    return {"description": description, "epilog": f"examples:\n{examples}" if examples else ""}


def _run(words: list[str], is_whole_process: bool) -> int:
    command = next((word for word in words if not word.startswith("-")), None)
    module: Any = import_module(COMMANDS[command][0]) if command in COMMANDS else None
    rest: list[str] = []
    if "--" in words:
        position = words.index("--")
        words, rest = words[:position], words[position + 1 :]
    if hasattr(module, "prepare"):
        words = module.prepare(words)
    options, unknown = make_parser(command).parse_known_args(words)
    takes_arguments = hasattr(options, "program")
    if unknown or (rest and not takes_arguments):
        hint = "; the program's own arguments go after --" if takes_arguments else ""
        options.commands[command].error(f"unrecognized arguments: {' '.join(unknown or rest)}{hint}")
    options.arguments = rest
    options.is_whole_process = is_whole_process
    options.error = options.commands[command].error
    try:
        status: int = module.main(options)
    except Failed as error:
        print(f"headrace {command}: {error}", file=sys.stderr)
        return 1
    return status
