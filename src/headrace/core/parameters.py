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
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, dataclass_transform, overload
from weakref import WeakKeyDictionary

from headrace.brief import brief
from headrace.core.errors import ParameterError, choices, closest
from headrace.core.values import boolean


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

    headline: str
    description: str
    live: bool
    minimum: Any
    maximum: Any
    choices: Iterable[Any]
    check: Callable[[Any], object] | None
    convert: Callable[[Any, str], Any] | None
    attribute: str


class FieldLimits(Limits, total=False):
    """What may be declared of a field."""

    alias: str
    kw_only: bool


@dataclass(slots=True)
class Parameter:
    """One declared parameter."""

    name: str
    default: Any = REQUIRED
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
    convert: Callable[[Any, str], Any] | None = None
    """Called with a value and what it is, for an error; returns the value that the attribute has."""
    attribute: str = ""
    """The attribute that has the value; that of its name unless given."""
    may_be_none: bool = False
    """Whether its annotation allows None besides `expected`."""

    def __post_init__(self) -> None:
        self.live = boolean(self.live, f"parameter {self.name!r}: live")
        self.choices = tuple(self.choices)
        self.attribute = self.attribute or self.name

    @property
    def is_required(self) -> bool:
        """Whether the program must give a value."""
        return self.default is REQUIRED

    def checked(self, value: Any, owner: str) -> Any:
        """Return `value`, converted if the conversion is lossless, or raise ParameterError."""
        expected = self.expected
        if value is None and (self.default is None or self.may_be_none):
            return value
        if self.convert is not None:
            value = self.convert(value, f"{owner}: {self.name}")
        elif expected in (int, float) and _fits(value, expected):
            value = value if isinstance(value, expected) else expected(value)
        elif expected is not None and not _fits(value, expected):
            raise self._wrong_type(value, expected, owner)
        self._check_value(value, owner)
        return value

    def _wrong_type(self, value: Any, expected: type, owner: str) -> ParameterError:
        hint = ""
        if expected is int and isinstance(value, float) and value.is_integer():
            hint = f"; write {int(value)}"  # a 1e6 in a file is a float
        return ParameterError(
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
Given = TypeVar("Given", contravariant=True)
Kept = TypeVar("Kept", covariant=True)


class Converted(Protocol[Given, Kept]):
    """The type of a field, for type checkers, whose attribute is of another type than what is given."""

    def __get__(self, component: object, kind: type) -> Kept: ...
    def __set__(self, component: object, value: Given) -> None: ...


class ParameterField:
    """What `parameter` leaves in a class: how ``spec.param`` is called for it."""

    def __init__(self, default_factory: Callable[[], Any], limits: FieldLimits) -> None:
        self.make_default = default_factory
        self.alias = limits.pop("alias", "")
        self.kw_only: bool | None = limits.pop("kw_only", None)
        self.limits: Limits = limits
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        _FIELDS.setdefault(owner, {})[name] = self

    def __get__(self, component: object, kind: type) -> Any:
        """Return this itself for a class; a component has no value before its constructor gives it one."""
        if component is None:
            return self
        raise AttributeError(f"{kind.__name__} has no value for the parameter {self.name!r} yet")

    def default_of(self, kind: type) -> Any:
        """Return its default in a class: what that assigns to the name, if it does."""
        assigned = inspect.getattr_static(kind, self.name, self)
        is_default = not isinstance(
            assigned, (ParameterField, FunctionType, property, classmethod, staticmethod)
        )
        return assigned if is_default else self.make_default()

    def declare(self, kind: type, spec: Any) -> None:
        """Declare it in the spec of a component."""
        limits: Limits = {**self.limits, "attribute": self.name} if self.alias else self.limits
        spec.param(self.alias or self.name, self.default_of(kind), **limits)


# The fields of each class, kept here, since a class of a program may have attributes of any name.
_FIELDS: WeakKeyDictionary[type, dict[str, ParameterField]] = WeakKeyDictionary()
# The same with those of base classes, since a run makes conditions for every port.
_ALL_FIELDS: WeakKeyDictionary[type, dict[str, ParameterField]] = WeakKeyDictionary()


@overload
def parameter(*, default: None = ..., **limits: Unpack[FieldLimits]) -> Any: ...
@overload
def parameter(*, default: Default, **limits: Unpack[FieldLimits]) -> Default: ...
@overload
def parameter(*, default_factory: Callable[[], Default], **limits: Unpack[FieldLimits]) -> Default: ...
def parameter(
    *,
    default: Any = REQUIRED,
    default_factory: Callable[[], Any] | None = None,
    **limits: Unpack[FieldLimits],
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
    alias
        The name of the argument, where that of the field is taken by something else; of conditions and resources.
    kw_only
        Whether it is given by keyword alone, in a class whose fields are given by position (`declared`).
    headline, description, live, minimum, maximum, choices, check, convert
        As for :meth:`OperatorSpec.param`.
    """
    if default_factory is not None and default is not REQUIRED:
        raise ParameterError("parameter(...) takes default or default_factory, not both")
    return ParameterField(default_factory or (lambda: default), limits)


def converted(
    convert: Callable[[Any, str], Any], /, *, default: Any = REQUIRED, **limits: Unpack[FieldLimits]
) -> Any:
    """Declare a parameter whose attribute is what a function makes of the value; its type is `Converted`."""
    limits["convert"] = convert
    return ParameterField(lambda: default, limits)


def argument(*, default: Any, kw_only: bool = True) -> Any:
    """Stand, for type checkers, for an argument that every operator takes and that is no parameter."""


def required(*, kw_only: bool = True) -> Any:
    """Stand for such an argument that must be given."""


@overload
def declared(kind: type[T], /) -> type[T]: ...
@overload
def declared(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(
    eq_default=False, kw_only_default=True, field_specifiers=(parameter, converted, argument, required)
)
def declared(kind: type[Any] | None = None, /, *, kw_only: bool = True) -> Any:
    """Make a parameter of each public field that a class annotates, as a decorator of the class.

    Class variables, private names and what a base class declares stay what they are. A type checker knows the
    parameters of such a class as arguments of its constructor, and takes conditions and resources as positional
    arguments there.

    Parameters
    ----------
    kw_only
        False for a condition or a resource whose parameters may be given by position, too, in their order.
    """
    if kind is None:
        return functools.partial(_declared, kw_only=kw_only)
    return _declared(kind, kw_only)


def _declared(kind: type[T], kw_only: bool) -> type[T]:
    fields: dict[str, ParameterField] = {}
    for name, annotation in inspect.get_annotations(kind).items():
        value = vars(kind).get(name, REQUIRED)
        if not isinstance(value, ParameterField):
            if name.startswith("_") or "ClassVar" in str(annotation):
                continue
            value = parameter(default=value)
        value.name = name
        value.kw_only = kw_only if value.kw_only is None else value.kw_only
        fields[name] = value
    _FIELDS[kind] = fields
    if not kw_only:
        shown: Any = kind
        shown.__signature__ = _Signature(shown.__init__)
    return kind


class _Signature:
    """The arguments of the constructor that a class with `declared` has, for `inspect.signature` and `help`."""

    def __init__(self, constructor: object) -> None:
        self._constructor = constructor

    def __get__(self, component: object, kind: type) -> inspect.Signature:
        """Return those of a class; one with a constructor of its own has that one's, as other classes do."""
        if kind.__init__ is not self._constructor:  # type: ignore[misc]
            raise AttributeError("__signature__")
        spec = inspect.Parameter
        found = [spec("fragment", spec.POSITIONAL_OR_KEYWORD, default=None)]
        by_position = positional(kind)
        fields = {field.alias or field.name: field for field in fields_of(kind).values()}
        for name in (*by_position, *(each for each in fields if each not in by_position)):
            place = spec.POSITIONAL_OR_KEYWORD if name in by_position else spec.KEYWORD_ONLY
            found.append(spec(name, place, default=fields[name].default_of(kind)))
        found.append(spec("name", spec.KEYWORD_ONLY, default=usual_name(kind)))
        return inspect.Signature(found)


def usual_name(kind: type) -> str:
    """Return the name that a class gives to its components, if it does."""
    name = getattr(kind, "name", "")  # a program may have a property of that name
    return name if isinstance(name, str) else ""


def fields_of(kind: type) -> dict[str, ParameterField]:
    """Return the fields of a class by name, those of base classes first."""
    found = _ALL_FIELDS.get(kind)
    if found is None:
        found = _ALL_FIELDS[kind] = {}
        for base in reversed(kind.__mro__):
            found |= _FIELDS.get(base, {})
    return found


def positional(kind: type) -> list[str]:
    """Return the names of the parameters that may be given by position, in the order of type checkers."""
    own = (field for base in reversed(kind.__mro__) for field in _FIELDS.get(base, {}).values())
    return list(dict.fromkeys(field.alias or field.name for field in own if field.kw_only is False))


def set_up(component: Any, spec: Any) -> None:
    """Fill in the spec of a component: its fields, those of base classes first, and what `setup` declares."""
    kind = type(component)
    for each in fields_of(kind).values():
        each.declare(kind, spec)
    component.setup(spec)
