"""Queues that drop messages and that several parts send to: they keep and drop as many as in one process."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from headrace import Application, Condition, CountCondition, Fragment, IOSpec
from headrace.core import SchedulingStatusType
from headrace.core.outcome import Outcome
from tests.harness import PATIENCE, Step, event_based, wait_until
from tests.parts.running import MemoryLinks, UnixLinks, run_parts

POP, LATEST, REJECT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.LATEST, IOSpec.QueuePolicy.REJECT
MESSAGES = 7


class Gate(Condition):
    """Lets an operator wait until the test has opened it."""

    def __init__(self, *given: Any, is_open: threading.Event, **more: Any) -> None:
        self._is_open = is_open
        super().__init__(*given, **more)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        status = SchedulingStatusType
        return status.READY if self._is_open.is_set() else status.WAIT_EVENT, None


class Shared(Application):
    """Sources of some parts send numbers to one queue of part ``t``, whose operator takes them when it may."""

    def __init__(self, sources: str, size: int, policy: IOSpec.QueuePolicy) -> None:
        super().__init__([])
        self.sources, self._size, self._policy = sources, size, policy
        self.is_open = threading.Event()
        self.emitted = 0
        self._lock = threading.Lock()
        self.taken: list[tuple[str, int]] = []
        self.target: Any = None
        self.gate: Any = None

    def compose(self) -> None:
        self.scheduler(event_based(self, workers=2))
        parts = {name: Part(self, name) for name in dict.fromkeys((*self.sources, "t"))}
        for each in parts.values():
            self.add_fragment(each)
        for name in self.sources.replace("t", ""):
            self.add_flow(parts[name], parts["t"], {("numbers.out", "target.in")}, size=self._size)

    def compose_part(self, part: Any) -> None:
        """Add the operators of a part."""
        numbers = None
        if part.name in self.sources:
            body = partial(self.emit, part.name)
            numbers = Step(part, CountCondition(part, MESSAGES), outputs=["out"], body=body, name="numbers")
            part.add_operator(numbers)
        if part.name == "t":
            self.gate = Gate(part, is_open=self.is_open, name="gate")
            # What was taken last stays there with LATEST, so that the operator could go on for ever.
            is_latest = self._policy is LATEST
            self.target = Step(
                part,
                self.gate,
                *([CountCondition(part, 1)] if is_latest else []),
                setup=lambda spec: spec.input("in", policy=self._policy),
                body=lambda step, i, o: self.take(i.receive("in")),
                name="target",
            )
            if numbers is None:
                part.add_operator(self.target)
            else:
                part.add_flow(numbers, self.target, size=self._size)

    def emit(self, name: str, step: Any, op_input: Any, op_output: Any) -> None:
        """Emit the next number of a source."""
        op_output.emit((name, step.ticks - 1), "out")
        with self._lock:
            self.emitted += 1

    def take(self, message: Any) -> None:
        """Keep what the operator receives."""
        self.taken.append(message)

    def open(self) -> None:
        """Let the operator take what is there."""
        self.is_open.set()
        self.gate.notify_scheduler()


class Part(Fragment):
    """A part that its application composes."""

    def compose(self) -> None:
        application: Any = self._headrace.application
        application.compose_part(self)


def kept(app: Shared, dropped: int) -> dict[str, Any]:
    """Return what must be the same: how many of each source, which of them, and how many were dropped.

    Whose message comes first is a matter of time if several send.
    """
    found: dict[str, list[int]] = {}
    for name, number in app.taken:
        found.setdefault(name, []).append(number)
    newest = app._policy is not REJECT
    for numbers in found.values():
        first = MESSAGES - len(numbers) if newest else 0
        assert numbers == list(range(first, first + len(numbers)))
    return {"taken": len(app.taken), "dropped": dropped}


def run_alone(app: Shared) -> Outcome:
    future = app.run_async()
    wait_until(lambda: app.emitted == MESSAGES * len(app.sources), "all messages")
    app.open()
    return future.result(PATIENCE)


@pytest.mark.parametrize("links", [MemoryLinks, UnixLinks])
@pytest.mark.parametrize(("policy", "size"), [(POP, 1), (POP, 3), (LATEST, 1), (REJECT, 1), (REJECT, 3)])
@pytest.mark.parametrize("sources", ["a", "ab", "at", "abt"])
def test_a_queue_that_drops_keeps_as_many_as_in_one_process(
    sources: str, policy: IOSpec.QueuePolicy, size: int, links: Any
) -> None:
    alone = Shared(sources, size, policy)
    outcome = run_alone(alone)
    expected = kept(alone, sum(outcome.dropped.values()))
    assert expected["taken"] + expected["dropped"] == MESSAGES * len(sources)
    cuts: dict[str, Any] = {}

    def has_come() -> bool:
        """Return whether all messages were emitted, and are in the queue, or were dropped there or before."""
        if sum(cut.application.emitted for cut in cuts.values()) < MESSAGES * len(sources):
            return False
        target = cuts["t"].application.target
        node = None if target is None else target._headrace.node
        if node is None or not node.inputs:  # it is being composed or started
            return False
        dropped = sum(each.dropped for cut in cuts.values() for each in cut.counts().values())
        (queue,) = node.inputs
        # A queue that drops its oldest message has one more for a moment.
        return len(queue) <= size and len(queue) + queue.dropped + dropped == MESSAGES * len(sources)

    runs: list[Any] = []
    names = list(dict.fromkeys((*sources, "t")))
    make = lambda: Shared(sources, size, policy)  # noqa: E731
    thread = threading.Thread(
        target=lambda: runs.append(run_parts(make, names, links(), lambda cut: cuts.update({cut.part: cut})))
    )
    thread.start()
    wait_until(has_come, "all messages")
    app = cuts["t"].application
    app.open()
    thread.join(PATIENCE)
    assert not runs[0].errors
    assert kept(app, sum(runs[0].by_port("dropped").values())) == expected
