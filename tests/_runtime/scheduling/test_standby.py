"""The worker on standby: how it looks at the runner of its queue, and when it takes its place."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace._runtime import is_compiled
from headrace._runtime.scheduling.lendable_lock import LendableLock
from headrace._runtime.scheduling.parker import Parker
from headrace._runtime.scheduling.ready_queue import ReadyQueue
from headrace._runtime.scheduling.waiting import WaitingWorkers

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled code takes no stand-ins for nodes")


class World:
    """A worker on standby, a runner that computes `node`, and what happens before each look of the worker."""

    def __init__(self) -> None:
        self.ready_queue = ReadyQueue()
        self.ready_queue.runner = Parker(self.ready_queue)
        self.lock = LendableLock(lambda: None)
        self.lock.acquire()
        self.node = self.make_node()
        self.ready_queue.current = self.node
        self.meanwhile: list[Callable[[], None]] = []
        self.waited: list[float] = []
        self.replaced: list[Any] = []
        engine: Any = SimpleNamespace(
            clock=SimpleNamespace(park=self.park), overtake=lambda queue, node: self.replaced.append(node)
        )
        self.waiting = WaitingWorkers(engine)

    def make_node(self) -> Any:
        return SimpleNamespace(ready_queue=self.ready_queue, remaining=-1, is_measured=False, input_states=())

    def park(self, parker: Parker, seconds: float) -> bool:
        self.waited.append(seconds)
        assert self.lock.running == 0, "the runner has lost the lock"
        if not self.meanwhile:
            return True
        happens = self.meanwhile.pop(0)
        happens()
        return False

    def stand_by(self) -> bool:
        return self.waiting._stand_by(Parker(self.ready_queue), self.lock, self.node)

    # What may happen before a look.

    def go_on(self) -> None:
        """The runner lends the lock in a later compute."""
        self.node.remaining -= 1
        if not self.lock.lent:
            assert self.lock.try_acquire()
            self.lock.lent.append(self.node)

    def stay(self) -> None:
        """The runner is still in the same compute."""

    def lose_token(self) -> None:
        """Somebody takes the lock during the compute of the runner, and releases it."""
        assert self.lock.try_acquire()
        self.lock.release()

    def take_back(self) -> None:
        """The runner has computed and holds the lock again."""
        self.lock.lent.pop()

    def end(self) -> None:
        """The runner finds nothing more to compute, and releases the lock."""
        self.node.remaining -= 1
        self.lock.release()

    def take_back_and_end(self) -> None:
        self.take_back()
        self.end()


def test_it_looks_more_and_more_seldom_and_leaves_the_lock_to_a_runner_that_goes_on() -> None:
    """If the runner does not go on, others have waited for two looks: at most a quarter of the time until then."""
    world = World()
    world.meanwhile = [world.go_on] * 50
    assert world.stand_by()
    assert world.replaced == []
    assert (world.waited[0], max(world.waited), world.waited[-1]) == (1e-3, 4e-3, 4e-3)
    for number, waited in enumerate(world.waited):
        assert waited == pytest.approx(min(1e-3 + sum(world.waited[:number]) / 8, 4e-3))


def test_it_has_a_compute_of_the_runner_measured_at_each_look() -> None:
    world = World()
    world.meanwhile = [world.go_on]
    world.stand_by()
    assert world.node.is_measured


@pytest.mark.parametrize("lost", [False, True])
def test_it_replaces_a_runner_that_is_in_one_compute_from_one_look_to_the_next(lost: bool) -> None:
    world = World()
    world.meanwhile = [world.go_on, world.go_on, world.lose_token if lost else world.stay]
    assert not world.stand_by()
    assert world.replaced == [world.node]
    assert len(world.waited) == 3
    assert not world.lock.try_acquire(), "it holds the lock afterwards"


def test_it_leaves_a_runner_alone_that_is_between_two_computes() -> None:
    world = World()
    world.meanwhile = [world.go_on, world.take_back, world.end]
    assert not world.stand_by()
    assert (world.replaced, len(world.waited)) == ([], 3)


def test_it_replaces_no_runner_that_is_gone() -> None:
    world = World()
    world.meanwhile = [world.go_on, world.take_back_and_end]
    assert not world.stand_by()
    assert world.replaced == []


def test_a_compute_of_another_queue_is_not_taken_for_one_of_the_runner() -> None:
    """The token of the runner is gone, and a worker of another queue lends the lock."""
    world = World()
    other = world.make_node()
    other.ready_queue = ReadyQueue()

    def lend_elsewhere() -> None:
        world.lose_token()
        assert world.lock.try_acquire()
        world.lock.lent.append(other)

    world.meanwhile = [world.go_on, lend_elsewhere]
    assert not world.stand_by()
    assert world.replaced == [world.node]
    assert not other.is_measured


def test_it_holds_the_lock_again_when_its_wait_fails() -> None:
    """Whoever called it releases the lock, and another worker may stand by."""
    world = World()

    def fail() -> None:
        raise RuntimeError("the clock has stopped")

    world.meanwhile = [fail]
    with pytest.raises(RuntimeError, match="the clock has stopped"):
        world.stand_by()
    assert not world.lock.try_acquire()
