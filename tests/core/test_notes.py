"""Notes on exceptions that do not want any."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import pytest

from headrace.core.errors import add_note, notes_of


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Refusing(Exception):
    def add_note(self, note: str) -> None:
        raise SystemExit("no notes")


@pytest.mark.parametrize("error", [ValueError("plain"), Frozen(1), Refusing()], ids=repr)
def test_a_note_is_added_and_shown(error: Exception) -> None:
    add_note(error, "one")
    add_note(error, "two")
    assert notes_of(error) == ["one", "two"]
    assert "one\ntwo" in "".join(traceback.format_exception(error))
