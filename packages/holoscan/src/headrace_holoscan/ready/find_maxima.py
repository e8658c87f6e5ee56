"""The place where each channel of a heat map is largest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.operators.bases import Routine

Array = np.ndarray[Any, Any]

THREADS_PER_CHANNEL = 256  # a block


def _find_maxima(out: Array, maps: Array, rows: int, columns: int, channels: int) -> None:
    planes = maps.reshape(-1, channels)
    places = np.where(np.isnan(planes), np.float32(-np.inf), planes).argmax(axis=0)
    found = out.reshape(channels, 2)
    found[:, 0] = (places // columns).astype(np.float32) / np.float32(rows)
    found[:, 1] = (places % columns).astype(np.float32) / np.float32(columns)


FIND_MAXIMA = Routine("find_maxima", _find_maxima, folder=Path(__file__).parent)
"""For each channel the row and the column of its maximum, in [0, 1); the first of equal ones, and NaN never.

A block of 256 threads per channel.
"""
