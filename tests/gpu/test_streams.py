"""Streams are in order; events order streams with each other and tell time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from tests.gpu.bench import Bench
from tests.gpu.kernels import add, mark_sms, slow_write, spin

MS = 1_000_000  # nanoseconds


def test_work_on_one_stream_is_done_in_order(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data = bench.zeros(256, stream)
    for value in range(1, 6):
        # Shorter and shorter: only order keeps a later one from being overtaken.
        bench.launch(
            stream, slow_write, data, np.int32(256), np.int32(value), np.int64((6 - value) * MS // 10)
        )
    assert (bench.read(data, stream) == 5).all()


def test_an_event_orders_one_stream_after_another(bench: Bench) -> None:
    producer, consumer = bench.device.create_stream(), bench.device.create_stream()
    data, total = bench.zeros(256, producer), bench.zeros(256, consumer)
    producer.sync()
    bench.launch(producer, slow_write, data, np.int32(256), np.int32(7), np.int64(2 * MS))
    consumer.wait(producer.record())
    bench.launch(consumer, add, total, data, np.int32(256), grid=8)
    assert (bench.read(total, consumer) == 7).all()


def test_without_an_event_the_other_stream_does_not_wait(bench: Bench) -> None:
    producer, consumer = bench.device.create_stream(), bench.device.create_stream()
    data, total = bench.zeros(256, producer), bench.zeros(256, consumer)
    producer.sync()
    bench.launch(producer, slow_write, data, np.int32(256), np.int32(7), np.int64(5 * MS))
    bench.launch(consumer, add, total, data, np.int32(256), grid=8)
    assert (bench.read(total, consumer) == 0).all()
    producer.sync()


def test_a_stream_can_wait_for_a_stream(bench: Bench) -> None:
    producer, consumer = bench.device.create_stream(), bench.device.create_stream()
    data, total = bench.zeros(256, producer), bench.zeros(256, consumer)
    bench.launch(producer, slow_write, data, np.int32(256), np.int32(3), np.int64(2 * MS))
    consumer.wait(producer)
    consumer.wait(gpu.StreamHandle(producer))
    bench.launch(consumer, add, total, data, np.int32(256), grid=8)
    assert (bench.read(total, consumer) == 3).all()


def test_a_wait_is_for_the_record_made_before_it(bench: Bench) -> None:
    producer, consumer = bench.device.create_stream(), bench.device.create_stream()
    event = producer.record()
    consumer.wait(event)
    bench.launch(producer, spin, np.int64(20 * MS))
    producer.record(event)
    consumer.sync()
    assert not event.is_done  # the consumer did not wait for the second record
    event.sync()
    assert event.is_done


def test_only_events_and_streams_can_be_waited_for(bench: Bench) -> None:
    with pytest.raises(ValueError, match="__cuda_stream__"):
        bench.device.create_stream().wait(5)


def test_an_event_is_done_when_its_stream_has_passed_it(bench: Bench) -> None:
    stream = bench.device.create_stream()
    before = stream.record()
    bench.launch(stream, spin, np.int64(10 * MS))
    after = stream.record()
    before.sync()
    assert not after.is_done
    after.sync()
    assert after.is_done


def test_an_event_that_was_never_recorded_is_done(bench: Bench) -> None:
    event = bench.device.create_event()
    assert event.is_done
    event.sync()
    bench.device.create_stream().wait(event)


def test_the_difference_of_two_events_is_milliseconds(bench: Bench) -> None:
    stream = bench.device.create_stream()
    first, second = bench.timed_event(), bench.timed_event()
    stream.record(first)
    bench.launch(stream, spin, np.int64(3 * MS))
    stream.record(second)
    second.sync()
    assert 3.0 <= second - first < 3.5


def test_events_that_cannot_be_subtracted_say_why(bench: Bench) -> None:
    stream = bench.device.create_stream()
    timed, other, untimed = bench.timed_event(), bench.timed_event(), bench.device.create_event()
    with pytest.raises(RuntimeError, match="recorded"):
        _ = timed - other
    bench.launch(stream, spin, np.int64(5 * MS))
    for event in (timed, untimed):
        stream.record(event)
    with pytest.raises(RuntimeError, match="timing_enabled=True"):
        _ = timed - untimed
    stream.record(other)
    with pytest.raises(RuntimeError, match="not completed"):
        _ = other - timed
    stream.sync()
    with pytest.raises(TypeError):
        _ = timed - 5


def test_options_can_be_given_as_a_dict_and_wrong_ones_are_refused(bench: Bench) -> None:
    assert bench.device.create_stream(options={"priority": -1}).priority == -1
    assert bench.device.create_event({"timing_enabled": True}).is_timing_enabled
    with pytest.raises(TypeError, match="options must be"):
        bench.device.create_stream(options=5)


def test_priorities_run_from_0_the_lowest_down_to_the_devices_highest(bench: Bench) -> None:
    options = bench.names.StreamOptions
    assert bench.device.create_stream().priority == 0
    assert bench.device.create_stream(options=options(priority=-5)).priority == -5
    for wrong in (1, -6):
        with pytest.raises(ValueError, match=r"out of range \[-5, 0\]"):
            bench.device.create_stream(options=options(priority=wrong))


def waiting_time(bench: Bench, load: Any, critical: Any) -> float:
    """Milliseconds a small kernel takes that comes 0.7 ms after a load of four waves of 0.5 ms each."""
    first, second = bench.timed_event(), bench.timed_event()
    sms = bench.device.resources.sm.sm_count
    bench.launch(load, spin, np.int64(MS // 2), grid=8 * sms, block=1024)
    bench.sleep(0.7e-3)
    critical.record(first)
    bench.launch(critical, spin, np.int64(MS // 10), grid=16, block=1024)
    critical.record(second)
    bench.device.sync()
    return second - first


def test_equal_priorities_are_served_in_order_of_arrival_to_the_last_block(bench: Bench) -> None:
    load, critical = bench.device.create_stream(), bench.device.create_stream()
    assert waiting_time(bench, load, critical) > 1.2


def test_a_higher_priority_goes_first_when_blocks_end(bench: Bench) -> None:
    load = bench.device.create_stream()
    critical = bench.device.create_stream(options=bench.names.StreamOptions(priority=-5))
    assert 0.2 < waiting_time(bench, load, critical) < 0.7


def test_partitions_do_not_wait_for_each_other(bench: Bench) -> None:
    with bench.partitions(16) as (small, rest):
        load, critical = rest.create_stream(), small.create_stream()
        assert waiting_time(bench, load, critical) < 0.4  # not even one wave of the load


def test_a_kernel_uses_the_sms_of_its_context_only(bench: Bench) -> None:
    with bench.partitions(16, 40) as partitions:
        seen = []
        for partition in partitions:
            stream = partition.create_stream()
            marks = bench.zeros(1024, stream)
            bench.launch(stream, mark_sms, marks, np.int64(MS), grid=2 * partition.sm_count, block=1024)
            seen.append(set(np.nonzero(bench.read(marks, stream))[0].tolist()))
        assert [len(sms) for sms in seen] == [partition.sm_count for partition in partitions]
        assert len(set.union(*seen)) == sum(map(len, seen))  # none in common


def test_the_device_waits_for_all_streams(bench: Bench) -> None:
    streams = [bench.device.create_stream() for _ in range(3)]
    for stream in streams:
        bench.launch(stream, spin, np.int64(3 * MS))
    events = [stream.record() for stream in streams]
    bench.device.sync()
    assert all(event.is_done for event in events)


def test_streams_are_equal_by_handle_and_can_be_wrapped(bench: Bench) -> None:
    stream = bench.device.create_stream()
    handle = gpu.StreamHandle(stream)
    for again in (bench.device.create_stream(stream), bench.names.Stream.from_handle(int(handle))):
        assert again == stream
        assert hash(again) == hash(stream)
    assert stream != bench.device.create_stream()
    assert stream.__cuda_stream__() == (0, int(stream.handle))
    with pytest.raises(ValueError, match="both"):
        bench.device.create_stream(stream, bench.names.StreamOptions())
    with pytest.raises(TypeError, match="__cuda_stream__"):
        bench.device.create_stream(5)


def test_the_work_of_a_closed_stream_is_still_done(bench: Bench) -> None:
    stream = bench.device.create_stream()
    bench.launch(stream, spin, np.int64(5 * MS))
    event = stream.record()
    stream.close()
    assert stream.is_closed
    assert not event.is_done
    event.sync()


def test_a_device_must_be_made_current_on_a_thread_before_it_makes_streams(bench: Bench) -> None:
    outcome = []

    def on_another_thread() -> None:
        try:
            bench.names.Device(0).create_stream()
        except bench.names.CUDAError as error:
            outcome.append(str(error))
        bench.names.Device(0).set_current()
        outcome.append(bench.names.Device(0).create_stream())

    thread = threading.Thread(target=on_another_thread)
    thread.start()
    thread.join()
    assert "not yet initialized" in outcome[0]
    assert outcome[1].context == bench.device.create_stream().context


def test_a_blocking_stream_is_ordered_with_the_default_stream(bench: Bench) -> None:
    default = bench.device.default_stream
    blocking = bench.device.create_stream(options=bench.names.StreamOptions(nonblocking=False))
    bench.launch(default, spin, np.int64(5 * MS))
    on_default = default.record()
    after = blocking.record()
    free = bench.device.create_stream().record()
    free.sync()
    assert not on_default.is_done  # a non-blocking stream did not wait
    after.sync()
    assert on_default.is_done
    bench.launch(blocking, spin, np.int64(5 * MS))
    on_blocking = blocking.record()
    default.record().sync()
    assert on_blocking.is_done


def test_waiting_for_the_default_stream_waits_for_what_it_waits_for(bench: Bench) -> None:
    default = bench.device.default_stream
    blocking = bench.device.create_stream(options=bench.names.StreamOptions(nonblocking=False))
    bench.launch(blocking, spin, np.int64(5 * MS))
    on_blocking = blocking.record()
    free = bench.device.create_stream()
    free.wait(default)
    free.sync()
    assert on_blocking.is_done
