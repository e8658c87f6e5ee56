"""Parameters as fields of a class, each written once: its name, its type, its default and its limits.

::

    @declared
    class Scale(Operator):
        factor: float = 1.0
        mode: str = parameter(default="fast", choices=("fast", "exact"), live=True)

`declared` makes a parameter of each public field that the class annotates, as a dataclass makes a field, and type
checkers then know the arguments of the constructor, too. A field that is given by `parameter` is one without the
decorator, for a class whose other annotations are no parameters.

Decided against: to make every annotation of an operator a parameter, since programs annotate state as well; and a
metaclass, since a class could then not derive from one with another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, TypedDict, TypeVar, Unpack, dataclass_transform, overload
from weakref import WeakKeyDictionary

from headrace.core.errors import ParameterError
from headrace.core.parameters import REQUIRED, ParameterFlag

T = TypeVar("T")
Default = TypeVar("Default")


class ParameterField:
    """What `parameter` leaves in a class: how ``spec.param`` is called for it."""

    def __init__(self, default_factory: Callable[[], Any], arguments: _Limits) -> None:
        self.make_default = default_factory
        self.arguments = arguments
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        _FIELDS.setdefault(owner, {})[name] = self

    def __get__(self, component: object, kind: type) -> Any:
        """Return this itself for a class; a component has no value before its constructor gives it one."""
        if component is None:
            return self
        raise AttributeError(f"{kind.__name__} has no value for the parameter {self.name!r} yet")

    def declare(self, kind: type, spec: Any) -> None:
        """Declare it in the spec of a component; what its class assigns to the name is the default."""
        assigned = inspect.getattr_static(kind, self.name, self)
        is_default = not isinstance(
            assigned, (ParameterField, FunctionType, property, classmethod, staticmethod)
        )
        default = assigned if is_default else self.make_default()
        spec.param(self.name, default, **self.arguments)


# The fields of each class, kept here, since a class of a program may have attributes of any name.
_FIELDS: WeakKeyDictionary[type, dict[str, ParameterField]] = WeakKeyDictionary()


class _Limits(TypedDict, total=False):
    flag: ParameterFlag
    headline: str
    description: str
    live: bool
    minimum: Any
    maximum: Any
    choices: Iterable[Any]
    check: Callable[[Any], object] | None


@overload
def parameter(*, default: None = ..., **limits: Unpack[_Limits]) -> Any: ...
@overload
def parameter(*, default: Default, **limits: Unpack[_Limits]) -> Default: ...
@overload
def parameter(*, default_factory: Callable[[], Default], **limits: Unpack[_Limits]) -> Default: ...
def parameter(
    *, default: Any = REQUIRED, default_factory: Callable[[], Any] | None = None, **limits: Unpack[_Limits]
) -> Any:
    """Declare a parameter as a field of an operator, a condition, a resource or a subgraph.

    Parameters
    ----------
    default
        The value if the program gives none; without a default the program must give one.
    default_factory
        Called for each component to make the default, for one that is changed in place, such as a list.
    flag, headline, description, live, minimum, maximum, choices, check
        As for :meth:`OperatorSpec.param`.
    """
    if default_factory is not None and default is not REQUIRED:
        raise ParameterError("parameter(...) takes default or default_factory, not both")
    return ParameterField(default_factory or (lambda: default), limits)


def argument(*, default: Any, kw_only: bool = True) -> Any:
    """Stand, for type checkers, for an argument that every operator takes and that is no parameter."""


def required(*, kw_only: bool = True) -> Any:
    """Stand for such an argument that must be given."""


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter, argument, required))
def declared(kind: type[T]) -> type[T]:
    """Make a parameter of each public field that a class annotates, as a decorator of the class.

    Class variables, private names and what a base class declares stay what they are. A type checker knows the
    parameters of such a class as arguments of its constructor, and takes conditions and resources as positional
    arguments there.
    """
    fields: dict[str, ParameterField] = {}
    for name, annotation in inspect.get_annotations(kind).items():
        if name.startswith("_") or "ClassVar" in str(annotation):
            continue
        value = vars(kind).get(name, REQUIRED)
        field = value if isinstance(value, ParameterField) else parameter(default=value)
        field.name = name
        fields[name] = field
    _FIELDS[kind] = fields
    return kind


def set_up(component: Any, spec: Any) -> None:
    """Fill in the spec of a component: its fields, those of base classes first, and what `setup` declares."""
    kind = type(component)
    fields: dict[str, ParameterField] = {}
    for base in reversed(kind.__mro__):
        fields |= _FIELDS.get(base, {})
    for field in fields.values():
        field.declare(kind, spec)
    component.setup(spec)
