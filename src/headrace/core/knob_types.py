"""KnobType: the element type of a knob, and the bytes of its values.

A value on the host becomes bytes here, before anything touches the device: what does not fit is an error that says
why. A float loses digits in a smaller type, as everywhere, but it does not become infinite, and an integer does not
wrap around.
"""

from __future__ import annotations

import math
import numbers
import struct
import sys
from typing import TYPE_CHECKING, Any

from headrace.brief import brief

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

# The formats of `struct`, by NumPy's character: the same for most types.
_FORMATS = {**{char: char for char in "?bhiqBHIQefd"}, "l": "q", "L": "Q", "F": "ff", "D": "dd"}


class KnobType:
    """The element type of a knob.

    Parameters
    ----------
    dtype
        A dtype of NumPy or ml_dtypes, of PyTorch, or the name of one. Anything else raises ValueError.

    Attributes
    ----------
    dtype
        NumPy's dtype.
    name, size
        Its name, and the size of a value in bytes.
    """

    __slots__ = ("_as_it_is", "_kind", "_store", "dtype", "name", "size")

    def __init__(self, dtype: Any) -> None:
        self.dtype = _numpy_dtype(dtype)
        self.name: str = self.dtype.name
        self.size: int = self.dtype.itemsize
        self._kind = self.dtype.kind
        # How `struct` stores it, and the type of values that need no look before; None for types of ml_dtypes.
        self._store: Callable[..., bytes] | None = None
        self._as_it_is: type | None = None
        if self.dtype.type.__module__.partition(".")[0] == "ml_dtypes":
            self._kind = "f"
            is_known = self.name == "bfloat16" or self.name.startswith("float8")
        else:
            form = _FORMATS.get(self.dtype.char)
            is_known = form is not None and self.dtype.isnative
            self._store = struct.Struct(f"={form or ''}").pack
            self._as_it_is = {"f": float, "i": int, "u": int}.get(self._kind)
        if not is_known:
            raise ValueError(
                f"{dtype!r} is not a type of knobs: bool, integers, floats and complex numbers of 1 to 16 bytes in "
                "this machine's byte order, such as np.float32"
            )

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes; raise ValueError, which says why, if the type cannot hold it."""
        if type(value) is self._as_it_is:
            return self._pack(value, value)
        value = check_number(value)
        if self._kind == "c":
            return self._pack(value, *_parts_of(value))
        if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
            raise ValueError(
                f"{brief(value)} is complex, and {self.name} is not; use complex64 or complex128"
            )
        if self._kind == "f":
            return self._pack(value, _float_of(value))
        return self._pack(value, self._integer_of(value))

    def _integer_of(self, value: Any) -> int:
        """Return an integer of the same value."""
        if not isinstance(value, numbers.Integral):
            value = float(value)
            if not math.isfinite(value):
                raise ValueError(f"{brief(value)} is not a number that {self.name} holds: it holds integers")
            if not value.is_integer():
                raise ValueError(f"{brief(value)} is not an integer, and {self.name} holds no other numbers")
        number = int(value)
        if self._kind == "b" and number not in (0, 1):
            raise ValueError(f"{brief(value)} is neither True nor False")
        return number

    def _pack(self, value: Any, *parts: Any) -> bytes:
        if self._store is None:
            return self._round(value, *parts)
        try:
            return self._store(*parts)
        except (struct.error, OverflowError):
            raise ValueError(f"{brief(value)} does not fit into {self.name}: {self._range()}") from None

    def _round(self, value: Any, number: float) -> bytes:
        """Return a number as one of the types that only ml_dtypes defines."""
        import numpy as np

        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.array(number, np.float64).astype(self.dtype)
        if math.isfinite(number) and not math.isfinite(float(rounded)):
            raise ValueError(f"{brief(value)} does not fit into {self.name}")
        return rounded.tobytes()

    def _range(self) -> str:
        import numpy as np

        if self._kind in "iu":
            bounds = np.iinfo(self.dtype)
            return f"it holds {bounds.min} to {bounds.max}"
        return f"its largest number is {float(np.finfo(self.dtype).max)!r}"


def check_number(value: Any) -> Any:
    """Return a number, as Python's where NumPy has one of its own; raise ValueError for anything else."""
    if isinstance(value, (int, float)):
        return value
    found = value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        if value.dtype.type.__module__.partition(".")[0] == "ml_dtypes":
            found = float(value)
        elif value.dtype.kind in "biufc":
            found = value.item()
    if not isinstance(found, numbers.Complex):
        raise ValueError(
            f"a knob is a number, not an object of type {type(value).__name__!r} ({value!r:.80})"
        )
    return found


def _float_of(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value!r:.80} is too large for any float") from None


def _parts_of(value: Any) -> tuple[float, float]:
    if isinstance(value, numbers.Real):
        return _float_of(value), 0.0
    number = complex(value)
    return number.real, number.imag


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    import numpy as np

    if dtype is None:  # NumPy takes it as float64
        raise ValueError("None is not a type of knobs; name one, such as np.float32")
    name = str(dtype).rpartition(".")[2]  # PyTorch's names begin with that of its module
    for known in (dtype, name):
        try:
            found: np.dtype[Any] = np.dtype(known)
        except TypeError:
            continue
        return found
    try:
        import ml_dtypes

        other: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError, TypeError):
        raise ValueError(f"{dtype!r} is not a dtype; use one such as np.float32") from None
    return other
