"""Allocators in a process without any device."""

from __future__ import annotations

from tests.harness.processes import output_of

PROGRAM = """
import numpy as np
from headrace.resources import BlockMemoryPool, UnboundedAllocator
memory = UnboundedAllocator()
for kind in ("system", "host"):
    tensor = memory.allocate_tensor((2, 3), "f4", kind)
    np.asarray(tensor)[:] = 1
    print(kind, tensor.device, np.asarray(tensor).sum())
for kind in ("device", "cuda_managed"):
    try:
        memory.allocate_tensor(1, "u1", kind, operator="camera")
    except RuntimeError as error:
        print(error)
pool = BlockMemoryPool(None, "host", "1KB", 1)
array = np.asarray(pool.allocate_tensor(1, "u1"))
print(pool.free_blocks)
del array
print(pool.free_blocks)
"""


def test_there_is_memory_of_the_host_and_an_error_for_the_rest() -> None:
    lines = output_of("-c", PROGRAM, forked=True, HEADRACE_DEVICE="none").splitlines()
    assert lines[:2] == ["system cpu 6.0", "host cpu 6.0"]
    assert "there is no DEVICE memory without a device; use SYSTEM (or HOST) memory" in lines[2]
    assert "there is no CUDA_MANAGED memory" in lines[3]
    assert lines[4:] == ["0", "1"]
