"""Conditions, resources, schedulers, operators, tensors and messages behave as the SDK's do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace_holoscan import conditions, gxf, lenience, operators, resources, schedulers
from headrace_holoscan.absent import NotHereError
from headrace_holoscan.core import (
    Application,
    Arg,
    Clock,
    ComponentSpec,
    Condition,
    ConditionBase,
    DLDeviceType,
    IOSpec,
    Operator,
    Resource,
    ResourceBase,
    SchedulingStatusType,
    Tensor,
)

READY, WAIT = SchedulingStatusType.READY, SchedulingStatusType.WAIT
SCHEDULERS: dict[str, tuple[Any, dict[str, int]]] = {
    "greedy": (schedulers.GreedyScheduler, {}),
    "two": (schedulers.EventBasedScheduler, {"worker_thread_number": 2}),
    "five": (schedulers.MultiThreadScheduler, {"worker_thread_number": 5}),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    lenience.forget()
    yield
    lenience.forget()


class App(Application):
    """An application whose compose is a function."""

    def __init__(self, make: Callable[[Any], None] = lambda app: None) -> None:
        self.make = make
        super().__init__()

    def compose(self) -> None:
        self.make(self)


def run(make: Callable[[Any], None], scheduler: str = "greedy") -> None:
    app = App(make)
    kind, options = SCHEDULERS[scheduler]
    app.scheduler(kind(app, clock=resources.ManualClock(app), **options))
    app.run()


def period(app: Any, milliseconds: int) -> Any:
    return conditions.PeriodicCondition(app, milliseconds * 1_000_000)


class Tx(Operator):
    """Sends 1, 2, ..."""

    def setup(self, spec: Any) -> None:
        spec.output("out")
        self.count = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.count += 1
        op_output.emit(self.count, "out")


class Rx(Operator):
    """Keeps what it receives."""

    def __init__(self, fragment: Any, *args: Any, taken: list[Any], **kwargs: Any) -> None:
        self.taken = taken
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.taken.append(op_input.receive("in"))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_condition_is_evaluated_once_for_each_compute(scheduler: str) -> None:
    calls: list[str] = []

    class Mine(Condition):
        def update_state(self, timestamp: int) -> None:
            calls.append("update")

        def check(self, timestamp: int) -> tuple[Any, int | None]:
            calls.append("check")
            return READY, None

        def on_execute(self, timestamp: int) -> None:
            calls.append("executed")

    def make(app: Any) -> None:
        tx = Tx(app, conditions.CountCondition(app, 3), Mine(app, name="mine"), name="tx")
        app.add_flow(tx, Rx(app, taken=[], name="rx"))

    run(make, scheduler)
    assert calls == ["update", "check", "executed"] * 3


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_condition_that_names_a_port_replaces_its_default(scheduler: str) -> None:
    taken: list[Any] = []
    sizes: list[int] = []

    class TwoMessages(Condition):
        def __init__(self, fragment: Any, *args: Any, port: str, **kwargs: Any) -> None:
            self.port = port
            super().__init__(fragment, *args, receiver_name=port, **kwargs)

        def check(self, timestamp: int) -> tuple[Any, int | None]:
            sizes.append(self.receiver(self.port).size)
            return (READY if sizes[-1] >= 2 else WAIT), None

    class Pairs(Rx):
        def setup(self, spec: Any) -> None:
            spec.input("in", size=2)

    def make(app: Any) -> None:
        rx = Pairs(app, TwoMessages(app, port="in", name="two"), taken=taken, name="rx")
        app.add_flow(Tx(app, conditions.CountCondition(app, 4), name="tx"), rx)

    run(make, scheduler)
    assert taken == [(1, 2), (3, 4)]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_condition_that_names_an_output_replaces_its_default(scheduler: str) -> None:
    taken: list[Any] = []

    class Always(Condition):
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(fragment, *args, transmitter_name="out", receiver_name="unknown", **kwargs)

    class Newest(Rx):
        def setup(self, spec: Any) -> None:
            spec.input("in", policy=IOSpec.QueuePolicy.POP)

    def make(app: Any) -> None:
        tx = Tx(app, conditions.CountCondition(app, 4), period(app, 10), Always(app), name="tx")
        app.add_flow(tx, Newest(app, period(app, 25), taken=taken, name="rx"))

    run(make, scheduler)
    assert taken == [1, 3, 4]


def test_a_resource_declares_parameters(caplog: pytest.LogCaptureFixture) -> None:
    class Settings(Resource):
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.kept = 7
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: ComponentSpec) -> None:
            spec.param("gain", 1.0)
            spec.param("needed")
            spec.param("kept", 9)

    app = App()
    made = Settings(app, gain="high", unknown=1, name="settings")
    assert (made.gain, made.needed, made.kept) == ("high", None, 7)
    assert not hasattr(made, "unknown")
    assert "unknown" in caplog.text
    made.add_arg(Arg("needed", 3))
    assert made.needed == 3
    assert [arg.name for arg in made.args] == ["gain", "unknown", "needed"]
    assert (made.id, isinstance(made.spec, ComponentSpec), isinstance(made, ResourceBase)) == (-1, True, True)
    assert "name: settings" in repr(made)
    with pytest.raises(ValueError, match="the application or fragment it belongs to"):
        Settings(None)


def test_an_application_has_an_executor_and_thread_pools() -> None:
    app = App()
    assert (app.executor.context_uint64, app.executor.fragment) == (0, app)
    assert isinstance(app.make_thread_pool("pool", 2), resources.ThreadPool)


def test_components_are_what_the_sdk_calls_them() -> None:
    app = App()
    count = conditions.CountCondition(app, 5, "five")
    assert (count.name, count.count, isinstance(count, ConditionBase)) == ("five", 5, True)
    assert isinstance(count, gxf.GXFCondition)
    assert "value: 5" in repr(count)
    made = [kind(app).name for kind in (schedulers.GreedyScheduler, schedulers.MultiThreadScheduler)]
    assert made == ["greedy_scheduler", "multithread_scheduler"]
    pool = resources.CudaStreamPool(app, 0, 0, 0, 1, 5, None, "ranges", "pool")
    assert (pool.name, pool.max_size, pool.nvtx_identifier) == ("pool", 5, "ranges")
    assert pool.allocate(8) is None
    assert not pool.is_available(8)
    assert conditions.CudaStreamCondition(app, receivers=["a", "b"]).receivers == ["a", "b"]
    with pytest.raises(TypeError):
        conditions.CountCondition(app, number=5)


def test_an_operator_has_a_pool_of_streams_in_a_run_with_a_device_unless_it_was_given_one() -> None:
    found: dict[str, Any] = {}

    class Asks(Operator):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            name = f"{self.name}_stream_pool"
            found[self.name] = self.resources.get(name)
            assert (name in self.resources) is (found[self.name] is not None)
            with pytest.raises(KeyError, match="other"):
                self.resources["other"]

    class Program(App):
        def compose(self) -> None:
            count = conditions.CountCondition(self, 1)
            self.add_operator(Asks(self, count, name="plain"))
            pool = resources.CudaStreamPool(self, name="own")
            self.add_operator(Asks(self, conditions.CountCondition(self, 1), pool, name="given"))

    app = Program()
    app.run()
    assert isinstance(found["plain"], resources.CudaStreamPool)
    assert found["given"] is None
    (plain, given) = app.graph.operators
    assert "plain_stream_pool" not in Asks(app, name="plain").resources  # before its run
    assert list(given.resources) == ["own"]
    assert list(plain.resources) == []


def test_a_clock_is_cast_to_its_class() -> None:
    app = App()
    clock: Any = resources.RealtimeClock(app)
    assert isinstance(clock, Clock)
    assert clock.cast_to(resources.RealtimeClock) is clock
    with pytest.raises(RuntimeError, match="is a RealtimeClock, not a ManualClock"):
        clock.cast_to(resources.ManualClock)
    manual = resources.ManualClock(app, 7, "manual")
    assert Clock(manual) is manual


def test_ready_operators_are_operators() -> None:
    app = App()
    pool = resources.UnboundedAllocator(app, "pool")
    converter = operators.FormatConverterOp(app, pool=pool, out_dtype="rgb888", name="converter")
    assert isinstance(converter, Operator)
    with pytest.raises(TypeError, match="pool"):
        operators.FormatConverterOp(app, out_dtype="rgb888")
    with pytest.raises(RuntimeError, match="unknown keys typ"):
        operators.HolovizOp(app, tensors=[{"name": "frame", "typ": "color"}])
    with pytest.raises(RuntimeError, match="a dict with name and type"):
        operators.HolovizOp(app, tensors=[3])
    spec = operators.InferenceOp.ActivationSpec("model", True)
    spec.set_active(False)
    assert (spec.model(), spec.is_active()) == ("model", False)


def test_tensors_are_made_of_arrays() -> None:
    array = np.arange(4, dtype=np.float32)
    tensor = Tensor.as_tensor(array)
    assert isinstance(tensor, Tensor)
    assert tensor.device.device_type == DLDeviceType.DLCPU
    assert Tensor.from_dlpack(array).data == tensor.data
    assert Tensor.from_dlpack(array, copy=True).data != tensor.data
    assert Tensor.from_dlpack(array, device=(DLDeviceType.DLCPU, 0)).shape == (4,)
    with pytest.raises(BufferError, match="stays there"):
        Tensor.from_dlpack(array, device=(DLDeviceType.DLCUDA, 0))
    for wrong in ([1, 2], 3, "text", object()):
        with pytest.raises(RuntimeError):
            Tensor.as_tensor(wrong)
        with pytest.raises(RuntimeError):
            Tensor.from_dlpack(wrong)


def test_extensions_are_not_loaded(caplog: pytest.LogCaptureFixture) -> None:
    gxf.load_extensions(0, ["libgxf_multimedia.so"])
    assert "libgxf_multimedia.so" in caplog.text


def test_a_condition_that_is_not_here_fails_when_an_operator_has_it() -> None:
    class App(Application):
        def compose(self) -> None:
            self.add_operator(
                operators.PingTxOp(self, conditions.CudaEventCondition(self, "event"), name="tx")
            )

    with pytest.raises(NotHereError, match="operator 'tx': holoscan's CudaEventCondition is not here"):
        App().run()
