"""The log on stderr, if the environment asks for it.

A library must not configure `logging`, so headrace does it only if ``HEADRACE_LOG_LEVEL`` (or else
``HOLOSCAN_LOG_LEVEL``) is set: when a run begins, or when ``headrace run`` starts the program. Then headrace's
loggers have that level, and their messages go to stderr, unless the program has configured `logging` by itself: its
own handlers then show them.

``HOLOSCAN_LOG_FORMAT`` is DEFAULT, SHORT, LONG, FULL or a pattern of spdlog.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime

LEVEL_VARIABLES = ("HEADRACE_LOG_LEVEL", "HOLOSCAN_LOG_LEVEL")
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
_FORMATS = {
    "DEFAULT": "[%l] [%s:%#] %v",
    "SHORT": "[%l] %v",
    "LONG": "[%Y-%m-%d %H:%M:%S.%e] [%l] [%s:%#] %v",
    "FULL": "[%Y-%m-%d %H:%M:%S.%e] [%n] [%l] [%s:%#] %v",
}


def configure_log(environment: Mapping[str, str] | None = None) -> logging.Handler | None:
    """Show headrace's log on stderr if the environment sets a level; return the handler that does, or None."""
    variables = os.environ if environment is None else environment
    variable = next((name for name in LEVEL_VARIABLES if variables.get(name, "").strip()), None)
    if variable is None:
        return None
    text = variables[variable]
    try:
        level = level_of(text)
    except ValueError as error:
        raise ValueError(f"{variable}={text}: {error}") from None
    logger = logging.getLogger("headrace")
    handler = next((known for known in logger.handlers if isinstance(known, _StderrHandler)), None)
    if handler is None:
        handler = _StderrHandler()
        logger.addHandler(handler)
    handler.setFormatter(_formatter(variables.get("HOLOSCAN_LOG_FORMAT", "").strip()))
    logger.setLevel(level)
    return handler


def level_of(text: str) -> int:
    """Return the level with the given name."""
    try:
        return LEVELS[text.strip().lower()]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(LEVELS)}") from None


class _StderrHandler(logging.Handler):
    """Writes to the stderr of the moment, which a progress line may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, unless the program has handlers of its own, which show it as well."""
        if logging.root.handlers:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def _formatter(form: str) -> logging.Formatter:
    if not form:
        return logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    pattern = _FORMATS.get(form.upper(), form)
    if "%v" not in pattern:
        raise ValueError(
            f"HOLOSCAN_LOG_FORMAT={form}: must be one of {', '.join(_FORMATS)}, or a pattern that contains %v"
        )
    return _PatternFormatter(pattern)


class _PatternFormatter(logging.Formatter):
    """Formats by a pattern of spdlog; flags that it does not know are left as they are."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = pattern

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a message."""
        return re.sub(r"%([-=]?)(\d*)(.)", lambda match: _expand(match, record), self._pattern)


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
