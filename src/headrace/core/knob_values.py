"""KnobValues: the values that a program sets for the knobs of an operator, from any thread.

The value of a knob is that of the operator's attribute of the same name, such as a parameter. If there is none, it
is what `Operator.set_knob` set last. The run reads it (`_runtime/streams/knobs`) when a compute, or a frame of a
segment, begins. So setting a value is one assignment to a dict, which CPython makes atomic.

As with live parameters, a value that is set outside of a run is remembered under the name of the operator, for the
operators that compose creates for later runs. A value that is set in a run is over with the run.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from headrace.core.errors import ParameterError, choices
from headrace.core.knob_types import check_number

if TYPE_CHECKING:
    from headrace.core.knob_types import KnobType
    from headrace.core.operator import Operator

__all__ = ["KnobValues"]


class KnobValues:
    """What the knobs of one operator were set to.

    Attributes
    ----------
    given
        The values that were set, by name. Any thread adds to it.
    types
        The types of the knobs that the run has, by name. The operator's computes add to it.
    are_known
        Whether a compute has asked for knobs and is over, so that other names are mistakes.
    is_in_run
        Whether computes may be in progress, so that values are those of this run alone.
    """

    __slots__ = ("_operator", "are_known", "given", "is_in_run", "types")

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.given: dict[str, Any] = {}
        self.types: dict[str, KnobType] = {}
        self.are_known = False
        self.is_in_run = False

    # From any thread.

    def set(self, name: str, value: Any) -> None:
        """Set a knob; raise ParameterError, and change nothing, if the name or the value is wrong."""
        operator = self._operator
        where = f"operator {operator.name!r}"
        if not isinstance(name, str) or not name:
            raise ParameterError(f"{where}: the name of a knob must be a non-empty str, not {name!r}")
        if name in operator.live_parameters:
            operator.set_live(name, value)
            return
        if getattr(operator._parameters, name, None) is not None:
            what, remedy = "attribute", f"assign the attribute, or give the knob another name than {name!r}"
            if name in operator.spec.params:
                what, remedy = "parameter", f"declare it as live: spec.param({name!r}, ..., live=True)"
            raise ParameterError(
                f"{where}: knob {name!r} follows the {what} of that name, and set_knob does not change it; {remedy}"
            )
        if self.are_known and name not in self.types:
            raise ParameterError(f"{where} has no knob {name!r}; it has {choices(self.types, name)}")
        self.check(name, value)
        self.given[name] = value
        fragment = operator.fragment
        if not self.is_in_run and not fragment._is_composing_here:  # otherwise compose will set it again
            fragment._knob_values[operator.name, name] = value

    def check(self, name: str, value: Any) -> None:
        """Raise ParameterError if a knob cannot have a value; if there is no such knob yet, if none could."""
        known = self.types.get(name)
        try:
            if known is None:
                check_number(value)
            else:
                known.encode(value)
        except ValueError as error:
            raise ParameterError(f"knob {name!r} of operator {self._operator.name!r}: {error}") from None

    # By a run.

    def recall(self) -> None:
        """Take on the values that were set before the run."""
        for (operator, name), value in list(self._operator.fragment._knob_values.items()):
            if operator == self._operator.name:
                self.given[name] = value

    def know_names(self) -> None:
        """Take other names for mistakes from now on; raise ParameterError if one was set already."""
        self.are_known = True
        for name in list(self.given):
            if name not in self.types:
                raise ParameterError(
                    f"set_knob({name!r}, ...) was called for operator {self._operator.name!r}, which has no knob "
                    f"{name!r}; it has {choices(self.types, name)}"
                )

    def end_run(self, computes: int) -> None:
        """Forget the knobs of a run, which go with it; warn of values that none of its computes asked for."""
        has_none = not self.types
        self.is_in_run = self.are_known = False
        self.types.clear()
        if has_none and self.given and computes:
            warnings.warn(
                f"set_knob({next(iter(self.given))!r}, ...) of operator {self._operator.name!r} changed nothing: "
                "its compute asks for no knob (context.knob)",
                stacklevel=2,
            )
