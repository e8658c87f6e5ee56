"""Named values: Arg and ArgList, and the functions that convert them. Every value is that of a YAML node."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from headrace.compat.holoscan.core.yaml_values import dump, value_of_argument
from headrace.core.construction import Arg as _Arg
from headrace.core.construction import ArgList as _ArgList

_ELEMENTS = (
    *("CUSTOM", "BOOLEAN", "INT8", "UNSIGNED8", "INT16", "UNSIGNED16", "INT32", "UNSIGNED32", "INT64"),
    *("UNSIGNED64", "FLOAT32", "FLOAT64", "COMPLEX64", "COMPLEX128", "STRING", "HANDLE", "YAML_NODE"),
    *("IO_SPEC", "CONDITION", "RESOURCE"),
)
_enum: Any = enum.IntEnum
ArgElementType = _enum("ArgElementType", _ELEMENTS, start=0)
ArgContainerType = _enum("ArgContainerType", ("NATIVE", "VECTOR", "ARRAY"), start=0)
_NO_VALUE = object()


@dataclass(frozen=True)
class ArgType:
    """What kind of value an argument has."""

    element_type: Any = ArgElementType.CUSTOM
    container_type: Any = ArgContainerType.NATIVE
    dimension: int = 0

    @property
    def to_string(self) -> str:
        """The kind, in the SDK's words."""
        return "YAML::Node" if self.element_type == ArgElementType.YAML_NODE else "CustomType"


class Arg(_Arg):
    """A named value, which ``int()``, ``float()``, ``str()`` and ``bool()`` convert."""

    def __init__(self, name: str, value: Any = _NO_VALUE, origin: str = "") -> None:
        super().__init__(name, None if value is _NO_VALUE else value, origin)
        self.has_value = value is not _NO_VALUE

    @property
    def arg_type(self) -> ArgType:
        """What kind of value it has."""
        return ArgType(ArgElementType.YAML_NODE) if self.has_value else ArgType()

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


class ArgList(_ArgList):
    """Several named values."""

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
    if not getattr(arg, "has_value", True):
        return [("name", arg.name or '""'), ("type", "CustomType")]
    return [("name", arg.name or '""'), ("type", "YAML::Node"), ("value", str(arg.value))]


def py_object_to_arg(obj: Any, name: str = "") -> Arg:
    """Return an object as a named value."""
    if obj is None or isinstance(obj, (dict, complex)) or value_of_argument(obj) is obj is not _plain(obj):
        raise RuntimeError(f"a {type(obj).__name__} could not be converted to Arg")
    return Arg(name, value_of_argument(obj))


def _plain(obj: Any) -> Any:
    return obj if isinstance(obj, (bool, int, float, str)) else _NO_VALUE


def kwargs_to_arglist(**kwargs: Any) -> ArgList:
    """Return keyword arguments as named values."""
    return ArgList(py_object_to_arg(value, name) for name, value in kwargs.items())


def arg_to_py_object(arg: _Arg) -> Any:
    """Return the value of an argument."""
    return arg.value


def arglist_to_kwargs(arglist: _ArgList) -> dict[str, Any]:
    """Return named values as keyword arguments."""
    return {arg.name: arg.value for arg in arglist}
