"""Errors of composing are RuntimeErrors in the SDK: headrace's own errors become that as well.

An error keeps its class and its text: ``except GraphError`` and ``except RuntimeError`` both catch it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

from headrace.core import GraphError, ParameterError, PortError
from headrace.vocabulary import ConfigError

P = ParamSpec("P")
T = TypeVar("T")

COMPOSING = (ConfigError, GraphError, ParameterError, PortError)
"""The errors that headrace raises while a program is composed."""


@functools.cache
def _also_runtime_error(kind: Any) -> Any:
    # Under the name that the SDK's errors have, which programs print.
    return type("RuntimeError", (kind, RuntimeError), {"__doc__": kind.__doc__, "__module__": "builtins"})


def as_runtime_error(error: Exception) -> Exception:
    """Return an error of composing, which is a RuntimeError from now on."""
    if isinstance(error, COMPOSING) and not isinstance(error, RuntimeError):
        kind: Any = type(error)
        error.__class__ = _also_runtime_error(kind)
    return error


def fail(message: str) -> NoReturn:
    """Log an error and raise it, as the SDK does when a flow or a name is wrong."""
    logging.getLogger("headrace.holoscan").error("%s", message)
    raise as_runtime_error(GraphError(message))


def raises_runtime_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise its errors of composing as RuntimeErrors, and log them, as the SDK does."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except COMPOSING as error:
            if not isinstance(error, RuntimeError):
                logging.getLogger("headrace.holoscan").error("%s", error)
            as_runtime_error(error)
            raise

    return wrapper
