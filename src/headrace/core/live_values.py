"""LiveValues: parameters of an operator that may be changed while it runs.

A change from any thread is checked at once, in the thread that makes it, and stored. It takes effect when the next
compute of the operator begins, on the thread that runs it: a compute sees one value from its beginning to its end.
Only the compute of an operator with live parameters is wrapped for this; the others cost nothing. Outside of a run,
a change takes effect at once.

Compose creates operators anew for each run. A change that is made outside of a run is therefore remembered under
the name of the operator, and given to the operator of that name in later runs. A change in the middle of a run is
over with the run, so that the same program does the same in its next run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.core.errors import ParameterError, choices

if TYPE_CHECKING:
    from headrace.core.operator import Operator
    from headrace.core.parameter import Parameter

__all__ = ["LiveValues"]


class LiveValues:
    """The live parameters of one operator, and the changes that wait for its next compute.

    Attributes
    ----------
    parameters
        The live parameters, by name.
    begin
        Called when a compute begins, after the changes; None if there is nothing to do.
    """

    __slots__ = ("_is_in_run", "_lock", "_operator", "_waiting", "begin", "parameters")

    def __init__(self, operator: Operator, parameters: dict[str, Parameter]) -> None:
        self.parameters = parameters
        self._operator = operator
        # Held while a value is set outside of a run, so that no run begins in the middle of that. A setter of the
        # program may set further values meanwhile, so the thread that holds it may take it again.
        self._lock = threading.RLock()
        # Changed under the lock; the operator's compute looks at it without.
        self._waiting: dict[str, Any] = {}
        self._is_in_run = False
        self.begin: Callable[[], None] | None = None

    # From any thread.

    def set(self, name: str, value: Any) -> None:
        """Change a parameter; raise ParameterError, and change nothing, if the value is wrong."""
        operator = self._operator
        owner = f"operator {operator.name!r}"
        parameter = self.parameters.get(name)
        if parameter is None:
            if name in operator.spec.params:
                raise ParameterError(
                    f"parameter {name!r} of {owner} is not live: setup declares that by "
                    f"spec.param({name!r}, ..., live=True)"
                )
            raise ParameterError(
                f"{owner} has no live parameter {name!r}; it has {choices(self.parameters, name)}"
            )
        checked = parameter.check(value, owner)
        if name in operator._knobs.types:
            operator._knobs.check(name, checked)
        fragment = operator.fragment
        with self._lock:
            if self._is_in_run:
                self._waiting[name] = checked
                return
            if not fragment._is_composing_here:  # otherwise compose will make the change again
                fragment._live_values[operator.name, name] = checked
            setattr(operator, name, checked)

    def get(self, name: str) -> Any:
        """Return the value that the next compute will see."""
        waiting = self._waiting.get(name, _NOTHING)
        return getattr(self._operator, name, None) if waiting is _NOTHING else waiting

    # By a run.

    def recall(self) -> None:
        """Take on the values that were set before the run."""
        remembered = self._operator.fragment._live_values
        for name, parameter in self.parameters.items():
            if (self._operator.name, name) in remembered:
                value = remembered[self._operator.name, name]
                # Checked again: compose may have created another kind of operator under this name.
                setattr(self._operator, name, parameter.check(value, f"operator {self._operator.name!r}"))

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute that begins with the changes made since the last one; changes now wait for it."""
        waiting, apply = self._waiting, self.apply
        self.begin = None
        with self._lock:
            self._is_in_run = True

        def compute_with_changes(op_input: Any, op_output: Any, context: Any) -> None:
            if waiting:
                apply()
            if self.begin is not None:
                self.begin()
            compute(op_input, op_output, context)

        return compute_with_changes

    def apply(self) -> None:
        """Apply the changes that wait."""
        if self._waiting:
            self._apply()

    def end_run(self) -> None:
        """Apply the changes that are left: there will be no more computes."""
        try:
            self._apply()
        finally:
            with self._lock:
                self._is_in_run = False
                self._waiting.clear()

    def _apply(self) -> None:
        # A setter of the program may set further values, which take effect in the next round: setters that set each
        # other's values in turn are done after as many rounds as there are parameters. Those that do so in a circle
        # go on with the next compute.
        for _ in range(len(self.parameters) + 1):
            with self._lock:
                changes = list(self._waiting.items())
            if not changes:
                return
            for name, value in changes:
                # Not under the lock: a setter may wait for a thread that sets a value itself.
                try:
                    setattr(self._operator, name, value)
                finally:
                    with self._lock:
                        if self._waiting.get(name, _NOTHING) is value:
                            del self._waiting[name]


_NOTHING = object()
