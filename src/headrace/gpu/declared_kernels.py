"""The kernels that a program has declared, for the simulated Program, and the type of their parameters."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P", default=...)
    """The parameters of a kernel. A kernel without known parameters accepts any arguments."""
else:
    from typing import ParamSpec

    P = ParamSpec("P")  # before Python 3.13 it has no default

declared: weakref.WeakValueDictionary[tuple[str, str], Any] = weakref.WeakValueDictionary()
"""The kernels (:class:`headrace.gpu.kernel`) that are still referenced, by their source and name."""
