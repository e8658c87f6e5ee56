"""ReadyQueue: the nodes that are ready, in the order they are taken, and the workers that take them.

Order matters for latency. Taken first-in first-out, a chain would move every frame by one stage per
round and a frame would be as old as the chain is long, squared. Taken last-in first-out, a frame runs
straight to the end, but a cycle would keep the queue to itself for ever. So a ready queue works in sweeps: `now`
is taken from its end, which is where what was just made ready is put, and a node that has already run in
this sweep goes to `later`. Every ready node runs once in every sweep, and frames go deep first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.scheduling.parker import Parker

__all__ = ["ReadyQueue"]


class ReadyQueue:
    """Ready nodes, and the workers that serve them.

    Every field is changed under the engine's lock only, where there is one, except `parked`: any thread may take a
    worker off it, to wake it.

    Attributes
    ----------
    now, later
        The nodes to take in this sweep and in the next.
    sweep
        The number of this sweep.
    parked
        The workers that wait for something to do, the ones with a deadline first: those are woken last.
    quick
        The node that a worker runs now and that is expected to be done in a moment, if any. Until then, the other
        workers leave the queue to that worker.
    standby
        The parked worker that watches whether `quick` is done in a moment, if any.
    """

    __slots__ = ("later", "now", "parked", "quick", "standby", "sweep")

    def __init__(self) -> None:
        self.now: deque[Node] = deque()
        self.later: deque[Node] = deque()
        self.sweep = 0
        self.parked: list[Parker] = []
        self.quick: Node | None = None
        self.standby: Parker | None = None
