"""One worker, on the thread that called `run`: takes no lock, wakes nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.runtime.lifecycle import note
from penstock.runtime.parker import Parker

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

__all__ = ["run_alone"]


def run_alone(engine: Engine) -> None:
    """Run until the engine is finished, on this thread."""
    lane = engine.lanes[0]
    parker = Parker(lane)
    waiting = engine.waiting
    while True:
        node = engine.take(lane)
        if node is None:
            if not waiting.wait(parker, None):
                return
            continue
        try:
            if node.special:
                engine.compute_special(node)
            else:
                # Fetched, then called: in Python 3.11 a call straight from a slot costs 2 % of the step more.
                compute = node.compute
                compute(node.input, node.output, node.context)
        except BaseException as error:
            note(error, "compute", node.operator)
            raise
        engine.finish(node)
