"""An exhausted pool is a matter of readiness: an operator waits for memory and is woken when it comes back."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from headrace.conditions import CountCondition, MemoryAvailableCondition, memory_available
from headrace.core.errors import AllocationError
from headrace.core.outcome import EndedBy
from headrace.core.ports import SchedulingStatusType
from headrace.resources import BlockMemoryPool, RealtimeClock, StreamOrderedAllocator, UnboundedAllocator
from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from tests.harness import PATIENCE, App, MakeScheduler, Step, run, sink

pytestmark = pytest.mark.usefixtures("machine")


def pool(app: Any = None, blocks: int = 2, **settings: Any) -> BlockMemoryPool:
    return BlockMemoryPool(app, "system", 64, blocks, **settings)


def maker(app: Any, memory: Any, count: int, *args: Any, name: str = "maker", **needs: Any) -> Step:
    """Return an operator that emits tensors of the memory, once there is some."""

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(memory.allocate_tensor(8, "int64", operator=name), "out")

    waits = MemoryAvailableCondition(app, memory, **(needs or {"min_blocks": 1}))
    return Step(app, CountCondition(app, count), waits, *args, outputs=["out"], body=make, name=name)


def test_an_operator_waits_for_a_block_under_each_scheduler(scheduler: MakeScheduler) -> None:
    """The queue has room for more than the pool has blocks."""

    def compose(app: Any) -> None:
        app.memory, app.taken = pool(app, 2), 0

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            app.taken += len(op_input.receive("in"))

        def setup(spec: Any) -> None:
            from headrace.core import ConditionType

            spec.input("in", size=10).condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)

        app.add_flow(maker(app, app.memory, 50), Step(app, setup=setup, body=take, name="take"))

    app = run(compose, scheduler)
    assert app.taken == 50
    assert app.memory.free_blocks == 2
    assert app.now < 1e9


def test_a_block_that_another_thread_holds_wakes_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """No operator returns the block. The run waits for the thread that does."""
    monkeypatch.setattr(memory_available, "_PATIENCE_NS", 3600 * 10**9)  # only being woken ends the wait
    asked = threading.Event()
    is_there = MemoryAvailableCondition.is_there

    def ask(self: Any) -> bool:
        found = is_there(self)
        asked.set()
        return found

    monkeypatch.setattr(MemoryAvailableCondition, "is_there", ask)

    def compose(app: Any) -> None:
        memory = pool(app, 1)
        app.held = [memory.allocate_tensor(8, "int64")]
        app.taken = []
        app.add_flow(maker(app, memory, 1), sink(app, app.taken))

    app: Any = App(compose, lambda app: EventBasedScheduler(app, clock=RealtimeClock(app)))
    future = app.run_async()
    assert asked.wait(PATIENCE)
    app.held.clear()
    assert future.result(timeout=PATIENCE).ended_by is EndedBy.FINISHED
    assert len(app.taken) == 1


def test_a_run_whose_memory_never_comes_back_ends_and_says_so(
    scheduler: MakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    def compose(app: Any) -> None:
        app.kept = []
        app.add_flow(maker(app, pool(app, 3, name="frames"), 10), sink(app, app.kept))

    app = App(compose, scheduler)
    with caplog.at_level(logging.WARNING, "headrace.memory"):
        outcome = app.run()
    assert outcome.ended_by is EndedBy.STARVED
    assert len(app.kept) == 3
    assert "memory of 'frames' (0 of 3 blocks of 64 B free)" in str(outcome)
    assert "'maker' has waited a second for memory of 'frames'" in caplog.text


def test_what_a_condition_found_is_reserved_for_the_operator() -> None:
    seen: list[Any] = []

    def compose(app: Any) -> None:
        memory = pool(app, 1)
        other = MemoryAvailableCondition(app, memory, min_blocks=1, name="other")

        def make(self: Any, op_input: Any, op_output: Any) -> None:
            # The block is free, and promised to this operator.
            seen.append((memory.free_blocks, other.check(0)[0], other.reserve()))
            with pytest.raises(MemoryError):
                _on_another_thread(lambda: memory.allocate_tensor(1, "u1"))
            seen.append(memory.allocate_tensor(1, "u1").nbytes)

        waits = MemoryAvailableCondition(app, memory, min_blocks=1)
        app.add_operator(Step(app, CountCondition(app, 3), waits, body=make, name="maker"))

    run(compose)
    assert seen == [(1, SchedulingStatusType.WAIT_TIME, False), 1] * 3


def test_an_operator_that_another_run_was_faster_than_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool is shared with a run that takes the block between the look and the reservation."""

    def compose(app: Any) -> None:
        app.memory, app.taken = pool(app, 1), 0
        taken: list[Any] = []
        reserve = MemoryAvailableCondition.reserve
        asked, is_there = threading.Event(), MemoryAvailableCondition.is_there

        def ask(self: Any) -> bool:
            found = is_there(self)
            if not found:
                asked.set()
            return found

        def return_it(taken: list[Any]) -> None:
            assert asked.wait(PATIENCE)  # the operator has found out that the block is gone
            taken.clear()

        monkeypatch.setattr(MemoryAvailableCondition, "is_there", ask)

        def slow(self: Any) -> bool:
            if not app.taken:
                app.taken += 1
                taken.append(app.memory.allocate_tensor(1, "u1"))
                app.faster = threading.Thread(target=return_it, args=(taken,))
                app.faster.start()
            return reserve(self)

        monkeypatch.setattr(MemoryAvailableCondition, "reserve", slow)
        app.maker = maker(app, app.memory, 3)
        app.add_flow(app.maker, Step(app, inputs=["in"], body=lambda s, i, o: i.receive("in"), name="bin"))

    app = App(compose, lambda app: GreedyScheduler(app, clock=RealtimeClock(app)))
    assert app.run().ended_by is EndedBy.FINISHED
    app.faster.join(PATIENCE)
    assert (app.taken, app.maker.ticks) == (1, 3)


class TestMistakes:
    def test_neither_or_both_needs(self) -> None:
        for needs in ({}, {"min_bytes": 1, "min_blocks": 1}):
            with pytest.raises(
                ValueError, match=r"'memory_available_condition' takes min_bytes or min_blocks"
            ):
                MemoryAvailableCondition(None, pool(), **needs)

    def test_no_allocator(self) -> None:
        for wrong in (None, RealtimeClock(), 3):
            with pytest.raises(TypeError, match="allocator must be an Allocator, such as a BlockMemoryPool"):
                MemoryAvailableCondition(None, wrong, min_blocks=1)  # type: ignore[arg-type]

    def test_more_than_there_will_ever_be(self) -> None:
        with pytest.raises(AllocationError, match=r"waits for 3 blocks, and 'p' has 2; raise num_blocks"):
            MemoryAvailableCondition(None, pool(name="p"), min_blocks=3)
        with pytest.raises(AllocationError, match=r"waits for 65 B .* raise block_size to at least 65"):
            MemoryAvailableCondition(None, pool(), min_bytes=65)
        with pytest.raises(AllocationError, match=r"device_memory_max_size is 16 MB"):
            MemoryAvailableCondition(None, StreamOrderedAllocator(), min_bytes="17MB")

    def test_blocks_where_there_are_none(self) -> None:
        with pytest.raises(
            ValueError, match=r"'unbounded_allocator' has no blocks of a fixed size; give min_bytes"
        ):
            MemoryAvailableCondition(None, UnboundedAllocator(), min_blocks=1)

    def test_sizes_that_are_none(self) -> None:
        with pytest.raises(ValueError, match="min_bytes must be a size such as"):
            MemoryAvailableCondition(None, pool(), min_bytes="much")


def _on_another_thread(action: Any) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
