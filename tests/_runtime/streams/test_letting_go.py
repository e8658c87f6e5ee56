"""A frame stays until it is let go and the streams that may read it have passed that moment, however it is held."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import CountCondition, TensorMap, as_tensor
from headrace.gpu import sim
from tests._runtime.streams.pipelines import ALL, FRAMES, Sending, frames_seen, read_late
from tests.harness import (
    FRAME_BYTES,
    MS,
    MakeScheduler,
    Step,
    frame,
    run,
    write_frame,
)

# -- what a receiver changes -------------------------------------------------------------------------


@dataclass
class Picture:
    frame: Any


class Slotted:
    __slots__ = ("frame",)

    def __init__(self, data: Any) -> None:
        self.frame = data


def generate(data: Any) -> Iterator[Any]:
    yield data


def take_field(message: Any) -> Any:
    data, message.frame = message.frame, None
    return data


def take_value(message: Any) -> Any:
    data, message["frame"] = message["frame"], None
    return data


WRAPPINGS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a field is replaced": (Picture, take_field),
    "a slot is replaced": (Slotted, take_field),
    "a list is popped": (lambda data: [data], list.pop),
    "a list in a list is popped": (lambda data: [[data], 1], lambda message: message[0].pop()),
    "a deque is popped": (lambda data: deque([data]), deque.pop),
    "a set is popped": (lambda data: {Slotted(data)}, lambda message: message.pop().frame),
    "a value of a dict is replaced": (lambda data: {"frame": data, "number": 1}, take_value),
    "a dict is popped": (lambda data: {"frame": data}, lambda message: message.pop("frame")),
    "a dict with a tensor is popped": (
        lambda data: {"frame": as_tensor(data), "number": 1},
        lambda message: message.pop("frame").owner,
    ),
    "a map of tensors is popped": (
        lambda data: TensorMap(frame=data),
        lambda message: message.pop("frame").owner,
    ),
    "an iterator is consumed": (lambda data: iter([data]), lambda message: list(message).pop()),
    "a generator is consumed": (generate, lambda message: list(message).pop()),
    "an iterator of another is consumed": (
        lambda data: map(itself, [data]),
        lambda message: list(message).pop(),
    ),
    "a function gives it": (lambda data: lambda: data, lambda message: message()),
}


def itself(data: Any) -> Any:
    return data


@pytest.mark.parametrize("kind", WRAPPINGS)
def test_a_frame_that_is_taken_out_of_what_it_came_in_stays(kind: str, scheduler: MakeScheduler) -> None:
    wrap, take = WRAPPINGS[kind]

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = take(op_input.receive("in"))
        read_late(self.fragment, op_input.receive_cuda_stream("in"), data)

    assert frames_seen(body, scheduler, wrap) == ALL


def test_a_frame_that_came_as_metadata_stays(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []
        app.enable_metadata(True)

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            op_output.set_cuda_stream(stream, "out")
            data = frame(stream)
            write_frame(stream, MS / 20, data, self.ticks - 1)
            self.metadata["frame"] = data
            op_output.emit("see the metadata", "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            read_late(app, op_input.receive_cuda_stream("in"), self.metadata.pop("frame"))

        sender = Step(app, CountCondition(app, FRAMES), outputs=("out",), body=send, name="sender")
        app.add_flow(sender, Step(app, inputs=("in",), body=take, name="taker"))

    assert run(compose, scheduler).seen == ALL


# -- what is held across computes --------------------------------------------------------------------


def test_what_is_watched_is_let_go_when_the_program_lets_go(machine: sim.Machine) -> None:
    """What is held is what the program holds and a bound beyond it, and both can be seen."""
    in_use: list[int] = []
    told: list[tuple[int, int]] = []

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        held = self.__dict__.setdefault("held", deque(maxlen=5))
        held.append(op_input.receive("in"))
        read_late(self.fragment, op_input.receive_cuda_stream("in"), held[0])
        in_use.append(machine.devices[0].memory.in_use // FRAME_BYTES)
        told.append((context.frames_held, context.frames_in_flight))

    frames_seen(body, frames=200)
    assert max(in_use) <= 5 + 8 + 6 + 3
    assert max(held for held, _ in told) == 5
    assert 0 < max(in_flight for _, in_flight in told) <= 8 + 6
    gc.collect()
    assert machine.devices[0].memory.in_use == 0


def test_operators_that_share_a_frame_do_not_wait_for_each_other(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    in_use: list[int] = []

    def compose(app: Any) -> None:
        app.seen = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            read_late(app, stream, data)
            in_use.append(machine.devices[0].memory.in_use // FRAME_BYTES)
            if self.name == "middle":
                op_output.emit(data, "out")

        sender = Sending(app, CountCondition(app, 100), name="sender")
        for n in range(3):
            app.add_flow(sender, Step(app, inputs=("in",), body=take, name=f"taker{n}"))
        middle = Step(app, inputs=("in",), outputs=("out",), body=take, name="middle")
        app.add_flow(sender, middle, Step(app, inputs=("in",), body=take, name="last"))

    assert sorted(run(compose, scheduler).seen) == sorted(list(range(100)) * 5)
    assert max(in_use) <= 40
