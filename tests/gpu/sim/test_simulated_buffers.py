"""What a simulated device alone can say of buffers: which handles name memory, and who frees it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gpu import sim


def test_a_simulated_handle_that_names_no_memory_is_refused(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    data = sim.Device(0).allocate(16, stream=stream)
    for address, size in ((4096, 8), (data.handle, 17), (data.handle + 8, 16)):
        with pytest.raises(sim.CUDAError, match=f"there are no {size} bytes of simulated memory at"):
            sim.Buffer.from_handle(address, size)


def test_a_memory_resource_of_the_program_frees_the_buffer_once(machine: sim.Machine) -> None:
    freed: list[Any] = []

    class Pool:
        def deallocate(self, ptr: int, size: int, *, stream: Any) -> None:
            freed.append((ptr, size, stream))

    stream, other = sim.Device(0).create_stream(), sim.Device(0).create_stream()
    data, pool = sim.Device(0).allocate(16, stream=stream), Pool()
    buffer = sim.Buffer.from_handle(data.handle, 8, pool, stream=stream)
    assert buffer.memory_resource is pool
    del buffer
    assert freed == [(data.handle, 8, stream)]
    buffer = sim.Buffer.from_handle(data.handle, 8, pool, stream=stream)
    buffer.close(other)
    buffer.close()
    del buffer
    assert freed[1:] == [(data.handle, 8, other)]
