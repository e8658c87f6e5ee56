"""Notes: add a note to any exception.

`BaseException.add_note` raises for some exceptions: a frozen dataclass refuses attributes, and an exception may
have notes that are not a list. An error that is being reported must not be replaced by the error of its report. So
the note is added to the instance's dict, where Python looks for it, if the exception refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
