"""Queues that drop: what is dropped, who waits, and where that is said."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from penstock import ConditionType, CountCondition, IOSpec, PeriodicCondition
from penstock._runtime.messages.input_port import Inlet
from penstock._runtime.messages.queue import Queue
from penstock._runtime.messages.receiver import Receiver, Transmitter
from penstock.conditions import DownstreamMessageAffordableCondition
from penstock.core import GraphError, QueueFullError
from penstock.resources import ManualClock
from penstock.schedulers import EventBasedScheduler, MultiThreadScheduler
from tests.harness import App, MakeScheduler, Step, run, sink, source, through

POP, REJECT, FAULT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT


@contextmanager
def switching_often() -> Iterator[None]:
    """Let threads take turns at almost every step."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def event_based_real(app: Any) -> EventBasedScheduler:
    return EventBasedScheduler(app, worker_thread_number=2)


# What a full queue holds while both ends are at it.


def test_the_consumer_finds_a_message_while_the_oldest_is_dropped_for_a_new_one() -> None:
    """The dropped message's destructor lets the consumer receive in the middle of the producer's emit."""
    taken: list[Any] = []
    started, dropping, received = threading.Event(), threading.Event(), threading.Event()

    in_time: list[bool] = []

    class Oldest:
        def __del__(self) -> None:
            dropping.set()
            in_time.append(received.wait(10))

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 2:
                assert started.wait(10)
            o.emit(Oldest() if op.ticks == 1 else "newest")

        def take(op: Step, i: Any, o: Any) -> None:
            started.set()
            assert dropping.wait(10)
            taken.append(i.receive())
            received.set()

        def setup(spec: Any) -> None:
            spec.output("out").condition(ConditionType.NONE)

        a = Step(app, CountCondition(app, 2), setup=setup, body=send, name="a")
        b = Step(app, CountCondition(app, 1), inputs=[("in", {"policy": POP})], body=take, name="b")
        app.add_flow(a, b)

    app = run(compose, event_based_real)
    assert taken == ["newest"]
    assert in_time == [True], "nothing is locked while what was dropped is let go of"
    assert app.dropped() == {"b.in": 1}
    assert app.undelivered() == {}


class WatchedLock:
    """A lock that says when somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited_for = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waited_for.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def at_line(number: int, queue: Queue, first: Callable[[], None], second: Callable[[], None]) -> bool:
    """Run `first`, and in the middle of it, at a line of the queue's code, `second` on another thread.

    If that has to wait for the queue's lock, `first` goes on. Says whether there was such a line.
    """
    settled = threading.Event()
    if queue.lock is not None:
        watched = WatchedLock()
        watched.waited_for = settled
        queue.lock = watched  # type: ignore[assignment]

    def other() -> None:
        try:
            second()
        finally:
            settled.set()

    thread = threading.Thread(target=other)
    lines = [0]

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_globals.get("__name__") != Queue.__module__:
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                thread.start()
                assert settled.wait(10)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        first()
    finally:
        sys.settrace(before)
    if lines[0] < number:
        return False
    thread.join()
    return True


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("everything", [False, True])
def test_the_newest_is_kept_wherever_the_consumer_comes_in_between(limit: int, everything: bool) -> None:
    for line in range(1, 30):
        queue = Queue(None, "in", limit, POP)  # type: ignore[arg-type]
        queue.extend(range(limit))
        take = Inlet(IOSpec("in", IOSpec.IOType.INPUT, 2 if everything else 1), (queue,)).take
        taken: list[Any] = []

        def consume(take: Any = take, taken: list[Any] = taken) -> None:
            taken.extend(take() if everything else [take()])

        if not at_line(line, queue, lambda queue=queue: queue.offer("newest"), consume):  # type: ignore[misc]
            break
        left = list(queue)
        assert taken, f"the consumer found nothing at line {line}"
        assert (taken + left)[-1] == "newest"
        assert queue.dropped == limit + 1 - len(taken) - len(left)
        assert [*range(queue.dropped, limit), "newest"] == taken + left
    assert line > 5


@pytest.mark.parametrize("policy", [POP, REJECT, FAULT])
@pytest.mark.parametrize("waiting", [0, 1])
def test_two_producers_never_fill_one_place(policy: Any, waiting: int) -> None:
    for line in range(1, 30):
        queue = Queue(None, "in", 1, policy)  # type: ignore[arg-type]
        queue.consumer = Step(App(lambda app: None))  # type: ignore[assignment]
        queue.extend(range(waiting))
        queue.share()
        assert queue.capacity == 0
        refused: list[str] = []

        def offer(item: str, queue: Queue = queue, refused: list[str] = refused) -> None:
            try:
                queue.offer(item)
            except QueueFullError:
                refused.append(item)

        if not at_line(line, queue, lambda offer=offer: offer("a"), lambda offer=offer: offer("b")):  # type: ignore[misc]
            break
        assert len(queue) == 1
        assert queue.dropped == waiting + 1
        assert len(refused) == (waiting + 1 if policy is FAULT else 0)
    assert line > 3


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("producers", [1, 3])
@pytest.mark.parametrize("everything", [False, True])
def test_dropping_while_both_ends_are_at_it_loses_and_counts_each_message_once(
    limit: int, producers: int, everything: bool
) -> None:
    """Every step of a queue's Python code is a chance for the other threads to come in between."""
    queue = Queue(None, "in", limit, POP)  # type: ignore[arg-type]
    take = Inlet(IOSpec("in", IOSpec.IOType.INPUT, 2 if everything else 1), (queue,)).take
    if producers > 1:
        queue.share()
    sent_each = 400
    taken: list[Any] = []
    too_few: list[int] = []
    done = threading.Event()
    filled = threading.Event()

    def produce(number: int) -> None:
        for n in range(sent_each):
            item = (number, n)
            if len(queue) < queue.capacity:
                queue.append(item)
            else:
                queue.offer(item)
            filled.set()

    def consume() -> None:
        filled.wait()
        while not done.is_set() or queue:
            # Nobody but the consumer empties a queue: what it sees waiting it can take.
            if not queue:
                continue
            try:
                taken.extend(take() if everything else [take()])
            except IndexError:
                too_few.append(1)

    with switching_often():
        consumer = threading.Thread(target=consume)
        threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
        for thread in (consumer, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        consumer.join()
    assert not too_few
    assert len(taken) + queue.dropped == producers * sent_each
    assert len(set(taken)) == len(taken)
    for number in range(producers):
        numbers = [n for origin, n in taken if origin == number]
        assert numbers == sorted(numbers)
    last = [n for _, n in taken]
    assert sent_each - 1 in last, "the newest is never the one that is dropped"


@pytest.mark.parametrize("limit", [1, 3])
def test_a_full_queue_is_never_seen_with_less_in_it(limit: int) -> None:
    """Conditions look at the length from other threads, without a lock."""
    queue = Queue(None, "in", limit, POP)  # type: ignore[arg-type]
    for n in range(limit):
        queue.offer(n)
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(len(queue))

    with switching_often():
        thread = threading.Thread(target=look)
        thread.start()
        for n in range(5000):
            queue.offer(n)
        done.set()
        thread.join()
    assert seen <= {limit, limit + 1}
    receiver = Receiver("in", (queue,))
    queue.append("one too many")
    assert (receiver.size, receiver.peek(), receiver.peek(99)) == (limit, 5000 - limit, None)
    assert Transmitter("out", (queue,)).free == 0


@pytest.mark.parametrize("size", [1, 3])
def test_nothing_of_a_dropped_message_travels_with_another(size: int) -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            for n in range(5):
                op.metadata.clear()
                if n % 2:
                    op.metadata.set(f"key{n}", n)
                o.emit(n, acq_timestamp=100 + n if n < 3 else None)

        def take(op: Step, i: Any, o: Any) -> None:
            got = i.receive()
            seen.append((got, i.get_acquisition_timestamps(), dict(op.metadata)))

        a = Step(app, CountCondition(app, 1), outputs=["out"], body=send, name="a")
        b = Step(app, inputs=[("in", {"size": size, "policy": POP})], body=take, name="b")
        app.add_flow(a, b)

    run(compose)
    assert seen == [(4, [], {})] if size == 1 else [((2, 3, 4), [102], {"key3": 3})]


# A queue that drops holds nobody back.


def branches(app: App, counts: dict[str, int], slow_input: Any, **flow: Any) -> None:
    """A source every 10 ns with a fast branch and one that takes 100 ns for each message."""

    def slow(op: Step, i: Any, o: Any) -> None:
        i.receive()
        counts["slow"] = op.ticks

    camera = source(app, range(20), PeriodicCondition(app, 10), name="camera")
    viewer = Step(app, PeriodicCondition(app, 100), inputs=[slow_input], body=slow, name="viewer")
    fast: list[Any] = []

    def take(op: Step, i: Any, o: Any) -> None:
        fast.append((op.fragment.now, i.receive()))
        counts["fast"], counts["end"] = len(fast), fast[-1][0]

    app.add_flow(camera, Step(app, inputs=["in"], body=take, name="fast"))
    app.add_flow(camera, viewer, **flow)


@pytest.mark.parametrize("policy", [POP, REJECT])
@pytest.mark.parametrize("said", ["input", "flow"])
def test_a_slow_branch_that_drops_does_not_hold_its_producer_back(
    scheduler: MakeScheduler, policy: Any, said: str
) -> None:
    counts: dict[str, int] = {}

    def compose(app: App) -> None:
        if said == "input":
            branches(app, counts, ("in", {"policy": policy}))
        else:
            branches(app, counts, "in", policy=policy)

    app = run(compose, scheduler)
    assert (counts["fast"], counts["end"]) == (20, 190)
    assert counts["slow"] + app.dropped()["viewer.in"] + app.undelivered().get("viewer.in", 0) == 20
    assert app.dropped().keys() == {"viewer.in"}


@pytest.mark.parametrize("policy", [None, FAULT])
def test_a_slow_branch_that_does_not_drop_holds_its_producer_back(
    scheduler: MakeScheduler, policy: Any
) -> None:
    counts: dict[str, int] = {}
    app = run(lambda app: branches(app, counts, ("in", {"policy": policy})), scheduler)
    assert (counts["fast"], counts["slow"]) == (20, 20)
    assert counts["end"] > 1000
    assert app.dropped() == {}


@pytest.mark.parametrize("how", ["given", "on the port"])
def test_a_producer_that_asks_for_room_waits_for_a_queue_that_drops(
    scheduler: MakeScheduler, how: str
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        room = [DownstreamMessageAffordableCondition(app, transmitter="out")] if how == "given" else []

        def setup(spec: Any) -> None:
            out = spec.output("out")
            if how == "on the port":
                out.condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1)

        a = Step(
            app, *room, CountCondition(app, 5), setup=setup, body=lambda op, i, o: o.emit(op.ticks), name="a"
        )
        b = sink(app, taken, PeriodicCondition(app, 100))
        app.add_flow(a, b, policy=POP)

    app = run(compose, scheduler)
    assert taken == [1, 2, 3, 4, 5]
    assert app.dropped() == {}


def test_an_output_of_which_any_condition_will_do_counts_as_free_where_its_queue_drops(
    scheduler: MakeScheduler,
) -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("in")
            spec.output("out")
            spec.or_combine_port_conditions(["in", "out"])

        middle = Step(
            app, CountCondition(app, 4), setup=setup, body=lambda op, i, o: o.emit(op.ticks), name="middle"
        )
        app.add_flow(source(app, []), middle)
        app.add_flow(middle, Step(app, CountCondition(app, 0), inputs=["in"]), policy=REJECT)

    app = run(compose, scheduler)
    assert app.graph.find("middle").ticks == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("kind", [EventBasedScheduler, MultiThreadScheduler])
@pytest.mark.parametrize("policy", [POP, REJECT])
def test_whatever_is_emitted_is_received_or_counted_whoever_runs_it(
    workers: int, real: bool, kind: Any, policy: Any
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        a = source(app, range(300), name="a")
        b = through(app, name="b")
        app.add_flow(a, b, policy=policy, size=2)
        app.add_flow(b, sink(app, taken), policy=policy)

    def scheduler(app: Any) -> Any:
        clock = None if real else ManualClock(app)
        return kind(app, clock=clock, worker_thread_number=workers)

    app = run(compose, scheduler)
    assert None not in taken
    assert taken == sorted(set(taken))
    lost = app.dropped()
    assert len(taken) + sum(lost.values()) + sum(app.undelivered().values()) == 300
    if policy is POP:
        assert taken[-1] == 299


# Where a policy and a size are said.


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


def test_flows_that_agree_or_an_input_that_decides_may_share_a_queue() -> None:
    def agree(app: App) -> None:
        b = sink(app, [])
        for name in ("a1", "a2"):
            app.add_flow(source(app, [1], name=name), b, policy=POP)

    def decide(app: App) -> None:
        b = sink(app, [])
        b.queue_policy("in", policy=POP)
        app.add_flow(Step(app, outputs=[("out", {"policy": REJECT})], name="a1"), b)
        app.add_flow(source(app, [1], name="a2"), b)

    for compose in (agree, decide):
        App(compose).compose_graph()


def test_each_flow_into_an_any_size_input_has_its_own_policy_and_size() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def burst(op: Step, i: Any, o: Any) -> None:
            for n in range(4):
                o.emit(n)

        join = Step(
            app,
            inputs=[("all", {"size": IOSpec.ANY_SIZE})],
            body=lambda op, i, o: taken.append(i.receive()),
            name="join",
        )
        for name, policy, size in (("a", POP, None), ("b", REJECT, 2), ("c", POP, 3)):
            producer = Step(app, CountCondition(app, 1), outputs=["out"], body=burst, name=name)
            app.add_flow(producer, join, policy=policy, size=size)

    app = run(compose)
    assert taken == [(3, 0, 1)]
    assert app.dropped() == {"join.all": 3 + 2 + 1}
    assert app.undelivered() == {"join.all": 1 + 2}


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


def test_the_size_of_a_flow_into_a_batch_leaves_the_batch_as_it_is() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        batch = Step(
            app,
            PeriodicCondition(app, 100),
            inputs=[("in", {"size": 2})],
            body=lambda op, i, o: taken.append(i.receive()),
        )
        app.add_flow(source(app, range(9)), batch, size=4)

    run(compose)
    assert [len(batch) for batch in taken] == [2, 4, 3] or [len(batch) for batch in taken] == [2, 4, 2]


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


def test_two_ports_are_connected_once_whatever_is_said_of_the_flow() -> None:
    def compose(app: App) -> None:
        a, b = source(app, [1]), sink(app, [])
        app.add_flow(a, b)
        app.add_flow(a, b, policy=POP, size=2)

    with pytest.raises(GraphError, match="source.out -> sink.in is connected already"):
        App(compose).compose_graph()


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


def test_a_policy_that_is_none_is_refused_where_it_is_set() -> None:
    def compose(app: App) -> None:
        b = sink(app, [])
        with pytest.raises(
            GraphError, match=r"input 'in': policy must be an IOSpec.QueuePolicy .* not 'POP'"
        ):
            b.queue_policy("in", policy="POP")  # type: ignore[arg-type]
        with pytest.raises(GraphError, match="size must be a positive int"):
            b.spec.inputs["in"].queue_size = -2
        app.add_operator(b)

    with pytest.raises(GraphError, match="not connected"):
        App(compose).compose_graph()


def test_more_at_once_than_a_queue_that_drops_holds_is_no_error() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        a = Step(
            app,
            CountCondition(app, 1),
            outputs=[("out", {"size": 3})],
            body=lambda op, i, o: [o.emit(n) for n in range(3)],
        )
        app.add_flow(a, sink(app, taken), policy=POP)

    run(compose)
    assert taken == [2]


def test_random_sizes_and_policies_on_flows_are_what_the_queues_have() -> None:
    random = Random(5)
    for _ in range(20):
        sizes = [random.choice([None, 1, 2, 5]) for _ in range(3)]
        policies = [random.choice([None, POP, REJECT, FAULT]) for _ in range(3)]

        def compose(app: App, sizes: Any = sizes, policies: Any = policies) -> None:
            join = Step(app, CountCondition(app, 0), inputs=[("all", {"size": IOSpec.ANY_SIZE})], name="join")
            for n in range(3):
                app.add_flow(source(app, range(3), name=f"a{n}"), join, size=sizes[n], policy=policies[n])

        app = run(compose)
        node = app.graph.find("join")._node
        assert node is not None
        held = [queue.undelivered for queue in node.inputs]
        assert held == [min(3, size or 1) for size in sizes]
        lost = [queue.dropped for queue in node.inputs]
        drops = [policy in (POP, REJECT) for policy in policies]
        assert lost == [3 - min(3, size or 1) if drop else 0 for size, drop in zip(sizes, drops, strict=True)]
