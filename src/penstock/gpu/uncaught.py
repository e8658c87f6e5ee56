"""What code of the program's raised where nobody can catch it."""

import threading


def report(error: BaseException) -> None:
    """Report it as one that a thread ended with, through ``threading.excepthook``."""
    told = (type(error), error, error.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(told))
