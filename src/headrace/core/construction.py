"""What the constructors of operators, conditions, resources and schedulers have in common.

Each checks that its first argument is a fragment: ``CountCondition(5)`` would otherwise be a condition of the
fragment 5 that counts to 1. Each takes named values (an :class:`Arg`, or what ``from_config`` returns) by position,
too, and explicit arguments win over them.

Inner: all that headrace keeps in an object of a program, behind one name.

A program derives from Operator, Fragment, Condition and others, and its classes may use every name that is not
documented. So these bases have documented names alone, and one more: ``_headrace`` is an object of the base's inner
class, which has the state and the methods that a run needs. ``operator._headrace`` is that object, and
``Camera._headrace`` is its class. Whoever derives the inner class can change what it does (`headrace.vocabulary`).

Decided against: private names in the bases, which any class of a program may use for something else, and reading
the code of such a class, which does not show ``setattr`` or a mixin's method that is added later.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, overload

from headrace.brief import brief

Constructor = TypeVar("Constructor", bound=Callable[..., None])


@dataclass(slots=True)
class Arg:
    """One named value."""

    name: str
    value: Any = None
    origin: str = field(default="", compare=False, repr=False)
    """The section of the configuration that it is from, if any."""


class ArgList(list[Arg]):
    """Several named values: what :meth:`Fragment.from_config` returns for a section."""

    @classmethod
    def of(cls, mapping: dict[str, Any], origin: str = "") -> ArgList:
        """Make a list from a mapping of names to values, which may be a section of the configuration."""
        return cls(Arg(name, value, origin) for name, value in mapping.items())

    @property
    def name(self) -> str:
        """The names, joined by commas."""
        return ", ".join(arg.name for arg in self)


def needs_fragment(init: Constructor) -> Constructor:
    """Wrap an ``__init__`` that has no meaning without a fragment, its first argument."""

    @functools.wraps(init)
    def wrapper(self: Any, /, *args: Any, **kwargs: Any) -> None:
        first = args[0] if args else kwargs.get("fragment")
        if not is_fragment(first):
            raise without_fragment(type(self), first, args, kwargs, type(self).__init__ is not wrapper)
        init(self, *args, **kwargs)

    return cast("Constructor", wrapper)


def without_fragment(
    cls: type, first: object, args: tuple[Any, ...], kwargs: dict[str, Any], is_passed_on: bool
) -> TypeError:
    """Return the error for a call whose first argument is no fragment; it shows the right call."""
    name = cls.__name__
    wrong = "and none was given" if first is None else f"not {brief(first)}"
    shown = [brief(arg) for arg in args if arg is not None]
    shown += [f"{key}={brief(value)}" for key, value in kwargs.items() if key != "fragment"]
    right = f"inside compose: {name}({', '.join(['self', *shown])})"
    if is_passed_on:
        right = f"{name}.__init__ must pass it on: super().__init__({', '.join(['fragment', *shown])})"
    return TypeError(
        f"the first argument of {name} is the application or fragment it belongs to, {wrong}; {right}"
    )


def is_fragment(value: object) -> bool:
    """Return whether a value is a fragment; told by a method, because this module must not import the class."""
    return hasattr(type(value), "add_flow")


def check_name(cls: type, name: object) -> None:
    """Raise for a name that is no text."""
    if not isinstance(name, str):
        article = "an" if cls.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"the name of {article} {cls.__name__} must be a str, not {name!r}")


def named_values(args: tuple[Any, ...]) -> Iterator[Arg]:
    """Yield the named values among `args`: each Arg, and each Arg of a list."""
    for arg in args:
        if isinstance(arg, Arg):
            yield arg
        elif is_named(arg):
            yield from arg


def is_named(arg: Any) -> bool:
    """Return whether an argument is a named value, or several."""
    return isinstance(arg, (Arg, ArgList)) or (
        isinstance(arg, list) and bool(arg) and all(isinstance(item, Arg) for item in arg)
    )


def snake_case(class_name: str) -> str:
    """Turn ``PingTxOp`` into ``ping_tx``, and ``V4L2VideoCaptureOp`` into ``v4l2_video_capture``."""
    name = class_name.removesuffix("Op").removesuffix("Operator") or class_name
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", name).lower() or "operator"


T = TypeVar("T", covariant=True)


class Inner(Generic[T]):
    """The attribute ``_headrace`` of a base class: its inner class, and in an object an instance of that.

    The instance is made with the object as its argument, when it is first asked for: also for an object whose
    ``__init__`` has not called that of its base yet. From then on it is a plain attribute of the object.
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    @overload
    def __get__(self, owner: None, kind: type) -> type[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        """Return the inner class, or the inner object of `owner`."""
        if owner is None:
            return self._kind
        make: Any = self._kind
        # Not by setattr, which a program may have overridden.
        made = owner.__dict__["_headrace"] = make(owner)
        return made
