"""ReadyQueue: the ready nodes, in the order in which they are taken, and the workers that take them.

The order affects latency. In first-in first-out order, a chain would move every frame by one stage per round, and
the age of a frame would grow with the square of the chain's length. In last-in first-out order, a frame runs
straight to the end, but a cycle would occupy the queue forever. So a ready queue works in sweeps. Nodes are taken
from the end of `now`, and nodes that have just become ready are added there; a node that has already run in this
sweep goes to `later`. Every ready node runs once in every sweep, and each frame proceeds as far as possible.

If several workers serve a queue, its nodes take turns: one computes at a time (`workers`). Nodes that compute
beside them are in another queue, which the same workers serve (`beside`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.parker import Parker


class ReadyQueue:
    """Ready nodes, and the workers that serve them.

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
    beside
        The queue of the nodes that compute beside those of this queue, which take turns; None if they do not.
    current
        The node whose turn it is, while it computes.
    is_shared
        Whether several workers compute its nodes side by side.
    standby
        The parked worker that watches how long this turn lasts, if there is one.
    """

    __slots__ = ("beside", "current", "is_shared", "later", "now", "parked", "standby", "sweep")

    def __init__(self) -> None:
        self.now: deque[Node] = deque()
        self.later: deque[Node] = deque()
        self.sweep = 0
        self.parked: list[Parker] = []
        self.beside: ReadyQueue | None = None
        self.current: Node | None = None
        self.is_shared = False
        self.standby: Parker | None = None

    def take_turns(self) -> ReadyQueue:
        """Let the nodes take turns from now on; return the queue of those that compute beside them."""
        self.beside = ReadyQueue()
        self.beside.parked = self.parked
        self.beside.is_shared = True
        return self.beside

    @property
    def has_turn(self) -> bool:
        """Whether a node is ready, and none of the others computes."""
        return self.current is None and bool(self.now or self.later)

    @property
    def waits_for_turn(self) -> bool:
        """Whether a node would go on if the one whose turn it is did not compute."""
        current = self.current
        return current is not None and bool(self.now or self.later or current.has_waiting_producers)
