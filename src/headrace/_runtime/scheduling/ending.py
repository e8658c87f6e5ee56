"""Ending: the `end` of one operator, which runs in place of its compute when it computes no more (`ends`).

It does not import the node that it belongs to, which knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from headrace._runtime.scheduling.notes import note

_OVER = object()


def ending_of(node: Any, compute: Callable[..., None]) -> Ending | None:
    """Return the end of a node that computes with `compute`; None if its operator has no `end`."""
    if not node.operator._headrace.has_end:
        return None
    end = node.operator.end
    return Ending(node, compute, end if node.routing is None else node.routing.around_end(end))


class Ending:
    """The `end` of one operator.

    Attributes
    ----------
    evaluated
        The conditions of the node, which do not count any more.
    is_on, is_done
        Whether the node runs `end` in place of its compute, and whether that is done.
    """

    def __init__(
        self, node: Any, compute: Callable[..., None], end: Callable[..., Any], is_of_group: bool = False
    ) -> None:
        self.node = node
        self.evaluated: Any = None
        self.is_on = False
        self.is_done = False
        # The compute of a group is replaced now and then, so its end is not inside of it.
        self.is_of_group = is_of_group
        self._compute = compute
        self._end = end
        self._steps: Generator[Any, Any, Any] | None = None

    def begin(self) -> None:
        """Run `end` from now on."""
        self.is_on = True
        if self.is_of_group:
            self.node.compute = self.compute

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Compute or, when it is over, end; an `end` that yields goes on when there is room again."""
        if not self.is_on:
            self._compute(op_input, op_output, context)
            return
        self.is_done = True
        try:
            if self._steps is None:
                steps = self._end(op_input, op_output, context)
                if not isinstance(steps, Generator):  # that of compiled code is one, and no plain generator
                    return
                self._steps = steps
            self.is_done = next(self._steps, _OVER) is _OVER
        except BaseException as error:
            faults = self.node.faults
            if faults is None or not isinstance(error, Exception):
                note(error, "end", self.node.operator)
                raise
            faults.skip_end(error)

    def close(self) -> None:
        """Close an `end` that has not come to its end, because the run was stopped."""
        steps, self._steps = self._steps, None
        if steps is not None and not self.is_done:
            steps.close()
