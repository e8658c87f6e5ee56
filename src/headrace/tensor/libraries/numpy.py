"""NumPy: the owner of an array's memory is its last `base`; a masked array exports its data without the mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.tensor.libraries.library import Library


class NumPy(Library):
    """Arrays of NumPy, whose subclasses may export something else than the array."""

    name = "NumPy"
    types = ("numpy.ndarray",)
    holds_objects = True
    uncapturable = (
        "an array in memory of the host, whose contents would stay what they were when the segment was captured; "
        "copy it to the device before the segment"
    )

    def for_type(self, kind: type) -> Library:
        """Return the library of arrays, of their subclasses, or of masked arrays."""
        if kind is np.ndarray:
            return _EXACT
        return _MASKED if any(base.__module__.startswith("numpy.ma") for base in kind.__mro__) else self

    def owner(self, array: Any) -> Any:
        """Return the last base."""
        base = array.base
        while base is not None:
            array = base
            # An object that lends its memory to an array may also have a `base`, with another meaning.
            base = array.base if isinstance(array, np.ndarray) else None
        return array

    def begin(self, array: Any) -> int:
        """Return the address of the outermost array."""
        while isinstance(array.base, np.ndarray):
            array = array.base
        return int(array.__array_interface__["data"][0])


class _Exact(NumPy):
    view = staticmethod(np.ndarray.view)


class _Masked(NumPy):
    refusal = (
        "it is a masked array, and a tensor has no mask: use array.filled(value), or array.data and "
        "numpy.ma.getmaskarray(array) as two arrays"
    )


LIBRARY = NumPy()
_EXACT = _Exact()
_MASKED = _Masked()
