"""TensorOperator: what the operators on tensors have in common."""

from __future__ import annotations

from typing import Any

from headrace.core.construction import needs_fragment
from headrace.core.errors import ParameterError, choices
from headrace.core.operator import Operator
from headrace.resources import UnboundedAllocator

__all__ = ["TensorOperator", "check_allocator", "set_default_allocator"]


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
        """Check the allocator; called before the run."""
        check_allocator(self)

    def check_choice(self, parameter: str, known: Any) -> None:
        """Raise if a parameter is not one of the known values."""
        value = getattr(self, parameter)
        if value not in known:
            listed = choices(known, value) if isinstance(value, str) else ", ".join(map(str, known))
            raise ValueError(
                f"operator {self.name!r}: {parameter}={value!r} is not known; it is one of {listed}"
            )

    def check_range(self, parameter: str, least: int, most: int) -> None:
        """Raise if a number is out of range."""
        value = getattr(self, parameter)
        if not least <= value <= most:
            raise ValueError(
                f"operator {self.name!r}: {parameter} must be from {least} to {most}, not {value}"
            )


def set_default_allocator(operator: Operator) -> None:
    """Set a parameter ``pool`` or ``allocator`` that is None to an UnboundedAllocator.

    In its ``__init__``, since the run prepares and releases the resources that an operator has then. The allocator
    has no fragment, so that a frame of it that an application keeps does not refer to the application.
    """
    for name in _allocators_of(operator):
        if getattr(operator, name) is None:
            setattr(operator, name, UnboundedAllocator(None, name=f"{operator.name}_allocator"))


def check_allocator(operator: Operator) -> None:
    """Raise if an operator's parameter ``pool`` or ``allocator`` is no allocator."""
    for name in _allocators_of(operator):
        given = getattr(operator, name)
        if not hasattr(given, "allocate_tensor"):
            raise ParameterError(
                f"operator {operator.name!r}: {name} must be an allocator, such as UnboundedAllocator(self), "
                f"not {given!r}"
            )


def _allocators_of(operator: Operator) -> list[str]:
    return [name for name in ("pool", "allocator") if name in operator.spec.params]
