"""The work behind emitted tensors, as each of several receivers finds it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import gpu
from headrace._runtime.messages.emitted_work import EmittedWork
from headrace._runtime.messages.envelope import stamping
from headrace._runtime.messages.fences import Fences
from headrace._runtime.messages.managed_stream import ManagedStream
from headrace.gpu import sim


def stream() -> ManagedStream:
    device = gpu.Device(0)
    return ManagedStream(device.create_stream(), 0, device.create_event)


def sent(sender: ManagedStream, receivers: int) -> list[EmittedWork]:
    """Return the work of one emit, for each of several receivers."""
    message = stamping(Fences(sender))("tensors")
    first = EmittedWork(sender)
    first.attach(message)
    works = [first.for_other_receiver() for _ in range(receivers)]
    for work in works:
        work.attach(message)
    return works


@pytest.mark.usefixtures("machine")
def test_an_export_comes_after_the_work_of_every_receiver_that_was_ordered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(sim.Stream, "wait", lambda self, event: waits.append((int(self.handle), event)))
    one, other = sent(stream(), receivers=2)
    one.note_ordered(stream())
    foreign = gpu.Device(0).create_stream()
    other.order(int(foreign.handle))
    assert [handle for handle, _ in waits] == 2 * [int(foreign.handle)]  # the sender, and the first receiver


@pytest.mark.usefixtures("machine")
def test_that_one_receiver_is_ordered_says_nothing_of_another() -> None:
    sender = stream()
    one, other = sent(sender, receivers=2)
    one.note_ordered(stream())
    assert one.stream is None
    assert other.stream == sender.handle


@pytest.mark.usefixtures("machine")
def test_the_stream_of_a_message_is_named_until_all_of_its_work_is_done() -> None:
    sender, other = stream(), Fences(stream())
    message = stamping(Fences(sender))("tensors")
    event = other.insert()
    message.set_more_fences(((other, other.last, event),))
    work = EmittedWork(sender)
    work.attach(message)
    assert message.fences is not None
    message.fences.completed = 1
    assert work.stream == sender.handle
    other.completed = 1
    assert work.stream is None
