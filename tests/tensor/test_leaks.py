"""After thousands of round trips everything is as it was: references, objects, memory."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import TensorMap, as_tensor
from headrace.tensor import TensorError, as_message
from tests.harness.producers import Interface
from tests.limits import THOROUGH
from tests.tensor.layouts import aligned

ROUNDS = 10_000 if THOROUGH else 5_000

# One object of Python kept in each round would be thousands of blocks. The smallest block of C would be 16 bytes a
# round, in each part of the rounds; what allocators set aside for later comes in some parts and not in others.
FEW_BLOCKS = 500
PARTS = 5
BYTES_A_ROUND = 4
BYTES_LATE = 100  # for each that a library may be late with
PAGE = os.sysconf("SC_PAGE_SIZE")  # the memory of a process grows by whole pages


def resident() -> int:
    """Return the bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class _MallInfo(ctypes.Structure):
    # arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost
    _fields_ = [("unused", ctypes.c_size_t * 4), ("mapped", ctypes.c_size_t)]
    _fields_ += [
        ("unused_too", ctypes.c_size_t * 2),
        ("in_use", ctypes.c_size_t),
        ("rest", ctypes.c_size_t * 2),
    ]


def allocated() -> int:
    """Return the bytes that malloc has given out, where the C library tells."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = _MallInfo
    told = ask()
    return int(told.in_use + told.mapped)


def check_nothing_is_left(
    owner: Any, turn: Callable[[], object], rounds: int = ROUNDS, late: int = 0
) -> None:
    """Take a turn so often; a library that frees on a thread of its own may be late with a few."""
    for _ in range(1000):  # what is made once, and the room that allocators take in advance
        turn()
    gc.collect()
    references, objects = sys.getrefcount(owner), len(gc.get_objects())
    blocks, memory = sys.getallocatedblocks(), [(resident(), allocated())]
    for _ in range(PARTS):
        for _ in range(rounds // PARTS):
            turn()
        memory.append((resident(), allocated()))
    assert sys.getrefcount(owner) - references <= late  # before any collection: nothing is in a cycle
    more_blocks = sys.getallocatedblocks() - blocks
    gc.collect()
    assert len(gc.get_objects()) - objects < FEW_BLOCKS
    assert more_blocks < FEW_BLOCKS + 50 * late
    for measured, slack in zip(zip(*memory, strict=True), (PAGE, 0), strict=True):
        limit = BYTES_A_ROUND * rounds // PARTS + slack + BYTES_LATE * late
        assert min(after - before for before, after in pairwise(measured)) <= limit


def fallible(turn: Callable[[], object], error: type[Exception]) -> Callable[[], None]:
    def failing() -> None:
        try:
            turn()
        except error:
            return
        pytest.fail("it should have been refused")

    return failing


array = np.arange(24, dtype=np.float32).reshape(4, 6)[::2]
interface = Interface("__array_interface__")
on_device = Interface(stream=1)
text = np.array(["x"])

TURNS: dict[str, tuple[Any, Callable[[], object]]] = {
    "DLPack": (array, lambda: np.from_dlpack(as_tensor(array))),
    "array interface": (array, lambda: np.asarray(as_tensor(array))),
    "array interface alone": (interface, lambda: np.asarray(as_tensor(interface))),
    "CUDA array interface": (
        on_device,
        lambda: as_tensor(as_tensor(on_device), stream=1).__cuda_array_interface__,
    ),
    "capsule": (array, lambda: np.from_dlpack(as_tensor(array.__dlpack__(max_version=(1, 0))))),
    "old capsule": (array, lambda: np.asarray(as_tensor(array.__dlpack__()))),
    "capsule that nobody takes": (array, lambda: as_tensor(array).__dlpack__()),
    "map": (array, lambda: as_message(TensorMap(x=array))),
    "refused dtype": (text, fallible(lambda: as_tensor(text), TensorError)),
    "refused object": (interface, fallible(lambda: as_tensor([interface]), TensorError)),
}


@pytest.mark.parametrize("way", TURNS)
def test_a_round_trip_leaves_nothing(way: str) -> None:
    owner, turn = TURNS[way]
    rounds = ROUNDS // 2 if "refused" in way else ROUNDS
    check_nothing_is_left(owner, turn, rounds)


def test_pytorch_leaves_nothing() -> None:
    torch = pytest.importorskip("torch")
    check_nothing_is_left(array, lambda: as_tensor(torch.from_dlpack(as_tensor(array))))
    owned = torch.arange(6).to(torch.bfloat16)
    check_nothing_is_left(owned, lambda: torch.from_dlpack(as_tensor(owned)), ROUNDS // 5)


def test_jax_leaves_nothing() -> None:
    pytest.importorskip("jax")
    import jax

    whole = aligned((4, 6), np.dtype("float32"))
    check_nothing_is_left(whole, lambda: as_tensor(jax.dlpack.from_dlpack(as_tensor(whole))), late=10)
    owned = jax.numpy.arange(6).astype("bfloat16")
    check_nothing_is_left(owned, lambda: jax.dlpack.from_dlpack(as_tensor(owned)), ROUNDS // 5, late=10)


def test_pyarrow_leaves_nothing() -> None:
    pa = pytest.importorskip("pyarrow")
    whole = np.arange(24)
    check_nothing_is_left(whole, lambda: as_tensor(pa.array(np.asarray(as_tensor(whole)))))
    owned = pa.array(range(10))
    check_nothing_is_left(owned, lambda: np.from_dlpack(as_tensor(owned)), ROUNDS // 5)


@pytest.mark.parametrize("kept", ["block of C", "object", "reference", "cycle"])
def test_what_is_left_would_be_noticed(kept: str) -> None:
    # The test of the tests.
    owner, left = np.zeros(3), []

    def turn() -> None:
        if kept == "block of C":
            ctypes.pythonapi.PyMem_RawMalloc(16)
        elif kept == "object":
            left.append(object())
        elif kept == "reference":
            left.append(owner)
        else:
            circle: list[Any] = [owner]
            circle.append(circle)

    with pytest.raises(AssertionError):
        check_nothing_is_left(owner, turn, ROUNDS // 5)
