"""Ctrl-C ends a wait for the device, whichever thread gets the signal and whenever it comes."""

from __future__ import annotations

import signal
import threading

import pytest

from headrace import waits
from headrace.gpu import sim
from tests.harness.threads import wait_until_blocked


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_LONGEST", 0.02)


@pytest.mark.parametrize("timeout", [None, 1e9])
@pytest.mark.parametrize("kind", ["virtual", "paced"])
def test_a_signal_that_another_thread_gets_ends_a_wait(kind: str, timeout: float | None) -> None:
    with sim.Machine("h200", time=kind) as machine:
        is_attached, has_begun, is_over = threading.Event(), threading.Event(), threading.Event()

        def deliver() -> None:
            with (
                machine.attach()
            ):  # virtual time stands still, so that the main thread waits for a notification
                is_attached.set()
                has_begun.wait()
                wait_until_blocked(threading.main_thread())
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
                is_over.wait()

        def is_ready() -> bool:
            has_begun.set()  # with the lock held
            return False

        thread = threading.Thread(target=deliver)
        thread.start()
        is_attached.wait()
        with pytest.raises(KeyboardInterrupt):
            machine.wait(is_ready, timeout)
        is_over.set()
        thread.join()
        sim.Device(0).set_current()
        sim.Device(0).create_stream().sync()  # the machine is as it was
