"""Parameter: a named setting of an operator or condition, declared once and checked when it is set.

The expected type is the annotation, of the class or of the argument of a function (`@op`), if that is a plain
class, or a union of one with None. ``Any``, other unions and a class that values cannot be checked against, such as
a protocol, allow every value. With any other annotation, or none, it is the type of the default value. An int is
accepted as a float, a bool is not accepted as an int, and a NumPy scalar counts as a number.

A parameter, a field of the class or declared in `setup`, becomes an attribute of
its operator or condition. With the name of an attribute that exists already, it would replace it: a parameter named
``stop`` would replace the method. So such a name is refused where it is declared. The parameters of a function
(`@op`) may have any name: if it is taken, the operator keeps the value elsewhere.

`declared` makes a parameter of each public field that the class annotates, as a dataclass makes a field, and type
checkers then know the arguments of the constructor, too. A field that is given by `parameter` is one without the
decorator, for a class whose other annotations are no parameters.

Decided against: to make every annotation of an operator a parameter, since programs annotate state as well; and a
metaclass, since a class could then not derive from one with another.
"""

from __future__ import annotations

import enum
import functools
import inspect
import numbers
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, TypedDict, TypeVar, Unpack, dataclass_transform, overload
from weakref import WeakKeyDictionary

from headrace.brief import brief
from headrace.core.errors import ParameterError, choices, closest
from headrace.core.values import boolean


class ParameterFlag(enum.Enum):
    """Whether a parameter must have a value."""

    NONE = 0
    OPTIONAL = 1
    DYNAMIC = 2


class _Required(enum.Enum):
    REQUIRED = "required"

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required.REQUIRED
"""The default of a parameter without one: the program must give a value."""


@dataclass(slots=True)
class ParameterVersion:
    """Counts the changes of the parameters of some operators; whoever sees the same number need not compare them.

    Attributes
    ----------
    number
        The number of changes.
    knobs
        The knobs of operators that were set since somebody looked at them (`KnobValues`), each once.
    """

    number: int = 0
    knobs: deque[Any] = field(default_factory=deque)


class Limits(TypedDict, total=False):
    """What may be declared of a parameter besides its name and its default: see :meth:`OperatorSpec.param`."""

    flag: ParameterFlag
    headline: str
    description: str
    live: bool
    minimum: Any
    maximum: Any
    choices: Iterable[Any]
    check: Callable[[Any], object] | None


@dataclass(slots=True)
class Parameter:
    """One declared parameter."""

    name: str
    default: Any = REQUIRED
    flag: ParameterFlag = ParameterFlag.NONE
    expected: type | None = None
    headline: str = ""
    description: str = ""
    live: bool = False
    """Whether it may be changed while the operator runs."""
    minimum: Any = None
    maximum: Any = None
    choices: Iterable[Any] = ()
    """The values that it may have; any if empty."""
    check: Callable[[Any], object] | None = None
    may_be_none: bool = False
    """Whether its annotation allows None besides `expected`."""

    def __post_init__(self) -> None:
        self.live = boolean(self.live, f"parameter {self.name!r}: live")
        self.choices = tuple(self.choices)

    @property
    def is_required(self) -> bool:
        """Whether the program must give a value."""
        return self.default is REQUIRED and self.flag is not ParameterFlag.OPTIONAL

    def checked(self, value: Any, owner: str) -> Any:
        """Return `value`, converted if the conversion is lossless, or raise ParameterError."""
        expected = self.expected
        if value is None and (
            self.default is None or self.may_be_none or self.flag is ParameterFlag.OPTIONAL
        ):
            return value
        if expected is None:
            self._check_value(value, owner)
            return value
        if _fits(value, expected):
            value = float(value) if expected is float and not isinstance(value, float) else value
            self._check_value(value, owner)
            return value
        hint = ""
        if expected is int and isinstance(value, float) and value.is_integer():
            hint = f"; write {int(value)}"  # a 1e6 in a file is a float
        raise ParameterError(
            f"parameter {self.name!r} of {owner} must be {_article(expected)}, "
            f"not {_article(type(value))} ({brief(value)}){hint}"
        )

    def _check_value(self, value: Any, owner: str) -> None:
        """Raise ParameterError for a value of the right type that is out of bounds."""
        what = f"parameter {self.name!r} of {owner}"
        if self.choices and value not in self.choices:
            nearest = closest(value, self.choices) if isinstance(value, str) else None
            hint = "" if nearest is None else f"; did you mean {nearest!r}?"
            listed = ", ".join(map(repr, self.choices))
            raise ParameterError(f"{what} must be one of {listed}, not {brief(value)}{hint}")
        # The other way round, a NaN would pass.
        if self.minimum is not None and not value >= self.minimum:
            raise ParameterError(f"{what} must be at least {self.minimum!r}, not {brief(value)}")
        if self.maximum is not None and not value <= self.maximum:
            raise ParameterError(f"{what} must be at most {self.maximum!r}, not {brief(value)}")
        if self.check is not None:
            try:
                is_right = self.check(value)
            except (TypeError, ValueError) as error:
                raise ParameterError(f"{what} must not be {brief(value)}: {error}") from error
            if is_right is False:
                raise ParameterError(f"{what} must not be {brief(value)}")


def _fits(value: Any, expected: type) -> bool:
    if expected is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if expected is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if expected is list or expected is tuple:
        # YAML has one kind of sequence.
        return isinstance(value, (list, tuple))
    return isinstance(value, expected)


def _article(kind: type) -> str:
    name = kind.__name__
    return f"an {name}" if name[0].lower() in "aeio" else f"a {name}"


def holder_of(component: Any) -> Any:
    """Return the object whose attributes are the parameters of an operator, a component or a subgraph."""
    holder = component._headrace.holder
    return component if holder is None else holder


def check_parameter_name(name: str, kind: type, base: type) -> None:
    """Raise ParameterError if a parameter of a class, which derives from `base`, would replace something else."""
    if name in reserved_names(base):
        public = sorted(taken for taken in reserved_names(base) if not taken.startswith("_"))
        raise ParameterError(
            f"{kind.__name__} cannot have a parameter {name!r}: every {base.__name__.lower()} has an attribute of "
            f"that name, which the parameter would replace. Give the parameter another name; "
            f"these are taken: {choices(public)}"
        )
    known = inspect.getattr_static(kind, name, None)
    if isinstance(known, property):
        if known.fset is None:
            raise ParameterError(
                f"{kind.__name__} cannot have a parameter {name!r}: it has a property of that name without a "
                "setter; give the property a setter, or one of them another name"
            )
    elif isinstance(known, (FunctionType, classmethod, staticmethod)):
        raise ParameterError(
            f"{kind.__name__} cannot have a parameter {name!r}: it has a method of that name, which the parameter "
            "would replace; give one of them another name"
        )


# A program may give an operator a logger of its own.
_REPLACEABLE = {"logger"}


@functools.cache
def reserved_names(base: type) -> frozenset[str]:
    """Return the names of the attributes of a base class and of its instances, which the class annotates."""
    annotated = {name for kind in base.__mro__ for name in inspect.get_annotations(kind)}
    return frozenset({*dir(base), *annotated} - _REPLACEABLE)


T = TypeVar("T")
Default = TypeVar("Default")


class ParameterField:
    """What `parameter` leaves in a class: how ``spec.param`` is called for it."""

    def __init__(self, default_factory: Callable[[], Any], limits: Limits) -> None:
        self.make_default = default_factory
        self.limits = limits
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
        spec.param(self.name, default, **self.limits)


# The fields of each class, kept here, since a class of a program may have attributes of any name.
_FIELDS: WeakKeyDictionary[type, dict[str, ParameterField]] = WeakKeyDictionary()


@overload
def parameter(*, default: None = ..., **limits: Unpack[Limits]) -> Any: ...
@overload
def parameter(*, default: Default, **limits: Unpack[Limits]) -> Default: ...
@overload
def parameter(*, default_factory: Callable[[], Default], **limits: Unpack[Limits]) -> Default: ...
def parameter(
    *, default: Any = REQUIRED, default_factory: Callable[[], Any] | None = None, **limits: Unpack[Limits]
) -> Any:
    """Declare a parameter as a field of an operator, a condition, a resource or a subgraph.

    Or a live parameter of a function: ``@op(live={"gain": parameter(minimum=0.0)})``, whose default is that of the
    argument.

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
    for each in fields.values():
        each.declare(kind, spec)
    component.setup(spec)
