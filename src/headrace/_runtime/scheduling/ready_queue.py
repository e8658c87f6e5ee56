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

from headrace._runtime.contexts.input import QuickCompute

if TYPE_CHECKING:
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.parker import Parker


class ReadyQueue(QuickCompute):
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
    """

    __slots__ = ("later", "now", "parked", "sweep")

    def __init__(self) -> None:
        super().__init__()
        self.now: deque[Node] = deque()
        self.later: deque[Node] = deque()
        self.sweep = 0
        self.parked: list[Parker] = []
