"""Reachable: the code that the compute of an operator may run, and the names that this code uses.

Whatever compute reads it reads through a name: an attribute, a variable of its module, a variable of a function
around it. So the state that a recording depends on is found by the names in the code of compute and of the
functions and methods that it may call. Text in the code counts as names as well, for ``getattr``.

Code of array libraries and of penstock is not looked at: what it keeps is not the program's.
"""

from __future__ import annotations

import dis
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.operator import Operator

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment

__all__ = ["OF_THE_RUN", "Reachable", "attributes_of", "inside", "is_foreign", "is_plain"]

OF_THE_RUN = frozenset(
    {
        *("_explicit", "_incoming", "_knobs", "_live", "_metadata_enabled", "_node", "_outgoing", "_policy"),
        *("_resume", "_stop_wanted", "args", "compute", "conditions", "declared", "fragment", "logger"),
        *("max_in_flight", "metadata", "name", "resources", "spec"),
    }
)
"""Attributes of operators that the runtime changes, or that belong to the whole application."""

_MOST_FUNCTIONS = 200
_MOST_OBJECTS = 2_000
_LIBRARIES = frozenset(
    {"cupy", "cupyx", "torch", "numpy", "jax", "jaxlib", "numba", "numba_cuda", "cuda", "penstock", "scipy"}
)
# Of the standard library only these objects are looked at, with the names of their attributes.
_PLAIN_OBJECTS = {
    "Event": ("_flag",),
    "UserDict": ("data",),
    "UserList": ("data",),
    "ChainMap": ("maps",),
    "ConfigParser": ("_sections", "_defaults"),
    "RawConfigParser": ("_sections", "_defaults"),
    "SectionProxy": ("_parser",),
    "SimpleNamespace": (),
    "Namespace": (),
}
# Operators that come with penstock are looked at as those of a program.
_PROGRAMS = ("penstock.operators.", "penstock.inference.", "penstock.viewer.", "penstock.video.")
_METHODS = (types.MethodType, types.BuiltinMethodType)


class Reachable:
    """What the compute of one operator may use.

    Attributes
    ----------
    names
        The names and texts in its code.
    written
        The names to which its code assigns; None if it may assign to any.
    functions
        Its functions and methods, compute first.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.names: set[str] = set()
        self._written: set[str] = set()
        self.functions: dict[types.FunctionType, None] = {}
        self._types: dict[type, None] = {}
        self._objects: set[int] = set()
        self._add_function(operator.compute, is_first=True)
        self._add_type(type(operator))
        kept = [value for name, value in vars(operator).items() if name not in OF_THE_RUN]
        self._find_functions(kept)

    @property
    def written(self) -> set[str] | None:
        """The names to which its code assigns; None if it may assign to any."""
        return None if self.names & _ANY_ASSIGNMENT else self._written

    def fragment(self) -> Fragment | None:
        """Return the operator's fragment if compute may read it."""
        return self.operator.fragment if "fragment" in self.names else None

    def _add_function(self, function: Any, is_first: bool = False) -> None:
        if isinstance(function, partial):
            self._find_functions([function.func, *function.args, *function.keywords.values()])
            return
        if isinstance(function, _METHODS):
            self._find_functions([function.__self__])
        function = getattr(function, "__func__", function)
        if not isinstance(function, types.FunctionType) or function in self.functions:
            return
        if not is_first and (is_foreign(function.__module__) or len(self.functions) >= _MOST_FUNCTIONS):
            return
        self.functions[function] = None
        new = _names_in(function.__code__) - self.names
        self.names |= new
        self._written |= _written_in(function.__code__)
        for kind in list(self._types):
            self._add_methods(kind, new)
        found = [function.__globals__[name] for name in new if name in function.__globals__]
        found += [function for module in self.modules(new) for function in _functions_in(module, self.names)]
        found += [contents_of(cell) for cell in function.__closure__ or ()]
        found += function.__defaults__ or ()
        found += (function.__kwdefaults__ or {}).values()
        self._find_functions(found)

    def modules(self, names: Iterable[str]) -> list[types.ModuleType]:
        """Return the modules that code may import by these names."""
        found = [sys.modules[name] for name in names if name in sys.modules and not is_foreign(name)]
        return [module for module in found if isinstance(module, types.ModuleType)]

    def _add_type(self, kind: type) -> None:
        if kind in self._types or is_foreign(kind.__module__):
            return
        self._types[kind] = None
        self._add_methods(kind, self.names | _CALLED_UNNAMED)

    def _add_methods(self, kind: type, names: Iterable[str]) -> None:
        for name in tuple(names):
            for base in kind.__mro__:
                found = base.__dict__.get(name)
                if found is None or is_foreign(base.__module__) or _is_generated(found):
                    continue
                if isinstance(found, property):
                    for function in (found.fget, found.fset):
                        self._add_function(function)
                else:
                    self._add_function(getattr(found, "__func__", found))

    def _find_functions(self, objects: list[Any]) -> None:
        """Add the functions and the types of objects, and of what is in them."""
        queue = list(objects)
        while queue:
            item = queue.pop()
            if id(item) in self._objects or len(self._objects) >= _MOST_OBJECTS:
                continue
            self._objects.add(id(item))
            if isinstance(item, (types.FunctionType, partial, *_METHODS)):
                self._add_function(item)
            elif isinstance(item, type):
                self._add_type(item)
            elif not isinstance(item, types.ModuleType):
                kind = type(item)
                if kind.__name__ in _PLAIN_OBJECTS:
                    self.names.update(_PLAIN_OBJECTS[kind.__name__])
                if kind is not type(self.operator):
                    self._add_type(kind)
                queue += [part for _, part in inside(item)]


def is_foreign(module: str | None) -> bool:
    """Return whether a module belongs to a library whose state is not the program's."""
    if module is None:
        return True
    top = module.partition(".")[0]
    return (top in _LIBRARIES and not module.startswith(_PROGRAMS)) or top in sys.stdlib_module_names


def contents_of(cell: Any) -> Any:
    """Return what a variable of a function around refers to; None if it is not set."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def inside(item: Any) -> list[tuple[str, Any]]:
    """Return what is in a container or an object, and what each is called there."""
    if isinstance(item, dict):
        return [(f"[{key!r}]", value) for key, value in list(item.items())]
    if isinstance(item, types.MappingProxyType):
        return [(f"[{key!r}]", value) for key, value in item.items()]
    if isinstance(item, (list, tuple, set, frozenset, deque)):
        return [("[...]", value) for value in list(item)]
    if isinstance(item, weakref.ref):
        return [("()", item())]
    if isinstance(item, (Operator, type, types.ModuleType, types.FunctionType)) or not is_plain(item):
        return []
    return [(f".{name}", value) for name, value in attributes_of(item).items()]


def is_plain(item: Any) -> bool:
    """Return whether the attributes of an object are state of the program."""
    kind = type(item)
    return not is_foreign(kind.__module__) or (
        kind.__name__ in _PLAIN_OBJECTS and kind.__module__.partition(".")[0] in sys.stdlib_module_names
    )


def attributes_of(item: Any) -> dict[str, Any]:
    """Return the attributes of an object, in its dict and in its slots."""
    found: dict[str, Any] = {}
    for base in type(item).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{base.__name__.lstrip('_')}{name}"
            try:
                found[name] = getattr(item, name)
            except AttributeError:
                continue
    attributes = getattr(item, "__dict__", None)
    if isinstance(attributes, dict):
        found.update(attributes)
    return found


def _names_in(code: types.CodeType) -> set[str]:
    """Return the names and the texts in code and in the functions inside it."""
    found = {sys.intern(name) for name in (*code.co_names, *code.co_freevars)}
    constants = list(code.co_consts)
    while constants:
        constant = constants.pop()
        if isinstance(constant, types.CodeType):
            found |= _names_in(constant)
        elif isinstance(constant, (tuple, frozenset)):
            constants += constant
        elif isinstance(constant, str) and len(constant) < 200:
            found.update(part for part in constant.split(".") if part.isidentifier())
    return found


def _written_in(code: types.CodeType) -> set[str]:
    """Return the names that code assigns to or deletes, and functions inside it."""
    found = {one.argval for one in dis.get_instructions(code) if one.opname in _ASSIGNMENTS}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _written_in(constant)
    return found


def _is_generated(function: Any) -> bool:
    """Return whether a dataclass wrote a method: it names every field, whether compute uses it or not."""
    return isinstance(function, types.FunctionType) and function.__code__.co_filename == "<string>"


def _functions_in(module: types.ModuleType, names: Iterable[str]) -> list[Any]:
    return [vars(module)[name] for name in tuple(names) if name in vars(module)]


_ASSIGNMENTS = frozenset(
    {
        *("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"),
        *("STORE_NAME", "DELETE_NAME"),
    }
)
# With these, code may assign to names that it does not spell out.
_ANY_ASSIGNMENT = frozenset(
    {"__delattr__", "__dict__", "__setattr__", "delattr", "eval", "exec", "globals", "setattr", "vars"}
)
# Methods that the interpreter calls for operators, built-in functions and statements.
_CALLED_UNNAMED = frozenset(
    f"__{prefix}{name}__"
    for names, prefixes in (
        ("add and floordiv lshift matmul mod mul or pow rshift sub truediv xor", ("", "r", "i")),
        ("abs array bool bytes call ceil complex contains delitem divmod enter eq exit float floor", ("",)),
        ("format ge get getattr getattribute getitem gt hash index int invert iter le len", ("",)),
        ("length_hint lt missing ne neg next pos rdivmod reversed round setitem str", ("",)),
        ("trunc", ("",)),
    )
    for name in names.split()
    for prefix in prefixes
)
