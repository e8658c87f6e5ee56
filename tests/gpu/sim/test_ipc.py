"""Memory that processes share, with the rules and errors of cuda.core and the driver."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace.gpu import sim
from headrace.gpu.sim.ipc import IPCAllocationHandle, IPCBufferDescriptor


@pytest.fixture(autouse=True)
def machine() -> Iterator[sim.Machine]:
    with sim.Machine(time="paced") as machine:
        sim.Device(0).set_current()
        yield machine


@pytest.fixture
def stream() -> sim.Stream:
    return sim.Device(0).create_stream()


def shared_pool() -> sim.DeviceMemoryResource:
    return sim.DeviceMemoryResource(0, sim.DeviceMemoryResourceOptions(ipc_enabled=True))


def mapped(pool: sim.DeviceMemoryResource) -> sim.DeviceMemoryResource:
    """Return the pool as another process gets it: by its descriptor."""
    return sim.DeviceMemoryResource.from_allocation_handle(0, int(pool.allocation_handle))


def test_a_buffer_is_the_same_memory_where_it_is_imported(stream: sim.Stream) -> None:
    pool = shared_pool()
    buffer = pool.allocate(5000, stream=stream)
    descriptor = pickle.loads(pickle.dumps(buffer.ipc_descriptor))
    there = mapped(pool)
    imported = sim.Buffer.from_ipc_descriptor(there, descriptor, stream=stream)
    assert (imported.size, imported.is_mapped, buffer.is_mapped) == (5000, True, False)
    assert imported.handle != buffer.handle
    buffer.fill(7, stream=stream)
    stream.sync()
    assert set(sim.host_view(imported)) == {7}
    sim.Buffer.from_handle(imported.handle + 8, 16).fill(9, stream=stream)  # it is memory of the device
    stream.sync()
    assert sim.host_view(buffer)[7:25].tolist() == [7, *[9] * 16, 7]
    again = sim.Buffer.from_ipc_descriptor(there, descriptor, stream=stream)
    assert again.handle == imported.handle


def test_a_mapped_pool_allocates_nothing(stream: sim.Stream) -> None:
    there = mapped(shared_pool())
    assert there.is_mapped
    with pytest.raises(TypeError, match="Cannot allocate from a mapped IPC-enabled memory resource"):
        there.allocate(8, stream=stream)


def test_only_buffers_of_a_pool_with_ipc_have_a_descriptor(stream: sim.Stream) -> None:
    plain = sim.DeviceMemoryResource(0, sim.DeviceMemoryResourceOptions())
    assert not plain.is_ipc_enabled
    with pytest.raises(RuntimeError, match="not IPC-enabled"):
        _ = plain.allocation_handle
    with pytest.raises(RuntimeError, match="not IPC-enabled"):
        _ = plain.allocate(8, stream=stream).ipc_descriptor


def test_descriptors_that_are_wrong_are_refused(stream: sim.Stream) -> None:
    pool, other = shared_pool(), shared_pool()
    buffer = pool.allocate(64, stream=stream)
    payload, size = buffer.ipc_descriptor.__reduce__()[1]
    there = mapped(pool)

    def take(payload: bytes, size: int, pool: Any = there) -> Any:
        return sim.Buffer.from_ipc_descriptor(pool, IPCBufferDescriptor._init(payload, size), stream=stream)

    with pytest.raises(ValueError, match="payload is 8 bytes; expected at least 64"):
        take(payload[:8], size)
    with pytest.raises(ValueError, match="exceeds the mapped allocation extent"):
        take(payload, 100 * size)
    for wrong in (
        bytes(64),
        payload[:24] + b"\xff" * 40,
        payload[:24] + (1 << 40).to_bytes(8, "little") + bytes(32),
    ):
        with pytest.raises(sim.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
            take(wrong, size)
    with pytest.raises(sim.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
        take(payload, size, mapped(other))
    with pytest.raises(sim.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
        take(payload, size, pool)  # in the process that exported it
    with pytest.raises(TypeError, match="Argument 'ipc_descriptor' has incorrect type"):
        sim.Buffer.from_ipc_descriptor(there, buffer, stream=stream)  # type: ignore[arg-type]
    buffer.close()
    with pytest.raises(sim.CUDAError, match="was freed"):
        take(payload, size)


def test_a_handle_that_is_not_of_a_pool_is_refused() -> None:
    reading, writing = os.pipe()
    with pytest.raises(sim.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
        sim.DeviceMemoryResource.from_allocation_handle(0, reading)
    handle = IPCAllocationHandle._create(reading, None)
    handle.close()
    assert handle.is_closed
    with pytest.raises(RuntimeError, match="has been closed"):
        sim.DeviceMemoryResource.from_allocation_handle(0, handle)
    os.close(writing)


def test_memory_that_was_freed_is_used_again(stream: sim.Stream) -> None:
    pool = shared_pool()
    for number in range(20):
        buffer = pool.allocate(100_000, stream=stream)
        buffer.fill(number, stream=stream)
        stream.sync()
        buffer.close()
    assert os.fstat(int(pool.allocation_handle)).st_size < 300_000


def test_copies_between_devices_take_their_time_by_whether_they_access_each_other() -> None:
    times = []
    for peer_access in (True, False):
        with sim.Machine("h200", devices=2, peer_access=peer_access) as machine:
            first, second = sim.Device(0), sim.Device(1)
            assert first.can_access_peer(second) is peer_access
            assert not first.can_access_peer(0)
            second.set_current()
            stream = second.create_stream()
            source = sim.DeviceMemoryResource(0).allocate(1 << 24, stream=stream)
            target = second.allocate(1 << 24, stream=stream)
            sim.host_view(source)[:] = 3
            target.copy_from(source, stream=stream)
            stream.sync()
            assert np.unique(sim.host_view(target)).tolist() == [3]
            times.append(machine.now)
    assert times[1] > 4 * times[0]
