"""Which device is current on a thread, while and after a program works on one."""

from __future__ import annotations

import threading
from typing import Never

import pytest

from headrace import gpu
from tests.gpu.bench import Bench


def test_what_was_current_is_current_again_after_work_on_a_device(bench: Bench) -> Never:
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


def test_where_nothing_was_current_the_device_stays_so(bench: Bench) -> None:
    if bench.is_simulated != (gpu.backend() == "sim"):
        pytest.skip("on_device is about the kind of device that the process uses")
    found = []

    def on_another_thread() -> None:
        with gpu.on_device(0):
            pass
        found.append(bench.names.Device(0).create_stream())

    thread = threading.Thread(target=on_another_thread)
    thread.start()
    thread.join()
    assert len(found) == 1
