"""Launching kernels: configurations, compiled programs, memory."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tests.gpu.bench import Bench
from tests.gpu.kernels import slow_write


def test_a_program_compiles_to_the_declared_kernel(bench: Bench) -> None:
    options = bench.names.ProgramOptions(std="c++17", arch=f"sm_{bench.device.arch}")
    code = bench.names.Program(slow_write.source, "c++", options).compile("cubin")
    stream = bench.device.create_stream()
    data = bench.zeros(64, stream)
    config = bench.names.LaunchConfig(grid=2, block=32)
    bench.names.launch(
        stream, config, code.get_kernel("slow_write"), data, np.int32(64), np.int32(9), np.int64(0)
    )
    assert (bench.read(data, stream) == 9).all()
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_NOT_FOUND"):
        code.get_kernel("another")


def test_a_program_is_compiled_with_the_arguments_there_are(bench: Bench) -> None:
    options = bench.names.ProgramOptions(arch=f"sm_{bench.device.arch}")
    program = bench.names.Program(slow_write.source, "c++", options)
    logs = io.StringIO()
    assert program.compile("cubin", [], logs, cache=None).get_kernel("slow_write")
    assert logs.getvalue() == ""
    with pytest.raises(TypeError, match="options"):
        program.compile("cubin", options=options)


def test_options_of_a_program_are_those_there_are(bench: Bench) -> None:
    assert bench.names.ProgramOptions(std="c++17", use_fast_math=True).use_fast_math
    with pytest.raises(TypeError, match="bogus"):
        bench.names.ProgramOptions(bogus=1)
    with pytest.raises(RuntimeError, match="cannot be"):
        bench.names.ObjectCode()


def test_memory_can_be_had_from_a_device_by_number_or_object(bench: Bench) -> None:
    stream = bench.device.create_stream()
    for which in (0, bench.device):
        resource = bench.names.DeviceMemoryResource(which)
        assert resource.device_id == 0
        assert resource.allocate(64, stream=stream).size == 64


def test_launch_dimensions_are_filled_up(bench: Bench) -> None:
    assert bench.names.LaunchConfig(grid=(), block=()).grid == (1, 1, 1)
    config = bench.names.LaunchConfig(grid=(2, 3), block=64)
    assert config.grid == (2, 3, 1)
    assert config.block == (64, 1, 1)
    assert config == bench.names.LaunchConfig(grid=(2, 3, 1), block=(64, 1, 1))


def test_memory_is_copied_and_filled_in_stream_order(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data = bench.device.allocate(1024, stream=stream)
    bench.launch(stream, slow_write, data, np.int32(256), np.int32(1), np.int64(2_000_000))
    copy = data.copy_to(stream=stream)
    data.fill(b"\x02\x00\x00\x00", stream=stream)
    assert (bench.read(copy, stream) == 1).all()
    assert (bench.read(data, stream) == 2).all()
    data.fill(0xFF, stream=stream)
    assert (bench.read(data, stream) == -1).all()


def test_a_fill_that_makes_no_sense_is_refused(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data = bench.device.allocate(10, stream=stream)
    with pytest.raises(OverflowError):
        data.fill(300, stream=stream)
    with pytest.raises(ValueError, match="1, 2, or 4|1, 2 or 4"):
        data.fill(b"abc", stream=stream)
    with pytest.raises(ValueError):
        data.fill(b"abcd", stream=stream)


def test_copies_are_between_buffers_of_one_size(bench: Bench) -> None:
    stream = bench.device.create_stream()
    host = bench.names.LegacyPinnedMemoryResource().allocate(100)
    with pytest.raises(ValueError, match="size"):
        bench.device.allocate(1024, stream=stream).copy_to(host, stream=stream)


def test_device_memory_says_that_it_is_not_the_hosts(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data = bench.device.allocate(1024, stream=stream)
    assert data.size == 1024
    assert data.is_device_accessible
    assert not data.is_host_accessible
    assert data.__dlpack_device__() == (2, 0)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(data)
    host = bench.names.LegacyPinnedMemoryResource().allocate(16)
    assert host.is_host_accessible
    assert np.from_dlpack(host).nbytes == 16


def test_freed_memory_goes_to_the_stream_it_was_freed_on(bench: Bench) -> None:
    # What makes a buffer that is dropped too early dangerous, on a real device and on a simulated one.
    stream = bench.device.create_stream()
    first = bench.device.allocate(1 << 20, stream=stream)
    address = int(first.handle)
    first.close(stream)
    assert first.is_closed
    assert int(bench.device.allocate(1 << 20, stream=stream).handle) == address
