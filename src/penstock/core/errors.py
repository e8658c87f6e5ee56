"""The errors a pipeline raises, each about one kind of mistake.

They derive from the built-in error a Python programmer would expect, so that ``except ValueError``
keeps working, and their messages name the operator, the port and the choices.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "GraphError",
    "ParameterError",
    "PortError",
    "QueueFullError",
    "StreamError",
    "UnorderedStreamWarning",
    "UnreceivedMessageWarning",
    "choices",
]


class GraphError(ValueError):
    """The operators and flows of a fragment do not make a graph that can run."""


class PortError(KeyError):
    """A port was asked for that the operator does not have."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence reads better without the quotes.
        return str(self.args[0]) if self.args else ""


class ParameterError(TypeError):
    """A parameter is unknown, missing, or of the wrong type."""


class QueueFullError(RuntimeError):
    """A message arrived at a full queue whose policy is to fault."""


class StreamError(RuntimeError):
    """A stream was used in a way that cannot be right."""


class UnorderedStreamWarning(UserWarning):
    """An operator used a message without being ordered after the work behind it."""


class UnreceivedMessageWarning(UserWarning):
    """An operator computes again and again and does not receive what waits at one of its inputs."""


def choices(names: Iterable[str]) -> str:
    """Format the names that would have been right, for the end of an error message."""
    listed = ", ".join(repr(name) for name in names)
    return listed or "none"
