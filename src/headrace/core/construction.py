"""Construction: how conditions, resources and schedulers take their arguments.

Their constructors are plain functions with plain signatures, so that editors and type checkers understand them.
Each is wrapped once, when its class is defined (:func:`constructor`). The wrapper does what a signature cannot:

- It checks that the first argument is a fragment. ``CountCondition(5)`` would otherwise be a condition of the
  fragment 5 that counts to 1.
- It turns named values (an :class:`Arg`, or what ``from_config`` returns) among the arguments into keywords.
  Explicit arguments win over them.
- It rejects an unknown keyword, and names the known ones.
- It replaces arguments that users set by name (``--set tick.recess_period=20ms``).

A metaclass could do the same in one place, but then a class could not derive from a class with another metaclass.

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
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, overload

from headrace.brief import brief
from headrace.core.errors import ParameterError, choices

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


def constructor(init: Constructor) -> Constructor:
    """Wrap an ``__init__`` whose first argument is a fragment."""
    if hasattr(init, "__wrapped__"):
        return init

    @functools.wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        signature = _signature(init)
        first = args[0] if args else kwargs.get("fragment")
        # A class of the program may have a signature of its own.
        if signature.positional[:1] == ("fragment",) and first is not None and not _is_fragment(first):
            raise _without_fragment(type(self), first, args, kwargs, is_passed_on=False)
        if any(_is_named(arg) for arg in args):
            args, kwargs = _with_named_values(signature, args, kwargs)
        if not signature.takes_more and len(args) > len(signature.positional):
            by_position = ", ".join(["self", *signature.positional[1:]])
            by_keyword = [name for name in known_keywords(type(self)) if name not in signature.positional]
            raise TypeError(
                f"{type(self).__name__} takes ({by_position}) by position and {choices(by_keyword)} by keyword"
            )
        if not signature.takes_any_keyword:
            unknown = [name for name in kwargs if name not in signature.keywords]
            if unknown:
                refuse_keywords(type(self), unknown)
        place: Any = first
        if (
            type(self).__init__ is not wrapper
            or not _is_fragment(place)
            or not place._headrace.root._headrace.parameter_settings
        ):
            init(self, *args, **kwargs)
            return
        # What users set wins over what the program gives.
        known = known_keywords(type(self))
        usual = known.pop("name", "")
        name = place._headrace.qualified(kwargs.get("name") or usual or type(self).__name__.lower())
        with place._headrace.root._headrace.component_settings(name, known) as values:
            here = [each for each in signature.positional[: len(args)] if each in values]
            given = list(args)
            for each in here:
                given[signature.positional.index(each)] = values[each]
            init(self, *given, **{**kwargs, **{each: values[each] for each in values if each not in here}})

    return cast("Constructor", wrapper)


def needs_fragment(init: Constructor) -> Constructor:
    """Wrap an ``__init__`` that has no meaning without a fragment, its first argument."""

    @functools.wraps(init)
    def wrapper(self: Any, /, *args: Any, **kwargs: Any) -> None:
        first = args[0] if args else kwargs.get("fragment")
        if not _is_fragment(first):
            raise _without_fragment(type(self), first, args, kwargs, type(self).__init__ is not wrapper)
        init(self, *args, **kwargs)

    return cast("Constructor", wrapper)


def _without_fragment(
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


def _is_fragment(value: object) -> bool:
    """Return whether a value is a fragment; told by a method, because this module must not import the class."""
    return hasattr(type(value), "add_flow")


def check_name(cls: type, name: object) -> None:
    """Raise for a name that is no text."""
    if not isinstance(name, str):
        article = "an" if cls.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"the name of {article} {cls.__name__} must be a str, not {name!r}")


def refuse_keywords(cls: type, unknown: list[str], more: list[str] | None = None) -> None:
    """Raise for keywords that a class does not take; the error names the keywords that it takes."""
    known = [*known_keywords(cls), *(more or ())]
    raise ParameterError(
        f"{cls.__name__} does not take {choices(unknown)}; it takes {choices(known, unknown[0])}"
    )


def known_keywords(cls: type) -> dict[str, Any]:
    """Return the keywords of a class with their defaults, including those that it passes on to its bases."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        init = vars(base).get("__init__")
        if init is None or base is object:
            continue
        signature = _signature(init)
        found |= {name: default for name, default in signature.keywords.items() if name not in found}
        if not signature.takes_any_keyword:
            break
    # The keyword that all classes share comes last.
    return {
        name: found[name] for name in sorted(found, key=lambda name: name == "name") if name != "fragment"
    }


def named_values(args: tuple[Any, ...]) -> Iterator[Arg]:
    """Yield the named values among `args`: each Arg, and each Arg of a list."""
    for arg in args:
        if isinstance(arg, Arg):
            yield arg
        elif _is_named(arg):
            yield from arg


def _is_named(arg: Any) -> bool:
    return isinstance(arg, (Arg, ArgList)) or (
        isinstance(arg, list) and bool(arg) and all(isinstance(item, Arg) for item in arg)
    )


@dataclass(frozen=True, slots=True)
class _Signature:
    """The parameters of a constructor."""

    positional: tuple[str, ...]
    keywords: dict[str, Any]
    """The default of each parameter, by name."""
    takes_more: bool
    takes_any_keyword: bool


@functools.cache
def _signature(init: Callable[..., None]) -> _Signature:
    parameters = list(inspect.signature(init).parameters.values())[1:]
    return _Signature(
        tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)),
        {p.name: p.default for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)},
        any(p.kind is p.VAR_POSITIONAL for p in parameters),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _with_named_values(
    signature: _Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn named values into keywords, except for arguments that the program passed explicitly."""
    plain = tuple(arg for arg in args if not _is_named(arg))
    given = {*signature.positional[: len(plain)], *kwargs}
    values = {arg.name: arg.value for arg in named_values(args) if arg.name not in given}
    return plain, {**values, **kwargs}


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
