"""How the launches of a graph run on the simulated device: their time, their SMs, their memory, their errors."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.sim.machine import current_machine
from tests.gpu.sim.launches import ONE_BLOCK

PROFILE = sim.PROFILES["h200"]
LAUNCH = PROFILE.graph_launch_overhead * 1e3  # milliseconds, as events tell them
NODE = PROFILE.graph_node_overhead * 1e3
MS = sim.Kernel("ms", 1e-3)
FILL = sim.LaunchConfig(grid=2 * 132, block=1024)  # every thread of every SM


def captured(stream: sim.Stream, record: Callable[[], object]) -> sim.Graph:
    """Return the graph of what a function submits."""
    builder = stream.create_graph_builder().begin_building()
    record()
    graph = builder.end_building().complete()
    builder.close()
    return graph


def timed(device: sim.Device) -> sim.Event:
    return device.create_event(sim.EventOptions(timing_enabled=True))


def took(stream: sim.Stream, *work: Callable[[sim.Stream], object]) -> float:
    """Return the milliseconds between events before and after some work on an idle stream."""
    begin, end = timed(stream.device), timed(stream.device)
    stream.record(begin)
    for submit in work:
        submit(stream)
    stream.record(end)
    end.sync()
    return end - begin


@pytest.fixture
def device(machine: sim.Machine) -> sim.Device:
    return sim.Device(0)


@pytest.fixture
def stream(device: sim.Device) -> sim.Stream:
    return device.create_stream()


# -- time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5, 20])
def test_a_chain_takes_a_launch_its_kernels_and_the_time_between_them(
    stream: sim.Stream, length: int
) -> None:
    graph = captured(stream, lambda: [sim.launch(stream, ONE_BLOCK, MS) for _ in range(length)])
    assert took(stream, graph.launch) == pytest.approx(LAUNCH + length * 1 + (length - 1) * NODE)


def test_a_second_launch_is_on_its_way_while_the_first_runs(stream: sim.Stream) -> None:
    graph = captured(stream, lambda: sim.launch(stream, ONE_BLOCK, MS))
    assert took(stream, graph.launch, graph.launch) == pytest.approx(LAUNCH + 2)


def test_branches_take_the_time_of_the_longest(device: sim.Device, stream: sim.Stream) -> None:
    def record() -> None:
        sim.launch(stream, ONE_BLOCK, MS)
        fork = stream.record()
        for length in (1, 4, 2):
            side = device.create_stream()
            side.wait(fork)
            for _ in range(length):
                sim.launch(side, ONE_BLOCK, MS)
            stream.wait(side)
        sim.launch(stream, ONE_BLOCK, MS)

    assert took(stream, captured(stream, record).launch) == pytest.approx(LAUNCH + 6 + 5 * NODE)


def test_copies_of_a_graph_take_their_time(device: sim.Device, stream: sim.Stream) -> None:
    size = round(PROFILE.memory_bandwidth * 1e-6)
    one, two = (device.allocate(size, stream=stream) for _ in range(2))
    graph = captured(stream, lambda: [one.copy_to(two, stream=stream), one.fill(0, stream=stream)])
    assert took(stream, graph.launch) == pytest.approx(LAUNCH + 0.002 + NODE)


def test_what_a_graph_does_is_over_when_its_stream_goes_on(device: sim.Device, stream: sim.Stream) -> None:
    def record() -> None:
        side = device.create_stream()
        side.wait(stream)
        sim.launch(side, ONE_BLOCK, MS)
        stream.wait(side)

    ends: list[float] = []
    after = sim.Kernel("after", 0.0, lambda: ends.append(sim.launched().start))
    captured(stream, record).launch(stream)
    sim.launch(stream, ONE_BLOCK, after)
    stream.sync()
    assert ends[0] == pytest.approx((LAUNCH + 1) / 1e3)


# -- SMs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by_node", "first"), [(False, "graph"), (True, "load")])
def test_a_node_has_the_priority_of_the_launching_stream_or_of_its_own(
    device: sim.Device, by_node: bool, first: str
) -> None:
    order: list[str] = []
    low, high = device.create_stream(), device.create_stream(options={"priority": -5})

    def kernel(name: str) -> sim.Kernel[...]:
        return sim.Kernel(name, 1e-3, lambda: order.append(name))

    builder = low.create_graph_builder().begin_building()
    sim.launch(low, FILL, kernel("graph"))
    options = sim.GraphCompleteOptions(use_node_priority=by_node)
    graph = builder.end_building().complete(options)
    blocking, middle = device.create_stream(), device.create_stream(options={"priority": -1})
    sim.launch(blocking, FILL, kernel("blocking"))  # the others wait for room until it ends
    current_machine().sleep(50e-6)
    graph.launch(high)
    sim.launch(middle, FILL, kernel("load"))
    device.sync()
    assert order[:2] == ["blocking", first]


# -- memory ------------------------------------------------------------------------------------------


def test_a_launch_after_a_buffer_was_freed_is_found(device: sim.Device, stream: sim.Stream) -> None:
    buffers = [device.allocate(64, stream=stream) for _ in range(3)]
    kernel = sim.Kernel("k", 0.0, lambda *memory: None)

    def record() -> None:
        sim.launch(stream, ONE_BLOCK, kernel, buffers[0])
        buffers[1].copy_to(buffers[2], stream=stream)

    graph = captured(stream, record)
    graph.launch(stream)
    for freed, node in ((1, "a MemcpyNode"), (0, "a KernelNode of kernel 'k'")):
        buffers[freed].close()
        again = device.allocate(64, stream=stream)  # the same memory, but somebody else's now
        with pytest.raises(sim.CUDAError, match=f"CUDA_ERROR_ILLEGAL_ADDRESS: {node} uses 64 bytes"):
            graph.launch(stream)
        again.close()
    stream.sync()


def test_a_buffer_may_be_freed_after_the_launch_in_the_order_of_its_stream(
    device: sim.Device, stream: sim.Stream
) -> None:
    buffer, out = (device.allocate(64, stream=stream) for _ in range(2))
    buffer.fill(7, stream=stream)
    graph = captured(stream, lambda: buffer.copy_to(out, stream=stream))
    graph.launch(stream)
    buffer.close(stream)
    stream.sync()
    assert (sim.host_view(out) == 7).all()


def test_what_a_closed_graph_refers_to_is_freed_without_the_lock_of_the_machine(
    device: sim.Device, stream: sim.Stream
) -> None:
    freed: list[bool] = []

    class UsesTheDevice:
        def __del__(self) -> None:
            freed.append(device._state.machine.timeline.lock.locked())

    def record() -> None:
        sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3, lambda *args: None), UsesTheDevice())

    captured(stream, record).launch(stream)
    for ending in ("close", "drop"):
        graph = captured(stream, record)
        graph.launch(stream)
        if ending == "close":
            graph.close()
        del graph
    stream.sync()
    device.create_stream().record().sync()
    sim.launch(stream, ONE_BLOCK, MS)
    stream.sync()
    assert freed == [False] * 3


# -- errors ------------------------------------------------------------------------------------------


def test_a_callback_cannot_be_asked_for_during_a_capture(device: sim.Device, stream: sim.Stream) -> None:
    told: list[Exception | None] = []
    builder = stream.create_graph_builder().begin_building()
    gpu.when_done(stream, told.append)
    device.create_stream().sync()
    with pytest.raises(sim.CUDAError, match="INVALIDATED"):
        builder.close()
    done = stream.record()
    done.sync()
    gpu.when_done(stream, told.append)
    sim.launch(stream, ONE_BLOCK, MS)
    stream.sync()
    assert [type(error) for error in told] == [sim.CUDAError, type(None)]
    assert "CUDA_ERROR_CAPTURED_EVENT" in str(told[0])


@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_stricter_modes_refuse_calls_that_may_be_unsafe(
    device: sim.Device, stream: sim.Stream, mode: str
) -> None:
    event = device.create_stream().record()
    calls: list[Callable[[], object]] = [
        lambda: event.is_done,
        event.sync,
        lambda: sim.LegacyPinnedMemoryResource().allocate(8),
    ]
    for call in calls:
        builder = stream.create_graph_builder().begin_building(mode)
        with pytest.raises(sim.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
            call()
        with pytest.raises(sim.CUDAError, match="INVALIDATED"):
            builder.close()
        del builder
        call()  # after the capture


@pytest.mark.parametrize(("mode", "refused"), [("relaxed", False), ("thread_local", False), ("global", True)])
def test_only_the_global_mode_concerns_other_threads(stream: sim.Stream, mode: str, refused: bool) -> None:
    builder = stream.create_graph_builder().begin_building(mode)
    errors: list[Exception] = []

    def allocate() -> None:
        try:
            sim.LegacyPinnedMemoryResource().allocate(8)
        except sim.CUDAError as error:
            errors.append(error)

    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert bool(errors) == refused
    if not refused:
        builder.end_building()


@pytest.mark.parametrize(("mode", "refused"), [("relaxed", False), ("thread_local", True)])
def test_only_a_relaxed_capture_may_be_ended_by_another_thread(
    stream: sim.Stream, mode: str, refused: bool
) -> None:
    builder = stream.create_graph_builder().begin_building(mode)
    errors: list[str] = []

    def end() -> None:
        try:
            builder.end_building()
        except sim.CUDAError as error:
            errors.append(str(error))

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert [error.split(":")[0] for error in errors] == ["CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"] * refused


def test_a_capture_is_ended_on_the_stream_that_began_it(device: sim.Device, stream: sim.Stream) -> None:
    builder = stream.create_graph_builder().begin_building()
    side = device.create_stream()
    side.wait(stream)
    with pytest.raises(sim.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"):
        side.create_graph_builder().end_building()
    with pytest.raises(sim.CUDAError, match="INVALIDATED"):
        builder.close()


def test_the_default_stream_takes_no_part_in_captures(device: sim.Device) -> None:
    default = device.default_stream
    with pytest.raises(sim.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
        default.create_graph_builder().begin_building()
    calls: list[Callable[[sim.Stream], object]] = [
        lambda one: default.wait(one.record()),  # it would join
        lambda one: sim.launch(
            default, ONE_BLOCK, MS
        ),  # it would wait for the other, which is a blocking one
    ]
    for call in calls:
        blocking = device.create_stream(options={"nonblocking": False})
        builder = blocking.create_graph_builder().begin_building()
        with pytest.raises(sim.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"):
            call(blocking)
        with pytest.raises(sim.CUDAError, match="INVALIDATED"):
            builder.close()
        del builder
