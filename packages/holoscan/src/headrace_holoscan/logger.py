"""holoscan.logger: how much is logged, and how it looks.

A program of the SDK logs to stderr, from level INFO on. The variable ``HOLOSCAN_LOG_LEVEL`` wins over
`set_log_level`, and ``HOLOSCAN_LOG_FORMAT`` over `set_log_pattern`.
"""

from __future__ import annotations

import enum
import logging
import os
import re
from datetime import datetime

from headrace.core import Outcome
from headrace.vocabulary import level_of, show_formatted, value_of
from headrace_holoscan.lenience import tell

__all__ = ["LogLevel", "log_level", "set_log_level", "set_log_pattern"]

_PATTERNS = {
    "DEFAULT": "[%l] [%s:%#] %v",
    "SHORT": "[%l] %v",
    "LONG": "[%Y-%m-%d %H:%M:%S.%e] [%l] [%s:%#] %v",
    "FULL": "[%Y-%m-%d %H:%M:%S.%e] [%n] [%l] [%s:%#] %v",
}


class LogLevel(enum.Enum):
    """The levels."""

    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    CRITICAL = 5
    OFF = 6

    def __int__(self) -> int:
        return int(self.value)


class _State:
    level = LogLevel.INFO
    pattern = "DEFAULT"
    handler: logging.Handler | None = None


def _level(text: str) -> LogLevel:
    level_of(text)  # raises if there is none of that name
    return LogLevel[text.upper().removesuffix("ING")]


def log_level() -> LogLevel:
    """Return the level."""
    for name in ("HEADRACE_LOG_LEVEL", "HOLOSCAN_LOG_LEVEL"):
        if (level := value_of(os.environ, _level, name)) is not None:
            return level
    return _State.level


def set_log_level(level: LogLevel) -> None:
    """Set the level, unless the environment does."""
    if not isinstance(level, LogLevel):
        raise TypeError(f"set_log_level takes a LogLevel, such as LogLevel.WARN, not {level!r}")
    _State.level = level
    _show()


def set_log_pattern(pattern: str) -> None:
    """Set the form of a line: SHORT, DEFAULT, LONG, FULL, or a pattern of spdlog; unless the environment does."""
    if not isinstance(pattern, str):
        raise TypeError(f"set_log_pattern takes a str, not {pattern!r}")
    try:
        _pattern(pattern)
    except ValueError:
        tell(f"the log pattern {pattern!r} would show no message; it is ignored", "a pattern must contain %v")
        return
    _State.pattern = pattern
    _show()


def show() -> None:
    """Show the log on stderr, if it is not shown."""
    if _State.handler is None:
        _show()


def follow_environment() -> None:
    """Show the log as the environment says now, if it says anything of it."""
    if os.environ.get("HOLOSCAN_LOG_LEVEL") and not os.environ.get("HEADRACE_LOG_LEVEL"):
        _show()


def hide() -> None:
    """Undo `show`."""
    headrace = logging.getLogger("headrace")
    if _State.handler is not None:
        headrace.removeHandler(_State.handler)
        headrace.setLevel(logging.NOTSET)
    _State.level, _State.pattern, _State.handler = LogLevel.INFO, "DEFAULT", None


def _show() -> None:
    pattern = value_of(os.environ, _pattern, "HOLOSCAN_LOG_FORMAT") or _pattern(_State.pattern)
    _State.handler = show_formatted(level_of(log_level().name), _PatternFormatter(pattern))


def _pattern(text: str) -> str:
    pattern = _PATTERNS.get(text.upper(), text)
    if "%v" not in pattern:
        raise ValueError(f"must be one of {', '.join(_PATTERNS)}, or a pattern that contains %v")
    return pattern


class _PatternFormatter(logging.Formatter):
    """Formats by a pattern of spdlog; flags that it does not know are left as they are."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = pattern

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a message."""
        text = re.sub(r"%([-=]?)(\d*)(.)", lambda match: _expand(match, record), self._pattern)
        if isinstance(record.args, tuple) and any(isinstance(each, Outcome) for each in record.args):
            return text  # of a run that raises the error itself, so that its traceback is shown there
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        elif record.exc_text:  # of another process
            text = f"{text}\n{record.exc_text}"
        return text


# The attribute of a record for each flag of spdlog, and the letters that strftime has in common with it.
_ATTRIBUTES = {"n": "name", "t": "thread", "P": "process", "s": "filename", "g": "pathname", "#": "lineno"}
_TIMES = "YmdHMSTDyIpjaAbBz"


def _expand(match: re.Match[str], record: logging.LogRecord) -> str:
    side, width, flag = match.groups()
    when = datetime.fromtimestamp(record.created)
    texts = {
        "v": record.getMessage(),
        "l": record.levelname.lower(),
        "L": record.levelname[:1],
        "!": record.funcName or "",
        "e": f"{when.microsecond // 1000:03}",
        "f": f"{when.microsecond:06}",
        "%": "%",
        "^": "",  # where colours begin and end
        "$": "",
    }
    if flag in texts:
        text = texts[flag]
    elif flag in _ATTRIBUTES:
        text = str(getattr(record, _ATTRIBUTES[flag]))
    elif flag in _TIMES:
        text = when.astimezone().strftime(f"%{flag}")
    else:
        return match[0]
    adjust = {"=": text.center, "-": text.ljust, "": text.rjust}[side]
    return adjust(int(width or 0))
