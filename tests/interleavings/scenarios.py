"""Scenarios: the small programs that are explored, each with what other threads do to it and what must come of it.

The names end in the number of workers: ``chain-2`` is the chain on two of them, ``chain-0`` on the caller's
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from headrace import Condition, ConditionType, CountCondition, IOSpec, PeriodicCondition
from headrace.conditions import AsynchronousCondition, AsynchronousEventState, BooleanCondition
from headrace.core import SchedulingStatusType
from headrace.resources import RealtimeClock

from .bindings import PATIENCE_NS, Throttle
from .scenario import Scenario, World

__all__ = ["SCENARIOS"]

MS = 1_000_000

SCENARIOS: dict[str, Scenario] = {}


def _add(workers: tuple[int, ...], scenario: Scenario) -> None:
    for count in workers:
        name = f"{scenario.name}-{count}"
        SCENARIOS[name] = replace(scenario, name=name, workers=count)


def _numbers(name: str, count: int) -> list[tuple[str, int]]:
    return [(name, number) for number in range(count)]


# Messages only.


def _chain(world: World) -> None:
    source, middle, sink = world.source("source", 2), world.through("middle"), world.sink("sink")
    world.app.add_flow(source, middle)
    world.app.add_flow(middle, sink)


def _check_chain(world: World) -> None:
    assert world.received["sink"] == _numbers("source", 2), f"the sink received {world.received['sink']}"


_add((0, 1, 2, 3), Scenario("chain", _chain, check=_check_chain))


def _slow_chain(world: World) -> None:
    """Slow enough that each has a worker to itself."""
    source, middle = world.source("source", 2, takes=5 * MS), world.through("middle", takes=5 * MS)
    sink = world.sink("sink", takes=5 * MS)
    world.app.add_flow(source, middle)
    world.app.add_flow(middle, sink)


_add((2, 3), Scenario("slow-chain", _slow_chain, check=_check_chain))


def _uneven(world: World) -> None:
    """A compute that is not as short as the one before let expect."""

    def body(op: Any, op_input: Any, op_output: Any) -> None:
        world.received.setdefault("sink", []).append(op_input.receive("in"))
        if op.ticks == 2:
            world.control.sleep(8 * MS)

    world.app.add_flow(world.source("source", 3), world.op("sink", inputs=["in"], body=body))


def _check_uneven(world: World) -> None:
    assert world.received.get("sink") == _numbers("source", 3), (
        f"the sink received {world.received.get('sink')}"
    )
    if world.is_on_time and world.scenario.workers > 1:
        late = world.times("source")[2] - world.times("sink")[1]
        assert late <= PATIENCE_NS / MS, f"the source waited {late} ms for room that was there"


_add((1, 2, 3), Scenario("uneven", _uneven, check=_check_uneven))


def _uneven_fan(world: World) -> None:
    """The same, of one of two receivers, to which messages do not pass directly."""
    _uneven(world)
    source = next(operator for operator in world.app.graph if operator.name == "source")
    world.app.add_flow(source, world.sink("other"))


_add((2, 3), Scenario("uneven-fan", _uneven_fan, check=_check_uneven))


def _short_pair(world: World) -> None:
    """Three operators that take turns, for longer than a worker stands by."""
    world.notes["together"] = []

    def short(op: Any, op_input: Any, op_output: Any) -> None:
        world.control.sleep(95_000)
        if op.ticks > 2 and {"one", "two"} <= world.inside.keys():
            world.notes["together"].append(op.ticks)

    world.op("slow", CountCondition(world.app, 1), body=lambda *args: world.control.sleep(MS // 2))
    world.op("one", CountCondition(world.app, 14), body=short)
    world.op("two", CountCondition(world.app, 14), body=short)


def _check_short_pair(world: World) -> None:
    counts = [world.count(name) for name in ("slow", "one", "two")]
    assert counts == [1, 14, 14], f"computes: {counts}"
    if world.is_on_time:
        together = world.notes["together"]
        assert not together, f"short computes ran at the same time, from compute {together[0]} on"


_add((2, 3), Scenario("short-pair", _short_pair, check=_check_short_pair))


def _mixed(world: World) -> None:
    """An operator that computes beside others, which go on at once on another worker."""
    world.op("short", CountCondition(world.app, 40), body=lambda *args: world.control.sleep(90_000))
    world.op("slow", CountCondition(world.app, 3), body=lambda *args: world.control.sleep(MS), parallel=True)


def _check_mixed(world: World) -> None:
    assert (world.count("short"), world.count("slow")) == (40, 3), f"computes: {world.computes}"
    if world.is_on_time:
        times = world.times("short")
        late = [later - earlier for earlier, later in pairwise(times) if later - earlier > 0.1]
        assert not late, f"the short computes began at {times} ms"


_add((2, 3), Scenario("mixed", _mixed, check=_check_mixed))


def _received_late(world: World) -> None:
    """A worker needs the lock while a message that has passed to its receiver directly still waits in the queue."""
    world.received["sink"] = []

    def late(op: Any, op_input: Any, op_output: Any) -> None:
        world.control.sleep(40_000)
        if op.ticks == 1:
            world.control.wait_until(lambda: world.count("after") == 2 or world.is_over)
        world.received["sink"].append(op_input.receive("in"))

    world.app.add_flow(world.source("slow", 2, takes=MS // 10), world.sink("after"))
    world.app.add_flow(world.source("short", 6), world.op("sink", inputs=["in"], body=late))


def _check_received_late(world: World) -> None:
    assert world.received["after"] == _numbers("slow", 2)
    assert world.received["sink"] == _numbers("short", 6)


_add((2, 3), Scenario("received-late", _received_late, check=_check_received_late))


def _room_late(world: World) -> None:
    """A compute that lasts makes room when others have begun beside it."""

    def late(op: Any, op_input: Any, op_output: Any) -> None:
        world.control.sleep(3 * MS)
        op_input.receive("in")
        world.control.wait_until(lambda: world.count("source") >= min(op.ticks + 1, 3) or world.is_over)

    world.app.add_flow(world.source("source", 3), world.op("sink", inputs=["in"], body=late))


def _check_room_late(world: World) -> None:
    assert (world.count("source"), world.count("sink")) == (3, 3), f"computes: {world.computes}"


_add((2, 3), Scenario("room-late", _room_late, check=_check_room_late))


def _waiting_for_each_other(world: World) -> None:
    """A compute that ends when another one has, and another one after it."""

    def wait(op: Any, op_input: Any, op_output: Any) -> None:
        world.control.wait_until(lambda: world.count("other") >= op.ticks or world.is_over)

    world.op("waiting", CountCondition(world.app, 2), body=wait)
    world.op("other", CountCondition(world.app, 2))


def _check_waiting(world: World) -> None:
    assert (world.count("waiting"), world.count("other")) == (2, 2), f"computes: {world.computes}"


_add((2, 3), Scenario("turn", _waiting_for_each_other, check=_check_waiting))
_add((2,), Scenario("turn-manual", _waiting_for_each_other, clock="manual", check=_check_waiting))


def _beside_a_turn(world: World) -> None:
    """What computes beside others becomes ready in a turn for which others wait."""
    world.op("short", CountCondition(world.app, 8), body=lambda *args: world.control.sleep(MS // 4))
    source = world.source("source", 8, takes=MS // 4)
    sink = world.sink("sink", takes=MS // 8)
    sink.parallel = True
    world.app.add_flow(source, sink)


def _check_beside_a_turn(world: World) -> None:
    assert world.received["sink"] == _numbers("source", 8), f"the sink received {world.received['sink']}"
    if world.is_on_time:
        ended = [began + 0.25 for began in world.times("source")]
        late = [sink - source for source, sink in zip(ended, world.times("sink"), strict=True)]
        assert max(late) < 0.125, f"the sink began {late} ms after its messages were sent"


_add((3,), Scenario("stand-by", _beside_a_turn, check=_check_beside_a_turn))


def _late_source(world: World) -> None:
    """A compute that lasts sends a message, and another one takes its turn meanwhile."""
    world.app.add_flow(world.source("source", 2, takes=3 * MS), world.sink("sink", takes=MS // 2))
    world.op("short", CountCondition(world.app, 12), body=lambda *args: world.control.sleep(MS // 2))


def _check_late_source(world: World) -> None:
    assert world.received["sink"] == _numbers("source", 2), f"the sink received {world.received['sink']}"
    assert world.count("short") == 12, f"computes: {world.computes}"


_add((2, 3), Scenario("late-source", _late_source, check=_check_late_source))


def _short_alone(world: World) -> None:
    """An operator whose computes are short, for longer than a turn lasts, and one that waits for its turn."""
    world.op("first", CountCondition(world.app, 8), body=lambda *args: world.control.sleep(MS // 2))
    world.op("second", CountCondition(world.app, 1), body=lambda *args: world.control.sleep(MS // 2))
    event = AsynchronousCondition(world.app)
    event.event_state = AsynchronousEventState.WAIT
    world.notes["condition"] = event
    world.op("third", event, CountCondition(world.app, 1))


def _announce_late(world: World) -> None:
    world.wait_for("first", 5)
    world.notes["condition"].event_state = AsynchronousEventState.READY


def _check_short_alone(world: World) -> None:
    counts = [world.count(name) for name in ("first", "second", "third")]
    assert counts == [8, 1, 1], f"computes: {counts}"


_add(
    (2, 3),
    Scenario("short-alone", _short_alone, others={"setter": _announce_late}, check=_check_short_alone),
)


def _in_turn(world: World) -> None:
    """A compute that lasts, beside which others take turns, and a message that passes directly after it."""
    world.op("long", CountCondition(world.app, 2), body=lambda *args: world.control.sleep(5 * MS))
    source, sink = world.source("source", 4, takes=MS // 2), world.sink("sink", takes=MS // 2)
    world.app.add_flow(source, sink)
    world.op("short", CountCondition(world.app, 4), body=lambda *args: world.control.sleep(MS // 4))


def _check_in_turn(world: World) -> None:
    assert world.received["sink"] == _numbers("source", 4), f"the sink received {world.received['sink']}"
    assert (world.count("long"), world.count("short")) == (2, 4), f"computes: {world.computes}"


_add((2, 3), Scenario("in-turn", _in_turn, check=_check_in_turn))


def _fan(world: World) -> None:
    def join(op: Any, op_input: Any, op_output: Any) -> None:
        world.received.setdefault("join", []).append((op_input.receive("left"), op_input.receive("right")))

    source = world.source("source", 2)
    left = world.through("left", takes=3 * MS, parallel=True)
    right = world.through("right", takes=2 * MS, parallel=True)
    end = world.op("join", inputs=["left", "right"], body=join)
    world.app.add_flow(source, left)
    world.app.add_flow(source, right)
    world.app.add_flow(left, end, {("out", "left")})
    world.app.add_flow(right, end, {("out", "right")})


def _check_fan(world: World) -> None:
    expected = [(pair, pair) for pair in _numbers("source", 2)]
    assert world.received.get("join") == expected, f"the join received {world.received.get('join')}"
    if world.is_on_time and world.scenario.workers > 1:
        left, right = world.times("left"), world.times("right")
        assert left == right, f"left began at {left} ms, right at {right}"


_add((1, 2, 3), Scenario("fan", _fan, check=_check_fan))


def _two_producers(world: World) -> None:
    left, right, sink = (
        world.source("left", 2),
        world.source("right", 2),
        world.sink("sink", size={"size": 1}),
    )
    world.app.add_flow(left, sink)
    world.app.add_flow(right, sink)


def _check_two_producers(world: World) -> None:
    received = world.received["sink"]
    for name in ("left", "right"):
        assert [pair for pair in received if pair[0] == name] == _numbers(name, 2), (
            f"the sink received {received}"
        )


_add((2, 3), Scenario("two-producers", _two_producers, check=_check_two_producers))


def _pop(world: World) -> None:
    """A producer that does not wait for room, and a consumer that receives as the next message comes."""
    source = world.source("source", 3, takes=MS)
    source.spec.outputs["out"].condition(ConditionType.NONE)
    sink = world.sink("sink", waits=MS, size={"size": 1, "policy": IOSpec.QueuePolicy.POP})
    source.parallel = sink.parallel = True
    world.app.add_flow(source, sink)


def _check_pop(world: World) -> None:
    received = world.received["sink"]
    assert None not in received, f"the sink was run with nothing to receive: {received}"
    dropped, left = sum(world.app.dropped().values()), sum(world.app.undelivered().values())
    assert received == sorted(received), f"the sink received {received}"
    assert len(received) + dropped + left == 3, f"{received} received, {dropped} dropped, {left} left, of 3"
    assert not left, f"{left} left at the end"


_add((2,), Scenario("pop", _pop, check=_check_pop))


def _pools(world: World) -> None:
    source, middle, sink = world.source("source", 2), world.through("middle"), world.sink("sink")
    world.app.add_flow(source, middle)
    world.app.add_flow(middle, sink)
    world.app.make_thread_pool("own", 1).add(middle, pin_operator=True)
    world.app.make_thread_pool("shared", 1).add(sink, pin_operator=False)


_add((1,), Scenario("pools", _pools, check=_check_chain))


# Time.


def _periodic(world: World) -> None:
    """A steady beat beside a compute that takes long."""
    world.op("beat", PeriodicCondition(world.app, 10 * MS), CountCondition(world.app, 3))
    world.op("long", CountCondition(world.app, 1), body=lambda op, i, o: world.control.sleep(25 * MS))


def _check_periodic(world: World) -> None:
    assert (world.count("beat"), world.count("long")) == (3, 1), f"computes: {world.computes}"
    if world.is_on_time and world.scenario.workers > 1:
        world.check_times("beat", [0, 10, 20])


_add((1, 2, 3), Scenario("periodic", _periodic, check=_check_periodic))


def _two_beats(world: World) -> None:
    """A timer that is set for earlier than the one that a worker sleeps for."""
    world.op("slow", PeriodicCondition(world.app, 30 * MS), CountCondition(world.app, 2))
    world.op(
        "fast",
        PeriodicCondition(world.app, 10 * MS),
        CountCondition(world.app, 3),
        body=lambda op, i, o: world.control.sleep(2 * MS),
    )


def _check_two_beats(world: World) -> None:
    assert (world.count("slow"), world.count("fast")) == (2, 3), f"computes: {world.computes}"
    if world.is_on_time:
        if world.scenario.workers > 1:
            world.check_times("slow", [0, 30])
        world.check_times("fast", [0, 10, 20])


_add((1, 2, 3), Scenario("two-beats", _two_beats, check=_check_two_beats))


def _check_duration(world: World) -> None:
    if world.is_on_time:
        world.check_times("beat", [0, 10, 20])
        assert world.control.now == 25 * MS, f"the run ended at {world.control.now / MS} ms"


_add(
    (0, 1, 2, 3),
    Scenario(
        "duration",
        lambda world: world.op("beat", PeriodicCondition(world.app, 10 * MS)),
        settings={"max_duration_ms": 25},
        check=_check_duration,
    ),
)


def _scaled(world: World) -> None:
    world.op("beat", PeriodicCondition(world.app, 100 * MS), CountCondition(world.app, 2))
    world.op("other", CountCondition(world.app, 1))


def _scale(world: World) -> None:
    world.wait_for("beat", 1)
    world.control.sleep(10 * MS)
    assert isinstance(world.clock, RealtimeClock)
    world.clock.set_time_scale(9.0)


def _check_scaled(world: World) -> None:
    assert (world.count("beat"), world.count("other")) == (2, 1), f"computes: {world.computes}"
    if world.is_on_time:
        world.check_times("beat", [0, 20])


_add((0, 1, 2, 3), Scenario("scale", _scaled, others={"scaler": _scale}, check=_check_scaled))
_add(
    (2, 3),  # of which one wakes up for the beat, and all for the end of the run
    Scenario(
        "scale-limit",
        _scaled,
        others={"scaler": _scale},
        settings={"max_duration_ms": 1_000},
        check=lambda world: _check_scaled(world) if world.is_on_time else None,
    ),
)


# Events from outside.


def _awaiting(world: World) -> None:
    """Two events, one after the other, and a sink behind."""
    condition = AsynchronousCondition(world.app)
    condition.event_state = AsynchronousEventState.EVENT_WAITING
    world.notes["condition"] = condition

    def body(op: Any, op_input: Any, op_output: Any) -> None:
        condition.event_state = AsynchronousEventState.EVENT_WAITING
        op_output.emit(("reader", op.ticks - 1), "out")

    reader = world.op("reader", condition, CountCondition(world.app, 2), outputs=["out"], body=body)
    world.app.add_flow(reader, world.sink("sink"))


def _set_events(world: World) -> None:
    for number in range(2):
        world.wait_for("reader", number)
        world.notes["condition"].event_state = AsynchronousEventState.EVENT_DONE


def _check_awaiting(world: World) -> None:
    assert world.received["sink"] == _numbers("reader", 2), f"the sink received {world.received['sink']}"


_add((0, 1, 2, 3), Scenario("event", _awaiting, others={"setter": _set_events}, check=_check_awaiting))


def _awaiting_beside(world: World) -> None:
    """The same, while all workers but one compute."""
    _awaiting(world)
    world.op(
        "long", CountCondition(world.app, 1), body=lambda *a: world.control.sleep(25 * MS), parallel=True
    )


_add((2,), Scenario("event-beside", _awaiting_beside, others={"setter": _set_events}))


def _event_within_limit(world: World) -> None:
    """An event that comes before the end of the run's time, which must not jump there."""
    _awaiting(world)


def _check_within_limit(world: World) -> None:
    if world.is_on_time:  # a thread that is late may set the event after the end
        _check_awaiting(world)


_add(
    (0, 2),
    Scenario(
        "event-manual",
        _event_within_limit,
        others={"setter": _set_events},
        clock="manual",
        settings={"max_duration_ms": 50},
        check=_check_within_limit,
    ),
)


def _blocked_beat(world: World) -> None:
    """An operator with a period and a switch waits for room that never comes, and is then switched off."""
    switch = world.notes["switch"] = BooleanCondition(world.app)
    beat = PeriodicCondition(world.app, 5 * MS)
    end = world.op("end", CountCondition(world.app, 0), inputs=["in"])
    beats = world.op(
        "beats", beat, switch, outputs=["out"], body=lambda op, op_input, op_output: op_output.emit(1, "out")
    )
    world.app.add_flow(beats, end)
    keeping = AsynchronousCondition(world.app)
    keeping.event_state = AsynchronousEventState.EVENT_WAITING
    world.notes["condition"] = keeping
    world.op("keeping", keeping, CountCondition(world.app, 1))


def _switch_off_and_set(world: World) -> None:
    world.wait_for("beats", 1)
    world.notes["switch"].disable_tick()
    world.notes["condition"].event_state = AsynchronousEventState.EVENT_DONE


def _check_blocked_beat(world: World) -> None:
    assert (world.count("beats"), world.count("keeping")) == (1, 1), f"computes: {world.computes}"
    assert world.control.now < 5 * MS or not world.is_on_time, (
        "the run waited for a time that nobody could use"
    )


_add(
    (0, 1, 2, 3),
    Scenario(
        "blocked-beat", _blocked_beat, others={"setter": _switch_off_and_set}, check=_check_blocked_beat
    ),
)


def _two_lines(world: World) -> None:
    """Two producers of the same two queues, which are emptied in turn."""
    left, right = world.sink("left"), world.sink("right")

    def emit(op: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit((op.name, op.ticks - 1), "out")

    for name, sinks in (("a", (left, right)), ("b", (right, left)), ("c", (right,))):
        producer = world.op(name, CountCondition(world.app, 2), outputs=["out"], body=emit)
        for sink in sinks:
            world.app.add_flow(producer, sink)


def _check_two_lines(world: World) -> None:
    for sink, names in (("left", "ab"), ("right", "abc")):
        for name in names:
            received = [pair for pair in world.received[sink] if pair[0] == name]
            assert received == _numbers(name, 2), f"{sink} received {world.received[sink]}"


_add((0, 1, 2, 3), Scenario("two-lines", _two_lines, check=_check_two_lines))


def _losing_its_room(world: World) -> None:
    """An operator waits for an event and shares a queue of one place, which is never emptied."""
    condition = world.notes["condition"] = AsynchronousCondition(world.app)
    condition.event_state = AsynchronousEventState.EVENT_WAITING

    def emit(op: Any, op_input: Any, op_output: Any) -> None:
        if op.name == "late" or op.ticks == 2:
            op_output.emit(op.name, "out")

    end = world.op("end", CountCondition(world.app, 0), inputs=["in"])
    for name, waits in (("faster", CountCondition(world.app, 2)), ("late", condition)):
        world.app.add_flow(world.op(name, waits, outputs=["out"], body=emit), end)


def _set_one_event(world: World) -> None:
    world.wait_for("faster", 1)
    world.notes["condition"].event_state = AsynchronousEventState.EVENT_DONE


def _check_losing_its_room(world: World) -> None:
    counts = world.count("faster"), world.count("late")
    assert counts in ((2, 0), (1, 1)), f"computes: {world.computes}"


_add(
    (0, 1, 2, 3),
    Scenario(
        "losing-room", _losing_its_room, others={"setter": _set_one_event}, check=_check_losing_its_room
    ),
)


def _changing_its_mind(world: World) -> None:
    """An operator that waits for room no longer wants it when it gets it, so another does."""
    condition = AsynchronousCondition(world.app)
    world.received["sink"] = []

    def take(op: Any, op_input: Any, op_output: Any) -> None:
        world.received["sink"].append(op_input.receive("in"))
        if op.ticks == 2:
            condition.event_state = AsynchronousEventState.EVENT_WAITING
        if world.received["sink"][-1] == ("steady", 2):
            condition.event_state = AsynchronousEventState.EVENT_NEVER

    sink = world.op("sink", inputs=["in"], body=take)
    fickle = world.op(
        "fickle",
        condition,
        outputs=["out"],
        body=lambda op, op_input, op_output: op_output.emit("fickle", "out"),
    )
    world.app.add_flow(fickle, sink)
    world.app.add_flow(world.source("steady", 3), sink)


def _check_changing_its_mind(world: World) -> None:
    received = [pair for pair in world.received["sink"] if pair != "fickle"]
    assert received == _numbers("steady", 3), f"the sink received {world.received['sink']}"


_add((0, 1, 2, 3), Scenario("changing-mind", _changing_its_mind, check=_check_changing_its_mind))


class _Flag(Condition):
    """A user's condition: says WAIT, or WAIT_EVENT, until a flag is up."""

    def __init__(self, fragment: Any, waiting: SchedulingStatusType) -> None:
        super().__init__(fragment, name="flag")
        self.waiting = waiting
        self.is_up = False

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        return (SchedulingStatusType.READY if self.is_up else self.waiting), None


def _flagged(waiting: SchedulingStatusType) -> Callable[[World], None]:
    def compose(world: World) -> None:
        flag = world.notes["flag"] = _Flag(world.app, waiting)
        world.op("flagged", flag, CountCondition(world.app, 1))
        world.op("other", CountCondition(world.app, 1))

    return compose


def _raise_flag(world: World) -> None:
    world.notes["flag"].is_up = True
    world.notes["flag"].notify_scheduler()


def _raise_flag_silently(world: World) -> None:
    world.control.sleep(7 * MS)
    world.notes["flag"].is_up = True


def _check_flagged(world: World) -> None:
    if not world.is_on_time and world.control.now >= 30 * MS:
        return
    assert (world.count("flagged"), world.count("other")) == (1, 1), f"computes: {world.computes}"


_add(
    (0, 1, 2, 3),
    Scenario(
        "notify",
        _flagged(SchedulingStatusType.WAIT_EVENT),
        others={"raiser": _raise_flag},
        check=_check_flagged,
    ),
)
_add(
    (0, 1, 2, 3),
    Scenario(
        "polled",
        _flagged(SchedulingStatusType.WAIT),
        others={"raiser": _raise_flag_silently},
        settings={"stop_on_deadlock_timeout": 30},
        check=_check_flagged,
    ),
)


def _check_deadlock(world: World) -> None:
    assert (world.count("flagged"), world.count("other")) == (0, 1), f"computes: {world.computes}"
    assert world.control.now >= 20 * MS, f"the run ended at {world.control.now / MS} ms, and not after 20"
    if world.is_on_time:
        assert world.control.now == 20 * MS, f"the run ended at {world.control.now / MS} ms, and not after 20"


_add(
    (0, 1, 2, 3),
    Scenario(
        "deadlock",
        _flagged(SchedulingStatusType.WAIT),
        settings={"stop_on_deadlock_timeout": 20},
        check=_check_deadlock,
    ),
)


def _polled_beside_event(world: World) -> None:
    """A condition that is polled in real time, since an event that is awaited keeps the clock from jumping."""
    _flagged(SchedulingStatusType.WAIT)(world)
    _awaiting(world)


def _raise_flag_then_set_events(world: World) -> None:
    _raise_flag_silently(world)
    world.wait_for("flagged", 1)
    _set_events(world)


def _check_polled_beside_event(world: World) -> None:
    assert world.count("flagged") == 1, f"computes: {world.computes}"
    _check_awaiting(world)


_add(
    (0, 1, 2),
    Scenario(
        "polled-manual",
        _polled_beside_event,
        others={"raiser": _raise_flag_then_set_events},
        clock="manual",
        check=_check_polled_beside_event,
    ),
)


def _throttled(world: World) -> None:
    """An operator whose device may have one compute unfinished, and a thread that completes it."""

    def start(op: Any) -> None:
        world.notes["throttle"] = Throttle(op, world.control, world.watch)

    def body(op: Any, op_input: Any, op_output: Any) -> None:
        world.notes["throttle"].submit()
        op_output.emit(("launcher", op.ticks - 1), "out")

    launcher = world.op("launcher", CountCondition(world.app, 2), outputs=["out"], body=body, start=start)
    world.app.add_flow(launcher, world.sink("sink"))


def _complete(world: World) -> None:
    throttle = world.notes["throttle"]
    for _ in range(2):
        world.control.wait_until(lambda: throttle.is_waited_for or world.is_over)
        throttle.complete()


def _check_throttled(world: World) -> None:
    assert world.received["sink"] == _numbers("launcher", 2), f"the sink received {world.received['sink']}"


_add((0, 1, 2, 3), Scenario("throttled", _throttled, others={"device": _complete}, check=_check_throttled))


# The end.


def _endless(world: World) -> None:
    """Nothing of its own accord would end this: an operator that waits for ever, and others that are done."""
    condition = AsynchronousCondition(world.app)
    condition.event_state = AsynchronousEventState.EVENT_WAITING
    world.op("never", condition)
    source, sink = world.source("source", 2), world.sink("sink")
    world.app.add_flow(source, sink)


def _check_ended(world: World) -> None:
    assert world.count("never") == 0, f"computes: {world.computes}"
    received = world.received["sink"]
    assert received == _numbers("source", 2)[: len(received)], f"the sink received {received}"


_add(
    (0, 1, 2, 3),
    Scenario(
        "stop", _endless, others={"stopper": lambda world: world.app.stop_execution()}, check=_check_ended
    ),
)


def _stop_operator(world: World) -> None:
    world.app.stop_execution("never")


def _check_stop_operator(world: World) -> None:
    assert world.received["sink"] == _numbers("source", 2), f"the sink received {world.received['sink']}"


_add(
    (0, 1, 2, 3),
    Scenario("stop-operator", _endless, others={"stopper": _stop_operator}, check=_check_stop_operator),
)


class Planned(Exception):
    """What an operator of a scenario raises."""


def _failing(world: World) -> None:
    def fail(op: Any, op_input: Any, op_output: Any) -> None:
        world.control.sleep(5 * MS)
        raise Planned

    _endless(world)
    world.op("beat", PeriodicCondition(world.app, 100 * MS))
    world.op("failing", CountCondition(world.app, 1), body=fail)


def _check_failed(world: World) -> None:
    assert isinstance(world.error, Planned), f"run ended with {world.error!r}"


_add((1, 2, 3), Scenario("failure", _failing, check=_check_failed, raises=(Planned,)))


def _interrupt(world: World) -> None:
    world.control.interrupt("caller", KeyboardInterrupt())


def _check_interrupted(world: World) -> None:
    assert isinstance(world.error, KeyboardInterrupt), f"run ended with {world.error!r}"


_add(
    (0, 1, 2),
    Scenario(
        "ctrl-c", _endless, others={"user": _interrupt}, check=_check_interrupted, raises=(KeyboardInterrupt,)
    ),
)


def _loaded(world: World) -> None:
    """More of everything, for schedules by seed."""
    _awaiting(world)
    world.op("beat", PeriodicCondition(world.app, 10 * MS), CountCondition(world.app, 3))
    source, left, right = (
        world.source("source", 3),
        world.through("left", takes=3 * MS),
        world.through("right"),
    )
    for middle in (left, right):
        world.app.add_flow(source, middle)
        world.app.add_flow(middle, world.sink(f"{middle.name} sink", takes=MS // 2))


def _check_loaded(world: World) -> None:
    _check_awaiting(world)
    assert world.count("beat") == 3, f"computes: {world.computes}"
    for name in ("left sink", "right sink"):
        assert world.received[name] == _numbers("source", 3), f"{name} received {world.received[name]}"


_add((2, 3, 5), Scenario("loaded", _loaded, others={"setter": _set_events}, check=_check_loaded))


# Gate.


def _pause_step_and_resume(world: World) -> None:
    world.wait_for("source", 1)
    world.app.pause()
    if not world.app.wait_until_paused():
        return
    before = len(world.computes)
    world.control.point("the run is paused")
    world.app.step(2)
    if world.app.wait_until_paused():
        world.notes["stepped"] = (before, len(world.computes))
    world.app.resume()


def _check_paused(world: World) -> None:
    _check_chain(world)
    if "stepped" in world.notes:
        before, after = world.notes["stepped"]
        assert after == before + 2, f"{after - before} computes ran in two steps"


_add((0, 1, 2, 3), Scenario("pause", _chain, others={"pauser": _pause_step_and_resume}, check=_check_paused))


def _step_the_sink(world: World) -> None:
    world.app.pause()
    for number in range(2):
        world.app.step(1, "sink")
        world.app.step(2)
        world.control.point(f"stepped {number}")
    world.app.resume()


_add(
    (0, 2),
    Scenario(
        "step-one",
        lambda world: world.app.add_flow(world.source("source", 2), world.sink("sink")),
        others={"pauser": _step_the_sink},
        check=_check_chain,
    ),
)


def _pause_and_stop(world: World) -> None:
    world.app.pause()
    if world.app.wait_until_paused():
        world.notes["paused"] = len(world.computes)
        world.app.stop_execution()


def _check_stopped(world: World) -> None:
    assert world.notes["paused"] == len(world.computes), "something ran although the run was paused"
    assert world.app.outcome is not None
    assert world.app.outcome.ended_by.value == "stopped"


def _long(world: World) -> None:
    world.app.add_flow(world.source("source", 20, takes=MS), world.sink("sink"))


_add((0, 1, 2), Scenario("pause-stop", _long, others={"pauser": _pause_and_stop}, check=_check_stopped))


def _pause_for_a_while(world: World) -> None:
    world.control.sleep(25 * MS)
    world.app.pause()
    world.control.sleep(100 * MS)
    world.app.resume()


def _beating(world: World) -> None:
    world.app.add_flow(world.source("source", 5, PeriodicCondition(world.app, 10 * MS)), world.sink("sink"))


def _check_beating(world: World) -> None:
    assert world.received["sink"] == _numbers("source", 5)
    if world.is_on_time:
        world.check_times("source", [0, 10, 20, 125, 130])


_add(
    (0, 1, 2),
    Scenario("pause-periodic", _beating, others={"pauser": _pause_for_a_while}, check=_check_beating),
)


def _resume_and_stop(world: World) -> None:
    world.app.pause()
    if world.app.wait_until_paused():
        world.app.resume()
        world.app.stop_execution()
        world.notes["stopped"] = len(world.computes)


def _check_little_ran(world: World) -> None:
    late = len(world.computes) - world.notes.get("stopped", len(world.computes))
    assert late <= world.scenario.workers + 1, f"{late} computes ran after the stop"


_add((2,), Scenario("resume-stop", _long, others={"pauser": _resume_and_stop}, check=_check_little_ran))


def _pause_at_the_end(world: World) -> None:
    def pause(op: Any, op_input: Any, op_output: Any) -> None:
        world.app.pause()

    world.op("last", CountCondition(world.app, 1), body=pause)


def _look_and_resume(world: World) -> None:
    world.wait_for("last", 1)
    world.notes["paused"] = world.app.wait_until_paused()
    world.app.resume()


def _check_waited(world: World) -> None:
    assert world.notes["paused"], "the run ended although it was paused"


_add(
    (0, 1, 2),
    Scenario("pause-end", _pause_at_the_end, others={"pauser": _look_and_resume}, check=_check_waited),
)


def _two_queues(world: World) -> None:
    """Both ready queues have a node to take when the run is paused."""
    pool = world.app.make_thread_pool("pool", 1)
    for name in ("left", "right"):
        source = world.source(name, 4, takes=MS)
        world.app.add_flow(source, world.sink(f"sink of {name}"))
        if name == "right":
            pool.add(source, False)


def _pause_and_resume(world: World) -> None:
    world.wait_for("left", 1)
    world.app.pause()
    world.app.wait_until_paused()
    world.control.sleep(5 * MS)
    world.app.resume()


def _check_two_queues(world: World) -> None:
    for name in ("left", "right"):
        assert world.received[f"sink of {name}"] == _numbers(name, 4)


_add(
    (1, 2),
    Scenario("pause-two-queues", _two_queues, others={"pauser": _pause_and_resume}, check=_check_two_queues),
)


def _step_in_time(world: World) -> None:
    world.app.pause()
    world.app.step(4)
    if world.app.wait_until_paused():
        world.notes["stepped"] = len(world.computes)
    world.app.resume()


def _check_stepped(world: World) -> None:
    stepped = world.notes.get("stepped", 4)
    assert stepped >= 4, f"{stepped} computes ran in four steps"


_add((0, 1, 2), Scenario("step-periodic", _beating, others={"pauser": _step_in_time}, check=_check_stepped))


def _late_beside_others(world: World) -> None:
    """One operator waits for a time while others are ready, or compute."""

    def steady(op: Any, op_input: Any, op_output: Any) -> None:
        now = world.clock.timestamp()
        world.control.sleep(MS)  # the others run meanwhile
        assert world.clock.timestamp() == now, "time jumped in the middle of a compute"

    world.op("steady", CountCondition(world.app, 2), body=steady, parallel=True)
    world.op("late", PeriodicCondition(world.app, 10 * MS), CountCondition(world.app, 2))


def _step_late(world: World) -> None:
    world.app.pause()
    world.app.step(2, "late")
    if world.app.wait_until_paused():
        world.notes["stepped"] = world.count("late")
    world.app.resume()


def _check_late(world: World) -> None:
    assert world.notes.get("stepped", 2) == 2, f"{world.notes['stepped']} computes ran in two steps"
    assert (world.count("late"), world.count("steady")) == (2, 2), f"computes: {world.computes}"


_add(
    (0, 2),
    Scenario(
        "step-late", _late_beside_others, others={"pauser": _step_late}, clock="manual", check=_check_late
    ),
)


def _ready_in_a_pool(world: World) -> None:
    world.op("late", PeriodicCondition(world.app, 10 * MS), CountCondition(world.app, 2))
    pooled = world.op("pooled", CountCondition(world.app, 2))
    world.app.make_thread_pool("pool", 1).add(pooled, pin_operator=True)


def _step_pooled(world: World) -> None:
    world.app.pause()
    if world.app.wait_until_paused() and not world.count("pooled"):
        now = world.clock.timestamp()
        world.app.step(1, "pooled")
        world.app.wait_until_paused()
        world.notes["passed"] = world.clock.timestamp() - now
    world.app.resume()


def _check_pooled(world: World) -> None:
    assert not world.notes.get("passed", 0), "time jumped although the operator of the step was ready"


_add(
    (1,),
    Scenario(
        "step-pooled", _ready_in_a_pool, others={"pauser": _step_pooled}, clock="manual", check=_check_pooled
    ),
)


# Computing alone.


def _single(world: World, name: str = "single") -> Any:
    """Make an operator that passes on what it receives, while nothing else computes."""

    def body(op: Any, op_input: Any, op_output: Any) -> None:
        alone = op._headrace.node.engine.alone
        world.notes[f"{name} is alone"] = is_alone = alone.node is op._headrace.node
        op_output.emit(op_input.receive("in"), "out")
        for number in range(2):
            world.control.point(f"{name} goes on {number}")
            others = world.inside.keys() - {name}
            assert not (is_alone and others), f"{others} compute while {name} is alone"
        if is_alone:
            alone.end()
            world.control.sleep(5 * MS)

    def start(op: Any) -> None:
        op._headrace.node.wants_alone = True

    return world.op(name, inputs=["in"], outputs=["out"], body=body, start=start)


def _alone(world: World) -> None:
    single = _single(world)
    world.app.add_flow(world.source("source", 3, takes=MS), single)
    world.app.add_flow(single, world.sink("sink"))
    other, sink = world.source("other", 3, takes=2 * MS), world.sink("other sink", takes=MS)
    other.parallel = sink.parallel = True
    world.app.add_flow(other, sink)


def _check_alone(world: World) -> None:
    assert world.received["sink"] == _numbers("source", 3), f"the sink received {world.received['sink']}"
    assert world.received["other sink"] == _numbers("other", 3)


def _check_was_alone(world: World) -> None:
    _check_alone(world)
    assert world.notes["single is alone"] or not world.is_on_time


_add((1, 2, 3, 5), Scenario("alone", _alone, check=_check_was_alone))
_add((2,), Scenario("alone-pause", _alone, others={"pauser": _pause_step_and_resume}, check=_check_alone))


def _alone_in_a_pool(world: World) -> None:
    _alone(world)
    operators = {operator.name: operator for operator in world.app.graph}
    world.app.make_thread_pool("pool", 1).add(operators["single"], pin_operator=True)


_add((1, 2), Scenario("alone-pool", _alone_in_a_pool, check=_check_was_alone))


def _stop_while_it_waits(world: World) -> None:
    world.wait_for("source", 1)
    world.app.stop_execution()


_add((2,), Scenario("alone-stop", _alone, others={"stopper": _stop_while_it_waits}))


def _alone_in_vain(world: World) -> None:
    """A compute does not end before another has begun."""
    single = _single(world)
    world.app.add_flow(world.source("source", 2), single)
    world.app.add_flow(single, world.sink("sink"))

    def wait(op: Any, op_input: Any, op_output: Any) -> None:
        world.control.wait_until(lambda: world.count("sink") >= 1 or world.is_over)

    world.op("waiting", CountCondition(world.app, 1), body=wait, parallel=True)


def _check_in_vain(world: World) -> None:
    assert world.received["sink"] == _numbers("source", 2), f"the sink received {world.received['sink']}"
    assert world.count("waiting") == 1


_add((2, 3), Scenario("alone-in-vain", _alone_in_vain, check=_check_in_vain))
