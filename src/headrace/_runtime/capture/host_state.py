"""Host state: what an operator keeps on the host, which a recording cannot follow.

A recorded graph repeats the work of one compute, with the values and addresses of that compute. If compute changes
what the operator keeps (a counter, the previous frame), or if somebody else changes what compute reads (a gain),
the graph would go on with the old state. So the state is compared: in full before and after the compute that is
recorded, and most of it again for every frame that is replayed. A compute that was recorded in vain has not taken
place: everything is put back.

The state is what the operator's attributes, the variables around compute, those of its modules and those of other
objects refer to, under names that its code uses (`reachable`), through containers and plain objects. Contents of
arrays of the device do not count: work on the device changes them, and a recording repeats that.

What is read through an object may be in its class: both are compared. No code of the program runs for that; of a
descriptor or a property it is the object itself, and what its code names, that is compared.

What cannot be compared (an iterator, a file, a queue) moves on with every compute. An operator that uses it is
refused before anything of it is lost.
"""

from __future__ import annotations

import builtins
import inspect
import io
import queue
import sys
import types
from collections import deque
from collections.abc import Iterator
from functools import partial
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.device_arrays import kind_of
from headrace._runtime.capture.places import Absent, Cell, Place, State, Variables, is_equal, place_of
from headrace._runtime.capture.reachable import (
    CONTAINERS,
    LARGE,
    OF_THE_RUN,
    PLAIN,
    Reachable,
    attributes_of,
    inside,
    is_foreign,
    is_plain,
)
from headrace._runtime.capture.refusal import Refusal
from headrace.core.fragment import Fragment
from headrace.core.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

__all__ = ["Attributes", "HostState", "too_much"]

_MOST = 2_000  # objects that are looked at
_PLACES = 256  # containers and arrays of an operator that are compared for every frame
_VALUES = 2_048  # values of an operator that are compared for every frame
_NOT_STATE = (
    *(types.ModuleType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
    *(property, classmethod, staticmethod),
)
# Of variables or attributes; an object may be of a class of dict, too.
_DICTS = (dict, types.MappingProxyType)
_OPAQUE = (Iterator, io.IOBase, queue.Queue, queue.SimpleQueue)
# With these, code may read attributes that it does not name.
_ANY_NAME = frozenset({"__dict__", "attrgetter", "eval", "exec", "getattr", "vars"})
# With these, code may find out that there is no attribute or variable of a name.
_MAY_LACK = _ANY_NAME | {"AttributeError", "Exception", "NameError", "globals", "hasattr"}
_OF_FRAGMENTS = frozenset(Fragment.__init__.__code__.co_names)


class HostState:
    """The full state of one operator on the host, at one moment.

    Attributes
    ----------
    operator
        The operator.
    arrays
        The arrays of the device that it refers to, with what a program calls them.
    absent
        The names that its code uses and that are not there, where it may find that out.
    names
        The names that its code uses.
    opaque
        What cannot be compared, as a program calls it, and what it is; empty texts if there is no such thing.
    excess
        What there is too much of, so that not all of it was looked at; an empty text if there is no such thing.
    needed
        The number of places that the code names; those behind it belong to libraries, or it may not use them.
    """

    def __init__(self, operator: Operator) -> None:
        self.arrays: list[tuple[str, Any]] = []
        self.opaque = ("", "")
        self.places: list[Place] = []
        self.absent: list[Place] = []
        self.operator = operator
        self._reachable = Reachable(operator)
        self.excess = self._reachable.excess
        self.names = self._reachable.names
        self._seen: set[int] = {id(operator)}
        self._generators: set[str] = set()  # modules with random numbers
        self._kept: list[Any] = []  # so that no identity is used again
        self._count = 0  # of objects that were looked at
        self._queue: deque[tuple[str, Any]] = deque()
        self._later: deque[tuple[str, Any]] | None = deque()
        self._called: dict[int, str] = {}  # what waits there
        self._look_at_operator()
        for function in self._reachable.functions:
            self._look_at_function(function)
        for module in self._reachable.modules(self.names):
            self._look_at_module(module.__name__, module)
        self._look_at_others()
        self._walk()
        self.needed = len(self.places)
        # What belongs to libraries, and what the code does not name, is looked at as far as there is room.
        self._queue, self._later = self._later, None
        self._walk()

    def changed(self, ignored: Container[str] = ()) -> str:
        """Return what compute has changed since, as ``self.count``; an empty text if nothing that is not ignored.

        What somebody else has changed meanwhile does not count: the next frame finds it.
        """
        for place in self.places:
            if not place.is_same():
                what = (
                    place.difference(self._left_alone(place, ignored))
                    if isinstance(place, Variables)
                    else place.difference()
                )
                if what:
                    return what
        return ""

    def restore(self, ignored: Container[str] = ()) -> None:
        """Put everything back that compute has changed, except ignored attributes."""
        for place in self.places:
            if not place.is_same():
                if isinstance(place, Variables):
                    place.restore(self._left_alone(place, ignored))
                else:
                    place.restore()

    def _left_alone(self, place: Variables, ignored: Container[str]) -> Container[str]:
        """Return the names to which the code of compute does not assign, or that are to be ignored."""
        written = self._reachable.written
        if type(place.owner).__module__.partition(".")[0] in sys.stdlib_module_names and not isinstance(
            place.owner, (type, dict, types.CellType)
        ):
            written = None  # by code that was not looked at
        return _Names(written, ignored if place is self._own else ())

    # Where compute begins to read.

    def _look_at_operator(self) -> None:
        operator = self.operator
        known = vars(operator)
        names = [name for name in list(known) if name not in OF_THE_RUN]
        self._own = Variables("self.", operator, known, names, known.__setitem__, OF_THE_RUN)
        self._add(self._own)
        self._add_absent("self.", known, OF_THE_RUN)
        self._queue += [(f"self.{name}", known[name]) for name in names]
        for base in type(operator).__mro__:
            if base is Operator:
                break
            self._look_at_class(base)

    def _look_at_function(self, function: types.FunctionType) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            if id(cell) in self._seen:
                continue
            try:
                self._queue.append((name, cell.cell_contents))
            except ValueError:  # not set yet
                continue
            self._see(cell)
            self._add(Cell(name, cell))
        self._queue += [(f"a default of {function.__name__}", item) for item in function.__defaults__ or ()]
        for name, item in (function.__kwdefaults__ or {}).items():
            self._queue.append((f"the default {name!r} of {function.__name__}", item))
        if vars(function):
            self._queue.append((function.__name__, vars(function)))
        self._look_at_variables("", function.__globals__)

    def _look_at_variables(self, label: str, variables: dict[str, Any]) -> None:
        """Look at the variables of a module that the code names."""
        if id(variables) in self._seen:
            return
        self._see(variables)
        found = {name: variables[name] for name in self.names if name in variables}
        kept = [name for name, value in found.items() if _is_state(value) or _may_be_another(value)]
        self._add(Variables(label, variables, variables, kept, variables.__setitem__))
        self._add_absent(label, variables, vars(builtins))
        for name, value in found.items():
            if isinstance(value, types.ModuleType):
                self._look_at_module(name, value)
            elif isinstance(value, type):
                self._look_at_class(value)
            else:
                self._queue.append((label + name, value))

    def _look_at_module(self, name: str, module: types.ModuleType) -> None:
        top = module.__name__.partition(".")[0]
        if top in self._generators:
            return
        if top == "random":
            self._generators.add(top)
            import random

            self._add(State("the random numbers of 'random'", random.getstate, random.setstate))
        elif top == "numpy" and "random" in self.names:
            self._generators.add(top)
            from numpy.random import get_state, set_state

            self._add(State("the random numbers of NumPy", get_state, set_state))
        elif not is_foreign(module.__name__):
            self._look_at_variables(f"{name}.", vars(module))

    def _look_at_class(self, kind: type) -> None:
        if (
            is_foreign(kind.__module__)
            or id(kind) in self._seen
            or kind.__module__ in sys.stdlib_module_names
        ):
            return
        self._see(kind)
        known = vars(kind)
        names = [name for name in known if name in self.names and _is_state(known[name])]
        if names:
            self._add(Variables(f"{kind.__name__}.", kind, known, names, partial(setattr, kind)))
            self._queue += [(f"{kind.__name__}.{name}", known[name]) for name in names]

    def _look_at_others(self) -> None:
        """Look at the fragment and at other operators, if compute can reach them."""
        fragment = self._reachable.fragment()
        if fragment is not None:
            self._look_at_attributes("self.fragment", fragment, _OF_FRAGMENTS)
        if "find_operator" in self.names:
            for other in self.operator.fragment.graph:
                if other.name in self.names:
                    self._queue.append((f"find_operator({other.name!r})", other))

    # Everything behind.

    def _walk(self) -> None:
        waiting = self._queue
        while waiting:
            label, item = waiting.popleft()
            if type(item) in PLAIN or id(item) in self._seen:
                continue
            if type(item) in (tuple, frozenset) and all(type(part) in PLAIN for part in item):
                continue  # they are compared by value
            if self._later is not None and self._is_for_later(label, item):
                self._later.append((label, item))
                self._called.setdefault(id(item), label)
                continue
            label = self._called.get(id(item), label)
            if self._count >= _MOST:
                if self._later is not None:
                    self.excess = self.excess or f"more than {_MOST} objects, as in {label}"
                return
            self._see(item)
            if isinstance(item, _OPAQUE):
                if not self.opaque[0] and self._is_named(label):
                    self.opaque = (label, type(item).__name__)
                continue
            if kind_of(item) is not None:
                self.arrays.append((label, item))
                continue
            self._count += 1
            place = place_of(label, item)
            if place is not None:
                self._add(place)
            if isinstance(item, types.FunctionType):
                if vars(item):
                    waiting.append((label, vars(item)))
            elif isinstance(item, partial):
                waiting.extend([(label, part) for part in (item.args, item.keywords, item.func)])
            elif isinstance(item, types.MethodType):
                waiting.append((label, item.__self__))
            elif isinstance(item, Operator):
                self._look_at_attributes(label, item, OF_THE_RUN)
            elif isinstance(item, type):
                self._look_at_class(item)
            elif isinstance(item, types.ModuleType):
                self._look_at_module(label, item)
            elif _is_torch_module(item):
                self.arrays += [(f"{label}.{name}", array) for name, array in item.named_parameters()]
                self.arrays += [(f"{label}.{name}", array) for name, array in item.named_buffers()]
            else:
                self._look_inside(label, item)

    def _is_for_later(self, label: str, item: Any) -> bool:
        """Return whether an object is of a library, or is kept by the operator under a name that is not used."""
        if not self._is_named(label) and _first_name(label) not in self.operator.spec.params:
            return True
        # Arrays and models are not looked into, and are state whoever wrote them.
        return (
            self._reachable.is_of_library(type(item).__module__)
            and is_plain(item)
            and not _is_torch_module(item)
        )

    def _look_inside(self, label: str, item: Any) -> None:
        """Look at a container, an object, or a container that has attributes, too."""
        if isinstance(item, CONTAINERS):
            parts = [(label + name, part) for name, part in inside(item)]
            (self._queue if self._later is None or len(parts) <= LARGE else self._later).extend(parts)
        if is_plain(item) and not isinstance(item, _NOT_STATE):
            self._look_at_attributes(label, item, ())

    def _look_at_attributes(self, label: str, item: Any, left_out: Any) -> None:
        """Look at the attributes of an object that the code names."""
        found = attributes_of(item)
        if isinstance(getattr(item, "__dict__", None), dict):
            self._add_absent(f"{label}.", vars(item), left_out)
        names = [
            name
            for name in found
            if name in self.names and name not in left_out and not isinstance(found[name], _NOT_STATE)
        ]
        if names:
            attributes = getattr(item, "__dict__", {})
            source = attributes if all(name in attributes for name in names) else item
            assign = partial(object.__setattr__, item)  # also if its class forbids it
            self._add(Variables(f"{label}.", item, source, names, assign))
            self._queue += [(f"{label}.{name}", found[name]) for name in names]
        self._look_at_defaults(label, item, {*found, *left_out})

    def _look_at_defaults(self, label: str, item: Any, left_out: Container[str]) -> None:
        """Look at what the code reads through an object and its classes have; it may get its own later."""
        kinds = [kind for kind in type(item).__mro__ if not is_foreign(kind.__module__)]
        names = [
            name
            for name in {name: None for kind in kinds for name in vars(kind)}
            if name in self.names and name not in left_out and _is_default(item, name)
        ]
        if names:
            self._add(Variables(f"{label}.", item, item, names, partial(_remove, item)))
        for kind in kinds:
            self._look_at_class(kind)

    def _is_named(self, label: str) -> bool:
        """Return whether the code names an attribute; one that compute does not use does not matter."""
        return not label.startswith("self.") or _first_name(label) in self.names

    def _add(self, place: Place) -> None:
        self.places.append(place)

    def _add_absent(self, label: str, variables: dict[str, Any], left_out: Container[str]) -> None:
        """Note the names that are not there, if code may find that out."""
        if self.names & _MAY_LACK:
            names = [name for name in self.names if name not in variables and name not in left_out]
            if names:
                self.absent.append(Absent(label, variables, names))

    def _see(self, item: Any) -> None:
        self._seen.add(id(item))
        self._kept.append(item)


class _Names:
    """Names that are not written, or that are ignored."""

    __slots__ = ("_ignored", "_written")

    def __init__(self, written: set[str] | None, ignored: Container[str]) -> None:
        self._written = written
        self._ignored = ignored

    def __contains__(self, name: object) -> bool:
        return (self._written is not None and name not in self._written) or name in self._ignored


class Attributes:
    """What the operators of a recording read on the host, as it was when the recording was made.

    It is compared for every frame. So the comparison of the values is one function, which is written here from
    their names; identities are compared first, and values only if one of these has changed. With four attributes an
    operator that costs 0.1 µs, against 1 µs for a loop over the places.
    """

    def __init__(self, states: Iterable[HostState], ignored: dict[str, set[str]]) -> None:
        # Where each value is read: the operator, what a program calls it, the object, the name, and the value.
        self._values: list[tuple[str, str, Any, str, Any]] = []
        self._places: list[tuple[str, Place]] = []
        self._known: set[tuple[int, str]] = set()
        for state in states:
            self._add(state, ignored.get(state.operator.name, ()))
        self._known.clear()
        self._are_identical = self._compile()

    def _add(self, state: HostState, ignored: Container[str]) -> None:
        """Add what one operator reads; raise Refusal if that is too much to be compared for every frame."""
        operator = state.operator
        names = state.names | set(vars(operator)) if state.names & _ANY_NAME else state.names
        values, places = len(self._values), len(self._places)
        for number, place in enumerate(state.places):
            if isinstance(place, Variables):
                self._add_values(operator, place, names, ignored)
            elif place.size <= LARGE and (key := (id(place.what), "")) not in self._known:
                self._known.add(key)
                self._places.append((operator.name, place))
            if number < state.needed:
                _check(operator, len(self._values) - values, _VALUES, "values", place)
                _check(operator, len(self._places) - places, _PLACES, "containers and arrays", place)
        del self._values[values + _VALUES :], self._places[places + _PLACES :]
        self._places += [(operator.name, place) for place in state.absent]

    def _add_values(
        self, operator: Operator, place: Variables, names: Container[str], ignored: Container[str]
    ) -> None:
        for name, value in zip(place.names, place.values, strict=True):
            owner = _read_from(place, name, operator)
            key = (id(place.owner if owner is place.source else owner), name)
            if key in self._known or (owner is operator and name in ignored):
                continue
            if isinstance(place, Cell) or (name in names and not iskeyword(name)):
                self._known.add(key)
                self._values.append((operator.name, place.called(name), owner, name, value))

    def are_unchanged(self) -> bool:
        """Return whether everything is what it was; called for every frame."""
        try:
            if self._are_identical():
                return True
        except (AttributeError, KeyError, ValueError):
            return False
        return not self._find_changed()[0]

    def changed(self) -> tuple[str, str]:
        """Return the operator and what it reads that has changed, such as the name of an attribute."""
        operator, what = self._find_changed()
        return operator, what.removeprefix("self.")

    def _compile(self) -> Callable[[], bool]:
        """Return a function that compares the identity of each value, and the contents of the other places."""
        known: dict[str, Any] = {}
        checks: list[str] = []
        for number, (_, _, owner, name, value) in enumerate(self._values):
            known[f"o{number}"], known[f"v{number}"] = owner, value
            read = f"[{name!r}]" if type(owner) in _DICTS else f".{name}"
            checks.append(f"o{number}{read} is v{number}")
        for number, (_, place) in enumerate(self._places):
            known[f"p{number}"] = place.is_same
            checks.append(f"p{number}()")
        arguments = ", ".join(f"{name}={name}" for name in known)
        exec(f"def are_identical({arguments}): return {' and '.join(checks) or True}", known)
        found: Callable[[], bool] = known["are_identical"]
        return found

    def _find_changed(self) -> tuple[str, str]:
        """Return the operator and the name of what has changed; if nothing has, empty texts."""
        for number, (operator, label, owner, name, value) in enumerate(self._values):
            try:
                now = owner[name] if type(owner) in _DICTS else getattr(owner, name)
            except (KeyError, AttributeError, ValueError):
                return operator, label
            if not is_equal(now, value):
                return operator, label
            self._values[number] = (operator, label, owner, name, now)
        for operator, place in self._places:
            what = place.difference()
            if what:
                return operator, what
        self._are_identical = self._compile()  # with the new identities
        return "", ""


def _first_name(label: str) -> str:
    return label.removeprefix("self.").partition(".")[0].partition("[")[0]


def _is_state(value: Any) -> bool:
    """Return whether a variable of a module or a class is more than a definition."""
    return not isinstance(value, (*_NOT_STATE, types.FunctionType, type))


def _is_default(item: Any, name: str) -> bool:
    """Return whether an object has a value from its classes, which no code computes when it is read."""
    value = inspect.getattr_static(type(item), name, None)
    if not _is_state(value) or _is_descriptor(value):
        return False
    try:
        return getattr(item, name) is value
    except Exception:
        return False


def _is_descriptor(value: Any) -> bool:
    return hasattr(type(value), "__get__")


def _remove(item: Any, name: str, value: Any) -> None:
    """Let an object have the value of its class again."""
    vars(item).pop(name, None)


def _read_from(place: Variables, name: str, operator: Operator) -> Any:
    """Return where a value is read for every frame: code of the program, as in a descriptor, is not to run."""
    owner, source = place.owner, place.source
    if isinstance(owner, type):
        if _is_descriptor(source[name]):
            return source
        # Of the operator itself: an attribute may hide that of its class.
        return operator if owner in type(operator).__mro__ else owner
    if isinstance(source, dict) and source is not owner:
        described = inspect.getattr_static(type(owner), name, None)
        if hasattr(type(described), "__set__"):
            return source
    return owner


def _check(operator: Operator, count: int, most: int, what: str, place: Place) -> None:
    if count > most:
        raise Refusal(
            too_much(operator.name, f"more than {most} {what}, {place.label.rstrip('.')} among them"),
            operator.name,
        )


def too_much(operator: str, what: str) -> str:
    """Return why an operator is refused that uses too much on the host."""
    return (
        f"operator {operator!r} uses {what}, on the host, which is too much to be compared before each replay; "
        "use fewer or smaller containers, a knob or an array on the device, or leave the operator out"
    )


def _may_be_another(value: Any) -> bool:
    """Return whether a variable of a module is a function or a class of the program, which may be replaced."""
    return isinstance(value, (types.FunctionType, type)) and not is_foreign(value.__module__)


def _is_torch_module(item: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(item, torch.nn.Module)
