"""Buffers on memory of somebody else, and copies with options."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.gpu.bench import Bench


class Owner:
    """Something that keeps memory."""


def test_a_buffer_from_a_handle_is_the_same_memory(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data = bench.zeros(16, stream)
    half = bench.names.Buffer.from_handle(int(data.handle) + 32, 32, owner=data)
    assert (int(half.handle), half.size, half.device_id) == (int(data.handle) + 32, 32, 0)
    assert half.is_device_accessible
    assert not half.is_host_accessible
    half.fill(b"\x07\x00\x00\x00", stream=stream)
    assert bench.read(data, stream).tolist() == [0] * 8 + [7] * 8


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


def test_a_copy_takes_options(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data, target = bench.zeros(16, stream), bench.zeros(16, stream)
    data.fill(1, stream=stream)
    for order in ("stream", "any"):
        options = bench.names.CopyOptions(src_access_order=order, overlap_mode="prefer_overlap_with_compute")
        target.fill(0, stream=stream)
        target.copy_from(data, stream=stream, options=options)
        assert (bench.read(target, stream) == 0x01010101).all()
        assert (bench.read(data.copy_to(stream=stream, options=options), stream) == 0x01010101).all()


def test_options_of_a_copy_that_cannot_be_are_refused(bench: Bench) -> None:
    for wrong in ({"src_access_order": "soon"}, {"overlap_mode": "never"}):
        with pytest.raises(ValueError, match=f"invalid {next(iter(wrong))}"):
            bench.names.CopyOptions(**wrong)
    stream = bench.device.create_stream()
    data, target = bench.zeros(16, stream), bench.zeros(16, stream)
    stream.sync()
    options = bench.names.CopyOptions()
    for call in (
        lambda: data.copy_to(target, stream=stream, options={"src_access_order": "any"}),
        lambda: data.copy_to(target, stream=bench.names.LEGACY_DEFAULT_STREAM, options=options),
        lambda: target.copy_from(data, stream=bench.names.LEGACY_DEFAULT_STREAM, options=options),
    ):
        with pytest.raises(TypeError):
            call()
    builder = bench.device.create_graph_builder().begin_building()
    with pytest.raises(TypeError):
        data.copy_to(target, stream=builder, options=options)
    builder.end_building()
