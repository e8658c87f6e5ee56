"""The log on stderr, if the environment asks for it.

A library must not configure `logging`, so headrace does it only if ``HEADRACE_LOG_LEVEL`` is set: when a run
begins, or when ``headrace run`` starts the program. Then headrace's loggers have that level, and their messages go
to stderr, unless the program has configured `logging` by itself: its own handlers then show them.

``HEADRACE_LOG_FORMAT`` is ``text`` or ``json``. A program that is asked for JSON writes nothing else: the handler
is then that of the root logger, and shows what other libraries log, too.

The fields of log records: which operator, fragment and run a record belongs to.

They are found when a record is made, and computes cost nothing for it. The operator is on the stack of the thread
that logs: its methods have it as their first argument, and the compute of a function (`@op`) has the operator's
input. A variable of the context, set around every compute, would cost all of them. Functions that await run on
another thread; each of their calls is a task with such a variable (`CALLING`), as are the tasks that it creates.

Outside of operators, as on a thread of the program, the fragment and the run are those of the only run in progress.
With several runs, they are not known.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.brief import brief
from headrace.core.composition import RUNNING
from headrace.core.errors import message_of
from headrace.core.run_options import value_of

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator

FIELDS = ("operator", "fragment", "run")
CALLING: ContextVar[Operator | None] = ContextVar("calling", default=None)
"""The operator whose function this task of asyncio is a call of."""
_OPERATOR_LOGGERS = "headrace.operator."


class RunFields(logging.Filter):
    """Gives log records the fields ``operator``, ``fragment`` and ``run``; "" where one is not known.

    Add it to a handler of your own: ``handler.addFilter(RunFields())``. A format may then use ``%(operator)s``. The
    handler must be called on the thread that logs; of a ``QueueHandler`` and its listener, that is the
    ``QueueHandler``.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record does not have; let it pass."""
        known = vars(record)
        if not all(name in known for name in FIELDS):
            # The record is made on the thread that logs, and so is this call.
            for name, value in _current_fields(record.name).items():
                known.setdefault(name, value)
        return True


def fields_of(fragment: Composition, operator: str = "") -> dict[str, str]:
    """Return the fields of a record that a run makes, for ``extra=``."""
    cut = fragment._headrace.cut  # the part of it that runs in this process
    return {
        "operator": operator,
        "fragment": fragment.name if cut is None else cut.part,
        "run": fragment._headrace.run_id,
    }


def _current_fields(logger: str) -> dict[str, str]:
    operator = CALLING.get() or _operator_on_the_stack()
    if operator is not None:
        return fields_of(operator.fragment, operator.name)
    name = logger.removeprefix(_OPERATOR_LOGGERS) if logger.startswith(_OPERATOR_LOGGERS) else ""
    running = list(RUNNING)
    if len(running) == 1:
        return fields_of(running[0], name)
    return {"operator": name, "fragment": "", "run": ""}


def _operator_on_the_stack() -> Operator | None:
    """Return the operator whose method this thread is in; of several, the one that the run called."""
    from headrace.core.operator import Operator

    found: Operator | None = None
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            first = frame.f_locals.get(code.co_varnames[0])
            # The node of an input, by the type of the attribute: classes of the runtime are not known here.
            owner = first if isinstance(first, Operator) else getattr(_node_of(first), "operator", None)
            if isinstance(owner, Operator):
                found = owner
        frame = frame.f_back
    return found


def _node_of(value: Any) -> Any:
    """Return the node of what may be the input of an operator, without running any code of the program."""
    kind = type(value)
    if kind.__name__ == "InputContext" and kind.__module__.startswith("headrace."):
        return value._node
    return None


FORMATS = ("text", "json")
LEVELS = {
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": logging.CRITICAL + 10,
}


def configure_log() -> logging.Handler | None:
    """Show headrace's log on stderr if the environment asks for it; return the handler that does, or None."""
    level = value_of(os.environ, level_of, "HEADRACE_LOG_LEVEL")
    form = value_of(os.environ, lambda text: format_of(text.lower()), "HEADRACE_LOG_FORMAT")
    if level is None and form is None:
        return None
    return show_formatted(logging.INFO if level is None else level, _formatter(form))


def show_log(level: str = "info", format: str = "text") -> logging.Handler:  # noqa: A002 (the option's name)
    """Show headrace's log on stderr from now on, as ``headrace run --log-level --log-format`` does.

    If the program has handlers of its own at the root logger, these show the log instead.

    Parameters
    ----------
    level
        The least level that is shown: trace, debug, info, warning, error, critical or off.
    format
        ``"text"``, or ``"json"``: one JSON object in each line, with the fields ``time``, ``level``, ``logger`` and
        ``message``, and with ``operator``, ``fragment``, ``run``, ``exception`` and those of ``extra=`` where there
        are any. What other libraries log is shown in the same form.
    """
    return show_formatted(level_of(level), _formatter(format_of(format)))


def show_formatted(level: int, formatter: logging.Formatter) -> logging.Handler:
    """Show headrace's log on stderr from now on, in any form."""
    logger, is_json = logging.getLogger("headrace"), isinstance(formatter, _JsonFormatter)
    place = logging.root if is_json else logger
    for other in (logging.root, logger):
        for known in [known for known in other.handlers if isinstance(known, _StderrHandler)]:
            if other is not place:
                other.removeHandler(known)
    handler = next((known for known in place.handlers if isinstance(known, _StderrHandler)), None)
    if handler is None:
        handler = _StderrHandler()
        handler.addFilter(RunFields())
        place.addHandler(handler)
    handler.setFormatter(formatter)
    logger.setLevel(level)
    return handler


def format_of(text: str) -> str:
    """Return a format of the log; raise ValueError if there is none of that name."""
    if text not in FORMATS:
        raise ValueError(f"must be one of {', '.join(FORMATS)}")
    return text


def level_of(text: str) -> int:
    """Return the level with the given name."""
    try:
        return LEVELS[text.strip().lower()]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(LEVELS)}") from None


class _StderrHandler(logging.Handler):
    """Writes to the stderr of the moment, which a progress line may have replaced."""

    is_of_headrace = True

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, unless the program has handlers of its own, which show it as well."""
        if has_own_handlers():
            return
        try:
            sys.stderr.write(self.format(formattable(record)) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def has_own_handlers() -> bool:
    """Return whether the program has handlers of its own, which show headrace's log."""
    return any(not getattr(known, "is_of_headrace", False) for known in logging.root.handlers)


def formattable(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record whose message can be formatted: a copy with what it was given, if that cannot be."""
    try:
        record.getMessage()
        return record
    except Exception as error:  # also of an argument's own code
        readable = copy.copy(record)
        text = record.msg if isinstance(record.msg, str) else brief(record.msg)
        readable.msg, readable.args = "%s", (f"{text} [{brief(record.args)}: {message_of(error)}]",)
        return readable


class _JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        # The fields of the run, and those that the program gave by `extra`; libraries make notes with underscores.
        for name, value in vars(record).items():
            is_empty = isinstance(value, str) and not value
            if name not in _USUAL and name not in fields and not is_empty and not name.startswith("_"):
                fields[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = type(record.exc_info[1]).__name__
            fields["traceback"] = self.formatException(record.exc_info)
        elif record.exc_text:  # of another process
            fields["traceback"] = record.exc_text
        if record.stack_info:
            fields["stack"] = record.stack_info
        try:
            return json.dumps(fields, default=brief, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # NaN, keys that are no text, what holds itself
            return json.dumps({str(name): _plain(value) for name, value in fields.items()})


# The attributes that every record has.
_USUAL = {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, bool)) or value is None else brief(value)


def _formatter(form: str | None) -> logging.Formatter:
    if form == "json":
        return _JsonFormatter()
    # The process of one part of a program says which.
    part = os.environ.get("HEADRACE_PART", "").replace("%", "%%")
    place = f"[{part}] " if part else ""
    return logging.Formatter(f"%(asctime)s %(levelname)s {place}%(name)s: %(message)s", "%H:%M:%S")
