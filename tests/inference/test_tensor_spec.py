"""What fits an input of a model, and which shapes of the outputs follow from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.inference import TensorSpec
from headrace.inference.model import resolve


@pytest.mark.parametrize(
    ("wanted", "given", "taken"),
    [
        ((2, 3), (2, 3), (2, 3)),
        ((2, 3), (3, 2), None),
        ((1, 2, 3), (2, 3), (1, 2, 3)),
        ((2, 3), (1, 1, 2, 3), (2, 3)),
        ((1, 1, 4, 4), (4, 4, 1), (1, 1, 4, 4)),  # one channel: the elements lie the same
        ((1, 3, 4, 4), (4, 4, 3), None),  # three channels: they do not
        (("n", 3), (7, 3), (7, 3)),
        (("n", 3), (3,), (1, 3)),
        (("n", 3), (1, 7, 3), (7, 3)),
        (("n", 3), (7, 4), None),
        ((1, "n", 3), (7, 3), (1, 7, 3)),
        ((2, "n", 3), (7, 3), None),
        ((None, None), (5,), (1, 5)),
        ((), (1,), ()),
        ((), (2,), None),
        ((4,), (), None),
        (None, (1, 2), (1, 2)),
    ],
)
def test_a_shape_fits_or_not(wanted: Any, given: tuple[int, ...], taken: Any) -> None:
    assert TensorSpec("x", None, wanted).arrange(given) == taken


def test_dynamic_extents_of_outputs_follow_from_names() -> None:
    inputs = [TensorSpec("x", None, ("n", 3)), TensorSpec("y", None, ("m",))]
    outputs = [
        TensorSpec("a", None, ("m", "n", 2)),
        TensorSpec("b", None, ("k",)),
        TensorSpec("c", None, (None,)),
        TensorSpec("d"),
        TensorSpec("e", None, ()),
    ]
    assert resolve(inputs, [(5, 3), (7,)], outputs) == [(7, 5, 2), None, None, None, ()]


def test_a_name_with_two_values_tells_nothing() -> None:
    inputs = [TensorSpec("x", None, ("n", "n", "n"))]
    assert resolve(inputs, [(5, 6, 5)], [TensorSpec("y", None, ("n",))]) == [None]


def test_a_spec_shows_type_and_shape() -> None:
    assert str(TensorSpec("x", np.dtype("float32"), ("n", None, 3))) == "float32 (n, ?, 3)"
    assert str(TensorSpec("x", None, (3,))) == "any type (3,)"
    assert str(TensorSpec("x")) == "any type of any shape"
