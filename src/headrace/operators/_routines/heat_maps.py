"""Where each channel of a heat map is largest."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.operators.arrays import Routine

__all__ = ["FIND_MAXIMA", "THREADS_PER_CHANNEL"]

THREADS_PER_CHANNEL = 256  # a block

_SOURCE = r"""
extern "C" __global__ void find_maxima(float* out, const float* maps, int rows, int columns, int channels) {
    __shared__ float values[256];
    __shared__ long long places[256];
    int channel = blockIdx.x, own = threadIdx.x;
    long long pixels = (long long)rows * columns;
    float best = __int_as_float(0xff800000);  // minus infinity
    long long place = 0;
    for (long long pixel = own; pixel < pixels; pixel += 256) {
        float value = maps[pixel * channels + channel];
        if (value > best) {
            best = value;
            place = pixel;
        }
    }
    values[own] = best;
    places[own] = place;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (own < half) {
            float other = values[own + half];
            long long there = places[own + half];
            if (other > values[own] || (other == values[own] && there < places[own])) {
                values[own] = other;
                places[own] = there;
            }
        }
    }
    if (own == 0) {
        out[2 * channel] = __fdiv_rn((float)(places[0] / columns), (float)rows);
        out[2 * channel + 1] = __fdiv_rn((float)(places[0] % columns), (float)columns);
    }
}
"""


def _find_maxima(
    out: np.ndarray[Any, Any], maps: np.ndarray[Any, Any], rows: int, columns: int, channels: int
) -> None:
    planes = maps.reshape(-1, channels)
    places = np.where(np.isnan(planes), np.float32(-np.inf), planes).argmax(axis=0)
    found = out.reshape(channels, 2)
    found[:, 0] = (places // columns).astype(np.float32) / np.float32(rows)
    found[:, 1] = (places % columns).astype(np.float32) / np.float32(columns)


FIND_MAXIMA = Routine("find_maxima", _SOURCE, _find_maxima)
"""For each channel the row and the column of its maximum, in [0, 1); the first of equal ones, and NaN never.

A block of 256 threads per channel.
"""
