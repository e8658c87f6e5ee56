"""Ten programs on arrays, by names that NumPy, CuPy and the arrays of a simulated device share.

Each is a function of a module and of its inputs, which `inputs_of` makes on the host for a number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Program = Callable[..., Any]
ROWS = 4096  # of 4096 elements: 64 MiB of float32


def _normal(rows: int) -> Any:
    return np.random.default_rng(7).normal(size=(rows, rows)).astype(np.float32)


def scale_and_add(xp: Any, x: Any, y: Any) -> Any:
    return 2 * x + y


def normalize(xp: Any, x: Any, y: Any) -> Any:
    return (x - xp.mean(x, axis=-1, keepdims=True)) / xp.std(x, axis=-1, keepdims=True)


def softmax(xp: Any, x: Any, y: Any) -> Any:
    powers = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def product(xp: Any, x: Any, y: Any) -> Any:
    return x @ y


def sort(xp: Any, x: Any, y: Any) -> Any:
    return xp.sort(xp.reshape(x, (-1,)))


def transform(xp: Any, x: Any, y: Any) -> Any:
    return xp.abs(xp.fft.fft(x))


def blur(xp: Any, x: Any, y: Any) -> Any:
    rows = (x[:-2, :] + x[1:-1, :] + x[2:, :]) / 3
    return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 3


def threshold(xp: Any, x: Any, y: Any) -> Any:
    bright = x > 0.5
    return xp.sum(xp.where(bright, x, xp.zeros_like(x)), axis=0)


def gather(xp: Any, x: Any, y: Any) -> Any:
    places = xp.reshape(xp.arange(x.shape[0] * x.shape[1]), x.shape)
    mixed = (places * 7919) % (x.shape[0] * x.shape[1])
    return xp.take(xp.reshape(x, (-1,)), mixed, axis=0)


def many_small(xp: Any, x: Any, y: Any) -> Any:
    total = x[0, :64]
    for row in range(1, 21):
        total = total + x[row, :64]
    return total


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        *(scale_and_add, normalize, softmax, product, sort, transform, blur, threshold, gather, many_small),
    )
}


def inputs_of(rows: int) -> tuple[Any, Any]:
    """Return the inputs of every program, on the host."""
    x = _normal(rows)
    return x, np.ascontiguousarray(x[::-1])
