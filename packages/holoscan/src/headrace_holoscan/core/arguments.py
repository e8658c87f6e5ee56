"""Named values: Arg and ArgList, and the functions that convert them. Every value is that of a YAML node."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Number
from typing import Any, NoReturn

from headrace.core import Arg as _Arg
from headrace.core import ArgList as _ArgList
from headrace.core import Resource
from headrace.vocabulary import BareCondition
from headrace_holoscan.core.yaml_values import dump, value_of_argument

_ELEMENTS = (
    *("CUSTOM", "BOOLEAN", "INT8", "UNSIGNED8", "INT16", "UNSIGNED16", "INT32", "UNSIGNED32", "INT64"),
    *("UNSIGNED64", "FLOAT32", "FLOAT64", "COMPLEX64", "COMPLEX128", "STRING", "HANDLE", "YAML_NODE"),
    *("IO_SPEC", "CONDITION", "RESOURCE"),
)
_enum: Any = enum.IntEnum
ArgElementType = _enum("ArgElementType", _ELEMENTS, start=0)
ArgContainerType = _enum("ArgContainerType", ("NATIVE", "VECTOR", "ARRAY"), start=0)
_NO_VALUE = object()
# The words of C++ for the elements whose words are not made of their names.
_WORDS = {
    "CUSTOM": "CustomType",
    "BOOLEAN": "bool",
    "FLOAT32": "float",
    "FLOAT64": "double",
    "STRING": "std::string",
    "HANDLE": "std::any",
    "YAML_NODE": "YAML::Node",
    "IO_SPEC": "holoscan::IOSpec*",
    "CONDITION": "std::shared_ptr<Condition>",
    "RESOURCE": "std::shared_ptr<Resource>",
}
_CONTAINERS = {"NATIVE": "{}", "VECTOR": "std::vector<{}>", "ARRAY": "std::array<{},N>"}
# The arguments of ready components that are no uint64_t.
_INTEGERS = {
    "int64_t": ("count", "initial_timestamp", "initial_size", "poll_period_ms", "stop_on_deadlock_timeout"),
    "int32_t": ("dev_id", "storage_type"),
    "uint32_t": ("port", "local_port", "maximum_connection_retries"),
}


@dataclass(frozen=True, repr=False)
class ArgType:
    """What kind of value an argument has."""

    element_type: Any = ArgElementType.CUSTOM
    container_type: Any = ArgContainerType.NATIVE
    dimension: int = 0

    @property
    def to_string(self) -> str:
        """The kind, in the SDK's words."""
        name = self.element_type.name
        word = _WORDS.get(name) or f"{name.lower().replace('unsigned', 'uint')}_t"
        return _CONTAINERS[self.container_type.name].format(word)

    def __repr__(self) -> str:
        return self.to_string


class Arg(_Arg):
    """A named value, which ``int()``, ``float()``, ``str()`` and ``bool()`` convert."""

    __slots__ = ("has_value",)

    def __init__(self, name: str, value: Any = _NO_VALUE, origin: str = "") -> None:
        super().__init__(name, None if value is _NO_VALUE else value, origin)
        self.has_value = value is not _NO_VALUE

    @property
    def arg_type(self) -> ArgType:
        """What kind of value it has."""
        if not self.has_value:
            return ArgType()
        several = isinstance(self.value, list) and bool(self.value)
        first = self.value[0] if several else self.value
        for kind, element in ((BareCondition, ArgElementType.CONDITION), (Resource, ArgElementType.RESOURCE)):
            if isinstance(first, kind):
                return ArgType(element, ArgContainerType.VECTOR if several else ArgContainerType.NATIVE)
        return ArgType(ArgElementType.YAML_NODE)

    @property
    def description(self) -> str:
        """What it is, in YAML."""
        return dump(described(self))

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        if isinstance(self.value, str):
            raise RuntimeError(f"the argument {self.name!r} is the text {self.value!r}, not a boolean")
        return bool(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return self.description


def refuse_assignment(owner: object, name: str) -> NoReturn:
    """Raise for a name that the SDK's objects have as a property without a setter."""
    raise AttributeError(f"property {name!r} of {type(owner).__name__!r} object has no setter")


class Sealed:
    """An object that takes no attributes but its own, once it is made: `_sealed` is True then."""

    _sealed = False
    _read_only: tuple[str, ...] = ()
    """Those of its attributes that do not change either."""

    def __setattr__(self, name: str, value: Any) -> None:
        if self._sealed and name in self._read_only:
            refuse_assignment(self, name)
        if self._sealed and not hasattr(self, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        super().__setattr__(name, value)


class ArgList(Sealed, _ArgList):
    """Several named values."""

    _sealed = True
    name = "arglist"

    @property
    def args(self) -> list[_Arg]:
        """The values."""
        return list(self)

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self)

    def add(self, arg: _Arg | _ArgList) -> None:
        """Add a value, or all values of another list."""
        self.extend([arg] if isinstance(arg, _Arg) else arg)

    @property
    def description(self) -> str:
        """What they are, in YAML."""
        return dump([("name", self.name), ("args", [described(arg) for arg in self])])

    def __repr__(self) -> str:
        return self.description


def described(arg: _Arg) -> list[tuple[str, Any]]:
    """Return what a named value is, for `dump`."""
    kind = getattr(arg, "arg_type", ArgType(ArgElementType.YAML_NODE))
    value = [("value", _text(arg.value))] if kind.element_type == ArgElementType.YAML_NODE else []
    return [("name", arg.name or '""'), ("type", kind.to_string), *value]


def described_natively(arg: _Arg) -> list[tuple[str, Any]]:
    """Return what an argument of a ready component is, which has a type of C++."""
    value = arg.value
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    if isinstance(first, BareCondition):
        word = _WORDS["CONDITION"]
    elif isinstance(first, Resource):
        word = _WORDS["RESOURCE"]
    elif isinstance(first, (bool, str, float)):
        word = {bool: "bool", str: "std::string", float: "double"}[type(first)]
    elif isinstance(first, int):
        word = next((word for word, names in _INTEGERS.items() if arg.name in names), "uint64_t")
    else:
        word = "CustomType"
    shown = [] if "<" in word or word == "CustomType" else [("value", _text(value))]
    kind = word if first is value else f"std::vector<{word}>"
    return [("name", arg.name), ("type", kind), *shown]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return '""' if value == "" else str(value)


def py_object_to_arg(obj: Any, name: str = "") -> Arg:
    """Return an object as a named value."""
    value = value_of_argument(list(obj) if isinstance(obj, Iterator) else obj)
    kinds = {type(each) for each in _elements(obj if isinstance(obj, (list, tuple)) else value)}
    held: Any = (Number, str, BareCondition, Resource)
    if len(kinds - {complex}) != 1 or not all(issubclass(kind, held) for kind in kinds - {complex}):
        what = "of one type in at most two levels" if isinstance(value, list) else "that YAML can hold"
        raise RuntimeError(f"a {type(obj).__name__} could not be converted to Arg: it takes values {what}")
    return Arg(name, value)


def _elements(value: Any, level: int = 0) -> list[Any]:
    """Return the elements of a list, or of the lists in it; None for what is in deeper lists, or for none."""
    if not isinstance(value, (list, tuple)):
        return [value]
    if not value or level == 2:
        return [None]
    return [element for each in value for element in _elements(each, level + 1)]


def kwargs_to_arglist(**kwargs: Any) -> ArgList:
    """Return keyword arguments as named values."""
    return ArgList(py_object_to_arg(value, name) for name, value in kwargs.items())


def arg_to_py_object(arg: _Arg) -> Any:
    """Return the value of an argument."""
    return arg.value


def arglist_to_kwargs(arglist: _ArgList) -> dict[str, Any]:
    """Return named values as keyword arguments."""
    return {arg.name: arg.value for arg in arglist}
