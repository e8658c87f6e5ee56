"""Arrays in device memory: their layout, arrays at an address, new arrays, and pools of a library's own."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import as_tensor, gpu
from headrace.gpu import sim
from headrace.tensor.device_arrays import Layout, PrivateMemory, Unsupported, kind_of, layout_of, span_of
from headrace.tensor.libraries import library_of
from tests.harness.libraries import stand_in


def stream() -> gpu.StreamHandle:
    return gpu.StreamHandle(sim.Device(0).create_stream())


def buffer(size: int = 24) -> Any:
    return sim.Device(0).allocate(size, stream=sim.Device(0).default_stream)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("make", [buffer, lambda: as_tensor(buffer())])
def test_an_array_at_the_address_of_another_is_like_it(make: Any) -> None:
    array = make()
    layout = layout_of(array)
    address = layout.kind.address(array)
    assert span_of(array) == (address, address + 24)
    owner = array if kind_of(array).name == "cuda.core" else array.owner  # type: ignore[union-attr]
    other = layout.kind.at(layout, address, owner)
    assert other is not array
    assert layout_of(other) == layout
    assert span_of(other) == span_of(array)
    assert layout.kind.matching(layout)(other)
    assert layout_of(layout.kind.aliasing(layout, array)(owner)) == layout


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("make", [buffer, lambda: as_tensor(buffer())])
def test_a_new_array_has_the_same_layout_and_memory_of_its_own(make: Any) -> None:
    array, own = make(), stream()
    layout = layout_of(array)
    new = layout.kind.new(layout, own)
    assert layout_of(new) == layout
    assert span_of(new) != span_of(array)


@pytest.mark.usefixtures("machine")
def test_the_bytes_of_an_array_reach_from_its_first_to_its_last() -> None:
    layout = layout_of(as_tensor(buffer()))
    for shape, strides, extent, has_gaps in (
        ((4, 2), (4, 1), (0, 14), True),
        ((4,), (-2,), (6, 7), True),
        ((2, 3), (3, 1), (0, 6), False),
        ((0, 3), (3, 1), (0, 0), False),
    ):
        seen: Layout = layout._replace(shape=shape, strides=strides)
        assert seen.kind.extent(seen) == extent
        assert seen.has_gaps == has_gaps


def test_memory_of_the_host_is_refused_with_what_it_is(machine: sim.Machine) -> None:
    with pytest.raises(Unsupported, match=r"a tensor in memory of the host \(cpu\)"):
        layout_of(as_tensor(np.zeros(3)))
    with pytest.raises(Unsupported, match="a buffer in memory of the host"):
        layout_of(gpu.LegacyPinnedMemoryResource().allocate(8))
    assert kind_of(np.zeros(3)) is None
    assert "copy it to the device" in (library_of(np.ndarray).uncapturable or "")


def test_pytorch_tensors_are_refused_with_what_they_are() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(Unsupported, match="a PyTorch tensor on cpu"):
        layout_of(torch.zeros(3))


def test_jax_cannot_be_captured() -> None:
    jax = pytest.importorskip("jax")
    assert "streams of its own" in (library_of(type(jax.numpy.zeros(3))).uncapturable or "")


def test_private_memory_is_a_new_pool_of_each_library_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []

    @contextmanager
    def using(pool: Any, *device: int) -> Any:
        used.append((pool, *device))
        yield
        used.remove((pool, *device))

    cuda = SimpleNamespace(get_current_stream=None, using_allocator=using, MemoryPool=Pool)
    stand_in(monkeypatch, "cupy", cuda=cuda)
    torch = SimpleNamespace(current_stream=None, is_available=lambda: True, use_mem_pool=using, MemPool=Pool)
    stand_in(monkeypatch, "torch", cuda=torch)
    memory, other = PrivateMemory(1, runs_cuda=True), PrivateMemory(1, runs_cuda=True)
    with memory:
        first = list(used)
        assert [len(entry) for entry in first] == [1, 2]
        with memory, other:
            assert used[:2] == used[2:4] == first, "it may be entered again"
            assert not set(used[4:]) & set(first), "each has pools of its own"
        assert used == first
    assert not used
    with PrivateMemory(0, runs_cuda=False):
        assert not used


class Pool:
    """A pool of a library."""

    @property
    def malloc(self) -> Any:
        return self
