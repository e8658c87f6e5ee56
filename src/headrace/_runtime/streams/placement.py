"""Placement: where the plain library code of each operator runs.

One rule for functions and classes: plain code of CuPy, PyTorch and others runs on the operator's own stream. Three
kinds of operators are exceptions:

- An operator that handles streams itself, because its methods call `receive_cuda_stream` or another method that
  gives it a stream, is left alone.
- An operator that says ``spec.default_stream()`` runs on the default stream. It is ordered there like others on
  their own streams, unless everything that it is connected to also runs there: CUDA then keeps the order.
- Operators of a program that has imported no library with a current stream do not use the GPU in plain code. They
  are left alone, and cost nothing, unless they were given streams.

Operators that are connected share one stream until streams of their own pay (`find_branches`, `branch`). With
``stream_per = "branch"`` those of a chain do, for good.

Whether an operator handles streams itself is read from the names in its code and in the functions that it refers
to, but not in a method that a subclass replaces and does not call, nor in those of array libraries: these leave the
current stream as it is, and order what they do elsewhere. If a call is hidden from this, the operator's
plain code runs on its own stream as well, which is also the stream that the call returns.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from gc import get_referents
from sys import stdlib_module_names
from threading import local
from types import (
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
    NoneType,
    TracebackType,
)
from typing import TYPE_CHECKING, Any

from headrace._runtime.streams.branch import Branch
from headrace._runtime.streams.run_streams import source_of
from headrace._runtime.streams.stream_source import StreamSource
from headrace.core.operator import Operator
from headrace.gpu.ambient import library_is_in_use
from headrace.tensor.libraries import ANY_LIBRARY, PACKAGES, find_library

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from headrace.core.condition import Condition
    from headrace.core.graph import Graph

_GIVES_STREAM = {"receive_cuda_stream", "receive_cuda_streams", "allocate_cuda_stream", "set_cuda_stream"}
# An operator that asks for the current stream may keep it, and expect its work to be there in later computes.
_READS_STREAM = {"current_stream", "get_current_stream"}
# An operator that moves messages as they are, or out of the run, moves their fences along. One that asks for the
# streams of its messages finds them at their fences.
_NEEDS_FENCES = {"take_messages", "pass_message", "hand_out", "receive_cuda_streams"}
# What makes a stream of a library, or makes it current.
_HAS_STREAM = {"Stream", "ExternalStream", "StreamContext", "create_stream", "set_stream", "use_stream"}
# Stands for the names in code that is not read, since there is too much of it.
_UNREAD = "..."
_MOST = 1_000  # functions read for one operator
_MOST_OBJECTS = 100_000  # objects looked at
_PLAIN = {int, float, complex, bool, str, bytes, NoneType, CodeType, FrameType, TracebackType}
_CONTAINERS = {"builtins", "collections", "contextlib", "functools", "itertools", "queue", "_queue", "types"}


class Placement(Enum):
    """Where the plain code of an operator runs."""

    OWN = "own"
    DEFAULT = "default"
    LEFT_ALONE = "left alone"


def place(graph: Graph) -> dict[Operator, Placement]:
    """Return where the plain code of each operator of a graph runs."""
    uses_gpu = library_is_in_use()
    placed = {operator: _place(operator, uses_gpu) for operator in graph}
    on_default = {operator for operator in placed if operator.spec.is_on_default_stream}
    connected = set(on_default)
    for flow in graph.flows:
        for one, other in ((flow.source, flow.target), (flow.target, flow.source)):
            if other not in on_default:
                connected.discard(one)
    return placed | dict.fromkeys(connected, Placement.LEFT_ALONE)


def _place(operator: Operator, uses_gpu: bool) -> Placement:
    spec = operator.spec
    if spec.is_on_default_stream:
        return Placement.DEFAULT
    if spec.is_ambient:
        return Placement.OWN
    if not (uses_gpu or source_of(operator) is not None) or handles_streams(operator):
        return Placement.LEFT_ALONE
    return Placement.OWN


def find_branches(
    placed: dict[Operator, Placement], graph: Graph, apart: Collection[Operator], may_split: bool
) -> dict[Operator, Branch]:
    """Return the branch of each operator that shares a stream with its neighbours.

    If branches may split, all operators that are connected share one. Otherwise an operator continues a branch if
    all of its messages come from one operator, whose messages all go to it. Operators of different slices or pools,
    those that wait for the GPU themselves, those that need the fences of their messages, those whose flows are
    chosen as they run, and those of `apart` share no stream. If branches may split, neither do those that may keep
    the current stream.
    """
    apart = {
        *apart,
        *(
            each
            for each in graph
            if each._headrace.dynamic_flows is not None or _names_any(each, _NEEDS_FENCES)
        ),
        *(each for each in graph if may_split and _may_keep_stream(each)),
        *(each for each in graph if may_split and _waits(each)),
    }
    before: dict[Operator, set[Operator]] = {}
    after: dict[Operator, set[Operator]] = {}
    for flow in graph.flows:
        before.setdefault(flow.target, set()).add(flow.source)
        after.setdefault(flow.source, set()).add(flow.target)
    sharing: dict[Operator, list[Operator]] = {}  # each with its neighbours
    for operator in graph:
        for source in before.get(operator, ()):
            if (
                (may_split or len(before[operator]) == len(after[source]) == 1)
                and operator is not source
                and placed[operator] is placed[source] is Placement.OWN
                and not (operator in apart or source in apart)
                and _streams_of(operator) is _streams_of(source)
                and not _waits(operator)
            ):
                sharing.setdefault(source, []).append(operator)
                sharing.setdefault(operator, []).append(source)
    found: dict[Operator, Branch] = {}
    for first in graph:
        if first in sharing and first not in found:
            branch = Branch(may_split)
            reached = [first]
            for operator in reached:  # which grows
                found[operator] = branch
                if may_split and not _refers_to_stream(operator):
                    branch.plain.add(operator)
                reached += [each for each in sharing[operator] if each not in reached]
    return found


def _streams_of(operator: Operator) -> Any:
    """Return where the streams of an operator come from: what it was given, or else its fragment."""
    return source_of(operator) or operator.fragment.get_default_green_context_pool()


def _may_keep_stream(operator: Operator) -> bool:
    """Return whether an operator reads the current stream, or its function awaits, and goes on there later."""
    is_async = operator.is_function and operator.declared.is_async  # type: ignore[attr-defined]
    return is_async or _names_any(operator, _READS_STREAM, in_objects=True)


def _waits(operator: Operator) -> bool:
    """Return whether an operator becomes ready only when the work behind its messages is complete."""
    return any(map(_waits_for_streams, operator.conditions.values()))


def _waits_for_streams(condition: Condition) -> bool:
    return condition.waits_for_streams or any(map(_waits_for_streams, condition.terms))


def handles_streams(operator: Operator) -> bool:
    """Return whether an operator's code names a method that gives it a stream."""
    return _names_any(operator, _GIVES_STREAM)


def _names_any(operator: Operator, sought: set[str], in_objects: bool = False) -> bool:
    """Return whether the code of an operator, and with `in_objects` of its objects, names any of some functions."""
    return any(not sought.isdisjoint(names) for names, _ in _read(operator, in_objects))


def objects_named_in(operator: Operator) -> list[Any]:
    """Return the objects that the code of an operator names: variables around it, of its modules and of others."""
    found: list[Any] = []
    for names, reached in _read(operator, in_objects=False):
        for value in reached:
            if isinstance(value, ModuleType):
                of_module = vars(value)
                found += [of_module[name] for name in names if name in of_module]
            else:
                found.append(value)
    return found


def _refers_to_stream(operator: Operator) -> bool:
    """Return whether the code of an operator names streams of a library, or it or its objects refer to one."""
    return any(
        not _HAS_STREAM.isdisjoint(names)
        or names >= {"cuda", "stream"}
        or _UNREAD in names
        or any(map(_is_stream, reached))
        for names, reached in _read(operator, in_objects=True)
    )


def _is_stream(value: Any) -> bool:
    """Return whether a value is a stream of a library, or the class of streams."""
    kind = value if isinstance(value, type) else type(value)
    return hasattr(kind, "__cuda_stream__") or "Stream" in [base.__name__ for base in kind.__mro__]


def _read(operator: Operator, in_objects: bool) -> Iterator[tuple[set[str], list[Any]]]:
    """Yield the names in each function of an operator, with `in_objects` of its objects, and what it refers to."""
    kinds = type(operator).__mro__[: -len(Operator.__mro__)]
    bases = {"super", *(kind.__name__ for kind in kinds)}
    members, replaced = _members_of(kinds)
    members += vars(operator).values()
    if operator.is_function:
        members = [operator.declared.function]  # type: ignore[attr-defined]
    seen_objects: dict[int, Any] = {}
    if in_objects:
        members += [vars(each) for each in operator.resources.values() if not isinstance(each, StreamSource)]
        members = _objects_in(members, seen_objects)
        yield set(), members
        members += _methods_of(members)
    waiting = [function for member in members for function in _functions_in(member)]
    seen: set[FunctionType] = set()
    for function in waiting:  # which grows; those of the operator itself come first
        if function in seen or str(function.__module__).partition(".")[0] in PACKAGES:
            continue
        if len(seen) == _MOST:
            yield {_UNREAD}, []
            return
        seen.add(function)
        names = _names(function.__code__)
        reached = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        reached += [function.__globals__[name] for name in names if name in function.__globals__]
        if not bases.isdisjoint(names) or any(value is kind for value in reached for kind in kinds):
            reached += [member for name in names for member in replaced.get(name, ())]
        if in_objects:
            of_fragment = vars(operator.fragment)
            reached += [of_fragment[name] for name in names if name in of_fragment]
            modules = [vars(value) for value in reached if _is_of_program(value)]
            reached += [module[name] for module in modules for name in names if name in module]
            reached = _objects_in(reached, seen_objects)
        yield names, reached
        if in_objects:
            reached += _methods_of(reached)
        waiting += [found for value in reached for found in _functions_in(value)]
    if len(seen_objects) >= _MOST_OBJECTS:
        yield {_UNREAD}, []


def _members_of(kinds: Iterable[type]) -> tuple[list[Any], dict[str, list[Any]]]:
    """Return what classes define, in the order in which names are looked up, and by name what they replace."""
    found: dict[str, Any] = {}
    replaced: dict[str, list[Any]] = {}
    for kind in kinds:
        for name, member in vars(kind).items():
            if name in found:
                replaced.setdefault(name, []).append(member)
            else:
                found[name] = member
    return list(found.values()), replaced


def _objects_in(values: Iterable[Any], seen: dict[int, Any]) -> list[Any]:
    """Return objects of the program and those that they refer to, if they are not in `seen`; add them there."""
    found: list[Any] = []
    waiting = list(values)
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.pop()
        kind = type(value)
        if id(value) in seen or kind in _PLAIN or isinstance(value, ModuleType):
            continue
        seen[id(value)] = value
        found.append(value)
        if kind is FunctionType:
            waiting += [value.__closure__, value.__defaults__, value.__kwdefaults__]
        elif _is_walked(kind):
            waiting += get_referents(value)
    return found


def _is_walked(kind: type) -> bool:
    """Return whether objects of a class are looked into: those of the program, and containers of Python."""
    root = kind.__module__.partition(".")[0]
    if root in stdlib_module_names and root not in _CONTAINERS:
        return False  # a logger, for example, leads to all others
    if issubclass(kind, local):
        return False  # a library may keep there what is current on a thread
    return not (issubclass(kind, type) or _is_ours(kind)) and find_library(kind) is ANY_LIBRARY


def _is_of_program(value: Any) -> bool:
    """Return whether a value is a module of the program, and not one that was installed."""
    if not isinstance(value, ModuleType) or value.__name__.partition(".")[0] in (
        *stdlib_module_names,
        "headrace",
    ):
        return False
    file = getattr(value, "__file__", None)
    return file is not None and not ("site-packages" in file or "dist-packages" in file)


def _is_ours(kind: type) -> bool:
    """Return whether a class is one of headrace's, or derived from one: its objects refer to the whole program."""
    return any(base.__module__.partition(".")[0] == "headrace" for base in kind.__mro__)


def _methods_of(values: Iterable[Any]) -> list[Any]:
    """Return what the classes of objects of the program define, and those that are among them."""
    kinds = dict.fromkeys(value if isinstance(value, type) else type(value) for value in values)
    return [
        member
        for kind in kinds
        # An array may read the current stream when it is exported, and keeps none.
        if not _is_ours(kind) and find_library(kind) is ANY_LIBRARY
        for base in kind.__mro__
        if base.__module__ != "builtins"
        for member in vars(base).values()
    ]


def _functions_in(value: Any) -> list[FunctionType]:
    """Return the function that a value is or stands for, and the one that it decorates."""
    found: list[FunctionType] = []
    while True:
        if isinstance(value, FunctionType):
            found.append(value)
            value = value.__dict__.get("__wrapped__")
        elif isinstance(value, (MethodType, staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, partial):
            value = value.func
        else:
            return found


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _names(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in the code of a function and of what is defined inside it."""
    inside = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inside)
