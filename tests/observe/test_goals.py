"""Goals for paths, their misses, and where the time of a miss went."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core.errors import GraphError
from headrace.gpu import sim
from headrace.observe import Miss
from headrace.resources import CudaGreenContext, CudaGreenContextPool
from tests.gpu.kernels import spin
from tests.harness.application import App, greedy
from tests.harness.operators import Step, through
from tests.observe.test_statistics import MS, chain, takes


def run(compose: Any, *goals: tuple[str, dict[str, Any]], **options: Any) -> list[Any]:
    app = App(compose, greedy, **options)
    made = [app.expect(path, **bounds) for path, bounds in goals]
    app.run()
    return made


def test_a_goal_that_is_met() -> None:
    (goal,) = run(chain(1, 2, 3), ("a->c", {"p99": "5ms", "mean": 0.006}))
    assert (goal.count, goal.misses, goal.is_met) == (5, 0, True)
    assert goal.figure("p99") == 5 * MS
    assert str(goal).startswith(
        "a->c: met; mean 5.000 ms (at most 6), p99 5.000 ms (at most 5); 0 of 5 messages"
    )


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


def test_every_message_over_the_bound_is_a_miss_with_where_its_time_went(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Miss] = []
    (goal,) = run(chain(1, 2, 3), ("a -> b -> c", {"p99": "4ms", "on_miss": seen.append}))
    assert (goal.count, goal.misses, goal.is_met) == (5, 5, False)
    assert [miss.number for miss in seen] == [1, 2, 3, 4, 5]
    assert list(goal.recent) == seen
    miss = seen[0]
    assert (miss.path, miss.latency, miss.bound) == ("a,b,c", 5 * MS, 4 * MS)
    assert [(part.kind, part.where, part.duration) for part in miss.breakdown.parts] == [
        ("host", "b", 2 * MS),
        ("host", "c", 3 * MS),
    ]
    assert miss.breakdown.largest.where == "c"
    assert "took 5.000 ms, 1.000 ms more than allowed: 3.000 ms in compute of c, 2.000 ms in" in str(miss)
    assert "goal a -> b -> c: 5 missed so far" in caplog.text


def test_the_time_in_a_queue_is_named() -> None:
    def compose(app: Any) -> None:
        burst = Step(
            app,
            CountCondition(app, 1),
            outputs=[("out", {"size": 3})],
            body=lambda self, i, o: [o.emit(n, "out") for n in range(3)],
            name="burst",
        )
        slow = Step(app, inputs=["in"], body=takes(10), name="slow")
        app.add_flow(burst, slow, size=4)

    (goal,) = run(compose, ("burst->slow", {"max": "15ms"}))
    assert goal.misses == 2
    parts = [(part.kind, part.where, part.duration // MS) for part in goal.recent[-1].breakdown.parts]
    assert parts == [("queue", "slow.in", 20), ("host", "slow", 10)]


def test_a_path_may_begin_and_end_in_the_middle() -> None:
    whole, middle, end = run(
        chain(1, 2, 3, 4), ("a->d", {"max": "1s"}), ("b->c", {"max": "1s"}), ("c->d", {"max": "1s"})
    )
    assert [goal.figure("max") / MS for goal in (whole, middle, end)] == [9, 3, 4]
    assert [goal.count for goal in (whole, middle, end)] == [5, 5, 5]


def test_a_path_that_names_an_operator_in_the_middle_is_no_other() -> None:
    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 4),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out"),
            name="source",
        )
        join = Step(
            app, inputs=["a", "b"], body=lambda self, i, o: (i.receive("a"), i.receive("b")), name="join"
        )
        for name, port in (("left", "a"), ("right", "b")):
            side = Step(app, inputs=["in"], outputs=["out"], body=takes(1), name=name)
            app.add_flow(source, side)
            app.add_flow(side, join, {("out", port)})

    left, both = run(compose, ("source->left->join", {"max": "1s"}), ("source->join", {"max": "1s"}))
    assert (left.count, both.count) == (4, 8)


def test_every_run_counts_anew() -> None:
    app = App(chain(1, 2))
    goal = app.expect("a->b", max="1ms")
    app.run()
    app.run()
    assert (goal.count, goal.misses) == (5, 5)


def test_on_miss_is_called_on_a_thread_that_may_stop_the_run() -> None:
    threads: set[int] = set()

    def stop(miss: Miss) -> None:
        threads.add(threading.get_ident())
        app.stop_execution()

    app = App(chain(1, 2))
    app.expect("a->b", max="1ms", on_miss=stop)
    app.run()
    assert threads


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


def test_an_unknown_operator_is_an_error_before_anything_runs() -> None:
    app = App(chain(1, 2))
    app.expect("a->display", p99="1ms")
    with pytest.raises(GraphError, match=r"there is no operator 'display'; there are 'a', 'b'"):
        app.run()


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
    assert goal.misses == 4
    parts = [
        (part.kind, part.where, part.slice) for part in goal.recent[-1].breakdown.parts if part.duration > MS
    ]
    assert parts == [("gpu", "a", "camera"), ("gpu", "b", "vision")]
    assert goal.recent[-1].breakdown.largest.duration == pytest.approx(6 * MS, rel=0.01)
    assert sum(part.duration for part in goal.recent[-1].breakdown.parts) == goal.recent[-1].latency


def test_work_that_waits_for_others_on_the_device_is_told_apart() -> None:
    def compose(app: Any) -> None:
        noise = Step(
            app,
            CountCondition(app, 1),
            outputs=["out"],
            body=launches(30, 10 * 132),
            name="noise",
        )
        app.add_operator(noise)
        source = Step(
            app,
            CountCondition(app, 1),
            PeriodicCondition(app, 5 * MS),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out"),
            name="source",
        )
        critical = Step(app, inputs=["in"], body=launches(1), name="critical")
        app.add_flow(source, critical)

    with sim.Machine("h200"):
        app = App(compose)
        goal = app.expect("source->critical", p99="5ms")
        app.run()
    assert goal.misses == 1
    kinds = {part.kind for part in goal.recent[-1].breakdown.parts}
    assert kinds <= {"gpu", "device", "host"}
    assert goal.recent[-1].breakdown.largest.where == "critical"


def test_work_that_waits_for_the_frame_before_it_waits_for_the_device() -> None:
    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 3),
            PeriodicCondition(app, 1 * MS),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out"),
            name="source",
        )
        app.add_flow(source, Step(app, inputs=["in"], body=launches(10, 8), name="slow"))

    with sim.Machine("h200"):
        app = App(compose)
        goal = app.expect("source->slow", p99="11ms")
        app.run()
    assert goal.misses == 2
    parts = {part.kind: part.duration / MS for part in goal.recent[-1].breakdown.parts}
    assert parts["gpu"] == pytest.approx(10, rel=0.01)
    assert parts["device"] == pytest.approx(18, rel=0.02)


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
