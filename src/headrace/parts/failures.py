"""Failures: exceptions on their way from the process of a part to the driver, which raises them as themselves."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass

from headrace.core.errors import LinkError, PartError
from headrace.core.notes import add_note, message_of, notes_of
from headrace.link.failures import pickled_error

_TERMINATED = 128 + 15  # the status of a program that SIGTERM ended


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

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return what is to be said of an exception."""
        return cls(
            pickled_error(error),
            type(error).__name__,
            message_of(error),
            tuple(notes_of(error)),
            "".join(traceback.format_exception(error)),
            isinstance(error, KeyboardInterrupt)
            or (isinstance(error, SystemExit) and error.code == _TERMINATED),
            isinstance(error, LinkError),
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
        if part:
            add_note(found, f"raised in the process of part {part!r}\n{self.traceback}")
        return found
