"""Buffers on memory of somebody else."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.gpu.bench import Bench


class Owner:
    """Something that keeps memory."""


def test_a_buffer_from_a_handle_of_pinned_memory_is_the_hosts(bench: Bench) -> None:
    stream = bench.device.create_stream()
    host = bench.names.LegacyPinnedMemoryResource().allocate(16)
    same = bench.names.Buffer.from_handle(int(host.handle), 16, owner=host)
    assert same.is_host_accessible
    same.fill(3, stream=stream)
    stream.sync()
    assert bench.read(host, stream).tolist() == [0x03030303] * 4


def test_a_buffer_from_a_handle_keeps_its_owner_until_it_is_closed_and_frees_nothing(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data = bench.zeros(16, stream)
    owner = Owner()
    alive = weakref.ref(owner)
    for close in (lambda one: one.close(), lambda one: one.close(stream), lambda one: None):
        buffer = bench.names.Buffer.from_handle(int(data.handle), data.size, owner=owner)
        assert buffer.owner is owner
        close(buffer)
        del buffer
    buffer = bench.names.Buffer.from_handle(int(data.handle), data.size, owner=owner)
    del owner
    gc.collect()
    assert alive() is not None
    buffer.close()
    gc.collect()
    assert alive() is None
    # Freed memory would go to the next buffer of the stream.
    assert int(bench.device.allocate(data.size, stream=stream).handle) != int(data.handle)
    assert (bench.read(data, stream) == 0).all()


def test_an_owner_and_a_memory_resource_are_not_given_together(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data = bench.zeros(4, stream)
    resource = bench.names.DeviceMemoryResource(bench.device)
    with pytest.raises(ValueError, match="together"):
        bench.names.Buffer.from_handle(int(data.handle), 16, resource, data)
