"""The resize of FormatConverterOp: every mode against OpenCV, Pillow or its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.operators import FormatConverterOp
from headrace.testing import run_operator
from tests.operators.cases import Array, random, without_opencv

MODES = (1, 2, 4, 5, 6, 7, 8, 16, 17)


def resize(frame: Array, rows: int, columns: int, mode: int = 0, **params: Any) -> Array:
    """Return a frame in another size."""
    channels = frame.shape[2] if frame.ndim == 3 else 1
    given_params = {"out_dtype": {1: "uint8", 3: "rgb888", 4: "rgba8888"}[channels], **params}
    (message,) = run_operator(
        FormatConverterOp,
        inputs=[frame],
        resize_height=rows,
        resize_width=columns,
        resize_mode=mode,
        **given_params,
    )["tensor"]
    (tensor,) = message.values()
    return np.asarray(tensor)


def random_sizes(seed: int, mode: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return random sizes before and after, whole multiples and one pixel among them."""
    source = np.random.default_rng(seed)
    before, after = (tuple(int(size) for size in source.integers(1, 90, 2)) for _ in range(2))
    if seed % 4 == 0:
        after = tuple(size * int(source.integers(1, 4)) for size in before)
    if seed % 4 == 1 or mode == 8:
        after = tuple(max(1, size // int(source.integers(1, 9))) for size in before)
    return (before[0], before[1]), (after[0], after[1])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("mode", "name"), [(1, "NEAREST_EXACT"), (2, "LINEAR_EXACT"), (4, "CUBIC"), (8, "AREA"), (16, "LANCZOS4")]
)
def test_a_mode_agrees_with_opencv_for_random_pictures_and_sizes(mode: int, name: str, seed: int) -> None:
    """OpenCV's weights of bytes have 11 binary digits, and ours 24: that is 1."""
    cv2 = pytest.importorskip("cv2")
    before, after = random_sizes(seed, mode)
    picture = random(np.uint8, *before, 3, seed=seed)
    expected = cv2.resize(picture, after[::-1], interpolation=getattr(cv2, f"INTER_{name}"))
    results = [resize(picture, *after, mode)]
    with without_opencv():
        results.append(resize(picture, *after, mode))
    for result in results:
        difference = np.abs(result.astype(int) - expected)
        if (
            mode == 1
        ):  # exactly between two pixels both are the nearest; OpenCV takes either, and we the second
            for axis in (0, 1):
                middles = (2 * np.arange(after[axis]) + 1) * before[axis] % (2 * after[axis]) == 0
                difference = np.delete(difference, np.flatnonzero(middles), axis)
        assert difference.max(initial=0) <= (0 if mode == 1 else 1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", MODES)
def test_on_the_host_opencv_differs_from_a_gpu_by_at_most_1(mode: int, seed: int) -> None:
    pytest.importorskip("cv2")
    before, after = random_sizes(seed, mode)
    picture = random(np.uint8, *before, (1, 3, 4)[seed % 3], seed=seed)
    fast = resize(picture, *after, mode)
    with without_opencv():
        exact = resize(picture, *after, mode)
    known = mode in (2, 4, 8, 16)
    assert np.abs(fast.astype(int) - exact).max() <= (1 if known else 0)


def test_the_nearest_of_two_equally_near_pixels_is_the_second() -> None:
    picture = np.arange(4, dtype=np.uint8)[None].repeat(2, axis=0)
    expected = [[1, 3]]
    assert resize(picture, 1, 2, 1)[..., 0].tolist() == expected
    with without_opencv():
        assert resize(picture, 1, 2, 1)[..., 0].tolist() == expected


def lanczos(x: float) -> float:
    return float(np.sinc(x) * np.sinc(x / 3)) if abs(x) < 3 else 0.0


@pytest.mark.parametrize(("before", "after"), [((5, 6), (7, 9)), ((9, 7), (4, 3)), ((2, 8), (5, 2))])
def test_lanczos_with_three_lobes_follows_its_formula(
    before: tuple[int, int], after: tuple[int, int]
) -> None:
    picture = random(np.uint8, *before)
    tables = []
    for source, target in zip(before, after, strict=True):
        scale = source / target
        table = np.array(
            [
                [lanczos(((row + 0.5) * scale - 0.5 - place) / max(scale, 1)) for place in range(source)]
                for row in range(target)
            ]
        )
        tables.append(table / table.sum(axis=1, keepdims=True))
    expected = np.clip(tables[0] @ picture.astype(float) @ tables[1].T, 0, 255)
    assert np.abs(resize(picture, *after, 17)[..., 0] - expected).max() <= 0.501


def two_parameters(b: float, c: float, x: float) -> float:
    """Return the weight of the cubic of Mitchell and Netravali, term by term."""
    x = abs(x)
    if x < 1:
        return ((12 - 9 * b - 6 * c) * x**3 + (-18 + 12 * b + 6 * c) * x**2 + (6 - 2 * b)) / 6
    if x < 2:
        return ((-b - 6 * c) * x**3 + (6 * b + 30 * c) * x**2 + (-12 * b - 48 * c) * x + 8 * b + 24 * c) / 6
    return 0.0


@pytest.mark.parametrize(("mode", "b", "c"), [(5, 1, 0), (6, 0, 0.5), (7, 0.5, 0.3)])
@pytest.mark.parametrize(("rows", "columns"), [(7, 9), (4, 3)])
def test_a_cubic_of_two_parameters_follows_its_formula(
    mode: int, b: float, c: float, rows: int, columns: int
) -> None:
    picture = random(np.uint8, 5, 6)
    expected = np.zeros((rows, columns))
    for row in range(rows):
        for column in range(columns):
            y, x = (row + 0.5) * 5 / rows - 0.5, (column + 0.5) * 6 / columns - 0.5
            for i in range(int(np.floor(y)) - 1, int(np.floor(y)) + 3):
                for j in range(int(np.floor(x)) - 1, int(np.floor(x)) + 3):
                    weight = two_parameters(b, c, y - i) * two_parameters(b, c, x - j)
                    expected[row, column] += weight * picture[np.clip(i, 0, 4), np.clip(j, 0, 5)]
    result = resize(picture, rows, columns, mode)[..., 0]
    assert np.abs(result - np.clip(expected, 0, 255)).max() <= 0.501


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0)])
def test_a_picture_is_resized_only_if_both_sizes_are_given(rows: int, columns: int) -> None:
    picture = random(np.uint8, 9, 11, 3)
    np.testing.assert_array_equal(resize(picture, rows, columns), picture)


def test_super_sampling_makes_nothing_larger() -> None:
    with pytest.raises(ValueError, match=r"resize_mode=8 .* from 4×9 to 5×5 use another mode"):
        resize(random(np.uint8, 4, 9, 3), 5, 5, 8)
