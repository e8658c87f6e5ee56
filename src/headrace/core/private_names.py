"""Private names: what a class of a program must not define or assign, because its base class uses it.

A program's operator that assigns ``self._node`` would break its run silently. So the code of a class is looked at
when the class is defined, and costs nothing later. A ``__setattr__`` would cost every assignment of every compute,
and names that nobody would choose (``_headrace_node``) would be everywhere in the code of headrace.
"""

from __future__ import annotations

import dis
import functools
import warnings
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

_STORE_ATTR = dis.opmap["STORE_ATTR"]


def check_private_names(kind: type, base: type) -> None:
    """Raise TypeError if a class of a program uses a private name of `base`, from which it derives, for itself.

    A program that was written for another system is warned instead.
    """
    for owner in kind.__mro__:
        if is_ours(owner) or owner.__module__ == "builtins":
            continue
        for name, value in vars(owner).items():
            function = getattr(value, "__func__", value)
            if name in _private_names(base):
                _refuse(kind, base, f"{owner.__name__} defines {name}", name)
            elif isinstance(function, FunctionType) and not isinstance(value, staticmethod):
                for stored in _stored(function.__code__, _private_names(base)):
                    _refuse(kind, base, f"{owner.__name__}.{name} assigns self.{stored}", stored)


def _refuse(kind: type, base: type, what: str, name: str) -> None:
    text = f"{what}, which {base.__name__} uses for itself; choose another name, such as {name.lstrip('_')}"
    if not any(owner.__module__.startswith("headrace.compat.") for owner in kind.__mro__):
        raise TypeError(text)
    warnings.warn(text, RuntimeWarning, stacklevel=4)  # a program for another system may be right there


def is_ours(kind: type) -> bool:
    """Return whether a class is one of headrace."""
    return kind.__module__.partition(".")[0] == "headrace"


@functools.cache
def _private_names(base: type) -> frozenset[str]:
    """Return the private names of a class: those in it, and those that its methods assign."""
    found: set[str] = set()
    for kind in base.__mro__:
        if not is_ours(kind):
            continue
        found.update(vars(kind), vars(kind).get("__annotations__", ()))
        for value in vars(kind).values():
            function: Any = getattr(value, "__wrapped__", value)
            if isinstance(function, FunctionType):
                found.update(_stored(function.__code__, None))
    return frozenset(name for name in found if name.startswith("_") and not name.endswith("_"))


def _stored(code: CodeType, names: frozenset[str] | None, owner: str = "") -> Iterator[str]:
    """Yield the attributes that a method, or a function inside of it, assigns to its first argument."""
    owner = owner or (code.co_varnames[0] if code.co_argcount else "")
    for inner in code.co_consts:
        # A method of a class in there has a first argument of its own, which may have the same name.
        if isinstance(inner, CodeType) and owner in inner.co_freevars:
            yield from _stored(inner, names, owner)
    if not owner or (names is not None and names.isdisjoint(code.co_names)):
        return
    if _STORE_ATTR not in code.co_code[::2]:  # most methods assign nothing, and to take code apart is slow
        return
    before: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_ATTR" and (names is None or instruction.argval in names):
            # Newer versions of Python load two variables by one instruction.
            loaded = before.argval if before is not None else None
            if (loaded[-1] if isinstance(loaded, tuple) else loaded) == owner:
                yield instruction.argval
        before = instruction
