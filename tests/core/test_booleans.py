"""Flags of the environment."""

from __future__ import annotations

import pytest

from headrace.core.values import flag


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
