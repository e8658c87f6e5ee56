"""Constructors that take what the SDK's constructors take: the same names, orders and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.vocabulary import named_values

Class = TypeVar("Class", bound=type[Any])


def taking(
    arguments: str,
    *,
    ignored: tuple[str, ...] = (),
    hidden: tuple[str, ...] = (),
    check: Any = None,
    base: type[Any] | None = None,
    **names: Any,
) -> Callable[[Class], Class]:
    """Put in place the constructor of the SDK's class of that name.

    None stands for an argument that is not given, where the SDK's default is None. An argument that headrace's
    class does not take is kept as an attribute. An operator takes all arguments as parameters, and has headrace's
    defaults.

    Parameters
    ----------
    arguments
        The arguments after `self`, as in the SDK's signature.
    ignored
        Arguments that are not passed on, because they mean something else to headrace's class.
    hidden
        Arguments that the component does not list among its own.
    check
        Called with the arguments; it may raise, or change them.
    base
        The class that the arguments are passed to; headrace's, unless given.
    **names
        Objects that the defaults name.
    """
    signature = inspect.signature(eval(f"lambda self, {arguments}: None", dict(names)))
    is_operator = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())

    def decorate(cls: Class) -> Class:
        theirs = base or next(one for one in cls.__mro__ if not one.__module__.startswith(__package__))
        taken = set() if is_operator else _keywords_of(theirs)
        kind: Any = cls

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            given_names = {arg.name: arg.value for arg in named_values(args)}
            plain = [arg for arg in args if not any(named_values((arg,)))]
            by_position = list(signature.parameters)[1 : len(plain) + 1]
            more = {key: value for key, value in given_names.items() if key not in by_position}
            try:
                bound = signature.bind(self, *plain, **{**more, **kwargs})
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}: {error}; it takes ({arguments})") from None
            given = set(bound.arguments)
            bound.apply_defaults()
            if check is not None:
                check(bound.arguments)
            _, fragment, *values = bound.arguments.items()
            is_fragment = fragment[1] is None or hasattr(type(fragment[1]), "add_flow")
            if type(self) is kind and not is_operator and not is_fragment:
                raise TypeError(
                    f"the first argument of {kind.__name__} is the application or fragment it belongs to, not "
                    f"{fragment[1]!r}; inside compose: {kind.__name__}(self, ...)"
                )
            parts: tuple[Any, ...] = ()
            passed = {}
            # As the SDK lists them: those that may be left out come last.
            named = [(key, value) for key, value in values if key not in ("args", "name", *hidden)]
            named.sort(key=lambda item: signature.parameters[item[0]].default is None)
            self._headrace.given = {
                key: value for key, value in named if (key in given if is_operator else value is not None)
            }
            for key, value in values:
                if is_operator and key == "args":
                    parts = value
                elif key == "name" or (key in taken or (is_operator and key in given)):
                    is_none = value is None and signature.parameters[key].default is None
                    if not is_none and key not in ignored:
                        passed[key] = value
                elif not is_operator:
                    setattr(self, key, value)
            super(kind, self).__init__(fragment[1], *parts, **passed)

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        cls.__init__ = __init__
        return cls

    return decorate


def _keywords_of(cls: type[Any]) -> set[str]:
    """Return the names of what a class takes, including what it passes on to its bases."""
    found = set(inspect.signature(cls).parameters)
    for init in (vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)):
        parameters = inspect.signature(init).parameters
        found |= set(parameters)
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            break
    return found
