"""Outputs of networks: the class of each pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.operators.arrays import Routine

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 15  # pixels at a time, so that they stay in the processor's cache


def _classify(out: Array, scores: Array, pixels: int, channels: int, is_planar: int, is_sigmoid: int) -> None:
    planes = scores.reshape(channels, pixels) if is_planar else scores.reshape(pixels, channels).T
    labels = out.reshape(-1)
    if is_sigmoid:
        np.greater_equal(planes[0], np.float32(0.5), out=labels.view(np.bool_))
        return
    labels[:] = 0
    for begin in range(0, int(pixels), _CHUNK):
        chosen = labels[begin : begin + _CHUNK]
        best = np.full(len(chosen), -np.inf, np.float32)
        for channel, plane in enumerate(planes[:, begin : begin + _CHUNK]):
            is_better = plane > best  # false for NaN
            np.fmax(best, plane, out=best)
            # Later channels have larger numbers, so the last one that is better is the largest.
            np.maximum(chosen, is_better.view(np.uint8) * np.uint8(channel), out=chosen)


CLASSIFY = Routine("classify", _classify)
"""The channel with the largest score, the first of equal ones; or, of a sigmoid, whether channel 0 is at least 0.5.

NaN is never the largest.
"""
