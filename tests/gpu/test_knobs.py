"""Knobs: scalars on the device that change from frame to frame, in segments and outside of them."""

from __future__ import annotations

import threading
from copy import copy
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.core import Operator, ParameterError
from headrace.observe import Dashboard
from tests.gpu.bench import Bench
from tests.gpu.kernels import spin
from tests.gpu.knob_pipelines import (
    COUNT,
    LATE,
    Knobs,
    Scale,
    copy_bytes,
    launch,
    memory_of,
    repeat,
    scale,
    sent,
)
from tests.harness import SCHEDULERS, MakeScheduler, event_based, greedy, switching_often
from tests.limits import THOROUGH, pairs

pytestmark = pytest.mark.usefixtures("of_this_process")

FRAMES = 20
unseen = threading.local()
"""What computes read and a recording does not notice, as a test needs it."""
captured_or_not = pytest.mark.parametrize(
    "capture", [None, {"check_every": 0.002}], ids=["ordinary", "captured"]
)


def stage(context: Any, number: int = 0) -> Any:
    return context.find_operator(f"stage{number}")


def check(app: Knobs, gains: list[Any], offsets: list[Any], recordings: int = 1) -> None:
    """Check what came out, and that a segment was recorded only as often as it should be."""
    outcome = app.run()
    expected = [
        int(sent(n) * gain) + int(offset) for n, (gain, offset) in enumerate(zip(gains, offsets, strict=True))
    ]
    assert app.sink.seen == expected
    assert outcome.operators["stage0"].computes == len(gains)
    if app.options is not None:
        assert (app.segment.state, app.segment.reason) == ("captured", "")
        assert app.segment.recordings == recordings
        assert app.segment.replayed > 0


class Gained(Scale):
    """Has its gain as a live parameter."""

    capturable = True

    gain: float

    def setup(self, spec: Any) -> None:
        super().setup(spec)
        spec.param("gain", 1.0, live=True, minimum=0.0, maximum=1000.0)
        spec.param("note", 0, live=True)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        assert self.note in (0, 1)  # read on the host
        super().compute(op_input, op_output, context)


class Fixed(Scale):
    """Has its gain as a parameter that is not live, and its offset as an attribute."""

    capturable = True

    def setup(self, spec: Any) -> None:
        super().setup(spec)
        spec.param("gain", 1)

    def start(self) -> None:
        self.offset = 5


class UntimedDashboard(Dashboard):
    """A live page without the times on the device."""

    wants_gpu_times = False


# Where values come from.


@captured_or_not
def test_without_any_value_a_knob_has_that_of_compute_or_is_zero(capture: Any) -> None:
    check(Knobs(lambda context, n: None, frames=FRAMES, capture=capture), [1] * FRAMES, [0] * FRAMES)


@captured_or_not
def test_a_knob_follows_a_parameter_and_an_attribute(capture: Any, scheduler: MakeScheduler) -> None:
    def before(context: Any, n: int) -> None:
        if n % 3 == 1:
            stage(context).gain = n
        if n % 5 == 4:
            stage(context).offset = 100 * n

    gains, offsets = [], []
    gain, offset = 7, 5
    for n in range(FRAMES):
        gain = n if n % 3 == 1 else gain
        offset = 100 * n if n % 5 == 4 else offset
        gains.append(gain)
        offsets.append(offset)
    check(Knobs(before, Fixed, frames=FRAMES, scheduler=scheduler, capture=capture, gain=7), gains, offsets)


@captured_or_not
def test_set_knob_sets_a_live_parameter(capture: Any) -> None:
    def before(context: Any, n: int) -> None:
        stage(context).set_knob("gain", 2 * n)
        with pytest.raises(ParameterError, match="must be at most 1000.0, not 1001"):
            stage(context).set_knob("gain", 1001)

    app = Knobs(before, Gained, frames=FRAMES, capture=capture)
    check(app, [2 * n for n in range(FRAMES)], [0] * FRAMES)
    assert app.stages[0].gain == 2.0 * (FRAMES - 1)


@captured_or_not
def test_the_live_page_sets_a_knob(capture: Any) -> None:
    pytest.importorskip("aiohttp")
    answers: list[str] = []

    def put(value: int) -> None:
        page = dashboard._page
        answers.append(page.set_parameter(*page._parameters["stage0", "gain"], value))

    def before(context: Any, n: int) -> None:
        thread = threading.Thread(target=put, args=(3 * n,))
        thread.start()
        thread.join()

    app = Knobs(before, Gained, frames=FRAMES, capture=capture)
    dashboard = UntimedDashboard(app, announce=lambda url: None)
    check(app, [3 * n for n in range(FRAMES)], [0] * FRAMES)
    assert answers == [""] * FRAMES


@captured_or_not
def test_operators_of_a_chain_have_knobs_of_their_own(capture: Any, scheduler: MakeScheduler) -> None:
    """The second is fed by the first, so its values are those of a moment when no frame was between them."""

    def before(context: Any, n: int) -> None:
        if n == 0:
            stage(context, 0).set_knob("gain", 2)
            stage(context, 1).set_knob("gain", 3)
            stage(context, 1).set_knob("offset", 1)

    app = Knobs(before, Scale, Scale, frames=FRAMES, scheduler=scheduler, capture=capture)
    check(app, [6] * FRAMES, [1] * FRAMES)


# When they take effect.


def test_frames_in_flight_keep_their_values(of_this_process: Bench) -> None:
    """The device is far behind: kernels take 200 µs, and every frame has a value of its own."""

    def before(context: Any, n: int) -> None:
        stage(context).set_knob("gain", n)
        stage(context).set_knob("offset", n << 8)

    frames = 300
    app = Knobs(before, frames=frames, capture={"check_every": 0.002})
    check(app, list(range(frames)), [n << 8 for n in range(frames)])


@pytest.mark.parametrize(
    ("scheduler", "mode"),
    pairs(SCHEDULERS, ["", "verify"]) if THOROUGH else [(greedy, "verify"), (event_based, "")],
)
def test_values_change_at_any_time_and_no_frame_sees_two(
    mode: str, monkeypatch: pytest.MonkeyPatch, scheduler: MakeScheduler
) -> None:
    """Two threads set knobs all the time; also the frames that are compared with ordinary runs see one value."""
    monkeypatch.setenv("HEADRACE_CAPTURE", mode)
    is_over = threading.Event()

    def change(operator: Any, name: str) -> None:
        value = 0
        while not is_over.is_set():
            value = (value + 1) % 50
            operator.set_knob(name, value)

    threads: list[threading.Thread] = []

    def before(context: Any, n: int) -> None:
        if n == 2:
            for name in ("gain", "offset"):
                threads.append(threading.Thread(target=change, args=(stage(context), name)))
                threads[-1].start()

    frames = 60
    app = Knobs(before, Gained, frames=frames, scheduler=scheduler, capture={"check_every": 0.002})
    with switching_often():
        try:
            app.run()
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
    assert (app.segment.reason, app.segment.recordings) == ("", 1)
    assert len(app.sink.seen) == frames
    for n, value in enumerate(app.sink.seen[2:], 2):
        assert value in {sent(n) * gain + offset for gain in range(50) for offset in range(50)}


def test_a_change_in_compute_takes_effect_with_the_next_frame() -> None:
    class Counting(Scale):
        capturable = True

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            context.find_operator().set_knob("gain", self.fragment.sink.seen_so_far)
            super().compute(op_input, op_output, context)

    app = Knobs(lambda context, n: setattr(app.sink, "seen_so_far", n), Counting, frames=FRAMES)
    check(app, [1, *range(FRAMES - 1)], [0] * FRAMES)


def test_an_array_that_was_made_of_a_knob_is_not_state_of_the_operator() -> None:
    """Arrays that an operator keeps are put back after a replay that is compared; knobs are set from outside."""

    class Keeping(Scale):
        capturable = True

        def start(self) -> None:
            self.kept = None

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.kept is None:
                self.kept = copy(context.knob("it", np.int32))
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            out = self.allocator.allocate_tensor((COUNT,), np.int32, stream=stream)
            launch(stream, repeat, memory_of(out), memory_of(self.kept), np.int64(LATE))
            op_output.emit(out, "out")

    def before(context: Any, n: int) -> None:
        stage(context).set_knob("it", n)

    app = Knobs(before, Keeping, frames=FRAMES, capture={"check_every": 0.002})
    app.run()
    assert app.sink.seen == list(range(FRAMES))
    assert (app.segment.state, app.segment.reason, app.segment.recordings) == ("captured", "", 1)


def test_a_knob_that_an_operator_keeps_is_set_while_frames_are_compared() -> None:
    class Keeping(Scale):
        capturable = True

        def start(self) -> None:
            self.gain_on_device = self.offset_on_device = None

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.gain_on_device is None:
                self.gain_on_device = context.knob("gain", np.float32, 1)
                self.offset_on_device = context.knob("offset", np.int64)
            frame = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            out = self.allocator.allocate_tensor(frame.shape, np.int32, stream=stream)
            inputs = map(memory_of, (out, frame, self.gain_on_device, self.offset_on_device))
            launch(stream, scale, *inputs, np.int32(COUNT), np.int64(LATE))
            op_output.emit(out, "out")

    def before(context: Any, n: int) -> None:
        if n:
            stage(context).set_knob("gain", n)
            stage(context).set_knob("offset", 2 * n)

    app = Knobs(before, Keeping, frames=FRAMES, capture={"check_every": 0.002})
    check(app, [1, *range(1, FRAMES)], [2 * n for n in range(FRAMES)])


class OnCurrentStream(Operator):
    """Sends its knob, and asks headrace for no stream: it works on that of its library, as plain array code."""

    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("allocator")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = gpu.current_stream() or gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM)
        out = self.allocator.allocate_tensor((COUNT,), np.int32, stream=stream)
        launch(stream, repeat, memory_of(out), memory_of(context.knob("it", np.int32)), np.int64(LATE))
        assert frame.shape
        op_output.emit(out, "out")


def test_an_operator_that_works_on_the_default_stream_is_ordered_with_its_replays() -> None:
    def before(context: Any, n: int) -> None:
        stage(context).set_knob("it", n)

    frames = 60
    app = Knobs(
        before,
        OnCurrentStream,
        frames=frames,
        sizes=[COUNT, COUNT // 2, COUNT // 4],
        capture={"warmup": 1, "check_every": None, "shapes": 1},
    )
    app.waits_for_device = app.has_slices = True
    app.run()
    assert app.sink.seen == list(range(frames))
    assert (app.segment.recordings, app.segment.replayed) == (1, frames // 3 - 1)


# What leads to another recording.


def test_another_live_parameter_is_part_of_the_recording() -> None:
    def before(context: Any, n: int) -> None:
        stage(context).set_live("gain", n)
        if n == 12:
            stage(context).set_live("note", 1)

    frames = 40
    app = Knobs(before, Gained, frames=frames, capture={"check_every": 0.002})
    check(app, list(range(frames)), [0] * frames, recordings=2)


def test_a_knob_that_a_later_recording_asks_for_first_is_written_before_its_replay() -> None:
    """Frames of another size are replayed meanwhile, and the stream of ordinary runs is far behind."""

    class Later(Scale):
        capturable = True

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            out = self.allocator.allocate_tensor((COUNT,), np.int32, stream=stream)
            if unseen.number < 11:
                memory_of(out).fill(0, stream=stream.stream)
                if frame.shape != (COUNT,):
                    unseen.stream = stream
            else:
                unseen.keep_busy()
                launch(
                    stream, repeat, memory_of(out), memory_of(context.knob("it", np.int32, 3)), np.int64(0)
                )
            op_output.emit(out, "out")

    def before(context: Any, n: int) -> None:
        unseen.number = n
        unseen.keep_busy = lambda: launch(unseen.stream, spin, np.int64(50 * LATE))

    frames = 14
    app = Knobs(
        before,
        Later,
        frames=frames,
        sizes=[COUNT] * 2 + [COUNT // 2],
        capture={"warmup": 3, "check_every": None},
    )
    app.run()
    assert app.sink.seen == [3 if n == 11 else 0 for n in range(frames)]
    assert (app.segment.recordings, app.segment.replayed) == (2, 8)


# Types.

VALUES: dict[str, tuple[Any, Any]] = {
    "bool": (True, False),
    "int8": (-128, 127),
    "uint8": (255, 1),
    "int16": (-32768, 258),
    "uint16": (65535, 256),
    "float16": (-1.5, 65504.0),
    "int32": (-(2**31), 0x01020304),
    "uint32": (2**32 - 1, 7),
    "float32": (float("nan"), -0.0),
    "int64": (-(2**63), 0x0102030405060708),
    "uint64": (2**64 - 1, 1 << 32),
    "float64": (1e-300, float("-inf")),
    "complex64": (1 + 2j, -1j),
    "complex128": (1e300 - 2j, 0.25),
}


@captured_or_not
@pytest.mark.parametrize("name", VALUES)
def test_a_kernel_reads_the_bytes_of_a_value(name: str, capture: Any) -> None:
    class Copy(Operator):
        capturable = True

        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")
            spec.param("allocator")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            knob = context.knob("it", name)
            assert (knob.shape, knob.strides, knob.dtype) == ((), (), np.dtype(name))
            out = self.allocator.allocate_tensor((16,), np.uint8, stream=stream)
            memory_of(out).fill(0, stream=stream.stream)
            launch(stream, copy_bytes, memory_of(out), memory_of(knob), np.int32(knob.nbytes))
            op_output.emit(out, "out")

    values = VALUES[name]
    app = Knobs(
        lambda context, n: stage(context).set_knob("it", values[n // 2 % 2]), Copy, frames=14, capture=capture
    )
    app.compose_graph()
    seen: list[bytes] = []
    read_all(app, seen)
    app.run()
    expected = [np.array(value).astype(name).tobytes().ljust(16, b"\0") for value in values]
    assert seen == [expected[n // 2 % 2] for n in range(14)]
    if capture is not None:
        assert (app.segment.state, app.segment.recordings) == ("captured", 1)


def read_all(app: Knobs, seen: list[bytes]) -> None:
    """Let the sink keep the bytes of frames, whose elements differ."""
    from headrace.tensor.copies import read_on_host

    compose = app.compose

    def compose_with_bytes() -> None:
        compose()
        sink = app.sink

        def read(count: int) -> None:
            for frame in sink.waiting[:count]:
                (data,) = read_on_host([frame], sink.stream)
                sink.stream.stream.sync()
                seen.append(np.asarray(data).tobytes())
            del sink.waiting[:count]

        sink.read = read

    app.compose = compose_with_bytes  # type: ignore[method-assign]


# Errors.


@captured_or_not
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("loud", "a knob is a number, not an object of type 'str'"),
        (1e39, "does not fit into float32"),
        (1j, "is complex, and float32 is not"),
    ],
)
def test_a_wrong_value_of_an_attribute_ends_the_run_and_is_named(value: Any, why: str, capture: Any) -> None:
    def before(context: Any, n: int) -> None:
        if n == 15:
            stage(context).gain = value

    app = Knobs(before, Fixed, frames=FRAMES, capture=capture)
    with pytest.raises(
        ParameterError, match=r"knob 'gain' of operator 'stage0' \(its attribute 'gain'\): "
    ) as raised:
        app.run()
    assert why in str(raised.value)
    assert app.sink.seen == [sent(n) + 5 for n in range(15)]


@captured_or_not
def test_a_wrong_value_is_an_error_where_it_is_set_and_changes_nothing(capture: Any) -> None:
    def before(context: Any, n: int) -> None:
        if n < 2:
            return
        operator = stage(context)
        with pytest.raises(ParameterError, match="knob 'offset' of operator 'stage0': nan is not an integer"):
            operator.set_knob("offset", float("nan"))
        with pytest.raises(ParameterError, match="does not fit into float32"):
            operator.set_knob("gain", 1e39)
        with pytest.raises(ParameterError, match="has no knob 'gian'; it has 'gain', 'offset'; did you mean"):
            operator.set_knob("gian", 1)

    check(Knobs(before, frames=FRAMES, capture=capture), [1] * FRAMES, [0] * FRAMES)


def test_a_name_that_is_no_knob_is_found_although_no_ordinary_compute_follows() -> None:
    app = Knobs(lambda context, n: None, frames=FRAMES, capture={"warmup": 1, "check_every": None})
    app.compose_graph()
    app.stages[0].set_knob("gian", 1)
    with pytest.raises(
        ParameterError, match="has no knob 'gian'; it has 'gain', 'offset'; did you mean 'gain'?"
    ):
        app.run()


def test_a_live_value_that_the_knob_cannot_hold_is_an_error_where_it_is_set() -> None:
    class Narrow(Gained):
        capturable = True

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            context.knob("note", np.int8)
            super().compute(op_input, op_output, context)

    def before(context: Any, n: int) -> None:
        if n:
            with pytest.raises(ParameterError, match="128 does not fit into int8: it holds -128 to 127"):
                stage(context).set_live("note", 128)

    app = Knobs(before, Narrow, frames=FRAMES, capture={"check_every": 0.002})
    check(app, [1] * FRAMES, [0] * FRAMES)
    assert app.stages[0].note == 0
