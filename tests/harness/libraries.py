"""What is to be known of other libraries before a test uses them."""

from __future__ import annotations

import numpy as np


def numba_works() -> bool:
    """Return whether Numba, if it is there, works with this NumPy: 0.68 needs a name that NumPy 2.5 has no more."""
    return hasattr(np, "row_stack")
