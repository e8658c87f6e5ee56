"""Tensors on the GPU under NVIDIA's memory checker: nothing leaks, nothing is used after it was freed.

    make gpu-sanitize        needs a GPU, CuPy, PyTorch and compute-sanitizer

With ``--plant leak`` or ``--plant use-after-free`` there is something to find, which shows that it is found. CuPy's
pool is not used: what it frees is freed, so that the checker sees it.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import cupy
import torch

from headrace import TensorMap, as_tensor

ROUNDS = 200


def there_and_back(array: Any) -> None:
    """Hand an array on in every way: consumed, refused, as a capsule, in a map."""
    tensor = as_tensor(array)
    cupy.from_dlpack(tensor).sum()
    cupy.asarray(tensor).sum()
    torch.from_dlpack(tensor).sum()
    tensor.__dlpack__(stream=-1)  # dropped without being consumed
    tensor.__dlpack__(stream=-1, max_version=(1, 0))
    cupy.from_dlpack(as_tensor(array.__dlpack__(stream=-1))).sum()  # taken over
    as_tensor(array.__dlpack__(stream=-1))  # taken over and dropped
    cupy.asarray(TensorMap(array=array).get()).sum()


def plant(fault: str) -> None:
    if fault == "leak":
        cupy.cuda.runtime.malloc(1 << 16)
    elif fault == "use-after-free":
        array = cupy.ones(1 << 20)
        tensor = as_tensor(array)
        lost = cupy.ndarray(
            tensor.shape,
            tensor.dtype,
            cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(tensor.data, tensor.nbytes, None), 0),
        )
        del array, tensor  # nothing keeps the memory now
        lost.sum()


def main() -> None:
    cupy.cuda.set_allocator(None)  # straight from the driver, and straight back to it
    for _ in range(ROUNDS):
        there_and_back(cupy.zeros(1000))  # not arange, which leaks in CuPy 14.2 all by itself
        there_and_back(torch.zeros(1000, device="cuda"))
    if "--plant" in sys.argv:
        plant(sys.argv[-1])
    cupy.cuda.Device().synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    print(f"{ROUNDS} rounds")


if __name__ == "__main__":
    main()
