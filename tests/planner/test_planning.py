"""Planning a program on the simulated device: what is measured, decided, written, and watched."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from headrace import Application, CountCondition, GreedyScheduler, Operator, PeriodicCondition, gpu
from headrace.cli import main
from headrace.cli.plan_simulation import Simulated, blocks_of, profile_like, simulate, simulate_apart
from headrace.core.errors import GraphError
from headrace.gpu import sim
from headrace.gpu.backend import active
from headrace.planner import Decision, Plan, Target, make_plan, read_plan
from headrace.planner.alone import KEPT, TIMES
from headrace.planner.deciding import decide, flows_of
from headrace.planner.measured import Measured, OperatorTimes, Times
from headrace.planner.observing import Observed, Tries
from headrace.planner.report import report
from headrace.resources import MachineClock
from tests.planner.programs import HOST, fits, neighbours, not_simulated, waves

GOAL = Target.parse("control: p99 < 500us")


def small() -> Measured:
    """Return a control loop beside a kernel that fills an Orin for 4 ms."""
    sizes = (4, 6, 8, 10, 12)
    return Measured(
        "NVIDIA Jetson AGX Orin (simulated)",
        16,
        sizes,
        {
            "sense": OperatorTimes(HOST, None, 200, 5e6),
            "control": OperatorTimes(HOST, waves(4, 100, (*sizes, 16)), 200),
            "camera": OperatorTimes(HOST, None, 1e9 / 17e6, 17e6),
            "net": OperatorTimes(HOST, waves(96, 1000, (*sizes, 16)), 1e9 / 17e6),
        },
        [("sense", "control"), ("camera", "net")],
    )


def plan_small() -> Decision:
    """Return what is planned for a program on an Orin, by measuring each operator with its inputs once."""
    with pytest.MonkeyPatch.context() as patch, sim.Machine("orin"):
        measure_once(patch)
        return make_plan(Simulated(small(), 40, 1), [GOAL], not_simulated, frames=40)


def measure_once(patch: pytest.MonkeyPatch) -> None:
    """An operator takes the same each time here."""
    for module in ("alone", "measuring"):
        patch.setattr(f"headrace.planner.{module}.TIMES", 1)


@pytest.fixture(scope="module")
def planned() -> Decision:
    return plan_small()


def test_what_is_measured_is_what_the_kernels_take(planned: Decision) -> None:
    """A kernel of 96 blocks of 1 ms, and one of 4 blocks of 100 us, on slices of every size."""
    truth = small().operators
    for name in ("control", "net"):
        curve, known = planned.measured.operators[name].curve, truth[name].curve
        assert curve is not None
        assert known is not None
        for sms in (4, 6, 8, 10, 12, 16):
            assert curve.at(sms).p50 == pytest.approx(known.at(sms).p50, rel=0.02, abs=40e3), (name, sms)
    rates = {name: one.rate for name, one in planned.measured.operators.items()}
    assert rates == pytest.approx(
        {"sense": 200, "control": 200, "camera": 1e9 / 17e6, "net": 1e9 / 17e6}, rel=0.01
    )


def test_the_plan_keeps_the_goal_that_the_program_misses_as_declared(planned: Decision) -> None:
    (figure,) = planned.figures
    assert planned.plan.slices["control"][0] == 4
    assert figure.is_met
    assert figure.agrees
    declared = replace(planned.plan, slices={}, shared_streams=[], segments=[])
    (value,) = simulate(small(), declared, [GOAL], 40, "orin")
    assert value is not None
    assert not GOAL.is_met(value)


def test_plans_do_not_change_from_run_to_run(planned: Decision) -> None:
    assert plan_small().plan == planned.plan


def test_the_process_that_simulates_says_the_same(planned: Decision) -> None:
    (apart,) = simulate_apart(small(), [planned.plan], [GOAL], 40)
    assert apart == simulate(small(), planned.plan, [GOAL], 40, "orin")


def test_an_operator_without_flows_is_simulated() -> None:
    tick = replace(small().operators["control"], period=5e6)
    alone = replace(small(), operators={"control": tick}, flows=[])
    (rate,) = simulate(alone, Plan("device", 16, {}), [Target.parse("control: rate >= 190")], 40, "orin")
    assert rate == pytest.approx(200, rel=0.01)


def test_a_device_without_a_profile_is_simulated_with_as_many_sms() -> None:
    profile = profile_like(replace(small(), device="Another GPU"))
    assert (profile.sm_count, profile.min_partition_size) == (16, 4)


@pytest.mark.parametrize(("blocks", "microseconds"), [(16, 100), (264, 40), (2320, 200)])
def test_simulated_kernels_have_the_measured_curves(blocks: int, microseconds: float) -> None:
    curve = waves(blocks, microseconds)
    count, nanoseconds = blocks_of(curve, 2)
    for sms, times in curve:
        found = -(-count // (2 * sms)) * nanoseconds
        assert found == pytest.approx(times.p50, rel=0.35), (sms, count, nanoseconds)


def test_a_goal_that_fails_even_alone_on_the_device_is_named_with_by_how_much() -> None:
    goal = Target.parse("vision: p99 < 1ms")
    decision = decide(neighbours(), [goal], fits, not_simulated, {goal: 1.0}, 40)
    assert decision.impossible[goal] == pytest.approx(-0.9, abs=0.3)
    assert "cannot be met" in report(decision, "Plan")


def test_a_rate_that_a_clock_misses_by_less_than_a_thousandth_can_be_met() -> None:
    goal = Target.parse("vision: rate >= 60.03")
    assert not decide(neighbours(), [goal], fits, not_simulated, {goal: 1.0}, 40).impossible


def test_a_page_shows_each_curve_and_what_would_have_been_next(planned: Decision) -> None:
    page = report(planned, "Plan for <app>")
    assert "Plan for &lt;app&gt;" in page
    assert page.count("<svg") == sum(one.curve is not None for one in planned.measured.operators.values())
    assert "The next best plan" in page


@pytest.mark.parametrize(
    ("goal", "error"),
    [
        ("contrl: p99 < 1ms", "there is no operator 'contrl'; .* did you mean 'control'"),
        ("control->net: p99 < 1ms", "frames are followed from a source on, not from 'control'"),
        ("sense->net: p99 < 1ms", "no flow leads from 'sense' to 'net'"),
        ("sense: p99 < 1ms", "no flow leads to 'sense'; name an operator behind it, or a rate"),
    ],
)
def test_a_goal_about_something_else_is_refused_before_anything_runs(goal: str, error: str) -> None:
    with sim.Machine("orin"), pytest.raises(GraphError, match=error):
        make_plan(Simulated(small(), 40, 1), [Target.parse(goal)], not_simulated)


def test_operators_with_workers_are_refused(planned: Decision) -> None:
    class Program(Application):
        def compose(self) -> None:
            replicas = Plain(self, workers=2, name="filter")
            self.add_flow(Sensor(self, CountCondition(self, 3), name="sensor"), replicas)

    app = Program()
    with sim.Machine("orin"):
        with pytest.raises(GraphError, match="workers="):
            make_plan(app, [Target.parse("filter: p99 < 5ms")], not_simulated)
        operators: dict[str, list[str]] = {"sensor": ["filter"], "filter": []}
        app.use_plan(Plan(planned.plan.device, 16, operators, {"filter": (4, ["filter"])}))
        with pytest.raises(GraphError, match="workers= replicates it"):
            app.compose_graph()


def test_a_tracked_run_says_where_it_has_left_its_plan(
    planned: Decision, caplog: pytest.LogCaptureFixture
) -> None:
    slower = small()
    known = slower.operators["control"]
    changed = {**slower.operators, "control": replace(known, inflation=6.0)}
    with sim.Machine("orin"), caplog.at_level(logging.WARNING, "headrace.planner"):
        app = Simulated(replace(slower, operators=changed), 40, 1)
        app.use_plan(planned.plan)
        app.run()
        assert not caplog.records  # nobody looks
        app.track()
        app.run()
    texts = [record.getMessage() for record in caplog.records]
    assert any(
        text.startswith("operator 'control' takes") and "more than the planned" in text for text in texts
    )
    assert any(text.startswith(f"goal {str(GOAL)!r} has no margin left") for text in texts)
    assert all(text.endswith("`headrace plan` would measure again") for text in texts)


def test_a_tracked_run_as_planned_says_nothing(planned: Decision, caplog: pytest.LogCaptureFixture) -> None:
    with sim.Machine("orin"), caplog.at_level(logging.WARNING, "headrace.planner"):
        app = Simulated(small(), 40, 1)
        app.use_plan(planned.plan)
        app.track()
        app.run()
    assert not caplog.records


class Sensor(Operator):
    """Sends a number every 5 ms; its outputs are kept as the inputs of others, and it is not asked again."""

    sent = 0

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        Sensor.sent += 1
        op_output.emit(Sensor.sent, "out")


class Launch(Operator):
    """Launches a kernel of 5 us, which takes the host 40, and sends twice what it received."""

    capturable = True
    seen: ClassVar[dict[str, list[int]]] = {}

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        number = op_input.receive("in")
        Launch.seen.setdefault(self.name, []).append(number)
        sim.current_machine().sleep(40e-6)
        stream: Any = gpu.current_stream()
        gpu.launch(stream.stream, gpu.LaunchConfig(grid=4, block=1024), sim.Kernel(self.name, 5e-6))
        op_output.emit(number if isinstance(number, sim.Buffer) else 2 * number, "out")


class Plain(Launch):
    """Does the same, and does not say that it may be captured."""

    capturable = False


class Buffers(Sensor):
    """Sends memory of the device, so that nothing but the work differs from frame to frame."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream: Any = gpu.current_stream()
        op_output.emit(sim.Device(0).allocate(64, stream=stream.stream), "out")


def chain(source: type[Sensor], kind: type[Launch], names: Sequence[str]) -> Application:
    """Return a program of a source, which sends every 5 ms, and a chain of operators of one kind."""

    class Program(Application):
        def compose(self) -> None:
            self.scheduler(GreedyScheduler(self, clock=MachineClock(self)))
            before: Any = source(
                self, PeriodicCondition(self, "5ms"), CountCondition(self, 60), name="sensor"
            )
            for name in names:
                step = kind(self, name=name)
                self.add_flow(before, step)
                before = step

    return Program()


def test_operators_are_measured_alone_with_the_inputs_that_they_had_in_the_program() -> None:
    """Every size of a slice gets the same frames, of each operator, and the sensor is not asked again."""
    Sensor.sent = 0
    Launch.seen.clear()
    with sim.Machine("orin"):
        measured = make_plan(
            chain(Sensor, Plain, ["first", "last"]),
            [Target.parse("last: p99 < 5ms")],
            not_simulated,
            frames=60,
        ).measured
    runs = len(measured.sizes) + 1
    assert Sensor.sent == 60 + KEPT + 60  # as declared, to keep inputs, and with the plan
    for name, factor in (("first", 1), ("last", 2)):
        alone = Launch.seen[name][60 + KEPT : -60]
        number = Launch.seen[name][60]
        assert alone == [number + factor * n for n in range(KEPT)] * (TIMES * runs)
    assert not measured.segments


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    measure_once(monkeypatch)


@pytest.mark.usefixtures("once")
def test_a_chain_that_is_launch_bound_is_measured_as_a_segment_and_captured() -> None:
    """The launch of a graph takes the host no time here, and each of three launches takes 40 us."""
    goal = Target.parse("c: p99 < 100us")
    with sim.Machine("orin"):
        decision = make_plan(chain(Buffers, Launch, "abc"), [goal], simulate_apart, frames=24)
    segment = decision.measured.segments["a", "b", "c"]
    assert segment.host.p50 < 40e3
    assert segment.curve is not None
    assert segment.curve.at(16).p50 >= 15e3
    assert decision.plan.segments == (("a", "b", "c"),)
    (figure,) = decision.figures
    assert figure.is_met
    assert figure.agrees
    assert "captured in" in decision.reasons["a"]


@pytest.mark.usefixtures("once")
def test_a_chain_ends_at_the_operator_of_a_goal_and_shares_a_stream_unless_it_may_be_captured() -> None:
    with sim.Machine("orin"):
        program = chain(Buffers, Launch, "abcd")
        decision = make_plan(program, [Target.parse("b: p99 < 5ms")], not_simulated, frames=12)
        assert list(decision.measured.segments) == [("a", "b"), ("c", "d")]
        plain = make_plan(
            chain(Buffers, Plain, "abcd"), [Target.parse("b: p99 < 5ms")], not_simulated, frames=12
        )
    assert plain.plan.segments == ()
    assert plain.plan.shared_streams


FRAME = np.zeros(1 << 20, np.uint8)


class Upload(Plain):
    """Copies a frame to the device, and works on it for 100 us on all SMs of an Orin."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Copy, and launch."""
        op_input.receive("in")
        stream: Any = gpu.current_stream()
        frame = sim.Device(0).allocate(FRAME.nbytes, stream=stream.stream)
        active().copy(stream.stream, int(frame.handle), FRAME, FRAME.nbytes)
        gpu.launch(stream.stream, gpu.LaunchConfig(grid=16, block=1024), sim.Kernel(self.name, 100e-6))
        op_output.emit(frame, "out")


def test_copies_are_told_from_kernels() -> None:
    """A slice makes kernels slower, and copies take as long as they do."""
    with sim.Machine("orin") as machine:
        program = chain(Sensor, Upload, ["upload"])
        decision = make_plan(program, [Target.parse("upload: p99 < 5ms")], not_simulated, frames=12)
    one = decision.measured.operators["upload"]
    assert one.copies == pytest.approx(FRAME.nbytes / machine.devices[0].profile.copy_bandwidth * 1e9, abs=1)
    assert one.kernels(16).p50 == pytest.approx(100e3, rel=0.1)
    assert one.kernels(8).p50 == pytest.approx(200e3, rel=0.1)


def test_a_plan_says_how_much_of_a_slices_work_is_copies() -> None:
    program = neighbours()
    control = replace(program.operators["control"], copies=10e3)
    program = replace(program, operators={**program.operators, "control": control})
    decision = decide(program, [GOAL], fits, not_simulated, {GOAL: 1.0}, 40)
    assert "work of 100us a frame, of which 10us are copies" in decision.reasons["control"]


class Late(Plain):
    """Launches 100 us of work, and returns when it is done; from every tenth compute, before."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Launch, and wait."""
        number = op_input.receive("in")
        stream: Any = gpu.current_stream()
        gpu.launch(stream.stream, gpu.LaunchConfig(grid=16, block=1024), sim.Kernel(self.name, 100e-6))
        if number % 10:
            sim.current_machine().sleep(400e-6)
        op_output.emit(number, "out")


def test_an_operator_that_mostly_returns_when_its_work_is_done_is_on_the_slice_too() -> None:
    """A thread that waits for the interpreter's lock does so. Elsewhere it would wait for the work of others."""
    Sensor.sent = 0
    with sim.Machine("orin"):
        measured = make_plan(
            chain(Sensor, Late, ["late"]), [Target.parse("late: p99 < 5ms")], not_simulated, frames=60
        ).measured
    assert measured.operators["late"].curve is not None
    assert flows_of(measured, [Target.parse("late: p99 < 5ms")]) == {"late": ["late"]}


class Seen(Observed):
    """A run in which everything took so long."""

    def __init__(self, time: float) -> None:
        super().__init__()
        self.time = time

    def figure(self, target: Target) -> float | None:
        return self.time

    def host(self, *names: str) -> Times:
        return Times(self.time, 2 * self.time)

    def device(self, *names: str) -> Times | None:
        return self.host(*names)


def test_a_hiccup_of_the_host_in_one_of_three_runs_changes_no_figure() -> None:
    tries = Tries([Seen(100), Seen(9_000), Seen(104)])
    assert tries.figure(GOAL) == 104
    assert tries.host("control") == tries.device("control") == Times(104, 208)


PROGRAM = """
import tempfile

from tests.planner.test_planning import small
from headrace.cli.plan_simulation import Simulated


class App(Simulated):
    def compose(self):
        open(self.file.name).close()
        super().compose()


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile() as file:  # it is there while the program runs
        app = App(small(), 40, 1)
        app.file = file
        app.run()
"""


@pytest.mark.usefixtures("once")
def test_the_command_writes_a_plan_and_a_page_and_a_run_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(PROGRAM)
    with sim.Machine("orin"):
        goal = ["--goal", "control: p99 < 500us", "--goal", "net: rate >= 50"]
        status = main(["plan", "app.py", *goal, "--frames", "40", "--report", "report.html"])
        assert status == 0, capsys.readouterr()
        assert set(read_plan("plan.yaml").slices) >= {"control"}
        assert "<svg" in Path("report.html").read_text()
        assert main(["run", "app.py", "--plan", "plan.yaml"]) == 0
    assert "control: p99 < 500us: predicted" in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_named_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "no.py", "--goal", "control: p99 < 500us", "-o", "plans/plan.yaml"]) == 1
    assert "cannot write 'plans/plan.yaml': there is no folder 'plans'" in capsys.readouterr().err


def test_a_program_that_divides_the_device_is_refused_before_it_is_measured_on_slices() -> None:
    class Divided(Simulated):
        def compose(self) -> None:
            self.add_default_green_context_pool(0, [16])
            super().compose()

    said: list[str] = []
    with sim.Machine("orin"), pytest.raises(GraphError, match="declare the slices in one place"):
        make_plan(Divided(small(), 40, 1), [GOAL], simulate, frames=40, report=said.append)
    assert said[-1] == "as declared"
