"""The errors a pipeline raises, each about one kind of mistake.

They derive from the built-in error a Python programmer would expect, so that ``except ValueError``
keeps working, and their messages name the operator, the port and the choices.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "GraphError",
    "ParameterError",
    "PortError",
    "QueueFullError",
    "StreamError",
    "UnorderedStreamWarning",
    "UnreceivedMessageWarning",
    "choices",
    "closest",
]


class GraphError(ValueError):
    """The operators and flows of a fragment do not make a graph that can run."""


class PortError(KeyError):
    """A port was asked for that the operator does not have."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence reads better without the quotes.
        return str(self.args[0]) if self.args else ""


class ConfigError(KeyError, ValueError):
    """A key of the configuration was asked for, or set from outside, that is not there."""

    __str__ = PortError.__str__


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


def choices(names: Iterable[str], wanted: str = "") -> str:
    """Return the names that would have been right, for the end of an error message.

    With the name that was `wanted`, and of several the one most like it is suggested.
    """
    known = list(names)
    listed = ", ".join(repr(name) for name in known) or "none"
    if wanted and len(known) > 1:
        nearest = closest(wanted, known)
        if nearest is not None:
            listed += f"; did you mean {nearest!r}?"
    return listed


def closest(wanted: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like the one that was wanted, or None where none is like it."""
    import difflib  # needed only when something is wrong

    # Case is what is mistaken most easily, and what counts as a difference otherwise.
    folded = {str(name).lower(): str(name) for name in names}
    found = difflib.get_close_matches(str(wanted).lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None
