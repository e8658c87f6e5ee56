"""Host state: what an operator keeps on the host, which a recording cannot follow.

A recorded graph repeats the work of one compute, with the values and addresses of that compute. If compute changes
what the operator keeps (a counter, the previous frame), or if somebody else changes what compute reads (a gain),
the graph would go on with the old state. So the state is compared: in full before and after the compute that is
recorded, and the attributes of the operators once for every frame that is replayed.

The full state of an operator is what its attributes, its closure and the variables of its modules that its compute
names refer to, through containers and plain objects. Contents of arrays do not count: work on the device changes
them, and a recording repeats that.
"""

from __future__ import annotations

import types
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.operator import Operator

__all__ = ["Attributes", "HostState"]

_MOST = 2_000
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# Attributes that the runtime changes, or that belong to the whole application.
_OF_THE_RUN = frozenset(
    {
        *(
            "_explicit",
            "_incoming",
            "_live",
            "_metadata_enabled",
            "_node",
            "_outgoing",
            "_policy",
            "_stop_wanted",
        ),
        *(
            "args",
            "conditions",
            "declared",
            "fragment",
            "max_in_flight",
            "metadata",
            "name",
            "resources",
            "spec",
        ),
        *("_resume", "logger", "compute", "_knobs"),
    }
)


class HostState:
    """The full state of one operator on the host, at one moment."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._attributes = {name: value for name, value in vars(operator).items() if name not in _OF_THE_RUN}
        # Everything in it is kept alive, so that no identity is used again.
        self._kept: list[Any] = []
        self._found = self._walk()

    def changed(self, ignored: set[str]) -> str:
        """Return what has changed since, as ``self.count``; an empty text if nothing has but ignored attributes."""
        now = HostState(self._operator)
        if now._found == self._found:
            return ""
        skipped = {f"self.{name}" for name in ignored}
        for name in {**self._found, **now._found}:
            if name not in skipped and self._found.get(name) != now._found.get(name):
                return name
        return ""

    def restore(self, ignored: set[str]) -> None:
        """Set the attributes of the operator to what they were, except some that others may have changed since."""
        now = vars(self._operator)
        for name in [name for name in now if name not in _OF_THE_RUN and name not in self._attributes]:
            if name not in ignored:
                del now[name]
        now.update({name: value for name, value in self._attributes.items() if name not in ignored})

    def _walk(self) -> dict[str, Any]:
        """Return what each root refers to, in a form that can be compared."""
        found = {f"self.{name}": self._shape(value) for name, value in self._attributes.items()}
        compute = vars(self._operator).get("compute") or type(self._operator).compute
        for function in _functions(getattr(compute, "__func__", compute)):
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
                found[name] = self._shape(_contents(cell))
            variables = function.__globals__
            for name in function.__code__.co_names:
                if name in variables and not isinstance(variables[name], _NOT_STATE):
                    found[name] = self._shape(variables[name])
        return found

    def _shape(self, root: Any) -> Any:
        """Return values by value, containers by their contents, and everything else by identity."""
        if type(root) in _PLAIN:
            return (type(root), root)
        self._kept.append(root)
        shape: list[Any] = []
        queue = deque([root])
        seen: set[int] = set()
        while queue and len(seen) < _MOST:
            item = queue.popleft()
            if type(item) in _PLAIN:
                shape.append((type(item), item))
                continue
            shape.append(id(item))
            if id(item) in seen:
                continue
            seen.add(id(item))
            self._kept.append(item)
            queue.extend(_inside(item))
        return shape


class Attributes:
    """The attributes of the operators of a recording, as they were when it was made.

    Attributes
    ----------
    are_unchanged
        Returns whether they still are what they were; called for every frame.
    """

    def __init__(self, operators: list[Operator], ignored: dict[str, set[str]]) -> None:
        self._operators = operators
        self._ignored = ignored
        self._names: list[list[str]] = []
        self._values: list[Any] = []
        self._copies: list[tuple[Any, Any]] = []
        self._checks: list[tuple[Operator, dict[str, Any], int, Callable[[Any], Any], Any]] = []
        for operator in operators:
            known = vars(operator)
            skipped = _OF_THE_RUN | ignored.get(operator.name, set())
            names = sorted(name for name in known if name not in skipped)
            self._names.append(names)
            self._copies += [(known[name], _copy(known[name])) for name in names if _is_small(known[name])]
            if names:
                # A second name makes it a tuple, whose items are compared by identity first.
                get = attrgetter(*names, names[0])
                self._checks.append((operator, known, len(known), get, get(operator)))
            else:
                self._checks.append((operator, known, len(known), _nothing, ()))

    def are_unchanged(self) -> bool:
        """Return whether every attribute is what it was; containers are compared by their contents."""
        try:
            for operator, known, count, get, values in self._checks:
                if len(known) != count or get(operator) != values:
                    return False
            for container, copied in self._copies:
                if container != copied:
                    return False
        except Exception:  # arrays that were replaced do not compare to a truth value
            return False
        return True

    def changed(self) -> tuple[str, str]:
        """Return the operator and the attribute that has changed."""
        for (operator, _, _, _, values), names in zip(self._checks, self._names, strict=True):
            now = vars(operator)
            for name, value in zip(names, values, strict=False):
                if name not in now:
                    return operator.name, name
                if not _is_same(now[name], value):
                    return operator.name, name
            skipped = _OF_THE_RUN | self._ignored.get(operator.name, set())
            new = [name for name in now if name not in names and name not in skipped]
            if new and len(now) != self._counts(operator):
                return operator.name, new[0]
        for operator, names in zip(self._operators, self._names, strict=True):
            for name in names:
                for container, copied in self._copies:
                    if container is vars(operator).get(name) and not _is_same_contents(container, copied):
                        return operator.name, name
        return self._operators[0].name, "?"

    def _counts(self, wanted: Operator) -> int:
        return next(count for operator, _, count, _, _ in self._checks if operator is wanted)


def _nothing(operator: Any) -> tuple[()]:
    return ()


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:
        return False


def _is_same_contents(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:
        return False


def _is_small(value: Any) -> bool:
    """Return whether it is a container of a few plain values, whose contents are compared for every frame."""
    if type(value) not in (list, dict, set, deque) or len(value) > 32:
        return False
    items = value.values() if type(value) is dict else value
    return all(type(item) in _PLAIN for item in items)


def _copy(value: Any) -> Any:
    return value.copy()


_NOT_STATE = (
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, types.MethodType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType),
)


def _functions(function: Any) -> list[types.FunctionType]:
    """Return a function and those that it was made of: what a partial calls, and functions in closures."""
    found: list[types.FunctionType] = []
    queue = [function]
    while queue and len(found) < 16:
        item = queue.pop()
        item = getattr(item, "func", item)
        item = getattr(item, "__func__", item)
        if isinstance(item, types.FunctionType) and item not in found:
            found.append(item)
            queue += [_contents(cell) for cell in item.__closure__ or ()]
    return found


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return [part for pair in item.items() for part in pair]
    if isinstance(item, (list, tuple, set, frozenset, deque)):
        return list(item)
    kind = type(item)
    if kind.__module__.startswith(("penstock.core.", "penstock._runtime.", "penstock.resources.")):
        return []
    if kind.__module__.partition(".")[0] in ("cupy", "torch", "numpy", "jax", "numba", "cuda", "penstock"):
        return []
    if isinstance(item, _NOT_STATE):
        return []
    attributes = getattr(item, "__dict__", None)
    return list(attributes.values()) if isinstance(attributes, dict) else []
