"""``emit(data, after=event)``: a message comes after work on a stream that headrace does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, gpu
from headrace.core.errors import StreamError
from headrace.gpu import sim
from headrace.tensor import Library, register_library
from tests.harness import MS, MakeScheduler, Step, greedy, run
from tests.harness.libraries import new_array, use_arrays

FRAMES = 12


class Waits:
    """An event of a library whose streams wait for events: `wait_event` of the stream is called."""

    def __init__(self, event: Any) -> None:
        self.event = event


class IsWaitedFor:
    """An event of a library that is told the stream: `wait` of the event is called."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def wait(self, stream: Any) -> None:
        stream.handle.stream.wait(self.event)


class LibraryStream:
    """The object of a library for one of our streams."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle


class WaitingStream(LibraryStream):
    def wait_event(self, event: Waits) -> None:
        self.handle.stream.wait(event.event)


class Waiting(Library):
    types = ("waiting.Array",)
    stream = staticmethod(WaitingStream)


class Waited(Library):
    types = ("waited.Array",)
    stream = staticmethod(LibraryStream)


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    use_arrays(monkeypatch)
    for library, event in ((Waiting(), Waits), (Waited(), IsWaitedFor)):
        register_library(library)
        monkeypatch.setattr(event, "__module__", f"{library.module}.cuda")


def frames_seen(after: Callable[[Any], Any], scheduler: MakeScheduler, per: str = "operator") -> list[int]:
    """Run a source that uploads on a stream of its own, and return what a quick reader read."""
    seen: list[int] = []

    class Source(Step):
        def start(self) -> None:
            self.upload = gpu.StreamHandle(gpu.Device(0).create_stream())

    def send(self: Any, op_input: Any, op_output: Any) -> None:
        frame = new_array(self.upload).fill(self.ticks, MS, self.upload)
        op_output.emit(frame, "out", after=after(self.upload.stream))

    def take(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in").read(seen, MS / 100)

    def compose(app: Any) -> None:
        app.stream_per = per
        source = Source(app, CountCondition(app, FRAMES), outputs=["out"], body=send, name="source")
        app.add_flow(source, Step(app, inputs=["in"], body=take, name="sink"))

    run(compose, scheduler)
    return seen


@pytest.mark.parametrize("per", ["operator", "branch", "program"])
@pytest.mark.parametrize(
    "after",
    [
        lambda stream: stream.record(),
        lambda stream: [stream.record(), sim.Device(0).default_stream.record()],
        lambda stream: (stream.record(),),
        lambda stream: Waits(stream.record()),
        lambda stream: IsWaitedFor(stream.record()),
        lambda stream: [Waits(stream.record()), IsWaitedFor(stream.record())],
    ],
)
def test_a_message_comes_after_the_events(after: Any, per: str, scheduler: MakeScheduler) -> None:
    assert frames_seen(after, scheduler, per) == list(range(1, FRAMES + 1))


NOT_INSTALLED = type("Event", (), {"__module__": "not_installed", "wait": lambda self, stream: None})


@pytest.mark.parametrize("wrong", [7, "event", object(), [object()], np.zeros(2), NOT_INSTALLED()])
def test_what_is_no_event_is_an_error_that_names_the_operator(wrong: Any) -> None:
    with pytest.raises(
        StreamError,
        match=r"operator 'source': emit\(..., after=\) takes an event of cuda.core, CuPy, .* not ",
    ):
        frames_seen(lambda stream: wrong, greedy)


def test_an_event_is_a_stream_of_any_library_too(scheduler: MakeScheduler) -> None:
    """The message then comes after what was submitted to the stream so far."""
    assert frames_seen(gpu.StreamHandle, scheduler) == list(range(1, FRAMES + 1))
