"""Which memory its library gives only to work that comes later on the stream on which it was allocated."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import as_tensor, gpu
from headrace.gpu import sim
from headrace.tensor import libraries
from headrace.tensor.libraries import find_library, is_reused_in_order
from tests.harness.libraries import stand_in


def is_in_order(array: Any) -> bool:
    return is_reused_in_order(find_library(type(array)).owner(array))


def test_memory_of_pytorch_is_not_reused_in_order_on_the_host_or_if_it_belongs_to_another_library() -> None:
    torch = pytest.importorskip("torch")
    assert not is_in_order(torch.zeros(3))
    assert not is_in_order(torch.from_numpy(np.zeros(3)))
    assert not is_in_order(torch.from_dlpack(np.zeros(3)))
    assert not is_in_order(torch.from_dlpack(as_tensor(np.zeros(3))))
    assert not is_in_order(torch.frombuffer(bytearray(8), dtype=torch.uint8))


def test_memory_of_jax_is_not_reused_in_order() -> None:
    jax = pytest.importorskip("jax")
    assert not is_in_order(jax.numpy.zeros(3))


def test_memory_of_other_kinds_is_not_reused_in_order(machine: sim.Machine) -> None:
    assert not is_in_order(np.zeros(3))
    assert not is_in_order(as_tensor(np.zeros(3)))
    assert not is_in_order(gpu.Device(0).allocate(8, stream=gpu.Device(0).create_stream()))
    assert not is_reused_in_order(object())


class Memory:
    """Memory of CuPy that no pool has."""


class PooledMemory(Memory):
    """Memory of a pool of CuPy."""


class UnownedMemory(Memory):
    """Memory of another library."""


@pytest.mark.parametrize(("setting", "is_ordered"), [(None, True), ("0", True), ("1", False)])
def test_memory_of_a_pool_of_cupy_is_reused_in_order_unless_each_thread_has_a_default_stream(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, is_ordered: bool
) -> None:
    """CUDA does not order the default stream of a thread with the streams of a run."""
    if setting is None:
        monkeypatch.delenv("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", raising=False)
    else:
        monkeypatch.setenv("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", setting)
    for known in ("owner_sizes", "reused_in_order"):
        monkeypatch.setattr(libraries, known, {})
    monkeypatch.setattr(libraries, "NEVER_ALLOCATED", set())
    memory: Any = ModuleType("cupy.cuda.memory")
    memory.Memory, memory.PooledMemory = Memory, PooledMemory
    monkeypatch.setitem(sys.modules, "cupy.cuda.memory", memory)

    class ndarray:
        __module__ = "cupy"

        def __init__(self, mem: Any) -> None:
            self.data = SimpleNamespace(mem=mem)

    stand_in(monkeypatch, "cupy", cuda=SimpleNamespace(get_current_stream=None), ndarray=ndarray)
    assert is_in_order(ndarray(PooledMemory())) is is_ordered
    assert not is_in_order(ndarray(Memory()))
    assert not is_in_order(ndarray(UnownedMemory()))
