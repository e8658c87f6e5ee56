"""Failures: exceptions on their way from the process of a part to the driver, which raises them as themselves."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass

from headrace.core.errors import LinkError, PartError, add_note, message_of, notes_of
from headrace.link.failures import pickled_error

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

    def error(self, part: str) -> BaseException:
        """Return the exception, with the part and the traceback there in its notes."""
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
        if part:
            add_note(found, f"raised in the process of fragment {part!r}\n{self.traceback}")
        return found
