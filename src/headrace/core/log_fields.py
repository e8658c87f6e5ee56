"""The fields of log records: which operator, fragment and run a record belongs to.

They are found when a record is made, and computes cost nothing for it. The operator is on the stack of the thread
that logs: its methods have it as their first argument, and the compute of a function (`@op`) has the operator's
input. A variable of the context, set around every compute, would cost all of them.

Outside of operators, as on a thread of the program, the fragment and the run are those of the only run in progress.
With several runs, they are not known.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from headrace.core.composition import RUNNING

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator

FIELDS = ("operator", "fragment", "run")
_OPERATOR_LOGGERS = "headrace.operator."


class RunFields(logging.Filter):
    """Gives log records the fields ``operator``, ``fragment`` and ``run``; "" where one is not known.

    Add it to a handler of your own: ``handler.addFilter(RunFields())``. A format may then use ``%(operator)s``. The
    handler must be called on the thread that logs; of a ``QueueHandler`` and its listener, that is the
    ``QueueHandler``.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record does not have; let it pass."""
        known = vars(record)
        if not all(name in known for name in FIELDS):
            # The record is made on the thread that logs, and so is this call.
            for name, value in _current_fields(record.name).items():
                known.setdefault(name, value)
        return True


def fields_of(fragment: Composition, operator: str = "") -> dict[str, str]:
    """Return the fields of a record that a run makes, for ``extra=``."""
    cut = fragment._headrace.cut  # the part of it that runs in this process
    return {
        "operator": operator,
        "fragment": fragment.name if cut is None else cut.part,
        "run": fragment._headrace.run_id,
    }


def _current_fields(logger: str) -> dict[str, str]:
    operator = _operator_on_the_stack()
    if operator is not None:
        return fields_of(operator.fragment, operator.name)
    name = logger.removeprefix(_OPERATOR_LOGGERS) if logger.startswith(_OPERATOR_LOGGERS) else ""
    running = list(RUNNING)
    if len(running) == 1:
        return fields_of(running[0], name)
    return {"operator": name, "fragment": "", "run": ""}


def _operator_on_the_stack() -> Operator | None:
    """Return the operator whose method this thread is in; of several, the one that the run called."""
    from headrace.core.operator import Operator

    found: Operator | None = None
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            first = frame.f_locals.get(code.co_varnames[0])
            # The node of an input, by the type of the attribute: classes of the runtime are not known here.
            owner = first if isinstance(first, Operator) else getattr(_node_of(first), "operator", None)
            if isinstance(owner, Operator):
                found = owner
        frame = frame.f_back
    return found


def _node_of(value: Any) -> Any:
    """Return the node of what may be the input of an operator, without running any code of the program."""
    kind = type(value)
    if kind.__name__ == "InputContext" and kind.__module__.startswith("headrace."):
        return value._node
    return None
