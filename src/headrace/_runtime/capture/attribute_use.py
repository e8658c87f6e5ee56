"""Which attributes the compute of an operator may use on the host.

A knob follows an attribute of the operator, and a change of that attribute need not lead to another recording: the
graph reads the knob. But if compute itself reads or writes the attribute, the value is part of the recording like
any other. The code tells: it names every attribute that it uses, except in `getattr` with a computed name.

The code of an operator is that of its compute, of its methods that are named, and of the functions and methods of
others that they may call (`reachable`): these may be given the operator. Libraries are left out. A name that is
used for something else leads to a recording too many, and to no error.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.reachable import Reachable, is_foreign

if TYPE_CHECKING:
    from headrace.core.operator import Operator

__all__ = ["names_in_compute"]


def names_in_compute(operator: Operator) -> set[str]:
    """Return the names that compute, or what it calls in the program, uses for attributes and others."""
    found: set[str] = set()
    seen: set[types.CodeType] = set()
    reachable = Reachable(operator)
    kinds = [kind for kind in type(operator).__mro__ if not is_foreign(kind.__module__)]
    own = {_plain(value) for kind in kinds for value in vars(kind).values()}
    # Of the operator's methods only those that are called count, and not what they hide in the classes behind.
    queue: list[types.FunctionType | None] = [function for function in reachable.named if function not in own]
    queue.append(_plain(operator.compute))
    while queue:
        function = queue.pop()
        if function is None or function.__code__ in seen or (seen and is_foreign(function.__module__)):
            continue
        names = _names_in(function.__code__, seen, function in reachable.of_others)
        found |= names
        queue += [_plain(_contents(cell)) for cell in function.__closure__ or ()]
        queue += [_plain(inspect.getattr_static(operator, name, None)) for name in names]
        if "super" in names:
            queue += [_plain(vars(kind).get(name)) for name in names for kind in kinds]
    return found


def _names_in(code: types.CodeType, seen: set[types.CodeType], is_of_other: bool) -> set[str]:
    """Return the names in a function and in the functions inside it; in methods of others, not those after self."""
    seen.add(code)
    found = _names_of_others(code) if is_of_other else set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names_in(constant, seen, False)
    return found


def _names_of_others(code: types.CodeType) -> set[str]:
    found: set[str] = set()
    first = code.co_varnames[:1]
    is_after_first = False
    for one in dis.get_instructions(code):
        if one.argval in code.co_names and not (is_after_first and one.opname in _OF_AN_OBJECT):
            found.add(one.argval)
        loaded = one.argval[-1:] if isinstance(one.argval, tuple) else (one.argval,)
        is_after_first = one.opname.startswith("LOAD_FAST") and loaded == first
    return found


_OF_AN_OBJECT = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR")


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
