"""Errors raised by the program's code where no caller can catch them."""

from __future__ import annotations

import threading


def report_uncaught(error: BaseException) -> None:
    """Report an error through ``threading.excepthook``, as if it had ended the current thread."""
    args = (type(error), error, error.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(args))
