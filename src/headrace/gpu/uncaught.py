"""Errors raised by the program's code where no caller can catch them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace


def report_uncaught(error: BaseException) -> None:
    """Report an error through ``threading.excepthook``, as if it had ended the current thread."""
    args = (type(error), error, error.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(args))


def report_ignored(error: BaseException, function: Callable[[], object]) -> None:
    """Report an error of a host function through ``sys.unraisablehook``."""
    # The attributes that the hook reads; Python code cannot create sys.UnraisableHookArgs.
    args = SimpleNamespace(
        exc_type=type(error),
        exc_value=error,
        exc_traceback=error.__traceback__,
        err_msg="Exception ignored in a host function",
        object=function,
    )
    sys.unraisablehook(args)
