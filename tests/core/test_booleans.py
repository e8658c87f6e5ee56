"""Flags of the environment."""

from __future__ import annotations

import pytest

from headrace.core.values import flag, is_set


@pytest.mark.parametrize("text", ["1", "true", "On", " yes "])
def test_words_that_mean_yes(text: str) -> None:
    assert flag(text)


@pytest.mark.parametrize("text", ["0", "False", "off", "no"])
def test_words_that_mean_no(text: str) -> None:
    assert not flag(text)


@pytest.mark.parametrize("text", ["", "2", "perhaps"])
def test_other_words_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="must be one of 1, true, on, yes, 0, false, off, no"):
        flag(text)


def test_a_variable_that_is_not_set_or_empty_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_CHECK", raising=False)
    assert not is_set("HEADRACE_CHECK")
    for text, expected in ((" ", False), ("on", True), ("off", False)):
        monkeypatch.setenv("HEADRACE_CHECK", text)
        assert is_set("HEADRACE_CHECK") is expected
    monkeypatch.setenv("HEADRACE_CHECK", "perhaps")
    with pytest.raises(ValueError, match="HEADRACE_CHECK=perhaps: must be one of 1, true"):
        is_set("HEADRACE_CHECK")
