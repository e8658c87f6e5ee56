"""One worker, on the thread that called `run`: it takes no lock and wakes no other worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import waits
from headrace._runtime.scheduling.notes import note
from headrace._runtime.scheduling.parker import Parker

if TYPE_CHECKING:
    from headrace._runtime.scheduling.engine import Engine

__all__ = ["run_single_threaded"]


def run_single_threaded(engine: Engine) -> None:
    """Run until the engine is finished, on this thread."""
    ready_queue = engine.ready_queues[0]
    parker = Parker(ready_queue, waits.runs_signal_handlers())
    waiting = engine.waiting
    while True:
        node = engine.take(ready_queue)
        if node is None:
            if not waiting.wait(parker, None):
                return
            continue
        try:
            if node.has_extra_work:
                engine.compute_with_extra_work(node)
            else:
                # Fetched, then called: in Python 3.11 a call directly from a slot makes the step 2 % slower.
                compute = node.compute
                compute(node.input, node.output, node.context)
        except BaseException as error:
            note(error, "compute", node.operator)
            raise
        engine.finish(node)
