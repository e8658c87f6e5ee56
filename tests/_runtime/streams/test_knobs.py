"""Knobs of operators that run as usual: on which streams they are written, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, gpu, op
from headrace.core import Operator, OperatorSpec, ParameterError
from headrace.core.errors import StreamError
from headrace.gpu import sim
from headrace.gpu.backend import find_backend
from headrace.resources import CudaStreamPool
from tests.harness import MS, App, MakeScheduler, Step, launch, run, sink, source

FRAMES = 6


def read(stream: Any, knob: Any, seen: list[Any], seconds: float = MS) -> None:
    """Read a knob at the end of a kernel."""
    launch(stream, seconds, lambda data: seen.append(data.view(knob.dtype)[0].item()), knob)


def values_seen(
    body: Callable[..., Any],
    scheduler: MakeScheduler | None = None,
    frames: int = FRAMES,
    before: Callable[[Any, int], Any] = lambda operator, n: operator.set_knob("gain", n),
    setup: Callable[[OperatorSpec], None] | None = None,
    **options: Any,
) -> list[Any]:
    """Run a compute for some frames; before each a function sets values; return what its kernels read."""
    seen: list[Any] = []

    def compose(app: Any) -> None:
        app.seen = seen
        app.step = Step(
            app,
            CudaStreamPool(app, stream_flags=1),  # not ordered with the default stream
            inputs=["in"],
            body=lambda self, i, o, context: (i.receive("in"), body(self, context, seen)),
            setup=setup,
            name="step",
            **options,
        )
        first = Step(
            app,
            CountCondition(app, frames),
            outputs=["out"],
            body=lambda self, i, o: (before(app.step, self.ticks - 1), o.emit(self.ticks, "out")),
            name="first",
        )
        app.add_flow(first, app.step)

    run(compose, *([] if scheduler is None else [scheduler]))
    return seen


# Streams.


def test_a_named_stream_reads_the_value_of_its_frame(scheduler: MakeScheduler) -> None:
    def body(self: Any, context: Any, seen: list[Any]) -> None:
        stream = context.allocate_cuda_stream("mine")
        read(stream, context.knob("gain", np.float32), seen)

    assert values_seen(body, scheduler) == [0, 1, 2, 3, 4, 5]


def test_values_that_have_changed_are_written_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the driver costs more than a word. Words that stay as they are are not written."""
    calls: list[list[int]] = []
    backend = find_backend("sim")
    write_words = backend.write_words

    def note(stream: Any, words: Any) -> None:
        calls.append([word for _, word in words])
        write_words(stream, words)

    monkeypatch.setattr(backend, "write_words", note)

    def change(operator: Any, n: int) -> None:
        operator.set_knob("gain", n)
        operator.set_knob("offset", 1 << 32 | n // 2)

    def body(self: Any, context: Any, seen: list[Any]) -> None:
        context.allocate_cuda_stream("mine")
        context.knob("gain", np.int32)
        context.knob("offset", np.int64)

    values_seen(body, before=change, frames=4)
    assert calls == [[0], [0, 1], [1], [2, 1], [3]]


def test_a_stream_that_is_used_for_the_first_time_waits_for_the_value() -> None:
    """The write is behind a long kernel, and the new stream has nothing else to wait for."""

    def body(self: Any, context: Any, seen: list[Any]) -> None:
        knob = context.knob("gain", np.float32)
        if self.ticks == 1:
            read(context.allocate_cuda_stream("busy"), knob, seen, 50 * MS)
        else:
            read(context.allocate_cuda_stream(f"stream {self.ticks}"), knob, seen)

    assert values_seen(body) == [0, 1, 2, 3, 4, 5]


def test_work_on_the_default_stream_reads_the_values_of_its_frames() -> None:
    def body(self: Any, context: Any, seen: list[Any]) -> None:
        knob = context.knob("gain", np.float32)
        read(gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM), knob, seen)

    assert values_seen(body, setup=lambda spec: spec.default_stream()) == [0, 1, 2, 3, 4, 5]


def test_a_knob_is_on_the_device_of_its_operator() -> None:
    places: list[Any] = []
    seen: list[Any] = []
    with sim.Machine("h200", devices=2):
        sim.Device(0).set_current()

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            knob = context.knob("gain", np.float32, 3)
            places.append(str(knob.device))
            self.set_knob("gain", self.ticks)
            read(context.allocate_cuda_stream("mine"), knob, seen)

        def compose(app: Any) -> None:
            pool = CudaStreamPool(app, dev_id=1)
            app.add_operator(Step(app, CountCondition(app, 3), pool, body=body, name="there"))

        run(compose)
    assert places == ["cuda:1"] * 3
    assert seen == [3, 1, 2]


# The tensor.


def test_a_knob_is_always_the_same_tensor_and_follows_without_being_asked_for_again() -> None:
    tensors: list[Any] = []

    def body(self: Any, context: Any, seen: list[Any]) -> None:
        if self.ticks == 1:
            self.kept = context.knob("gain", np.float32)
        if self.ticks > 4:
            tensors.append(context.knob("gain", "f4"))
        tensors.append(self.kept)
        read(context.allocate_cuda_stream("mine"), self.kept, seen)

    assert values_seen(body) == [0, 1, 2, 3, 4, 5]
    assert len({id(tensor) for tensor in tensors}) == 1
    assert repr(tensors[0]).startswith("Tensor(shape=(), dtype=float32, device=cuda:0")


def test_the_memory_of_knobs_goes_with_the_run() -> None:
    kept: list[Any] = []
    pool = sim.Device(0)._state.memory
    before = pool.in_use

    def body(self: Any, context: Any, seen: list[Any]) -> None:
        kept.append(context.knob("gain", np.complex128))
        read(context.allocate_cuda_stream("mine"), kept[-1], seen)
        assert pool.in_use > before

    assert values_seen(body) == [0, 1, 2, 3, 4, 5]
    assert pool.in_use == before
    with pytest.raises(RuntimeError, match="this buffer has been closed"):
        sim.host_view(kept[0])


# Where values come from.


def test_an_attribute_comes_before_set_knob_and_none_counts_as_none() -> None:
    def body(self: Any, context: Any, seen: list[Any]) -> None:
        read(context.allocate_cuda_stream("mine"), context.knob("gain", np.float32, 0.5), seen)

    def before(operator: Any, n: int) -> None:
        if n == 1:
            operator.set_knob("gain", 2)
        if n >= 2:
            operator.gain = [None, None, 4, 5, None, 6][n]

    assert values_seen(body, before=before) == [0.5, 2, 4, 5, 2, 6]


def test_a_knob_follows_a_property_and_an_attribute_of_the_class() -> None:
    seen: list[Any] = []

    class Classy(Operator):
        offset = 10

        @property
        def gain(self) -> int:
            return self.offset - 7

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            read(stream, context.knob("gain", np.int16), seen)
            read(stream, context.knob("offset", np.int16), seen)
            type(self).offset += 1

    run(lambda app: app.add_operator(Classy(app, CountCondition(app, 3), name="it")))
    assert seen == [3, 10, 4, 11, 5, 12]


def test_a_function_has_knobs_that_follow_its_parameters() -> None:
    seen: list[Any] = []

    @op
    def amplify(frame: Any, *, gain: float = 2.0, context: Any) -> Any:
        read(context.allocate_cuda_stream("mine"), context.knob("gain", np.float32), seen)
        return frame

    taken: list[Any] = []

    def compose(app: Any) -> None:
        app.amplify = amplify(app, gain=3.0, name="amplify")
        change = Step(
            app,
            inputs=["in"],
            outputs=["out"],
            body=lambda self, i, o: (
                setattr(app.amplify, "gain", 10.0 * self.ticks),
                o.emit(i.receive("in"), "out"),
            ),
            name="change",
        )
        app.add_flow(source(app, [1, 2, 3]), change, app.amplify, sink(app, taken))

    run(compose)
    assert taken == [1, 2, 3]
    assert seen == [10, 20, 30]


def plain(app: Any, seen: list[Any], count: int = 2) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        read(context.allocate_cuda_stream("mine"), context.knob("gain", np.float32, 1), seen)
        if getattr(app, "changes", False):
            self.set_knob("gain", 9)

    app.step = Step(app, CountCondition(app, count), body=body, name="step")
    app.add_operator(app.step)


def test_a_value_that_is_set_outside_of_a_run_stays_and_one_in_a_run_does_not() -> None:
    seen: list[Any] = []
    app = App(lambda app: plain(app, seen))
    app.compose_graph()
    app.step.set_knob("gain", 2)
    app.run()
    app.graph.find("step").set_knob("gain", 3)
    app.run()
    app.changes = True
    app.run()
    app.run()
    assert seen == [2, 2, 3, 3, 3, 9, 3, 9]


# Mistakes.


def asks(*arguments: Any) -> Callable[..., Any]:
    return lambda self, context, seen: context.knob(*arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("", np.float32), "operator 'step': the name of a knob must be a non-empty str, not ''"),
        (
            ("gain", "flaot32"),
            "knob 'gain' of operator 'step': 'flaot32' is not a dtype; use one such as np.float32",
        ),
        (("gain", "S4"), "knob 'gain' of operator 'step': 'S4' is not a type of knobs: bool, integers"),
        (("gain", np.uint8, 256), r"knob 'gain' of operator 'step' \(value=\): 256 does not fit into uint8"),
        (
            ("name", np.uint8),
            r"knob 'name' of operator 'step' \(its attribute 'name'\): a knob is a number, not",
        ),
        (("stop", np.uint8), r"\(its attribute 'stop'\): a knob is a number, not an object of type 'method'"),
    ],
)
def test_a_knob_that_cannot_be_is_an_error_in_compute(arguments: Any, text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        values_seen(asks(*arguments), before=lambda operator, n: None)


def test_a_value_that_was_set_before_the_type_was_known_is_an_error_in_compute() -> None:
    with pytest.raises(
        ParameterError, match=r"knob 'gain' of operator 'step' \(set_knob\): 300 does not fit"
    ):
        values_seen(asks("gain", np.uint8), before=lambda operator, n: operator.set_knob("gain", 300))


def test_a_knob_has_one_dtype() -> None:
    def body(self: Any, context: Any, seen: list[Any]) -> None:
        context.knob("gain", np.float32 if self.ticks < 3 else np.float64)

    with pytest.raises(
        ParameterError, match="is float32, and now compute asks for float64; ask for one dtype"
    ):
        values_seen(body)


def test_a_knob_has_one_initial_value() -> None:
    def body(self: Any, context: Any, seen: list[Any]) -> None:
        context.knob("gain", np.float32, np.float64(1) if self.ticks < 3 else self.ticks)

    with pytest.raises(
        ParameterError, match=r"has value=.*1.0.*, and compute asks for value=3 now; .* set_knob"
    ):
        values_seen(body)


def test_a_name_that_is_no_knob_is_an_error_where_it_is_set() -> None:
    def before(operator: Any, n: int) -> None:
        if n > 1:
            operator.set_knob("gian", 1)

    with pytest.raises(ParameterError, match="operator 'step' has no knob 'gian'; it has 'gain'"):
        values_seen(asks("gain", np.float32), before=before)


def test_a_value_for_an_operator_that_asks_for_no_knob_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"set_knob\('gain', ...\) of operator 'step' changed nothing"):
        values_seen(lambda self, context, seen: None)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("", 1, "the name of a knob must be a non-empty str"),
        (None, 1, "the name of a knob must be a non-empty str, not None"),
        ("gain", "loud", "knob 'gain' of operator 'it': a knob is a number, not an object of type 'str'"),
        ("gain", np.ones(1), "a knob is a number, not an object of type 'ndarray'"),
        (
            "rate",
            1,
            "follows the parameter of that name, .* declare it as live: spec.param.'rate', ..., live=True",
        ),
        (
            "spin",
            1,
            "follows the attribute of that name, and set_knob does not change it; assign the attribute",
        ),
    ],
)
def test_a_wrong_name_or_value_is_refused_outside_of_runs_too(name: Any, value: Any, text: str) -> None:
    class It(Operator):
        spin = 3

        def setup(self, spec: OperatorSpec) -> None:
            spec.param("rate", 2.0)

    operator = It(App(lambda app: None), name="it")
    with pytest.raises(ParameterError, match=text):
        operator.set_knob(name, value)


def test_without_a_device_there_are_no_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace._runtime.streams.run_streams.active", lambda: find_backend("none"))
    with pytest.raises(StreamError, match="operator 'step': knob 'gain' needs the memory of a device"):
        values_seen(asks("gain", np.float32), before=lambda operator, n: None)
