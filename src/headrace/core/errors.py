"""The errors that a pipeline raises, each for one kind of mistake.

Each derives from the built-in error that a Python programmer expects, so that ``except ValueError`` works. The
messages name the operator, the port and the choices.

`BaseException.add_note` raises for some exceptions: a frozen dataclass refuses attributes, and an exception may
have notes that are not a list. An error that is being reported must not be replaced by the error of its report. So
the note is added to the instance's dict, where Python looks for it, if the exception refuses it.

A `Failure` is an exception on its way to another process, which raises it as itself.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from headrace.brief import brief


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


class ParameterError(TypeError, ValueError):
    """A parameter is unknown, missing, of the wrong type, or has a wrong value."""


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


_TERMINATED = 128 + 15  # the status of a program that SIGTERM ended

_MOST_CAUSES = 8  # of an exception, in a row


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that was raised in another process."""

    content: bytes
    """The pickled exception; empty if it cannot be pickled."""
    kind: str
    text: str
    notes: tuple[str, ...]
    traceback: str
    is_interrupt: bool
    """Whether it is Ctrl-C or SIGTERM."""
    is_consequence: bool
    """Whether it only says that another part has ended."""
    cause: Failure | None = None
    """What it was raised from, or during the handling of."""
    is_explicit: bool = False
    """Whether it was raised from that."""

    @classmethod
    def of(cls, error: BaseException, causes: int = _MOST_CAUSES) -> Failure:
        """Return what is to be said of an exception and of its causes, at most so many."""
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return cls(
            pickled_error(error),
            type(error).__name__,
            message_of(error),
            tuple(notes_of(error)),
            "".join(traceback.format_exception(error)),
            isinstance(error, KeyboardInterrupt)
            or (isinstance(error, SystemExit) and error.code == _TERMINATED),
            isinstance(error, LinkError),
            cls.of(cause, causes - 1) if cause is not None and causes else None,
            error.__cause__ is not None,
        )

    def error(self, where: str) -> BaseException:
        """Return the exception; its notes say where it was raised, unless `where` is empty, and the traceback."""
        found: BaseException
        try:
            found = pickle.loads(self.content) if self.content else PartError(f"{self.kind}: {self.text}")
        except Exception:  # of a class that this process cannot import
            found = PartError(f"{self.kind}: {self.text}")
        for note in self.notes:
            if note not in notes_of(found):
                add_note(found, note)
        if self.cause is not None and found.__cause__ is found.__context__ is None:
            cause = self.cause.error("")
            if self.is_explicit:
                found.__cause__ = cause
            else:
                found.__context__ = cause
        if where:
            add_note(found, f"raised in the process of {where}\n{self.traceback}")
        return found


def pickled_error(error: BaseException) -> bytes:
    """Return the pickled exception; nothing if it cannot be pickled, or not be loaded as what it is."""
    for content in (error, _Parts(error, lambda value: True), _Parts(error, _is_picklable)):
        with suppress(Exception):  # what pickle raises depends on the exception
            pickled = pickle.dumps(content)
            # A class whose constructor takes other arguments than it keeps is pickled and cannot be loaded.
            loaded = pickle.loads(pickled)
            if type(loaded) is type(error) and message_of(loaded) == message_of(error):
                return pickled
    return b""


class _Parts:
    """Stands for an exception that its class would not make again: it is made without a call of its constructor."""

    def __init__(self, error: BaseException, is_kept: Callable[[Any], bool]) -> None:
        self._error, self._is_kept = error, is_kept

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        args = tuple(each if self._is_kept(each) else brief(each) for each in error.args)
        kept = {name: value for name, value in vars(error).items() if self._is_kept(value)}
        return _made_again, (type(error), args, kept)


def _made_again(
    kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(attributes)
    return error


def _is_picklable(value: Any) -> bool:
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        return False
    return True
