"""Notes on exceptions that do not want any."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.core.errors import add_note, notes_of


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Refusing(Exception):
    def add_note(self, note: str) -> None:
        raise SystemExit("no notes")


def with_notes(notes: Any) -> Exception:
    error = ValueError("odd")
    error.__notes__ = notes
    return error


@pytest.mark.parametrize("error", [ValueError("plain"), Frozen(1), Refusing()], ids=repr)
def test_a_note_is_added_and_shown(error: Exception) -> None:
    add_note(error, "one")
    add_note(error, "two")
    assert notes_of(error) == ["one", "two"]
    assert "one\ntwo" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("notes", "known"), [(None, []), ("text", ["text"]), (("a", "b"), ["a", "b"]), (7, []), ([7, "a"], ["a"])]
)
def test_a_note_is_added_to_odd_notes(notes: Any, known: list[str]) -> None:
    error = with_notes(notes)
    assert notes_of(error) == known
    add_note(error, "one")
    assert notes_of(error) == [*known, "one"]
    assert "one" in "".join(traceback.format_exception(error))
