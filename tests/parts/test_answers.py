"""Parts that may be lost answer what came of their messages: programs go on as if they answered at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace import Application, ConditionType, Fragment
from headrace.link.protocol import Sample
from headrace.parts.cut import Cut
from headrace.parts.idleness import ANSWER, IdleReport
from headrace.parts.link_operators import ReceiveFromPart
from tests.harness import PATIENCE, Step, greedy, sink, source, through, wait_until
from tests.parts.memory_link import MemoryLink, MemoryReceiver
from tests.parts.running import Coordinator, MemoryLinks, UnixLinks, run_parts

NUMBERS = list(range(12))


class Part(Fragment):
    """A part that may be lost, whose compose is a function."""

    def __init__(self, application: Any, name: str, body: Callable[[Any], Any], on_loss: str) -> None:
        super().__init__(application, name, on_loss=on_loss)
        self._body = body

    def compose(self) -> None:
        self._body(self)


class Plant(Application):
    """An application of parts, each with a function that composes it, and the flows between them."""

    def __init__(self, parts: dict[str, Callable[[Any], Any]], flows: list[str], on_loss: str) -> None:
        super().__init__([])
        self._bodies, self._flows, self._on_loss = parts, flows, on_loss

    def compose(self) -> None:
        self.scheduler(greedy(self))
        parts = {name: Part(self, name, body, self._on_loss) for name, body in self._bodies.items()}
        for flow in self._flows:
            (source, output), (target, port) = (end.split(".", 1) for end in flow.split(" -> "))
            self.add_flow(parts[source], parts[target], {(output, port)})


def each_sends_to_the_next(names: str, taken: dict[str, list[Any]]) -> tuple[Any, list[str]]:
    """Return parts that send numbers of their own in a circle."""

    def compose(part: Any) -> None:
        part.add_operator(source(part, NUMBERS, name="numbers"))
        part.add_operator(sink(part, taken.setdefault(part.name, []), name="show"))

    following = dict(zip(names, names[1:] + names[0], strict=True))
    flows = [f"{name}.numbers.out -> {other}.show.in" for name, other in following.items()]
    return dict.fromkeys(names, compose), flows


def two(taken: dict[str, list[Any]]) -> Any:
    return each_sends_to_the_next("ab", taken)


def three(taken: dict[str, list[Any]]) -> Any:
    return each_sends_to_the_next("abc", taken)


def loop_that_passes_each_part_twice(taken: dict[str, list[Any]]) -> Any:
    def turn(self: Any, op_input: Any, op_output: Any) -> None:
        value = op_input.receive("start") or op_input.receive("again")
        taken.setdefault("a", []).append(value)
        if value < 5:
            op_output.emit(value + 1, "out")

    def a(part: Any) -> None:
        first = Step(
            part,
            inputs=["start", "again"],
            outputs=["out"],
            body=turn,
            setup=lambda spec: spec.or_combine_port_conditions(["start", "again"]),
            name="first",
        )
        part.add_flow(source(part, [1], name="start"), first, {("out", "start")})
        part.add_operator(through(part, name="third"))

    def b(part: Any) -> None:
        part.add_operator(through(part, name="second"))
        part.add_operator(through(part, name="fourth"))

    flows = [
        "a.first.out -> b.second.in",
        "b.second.out -> a.third.in",
        "a.third.out -> b.fourth.in",
        "b.fourth.out -> a.first.again",
    ]
    return {"a": a, "b": b}, flows


def batches(taken: dict[str, list[Any]], numbers: list[int] = NUMBERS) -> Any:
    """Return parts of which the last takes four messages at once, and the first may send one at a time."""

    def last(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            taken.setdefault("c", []).append(op_input.receive("in"))

        def setup(spec: Any) -> None:
            spec.input("in", size=4).condition(ConditionType.MESSAGE_AVAILABLE, min_size=4)

        part.add_operator(Step(part, body=take, setup=setup, name="batch"))

    return {
        "a": lambda part: part.add_operator(source(part, numbers, name="numbers")),
        "b": lambda part: part.add_operator(through(part, name="double")),
        "c": last,
    }, ["a.numbers.out -> b.double.in", "b.double.out -> c.batch.in"]


def batches_with_a_rest(taken: dict[str, list[Any]]) -> Any:
    return batches(taken, NUMBERS[:6])


@pytest.mark.parametrize("links", [MemoryLinks, UnixLinks])
@pytest.mark.parametrize("on_loss", ["restart", "go_on"])
@pytest.mark.parametrize(
    "shape", [two, three, loop_that_passes_each_part_twice, batches, batches_with_a_rest]
)
def test_parts_that_may_be_lost_take_what_one_process_takes(shape: Any, on_loss: str, links: Any) -> None:
    alone: dict[str, list[Any]] = {}
    outcome = Plant(*shape(alone), on_loss).run()
    taken: dict[str, list[Any]] = {}
    parts, flows = shape(taken)
    result = run_parts(lambda: Plant(parts, flows, on_loss), list(parts), links())
    assert not result.errors
    assert taken == alone
    assert result.by_port("undelivered") == outcome.undelivered


@pytest.mark.parametrize("links", [MemoryLinks, UnixLinks])
@pytest.mark.parametrize("shape", [two, three, loop_that_passes_each_part_twice, batches])
def test_parts_that_may_be_lost_go_on_though_another_part_is_never_idle(
    shape: Any, links: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody finds that no part can go on. A batch that is incomplete lets those before it send more."""
    alone: dict[str, list[Any]] = {}
    Plant(*shape(alone), "restart").run()
    taken: dict[str, list[Any]] = {}
    parts, flows = shape(taken)
    expected = sum(map(len, alone.values()))

    def report(self: Coordinator, part: str, report: IdleReport) -> None:
        if sum(map(len, taken.values())) == expected:
            tell(self, part, report)

    tell = Coordinator._report
    monkeypatch.setattr(Coordinator, "_report", report)
    assert not run_parts(lambda: Plant(parts, flows, "restart"), list(parts), links()).errors
    assert taken == alone


@pytest.mark.parametrize("links", [MemoryLinks, UnixLinks])
def test_what_a_part_answers_before_a_batch_behind_it_is_complete_is_known_to_be_at_risk(links: Any) -> None:
    """The sender forgets a message with its answer. If both parts behind it are lost, nobody has it any more."""
    told: list[tuple[str, int, tuple[str, ...], int]] = []

    def prepare(cut: Cut) -> None:
        def on_risk(flow: str, count: int, holders: tuple[str, ...]) -> None:
            (receiver,) = (each for each in cut.idleness._operators if each.flow.name == flow)
            told.append((flow, count, holders, receiver._done))

        cut.idleness.on_risk = on_risk

    parts, flows = batches({})
    assert not run_parts(lambda: Plant(parts, flows, "restart"), list(parts), links(), prepare).errors
    assert {flow for flow, *_ in told} == {"a.numbers.out -> b.double.in"}
    assert all("c" in holders for _, _, holders, _ in told)
    counts = [count for _, count, _, _ in told]
    assert 3 <= max(counts) <= 4  # those of a batch
    # Each of the first is told before it is answered.
    assert [(count, done) for _, count, _, done in told][:3] == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize("shape", [two, three, loop_that_passes_each_part_twice])
def test_parts_that_send_to_each_other_do_not_wait_for_each_others_answers(
    shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each message would wait until it is known that the whole program is idle."""
    stages: list[int] = []

    def report(self: Coordinator, part: str, report: IdleReport) -> None:
        stages.append(report.stage)
        tell(self, part, report)

    tell = Coordinator._report
    monkeypatch.setattr(Coordinator, "_report", report)
    parts, flows = shape({})
    assert not run_parts(lambda: Plant(parts, flows, "restart"), list(parts)).errors
    assert ANSWER not in stages


def test_a_message_that_is_delivered_while_the_part_is_found_idle_is_not_answered_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread is about to put it in its queue, and counts it already."""
    taken: dict[str, list[Any]] = {}
    parts, flows = two(taken)
    links = MemoryLinks()
    cut = Cut(Plant(parts, flows, "restart"), "a")
    link = MemoryLink("b.numbers.out -> a.show.in", 2)
    is_in_the_middle, may_go_on = threading.Event(), threading.Event()
    given: list[tuple[int, int]] = []

    def connect(cut: Cut) -> None:
        links.made[link.name] = link
        links.connect(cut)
        link.frames.append(Sample(0))

    def note_places(self: Any, queue: Any) -> None:
        if threading.current_thread() is deliverer:
            is_in_the_middle.set()
            may_go_on.wait(PATIENCE)
        usual_places(self, queue)

    def count_taken(self: Any) -> int:
        if deliverer.ident is None and taken["a"] == [0]:
            may_go_on.clear()
            link.frames.append(Sample(1))
            deliverer.start()
            wait_until(lambda: is_in_the_middle.is_set() or not deliverer.is_alive(), "the delivery")
        return usual_taken(self)

    def note_idle(self: Any) -> None:
        usual_idle(self)
        may_go_on.set()

    def give_credits(self: Any, count: int) -> None:
        given.append((count, len(taken["a"])))
        if sum(count for count, _ in given) == 2:
            cut.application.stop_execution()

    deliverer = threading.Thread(target=lambda: link.receiver.on_event())
    usual_places, usual_taken = ReceiveFromPart._note_places, ReceiveFromPart._taken
    usual_idle = ReceiveFromPart.note_idle
    monkeypatch.setattr(ReceiveFromPart, "note_idle", note_idle)
    monkeypatch.setattr(ReceiveFromPart, "_note_places", note_places)
    monkeypatch.setattr(ReceiveFromPart, "_taken", count_taken)
    monkeypatch.setattr(MemoryReceiver, "give_credits", give_credits)
    cut._on_composed = connect
    cut.application.run_async().result(PATIENCE)
    deliverer.join(PATIENCE)
    assert given == [(1, 1), (1, 2)]
