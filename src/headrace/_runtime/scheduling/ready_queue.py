"""ReadyQueue: the ready nodes, in the order in which they are taken, and the workers that take them.

The order affects latency. In first-in first-out order, a chain would move every frame by one stage per round, and
the age of a frame would grow with the square of the chain's length. In last-in first-out order, a frame runs
straight to the end, but a cycle would occupy the queue forever. So a ready queue works in sweeps. Nodes are taken
from the end of `now`, and nodes that have just become ready are added there; a node that has already run in this
sweep goes to `later`. Every ready node runs once in every sweep, and each frame proceeds as far as possible.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.parker import Parker


class ReadyQueue:
    """Ready nodes, and the workers that serve them.

    At most one worker at a time runs short computes, one after the other: the *runner*. The others leave the nodes
    to it.

    Every field is changed only under the engine's lock, if there is one, except `parked`: any thread may remove a
    worker from it, to wake it.

    Attributes
    ----------
    now, later
        The nodes to take in this sweep and in the next.
    sweep
        The number of this sweep.
    parked
        The workers that wait for something to do. Workers with a deadline come first and are woken last.
    runner
        The worker that runs short computes, if there is one.
    current
        The node that the runner computes. It is set by the thread that takes the lock from it.
    standby
        The parked worker that watches whether the runner comes back in time, if there is one.
    """

    __slots__ = ("current", "later", "now", "parked", "runner", "standby", "sweep")

    def __init__(self) -> None:
        self.now: deque[Node] = deque()
        self.later: deque[Node] = deque()
        self.sweep = 0
        self.parked: list[Parker] = []
        self.runner: Parker | None = None
        self.current: Node | None = None
        self.standby: Parker | None = None
