"""The work behind emitted tensors, as its receivers find it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, as_tensor, gpu
from headrace._runtime.messages.envelope import Details
from headrace._runtime.messages.fences import EmittedWork, Fences, ManagedStream
from headrace.gpu import sim
from tests.harness import Step, frame, run


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


@pytest.mark.usefixtures("machine")
def test_a_message_has_further_fences_and_details_at_once() -> None:
    fences = Fences(stream())
    more = ((fences, 1, fences.insert()),)
    for with_fences_first in (True, False):
        message = Fences(stream()).stamp("data")
        steps = [lambda message=message: message.set_more_fences(more)]
        steps.append(lambda message=message: message.add_details(Details(7, {"number": 1})))
        for step in steps if with_fences_first else reversed(steps):
            step()
        assert message.more_fences == more
        assert (message.acq_timestamp, message.metadata) == (7, {"number": 1})


@pytest.mark.usefixtures("machine")
def test_each_of_several_receivers_of_a_tensor_gets_the_metadata_and_the_timestamp() -> None:
    found: list[Any] = []

    def compose(app: Any) -> None:
        app.enable_metadata(True)

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            op_output.set_cuda_stream(stream, "out")
            self.metadata["number"] = 1
            op_output.emit(as_tensor(frame(stream)), "out", acq_timestamp=7)

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            found.append((self.metadata["number"], op_input.get_acquisition_timestamp("in")))

        first = Step(app, CountCondition(app, 1), outputs=["out"], body=send, name="first")
        for name in ("one", "other"):
            app.add_flow(first, Step(app, inputs=["in"], body=take, name=name))

    run(compose)
    assert found == [(1, 7)] * 2
