"""Two devices in one computer: which is current, what belongs to one, and what orders both."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.gpu.bench import Bench
from tests.gpu.kernels import spin

MS = 1_000_000  # nanoseconds


def stream_of(device: Any) -> Any:
    device.set_current()
    return device.create_stream()


def stream_and_event(bench: Bench) -> tuple[Any, Any]:
    bench.device.set_current()
    return bench.device.create_stream(), bench.device.create_event()


def test_an_event_is_recorded_on_streams_of_its_own_device_only(two: list[Bench]) -> None:
    (first, event), (second, other) = stream_and_event(two[0]), stream_and_event(two[1])
    for stream, wrong, right in ((first, other, event), (second, event, other)):
        with pytest.raises(two[0].names.CUDAError, match="CUDA_ERROR_INVALID_HANDLE"):
            stream.record(wrong)
        stream.record(right)


def test_a_stream_may_wait_for_an_event_of_another_device(two: list[Bench]) -> None:
    (first, event), (second, after) = stream_and_event(two[0]), stream_and_event(two[1])
    two[0].launch(first, spin, np.int64(5 * MS))
    first.record(event)
    second.wait(event)
    second.record(after)
    assert not after.is_done
    after.sync()
    assert event.is_done


def test_a_stream_is_waited_for_as_such_while_its_device_is_current(two: list[Bench]) -> None:
    (first, _), (second, after) = stream_and_event(two[0]), stream_and_event(two[1])
    with pytest.raises(two[0].names.CUDAError, match="CUDA_ERROR_INVALID_HANDLE"):
        second.wait(first)
    two[0].launch(first, spin, np.int64(5 * MS))
    before = first.record()
    two[0].device.set_current()
    second.wait(first)
    second.record(after)
    after.sync()
    assert before.is_done


def test_each_thread_has_its_current_device(two: list[Bench]) -> None:
    found = []

    def on_another_thread() -> None:
        two[1].names.Device(1).set_current()
        found.append(two[1].names.Device().device_id)

    thread = threading.Thread(target=on_another_thread)
    thread.start()
    thread.join()
    assert found == [1]
    assert two[0].names.Device().device_id == 0


def test_events_of_two_devices_cannot_be_subtracted(two: list[Bench]) -> None:
    names, (first, second) = two[0].names, (bench.device for bench in two)
    events = []
    for device in (first, second):
        stream = stream_of(device)
        event = device.create_event(names.EventOptions(timing_enabled=True))
        stream.record(event)
        stream.sync()
        events.append(event)
    with pytest.raises((RuntimeError, names.CUDAError)):
        _ = events[1] - events[0]


def test_each_device_has_a_default_stream(two: list[Bench]) -> None:
    first, second = (bench.device for bench in two)
    first.set_current()
    default = first.default_stream
    two[0].launch(default, spin, np.int64(20 * MS))
    busy = default.record()
    second.set_current()
    second.default_stream.record().sync()  # it does not wait for the first device's
    assert not busy.is_done
    default.record().sync()  # the same object now stands for the second device's
    assert not busy.is_done
    first.set_current()
    default.sync()
    assert busy.is_done


def test_a_blocking_stream_is_ordered_with_the_default_stream_of_its_own_device(two: list[Bench]) -> None:
    names, (first, second) = two[0].names, (bench.device for bench in two)
    second.set_current()
    blocking = second.create_stream(options=names.StreamOptions(nonblocking=False))
    first.set_current()
    two[0].launch(first.default_stream, spin, np.int64(20 * MS))
    busy = first.default_stream.record()
    second.set_current()
    blocking.record().sync()
    assert not busy.is_done
    first.set_current()
    busy.sync()


def test_the_device_waits_for_its_own_streams(two: list[Bench]) -> None:
    first, second = (bench.device for bench in two)
    other, own = stream_of(second), stream_of(first)
    two[0].launch(own, spin, np.int64(20 * MS))
    busy = own.record()
    second.set_current()
    other.record()
    second.sync()
    assert not busy.is_done
    first.set_current()
    first.sync()
    assert busy.is_done
