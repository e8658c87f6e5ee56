"""The policy and the size of a queue, and where they are set: input, flow or output."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, IOSpec, PeriodicCondition
from headrace.core import GraphError, QueueFullError
from tests.harness import App, MakeScheduler, Step, run, sink, source

POP, REJECT, FAULT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT


def one_flow(
    output: Any = None, input_: Any = None, flow: Any = None, emits: int = 2
) -> tuple[App, list[Any]]:
    taken: list[Any] = []

    def compose(app: App) -> None:
        a = Step(
            app,
            CountCondition(app, 1),
            outputs=[("out", {"policy": output})],
            body=lambda op, i, o: [o.emit(n) for n in range(emits)],
            name="a",
        )
        b = Step(
            app,
            inputs=[("in", {"policy": input_})],
            body=lambda op, i, o: taken.append(i.receive()),
            name="b",
        )
        app.add_flow(a, b, policy=flow)

    return run(compose), taken


@pytest.mark.parametrize(
    ("output", "input_", "flow", "expected"),
    [
        (POP, None, None, [1]),
        (None, POP, None, [1]),
        (None, None, POP, [1]),
        (POP, REJECT, None, [0]),
        (POP, None, REJECT, [0]),
        (None, REJECT, REJECT, [0]),
        (POP, FAULT, None, QueueFullError),
        (POP, None, FAULT, QueueFullError),
        (None, None, None, QueueFullError),
    ],
)
def test_a_queue_has_the_policy_of_its_input_or_else_of_its_flow_or_else_of_the_output(
    output: Any, input_: Any, flow: Any, expected: Any
) -> None:
    if expected is QueueFullError:
        with pytest.raises(QueueFullError):
            one_flow(output, input_, flow)
    else:
        assert one_flow(output, input_, flow)[1] == expected


def test_a_flow_that_contradicts_its_input_is_an_error_that_names_both() -> None:
    with pytest.raises(
        GraphError,
        match=r"a.out -> b.in was connected with policy=POP, and input 'in' of operator 'b' is declared with "
        r"policy=REJECT; .*queue_policy\('in', policy=...\)",
    ):
        one_flow(None, REJECT, POP)


@pytest.mark.parametrize("other", [None, REJECT, FAULT])
@pytest.mark.parametrize("where", ["flow", "output"])
def test_flows_that_share_a_queue_must_agree_on_its_policy(other: Any, where: str) -> None:
    def compose(app: App) -> None:
        b = sink(app, [])
        for name, policy in (("a1", POP), ("a2", other)):
            a = Step(app, outputs=[("out", {"policy": policy if where == "output" else None})], name=name)
            app.add_flow(a, b, policy=policy if where == "flow" else None)

    with pytest.raises(
        GraphError,
        match=r"flows into input 'in' of operator 'sink' share one queue and have different policies: "
        rf"a1.out -> sink.in has POP, a2.out -> sink.in has {(other or FAULT).name}; .*ANY_SIZE",
    ):
        App(compose).compose_graph()


def test_the_size_of_a_flow_is_how_many_wait_and_not_what_receive_gives(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []
    ahead: list[int] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            ahead.append(op.ticks - 1 - len(taken))
            o.emit(op.ticks)

        a = Step(app, CountCondition(app, 8), outputs=["out"], body=send, name="a")
        app.add_flow(a, sink(app, taken, PeriodicCondition(app, 100)), size=3)

    app = run(compose, scheduler)
    assert taken == [1, 2, 3, 4, 5, 6, 7, 8]
    assert max(ahead) in (2, 3)
    assert app.dropped() == {}


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"size": 0}, r"add_flow\('source', 'sink'\): size must be a positive int, not 0"),
        ({"size": True}, r"size must be a positive int, not True"),
        (
            {"policy": "POP"},
            r"add_flow\('source', 'sink'\): policy must be an IOSpec.QueuePolicy .* not 'POP'",
        ),
    ],
)
def test_what_a_flow_cannot_take_is_said(said: dict[str, Any], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        App(lambda app: app.add_flow(source(app, [1]), sink(app, []), **said)).compose_graph()


def test_sizes_of_flows_that_cannot_be_are_said() -> None:
    def short(app: App) -> None:
        app.add_flow(source(app, [1]), Step(app, inputs=[("in", {"size": 3})], name="b"), size=2)

    with pytest.raises(GraphError, match=r"with size=2, and input 'in' of operator 'b' takes 3 messages"):
        App(short).compose_graph()

    def disagree(app: App) -> None:
        b = sink(app, [])
        app.add_flow(source(app, [1], name="a1"), b, size=2)
        app.add_flow(source(app, [1], name="a2"), b, size=3)

    with pytest.raises(GraphError, match=r"disagree on its size: a1.out -> sink.in with size=2, a2.out"):
        App(disagree).compose_graph()
