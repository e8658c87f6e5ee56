"""Values of the program in messages: short, whatever they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from headrace.brief import brief


@dataclass
class Frame:
    pixels: Any


class Broken:
    @property
    def shape(self) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("left", "'left'"),
        (np.float32(1.5), "np.float32(1.5)"),
        (np.zeros((2, 3), np.int16), "<numpy.ndarray of shape (2, 3), int16>"),
        ({"a": [np.zeros(7)]}, "{'a': [<numpy.ndarray of shape (7,), float64>]}"),
        (np.ndarray, "<class 'numpy.ndarray'>"),
        (Broken(), "<tests.test_brief.Broken that cannot be shown>"),
    ],
)
def test_a_value_is_named(value: Any, text: str) -> None:
    assert brief(value) == text


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000,
        b"x" * 10_000,
        10**2000,
        list(range(10_000)),
        dict.fromkeys(range(10_000)),
        Frame(np.eye(30)),
    ],
)
def test_what_is_long_is_cut(value: Any) -> None:
    text = brief(value)
    assert len(text) < 300
    assert "..." in text
