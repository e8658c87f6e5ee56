"""Every mixture of indices reads and assigns what it does in NumPy, those that the standard leaves open too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.gpu import sim
from headrace.gpu.sim import arrays as xp


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return integers, slices, arrays, masks, new dimensions and an Ellipsis, for some of the dimensions."""
    wide = [(), (2,), (3,), (2, 1), (1, 3)][rng.integers(5)]
    parts: list[Any] = []
    left = list(shape)
    while left and rng.random() < 0.85:
        form = rng.choice(["number", "slice", "array", "mask", "new"])
        if form == "new":
            parts.append(None)
            continue
        size = rng.integers(1, len(left) + 1) if form == "mask" else 1
        extents, left = left[:size], left[size:]
        extent = extents[0]
        if form == "number":
            parts.append(int(rng.integers(-extent, extent)))
        elif form == "slice":
            parts.append(slice(rng.integers(3) or None, None, int(rng.choice([1, 2, -1]))))
        else:
            is_mask = form == "mask"
            parts.append(rng.random(extents) < 0.6 if is_mask else rng.integers(-extent, extent, wide))
    if left and rng.random() < 0.3:
        parts.append(...)
    return tuple(parts)


def on_device(value: Any) -> Any:
    return xp.asarray(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("seed", range(4))
def test_an_index_reads_and_assigns_what_it_does_in_numpy(machine: sim.Machine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    checked = 0
    for _ in range(150):
        shape = tuple(rng.integers(1, 5, rng.integers(1, 5)).tolist())
        values = np.arange(np.prod(shape)).reshape(shape)
        key = drawn(rng, shape)
        array, ours = xp.asarray(values), tuple(map(on_device, key))
        try:
            expected = values[key].copy()
        except IndexError:
            with pytest.raises(IndexError):
                array[ours]
            continue
        found = array[ours].get()
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
        given = rng.integers(100, 200, [(), expected.shape][rng.integers(2)])
        values[key] = given
        array[ours] = on_device(given)
        np.testing.assert_array_equal(array.get(), values)
        checked += 1
    assert checked > 100


def test_a_list_without_elements_selects_none(machine: sim.Machine) -> None:
    array = xp.ones((2, 3))
    assert array[[]].shape == (0, 3)
    array[:, []] = 7
    assert (array == 1).all()


def test_an_array_without_dimensions_flips_to_a_view_of_it(machine: sim.Machine) -> None:
    array = xp.asarray(3)
    view = xp.flip(array)
    array[...] = 5
    assert view.shape == ()
    assert int(view) == 5
