"""PyTorch's tensors in the memory of a pool.

PyTorch calls an allocator while it holds a lock of its own, often on a thread without Python's lock. A function in
Python would wait there for Python's lock, whose holder may be freeing a tensor and wait for PyTorch's: a deadlock.
So the functions have to be compiled. They are a few lines of C (torch_allocator.c), which the machine's C compiler
compiles when they are first needed. PyTorch's own compiler needs one, too.

PyTorch returns memory as it would to ``cudaFree``, while kernels on it may still run. So freeing waits for the
device. It happens when PyTorch empties its cache, not with every tensor.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_NO_LIMIT = 2**63 - 1
_kept: list[Any] = []  # PyTorch may free memory at the very end of the process


class CompilerMissing(Exception):
    """There is no C compiler, or it failed."""


class TorchMemory:
    """Memory for PyTorch, from a CUDA memory pool; it is kept for the rest of the process.

    Parameters
    ----------
    memory
        The source of device memory, with the `pool_handle` of its pool.
    limit
        The bytes that PyTorch may have of it at once, or None.
    """

    def __init__(self, memory: Any, limit: int | None) -> None:
        import torch

        driver = ctypes.CDLL("libcuda.so.1")
        functions = (driver.cuMemAllocFromPoolAsync, driver.cuCtxSynchronize, driver.cuMemFree_v2)
        self._library, path = _load_functions()
        pointers = [ctypes.cast(function, ctypes.c_void_p) for function in functions]
        self._library.headrace_bind(*pointers, memory.pool_handle, _NO_LIMIT if limit is None else limit)
        self._plugged = torch.cuda.memory.CUDAPluggableAllocator(path, "headrace_allocate", "headrace_free")
        # PyTorch's own pools on that memory. One serves one context at a time.
        self._unused: list[Any] = []
        _kept.append((self, memory, functions))

    @contextmanager
    def use(self, device_id: int) -> Iterator[Any]:
        """Return a context in which PyTorch allocates here, on this thread."""
        import torch

        try:
            pool = self._unused.pop()
        except IndexError:
            pool = torch.cuda.MemPool(self._plugged.allocator())
        try:
            with torch.cuda.use_mem_pool(pool, device=device_id):
                yield pool
        finally:
            self._unused.append(pool)

    @property
    def used(self) -> int:
        """The bytes that PyTorch has."""
        return int(self._library.headrace_used())


def _load_functions() -> tuple[Any, str]:
    """Return a new instance of the compiled functions, each with variables of its own, and its path."""
    file, path = tempfile.mkstemp(suffix=".so", prefix="headrace-torch-", dir=_compiled().parent)
    with os.fdopen(file, "wb") as target:
        target.write(_compiled().read_bytes())
    library = ctypes.CDLL(path)
    library.headrace_bind.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_longlong]
    library.headrace_bind.restype = None
    library.headrace_used.restype = ctypes.c_longlong
    return library, path


@cache
def _compiled() -> Path:
    """Compile the functions, once in a process."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CompilerMissing("there is no C compiler (cc, gcc or clang) on the PATH, and CC is not set")
    folder = tempfile.TemporaryDirectory(prefix="headrace-")
    _kept.append(folder)  # removed with the process
    source, target = Path(__file__).with_suffix(".c"), Path(folder.name, "allocator.so")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(target), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise CompilerMissing(f"the C compiler {compiler!r} did not start: {error}") from error
    if done.returncode:
        raise CompilerMissing(f"the C compiler {compiler!r} failed: {done.stderr.strip()[-300:]}")
    return target
