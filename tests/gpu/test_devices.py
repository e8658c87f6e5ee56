"""Several devices in one program: which is current, whose default stream is meant, and events between them."""

import threading

import numpy as np
import pytest

from penstock import gpu
from penstock.gpu import sim
from tests.gpu.bench import Bench, cuda, spin_host
from tests.gpu.kernels import spin

MS = 1_000_000  # nanoseconds


@pytest.fixture(params=["sim", "cuda"])
def two(request):
    """Two benches, one for each device, of which the first is current."""
    if request.param == "sim":
        with sim.Machine("h200", devices=2) as machine:
            benches = [
                Bench(sim, sim.Device(n), True, machine.sleep, lambda event: machine.wait(event.is_set))
                for n in (0, 1)
            ]
            benches[0].device.set_current()
            yield benches
        return
    names = cuda()
    if len(names.Device.get_all_devices()) < 2:
        pytest.skip("there is one GPU")
    benches = [Bench(names, names.Device(n), False, spin_host, lambda event: event.wait(10)) for n in (0, 1)]
    benches[0].device.set_current()
    yield benches
    for bench in reversed(benches):
        bench.device.set_current()
        bench.device.sync()


def stream_and_event(bench):
    bench.device.set_current()
    return bench.device.create_stream(), bench.device.create_event()


def test_an_event_is_recorded_on_streams_of_its_own_device_only(two):
    (first, event), (second, other) = stream_and_event(two[0]), stream_and_event(two[1])
    for stream, wrong, right in ((first, other, event), (second, event, other)):
        with pytest.raises(two[0].names.CUDAError, match="CUDA_ERROR_INVALID_HANDLE"):
            stream.record(wrong)
        stream.record(right)


def test_a_stream_may_wait_for_an_event_of_another_device(two):
    (first, event), (second, after) = stream_and_event(two[0]), stream_and_event(two[1])
    two[0].launch(first, spin, np.int64(5 * MS))
    first.record(event)
    second.wait(event)
    second.record(after)
    assert not after.is_done
    after.sync()
    assert event.is_done


def test_a_stream_is_waited_for_as_such_while_its_device_is_current(two):
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


def test_the_default_stream_is_that_of_the_current_device(two):
    default = two[0].names.LEGACY_DEFAULT_STREAM
    events = []
    for bench, kernels in zip(two, (1, 0), strict=True):
        _, event = stream_and_event(bench)
        for _ in range(kernels):
            bench.launch(default, spin, np.int64(20 * MS))
        default.record(event)
        events.append(event)
    default.sync()  # of the second device, which has nothing to do
    assert [event.is_done for event in events] == [False, True]
    two[0].device.set_current()
    default.sync()
    assert events[0].is_done


def test_each_thread_has_its_current_device(two):
    found = []

    def on_another_thread():
        two[1].names.Device(1).set_current()
        found.append(two[1].names.Device().device_id)

    thread = threading.Thread(target=on_another_thread)
    thread.start()
    thread.join()
    assert found == [1]
    assert two[0].names.Device().device_id == 0


def test_what_was_current_is_current_again_after_work_on_a_device(bench):
    if bench.is_simulated != (gpu.backend() == "sim"):
        pytest.skip("on_device is about the kind of device that the process uses")
    with gpu.partition(bench.device, [16]) as (part, _):
        previous = bench.device.set_current(part.context)
        assert bench.device.create_stream().resources.sm.sm_count == 16
        device = gpu.on_device(0)
        with pytest.raises(ZeroDivisionError), device, device:  # may be entered inside itself
            assert bench.device.create_stream().resources.sm.sm_count == 132
            raise ZeroDivisionError
        assert bench.device.create_stream().resources.sm.sm_count == 16
        bench.device.set_current(previous)


def test_where_nothing_was_current_the_device_stays_so(bench):
    if bench.is_simulated != (gpu.backend() == "sim"):
        pytest.skip("on_device is about the kind of device that the process uses")
    found = []

    def on_another_thread():
        with gpu.on_device(0):
            pass
        found.append(bench.names.Device(0).create_stream())

    thread = threading.Thread(target=on_another_thread)
    thread.start()
    thread.join()
    assert len(found) == 1
