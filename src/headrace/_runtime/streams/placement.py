"""Placement: where the plain library code of each operator runs.

One rule for functions and classes: plain code of CuPy, PyTorch and others runs on the operator's own stream. Three
kinds of operators are exceptions:

- An operator that handles streams itself, because its methods call `receive_cuda_stream` or another method that
  gives it a stream, is left alone.
- An operator that says ``spec.default_stream()`` runs on the default stream. It is ordered there like others on
  their own streams, unless everything that it is connected to also runs there: CUDA then keeps the order.
- Operators of a program that has imported no library with a current stream do not use the GPU in plain code. They
  are left alone, and cost nothing, unless they were given streams.

Whether an operator handles streams itself is read from the names in its code. If its calls are hidden in functions
elsewhere, its plain code runs on its own stream as well, which is also the stream that those calls return.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from headrace._runtime.streams.run_streams import source_of
from headrace.core.operator import Operator
from headrace.gpu.ambient import library_is_in_use

if TYPE_CHECKING:
    from headrace.core.graph import Graph

_GIVES_STREAM = {"receive_cuda_stream", "receive_cuda_streams", "allocate_cuda_stream", "set_cuda_stream"}


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


def handles_streams(operator: Operator) -> bool:
    """Return whether an operator's code names a method that gives it a stream."""
    if operator.is_function:
        functions: list[Any] = [operator.declared.function]  # type: ignore[attr-defined]
    else:
        kinds = type(operator).__mro__[: -len(Operator.__mro__)]
        functions = [member for kind in kinds for member in vars(kind).values()]
        functions.append(getattr(operator.compute, "__func__", operator.compute))
    return any(not _GIVES_STREAM.isdisjoint(code.co_names) for code in _codes(functions))


def _codes(functions: Iterable[Any]) -> Iterator[CodeType]:
    """Yield the code of functions and of what is defined inside them, without what decorates them."""
    for function in functions:
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        function = getattr(function, "fget", getattr(function, "__func__", function))
        if isinstance(function, FunctionType):
            yield from _nested(function.__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
