"""Reachable: the code that the compute of an operator may run, and the names that this code uses.

Whatever compute reads it reads through a name: an attribute, a variable of its module, a variable of a function
around it. So the state that a recording depends on is found by the names in the code of compute and of the
functions and methods that it may call. Text in the code counts as names as well, for ``getattr``.

Code of array libraries and of headrace is not looked at: what it keeps is not the program's. That of other
libraries that were installed, and what is kept under names that the code does not use, comes last, as far as there
is room. If there is too much of the rest, `excess` says so.
"""

from __future__ import annotations

import dis
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterable
from functools import _lru_cache_wrapper, cached_property, partial, partialmethod
from typing import TYPE_CHECKING, Any

from headrace.core.operator import Operator

if TYPE_CHECKING:
    from headrace.core.fragment import Fragment

__all__ = [
    *("CONTAINERS", "LARGE", "OF_THE_RUN", "PLAIN", "Reachable", "attributes_of", "inside"),
    *("is_foreign", "is_plain"),
]

OF_THE_RUN = frozenset(
    {
        *("_explicit", "_incoming", "_knobs", "_live", "_metadata_enabled", "_node", "_outgoing", "_policy"),
        *(
            "_resume",
            "_stop_wanted",
            "_values",
            "args",
            "compute",
            "conditions",
            "declared",
            "fragment",
            "logger",
        ),
        *("max_in_flight", "metadata", "name", "resources", "spec"),
    }
)
"""Attributes of operators that the runtime changes, or that belong to the whole application."""

PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
CONTAINERS = (dict, list, tuple, set, frozenset, deque, types.MappingProxyType, weakref.ref)
LARGE = 4_096
"""Bytes or values that are not compared for every frame."""

_MOST_FUNCTIONS = 1_000
_MOST_OF_LIBRARIES = 200  # functions, with those of the program
_MOST_OBJECTS = 2_000
_LIBRARIES = frozenset(
    {"cupy", "cupyx", "torch", "numpy", "jax", "jaxlib", "numba", "numba_cuda", "cuda", "headrace", "scipy"}
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
    "SynchronizedBase": ("_obj",),  # multiprocessing.Value and Array
    "WeakKeyDictionary": ("data",),
    "WeakSet": ("data",),
    "WeakValueDictionary": ("data",),
}
# Operators that come with headrace are looked at as those of a program.
_PROGRAMS = ("headrace.operators.", "headrace.inference.", "headrace.viewer.", "headrace.video.")
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
    named
        Those that the code names; the others belong to libraries, or are kept where it does not look.
    of_others
        Those that are methods of objects other than the operator.
    excess
        What there is too much of, so that not all of it was followed; an empty text if there is no such thing.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.names: set[str] = set()
        self.excess = ""
        self.functions: dict[types.FunctionType, None] = {}
        self.of_others: set[types.FunctionType] = set()
        self._written: set[str] = set()
        self._types: dict[type, None] = {}
        self._objects: dict[int, Any] = {}  # kept meanwhile, so that no identity is used again
        self._count = 0  # of those that have something in them
        self._modules: dict[types.ModuleType, None] = {}
        self._program = {_program_of(type(operator).__module__)}
        self._unnamed: dict[str, list[Any]] = {}  # attributes that the code has not named yet
        self._queue: list[Any] = []
        self._later: list[Any] | None = []
        self._add_function(operator.compute, is_first=True)
        self._add_type(type(operator))
        self._add_attributes(
            {name: value for name, value in vars(operator).items() if name not in OF_THE_RUN}
        )
        self._follow(_MOST_FUNCTIONS)
        self.named = list(self.functions)
        # What belongs to libraries, and what the code does not name, is followed as far as there is room.
        self._queue = [*self._later, *[value for values in self._unnamed.values() for value in values]]
        self._later = None
        self._unnamed.clear()
        self._follow(_MOST_OF_LIBRARIES)
        self._objects.clear()
        self._queue.clear()

    @property
    def written(self) -> set[str] | None:
        """The names to which its code assigns; None if it may assign to any."""
        return None if self.names & _ANY_ASSIGNMENT else self._written

    def fragment(self) -> Fragment | None:
        """Return the operator's fragment if compute may read it."""
        return self.operator.fragment if "fragment" in self.names else None

    def modules(self, names: Iterable[str]) -> list[types.ModuleType]:
        """Return the modules that code may import by these names."""
        found = [sys.modules[name] for name in names if name in sys.modules and not is_foreign(name)]
        return [module for module in found if isinstance(module, types.ModuleType)]

    def is_of_library(self, module: str | None) -> bool:
        """Return whether a module was installed, and not with the operator's own class."""
        return _program_of(module) not in self._program and _is_installed(module)

    def _follow(self, most_functions: int) -> None:
        """Follow everything that waits: functions, types, and what is in objects."""
        while self._queue:
            item = self._queue.pop()
            if type(item) in PLAIN or id(item) in self._objects:
                continue
            if self._later is not None and self.is_of_library(_module_of(item)):
                self._later.append(item)
                continue
            is_full = self._count >= _MOST_OBJECTS
            if is_full or len(self.functions) >= most_functions:
                if self._later is not None:
                    what = "objects" if is_full else "functions"
                    self.excess = f"more than {_MOST_OBJECTS if is_full else most_functions} {what}"
                return
            self._objects[id(item)] = item
            self._look_at(item)

    def _look_at(self, item: Any) -> None:
        if isinstance(item, (types.FunctionType, partial, *_METHODS)):
            self._add_function(item)
        elif isinstance(item, type):
            self._add_type(item)
        elif isinstance(item, types.ModuleType):
            self._add_module(item)
        elif isinstance(item, _lru_cache_wrapper):
            self._queue.append(item.__wrapped__)
        else:
            kind = type(item)
            self._add_names(_names_of_plain(kind))
            if kind is not type(self.operator):
                self._add_type(kind)
            parts: list[Any] = []
            if isinstance(item, CONTAINERS):
                parts = [part for _, part in inside(item)]
                to = self._queue if self._later is None or len(parts) <= LARGE else self._later
                to += parts
            if is_plain(item) and not isinstance(item, Operator):
                self._count += 1
                self._add_attributes(attributes_of(item))
            elif not all(type(part) in PLAIN for part in parts):
                self._count += 1

    def _add_function(self, function: Any, is_first: bool = False) -> None:
        if isinstance(function, partial):
            self._queue += [function.func, *function.args, *function.keywords.values()]
            return
        if isinstance(function, _METHODS):
            self._queue.append(function.__self__)
        function = getattr(function, "__func__", function)
        if not isinstance(function, types.FunctionType) or function in self.functions:
            return
        if is_first:
            self._program.add(_program_of(function.__module__))
        elif is_foreign(function.__module__):
            return
        self.functions[function] = None
        names = _names_in(function.__code__)
        self._written |= _written_in(function.__code__)
        self._add_names(names)
        self._queue += [function.__globals__[name] for name in names if name in function.__globals__]
        self._queue += [contents_of(cell) for cell in function.__closure__ or ()]
        self._queue += function.__defaults__ or ()
        self._queue += (function.__kwdefaults__ or {}).values()

    def _add_names(self, names: Iterable[str]) -> None:
        """Add names that the code uses, and what was found under them."""
        new = set(names) - self.names
        if not new:
            return
        self.names |= new
        for name in new:
            self._queue += self._unnamed.pop(name, ())
        for module in self._modules:
            self._queue += _found_in(module, new)
        for kind in self._types:
            self._add_methods(kind, new)
        self._queue += self.modules(new)

    def _add_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        if self.is_of_library(name):
            self._queue += _found_in(module, self.names) if name in self.names else ()
        elif not is_foreign(name):
            self._modules[module] = None
            self._queue += _found_in(module, self.names)

    def _add_type(self, kind: type) -> None:
        if kind in self._types or is_foreign(kind.__module__):
            return
        self._types[kind] = None
        self._add_methods(kind, self.names | _CALLED_UNNAMED)

    def _add_methods(self, kind: type, names: Iterable[str]) -> None:
        own = type(self.operator).__mro__
        for name in names:
            for base in kind.__mro__:
                found = base.__dict__.get(name)
                if found is None or is_foreign(base.__module__) or _is_generated(found):
                    continue
                if isinstance(found, property):
                    behind = [found.fget, found.fset]
                elif isinstance(found, (cached_property, partialmethod)):
                    behind = [found.func]
                else:
                    behind = [getattr(found, "__func__", found)]
                self._queue += behind
                if base not in own:
                    self.of_others.update(one for one in behind if isinstance(one, types.FunctionType))

    def _add_attributes(self, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            if name in self.names or self._later is None:
                self._queue.append(value)
            else:
                self._unnamed.setdefault(name, []).append(value)


def is_foreign(module: str | None) -> bool:
    """Return whether a module belongs to a library whose state is not the program's."""
    if module is None:
        return True
    top = module.partition(".")[0]
    return (top in _LIBRARIES and not module.startswith(_PROGRAMS)) or top in sys.stdlib_module_names


def _is_installed(module: str | None) -> bool:
    """Return whether a module was installed as a library."""
    file = getattr(sys.modules.get(_program_of(module)), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _program_of(module: str | None) -> str:
    """Return the first part of the name of a module."""
    return (module or "").partition(".")[0]


def _module_of(item: Any) -> str | None:
    """Return the module of a function, a type or a module itself, or that of the type of an object."""
    if isinstance(item, types.ModuleType):
        return item.__name__
    found = (item if isinstance(item, (types.FunctionType, type)) else type(item)).__module__
    return found if isinstance(found, str) else None


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
    return not is_foreign(kind.__module__) or any(map(_is_plain_object, kind.__mro__))


def _names_of_plain(kind: type) -> list[str]:
    """Return the names under which objects of the standard library, or derived from these, keep what is in them."""
    return [name for base in kind.__mro__ if _is_plain_object(base) for name in _PLAIN_OBJECTS[base.__name__]]


def _is_plain_object(kind: type) -> bool:
    return kind.__name__ in _PLAIN_OBJECTS and _program_of(kind.__module__) in sys.stdlib_module_names


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


def _found_in(module: types.ModuleType, names: Iterable[str]) -> list[Any]:
    return [vars(module)[name] for name in names if name in vars(module)]


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
