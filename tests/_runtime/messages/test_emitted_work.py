"""The work behind emitted tensors, as its receivers find it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import gpu
from headrace._runtime.messages.fences import EmittedWork, Fences, ManagedStream
from headrace.gpu import sim


def stream() -> ManagedStream:
    device = gpu.Device(0)
    return ManagedStream(device.create_stream(), 0, device.create_event)


@pytest.mark.usefixtures("machine")
def test_an_export_comes_after_the_work_of_every_receiver_that_was_ordered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(sim.Stream, "wait", lambda self, event: waits.append((int(self.handle), event)))
    sender = stream()
    work = EmittedWork(sender)
    work.attach(Fences(sender).stamp("tensors"))
    work.note_ordered(stream())
    foreign = gpu.Device(0).create_stream()
    work.order(int(foreign.handle))
    assert [handle for handle, _ in waits] == 2 * [int(foreign.handle)]  # the sender, and the first receiver
