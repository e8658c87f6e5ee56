"""Flows added and removed, and operators started, while an application runs."""

from __future__ import annotations

import threading
import warnings
from contextlib import nullcontext
from threading import Event
from typing import Any

import pytest

from headrace import Condition, ConditionType, CountCondition, IOSpec, op, retry, waits
from headrace.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    PeriodicCondition,
)
from headrace.core.errors import GraphError
from headrace.gpu import sim
from headrace.schedulers import DefaultScheduler
from tests.harness import PATIENCE, App, MakeScheduler, Step, event_based, run, sink, source, wait_until

POLICIES = IOSpec.QueuePolicy


def counting(app: Any, count: int, at: dict[int, Any], *args: Any, name: str = "numbers") -> Step:
    """Return a source of 1, 2, 3; before it emits a number, it calls what `at` has for the number."""

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks in at:
            at[self.ticks](self.fragment)
        op_output.emit(self.ticks, "out")

    return Step(app, CountCondition(app, count), *args, outputs=["out"], body=body, name=name)


def test_a_new_operator_receives_what_is_sent_from_then_on(scheduler: MakeScheduler) -> None:
    first: list[int] = []
    second: list[int] = []
    phases: list[str] = []

    class Late(Step):
        def start(self) -> None:
            phases.append("start")

        def stop(self) -> None:
            phases.append("stop")

    def add(app: Any) -> None:
        late = Late(app, inputs=["in"], body=lambda self, i, o: second.append(i.receive("in")), name="late")
        app.add_flow(app.numbers, late)
        assert phases == ["start"]

    def compose(app: Any) -> None:
        app.numbers = counting(app, 9, {4: add})
        app.add_flow(app.numbers, sink(app, first))

    app = run(compose, scheduler)
    assert first == list(range(1, 10))
    assert second == list(range(5, 10))  # it takes effect when the compute that asked for it is over
    assert phases == ["start", "stop"]
    assert app.outcome.ended_by == "finished"
    assert app.outcome.operators["late"].computes == 5


@pytest.mark.parametrize("is_tracked", [False, True])
def test_counts_include_what_went_along_flows_that_are_gone(is_tracked: bool) -> None:
    first: list[int] = []
    second: list[int] = []

    def compose(app: Any) -> None:
        remove = {
            3: lambda app: app.remove_flow(app.numbers, app.first),
            6: lambda app: app.remove_flow(app.numbers, app.second),
            8: lambda app: app.add_flow(app.numbers, app.first),
        }
        app.numbers = counting(app, 9, remove)
        app.first, app.second = sink(app, first, name="first"), sink(app, second, name="second")
        # Otherwise it would end without a flow.
        app.add_flow(source(app, range(2), PeriodicCondition(app, "1s"), name="slow"), app.first)
        app.add_flow(app.numbers, (app.first, app.second), size=20)

    app = App(compose)
    app.count_messages = True
    with app.track() if is_tracked else nullcontext():
        app.run()
    outcome = app.outcome.operators
    assert outcome["numbers"].sent == {"out": 9}
    assert outcome["numbers"].dropped == {"out": 2}
    assert (outcome["first"].received, outcome["second"].received) == (
        {"in": len(first)},
        {"in": len(second)},
    )


def test_a_flow_is_moved_to_another_operator_at_once(scheduler: MakeScheduler) -> None:
    left: list[int] = []
    right: list[int] = []

    def move(app: Any) -> None:
        app.remove_flow(app.numbers, app.left)
        app.add_flow(app.numbers, app.right)

    def back(app: Any) -> None:
        app.remove_flow(app.numbers, app.right, {("out", "in")})
        app.add_flow(app.numbers, app.left)

    def compose(app: Any) -> None:
        app.numbers = counting(app, 12, {4: move, 8: back})
        app.left, app.right = sink(app, left, name="left"), sink(app, right, name="right")
        app.add_flow(app.numbers, app.left)
        # An operator whose inputs have all ended would have ended, too.
        nothing = Step(
            app, inputs=["in"], outputs=["out"], body=lambda step, i, o: i.receive("in"), name="nothing"
        )
        app.add_flow(app.numbers, nothing, app.right)

    app = run(compose, scheduler)
    assert app.dropped() == {}
    assert left == [1, 2, 3, 4, 9, 10, 11, 12]
    assert right == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(POLICIES.POP, [32, 42]), (POLICIES.REJECT, [30, 40]), (POLICIES.LATEST, [32, 42])],
)
def test_the_first_flow_to_an_input_chooses_the_policy_of_its_queue(
    policy: IOSpec.QueuePolicy, expected: list[int]
) -> None:
    """The operator is part of the run already, or new in the same compute."""
    early: list[int] = []
    late: list[int] = []

    def burst(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == 2:
            app.late = sink(app, late, CountCondition(app, 3), PeriodicCondition(app, "1ms"), name="late")
            app.add_operator(app.late)
            app.add_flow(self, app.late, policy=policy)
            app.add_flow(self, app.early, {("out", "in")}, policy=policy)
        for number in range(3):
            op_output.emit(10 * self.ticks + number, "out")

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("more")
        if (value := op_input.receive("in")) is not None:
            early.append(value)

    def compose(app: Any) -> None:
        rarely = PeriodicCondition(app, "1ms")
        first = Step(app, CountCondition(app, 4), rarely, outputs=["out"], body=burst, name="first")
        app.early = Step(app, inputs=["in", "more"], body=receive, name="early", on_error=retry(1))
        app.early.spec.inputs["in"].condition(ConditionType.NONE)
        app.add_flow(first, app.early, {("out", "more")}, policy=POLICIES.POP)

    app = App(compose)
    app.run()
    assert [value for value in late if value is not None] == expected  # LATEST does not wait for the first
    assert list(dict.fromkeys(early)) == expected


def test_another_thread_changes_a_run_that_waits(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    got = threading.Event()

    def take(self: Any, op_input: Any, op_output: Any) -> None:
        taken.append(op_input.receive("in"))
        got.set()

    def compose(app: Any) -> None:
        gate = AsynchronousCondition(app)
        gate.event_state = AsynchronousEventState.EVENT_WAITING
        app.add_operator(Step(app, gate, name="waiting"))
        composed.set()

    composed = threading.Event()
    app = App(compose, scheduler)
    future = app.run_async()
    try:
        assert composed.wait(PATIENCE)
        app.pause()
        assert app.wait_until_paused(PATIENCE)
        extra = Step(app, inputs=["in"], body=take, name="extra")
        app.add_flow(source(app, [7], name="seven"), extra)
        assert app.wait_until_changed(PATIENCE)
        assert taken == []
        app.resume()
        assert got.wait(PATIENCE)
    finally:
        app.stop_execution()
        future.result(PATIENCE)
    assert taken == [7]


def test_a_change_of_a_run_whose_operators_are_starting_waits_for_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gated(Step):
        def start(self) -> None:
            assert may_start.wait(PATIENCE)

    def wait(*args: Any) -> bool:
        if threading.get_ident() == me:
            may_start.set()
        return really_wait(*args)

    def compose(app: Any) -> None:
        app.add_operator(Gated(app, CountCondition(app, 1), name="gated"))
        app.pause()  # so that it does not end before it is changed

    me, may_start, taken = threading.get_ident(), Event(), []
    app = App(compose)
    with app.running():
        really_wait = waits.wait
        monkeypatch.setattr(waits, "wait", wait)
        try:
            app.add_flow(source(app, [7]), sink(app, taken))
        finally:
            may_start.set()
            app.resume()
        wait_until(lambda: taken == [7], "the message of the new operator")


def test_replicas_are_connected_by_the_name_of_their_operator(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    more: list[int] = []

    def add(app: Any) -> None:
        app.add_flow(app.slow, sink(app, more, name="more"))
        app.add_flow(counting(app, 3, {}, name="others"), app.slow)

    def compose(app: Any) -> None:
        app.slow = Step(
            app,
            inputs=["in"],
            outputs=["out"],
            body=lambda s, i, o: o.emit(i.receive("in"), "out"),
            workers=2,
        )
        app.add_flow(counting(app, 6, {2: add}), app.slow, sink(app, taken))

    run(compose, scheduler)
    assert sorted(taken) == sorted([1, 2, 3, 4, 5, 6, 1, 2, 3])
    assert taken[-len(more) :] == more


def test_wrong_changes_are_refused_and_change_nothing() -> None:
    refused: list[str] = []

    def wrong(app: Any) -> None:
        graph = app.graph.flows[:]

        class Broken(Step):
            def start(self) -> None:
                raise OSError("no such camera")

        calls: list[Any] = [
            lambda: app.add_flow(app.numbers, app.taking),
            lambda: app.remove_flow(app.taking, app.numbers),
            lambda: app.remove_flow(app.numbers, app.taking, {("out", "other")}),
            lambda: app.add_flow(app.numbers, Broken(app, inputs=["in"], name="broken")),
            lambda: app.add_flow(app.numbers, sink(app, [], name="many", workers=2)),
        ]
        for call in calls:
            with pytest.raises((GraphError, OSError)) as raised:
                call()
            refused.append(str(raised.value))
        assert app.graph.flows == graph

    taken: list[int] = []

    def compose(app: Any) -> None:
        app.numbers, app.taking = counting(app, 3, {2: wrong}), sink(app, taken)
        app.add_flow(app.numbers, app.taking)

    run(compose)
    assert taken == [1, 2, 3]
    assert "is connected already" in refused[0]
    assert "they are not connected" in refused[1]
    assert "'out' -> 'other' is not connected; there are numbers.out -> sink.in" in refused[2]
    assert refused[3] == "no such camera"
    assert "workers= is created in compose() only" in refused[4]


def test_a_run_that_is_over_refuses_changes() -> None:
    app = App(lambda app: app.add_flow(counting(app, 1, {}), sink(app, [])))
    app.run()
    with pytest.raises(GraphError, match="which is not being composed"):
        app.add_operator(sink(app, [], name="late"))


class Passing(Step):
    capturable = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")


def test_a_segment_keeps_its_flows_and_its_neighbours_may_change(machine: sim.Machine) -> None:
    taken: list[int] = []
    more: list[int] = []

    def change(app: Any) -> None:
        with pytest.raises(GraphError, match="'two' is part of segment 'pair', whose frames are recorded"):
            app.add_flow(app.two, sink(app, [], name="late"))
        app.add_flow(app.numbers, sink(app, more, name="more"))

    def compose(app: Any) -> None:
        app.numbers = counting(app, 5, {2: change})
        one, app.two = (Passing(app, inputs=["in"], outputs=["out"], name=name) for name in ("one", "two"))
        app.add_flow(app.numbers, one, app.two, sink(app, taken))
        app.capture(one, app.two, name="pair")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers on the host are not recorded, and the segment computes them
        run(compose)
    assert taken == [1, 2, 3, 4, 5]
    assert more == [3, 4, 5]


def test_an_operator_that_has_ended_is_not_connected_again(scheduler: MakeScheduler) -> None:
    refused: list[str] = []

    def reconnect(app: Any) -> None:
        with pytest.raises(GraphError) as info:
            app.add_flow(app.numbers, app.right)
        refused.append(str(info.value))

    def compose(app: Any) -> None:
        app.numbers = counting(app, 3, {3: reconnect})
        app.right = sink(app, [], name="right")
        app.add_flow(source(app, [], name="nothing"), app.right)
        app.add_flow(app.numbers, sink(app, [], name="left"))

    run(compose, scheduler)
    assert (
        "operator 'right' has ended, and does not run again in this run; create a new operator" in refused[0]
    )


def test_a_flow_is_removed_at_the_end_of_an_operator_one_of_whose_receivers_has_ended() -> None:
    taken: list[str] = []

    class Ending(Step):
        def end(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.fragment.remove_flow(self, self.fragment.right)
            op_output.emit("end", "out")

    def compose(app: Any) -> None:
        ending = Ending(
            app, CountCondition(app, 2), outputs=["out"], body=lambda s, i, o: o.emit("out"), name="ending"
        )
        left = Step(app, CountCondition(app, 1), inputs=["in"], body=lambda s, i, o: i.receive(), name="left")
        app.right = sink(app, taken, name="right")
        app.add_flow(ending, left)
        app.add_flow(ending, app.right)

    run(compose)
    assert taken == ["out", "out", "end"]


def test_a_change_waits_for_the_operators_of_the_next_one(scheduler: MakeScheduler) -> None:
    first: list[int] = []
    second: list[int] = []
    may_start, has_begun = Event(), Event()

    class Slow(Step):
        def start(self) -> None:
            has_begun.set()
            assert may_start.wait(PATIENCE)

    def change(app: Any) -> None:
        app.add_flow(app.numbers, sink(app, first, name="first"))
        threading.Thread(target=add_slow, args=(app,)).start()
        assert has_begun.wait(PATIENCE)

    def add_slow(app: Any) -> None:
        body = lambda step, i, o: second.append(i.receive("in"))  # noqa: E731
        app.add_flow(app.numbers, Slow(app, inputs=["in"], body=body, name="second"))

    def compose(app: Any) -> None:
        app.numbers = counting(app, 9, {3: change, 5: lambda app: may_start.set()})
        app.add_flow(app.numbers, sink(app, [], name="sink"))

    app = run(compose, scheduler)
    assert app.outcome.ended_by == "finished"
    assert first == list(range(10 - len(first), 10))
    assert second == list(range(10 - len(second), 10))


@pytest.mark.parametrize("is_tracked", [False, True])
@pytest.mark.parametrize(("at", "backoff"), [(4, ""), (7, "1ms")])
def test_retries_go_on_when_the_graph_changes(
    scheduler: MakeScheduler, at: int, backoff: str, is_tracked: bool
) -> None:
    taken: list[int] = []
    late: list[int] = []
    failed: set[int] = set()

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        number = op_input.receive("in")
        op_output.emit(number, "out")
        if number not in failed:
            failed.add(number)
            if number == at:  # in the attempt that fails, and is repeated after the change
                self.fragment.add_flow(self, sink(self.fragment, late, name="late"))
            raise ValueError(number)

    def compose(app: Any) -> None:
        policy = retry(times=2, backoff=backoff) if backoff else retry(times=2)
        middle = Step(app, inputs=["in"], outputs=["out"], body=body, name="middle", on_error=policy)
        app.add_flow(source(app, range(1, 8)), middle, sink(app, taken))

    app = App(compose, scheduler)
    with app.track() if is_tracked else nullcontext():
        app.run()
    assert taken == list(range(1, 8))
    assert late == list(range(at, 8))
    assert app.outcome.operators["middle"].retries == 7


def test_after_a_change_an_input_still_waits_for_flows_that_were_not_declared(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "allows_undeclared_flows", True)
    declared: list[int] = []
    undeclared: list[int] = []

    def compose(app: Any) -> None:
        first, last = source(app, []), sink(app, undeclared, name="last")
        numbers = counting(app, 6, {2: lambda app: app.remove_flow(other, another)})
        usual, other, another = (
            sink(app, declared, name="usual"),
            source(app, [7], name="b"),
            sink(app, [], name="c"),
        )
        app.add_flow(numbers, usual)
        app.add_flow(first, last)  # which has ended long before
        app.add_flow(other, another)
        app.set_dynamic_flows(numbers, lambda operator: operator.add_dynamic_flow([usual, last]))

    app = run(compose, scheduler)
    assert declared == [1, 2, 3, 4, 5, 6]
    assert undeclared == declared
    assert app.undelivered() == {}


class Attached(Condition):
    """Counts how often it is attached."""

    times = 0

    def attach(self, node: Any) -> None:
        self.times += 1
        super().attach(node)


def test_a_change_attaches_only_the_operators_whose_flows_it_changes(scheduler: MakeScheduler) -> None:
    attached: dict[str, Attached] = {}

    def compose(app: Any) -> None:
        def condition(name: str) -> Attached:
            return attached.setdefault(name, Attached(app))

        def change(app: Any) -> None:
            app.add_flow(app.numbers, sink(app, [], condition("new"), name="new"))

        app.numbers = counting(app, 5, {3: change}, condition("numbers"))
        app.add_flow(app.numbers, sink(app, [], condition("untouched"), name="untouched"))
        app.add_flow(source(app, range(1), condition("ended"), name="ended"), sink(app, [], name="other"))

    run(compose, scheduler)
    # A new operator is attached when it is started, and again with the queues of the run.
    assert {name: each.times for name, each in attached.items()} == {
        "numbers": 2,
        "untouched": 1,
        "ended": 1,
        "new": 2,
    }


def test_operators_that_join_a_run_of_the_default_scheduler_bring_workers() -> None:
    """The source goes on although every consumer blocks: those of the beginning, and those that joined."""
    blocked = threading.Semaphore(0)
    end = Event()

    def block(self: Any, op_input: Any, op_output: Any) -> None:
        if op_input.receive("in") == 5:
            blocked.release()
            assert end.wait(PATIENCE)

    def waiting(app: Any, name: str) -> Step:
        return Step(app, inputs=["in"], body=block, name=name)

    def add(app: Any) -> None:
        for name in ("second", "third"):
            app.add_flow(app.numbers, waiting(app, name), policy=IOSpec.QueuePolicy.REJECT, size=9)

    def all_block(app: Any) -> None:
        has_workers = all(blocked.acquire(timeout=PATIENCE) for _ in range(3))
        end.set()
        assert has_workers

    def compose(app: Any) -> None:
        app.numbers = counting(app, 9, {2: add, 6: all_block})
        app.add_flow(app.numbers, waiting(app, "first"), policy=IOSpec.QueuePolicy.REJECT, size=9)

    app = App(compose, lambda app, clock=None: DefaultScheduler(app))
    app.run()
    assert app.scheduler().workers == 4


def test_the_default_scheduler_refuses_a_queue_that_drops_in_a_run_on_one_thread() -> None:
    def add(app: Any) -> None:
        app.add_flow(app.numbers, sink(app, [], name="recorder"), policy=IOSpec.QueuePolicy.POP)

    def compose(app: Any) -> None:
        app.numbers = counting(app, 5, {3: add})
        app.add_flow(app.numbers, sink(app, []))

    with pytest.raises(GraphError, match=r"'recorder' would get a queue that drops .* EventBasedScheduler"):
        App(compose, lambda app, clock=None: DefaultScheduler(app)).run()


def test_a_function_of_any_number_of_flows_is_not_called_without_any(scheduler: MakeScheduler) -> None:
    calls: list[Any] = []

    @op
    def gather(*values: Any) -> None:
        calls.append(values)
        assert values

    def change(app: Any) -> None:
        gathering = gather(app, name="added and removed")
        app.add_flow(app.numbers, gathering)
        app.remove_flow(app.numbers, gathering)
        with pytest.raises(
            GraphError, match="'values' of operator 'alone' .* called without arguments for ever"
        ):
            app.add_operator(gather(app, name="alone"))

    def compose(app: Any) -> None:
        app.numbers = counting(app, 5, {3: change})
        app.add_flow(app.numbers, gather(app, name="always"))

    run(compose, scheduler)
    assert calls == [(1,), (2,), (3,), (4,), (5,)]


def test_what_came_along_flows_that_are_all_gone_is_received_and_no_more(scheduler: MakeScheduler) -> None:
    calls: list[Any] = []

    @op
    def gather(*values: Any) -> None:
        calls.append(values)
        assert values

    def part(app: Any) -> None:
        app.remove_flow(app.letters, app.gather)
        app.remove_flow(app.numbers, app.gather)

    def compose(app: Any) -> None:
        app.letters = Step(
            app, CountCondition(app, 50), outputs=["out"], body=lambda *_: None, name="letters"
        )
        app.numbers = counting(app, 5, {4: part})
        app.gather = gather(app, name="gather")
        app.add_flow(app.letters, app.gather, size=4)
        app.add_flow(app.numbers, app.gather, size=4)

    app = run(compose, scheduler)
    assert calls == [(1,), (2,), (3,), (4,)]
    assert app.outcome.undelivered == {}


def test_the_queues_of_removed_flows_leave_and_count(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []
    queues: list[int] = []

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        taken.extend(op_input.receive("all"))
        queues.append(len(self._headrace.node.inputs))

    def compose(app: Any) -> None:
        app.taking = Step(app, inputs=[("all", {"size": IOSpec.ANY_SIZE})], body=body, name="taking")
        app.taking.spec.multi_port_condition(
            kind=ConditionType.MULTI_MESSAGE_AVAILABLE,
            port_names=["all"],
            sampling_mode="SumOfAll",
            min_sum=1,
        )
        changes = dict.fromkeys(range(2, 11), lambda app: (app.remove_flow(app.other, app.taking), add(app)))

        def add(app: Any) -> None:
            app.other = source(app, range(3), name=f"other {app.numbers.ticks}")
            app.add_flow(app.other, app.taking)

        app.other = source(app, range(3))
        app.numbers = counting(app, 10, changes, PeriodicCondition(app, "10ms"))
        app.add_flow(app.other, app.taking)
        app.add_flow(app.numbers, app.taking)

    app = App(compose, scheduler)
    app.count_messages = True
    app.run()
    assert sorted(taken) == sorted([*range(1, 11), *(10 * [0, 1, 2])])
    assert max(queues) <= 3
    assert app.outcome.operators["taking"].received == {"all": 40}


def test_a_new_operator_waits_for_its_own_event(scheduler: MakeScheduler) -> None:
    times: list[int] = []

    def add(app: Any) -> None:
        app.late = source(app, range(2), name="late")
        app.late.async_condition.event_state = AsynchronousEventState.EVENT_WAITING

        def note(self: Any, op_input: Any, op_output: Any) -> None:
            times.append(app.now + op_input.receive("in"))

        app.add_flow(app.late, Step(app, inputs=["in"], body=note, name="note"))

    def let_go(app: Any) -> None:
        app.late.async_condition.event_state = AsynchronousEventState.EVENT_DONE

    def compose(app: Any) -> None:
        app.add_operator(counting(app, 5, {2: add, 4: let_go}, PeriodicCondition(app, 10)))

    run(compose, scheduler)
    assert times == [30, 31]  # the time and the number


def test_a_limit_of_messages_counts_for_a_new_source_too(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def add(app: Any) -> None:
        app.add_flow(source(app, range(50), name="late"), sink(app, taken))

    app = App(lambda app: app.add_operator(counting(app, 5, {2: add})), scheduler)
    app.run(max_messages=4)
    assert taken == [0, 1, 2, 3]


def test_a_change_waits_for_an_operator_that_computes_beside_the_others() -> None:
    begun, received = Event(), []

    def work(op: Step, i: Any, o: Any) -> None:
        i.receive("in")
        begun.set()
        wait_until(lambda: app.asked and "asks" not in app.progress().computing, "the compute that asks ends")

    def ask(op: Step, i: Any, o: Any) -> None:
        assert begun.wait(PATIENCE)
        late = sink(app, received, name="late")
        app.add_operator(late)
        app.add_flow(app.others, late)
        app.asked = True

    def compose(app: Any) -> None:
        app.asked = False
        slow = Step(app, inputs=["in"], body=work, name="slow")
        slow.parallel = True
        app.add_flow(source(app, [1], name="first"), slow)
        app.add_operator(Step(app, CountCondition(app, 1), body=ask, name="asks"))
        app.others = source(app, range(3), name="others")
        app.add_operator(app.others)
        for number in range(3):  # which are ready while the change is waited for
            app.add_operator(source(app, range(9), name=f"ready{number}"))

    app: Any = App(compose, event_based, workers=3)
    assert app.run().ended_by == "finished"


@pytest.mark.parametrize("is_tracked", [False, True])
def test_an_operator_that_was_about_to_join_when_the_run_was_stopped_sent_nothing(is_tracked: bool) -> None:
    def change(op: Step, i: Any, o: Any) -> None:
        op.fragment.add_operator(source(op.fragment, [1], name="late"))
        op.fragment.stop_execution()

    def compose(app: Any) -> None:
        app.add_flow(source(app, [1]), sink(app, []))
        app.add_operator(Step(app, body=change, name="changes"))

    app = App(compose)
    app.count_messages = True
    with app.track() if is_tracked else nullcontext():
        outcome = app.run()
    assert outcome.ended_by == "stopped"
    assert outcome.operators["late"].sent == {"out": 0}
