"""HostAttributes: what operators keep on the host, where a compute is not one of the run.

A compute beside the run's queues (`direct_compute`) may be a rehearsal: what it launches is recorded, and the frame
is computed or replayed afterwards. Then it must leave nothing behind. What it assigned is put back. What it did
elsewhere, in objects and queues that others use too, cannot be put back; whether it changed anything can be told.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from headrace.core.operator import Operator
from headrace.core.parameters import reserved_names
from headrace.tensor.structures import key_of_object


class HostAttributes:
    """The attributes of operators at one moment.

    State that is declared and knobs are left out. Of parameters, only what is in them counts: whoever sets one
    raises a version (`ParameterVersion`).
    """

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._before = [(operator, dict(vars(operator)), _keys_of(operator)) for operator in operators]
        self._contents: dict[tuple[Operator, str], Any] = {
            (operator, name): value.copy()
            for operator, before, _ in self._before
            for name, value in before.items()
            if type(value) in (list, dict, set)
        }

    def changed(self) -> tuple[Operator, str] | None:
        """Return an attribute that is something else now, or None."""
        for operator, before, keys in self._before:
            for name, key in _keys_of(operator).items():
                is_set = vars(operator)[name] is not before.get(name)
                if key != keys.get(name) and not (is_set and name in operator.spec.params):
                    return operator, name
        return None

    def put_back(self) -> None:
        """Let attributes refer to what they referred to, and lists, dicts and sets contain what they contained."""
        for operator, before, keys in self._before:
            now = vars(operator)  # without `__setattr__`: nobody has set a parameter
            for name, key in _keys_of(operator).items():
                contents = self._contents.get((operator, name))
                if name not in before:
                    del now[name]
                elif now[name] is not before[name]:
                    if name not in operator.spec.params:
                        now[name] = before[name]
                elif contents is not None and key != keys[name]:
                    now[name].clear()
                    (now[name].extend if type(contents) is list else now[name].update)(contents)


def _keys_of(operator: Operator) -> dict[str, Hashable]:
    """Return what the attributes of an operator are compared by; state, knobs and headrace's own are left out."""
    others = {*operator.spec.states, *operator._headrace.knobs.types, *reserved_names(Operator)}
    return {name: key_of_object(value) for name, value in vars(operator).items() if name not in others}
