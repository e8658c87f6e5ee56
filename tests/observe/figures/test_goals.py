"""Goals for paths, their misses, and where the time of a miss went."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.conditions import (
    CountCondition,
    CudaStreamCondition,
    MemoryAvailableCondition,
    PeriodicCondition,
)
from headrace.core import ConditionType, IOSpec
from headrace.core.errors import GraphError
from headrace.gpu import sim
from headrace.observe import Breakdown, Miss, Part, PortRecorder, replay, watch
from headrace.resources import BlockMemoryPool, CudaGreenContext, CudaGreenContextPool
from tests.gpu.kernels import spin
from tests.harness.application import App, greedy
from tests.harness.operators import Step, through
from tests.observe.figures.test_statistics import MS, chain, takes


def run(compose: Any, *goals: tuple[str, dict[str, Any]], **options: Any) -> list[Any]:
    app = App(compose, greedy, **options)
    made = [app.expect(path, **bounds) for path, bounds in goals]
    app.run()
    return made


def test_every_message_over_the_bound_is_a_miss_with_where_its_time_went(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Miss] = []
    (goal,) = run(chain(1, 2, 3), ("a -> b -> c", {"p99": "4ms", "on_miss": seen.append}))
    assert (goal.count, goal.late, goal.is_met) == (5, 5, False)
    assert [miss.number for miss in seen] == [1, 2, 3, 4, 5]
    assert list(goal.recent) == seen
    miss = seen[0]
    assert (miss.path, miss.latency, miss.bound) == ("a,b,c", 6 * MS, 4 * MS)
    assert [(part.kind, part.where, part.duration) for part in miss.breakdown.parts] == [
        ("host", "a", 1 * MS),
        ("host", "b", 2 * MS),
        ("host", "c", 3 * MS),
    ]
    assert miss.breakdown.largest.where == "c"
    assert "took 6.000 ms, 2.000 ms more than allowed: 3.000 ms in compute of c, 2.000 ms in" in str(miss)
    assert "goal a -> b -> c: 5 missed so far" in caplog.text


def test_a_goal_that_no_message_reaches_is_not_judged(caplog: pytest.LogCaptureFixture) -> None:
    def compose(app: Any) -> None:
        app.add_flow(
            Step(app, CountCondition(app, 3), outputs=["out"], name="source"),
            Step(app, inputs=["in"], body=takes(1), name="sink"),
        )

    with caplog.at_level("INFO"):
        (goal,) = run(compose, ("source->sink", {"p99": "5ms", "max": "1s"}))
    assert (goal.count, goal.is_met) == (0, None)
    assert str(goal) == "source->sink: not judged, no messages; p99 at most 5 ms, max at most 1000 ms"
    (record,) = [record for record in caplog.records if record.getMessage() == str(goal)]
    assert record.levelname == "WARNING"


def test_parts_of_less_than_a_microsecond_are_not_told_unless_there_is_nothing_else() -> None:
    tiny, small = Part("host", "a", "", 999), Part("queue", "b.in", "", 1000)
    assert str(Breakdown((tiny, small))) == "0.001 ms in the queue b.in"
    assert str(Breakdown((tiny,))) == "0.001 ms in compute of a"


def breakdown_of(compose: Any, path: str) -> dict[tuple[str, str], int]:
    """Return where the time of the last message of a path went, in milliseconds."""
    (goal,) = run(compose, (path, {"max": "1us"}))
    return {
        (part.kind, part.where): part.duration // MS
        for part in goal.recent[-1].breakdown.parts
        if part.duration >= MS
    }


def after(app: Any, milliseconds: int, name: str) -> Step:
    """Return a source of one message, which takes so long to make."""

    def body(self: Step, op_input: Any, op_output: Any) -> None:
        app.scheduler().clock.sleep_for(milliseconds * MS)
        op_output.emit(1, "out")

    return Step(app, CountCondition(app, 1), outputs=["out"], body=body, name=name)


def test_a_wait_for_a_condition_is_not_said_to_be_one_for_a_worker() -> None:
    def compose(app: Any) -> None:
        first = Step(
            app,
            CountCondition(app, 2),
            outputs=[("out", {"size": 2})],
            body=lambda self, i, o: o.emit(1, "out"),
            name="first",
        )
        held = Step(app, PeriodicCondition(app, "5ms"), inputs=["in"], body=takes(0), name="held")
        app.add_flow(first, held, size=2)

    assert breakdown_of(compose, "first->held") == {("held", "held"): 5}


def test_a_wait_for_memory_is_a_bound() -> None:
    """The pool has one block, which a message keeps for 6 ms."""

    def compose(app: Any) -> None:
        pool = BlockMemoryPool(app, storage_type="host", block_size=8, num_blocks=1, name="pool")

        def make(self: Step, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            op_output.emit(pool.allocate_tensor(8, "uint8"), "out")

        def keep(self: Step, op_input: Any, op_output: Any) -> None:
            kept = op_input.receive("in")
            app.scheduler().clock.sleep_for(6 * MS)
            del kept

        first = Step(
            app,
            CountCondition(app, 1),
            outputs=[("out", {"size": 2})],
            body=lambda self, i, o: [o.emit(number, "out") for number in range(2)],
            name="first",
        )
        needs = MemoryAvailableCondition(app, pool, min_blocks=1)
        maker = Step(app, needs, inputs=["in"], outputs=["out"], body=make, name="maker")
        app.add_flow(first, maker, size=2)
        app.add_flow(maker, Step(app, inputs=["in"], body=keep, name="keeper"))

    found = breakdown_of(compose, "first->keeper")
    assert found[("memory", "maker")] == 6
    assert found[("host", "keeper")] == 6


def test_on_miss_is_called_on_a_thread_that_may_stop_the_run() -> None:
    threads: set[int] = set()

    def stop(miss: Miss) -> None:
        threads.add(threading.get_ident())
        app.stop_execution()

    app = App(chain(1, 2))
    app.expect("a->b", max="1ms", on_miss=stop)
    app.run()
    assert threads


def test_on_miss_that_raises_is_called_once_a_run_and_every_goal_is_counted_to_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    def fail(miss: Miss) -> None:
        seen.append(miss.number)
        raise RuntimeError("no")

    app = App(chain(1, 2, 3), greedy)
    goals = [
        app.expect("a->c", max="1ms", on_miss=fail),
        app.expect("b->c", max="2ms"),
        app.expect("a->b->c", p50="1s"),
    ]
    for _ in range(2):
        app.run()
        assert [(goal.count, goal.late, goal.is_met) for goal in goals] == [
            (5, 5, False),
            (5, 5, False),
            (5, 0, True),
        ]
    assert seen == [1, 1]
    assert caplog.text.count("on_miss of goal a->c raised, and is not called again in this run") == 2


@pytest.mark.parametrize(
    ("path", "bounds", "text"),
    [
        ("a->c", {}, r"expect\('a->c'\) needs a bound, such as p99='30ms'"),
        ("a->c", {"p99": 0}, "p99 must be more than 0"),
        ("a->c", {"p99": "30 parsecs"}, "p99 must be an int"),
        ("a", {"p99": "1ms"}, "a path is two or more operators"),
        ("a->", {"p99": "1ms"}, "a path is two or more operators"),
    ],
)
def test_a_goal_that_makes_no_sense_is_refused(path: str, bounds: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        App(chain(1, 2)).expect(path, **bounds)


@pytest.mark.parametrize(
    ("path", "on_miss", "text"),
    [
        (["a", "c"], None, r"takes a path as text, as in 'camera->display', not \['a', 'c'\]"),
        ("a->c", 3, "on_miss must be a function, not 3"),
    ],
)
def test_a_path_is_text_and_on_miss_a_function(path: Any, on_miss: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        App(chain(1, 2)).expect(path, p99="1ms", on_miss=on_miss)


def test_each_of_several_goals_for_a_path_has_a_name_of_its_own() -> None:
    app = App(chain(1, 2))
    goals = [app.expect("a->b", p99="1s") for _ in range(3)]
    outcome = app.run()
    assert [goal.name for goal in goals] == list(outcome.goals)
    assert list(outcome.goals) == ["a->b", "a->b (p99 at most 1000 ms)", "a->b (p99 at most 1000 ms) 2"]


def test_an_unknown_operator_is_an_error_before_anything_runs() -> None:
    app = App(chain(1, 2))
    app.expect("a->display", p99="1ms")
    with pytest.raises(GraphError, match=r"there is no operator 'display'; there are 'a', 'b'"):
        app.run()


# Messages that do not arrive.


def bursts(app: Any, computes: int, size: int = 10) -> Step:
    """Return a source that emits so many messages at once."""
    return Step(
        app,
        CountCondition(app, computes),
        outputs=[("out", {"size": size})],
        body=lambda self, i, o: [o.emit(n, "out") for n in range(size)],
        name="source",
    )


def fails(app: Any, source: Step, name: str = "sink", size: int = 1) -> Step:
    """Return a sink behind a source that takes a millisecond for each message, and fails for those below 0."""

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        if op_input.receive("in") < 0:
            raise ValueError("below 0")
        app.scheduler().clock.sleep_for(MS)

    sink = Step(app, inputs=["in"], body=body, name=name)
    sink.on_error = "skip"
    app.add_flow(source, sink, size=size)
    return sink


def lossy(computes: int, size: int = 10) -> Any:
    """Return a compose in which all but the last message of each burst fail."""

    def compose(app: Any) -> None:
        source = bursts(app, computes, size)
        source._body = lambda self, i, o: [o.emit(n - size + 1, "out") for n in range(size)]
        fails(app, source, size=size)

    return compose


@pytest.mark.parametrize("figure", ["p50", "p95", "p99", "max", "mean"])
def test_a_goal_is_not_met_if_most_messages_fail(figure: str, caplog: pytest.LogCaptureFixture) -> None:
    (goal,) = run(lossy(10), ("source->sink", {figure: "5ms"}))
    assert (goal.sent, goal.count, goal.late, goal.failed, goal.outstanding) == (100, 10, 0, 90, 0)
    assert goal.is_met is False
    assert str(goal) == (
        f"source->sink: NOT met; {figure} 1.000 ms (at most 5); 0 of 100 messages late; 90 failed"
    )
    assert str(goal) in caplog.messages  # a warning


def backlog(milliseconds: list[float]) -> Any:
    """Return a compose whose sink takes so long for each of its first messages, and then stops the run."""

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            app.scheduler().clock.sleep_for(int(milliseconds[self.ticks - 1] * MS))
            if self.ticks == len(milliseconds):
                app.stop_execution()

        app.add_flow(bursts(app, 1, 100), Step(app, inputs=["in"], body=body, name="sink"), size=100)

    return compose


def test_a_goal_that_depends_on_messages_that_still_wait_is_not_judged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    p99, p5 = run(backlog([1] * 10), ("source->sink", {"p99": "50ms"}), ("source -> sink", {"p50": "50ms"}))
    for goal in (p99, p5):
        assert (goal.count, goal.late, goal.lost, goal.outstanding, goal.is_met) == (10, 0, 0, 90, None)
    assert str(p99) == (
        "source->sink: not judged; p99 10.000 ms (at most 50); 0 of 100 messages late; "
        "90 had not arrived at the end"
    )
    assert str(p99) in caplog.messages


def test_a_goal_that_does_not_depend_on_messages_that_still_wait_is_met() -> None:
    (goal,) = run(backlog([0.01] * 99), ("source->sink", {"p99": "50ms"}))
    assert (goal.count, goal.outstanding, goal.is_met) == (99, 1, True)


def test_a_message_that_has_waited_too_long_counts_as_one_that_never_arrives() -> None:
    # Half of those that arrive are in time, and nothing that waits is.
    (goal,) = run(backlog([1, 1, 1, 100]), ("source->sink", {"p50": "50ms"}))
    assert (goal.count, goal.late, goal.outstanding, goal.is_met) == (4, 1, 96, False)
    assert str(goal).endswith("1 of 100 messages late; 96 had not arrived at the end (96 too late already)")


@pytest.mark.parametrize(
    ("figure", "count", "late", "failed", "is_met"),
    [
        ("p99", 100, 1, 0, True),
        ("p99", 100, 1, 1, False),
        ("p50", 11, 3, 5, True),  # 8 of 16 are in time
        ("p50", 11, 4, 5, False),
        ("p50", 10, 0, 10, True),
        ("p50", 10, 0, 11, False),
    ],
)
def test_late_and_failed_messages_count_together(
    figure: str, count: int, late: int, failed: int, is_met: bool
) -> None:

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any) -> None:
            if self.ticks == 1:
                for _ in range(failed):
                    op_output.emit(-1, "out")
            op_output.emit(10 if self.ticks <= late else 1, "out")

        def work(self: Any, op_input: Any, op_output: Any) -> None:
            if (milliseconds := op_input.receive("in")) < 0:
                raise ValueError("below 0")
            app.scheduler().clock.sleep_for(milliseconds * MS)

        source = Step(
            app, CountCondition(app, count), outputs=[("out", {"size": 1 + failed})], body=send, name="source"
        )
        sink = Step(app, inputs=["in"], body=work, name="sink")
        sink.on_error = "skip"
        app.add_flow(source, sink, size=1 + failed)

    (goal,) = run(compose, ("source->sink", {figure: "5ms"}))
    assert (goal.count, goal.late, goal.failed, goal.is_met) == (count, late, failed, is_met)
    assert (goal.sent, goal.arrived) == (count + failed, count - late)


def test_every_run_counts_what_waits_at_its_own_end() -> None:
    app = App(backlog([1] * 10), greedy)
    goal = app.expect("source->sink", p99="50ms")
    app.run()
    app.run()
    assert (goal.count, goal.outstanding) == (10, 90)


def test_a_queue_that_closes_a_cycle_is_not_on_the_way() -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")
            op_output.emit(1, "back")
            op_output.emit(2, "back")

        source = Step(
            app,
            CountCondition(app, 5),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out"),
            name="source",
        )
        loop = Step(
            app, inputs=["in", "back"], outputs=["out", ("back", {"size": 2})], body=body, name="loop"
        )
        loop.spec.inputs["back"].condition(ConditionType.NONE)
        app.add_flow(source, loop, {("out", "in")})
        app.add_flow(loop, loop, {("back", "back")}, size=1, policy=IOSpec.QueuePolicy.POP)
        app.add_flow(loop, Step(app, inputs=["in"], body=takes(1), name="sink"), {("out", "in")})

    app = App(compose, greedy)
    goal, tracker = app.expect("source->sink", p99="1s"), app.track()
    app.run()
    assert tracker.statistics.queue("loop.back").dropped == 9
    assert (goal.count, goal.lost, goal.outstanding, goal.is_met) == (5, 0, 0, True)


def test_a_period_of_an_operator_that_plays_a_recording_is_not_judged(tmp_path: Path) -> None:
    app = App(chain(1, 2), greedy)
    watch(app, PortRecorder(tmp_path / "a.mcap", ["a.out"]))
    app.run()

    again = App(chain(1, 2), greedy)
    ticks = again.expect("a", period="10ms", jitter="1ms")
    frames = again.expect("a->b", p99="1s")
    replay(again, tmp_path / "a.mcap", "fast")
    again.run()
    assert (ticks.sent, ticks.is_met, frames.arrived, frames.is_met) == (0, None, 5, True)
    assert "'a' plays a recording, and has no clock" in str(ticks)


def test_a_goal_of_an_operator_that_a_replay_leaves_out_is_not_judged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(chain(1, 2, 3), greedy)
    watch(app, PortRecorder(tmp_path / "a.mcap", ["b.out"]))
    app.run()

    again = App(chain(1, 2, 3), greedy)
    gone = again.expect("a->c", p99="1s")
    left = again.expect("b->c", p99="1s")
    replay(again, tmp_path / "a.mcap", "fast")
    again.run()
    assert (gone.count, gone.is_met) == (0, None)
    assert (
        str(gone)
        == "a->c: not judged, 'a' does not run: a recording is played behind it; p99 at most 1000 ms"
    )
    assert str(gone) in caplog.messages
    assert (left.count, left.is_met) == (5, True)

    unknown = App(chain(1, 2, 3), greedy)
    unknown.expect("a->display", p99="1s")
    replay(unknown, tmp_path / "a.mcap", "fast")
    with pytest.raises(GraphError, match="there is no operator 'display'"):
        unknown.run()


# On a device.


def launches(milliseconds: float, grid: int = 132) -> Any:
    """Return a body that launches a kernel of so many milliseconds, and passes on."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        if self.spec.inputs:
            message = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
        else:
            message, stream = self.ticks, context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
        config = sim.LaunchConfig(grid=grid, block=1024)
        sim.launch(stream.stream, config, spin.on(sim.Device(0)), int(milliseconds * MS))
        if self.spec.outputs:
            op_output.emit(message, "out")

    return body


def test_work_on_the_device_is_named_with_its_slice() -> None:
    def compose(app: Any) -> None:
        pool = CudaGreenContextPool(app, sms_per_partition={"camera": 16, "vision": 40})
        a = Step(
            app,
            CountCondition(app, 4),
            PeriodicCondition(app, 50 * MS),
            CudaGreenContext(app, pool, "camera"),
            outputs=["out"],
            body=launches(2, 8),
            name="a",
        )
        b = Step(
            app,
            CudaGreenContext(app, pool, "vision", name="vision"),
            inputs=["in"],
            body=launches(6, 8),
            name="b",
        )
        app.add_flow(a, b)

    with sim.Machine("h200"):
        app = App(compose)
        goal = app.expect("a->b", p99="5ms")
        app.run()
    assert goal.late == 4
    parts = [
        (part.kind, part.where, part.slice) for part in goal.recent[-1].breakdown.parts if part.duration > MS
    ]
    assert parts == [("gpu", "a", "camera"), ("gpu", "b", "vision")]
    assert goal.recent[-1].breakdown.largest.duration == pytest.approx(6 * MS, rel=0.01)
    assert sum(part.duration for part in goal.recent[-1].breakdown.parts) == goal.recent[-1].latency


def test_a_message_that_waits_for_its_own_work_waits_for_the_device_and_not_in_the_queue() -> None:
    def compose(app: Any) -> None:
        source = Step(app, CountCondition(app, 3), outputs=["out"], body=launches(2, 8), name="source")
        sink = Step(
            app,
            CudaStreamCondition(app, receiver="in"),
            inputs=["in"],
            body=lambda self, i, o: i.receive("in"),
            name="sink",
        )
        app.add_flow(source, sink)

    with sim.Machine("h200"):
        app = App(compose)
        goal = app.expect("source->sink", p99="1ms")
        app.run()
    parts = {(part.kind, part.where): part.duration for part in goal.recent[0].breakdown.parts}
    assert parts["gpu", "source"] == pytest.approx(2 * MS, rel=0.02)
    assert parts.get(("queue", "sink.in"), 0) < 0.1 * MS
    assert sum(parts.values()) == goal.recent[0].latency


def test_work_on_the_device_is_followed_through_an_operator_that_does_not_use_it() -> None:
    def compose(app: Any) -> None:
        a = Step(app, CountCondition(app, 2), outputs=["out"], body=launches(20, 8), name="a")
        b = through(app, name="b")
        app.add_flow(a, b)
        app.add_flow(b, Step(app, inputs=["in"], body=launches(1, 8), name="c"))

    with sim.Machine("h200"):
        app = App(compose)
        goal = app.expect("a->c", p99="5ms")
        app.run()
    parts = [(part.kind, part.where, round(part.duration / MS)) for part in goal.recent[0].breakdown.parts]
    assert parts == [("gpu", "a", 20), ("gpu", "c", 1)]


def test_the_time_from_the_acquisition_to_the_source_comes_before() -> None:
    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 2),
            PeriodicCondition(app, 30 * MS),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out", acq_timestamp=max(app.now - 20 * MS, 0)),
            name="source",
        )
        app.add_flow(source, Step(app, inputs=["in"], body=takes(3), name="sink"))

    (goal,) = run(compose, ("source->sink", {"max": "1ms"}))
    miss = goal.recent[-1]
    parts = [(part.kind, part.where, part.duration // MS) for part in miss.breakdown.parts]
    assert parts == [("before", "source", 20), ("host", "sink", 3)]
    assert "20.000 ms before source" in str(miss)
