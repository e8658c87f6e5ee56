"""Two devices in one computer: what belongs to one, and what orders both."""

import threading

import numpy as np
import pytest

from penstock.gpu import sim
from tests.gpu.bench import cuda
from tests.gpu.kernels import spin

MS = 1_000_000


@pytest.fixture(params=["sim", "cuda"])
def two(request):
    """The names of a kind of device, and two of that kind, the first of them current."""
    if request.param == "sim":
        with sim.Machine("h200", devices=2):
            first, second = sim.Device.get_all_devices()
            first.set_current()
            yield sim, first, second
        return
    names = cuda()
    devices = names.Device.get_all_devices()
    if len(devices) < 2:
        pytest.skip("needs two devices")
    devices[0].set_current()
    yield names, devices[0], devices[1]
    devices[0].set_current()


def stream_of(device):
    device.set_current()
    return device.create_stream()


def test_an_event_is_recorded_on_streams_of_its_own_device_only(two):
    names, first, second = two
    other = stream_of(second)
    own = stream_of(first)
    event = first.create_event()
    own.record(event)
    second.set_current()
    with pytest.raises(names.CUDAError, match="CUDA_ERROR_INVALID_HANDLE"):
        other.record(event)
    event.sync()


def test_a_stream_may_wait_for_an_event_of_another_device(two):
    names, first, second = two
    other, own = stream_of(second), stream_of(first)
    config = names.LaunchConfig(grid=1, block=32)
    names.launch(own, config, spin.on(first), np.int64(20 * MS))
    before = own.record()
    second.set_current()
    other.wait(before)
    after = other.record()
    assert not after.is_done
    after.sync()
    assert before.is_done


def test_events_of_two_devices_cannot_be_subtracted(two):
    names, first, second = two
    events = []
    for device in (first, second):
        stream = stream_of(device)
        event = device.create_event(names.EventOptions(timing_enabled=True))
        stream.record(event)
        stream.sync()
        events.append(event)
    with pytest.raises((RuntimeError, names.CUDAError)):
        _ = events[1] - events[0]


def test_each_device_has_a_default_stream(two):
    names, first, second = two
    first.set_current()
    default = first.default_stream
    names.launch(default, names.LaunchConfig(grid=1, block=32), spin.on(first), np.int64(20 * MS))
    busy = default.record()
    second.set_current()
    second.default_stream.record().sync()  # it does not wait for the first device's
    assert not busy.is_done
    default.record().sync()  # the same object now stands for the second device's
    assert not busy.is_done
    first.set_current()
    default.sync()
    assert busy.is_done


def test_a_blocking_stream_is_ordered_with_the_default_stream_of_its_own_device(two):
    names, first, second = two
    second.set_current()
    blocking = second.create_stream(options=names.StreamOptions(nonblocking=False))
    first.set_current()
    names.launch(
        first.default_stream, names.LaunchConfig(grid=1, block=32), spin.on(first), np.int64(20 * MS)
    )
    busy = first.default_stream.record()
    second.set_current()
    blocking.record().sync()
    assert not busy.is_done
    first.set_current()
    busy.sync()


def test_which_device_is_current_is_each_threads_own(two):
    names, first, second = two
    first.set_current()
    seen = []

    def work():
        second.set_current()
        seen.append(names.Device())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [second]
    assert names.Device() == first


def test_the_device_waits_for_its_own_streams(two):
    names, first, second = two
    other, own = stream_of(second), stream_of(first)
    names.launch(own, names.LaunchConfig(grid=1, block=32), spin.on(first), np.int64(20 * MS))
    busy = own.record()
    second.set_current()
    other.record()
    second.sync()
    assert not busy.is_done
    first.set_current()
    first.sync()
    assert busy.is_done
