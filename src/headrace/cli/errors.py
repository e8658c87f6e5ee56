"""Errors of a program, for people: one line that says what went wrong and where, and the exit status for it."""

from __future__ import annotations

import argparse
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from headrace.cli import Failed
from headrace.cli.program import ProgramError
from headrace.core.errors import message_of, notes_of

_HEADRACE = Path(__file__).parents[1]


def status_of(options: argparse.Namespace, work: Callable[[argparse.Namespace], int]) -> int:
    """Return the exit status of what a command does with a program; print what that raises."""
    prefix = f"headrace {options.command}"
    try:
        return work(options)
    except ProgramError as error:
        print(f"{prefix}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{prefix}: interrupted", file=sys.stderr)
        return 130
    except Failed:
        raise
    except SystemExit as exit_:
        if exit_.code is None or isinstance(exit_.code, int):
            return exit_.code or 0
        print(exit_.code, file=sys.stderr)
        return 1
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads_stdout():
            raise  # the reader, such as `head`, has seen enough
        if options.debug:
            traceback.print_exception(error.with_traceback(without_our_frames(error.__traceback__)))
        else:
            print(f"{prefix}: {describe(error)}", file=sys.stderr)
            print(f"({prefix} --debug ... shows the traceback)", file=sys.stderr)
        return 1


def _nobody_reads_stdout() -> bool:
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no stdout, or none with a file
        return False


def describe(error: BaseException) -> str:
    """Return a line with the type and text of an error, the operator that raised it, and the program's line."""
    first, *more = message_of(error).splitlines() or [""]
    what = type(error).__name__ + (f": {first}" if first else "") + (" ..." if more else "")
    notes = [note.splitlines()[0] for note in notes_of(error) if note]
    return "; ".join(filter(None, [what, *notes, place_of(error)]))


def place_of(error: BaseException) -> str:
    """Return ``file:line`` of the innermost frame that belongs to the program, or ""."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_short(error.filename)}:{error.lineno}"
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_of_the_program(frame.f_code.co_filename)
    ]
    return f"{_short(frames[-1][0])}:{frames[-1][1]}" if frames else ""


def without_our_frames(tb: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the command that started the program."""
    here, first = str(Path(__file__).parent), tb
    while tb is not None and (tb.tb_frame.f_code.co_filename.startswith((here, "<frozen "))):
        tb = tb.tb_next
    return tb or first


def _is_of_the_program(file: str) -> bool:
    """Return whether a file belongs neither to headrace, nor to Python, nor to an installed library."""
    if file.startswith("<"):
        return False
    path = Path(file).absolute()
    if path.is_relative_to(_HEADRACE):
        return False
    return not any(path.is_relative_to(folder) for folder in _library_folders())


def _library_folders() -> set[str]:
    paths = sysconfig.get_paths()
    return {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths}


def _short(file: str) -> str:
    """Return a path relative to the current folder, if it is inside it."""
    path = Path(file)
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return file
