"""Completion callbacks of streams, and host functions on a stream."""

from __future__ import annotations

import threading
from typing import Any, Never

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu.cuda import callbacks as completion
from tests.gpu.bench import Bench
from tests.gpu.kernels import slow_write, spin
from tests.harness import PATIENCE

MS = 1_000_000


class Told:
    """A callback that can be waited for, on either kind of device."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._event = threading.Event()
        self.calls = []

    def __call__(self, error: Any = None) -> None:
        self.calls.append(error)
        self._event.set()

    def wait(self) -> None:
        assert self._bench.wait_for(self._event)


def test_the_callback_comes_after_the_work(bench: Bench) -> None:
    stream = bench.device.create_stream()
    data = bench.zeros(16, stream)
    bench.launch(stream, slow_write, data, np.int32(16), np.int32(5), np.int64(3 * MS))
    event = stream.record()
    done_then = []
    told = Told(bench)
    gpu.when_done(stream, lambda error: (done_then.append(event.is_done), told(error)), event=event)
    assert not told.calls
    told.wait()
    assert done_then == [True]
    assert told.calls == [None]


def test_a_stream_stands_for_what_was_submitted_to_it_so_far(bench: Bench) -> None:
    stream = bench.device.create_stream()
    bench.launch(stream, spin, np.int64(MS))
    first = Told(bench)
    gpu.when_done(stream, first)
    bench.launch(stream, spin, np.int64(MS))
    second = Told(bench)
    gpu.when_done(gpu.StreamHandle(stream), second)
    first.wait()
    second.wait()


def test_callbacks_of_one_stream_come_in_order(bench: Bench) -> None:
    stream = bench.device.create_stream()
    order = []
    last = Told(bench)
    for number in range(20):
        bench.launch(stream, spin, np.int64(MS // 10))
        gpu.when_done(stream, lambda _, number=number: order.append(number))
    gpu.when_done(stream, last)
    last.wait()
    assert order == list(range(20))


def test_a_slow_stream_does_not_hold_up_the_news_of_a_fast_one(bench: Bench) -> None:
    slow, fast = bench.device.create_stream(), bench.device.create_stream()
    bench.launch(slow, spin, np.int64(50 * MS))
    slow_event = slow.record()
    order = []
    told_slow, told_fast = Told(bench), Told(bench)
    gpu.when_done(slow, lambda error: (order.append("slow"), told_slow(error)), event=slow_event)
    bench.launch(fast, spin, np.int64(MS))
    gpu.when_done(fast, lambda error: (order.append("fast"), told_fast(error)))
    told_fast.wait()
    told_slow.wait()
    assert order == ["fast", "slow"]


def test_an_event_that_is_done_already_is_told_too(bench: Bench) -> None:
    stream = bench.device.create_stream()
    event = stream.record()
    event.sync()
    told = Told(bench)
    gpu.when_done(stream, told, event=event)
    told.wait()


def test_a_callback_may_submit_work(bench: Bench) -> None:
    stream = bench.device.create_stream()
    told = Told(bench)
    bench.launch(stream, spin, np.int64(MS))

    def go_on(error: Any) -> None:
        bench.launch(stream, spin, np.int64(MS))
        gpu.when_done(stream, told)

    gpu.when_done(stream, go_on)
    told.wait()


def test_a_callback_that_raises_is_reported_and_the_next_one_still_comes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))
    stream = bench.device.create_stream()
    told = Told(bench)

    def fail(error: Any) -> Never:
        raise ZeroDivisionError("in a callback")

    gpu.when_done(stream, fail)
    gpu.when_done(stream, told)
    told.wait()
    assert [type(error) for error in reported] == [ZeroDivisionError]


def test_a_callback_finds_its_device_current_whatever_was_made_current_before(bench: Bench) -> None:
    with bench.partitions(16) as (part, _):
        stream = bench.device.create_stream()
        green, told = [], Told(bench)

        def look(error: Any) -> None:
            device = bench.names.Device(0)  # as this thread knows it
            green.append(device.create_stream().context.is_green)
            device.set_current(part.context)

        for _ in range(3):
            gpu.when_done(stream, look)
        gpu.when_done(stream, told)
        told.wait()
        assert green == [False] * 3
        assert not bench.device.create_stream().context.is_green


def test_another_librarys_stream_can_be_asked_about(bench: Bench) -> None:
    if bench.is_simulated:
        pytest.skip("needs a real device")
    cupy = pytest.importorskip("cupy")
    for stream in (cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.null):
        done, called = Told(bench), Told(bench)
        gpu.when_done(stream, done)
        gpu.launch_host(stream, called)
        done.wait()
        called.wait()


class PassedEvent:
    """An event of a real device, as far as a waiting thread can tell."""

    device = type("Device", (), {"set_current": lambda self: None})()

    def sync(self) -> None:
        pass


def test_a_callback_that_exits_ends_no_thread_that_others_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reported, told = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))

    def leave(error: Any) -> Never:
        raise SystemExit

    waiters = completion._WaiterThreads()
    waiters.add(1, PassedEvent(), leave)
    waiters.add(1, PassedEvent(), lambda error: told.set())
    assert told.wait(PATIENCE)
    assert reported == [SystemExit]


def test_a_host_function_holds_up_its_stream_until_it_returns(bench: Bench) -> None:
    stream, other = bench.device.create_stream(), bench.device.create_stream()
    order = []
    bench.launch(stream, spin, np.int64(MS))
    before = stream.record()
    gpu.launch_host(stream, lambda: order.append("host"))
    after = stream.record()
    other.wait(after)
    gpu.launch_host(other, lambda: order.append("other"))
    other.sync()
    assert before.is_done
    assert order == ["host", "other"]


def test_a_host_function_that_raises_is_reported_and_the_stream_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_type))
    stream = bench.device.create_stream()

    def fail() -> Never:
        raise ZeroDivisionError

    gpu.launch_host(stream, fail)
    called = []
    gpu.launch_host(stream, lambda: called.append(True))
    stream.sync()
    assert reported == [ZeroDivisionError]
    assert called == [True]
