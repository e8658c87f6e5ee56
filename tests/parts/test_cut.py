"""Single flows between parts: places, policies, ends, errors, and what cannot be cut."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import Application, Condition, ConditionType, CountCondition, Fragment, IOSpec, watch
from headrace.conditions import DownstreamMessageAffordableCondition
from headrace.core import SchedulingStatusType
from headrace.core.errors import CrossingError, GraphError, LinkError, PeerAborted, PeerLost, QueueFullError
from headrace.gpu import sim
from headrace.link.protocol import Sample
from headrace.parts import link_operators
from headrace.parts.cut import Cut, cut_flows
from tests.harness import (
    PATIENCE,
    MakeScheduler,
    Producer,
    Step,
    event_based,
    greedy,
    sink,
    source,
    wait_until,
)
from tests.harness.internals import input_queues
from tests.parts.memory_link import MemoryLink, MemoryReceiver, MemorySender
from tests.parts.running import MemoryLinks, PartsRun, UnixLinks, run_parts

POP, REJECT, LATEST = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.LATEST
FLOW = "edge.camera.out -> server.detector.in"


def plant(
    edge: Callable[[Any], Any],
    server: Callable[[Any], Any],
    flows: Any = (("camera.out", "detector.in"),),
    scheduler: MakeScheduler = greedy,
    **terms: Any,
) -> Application:
    """Return an application of two parts, whose composes are functions."""

    class Edge(Fragment):
        def compose(self) -> None:
            edge(self)

    class Server(Fragment):
        def compose(self) -> None:
            server(self)

    class Plant(Application):
        def compose(self) -> None:
            self.scheduler(scheduler(self))
            parts = Edge(self, "edge"), Server(self, "server")
            self.add_flow(*parts, list(flows), **terms)

    return Plant()


def camera(values: Any) -> Callable[[Any], None]:
    return lambda part: part.add_operator(source(part, values, name="camera"))


def detector(taken: list[Any]) -> Callable[[Any], None]:
    return lambda part: part.add_operator(sink(part, taken, name="detector"))


def run_plant(make: Callable[[], Application], links: Any = None, **more: Any) -> PartsRun:
    return run_parts(make, ["edge", "server"], links, **more)


@pytest.fixture(params=[MemoryLinks, UnixLinks])
def links(request: Any) -> Any:
    return request.param()


# Places.


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_flow_between_parts_has_as_many_places_as_in_one_process(
    scheduler: MakeScheduler, size: int, links: Any
) -> None:
    """The producer emits as many messages as there are places, and one more for each that was taken."""
    taken: list[int] = []
    may_take = threading.Semaphore(0)
    emitted: list[int] = []

    def edge(part: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            emitted.append(self.ticks)
            op_output.emit(self.ticks)

        part.add_operator(Step(part, CountCondition(part, 12), outputs=["out"], body=emit, name="camera"))

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            may_take.acquire()
            taken.append(op_input.receive("in"))

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))

    runs: list[PartsRun] = []
    make = lambda: plant(edge, server, scheduler=scheduler, size=size)  # noqa: E731
    thread = threading.Thread(target=lambda: runs.append(run_plant(make, links)))
    thread.start()
    for count in range(12):
        # The detector has not received yet, so nothing has left its place.
        expected = min(12, count + size)
        wait_until(lambda expected=expected: len(emitted) >= expected, "the next message")
        assert len(emitted) == expected
        may_take.release()
    thread.join(PATIENCE)
    assert taken == list(range(1, 13))
    assert not runs[0].errors


def test_room_that_a_long_compute_makes_is_told_of_when_it_receives(links: Any) -> None:
    """As in one process with several workers: the next message is made during the compute."""
    emitted: list[int] = []
    taken: list[int] = []

    def edge(part: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            emitted.append(self.ticks)
            op_output.emit(self.ticks)

        part.add_operator(Step(part, CountCondition(part, 300), outputs=["out"], body=emit, name="camera"))

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive("in"))
            if self.ticks < 3 or self.ticks > 290:  # after many short computes nobody expects a long one
                wait_until(lambda: len(emitted) > min(self.ticks, 299), "the message behind this one")

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))

    result = run_plant(lambda: plant(edge, server, scheduler=event_based), links)
    assert not result.errors
    assert taken == list(range(1, 301))


# Policies.


@pytest.mark.parametrize("policy", [POP, REJECT, LATEST])
def test_a_policy_that_drops_never_lets_the_producer_wait(links: Any, policy: Any) -> None:
    taken: list[int] = []
    ended = threading.Event()

    def edge(part: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(self.ticks)
            if self.ticks == 50:
                ended.set()

        part.add_operator(Step(part, CountCondition(part, 50), outputs=["out"], body=emit, name="camera"))

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            assert ended.wait(PATIENCE)  # the producer does not wait for this compute
            value = op_input.receive("in")
            if value is not None and value not in taken:
                taken.append(value)
            if policy is LATEST and value == 50:  # it would be received for ever
                self.stop_execution()

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))

    size = {} if policy is LATEST else {"size": 3}
    result = run_plant(lambda: plant(edge, server, policy=policy, **size), links)
    assert not result.errors
    assert taken == sorted(set(taken))
    assert (taken[0] == 1) if policy is REJECT else (taken[-1] == 50)
    port = "server.detector.in"
    lost = result.by_port("dropped").get(port, 0) + result.by_port("undelivered").get(port, 0)
    assert len(taken) + lost == 50


# What travels.


def test_metadata_and_acquisition_times_travel_with_messages(links: Any) -> None:
    taken: list[Any] = []

    def edge(part: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            self.metadata["frame"] = self.ticks
            op_output.emit(np.full(100_000, self.ticks), acq_timestamp=self.ticks * 1000)

        part.add_operator(Step(part, CountCondition(part, 3), outputs=["out"], body=emit, name="camera"))

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            frame = op_input.receive("in")
            frame += 1  # it belongs to its receiver
            taken.append((frame[-1], dict(self.metadata), op_input.get_acquisition_timestamp("in")))

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))

    assert not run_plant(lambda: plant(edge, server), links).errors
    assert taken == [(n + 1, {"frame": n}, n * 1000) for n in (1, 2, 3)]


# Ends.


def test_the_end_of_a_stream_travels(scheduler: MakeScheduler, links: Any) -> None:
    """An operator in another part sees what is left, and then that the stream has ended."""
    seen: list[Any] = []

    def server(part: Any) -> None:
        class Batches(Step):
            def end(self, op_input: Any, op_output: Any, context: Any) -> None:
                seen.append((op_input.receive("in"), op_input.has_ended("in")))

        take = lambda self, op_input, op_output: seen.append(op_input.receive("in"))  # noqa: E731
        part.add_operator(Batches(part, inputs=[("in", {"size": 3})], body=take, name="detector"))

    make = lambda: plant(camera(range(8)), server, scheduler=scheduler)  # noqa: E731
    result = run_plant(make, links)
    assert not result.errors
    assert seen == [(0, 1, 2), (3, 4, 5), ((6, 7), True)]
    assert {str(outcome.ended_by) for outcome in result.outcomes.values()} == {"finished"}


def test_a_receiver_that_has_ended_lets_its_producers_end(scheduler: MakeScheduler, links: Any) -> None:
    """The outcome is that of one process, where the producer waits for room in vain."""
    taken: list[int] = []

    def server(part: Any) -> None:
        take = lambda self, op_input, op_output: taken.append(op_input.receive("in"))  # noqa: E731
        part.add_operator(Step(part, CountCondition(part, 3), inputs=["in"], body=take, name="detector"))

    make = lambda: plant(camera(range(100)), server, scheduler=scheduler, size=4)  # noqa: E731
    whole = make().run()
    result = run_plant(make, links)
    assert taken == [0, 1, 2] * 2
    assert not result.errors
    assert result.by_port("undelivered") == whole.undelivered == {"server.detector.in": 4}
    assert {str(outcome.ended_by) for outcome in result.outcomes.values()} == {str(whole.ended_by)}


def test_a_receiver_that_ends_between_computes_tells_its_producers(
    scheduler: MakeScheduler, links: Any
) -> None:
    """It ends because another of its inputs has; the producer waits for room in vain, as in one process."""
    taken: list[Any] = []

    def server(part: Any) -> None:
        def emit_twice(self: Any, op_input: Any, op_output: Any) -> None:
            if self.ticks < 3:
                op_output.emit(self.ticks)

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            taken.append((op_input.receive("in"), op_input.receive("other")))

        join = Step(part, inputs=["in", "other"], body=take, name="detector")

        class FullBefore(Condition):
            def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
                is_full = other.ticks < 2 or len(input_queues(join, "in")[0]) == 2
                return (SchedulingStatusType.READY if is_full else SchedulingStatusType.WAIT), None

        three_times = CountCondition(part, 3), FullBefore(part)
        other = Step(part, *three_times, outputs=["out"], body=emit_twice, name="other")
        part.add_flow(other, join, {("out", "other")})

    make = lambda: plant(camera(range(9)), server, scheduler=scheduler, size=2)  # noqa: E731
    whole = make().run()
    result = run_plant(make, links)
    assert not result.errors
    assert taken == [(0, 1), (1, 2)] * 2
    assert result.by_port("undelivered") == whole.undelivered == {"server.detector.in": 2}


@pytest.mark.parametrize(("begins", "emits"), [(True, True), (True, False), (False, True)])
def test_a_loop_through_several_parts_ends_as_in_one_process(
    scheduler: MakeScheduler, links: Any, begins: bool, emits: bool
) -> None:
    """A loop that carries state has a message left; one that lacks its first message starves.

    An operator that never ran does not starve if another one of its loop did, or may have, in another part.
    """
    seen: list[Any] = []

    def server(part: Any) -> None:
        def add(self: Any, op_input: Any, op_output: Any) -> None:
            state = op_input.receive("state") or 0
            seen.append(state + op_input.receive("in"))
            if emits:
                op_output.emit(seen[-1], "out")

        state = ("state", {"size": 1})
        operator = Step(part, inputs=["in", state], outputs=["out"], body=add, name="sum")
        if begins:
            operator.spec.inputs["state"].condition(ConditionType.NONE)
        part.add_operator(operator)

    def edge(part: Any) -> None:
        passing = lambda self, op_input, op_output: op_output.emit(op_input.receive("in"))  # noqa: E731
        part.add_operator(source(part, range(5), name="camera"))
        part.add_operator(Step(part, inputs=["in"], outputs=["out"], body=passing, name="delay"))

    class Loop(Application):
        def compose(self) -> None:
            self.scheduler(scheduler(self))
            parts = Part(self, "edge", edge), Part(self, "server", server)
            self.add_flow(*parts, [("camera.out", "sum.in"), ("delay.out", "sum.state")], size=8)
            self.add_flow(*parts[::-1], [("sum.out", "delay.in")], size=8)

    whole = Loop().run()
    seen.clear()
    result = run_plant(Loop, links)
    assert not result.errors
    starved = {each.operator for outcome in result.outcomes.values() for each in outcome.starved}
    # A part tells of its own operators, and not what waits in another one.
    assert starved <= {each.operator for each in whole.starved}
    assert bool(starved) is not begins
    assert bool(seen) is begins
    if not begins:
        assert result.by_port("undelivered") == whole.undelivered


def test_a_loop_of_several_parts_whose_messages_wait_for_each_other_finishes_and_counts_them(
    scheduler: MakeScheduler, links: Any
) -> None:
    """A source of the part has the only place that the message which comes back waits for.

    In one process that starves; no part alone can tell.
    """

    def passing(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(op_input.receive("in"))

    def edge(part: Any) -> None:
        part.add_operator(Step(part, inputs=["in"], outputs=["out"], body=passing, name="delay"))

    def server(part: Any) -> None:
        camera = source(part, range(5), name="camera")
        middle = Step(part, inputs=["in"], outputs=["out"], body=passing, name="middle")
        part.add_flow(camera, middle, size=1)

    class Loop(Application):
        def compose(self) -> None:
            self.scheduler(scheduler(self))
            parts = Part(self, "edge", edge), Part(self, "server", server)
            self.add_flow(*parts, [("delay.out", "middle.in")], size=1)
            self.add_flow(*parts[::-1], [("middle.out", "delay.in")], size=1)

    assert Loop().run().starved
    result = run_plant(Loop, links)
    assert not result.errors
    assert [outcome.ended_by for outcome in result.outcomes.values()] == ["finished"] * 2
    sent = result.outcomes["server"].operators["server.camera"].computes
    assert sum(result.by_port("undelivered").values()) == sent > 1


class Part(Fragment):
    """A part whose compose is a function."""

    def __init__(self, application: Any, name: str, compose: Callable[[Any], None], **more: Any) -> None:
        super().__init__(application, name, **more)
        self._compose = compose

    def compose(self) -> None:
        self._compose(self)


# Errors.


@pytest.mark.parametrize("failing", ["edge", "server"])
def test_an_error_in_one_part_ends_the_others_with_its_name(
    scheduler: MakeScheduler, links: Any, failing: str
) -> None:
    def fail(part: Any, name: str, **ports: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any) -> None:
            if name == "detector":
                op_input.receive("in")
            if part.name == failing and self.ticks == 3:
                raise ValueError("no film")
            if name == "camera":
                op_output.emit(self.ticks)

        part.add_operator(Step(part, body=body, name=name, **ports))

    result = run_plant(
        lambda: plant(
            lambda part: fail(part, "camera", outputs=["out"]),
            lambda part: fail(part, "detector", inputs=["in"]),
            scheduler=scheduler,
        ),
        links,
    )
    (other,) = {"edge", "server"} - {failing}
    assert isinstance(result.errors[failing], ValueError)
    aborted = result.errors[other]
    assert isinstance(aborted, PeerAborted)
    assert aborted.part == failing
    assert isinstance(aborted.__cause__, ValueError)


@pytest.mark.parametrize("stopping", ["edge", "server"])
def test_a_stop_of_one_part_stops_the_others(scheduler: MakeScheduler, links: Any, stopping: str) -> None:
    taken: list[int] = []

    def edge(part: Any) -> None:
        emit = lambda self, op_input, op_output: op_output.emit(self.ticks)  # noqa: E731
        part.add_operator(Step(part, outputs=["out"], body=emit, name="camera"))

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive("in"))
            if self.ticks == 5:
                result[stopping].application.stop_execution()

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))

    result: dict[str, Cut] = {}
    run = run_plant(
        lambda: plant(edge, server, scheduler=scheduler),
        links,
        prepare=lambda cut: result.setdefault(cut.part, cut),
    )
    assert not run.errors
    assert {str(outcome.ended_by) for outcome in run.outcomes.values()} == {"stopped"}
    counts = run.counts[FLOW]
    emitted = run.outcomes["edge"].operators["edge.camera"].computes
    assert emitted == len(taken) + run.by_port("undelivered").get("server.detector.in", 0)
    assert counts.sent >= counts.arrived


def test_a_lost_peer_ends_the_run_with_that_error(scheduler: MakeScheduler) -> None:
    links = MemoryLinks()

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            if self.ticks == 3:
                links.made[FLOW].lose()

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))

    result = run_plant(lambda: plant(camera(range(1000)), server, scheduler=scheduler), links)
    assert {type(error) for error in result.errors.values()} == {PeerLost}
    assert {str(outcome.ended_by) for outcome in result.outcomes.values()} == {"failed"}


def test_a_new_link_takes_the_place_of_one_that_failed(scheduler: MakeScheduler) -> None:
    """Messages that their receiver had not taken are sent again: none is lost, none comes twice."""
    links, taken = MemoryLinks(), []

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive("in"))

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))

    cuts: dict[str, Cut] = {}
    failed: list[str] = []
    link = MemoryLink(FLOW, 4)

    def replace(cut: Cut) -> None:
        def on_failure(flow: Any, error: BaseException) -> None:
            assert isinstance(error, PeerLost)
            failed.append(cut.part)
            end: Any = link.sender if cut.part == "edge" else link.receiver
            cut.connect(flow.name, end)

        cut.on_failure = on_failure
        cuts[cut.part] = cut

    def edge(part: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(self.ticks)
            if self.ticks == 20:
                links.made[FLOW].lose()

        part.add_operator(Step(part, CountCondition(part, 40), outputs=["out"], body=emit, name="camera"))

    make = lambda: plant(edge, server, scheduler=scheduler, size=4)  # noqa: E731
    result = run_plant(make, links, prepare=replace)
    assert not result.errors
    assert sorted(failed) == ["edge", "server"]
    assert taken[-1] == 40
    assert set(taken) == set(range(1, 41))


def test_a_part_that_may_be_lost_answers_what_it_has_done(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credit comes back when nothing is left to do for a message, and not when it was only taken."""
    links, done = MemoryLinks(), []
    early: list[int] = []

    def server(part: Any) -> None:
        def relay(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(op_input.receive("in"))

        def finish(self: Any, op_input: Any, op_output: Any) -> None:
            done.append(op_input.receive("in"))

        first = Step(part, inputs=["in"], outputs=["out"], body=relay, name="detector")
        part.add_flow(first, Step(part, inputs=["in"], body=finish, name="last"), size=4)

    class Plant(Application):
        def compose(self) -> None:
            self.scheduler(scheduler(self))
            parts = Part(self, "edge", camera(range(20))), Part(self, "server", server, on_loss="restart")
            self.add_flow(*parts, {("camera.out", "detector.in")}, size=4)

    given: list[int] = []

    def give_credits(self: MemoryReceiver, count: int) -> None:
        given.append(count)
        early.extend([count] if sum(given) > len(done) else [])
        give(self, count)

    give = MemoryReceiver.give_credits
    monkeypatch.setattr(MemoryReceiver, "give_credits", give_credits)
    result = run_plant(Plant, links)
    assert not result.errors
    assert done == list(range(20))
    assert not early


def test_a_part_that_may_be_lost_ends_though_its_receiver_left_messages(links: Any) -> None:
    """The receiver has ended after the stream did, so what it left is never answered."""
    cuts: dict[str, Cut] = {}

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            link: Any = cuts["server"]._operators[FLOW]._link
            wait_until(lambda: link.has_ended, "the end of the stream")
            op_input.receive("in")

        part.add_operator(Step(part, CountCondition(part, 1), inputs=["in"], body=take, name="detector"))

    class Plant(Application):
        def compose(self) -> None:
            self.scheduler(event_based(self, workers=2))
            parts = Part(self, "edge", camera(range(3))), Part(self, "server", server, on_loss="restart")
            self.add_flow(*parts, {("camera.out", "detector.in")}, size=4)

    result = run_plant(Plant, links, prepare=lambda cut: cuts.update({cut.part: cut}))
    assert not result.errors
    assert {outcome.ended_by for outcome in result.outcomes.values()} == {"finished"}
    assert result.by_port("undelivered") == {"server.detector.in": 2}


def run_server(taken: list[Any], on_failure: Callable[[Cut, MemoryLink], Any]) -> None:
    """Run a part whose link has failed, when three messages had arrived."""
    links = MemoryLinks()
    cut = Cut(plant(camera([]), detector(taken), size=2), "server", links.connect)
    cut.on_failure = lambda flow, error: on_failure(cut, links.made[FLOW])

    def lose(application: Any) -> None:
        link = links.made[FLOW]
        link.frames.extend(Sample(number) for number in (1, 2, 3))
        link.lose()

    cut._on_composed = lambda cut: (links.connect(cut), lose(cut))
    cut.application.run()


def test_what_had_arrived_comes_before_what_a_new_link_brings() -> None:
    taken: list[Any] = []

    def replace(cut: Cut, link: MemoryLink) -> None:
        new = MemoryLink(FLOW, 2)
        new.frames.extend(Sample(number) for number in (4, 5))
        new.credits = 0
        new.receiver.peer_ended = True
        cut.connect(FLOW, new.receiver)

    run_server(taken, replace)
    assert taken == [1, 2, 3, 4, 5]


def test_a_new_link_is_refused_if_nobody_takes_what_the_last_one_brought() -> None:
    """There is no room for the third message, and will be none."""
    links, new = MemoryLinks(), MemoryLink(FLOW, 2)
    made: list[MemoryLink] = []

    def server(part: Any) -> None:
        part.add_operator(sink(part, [], CountCondition(part, 1), name="detector"))

    def lose(cut: Cut) -> None:
        links.connect(cut)
        link = links.made[FLOW]
        link.frames.extend(Sample(number) for number in (1, 2, 3))
        link.lose()

    def await_end(flow: Any, error: BaseException) -> None:
        receiver: Any = cut._operators[FLOW]
        receiver.note_idle = connect  # the detector has ended

    def connect() -> None:
        if not made:
            made.append(new)
            cut.connect(FLOW, new.receiver)

    cut = Cut(plant(camera([]), server, size=2), "server", lose)
    cut.on_failure = await_end
    assert cut.application.run_async().result(PATIENCE).ended_by == "finished"
    assert new.sender.has_ended


@pytest.mark.parametrize(("before", "after"), [([1], [2, 3]), ([1, 2], [3])])
def test_what_a_new_link_brings_is_not_under_way_though_earlier_messages_are_in_its_place(
    before: list[int], after: list[int]
) -> None:
    links, new = MemoryLinks(), MemoryLink(FLOW, 2)
    passed: list[Any] = []

    def waiting(part: Any) -> None:
        """Compose an operator that waits for its own first message."""
        detector = Step(part, inputs=["in", "back"], outputs=["out"], name="detector")
        part.add_flow(detector, detector, {("out", "back")})

    def lose(cut: Cut) -> None:
        links.connect(cut)
        links.made[FLOW].frames.extend(map(Sample, before))
        links.made[FLOW].lose()

    def note(report: Any) -> None:
        passed.append(report.passed[FLOW])
        cut.application.stop_execution()

    cut = Cut(plant(camera([]), waiting, size=2), "server", lose)
    cut.on_failure = lambda flow, error: cut.connect(FLOW, new.receiver)
    cut.idleness.on_idle = note
    new.frames.extend(map(Sample, after))
    assert cut.application.run_async().result(PATIENCE).ended_by == "stopped"
    assert passed == [(len(after), 0)]  # as the sender says


def test_what_was_taken_over_the_link_before_does_not_count_for_a_new_one() -> None:
    links, new = MemoryLinks(), MemoryLink(FLOW, 2)
    passed: list[Any] = []

    def server(part: Any) -> None:
        """Compose an operator that takes one message, and waits for a second one of its own."""

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in"), op_input.receive("own")

        detector = Step(part, inputs=["in", "own"], outputs=["out"], body=take, name="detector")
        part.add_flow(source(part, [0], name="first"), detector, {("out", "own")}, size=2)
        part.add_flow(detector, detector, {("out", "own")}, size=2)

    cut = Cut(plant(camera([]), server, size=2), "server", links.connect)
    cut.on_failure = lambda flow, error: cut.connect(FLOW, new.receiver)
    cut.idleness.on_idle = lambda report: passed.append(report.passed[FLOW])
    new.frames.append(Sample(4))
    run = cut.application.run_async()
    wait_until(lambda: passed == [(0, 0)], "the link")
    link = links.made[FLOW]
    link.credits -= 3
    link.frames.extend(map(Sample, (1, 2, 3)))
    link.receiver.on_event()
    wait_until(lambda: passed[-1] == (3, 1), "one message to be taken, and two to wait")
    link.lose()
    wait_until(lambda: passed[-1] != (3, 1), "the new link")
    cut.application.stop_execution()
    run.result(PATIENCE)
    assert passed[-1] == (1, 0)  # as the sender says


def test_an_idle_part_lets_no_link_look_again_that_has_ended() -> None:
    """The queue of the detector has messages of both parts, so the link might wait for room."""
    links, announced = MemoryLinks(), []

    def server(part: Any) -> None:
        detector = sink(part, [], CountCondition(part, 1), name="detector")
        part.add_flow(source(part, [1], name="own"), detector)
        part.add_operator(sink(part, [], name="viewer"))

    def edge(part: Any) -> None:
        part.add_operator(source(part, [], name="camera"))
        part.add_operator(source(part, [], name="clock"))

    def connect(cut: Cut) -> None:
        links.connect(cut)
        links.made[FLOW].sender.end()

    def note(report: Any) -> None:
        receiver: Any = cut._operators[FLOW]
        assert receiver.flow.is_shared
        if receiver._headrace.node.retired:
            receiver._condition.notify_scheduler = lambda: announced.append(report)
            receiver.note_idle()
            cut.application.stop_execution()

    flows = [("camera.out", "detector.in"), ("clock.out", "viewer.in")]
    cut = Cut(plant(edge, server, flows), "server", connect)
    cut.idleness.on_idle = note
    assert cut.application.run_async().result(PATIENCE).ended_by == "stopped"
    assert not announced


def test_what_had_arrived_from_a_part_that_is_given_up_is_taken() -> None:
    taken: list[Any] = []
    run_server(taken, lambda cut, link: cut.end_flow(FLOW))
    assert taken == [1, 2, 3]


def test_a_part_is_idle_though_it_would_send_to_one_that_is_given_up() -> None:
    def waiting(part: Any) -> None:
        """Compose a loop without a first message, which has no end of its own."""
        camera = Step(part, inputs=["in"], outputs=["out"], name="camera")
        part.add_flow(camera, camera)

    links = MemoryLinks()
    cut = Cut(plant(waiting, detector([])), "edge")
    cut._on_composed = lambda cut: (links.connect(cut), links.made[FLOW].lose())
    cut.on_failure = lambda flow, error: cut.end_flow(FLOW)
    cut.idleness.on_idle = lambda report: cut.application.stop_execution()
    assert cut.application.run_async().result(PATIENCE).ended_by == "stopped"


@pytest.mark.parametrize("server_waits", [True, False])
def test_the_run_ends_of_parts_that_have_given_each_other_up(server_waits: bool) -> None:
    """Each of them lives, and what was under way between the two never arrives."""
    links = MemoryLinks()

    def loop(part: Any) -> None:
        """Compose a loop without a first message, which starves when nothing else can run in any part."""
        again = Step(part, inputs=["in"], outputs=["out"], name="again")
        part.add_flow(again, again)

    def edge(part: Any) -> None:
        loop(part)
        part.add_operator(source(part, [1], name="camera"))

    def server(part: Any) -> None:
        part.add_operator(sink(part, [], name="detector"))
        if server_waits:
            loop(part)

    def connect(cut: Cut) -> None:
        links.connect(cut)
        (link,) = links.made.values()

        def lose(sample: Sample) -> bool:
            link.lose()
            return True

        link.sender.send = lose  # type: ignore[method-assign]

    def give_up(cut: Cut) -> None:
        cut._on_composed = connect
        cut.on_failure = lambda flow, error: cut.end_flow(flow.name)

    flows = [("camera.out", "detector.in"), ("again.out", "detector.in")]
    run = run_plant(lambda: plant(edge, server, flows), links, prepare=give_up)
    assert not run.errors
    assert run.outcomes["edge"].ended_by == "starved"
    assert [each.lost for each in run.counts.values()] == [1]


def test_a_flow_is_over_whose_last_messages_are_not_taken() -> None:
    """Its sender may have given this part up, and ended, after it had sent all: nobody waits for the credits."""
    links, reports = MemoryLinks(), []

    def starving(part: Any) -> None:
        detector = Step(part, inputs=["in", "again"], outputs=["out"], name="detector")
        part.add_flow(detector, detector, {("out", "again")})

    def connect(cut: Cut) -> None:
        links.connect(cut)
        links.made[FLOW].sender.send(Sample(1))
        links.made[FLOW].sender.end()

    def note(report: Any) -> None:
        reports.append(report)
        cut.application.stop_execution()

    cut = Cut(plant(camera([]), starving), "server", connect)
    cut.idleness.on_idle = note
    make = link_operators.ReceiveFromPart.start

    def start(receiver: Any) -> None:
        receiver.is_acknowledging = True
        make(receiver)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_operators.ReceiveFromPart, "start", start)
        assert cut.application.run_async().result(PATIENCE).ended_by == "stopped"
    assert reports[0].ended == (FLOW,)
    assert reports[0].passed == {FLOW: (2, 0)}


def test_what_is_emitted_for_a_part_that_is_given_up_is_dropped_to_the_end() -> None:
    links = MemoryLinks()
    cut = Cut(plant(camera(range(20)), detector([]), size=2), "edge")
    cut._on_composed = lambda cut: (links.connect(cut), links.made[FLOW].lose())
    cut.on_failure = lambda flow, error: cut.end_flow(FLOW)
    cut.application.run()
    assert cut.counts()[FLOW].lost == 20


def test_the_last_credits_of_a_failed_link_count_and_the_rest_is_sent_again() -> None:
    links, new = MemoryLinks(), MemoryLink(FLOW, 10)
    cut = Cut(plant(camera(range(6)), detector([]), size=4), "edge")
    seen: list[int] = []

    def send(sample: Sample) -> bool:
        link = links.made[FLOW]
        is_sent = MemorySender.send(link.sender, sample)
        if sample.data == 3:
            link.sender.given = 2  # the first two were taken, and the peer is lost
            link.lose()
        return is_sent

    def end() -> None:
        seen.extend(sample.data for sample in new.frames)
        new.receiver.give_credits(len(new.frames))

    def connect(cut: Cut) -> None:
        links.connect(cut)
        links.made[FLOW].sender.send = send  # type: ignore[method-assign]
        new.sender.end = end  # type: ignore[method-assign]

    cut._on_composed = connect
    cut.on_failure = lambda flow, error: cut.connect(FLOW, new.sender)
    cut.application.run()
    assert seen == [2, 3, 4, 5]
    assert cut.counts()[FLOW].repeated == 2
    late = MemoryLink(FLOW, 4)
    cut.connect(FLOW, late.sender)  # of a part that was started again when this flow was over
    assert late.receiver.has_ended


def test_a_flow_without_a_link_is_named() -> None:
    cut = Cut(plant(camera(range(3)), detector([])), "edge")
    with pytest.raises(LinkError, match=r"flow 'edge.camera.out -> server.detector.in' has no link"):
        cut.application.run()


class Late(deque[Any]):
    """A queue whose last message comes, and whose end, as soon as somebody has found it empty."""

    has_ended = False
    policy = None
    peek = deque.popleft

    def __len__(self) -> int:
        count = super().__len__()
        if not self.has_ended:
            self.append("the last one")
            self.has_ended = True
        return count


@pytest.mark.parametrize("keeps_places", [True, False])
def test_the_end_is_not_sent_before_a_message_that_comes_as_the_sender_looks(keeps_places: bool) -> None:
    """Another worker may emit the last message and end after the sender has found its queue empty."""
    flow = SimpleNamespace(keeps_places=keeps_places, size=4)
    sender: Any = SimpleNamespace(
        flow=flow, _is_stalled=False, _has_failed=False, _has_said_end=False, _out=0, _held=[]
    )
    queue, find_next = Late(), link_operators.SendToPart._find_next
    assert [find_next(sender, queue) for _ in range(2)] == [link_operators._NOTHING, "the last one"]


def test_a_sender_that_is_given_up_drops_a_message_that_comes_as_it_looks() -> None:
    flow = SimpleNamespace(keeps_places=True)
    sender: Any = SimpleNamespace(flow=flow, _queue=Late(), _held=[], _out=0, _sent=0, _lost=0)
    sender._take = lambda queue: queue.popleft()
    drop = link_operators.SendToPart._drop
    drop(sender)
    assert not sender.is_done
    drop(sender)
    assert (sender.is_done, sender._lost) == (True, 1)


def edge_alone(emit: Callable[[Any, Any, MemoryLink], None], computes: int = 4, **terms: Any) -> list[Any]:
    """Run a camera whose four messages nobody takes before the last was sent; return what was sent."""
    links = MemoryLinks()

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        emit(self, op_output, links.made[FLOW])

    def edge(part: Any) -> None:
        part.add_operator(
            Step(part, CountCondition(part, computes), outputs=["out"], body=body, name="camera")
        )

    def connect(cut: Cut) -> None:
        links.connect(cut)
        link = links.made[FLOW]
        link.sender.end = lambda: link.receiver.give_credits(4)  # type: ignore[method-assign]

    cut = Cut(plant(edge, detector([]), size=4, **terms), "edge", connect)
    cut.application.run()
    assert cut.counts()[FLOW].sent == 4
    return [sample.data for sample in links.made[FLOW].frames]


def test_the_compute_that_emits_does_not_meet_the_errors_of_a_link() -> None:
    """The sender raises them, and its name is with them."""
    survived: list[int] = []

    def emit(self: Any, op_output: Any, link: MemoryLink) -> None:
        def refuse(*message: Any) -> bool:
            raise CrossingError("it cannot be sent")

        link.sender.send = refuse  # type: ignore[method-assign]
        op_output.emit(self.ticks)
        survived.append(self.ticks)

    with pytest.raises(CrossingError, match="it cannot be sent") as caught:
        edge_alone(emit)
    assert survived
    assert any(FLOW in note for note in caught.value.__notes__)


# Graphs.


def test_two_operators_of_one_part_share_the_places_of_a_queue(scheduler: MakeScheduler, links: Any) -> None:
    taken: list[int] = []

    def edge(part: Any) -> None:
        for name in ("left", "right"):
            part.add_operator(source(part, [f"{name}{n}" for n in range(10)], name=name))

    flows = [("left.out", "detector.in"), ("right.out", "detector.in")]
    result = run_plant(lambda: plant(edge, detector(taken), flows, scheduler=scheduler, size=3), links)
    assert not result.errors
    assert list(result.counts) == ["edge.left.out, edge.right.out -> server.detector.in"]
    for name in ("left", "right"):
        assert [each for each in taken if each.startswith(name)] == [f"{name}{n}" for n in range(10)]


@pytest.mark.parametrize("is_local_too", [False, True])
def test_several_parts_wait_for_the_places_of_one_queue(
    scheduler: MakeScheduler, links: Any, is_local_too: bool
) -> None:
    """Each part has as many places as the queue, which holds no more than its size."""
    taken: list[Any] = []
    emitted = dict.fromkeys(("edge", "roof", "server"), 0)
    ahead: list[int] = []
    longest: list[int] = []

    def emitting(part: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            emitted[part.name] += 1
            ahead.append(emitted[part.name] - sum(name == part.name for name, _ in tuple(taken)))
            op_output.emit((part.name, self.ticks), "out")

        part.add_operator(Step(part, CountCondition(part, 20), outputs=["out"], body=emit, name="camera"))

    def taking(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            longest.append(len(input_queues(self, "in")[0]))
            taken.append(op_input.receive("in"))

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))
        if is_local_too:
            emitting(part)
            part.add_flow(part.graph.find("server.camera"), part.graph.find("server.detector"), size=3)

    class Three(Application):
        def compose(self) -> None:
            self.scheduler(scheduler(self))
            server = Part(self, "server", taking)
            for name in ("edge", "roof"):
                self.add_flow(Part(self, name, emitting), server, {("camera.out", "detector.in")}, size=3)

    result = run_parts(Three, ["edge", "roof", "server"], links)
    assert not result.errors
    for name in ("edge", "roof", *(["server"] if is_local_too else [])):
        assert [number for part, number in taken if part == name] == list(range(1, 21))
    assert max(longest) <= 3
    assert max(ahead) <= 3 + 1  # the one that is taken and not noted yet
    assert {outcome.ended_by for outcome in result.outcomes.values()} == {"finished"}
    assert not result.by_port("undelivered")
    assert not result.by_port("dropped")


def test_a_link_leaves_the_place_of_an_operator_that_computes(links: Any) -> None:
    """It would otherwise find the queue full that had room for its message when it began."""
    taken: list[Any] = []
    has_emitted = threading.Event()

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            assert has_emitted.wait(PATIENCE)
            taken.append(op_input.receive("in"))

        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            queue = input_queues(part.graph.find("server.detector"), "in")[0]
            wait_until(lambda: len(queue) == 2, "what the link has passed on")
            op_output.emit(0, "out")
            has_emitted.set()

        detector = Step(part, inputs=["in"], body=take, name="detector")
        own = Step(part, CountCondition(part, 1), outputs=["out"], body=emit, name="own")
        part.add_flow(own, detector, size=3)

    result = run_plant(
        lambda: plant(camera([1, 2, 3, 4]), server, scheduler=partial(event_based, workers=3), size=3), links
    )
    assert not result.errors
    assert sorted(taken) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("messages", [1, 3])
def test_a_loop_that_is_stuck_ends_though_its_queue_is_full_which_a_link_shares(
    scheduler: MakeScheduler, messages: int, links: Any
) -> None:
    """The head of the loop waits for room at a viewer that has ended, and the link waits for room at the head."""
    cuts: dict[str, Cut] = {}

    def shoot(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks <= messages:
            op_output.emit(1, "out")
            return
        # The end of the stream comes when the server is idle, which does not end by itself.
        link: Any = cuts["edge"]._operators[FLOW]._link
        wait_until(lambda: link.failure or cuts["server"].idleness._last, "the last turn")

    def edge(part: Any) -> None:
        count = CountCondition(part, messages + 1)
        part.add_operator(Step(part, count, outputs=["out"], body=shoot, name="camera"))

    def server(part: Any) -> None:
        def pass_on(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")

        head, back = (
            Step(part, inputs=["in"], outputs=["out"], body=pass_on, name=name)
            for name in ("detector", "back")
        )
        part.add_flow(head, back)
        part.add_flow(back, head)
        part.add_flow(head, sink(part, [], CountCondition(part, 1), name="viewer"))

    result = run_plant(
        lambda: plant(edge, server, scheduler=scheduler),
        links,
        prepare=lambda cut: cuts.update({cut.part: cut}),
    )
    assert not result.errors
    assert {outcome.ended_by for outcome in result.outcomes.values()} == {"finished"}
    assert result.by_port("undelivered")["server.viewer.in"] == 1


def test_a_sender_that_does_not_wait_for_the_places_of_a_shared_queue_is_named(links: Any) -> None:
    def burst(part: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            for number in range(9):
                op_output.emit(number, "out")

        def setup(spec: Any) -> None:
            spec.output("out").condition(ConditionType.NONE)

        part.add_operator(Step(part, CountCondition(part, 1), setup=setup, body=emit, name="camera"))

    class Two(Application):
        def compose(self) -> None:
            server = Part(self, "server", detector([]))
            for name, edge in (("edge", burst), ("roof", camera([1]))):
                self.add_flow(Part(self, name, edge), server, {("camera.out", "detector.in")}, size=3)

    result = run_parts(Two, ["edge", "roof", "server"], links)
    assert isinstance(result.errors["edge"], QueueFullError)
    assert "'edge.camera.out -> server.detector.in' is full (3 waiting)" in str(result.errors["edge"])


def test_a_limit_on_the_messages_of_sources_is_not_one_on_links(links: Any) -> None:
    taken: list[int] = []
    cuts = [
        Cut(plant(camera(range(100)), detector(taken)), part, links.connect) for part in ("edge", "server")
    ]
    futures = [cut.application.run_async(max_messages=7) for cut in cuts]
    for future in futures:
        future.result(PATIENCE)
    assert taken == list(range(7))


def test_flows_have_the_same_terms_at_both_ends() -> None:
    application = plant(camera(range(3)), detector([]), size=4, policy=POP)
    application.compose_graph()
    (flow,) = cut_flows(application)
    assert (flow.name, flow.source, flow.target) == (FLOW, "edge", "server")
    assert (flow.outputs, flow.input) == (("edge.camera.out",), "server.detector.in")
    assert (flow.size, flow.policy, flow.keeps_places) == (4, POP, False)
    for part in ("edge", "server"):
        cut = Cut(application, part)
        application.compose_graph()
        assert (*cut.outgoing, *cut.incoming) == (flow,)
        assert {operator.name for operator in application.graph} == {FLOW, *_names(part)}


def _names(part: str) -> list[str]:
    return ["edge.camera"] if part == "edge" else ["server.detector"]


# Flows that order computes, and flows that are chosen.


def test_computes_are_ordered_across_parts(scheduler: MakeScheduler, links: Any) -> None:
    """The lamp runs after each compute of the camera, and the camera is at most one compute ahead."""
    seen: list[str] = []

    def edge(part: Any) -> None:
        def shoot(self: Any, op_input: Any, op_output: Any) -> None:
            seen.append("camera")
            self.metadata["number"] = self.ticks

        part.add_operator(Step(part, CountCondition(part, 4), body=shoot, name="camera"))

    def server(part: Any) -> None:
        def light(self: Any, op_input: Any, op_output: Any) -> None:
            seen.append(f"lamp {self.metadata['number']}")

        part.add_operator(Step(part, body=light, name="lamp"))

    def check_order() -> None:
        assert [text for text in seen if text != "camera"] == [f"lamp {number}" for number in range(1, 5)]
        lamps = [seen[:place].count("camera") - number for number, place in enumerate(_places(seen, "lamp"))]
        assert all(ahead in (1, 2) for ahead in lamps), seen

    make = lambda: plant(edge, server, [("camera", "lamp")], scheduler)  # noqa: E731
    alone = make().run()
    check_order()
    seen.clear()
    result = run_plant(make, links)
    assert not result.errors
    check_order()
    assert result.outcomes["server"].operators["server.lamp"] == alone.operators["server.lamp"]


def _places(seen: list[str], kind: str) -> list[int]:
    return [place for place, text in enumerate(seen) if text.startswith(kind)]


def test_a_flow_to_another_part_is_chosen_as_in_one_process(scheduler: MakeScheduler, links: Any) -> None:
    taken: dict[str, list[int]] = {"left": [], "right": [], "here": []}

    def edge(part: Any) -> None:
        def choose(operator: Any) -> None:
            here, left, right = sorted(operator.next_flows, key=lambda flow: flow.target.name)
            assert left.target.name == "server.left"
            if operator.ticks % 3 == 0:
                operator.add_dynamic_flow(here)
            elif operator.ticks % 3 == 1:
                operator.add_dynamic_flow(left)
            else:
                operator.add_dynamic_flow(right.target, "in")

        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(self.ticks, "out")

        operator = Step(part, CountCondition(part, 9), outputs=["out"], body=emit, name="camera")
        part.add_flow(operator, sink(part, taken["here"], name="here"))
        part.set_dynamic_flows(operator, choose)

    def server(part: Any) -> None:
        for name in ("left", "right"):
            part.add_operator(sink(part, taken[name], name=name))

    make = lambda: plant(  # noqa: E731
        edge, server, [("camera.out", "left.in"), ("camera.out", "right.in")], scheduler
    )
    make().run()
    expected = {"left": [1, 4, 7], "right": [2, 5, 8], "here": [3, 6, 9]}
    assert taken == expected
    for each in taken.values():
        each.clear()
    assert not run_plant(make, links).errors
    assert taken == expected


# A graph that changes.


def test_the_graph_of_a_part_follows_changes_and_does_not_cross_the_cut(
    scheduler: MakeScheduler, links: Any
) -> None:
    taken: list[int] = []
    found: list[Any] = []

    def server(part: Any) -> None:
        def change(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")
            if self.ticks > 1:
                return
            extra = sink(part, taken, name="extra")
            part.add_flow(self, extra)
            found.append(sorted(part.graph.names))
            other = part.application.fragment_graph.fragments[0].graph.find("edge.camera")
            with pytest.raises(GraphError, match="'edge.camera' belongs to 'edge'"):
                part.add_flow(other, extra)
            found.append([str(flow) for flow in part.graph.flows])

        part.add_operator(Step(part, inputs=["in"], outputs=["out"], body=change, name="detector"))

    result = run_plant(lambda: plant(camera(range(5)), server, scheduler=scheduler), links)
    assert not result.errors
    assert found == [
        ["server.detector", "server.extra"],
        ["server.detector.out -> server.extra.in"],
    ]
    assert taken == list(range(1, 5))


# What cannot be cut.


def refused(application: Application, parts: tuple[str, ...] = ("edge",)) -> str:
    for part in parts:
        Cut(application, part)
        with pytest.raises(GraphError) as error:
            application.compose_graph()
    return str(error.value)


def test_a_condition_on_room_in_a_queue_that_drops_is_refused() -> None:
    def edge(part: Any) -> None:
        def setup(spec: Any) -> None:
            spec.output("out").condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1)

        part.add_operator(Step(part, CountCondition(part, 3), setup=setup, name="camera"))

    text = refused(plant(edge, detector([]), policy=POP))
    assert "operator 'edge.camera' has a condition on the room behind 'out'" in text


def test_a_captured_segment_has_operators_of_one_part() -> None:
    made: list[Any] = []

    def edge(part: Any) -> None:
        made[:] = [source(part, range(3), name="camera")]
        part.add_operator(*made)

    def server(part: Any) -> None:
        made.append(sink(part, [], name="detector"))
        part.add_operator(made[1])
        part.capture(*made)

    text = refused(plant(edge, server))
    assert "operator 'edge.camera' belongs to 'edge' and cannot be added to 'server'" in text


# The device, and what watches a run.


def test_a_device_frame_is_sent_when_its_work_is_done(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    """No worker waits for the device meanwhile: another operator of the part computes."""
    seen: list[int] = []
    beside: list[int] = []

    def edge(part: Any) -> None:
        part.add_operator(Producer(part, CountCondition(part, 5), name="camera"))
        part.add_operator(sink(part, beside, name="local"))
        part.add_flow(source(part, range(5), name="other"), part.graph.find("edge.local"))

    def server(part: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            memory = op_input.receive("in").__simulated_memory__()
            seen.append(int(memory.view(np.int64)[0]))

        part.add_operator(Step(part, inputs=["in"], body=take, name="detector"))

    result = run_plant(lambda: plant(edge, server, scheduler=scheduler, size=2))
    assert not result.errors
    assert seen == beside == [0, 1, 2, 3, 4]


def test_each_part_records_its_own_operators(links: Any, tmp_path: Path) -> None:
    pytest.importorskip("mcap")
    from headrace.observe import PortRecorder, Recording

    result = run_plant(
        lambda: plant(camera([1, 2, 3]), detector([])),
        links,
        prepare=lambda cut: watch(cut.application, PortRecorder(tmp_path / f"{cut.part}.mcap")),
    )
    assert not result.errors
    found = {}
    for path in tmp_path.glob("*.mcap"):
        with Recording(path) as recording:
            found[path.stem] = [(each.port.operator, each.data) for each in recording]
    assert found == {"edge": [("edge.camera", 1), ("edge.camera", 2), ("edge.camera", 3)], "server": []}


# Room.


def waiting_camera(part: Any) -> None:
    """Send two messages, by an operator that waits for two places."""
    room = DownstreamMessageAffordableCondition(part, min_size=2)
    part.add_operator(source(part, [1, 2], room, name="camera"))


@pytest.mark.parametrize(
    ("edge", "size", "is_awaited"),
    [(camera([1, 2]), 1, True), (camera([1]), 2, False), (waiting_camera, 2, True)],
)
def test_senders_are_expected_to_wait_if_too_few_places_are_free(
    edge: Any, size: int, is_awaited: bool
) -> None:
    found: list[bool] = []

    def server(part: Any) -> None:
        def look(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            found.append(input_queues(self, "in")[0].state.is_awaited_elsewhere)

        part.add_operator(Step(part, inputs=["in"], body=look, name="detector"))

    run_plant(lambda: plant(edge, server, size=size, scheduler=event_based))
    assert found[0] is is_awaited
