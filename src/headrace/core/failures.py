"""Failures: exceptions on their way to another process, which raises them as themselves."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.brief import brief
from headrace.core.errors import LinkError, PartError, add_note, message_of, notes_of

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
