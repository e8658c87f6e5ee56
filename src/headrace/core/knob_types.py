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
    import numpy as np


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

    __slots__ = ("_kind", "dtype", "name", "size")

    def __init__(self, dtype: Any) -> None:
        self.dtype = _numpy_dtype(dtype)
        self.name: str = self.dtype.name
        self.size: int = self.dtype.itemsize
        self._kind = self.dtype.kind
        if _is_of_ml_dtypes(self.dtype):
            self._kind = "f"
            is_known = self.name == "bfloat16" or self.name.startswith("float8")
        else:
            is_known = self.dtype.char in "?bhilqBHILQefdFD" and self.dtype.isnative
        if not is_known:
            raise ValueError(
                f"{dtype!r} is not a type of knobs: bool, integers, floats and complex numbers of 1 to 16 bytes in "
                "this machine's byte order, such as np.float32"
            )

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes; raise ValueError, which says why, if the type cannot hold it."""
        number = check_number(value)
        if self._kind != "c" and not isinstance(number, numbers.Real):
            raise ValueError(
                f"{brief(number)} is complex, and {self.name} is not; use complex64 or complex128"
            )
        return self._integer(number) if self._kind in "biu" else self._float(number)

    def _integer(self, value: Any) -> bytes:
        if not isinstance(value, numbers.Integral):
            value = float(value)
            if not math.isfinite(value):
                raise ValueError(f"{brief(value)} is not a number that {self.name} holds: it holds integers")
            if not value.is_integer():
                raise ValueError(f"{brief(value)} is not an integer, and {self.name} holds no other numbers")
        if self._kind == "b" and value not in (0, 1):
            raise ValueError(f"{brief(value)} is neither True nor False")
        try:
            return int(value).to_bytes(self.size, sys.byteorder, signed=self._kind == "i")
        except OverflowError:
            raise ValueError(f"{brief(value)} does not fit into {self.name}: {self._range()}") from None

    def _float(self, value: Any) -> bytes:
        import numpy as np

        try:
            number = complex(value) if self._kind == "c" else float(value)
        except OverflowError:
            raise ValueError(f"{value!r:.80} is too large for any float") from None
        if self.dtype.char in "efd":  # a tenth of NumPy's time, which a knob takes for every frame
            try:
                return struct.pack(f"={self.dtype.char}", number)
            except OverflowError:
                raise ValueError(f"{brief(value)} does not fit into {self.name}: {self._range()}") from None
        wide = np.array(number)
        with np.errstate(over="ignore", invalid="ignore"):
            stored = wide.astype(self.dtype)
            if np.isfinite(wide) and not np.isfinite(stored.astype(wide.dtype)):
                raise ValueError(f"{brief(value)} does not fit into {self.name}: {self._range()}")
        return stored.tobytes()

    def _range(self) -> str:
        import numpy as np

        if self._kind in "iu":
            bounds = np.iinfo(self.dtype)
            return f"it holds {bounds.min} to {bounds.max}"
        if _is_of_ml_dtypes(self.dtype):
            return "its largest number is smaller"
        return f"its largest number is {float(np.finfo(self.dtype).max)!r}"


def _is_of_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    return dtype.type.__module__.partition(".")[0] == "ml_dtypes"


def check_number(value: Any) -> Any:
    """Return a number, as Python's where NumPy has one of its own; raise ValueError for anything else."""
    if isinstance(value, (int, float)):
        return value
    found = value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        if _is_of_ml_dtypes(value.dtype):
            found = float(value)
        elif value.dtype.kind in "biufc":
            found = value.item()
    if not isinstance(found, numbers.Complex):
        raise ValueError(
            f"a knob is a number, not an object of type {type(value).__name__!r} ({value!r:.80})"
        )
    return found


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
