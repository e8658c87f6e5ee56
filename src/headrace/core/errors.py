"""The errors that a pipeline raises, each for one kind of mistake.

Each derives from the built-in error that a Python programmer expects, so that ``except ValueError`` works. The
messages name the operator, the port and the choices.

Notes: add a note to any exception.

`BaseException.add_note` raises for some exceptions: a frozen dataclass refuses attributes, and an exception may
have notes that are not a list. An error that is being reported must not be replaced by the error of its report. So
the note is added to the instance's dict, where Python looks for it, if the exception refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class GraphError(ValueError):
    """The operators and flows of a fragment do not form a graph that can run."""


class PortError(KeyError):
    """The operator has no such port."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence reads better without quotes.
        return str(self.args[0]) if self.args else ""


class KindError(ValueError, RuntimeError):
    """A message was to be received in a form that its input does not have."""


class ConfigError(KeyError, ValueError):
    """The configuration has no such key."""

    __str__ = PortError.__str__


class ParameterError(TypeError):
    """A parameter is unknown, missing, or of the wrong type."""


class QueueFullError(RuntimeError):
    """A message arrived at a full queue: an input's with the policy FAULT, or a data logger's with RAISE."""


class StuckError(RuntimeError):
    """A compute took longer than its deadline and ends the run, or a run did not stop within its `stop_timeout`."""


class FeedClosedError(RuntimeError):
    """A frame was put into a feed that takes no more: it was closed, or its run has ended."""


class FeedFullError(RuntimeError):
    """A call found its feed full: the pipeline has more requests than it can take."""


class UnansweredError(RuntimeError):
    """A call gets no answer, because no message that stems from it is left."""

    def __init__(self, why: str = "") -> None:
        super().__init__(
            why
            or "the call has no answer: its message was dropped on its way, or an operator emitted nothing in the "
            "compute that received it, or the run has ended"
        )


class JoinError(ValueError):
    """A message cannot be joined with others: it has no key, or it is missing or late where that is an error."""


class StreamError(RuntimeError):
    """A stream was used incorrectly."""


class AllocationError(MemoryError):
    """An allocator has too little memory left, or can never serve the request."""


class CrossingError(TypeError):
    """An object cannot be sent to another process."""


class WorkerProcessError(RuntimeError):
    """The process of a replica ended although it was not asked to."""


class TopicError(ValueError, RuntimeError):
    """A topic cannot be published or received as it was asked for: its name, its queue, or the folder of topics."""


class LinkError(RuntimeError):
    """The link between two processes failed."""


class PeerLost(LinkError):
    """The process at the other end of a link is gone or silent, and did not say why."""


class PeerAborted(LinkError):
    """The fragment at the other end of a link has failed; the exception that it failed with is the cause.

    Attributes
    ----------
    part
        The name of the fragment.
    """

    def __init__(self, message: str, part: str = "") -> None:
        super().__init__(message, part)
        self.part = part

    __str__ = PortError.__str__


class RunStopped(LinkError):
    """The run of another fragment was ended, so that this one ends, too.

    Attributes
    ----------
    ended_by
        How it ended: ``"stopped"`` or ``"duration"``; empty if no fragment can go on.
    """

    def __init__(self, message: str, ended_by: str) -> None:
        super().__init__(message, ended_by)
        self.ended_by = ended_by

    __str__ = PortError.__str__


class ProtocolError(LinkError):
    """What arrived over a link cannot be: the peer is not one of ours, is of another version, or is broken."""


class AuthenticationError(LinkError):
    """The process at the other end of a connection is not the one that it should be."""


class PartLost(RuntimeError):
    """The process of a fragment ended although it was not asked to, or is frozen."""


class PartError(RuntimeError):
    """An exception of another process that cannot be made again in this one; its text is the original's."""


class DigestError(GraphError):
    """The process of a fragment composed another program than the driver."""


class ResentMemoryWarning(UserWarning):
    """An operator sends memory again that it sent before, and that others may still read."""


class UnreceivedMessageWarning(UserWarning):
    """An operator runs repeatedly but does not receive the messages that wait at one of its inputs."""


def choices(names: Iterable[str], wanted: str = "") -> str:
    """Return the valid names, for the end of an error message.

    If there are several, suggest the name most similar to `wanted`.
    """
    known = list(names)
    listed = ", ".join(repr(name) for name in known) or "none"
    if wanted and len(known) > 1:
        nearest = closest(wanted, known)
        if nearest is not None:
            listed += f"; did you mean {nearest!r}?"
    return listed


def absent(owner: str, what: str, name: object, known: Iterable[str]) -> str:
    """Return the text of an error: `owner` has no `what` of that name, and which it has."""
    return f"{owner} has no {what} {name!r}; it has {choices(known, str(name))}"


def closest(wanted: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar to the wanted one, or None."""
    import difflib  # needed only for errors

    # Ignore case, because mistakes in case are the most common.
    folded = {str(name).lower(): str(name) for name in names}
    found = difflib.get_close_matches(str(wanted).lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def add_note(error: BaseException, text: str) -> None:
    """Add a note to an exception, whatever it is; never raise."""
    try:
        error.add_note(text)
    except BaseException:  # even an interrupt: a run keeps it, and raises it when it has ended
        try:
            attributes: dict[str, Any] = object.__getattribute__(error, "__dict__")
            attributes["__notes__"] = [*_as_list(attributes.get("__notes__")), text]
        except BaseException:
            pass  # the exception is raised without the note


@contextmanager
def noting(text: str) -> Iterator[None]:
    """Add a note to an exception that is raised inside."""
    try:
        yield
    except Exception as error:
        add_note(error, text)
        raise


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception that are text; never raise."""
    try:
        return [note for note in _as_list(getattr(error, "__notes__", None)) if isinstance(note, str)]
    except BaseException:
        return []


def message_of(error: BaseException) -> str:
    """Return the text of an exception, even if its ``__str__`` raises."""
    try:
        return str(error)
    except BaseException:
        return "<its __str__ raised>"


def _as_list(notes: Any) -> list[Any]:
    if notes is None:
        return []
    return list(notes) if isinstance(notes, (list, tuple)) else [notes]
