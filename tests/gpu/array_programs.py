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


# Programs as people write them for NumPy and CuPy. Each takes a module, and returns arrays.


def sobel(xp: Any) -> Any:
    image = xp.arange(48 * 64, dtype=xp.float32).reshape(48, 64) % 17
    padded = xp.pad(image, 1, mode="edge")
    gx = padded[:-2, 2:] + 2 * padded[1:-1, 2:] + padded[2:, 2:]
    gx -= padded[:-2, :-2] + 2 * padded[1:-1, :-2] + padded[2:, :-2]
    gy = padded[2:, :-2] + 2 * padded[2:, 1:-1] + padded[2:, 2:]
    gy -= padded[:-2, :-2] + 2 * padded[:-2, 1:-1] + padded[:-2, 2:]
    return xp.hypot(gx, gy), xp.arctan2(gy, gx).mean()


def median_filter(xp: Any) -> Any:
    image = (xp.arange(40 * 40) * 7919 % 251).astype(xp.uint8).reshape((40, 40))
    shifted = [image[i : 38 + i, j : 38 + j] for i in range(3) for j in range(3)]
    return xp.median(xp.stack(shifted, axis=0), axis=0)


def spectrum(xp: Any) -> Any:
    time = xp.linspace(0, 1, 512, endpoint=False)
    signal = xp.sin(2 * xp.pi * 50 * time) + 0.5 * xp.sin(2 * xp.pi * 120 * time)
    power = xp.abs(xp.fft.rfft(signal * xp.hanning(512))) ** 2
    frequencies = xp.fft.rfftfreq(512, d=1 / 512)
    return frequencies[xp.argsort(power)[-2:]], power.sum(), xp.fft.irfft(xp.fft.rfft(signal), n=512)


def statistics(xp: Any) -> Any:
    x = xp.array([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]], dtype=xp.float64)
    found = [x.sum(), x.mean(axis=0), x.std(axis=1, ddof=1), x.var(), x.min(axis=1), x.max(), x.prod(axis=1)]
    return (
        *found,
        x.argmax(axis=1),
        xp.percentile(x, 25),
        xp.cumsum(x, axis=1),
        xp.ptp(x),
        xp.average(x, axis=0),
    )


def in_place(xp: Any) -> Any:
    x = xp.zeros((4, 5), xp.int32)
    x += 3
    x[1:3] *= 2
    x[:, ::2] -= 1
    x[x > 3] //= 2
    x |= 8
    xp.add(x, 1, out=x)
    y = x.copy()
    y.fill(7)
    y.sort(axis=1)
    return x, y


def views(xp: Any) -> Any:
    x = xp.arange(24).reshape(2, 3, 4)
    x.transpose(2, 0, 1)[0] = -1
    x.swapaxes(0, 1)[1, 0] += 100
    left, right = xp.split(x.reshape(6, 4), 2)
    left[0] = right[0]
    return x, x[0].T, x.ravel(), xp.flipud(x[0]), x[..., None, 1], x.flatten()[::-3]


def promotion(xp: Any) -> Any:
    small, wide, real = xp.ones(3, xp.uint8), xp.ones(3, xp.int32), xp.ones(3, xp.float32)
    return (
        small + wide,
        wide * 1.5,
        real * 2,
        real + wide,
        small + 1,
        xp.float32(2) * small,
        small / small,
        real // 2,
    )


def scalars(xp: Any) -> Any:
    x = xp.arange(10.0)
    norm = float(xp.sqrt((x * x).sum()))
    count = int((x > 3).sum())
    assert x.max() == 9
    assert f"{float(x[2]):.1f}" == "2.0"
    assert x.tolist()[3] == x[3].item() == 3
    return x / norm, xp.full((2, 2), count), xp.where(x > count, x, -x)


def nothing(xp: Any) -> Any:
    x = xp.zeros((0, 3), dtype=xp.float32)
    return (
        x.sum(axis=0),
        x.sum(),
        xp.concatenate((x, xp.ones((2, 3), xp.float32))),
        x.reshape(3, 0),
        x * 2,
        x.T @ x,
    )


def big(xp: Any) -> Any:
    x = xp.ones((1 << 12, 1 << 11), dtype=xp.float32)
    x[::2] *= 3
    return x.sum(axis=1)[:4], x.mean(), x[-1, -1]


def fancy(xp: Any) -> Any:
    x = xp.arange(30).reshape(5, 6)
    rows, columns = xp.array([0, 2, 4]), xp.array([1, 3, 5])
    x[rows, columns] = -1
    x[rows[:, None], xp.array([0, 2])] += 50
    x[[1, 3]] = x[[3, 1]]
    return (
        x,
        x[rows],
        x[:, columns],
        x[rows, columns],
        x[x % 2 == 0],
        xp.take(x, columns, axis=1),
        x[..., rows],
    )


def k_means(xp: Any) -> Any:
    points = xp.stack([xp.sin(xp.arange(60.0) * 3), xp.cos(xp.arange(60.0) * 7)], axis=1)
    centers = points[:4].copy()
    for _ in range(5):
        distances = ((points[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
        labels = distances.argmin(axis=1)
        for number in range(4):
            mine = points[labels == number]
            if len(mine) > 0:
                centers[number] = mine.mean(axis=0)
    return centers, xp.bincount(labels, minlength=4)


def normal_equations(xp: Any) -> Any:
    x = xp.linspace(-1, 1, 50)
    design = xp.vstack([xp.ones_like(x), x, x**2]).T
    target = 3 - 2 * x + 0.5 * x**2
    solved = xp.linalg.solve(design.T @ design, design.T @ target)
    return solved, xp.dot(design, solved), xp.einsum("ij,j->i", design, solved), xp.linalg.norm(solved)


def histogram(xp: Any) -> Any:
    values = (xp.arange(1000) * 7919) % 256
    counts, edges = xp.histogram(values, bins=16)
    cumulative = counts.cumsum()
    equalized = xp.interp(values.astype(xp.float64), edges[:-1], cumulative / cumulative[-1])
    unique, times = xp.unique(values, return_counts=True)
    return counts, edges, equalized, unique, times, xp.argwhere(counts > 62)


def heat(xp: Any) -> Any:
    field = xp.zeros((32, 32))
    field[12:20, 12:20] = 100.0
    for _ in range(20):
        around = xp.roll(field, 1, 0) + xp.roll(field, -1, 0) + xp.roll(field, 1, 1) + xp.roll(field, -1, 1)
        field = field + 0.2 * (around - 4 * field)
    assert xp.allclose(field.sum(), 6400.0)
    return (
        field,
        xp.isclose(field, field.T).all(),
        xp.nan_to_num(field / (field - field)),
        xp.clip(field, 1, 5),
    )


STRANGERS: dict[str, Callable[[Any], Any]] = {
    program.__name__: program
    for program in (
        *(
            sobel,
            median_filter,
            spectrum,
            statistics,
            in_place,
            views,
            promotion,
            scalars,
            nothing,
            big,
            fancy,
        ),
        *(k_means, normal_equations, histogram, heat),
    )
}


def on_host(array: Any) -> Any:
    """Return what a program returned as an array of NumPy."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def compare(program: Callable[[Any], Any], xp: Any) -> None:
    """Compare what a module gives with what NumPy gives."""
    with np.errstate(all="ignore"):
        expected = program(np)
    found = program(xp)
    for one, other in zip(
        found if isinstance(found, tuple) else (found,),
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    ):
        one, other = on_host(one), on_host(other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
