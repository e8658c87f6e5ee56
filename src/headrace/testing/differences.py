"""Where two recorded values differ, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.observe import TensorCopy, TensorMapCopy
from headrace.observe.recordings.payloads import encode

_NUMBERS = "iufc"  # kinds of dtypes whose elements have a difference
_LONGEST = 500  # characters of a value that are shown


def difference(where: str, expected: Any, found: Any, rtol: float | None, atol: float | None) -> str | None:
    """Return where two values differ first, and how; None if they do not.

    Parameters
    ----------
    where
        What the values are, such as ``"data"``.
    expected, found
        The values, wherever their tensors were.
    rtol, atol
        The tolerance for floats and elements of arrays, as in ``numpy.allclose``; without either, values must be
        the same bit for bit.
    """
    kind = type(expected)
    if kind is not type(found):
        texts = [f"{_text(value)} ({type(value).__name__})" for value in (expected, found)]
        return f"{where} was {texts[0]}, and is now {texts[1]}"
    if kind is TensorCopy or kind is np.ndarray:
        return _difference_of_arrays(where, expected, found, rtol, atol)
    if kind is dict or kind is TensorMapCopy:
        if [*map(_bytes, expected)] != [*map(_bytes, found)]:
            return f"{where} had the keys {_text(list(expected))}, and now has {_text(list(found))}"
        places = [(f"{where}[{key!r}]", expected[key], found[key]) for key in expected]
    elif kind is list or kind is tuple:
        if len(expected) != len(found):
            return f"{where} had {len(expected)} values, and now has {len(found)}"
        places = [
            (f"{where}[{place}]", *pair) for place, pair in enumerate(zip(expected, found, strict=True))
        ]
    else:
        return _difference_of_values(where, expected, found, rtol, atol)
    differences = (difference(*place, rtol, atol) for place in places)
    return next((text for text in differences if text is not None), None)


def _difference_of_values(
    where: str, expected: Any, found: Any, rtol: float | None, atol: float | None
) -> str | None:
    is_exact = rtol is None and atol is None
    if not is_exact and isinstance(expected, (float, complex, np.inexact)):
        if np.isclose(found, expected, rtol or 0, atol or 0, equal_nan=True):
            return None
    elif _bytes(expected) == _bytes(found):
        return None
    one, other = _text(expected), _text(found)
    same = "; they differ where that does not show" if one == other else ""
    return f"{where} was {one}, and is now {other}{same}"


def _difference_of_arrays(
    where: str, expected: Any, found: Any, rtol: float | None, atol: float | None
) -> str | None:
    kinds = _description(expected), _description(found)
    if kinds[0] != kinds[1]:
        return f"{where} was {kinds[0]}, and is now {kinds[1]}"
    one, other = _elements(expected), _elements(found)
    is_exact = rtol is None and atol is None
    if is_exact or one.dtype.kind not in _NUMBERS:
        differs = _bytes_of_elements(one) != _bytes_of_elements(other)
        differs = differs.any(axis=1).reshape(one.shape)
    else:
        differs = ~np.isclose(other, one, rtol or 0, atol or 0, equal_nan=True)
    count = int(np.count_nonzero(differs))
    if not count:
        return None
    first = _first(differs)
    texts = [repr(array[first].item()) for array in (one, other)]
    if texts[0] == texts[1]:  # such as two NaN
        texts = [
            f"{text} (bytes {array[first].tobytes().hex()})"
            for text, array in zip(texts, (one, other), strict=True)
        ]
    text = f"{_place(where, first)} was {texts[0]}, and is now {texts[1]}"
    if one.ndim:
        text += f"; {count} of {one.size} elements differ"
        largest = _largest_difference(one, other, differs)
        if largest is not None:
            place, amount = largest
            text += f", most at {_place(where, place)}, by {amount!r}"
    return text


def _description(array: Any) -> str:
    dtype = array.dl_dtype.name if isinstance(array, TensorCopy) else array.dtype
    what = "a tensor" if isinstance(array, TensorCopy) else "an array"
    return f"{what} of {dtype} of shape {array.shape}"


def _elements(array: Any) -> np.ndarray:
    if not isinstance(array, TensorCopy):
        return np.asarray(array)
    try:
        return np.asarray(array)
    except TypeError:  # NumPy has no such element type
        return array.elements()


def _bytes_of_elements(array: np.ndarray) -> np.ndarray:
    """Return a row of bytes for each element, in row-major order."""
    if not array.nbytes:
        return np.zeros((array.size, 1), np.uint8)
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(array.size, array.itemsize)


def _largest_difference(one: np.ndarray, other: np.ndarray, differs: np.ndarray) -> tuple[Any, Any] | None:
    """Return where elements differ most, and by how much; None if they are not numbers."""
    if one.dtype.kind in "iu":
        # Exact for all integers: the difference of two 64-bit integers fits into 64 bits without a sign.
        amounts = np.maximum(one, other).astype(np.uint64) - np.minimum(one, other).astype(np.uint64)
    elif one.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            amounts = np.abs(other.astype(np.complex128) - one.astype(np.complex128))
        amounts = np.where(np.isnan(amounts), -1.0, amounts)  # to or from NaN: no amount
    else:
        return None
    amounts = np.where(differs, amounts, 0)
    place = np.unravel_index(int(np.argmax(amounts)), amounts.shape)
    amount = amounts[place].item()
    return (place, amount) if amount > 0 else None


def _first(differs: np.ndarray) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(int(np.argmax(differs)), differs.shape)))


def _place(where: str, place: Any) -> str:
    return f"{where}[{', '.join(str(int(index)) for index in place)}]" if len(place) else where


def _bytes(data: Any) -> bytes:
    return encode(data, allow_pickle=True)


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) < _LONGEST else text[:_LONGEST] + "..."
