"""A value of the program in one short line, for messages to people."""

from __future__ import annotations

import reprlib
from typing import Any


def brief(value: Any) -> str:
    """Return a text for any value that is short and says what it is; never raise.

    An array is its type, shape and dtype; what contains many elements is its first ones.
    """
    return _brief.repr(value)


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = 20
        self.maxstring = self.maxother = self.maxlong = 200
        self.maxlevel = 4

    def repr1(self, x: Any, level: int) -> str:
        try:
            shape = getattr(x, "shape", ())
            if isinstance(shape, tuple) and shape and hasattr(x, "dtype"):
                name = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}"
                return f"<{name} of shape {tuple(shape)}, {x.dtype}>"
            return super().repr1(x, level)
        except Exception:  # of the object's own code
            return f"<{type(x).__module__}.{type(x).__qualname__} that cannot be shown>"


_brief = _Brief()
