from __future__ import annotations

from typing import Any

import pytest

from headrace import ConditionType, CountCondition, IOSpec
from headrace.core import PortError, QueueFullError
from tests.harness import App, MakeScheduler, Step, run, sink, source

POP, REJECT, FAULT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT


def test_receive_on_an_empty_port_gives_none() -> None:
    taken: list[Any] = []

    def body(op: Step, i: Any, o: Any) -> None:
        taken.append((i.receive("in"), i.receive("in")))

    run(lambda app: app.add_flow(source(app, [1]), Step(app, inputs=["in"], body=body)))
    assert taken == [(1, None)]


def test_an_unknown_port_lists_the_ports_and_the_note_names_the_operator() -> None:
    def compose(app: App) -> None:
        a = Step(app, CountCondition(app, 1), outputs=["x", "y"], body=lambda op, i, o: o.emit(1), name="a")
        app.add_operator(a)

    with pytest.raises(PortError, match=r"operator 'a' has the outputs 'x', 'y': name one") as caught:
        run(compose)
    assert caught.value.__notes__ == ["raised in compute of operator 'a' (Step)"]

    def ask(op: Step, i: Any, o: Any) -> None:
        i.receive("inn")

    with pytest.raises(PortError, match=r"operator 'b' has no input 'inn'; it has 'in'"):
        run(lambda app: app.add_flow(source(app, [1]), Step(app, inputs=["in"], body=ask, name="b")))


def overflow(policy: Any, scheduler: MakeScheduler) -> tuple[App, list[Any]]:
    """Five emits in one compute into a queue of two."""
    taken: list[Any] = []

    def compose(app: App) -> None:
        def burst(op: Step, i: Any, o: Any) -> None:
            for n in range(5):
                o.emit(n)

        def setup(spec: Any) -> None:
            spec.input("in", size=2, policy=policy).condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)

        a = Step(app, CountCondition(app, 1), outputs=["out"], body=burst, name="a")
        b = Step(app, setup=setup, body=lambda op, i, o: taken.extend(i.receive()), name="b")
        app.add_flow(a, b)

    return run(compose, scheduler), taken


def test_a_full_queue_pops_the_oldest_and_counts_it(scheduler: MakeScheduler) -> None:
    app, taken = overflow(POP, scheduler)
    assert taken == [3, 4]
    assert app.dropped() == {"b.in": 3}
    assert app.graph.find("b").dropped("in") == 3


def test_a_full_queue_rejects_the_newest_and_counts_it(scheduler: MakeScheduler) -> None:
    app, taken = overflow(REJECT, scheduler)
    assert taken == [0, 1]
    assert app.dropped() == {"b.in": 3}


@pytest.mark.parametrize("policy", [FAULT, None])
def test_a_full_queue_faults_in_the_producer(scheduler: MakeScheduler, policy: Any) -> None:
    with pytest.raises(QueueFullError, match=r"input 'in' of operator 'b' is full \(2 waiting\)") as caught:
        overflow(policy, scheduler)
    assert caught.value.__notes__ == ["raised in compute of operator 'a' (Step)"]


def test_a_policy_can_be_set_after_construction() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        a = Step(
            app,
            CountCondition(app, 1),
            outputs=["out"],
            body=lambda op, i, o: (o.emit(1), o.emit(2)),
            name="a",
        )
        b = sink(app, taken)
        b.queue_policy("in", policy=REJECT)
        app.add_flow(a, b)
        with pytest.raises(PortError, match="has no input 'out'"):
            b.queue_policy("out", policy=REJECT)

    run(compose)
    assert taken == [1]


def test_a_receivers_port_gives_a_tuple_with_one_message_of_each_connection() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        join = Step(
            app,
            inputs=[("all", {"size": IOSpec.ANY_SIZE})],
            body=lambda op, i, o: taken.append(i.receive("all")),
        )
        for name in "abc":
            app.add_flow(source(app, [f"{name}1", f"{name}2"], name=name), join)

    run(compose)
    assert taken == [("a1", "b1", "c1"), ("a2", "b2", "c2")]


def test_a_preceding_count_port_waits_for_as_many_messages_as_connections() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        join = Step(
            app,
            inputs=[("all", {"size": IOSpec.PRECEDING_COUNT})],
            body=lambda op, i, o: taken.append(tuple(sorted(i.receive("all")))),
        )
        for name in "abc":
            app.add_flow(source(app, [f"{name}1", f"{name}2"], name=name), join)

    run(compose)
    assert [len(batch) for batch in taken] == [3, 3]


@pytest.mark.usefixtures("no_device_yet")
def test_nothing_that_was_received_is_kept_after_compute() -> None:
    import gc
    import weakref

    class Data:
        pass

    kept: list[weakref.ref[Data]] = []
    alive: list[int] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            gc.collect()
            alive.append(sum(reference() is not None for reference in kept))
            data = Data()
            kept.append(weakref.ref(data))
            o.emit(data, "out", acq_timestamp=op.ticks if op.ticks > 2 else -1)

        a = Step(app, CountCondition(app, 6), outputs=["out"], body=send, name="a")
        app.add_flow(a, Step(app, inputs=["in"], body=lambda op, i, o: i.receive() and None, name="b"))

    run(compose)
    assert alive == [0] * 6
