"""TensorOperator: what the operators on tensors have in common."""

from __future__ import annotations

from typing import Any

from penstock.core.construction import needs_fragment
from penstock.core.errors import ParameterError, choices
from penstock.core.operator import Operator

__all__ = ["TensorOperator"]


class TensorOperator(Operator):
    """The base of the operators that work on tensors, on the host or on a device.

    It accepts ``cuda_stream_pool=None``, as programs written for the Holoscan SDK pass it, and checks the
    allocator.
    """

    @needs_fragment
    def __init__(self, fragment: Any, *args: Any, name: str = "", **params: Any) -> None:
        if params.get("cuda_stream_pool", self) is None:
            del params["cuda_stream_pool"]  # the default pool
        super().__init__(fragment, *args, name=name, **params)

    def initialize(self) -> None:
        """Check the parameters; called before the run."""
        for name in ("pool", "allocator"):
            given = getattr(self, name, None)
            if given is not None and not hasattr(given, "allocate_tensor"):
                raise ParameterError(
                    f"operator {self.name!r}: {name} must be an allocator, such as "
                    f"UnboundedAllocator(self), not {given!r}"
                )

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
