"""PyArrow: arrays are immutable, which the capsules of older versions cannot express."""

from __future__ import annotations

from headrace.tensor.libraries.library import Library


class PyArrow(Library):
    """PyArrow's arrays."""

    name = "PyArrow"
    types = ("pyarrow",)
    is_immutable = True


LIBRARY = PyArrow()
