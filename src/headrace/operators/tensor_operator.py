"""TensorOperator: the base of operators on tensors, and their allocators."""

from __future__ import annotations

from typing import Any

from headrace.brief import brief
from headrace.core.construction import needs_fragment
from headrace.core.errors import ParameterError
from headrace.core.operator import Operator
from headrace.resources import UnboundedAllocator


class TensorOperator(Operator):
    """The base of the operators that work on tensors, on the host or on a device.

    It accepts ``cuda_stream_pool=None``, as programs written for the Holoscan SDK pass it. An allocator that is
    None is replaced by an UnboundedAllocator.
    """

    @needs_fragment
    def __init__(self, fragment: Any, *args: Any, name: str = "", **params: Any) -> None:
        if params.get("cuda_stream_pool", self) is None:
            del params["cuda_stream_pool"]  # the default pool
        super().__init__(fragment, *args, name=name, **params)
        set_default_allocator(self)

    def initialize(self) -> None:
        """Check the parameters; called before the run."""
        check_parameters(self)


def check_parameters(operator: Operator) -> None:
    """Raise if a parameter is out of its limits, also one that was assigned, or if the allocator is none."""
    for parameter in operator.spec.params.values():
        if hasattr(operator, parameter.name):
            parameter.check(getattr(operator, parameter.name), f"operator {operator.name!r}")
    for name in _allocators_of(operator):
        given = getattr(operator, name)
        if not hasattr(given, "allocate_tensor"):
            raise ParameterError(
                f"operator {operator.name!r}: {name} must be an allocator, such as UnboundedAllocator(self), "
                f"not {brief(given)}"
            )


def set_default_allocator(operator: Operator) -> None:
    """Set a parameter ``pool`` or ``allocator`` that is None to an UnboundedAllocator.

    In its ``__init__``, since the run prepares and releases the resources that an operator has then. The allocator
    has no fragment, so that a frame of it that an application keeps does not refer to the application.
    """
    for name in _allocators_of(operator):
        if getattr(operator, name) is None:
            setattr(operator, name, UnboundedAllocator(None, name=f"{operator.name}_allocator"))


def _allocators_of(operator: Operator) -> list[str]:
    return [name for name in ("pool", "allocator") if name in operator.spec.params]
