"""Round trips under the checks of CPython's allocator, AddressSanitizer and Valgrind.

The reads of capsules and the call of a deleter are the only places where headrace touches memory by address.
Here they run under each checker in a process of their own, first as they are, which must pass, and then each with
a fault planted in the memory of a capsule, which that checker must catch: a check that finds nothing is worth only
as much as what it would have found.

    python -m tests.tensor.sanitize                    every checker, clean and with each fault
    python -m tests.tensor.sanitize --rounds 2000      the round trips alone, in this process
    python -m tests.tensor.sanitize --plant leak       the same, with a fault
    python -m tests.tensor.sanitize --bare             the same, without NumPy, which some checkers cannot load
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace import as_tensor
from headrace.tensor import DLDataType, TensorError
from tests.harness.producers import BF16, CPU, F32, DLTensor, Managed, ManagedVersioned, new_capsule

FAULTS = ("double-free", "leak", "use-after-free")
ROUNDS = 2000


# -- the round trips ---------------------------------------------------------------------------------


class Heap:
    """Capsules whose structure and elements lie in one block of memory from PyMem_RawMalloc.

    That is an allocator which CPython's checks, AddressSanitizer and Valgrind all watch. `alive` is what was given
    out and not freed.
    """

    def __init__(self, plant: str | None) -> None:
        self._plant = plant
        self._is_faulty = False
        self.alive: set[int] = set()
        self._allocate = ctypes.pythonapi.PyMem_RawMalloc
        self._allocate.restype, self._allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._release = ctypes.pythonapi.PyMem_RawFree
        self._release.restype, self._release.argtypes = None, [ctypes.c_void_p]
        self._delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._deleted)

    def capsule(
        self, dtype: DLDataType, version: tuple[int, int] | None = (1, 0), is_faulty: bool = False
    ) -> tuple[Any, int]:
        """Make a capsule of two rows of three elements that are all ones; return it and its block."""
        self._is_faulty = is_faulty
        size = ctypes.sizeof(Managed if version is None else ManagedVersioned)
        block = self._allocate(size + 16 + 6 * dtype.itemsize)
        self.alive.add(block)
        (ctypes.c_int64 * 2).from_address(block + size)[:] = (2, 3)
        ctypes.memset(block + size + 16, 1, 6 * dtype.itemsize)
        tensor = DLTensor(block + size + 16, *CPU, 2, *dtype, block + size, None, 0)
        deleter = ctypes.cast(self._delete, ctypes.c_void_p)
        if version is None:
            name, structure = b"dltensor", Managed(tensor, None, deleter)
        else:
            name, structure = b"dltensor_versioned", ManagedVersioned(*version, None, deleter, 0, tensor)
        ctypes.memmove(block, ctypes.byref(structure), size)
        return new_capsule(block, name, None), block

    def free(self, block: int) -> None:
        self.alive.discard(block)
        self._release(block)

    def _deleted(self, block: int) -> None:
        if self._plant == "leak" and self._is_faulty:
            return
        self.free(block)
        if self._plant == "double-free" and self._is_faulty:
            self.free(block)


def round_trips(rounds: int, plant: str | None, is_bare: bool) -> None:
    """Take capsules, read what they hold, refuse some, let them go; and the same with NumPy, unless it is bare."""
    heap = Heap(plant)
    for turn in range(rounds):
        for version in (None, (1, 0)):
            for dtype in (BF16,) if is_bare else (BF16, F32):
                capsule, block = heap.capsule(dtype, version, is_faulty=turn == rounds - 1)
                tensor = as_tensor(capsule)
                _check_refused(capsule)  # it was taken
                _check_ones(tensor)
                if plant == "use-after-free" and turn == rounds - 1:
                    heap.free(block)
                    _check_ones(tensor)
                    os._exit(0)  # nobody noticed
                view = _view(tensor) if dtype is F32 else None
                del capsule, tensor
                if view is not None:
                    _check_ones(as_tensor(view))
                del view
        for version in (None, (1, 0), (2, 0)):
            refused, block = heap.capsule(BF16, version)
            if version != (2, 0):  # which is refused as it is
                structure = (Managed if version is None else ManagedVersioned).from_address(block)
                structure.tensor.shape = None
                del structure
            _check_refused(refused)
            del refused
            heap.free(block)
    gc.collect()
    if heap.alive:
        raise AssertionError(f"{len(heap.alive)} blocks were never freed")
    if not is_bare:
        _numpy_round_trips(rounds)


class Frozen:
    """An array that never changes, of a library whose capsules cannot say so."""

    array: Any

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__(stream=stream)


Frozen.__module__ = "pyarrow.lib"


def _view(tensor: Any) -> Any:
    import numpy as np

    return np.from_dlpack(tensor)


def _numpy_round_trips(rounds: int) -> None:
    import numpy as np

    array = np.arange(12.0).reshape(3, 4)[1:, ::2]
    array.flags.writeable = False
    frozen = Frozen()
    frozen.array = np.arange(12.0)
    references = sys.getrefcount(array)
    for _ in range(rounds):
        assert np.asarray(as_tensor(array)).tobytes() == array.tobytes()
        assert np.from_dlpack(as_tensor(array.__dlpack__(max_version=(1, 0)))).tobytes() == array.tobytes()
        as_tensor(array).__dlpack__(max_version=(1, 1))  # which nobody takes
        assert np.asarray(as_tensor(np.float64(2.5))) == 2.5
        assert np.from_dlpack(as_tensor(frozen)).tobytes() == frozen.array.tobytes()
        as_tensor(frozen).__dlpack__(max_version=(1, 0))  # written for it, and not taken
    assert sys.getrefcount(array) == references


def _check_ones(tensor: Any) -> None:
    # string_at copies, which is a read that each of the checkers sees.
    if ctypes.string_at(tensor.data, tensor.nbytes) != bytes([1]) * tensor.nbytes:
        raise AssertionError("the elements are not what they were")


def _check_refused(capsule: Any) -> None:
    try:
        as_tensor(capsule)
    except TensorError:
        return
    raise AssertionError("a capsule was taken that should have been refused")


# -- the checkers ------------------------------------------------------------------------------------


@dataclass
class Checker:
    """A way of running Python that ends badly when memory is misused."""

    name: str
    environment: dict[str, str]
    command: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    rounds: int = ROUNDS
    why_not: str = ""
    proof: dict[str, str] = field(default_factory=dict)  # for each fault, what it says when it catches it

    def run(self, plant: str | None) -> subprocess.CompletedProcess[str]:
        arguments = ["-m", "tests.tensor.sanitize", "--rounds", str(self.rounds), *self.arguments]
        if plant is not None:
            arguments += ["--plant", plant]
        return subprocess.run(
            [*self.command, sys.executable, *self.options, *arguments],
            env={**os.environ, "HEADRACE_DEVICE": "sim", "OPENBLAS_NUM_THREADS": "1", **self.environment},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            errors="replace",  # of a freed block it prints the bytes
            check=False,
        )


def checkers() -> list[Checker]:
    """Return the checkers, with the reason for each that is not installed."""
    counted, gone = {"leak": "blocks were never freed"}, "the elements are not what they were"
    asan = _of_gcc("libasan.so")
    valgrind = shutil.which("valgrind")
    return [
        Checker(
            "PYTHONMALLOC=debug",
            {"PYTHONMALLOC": "debug"},
            options=["-X", "dev"],
            proof={**counted, "double-free": "Fatal Python error", "use-after-free": gone},
        ),
        Checker(
            "AddressSanitizer",
            {"PYTHONMALLOC": "malloc", "LD_PRELOAD": asan, "ASAN_OPTIONS": "detect_leaks=0"},
            why_not="" if asan else "gcc has no libasan here",
            proof={
                **counted,
                "double-free": "AddressSanitizer: attempting double-free",
                "use-after-free": "AddressSanitizer: heap-use-after-free",
            },
        ),
        Checker(
            "Valgrind",
            {"PYTHONMALLOC": "malloc"},
            command=[valgrind or "", "--quiet", "--error-exitcode=9", "--undef-value-errors=no"],
            arguments=[
                "--bare"
            ],  # there are versions of it that fail on the unwinding tables of NumPy's libraries
            rounds=50,
            why_not="" if valgrind else "it is not installed",
            proof={**counted, "double-free": "Invalid free", "use-after-free": "Invalid read"},
        ),
    ]


def _of_gcc(name: str) -> str:
    gcc = shutil.which("gcc")
    if gcc is None:
        return ""
    told = subprocess.run([gcc, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    path = told.stdout.strip()
    return path if os.path.isabs(path) else ""


def check_all() -> int:
    """Run every checker, clean and with each fault; return how many did not do as they should."""
    wrong = 0
    for checker in checkers():
        if checker.why_not:
            print(f"{checker.name:20} not run: {checker.why_not}")
            continue
        for plant in (None, *FAULTS):
            ended = checker.run(plant)
            said = ended.stdout + ended.stderr
            proof = "" if plant is None else checker.proof[plant]
            is_right = not ended.returncode if plant is None else bool(ended.returncode) and proof in said
            wrong += not is_right
            what = "clean" if plant is None else f"planted {plant}"
            result = "nothing found" if not ended.returncode else f"caught: {proof}" if is_right else "failed"
            print(f"{checker.name:20} {what:24} {'ok ' if is_right else 'BAD'}  {result}", flush=True)
            if not is_right:
                print("\n".join(said.splitlines()[-30:]))
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, help="run so many round trips in this process")
    parser.add_argument("--plant", choices=FAULTS, help="the fault to plant in the last of them")
    parser.add_argument("--bare", action="store_true", help="without NumPy")
    arguments = parser.parse_args()
    if arguments.rounds is None and arguments.plant is None and not arguments.bare:
        return 1 if check_all() else 0
    round_trips(arguments.rounds or ROUNDS, arguments.plant, arguments.bare)
    return 0


if __name__ == "__main__":
    sys.exit(main())
