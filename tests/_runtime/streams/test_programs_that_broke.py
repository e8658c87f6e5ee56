"""Programs that an earlier design of streams broke: what each may rely on is one of the five rules."""

from __future__ import annotations

import asyncio
import queue
import sys
import sysconfig
import warnings
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from headrace import ConditionType, CountCondition, Operator, PeriodicCondition, as_tensor, gpu, op, retry
from headrace.core.errors import ResentMemoryWarning, StreamError
from headrace.resources import RingAllocator, UnboundedAllocator
from tests.harness import MS, MakeScheduler, Step, greedy, launch, run
from tests.harness.libraries import here, new_array, use_arrays

FRAMES = 24
ALL = list(range(1, FRAMES + 1))
every_layout = pytest.mark.parametrize("per", ["operator", "branch", "program"])


@pytest.fixture(autouse=True)
def _arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    use_arrays(monkeypatch)


@pytest.fixture
def other_module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A function that returns a module with this code; one of them looks installed."""

    def make(code: str) -> Any:
        module: Any = ModuleType("grabbing")
        folder = sysconfig.get_paths()["purelib"] if "installed" in request.node.name else "/programs"
        module.__file__ = f"{folder}/grabbing.py"
        monkeypatch.setitem(sys.modules, "grabbing", module)
        exec(compile(code, module.__file__, "exec"), vars(module))
        return module

    return make


class Source(Operator):
    """Sends frames of its library, filled with 1, 2, 3 and so on."""

    milliseconds = 0.2

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.number += 1
        op_output.emit(new_array().fill(self.number, self.milliseconds * MS), "out")


class Sink(Operator):
    """Reads what it receives a while later, on the current stream, and drops it."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.seen: list[int] = []
        self.streams: set[int] = set()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.streams.add(int(here.stream))
        op_input.receive("in").read(self.seen, 2 * MS)


def sink_of(
    source: Callable[[Any], Operator],
    scheduler: MakeScheduler = greedy,
    per: str = "operator",
    between: Callable[[Any], Operator] | None = None,
    sink: type[Sink] = Sink,
) -> Sink:
    """Run a source into a sink, and return the sink."""

    def compose(app: Any) -> None:
        app.stream_per = per
        app.sink = sink(app, name="sink")
        app.add_flow(*(make(app) for make in (source, between) if make is not None), app.sink)

    return run(compose, scheduler).sink


def plain_source(app: Any) -> Source:
    return Source(app, CountCondition(app, FRAMES), name="source")


# -- streams in unusual places -----------------------------------------------------------------------


GRABBER = """
class Grabber:
    '''What a grabber's thread does: it uploads on a stream of its own, and hands frames over that are complete.'''

    def __init__(self, frames, upload, make):
        self.frames, self.upload, self.make = frames, upload, make

    def grab(self, number):
        frame = self.make(self.upload).fill(number, 0.001, self.upload)
        self.upload.stream.sync()
        self.frames.put(frame)
"""


@every_layout
@pytest.mark.parametrize("where", ["own", "installed"])
def test_a_grabber_may_upload_on_a_stream_of_its_own_and_hand_complete_frames_over_by_a_queue(
    where: str, per: str, scheduler: MakeScheduler, other_module: Any
) -> None:
    module = other_module(GRABBER)

    class Camera(Source):
        def start(self) -> None:
            super().start()
            upload = gpu.StreamHandle(gpu.Device(0).create_stream())
            self.grabber = module.Grabber(queue.Queue(), upload, new_array)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.number += 1
            self.grabber.grab(self.number)
            op_output.emit(self.grabber.frames.get(), "out")

    seen = sink_of(
        lambda app: Camera(app, CountCondition(app, FRAMES), name="camera"), scheduler, per, passing
    ).seen
    assert seen == ALL


def passing(app: Any) -> Step:
    """An operator that passes frames on as they are."""
    return Step(
        app,
        inputs=["in"],
        outputs=["out"],
        body=lambda self, i, o: o.emit(i.receive("in"), "out"),
        name="pass",
    )


# -- frames in unusual places ------------------------------------------------------------------------


@every_layout
def test_a_frame_stored_in_the_application_lives_while_anybody_holds_it_and_its_receivers_stream_reads_it(
    per: str, scheduler: MakeScheduler
) -> None:
    """One operator stores what it receives; another takes it there, and holds it until its own work is done."""
    seen: list[int] = []

    class Storing(Sink):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            frame.read(self.seen, 2 * MS)
            self.fragment.latest = (len(self.seen), frame, here.stream.stream.record())

    class Taking(Step):
        held: ClassVar[deque[Any]] = deque()

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            found = getattr(self.fragment, "latest", None)
            if found is not None:
                _, frame, event = found
                here.stream.stream.wait(event)
                frame.read(seen, 5 * MS)
                self.held.append((frame, here.stream.stream.record()))
            while self.held and self.held[0][1].is_done:
                self.held.popleft()

        def stop(self) -> None:
            here.stream.stream.sync()
            self.held.clear()

    def compose(app: Any) -> None:
        app.stream_per = per
        app.sink = Storing(app, name="storing")
        app.add_flow(plain_source(app), app.sink)
        app.add_operator(Taking(app, CountCondition(app, 2 * FRAMES), name="taking"))

    assert run(compose, scheduler).sink.seen == ALL
    assert seen == sorted(seen)
    assert set(seen) <= set(ALL)
    assert seen


# -- memory that is sent again -----------------------------------------------------------------------


class Buffers(Source):
    """Sends one of two arrays in turn, or what a subclass makes."""

    options: ClassVar[dict[str, Any]] = {}

    def start(self) -> None:
        super().start()
        self.buffers = [new_array(gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM)) for _ in range(2)]

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.number += 1
        op_output.emit(self.next(), "out", **self.options)

    def next(self) -> Any:
        return self.buffers[self.number % 2].fill(self.number, MS)


class Holding(Operator):
    """Reads what it receives late, if it can, and holds some of it."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.held: deque[Any] = deque(maxlen=1)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.held.append(op_input.receive("in"))
        launch(here.stream, 5 * MS, lambda: None)


def resend(
    kind: type[Operator],
    scheduler: MakeScheduler = greedy,
    between: Any = None,
    reader: type[Operator] = Holding,
    is_shared: bool = False,
) -> list[str]:
    """Run a source into an operator that reads late, and return the warnings.

    With `is_shared`, those between share a stream with another receiver of the source.
    """

    def compose(app: Any) -> None:
        source = kind(app, CountCondition(app, 60), name="camera")
        made = [make(app) for make in between or ()]
        app.add_flow(source, *made, reader(app, name="holding"))
        if is_shared:
            other = Holding(app, name="other")
            app.add_flow(source, other)
            app.share_stream(*made, other)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(compose, scheduler)
    assert all(issubclass(each.category, ResentMemoryWarning) for each in caught)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("between", [[], [passing]])
def test_a_source_that_fills_its_buffers_in_turn_is_warned_of_once(
    between: list[Any], scheduler: MakeScheduler
) -> None:
    (text,) = resend(Buffers, scheduler, between)
    assert text.startswith("operator 'camera' sends memory again at 'out' that it sent before, and that ")
    assert text.endswith("memory of an allocator; if it is never changed, say emit(..., constant=True)")


@pytest.mark.parametrize("checks", ["", "streams"])
def test_a_reader_behind_an_operator_that_passes_frames_on_counts_too(
    checks: str, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator between has passed each frame long before it is changed; the last one reads for longer."""
    monkeypatch.setenv("HEADRACE_CHECK", checks)

    class Slow(Holding):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in").read([], 20 * MS)

    class Periodic(Buffers):
        def __init__(self, app: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(app, *args, PeriodicCondition(app, "10 ms"), **kwargs)

        def next(self) -> Any:
            return self.buffers[self.number % 2].fill(self.number)

    if checks:
        with pytest.raises(StreamError, match="'camera' .* that operator 'holding' may still read"):
            resend(Periodic, scheduler, [passing], Slow)
        return
    (text,) = resend(Periodic, scheduler, [passing], Slow)
    assert "operator 'camera' sends memory again at 'out' that it sent before" in text


def test_the_check_of_streams_makes_it_an_error_at_the_first_frame_that_is_sent_again(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams")
    sent: list[int] = []

    class Counting(Buffers):
        def next(self) -> Any:
            sent.append(self.number)
            return super().next()

    with pytest.raises(
        StreamError, match=r"^operator 'camera' sends memory again at 'out' that .* 'holding'"
    ):
        resend(Counting, scheduler)
    assert len(sent) == 3


def test_a_reader_that_tries_again_does_not_count_for_another_one(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It receives each frame twice, while the other one has not received it at all."""
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    class Periodic(Buffers):
        def next(self) -> Any:
            return self.buffers[self.number % 2].fill(self.number)

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        if self.ticks % 2:
            raise ValueError("not this time")

    def compose(app: Any) -> None:
        source = Periodic(app, CountCondition(app, 9), PeriodicCondition(app, "10 ms"), name="camera")
        often = Step(app, inputs=["in"], body=read, name="often")
        often.on_error = retry(2)
        slow = Sink(app, PeriodicCondition(app, "100 ms"), name="slow")
        app.add_flow(source, often)
        app.add_flow(source, slow, size=9)

    with pytest.raises(StreamError, match="that a receiver that has not received it yet may still read"):
        run(compose, scheduler)


@pytest.mark.parametrize("how", ["awaits", "yields"])
def test_a_function_that_goes_on_with_a_frame_has_not_passed_it(
    how: str, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compute has ended, and no work is under way; the second buffer waits in the queue."""
    monkeypatch.setenv("HEADRACE_CHECK", "streams")
    waiting: list[Any] = []

    @op
    async def awaiting(frame: Any) -> None:
        waiting.append((asyncio.get_running_loop(), asyncio.Event()))
        await waiting[-1][1].wait()
        frame.read([])

    @op
    def yielding(frame: Any) -> Any:
        yield frame
        yield frame

    class Counted(Buffers):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            try:
                super().compute(op_input, op_output, context)
            finally:
                if self.number == 3:
                    for loop, event in waiting:
                        loop.call_soon_threadsafe(event.set)

        def next(self) -> Any:
            return self.buffers[self.number % 2]

    def compose(app: Any) -> None:
        source = Counted(app, CountCondition(app, 3), name="camera")
        reader = (awaiting if how == "awaits" else yielding)(app, name="reader")
        app.add_flow(source, reader, size=9)
        if how == "yields":
            app.add_flow(reader, Step(app, PeriodicCondition(app, "1 s"), inputs=["in"], name="slow"))

    with pytest.raises(
        StreamError, match="'camera' sends memory again .* that operator 'reader' may still read"
    ):
        run(compose, scheduler)


@pytest.mark.parametrize("how", ["a frame", "a view in a container", "an earlier one"])
def test_a_reader_that_keeps_a_frame_has_not_passed_it(
    how: str, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    class Periodic(Buffers):
        def next(self) -> Any:
            return self.buffers[self.number % 2]

    class Keeping(Sink):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            if how == "a view in a container":
                self.kept = {"views": [as_tensor(frame.memory)], "frame": frame}
            elif how == "a frame" or not hasattr(self, "kept"):
                self.kept = frame

    def compose(app: Any) -> None:
        source = Periodic(app, CountCondition(app, 6), PeriodicCondition(app, "10 ms"), name="camera")
        app.add_flow(source, Keeping(app, name="reader"))

    if how != "an earlier one":  # which is replaced before its memory is sent again
        run(compose, scheduler)
        return
    with pytest.raises(
        StreamError, match="'camera' sends memory again .* that operator 'reader' may still read"
    ):
        run(compose, scheduler)


class Fresh(Buffers):
    def next(self) -> Any:
        return new_array().fill(self.number, MS)


class Constant(Buffers):
    options: ClassVar[dict[str, Any]] = {"constant": True}

    def next(self) -> Any:
        return self.buffers[0]


class ReadOnly(Buffers):
    def start(self) -> None:
        super().start()
        self.table = np.zeros(4)
        self.table.flags.writeable = False

    def next(self) -> Any:
        return self.table


class Allocated(Buffers):
    """Memory of an allocator is used again when everybody has let go of it."""

    make: type[Any] = RingAllocator

    def start(self) -> None:
        super().start()
        self.allocator = self.make(self.fragment)

    def next(self) -> Any:
        return self.allocator.allocate_tensor((4,), np.float32)


class AllocatedAsNeeded(Allocated):
    make = UnboundedAllocator


@pytest.mark.parametrize("checks", ["", "streams"])
@pytest.mark.parametrize("kind", [Fresh, Constant, ReadOnly, Allocated, AllocatedAsNeeded])
def test_nobody_is_warned_of_memory_that_is_not_changed_while_others_read_it(
    kind: type[Operator], checks: str, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", checks)
    assert resend(kind, scheduler) == []


def test_one_compute_may_send_a_frame_at_several_outputs(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    class Twice(Fresh):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.output("more")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            frame = self.next()
            op_output.emit(frame, "out")
            op_output.emit(frame, "more")

    def compose(app: Any) -> None:
        source = Twice(app, CountCondition(app, 3), name="camera")
        for port in ("out", "more"):
            app.add_flow(source, Holding(app, name=f"holding {port}"), {(port, "in")})

    run(compose, scheduler)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("checks", ["", "streams"])
def test_an_operator_may_send_what_it_received_as_often_as_it_likes(
    checks: str, is_shared: bool, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the latest frame, and sends it at a rate of its own; the frame is another one's to change."""
    monkeypatch.setenv("HEADRACE_CHECK", checks)

    class Repeating(Step):
        latest: Any = None

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.ticks += 1
            if self.ticks % 3 == 1:
                self.latest = op_input.receive("in")
            op_output.emit(self.latest, "out")

    def repeating(app: Any) -> Step:
        return Repeating(
            app,
            CountCondition(app, 60),
            inputs=["in"],
            outputs=["out"],
            setup=lambda spec: spec.inputs["in"].condition(ConditionType.NONE),
            name="repeating",
        )

    assert resend(Fresh, scheduler, [repeating], is_shared=is_shared) == []


@pytest.mark.turns
def test_operators_in_a_circle_may_keep_what_they_send(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each frame is a new one, although Python gives it the identity of one that another operator sent."""
    monkeypatch.setenv("HEADRACE_CHECK", "streams")
    sent: dict[str, set[int]] = {"left": set(), "right": set()}

    class Keeping(Source):
        def setup(self, spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            here.stream.stream.sync()
            self.latest = new_array()
            sent[self.name].add(id(self.latest.memory))
            op_output.emit(self.latest, "out")

    def compose(app: Any) -> None:
        left, right = (Keeping(app, CountCondition(app, 90), name=name) for name in sent)
        app.add_flow(left, right, left)

    run(compose, scheduler)
    assert sent["left"] & sent["right"]
