"""holoscan.logger: how much is logged, and how it looks.

A program of the SDK logs to stderr, from level INFO on. The variable ``HOLOSCAN_LOG_LEVEL`` wins over
`set_log_level`.
"""

from __future__ import annotations

import enum
import logging
import os

from headrace.vocabulary import configure_log
from headrace_holoscan.lenience import tell

__all__ = ["LogLevel", "log_level", "set_log_level", "set_log_pattern"]


_VARIABLES = ("HEADRACE_LOG_LEVEL", "HOLOSCAN_LOG_LEVEL")


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
    written = ""
    handler: logging.Handler | None = None


def _in_environment() -> LogLevel | None:
    given = next((text for name in _VARIABLES if (text := os.environ.get(name, "").strip())), "")
    name = given.upper().removesuffix("ING")
    return LogLevel[name] if name in LogLevel.__members__ else None


def log_level() -> LogLevel:
    """Return the level."""
    return _in_environment() or _State.level


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
    if "%v" not in pattern and pattern.upper() not in ("SHORT", "DEFAULT", "LONG", "FULL"):
        tell(f"the log pattern {pattern!r} would show no message; it is ignored", "a pattern must contain %v")
        return
    _State.pattern = pattern
    _show()


def show() -> None:
    """Show the log on stderr, if it is not shown."""
    if _State.handler is None:
        _show()


def hide() -> None:
    """Undo `show`."""
    headrace = logging.getLogger("headrace")
    if _State.handler is not None:
        headrace.removeHandler(_State.handler)
        headrace.setLevel(logging.NOTSET)
    if _State.written:  # otherwise the user has set it
        os.environ.pop("HOLOSCAN_LOG_FORMAT", None)
    _State.level, _State.pattern, _State.written, _State.handler = LogLevel.INFO, "DEFAULT", "", None


def _show() -> None:
    given = os.environ.get("HOLOSCAN_LOG_FORMAT", "").strip()
    if given in ("", _State.written):
        # Each run reads the environment again.
        os.environ["HOLOSCAN_LOG_FORMAT"] = _State.written = given = _State.pattern
    _State.handler = configure_log({"HOLOSCAN_LOG_LEVEL": log_level().name, "HOLOSCAN_LOG_FORMAT": given})
