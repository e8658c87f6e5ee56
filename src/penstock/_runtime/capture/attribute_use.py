"""Which attributes the compute of an operator may use on the host.

A knob follows an attribute of the operator, and a change of that attribute need not lead to another recording: the
graph reads the knob. But if compute itself reads or writes the attribute, the value is part of the recording like
any other. The code tells: it names every attribute that it uses, except in `getattr` with a computed name.

The code of an operator is that of its compute, and of the functions and methods of the same program that it names.
Libraries are left out. A name that is used for something else leads to a recording too many, and to no error.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.operator import Operator

__all__ = ["names_in_compute"]

_MOST = 500  # functions
_LIBRARIES = ("penstock.core", "penstock._runtime", "penstock.gpu", "penstock.tensor", "penstock.resources")


def names_in_compute(operator: Operator) -> set[str]:
    """Return the names that compute, or what it calls in the same program, uses for attributes and others."""
    found: set[str] = set()
    seen: set[types.CodeType] = set()
    queue = [_plain(operator.compute)]
    while queue and len(seen) < _MOST:
        function = queue.pop()
        if function is None or function.__code__ in seen:
            continue
        module = function.__module__ or ""
        if seen and module.startswith(_LIBRARIES):
            continue
        names = _names_in(function.__code__, seen)
        found |= names
        queue += [_plain(_contents(cell)) for cell in function.__closure__ or ()]
        for name in names:
            queue.append(_plain(inspect.getattr_static(operator, name, None)))
            other = _plain(function.__globals__.get(name))
            if other is not None and _program_of(other.__module__) == _program_of(module):
                queue.append(other)
    return found


def _program_of(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _names_in(code: types.CodeType, seen: set[types.CodeType]) -> set[str]:
    """Return the names in a function, and in the functions inside it."""
    seen.add(code)
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names_in(constant, seen)
    return found


def _plain(item: Any) -> types.FunctionType | None:
    """Return the function behind a method, a property, a partial or a decorated function; None if there is none."""
    for _ in range(8):
        if isinstance(item, types.FunctionType):
            return item
        if isinstance(item, functools.partial):
            item = item.func
        elif isinstance(item, property):
            item = item.fget
        elif isinstance(item, (staticmethod, classmethod, types.MethodType)):
            item = item.__func__
        else:
            item = getattr(item, "__wrapped__", None)
    return None


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None
