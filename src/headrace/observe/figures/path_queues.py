"""The queues that messages pass on their way from one operator to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.observe.events.records import OperatorInfo, QueueInfo, RunInfo

__all__ = ["queues_between"]

# An operator, and the number of names that a message has passed when it is there.
_State: TypeAlias = "tuple[OperatorInfo, int]"


def queues_between(run: RunInfo, names: Sequence[str]) -> list[QueueInfo]:
    """Return the queues on all ways from the first of some operators to the last, through the others in order."""
    start, end = (run.operator(names[0]), 1), (run.operator(names[-1]), len(names))
    steps = {start: list(_steps(start, names))}
    waiting = [start]
    while waiting:
        for _, state in steps[waiting.pop()]:
            if state not in steps:
                steps[state] = list(_steps(state, names))
                waiting.append(state)
    arriving = {end}
    while True:  # backwards, from the end
        found = {state for state, ways in steps.items() if any(target in arriving for _, target in ways)}
        if found <= arriving:
            break
        arriving |= found
    queues = (queue for ways in steps.values() for queue, target in ways if target in arriving)
    return list(dict.fromkeys(queues))


def _steps(state: _State, names: Sequence[str]) -> Iterator[tuple[QueueInfo, _State]]:
    operator, passed = state
    for output in operator.outputs:
        for queue in output.queues:
            if operator not in queue.closing:
                consumer = queue.operator
                is_next = passed < len(names) and consumer.name == names[passed]
                yield queue, (consumer, passed + is_next)
