"""The bases of operators on tensors: TensorOperator, with their allocators, and FrameOperator.

A FrameOperator makes one tensor of another, by routines that are chosen once.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np

from headrace.brief import brief
from headrace.core.construction import needs_fragment
from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.errors import ParameterError
from headrace.core.operator import Operator
from headrace.core.spec import OperatorSpec
from headrace.operators.arrays import Routine, Workplace, workplace
from headrace.operators.messages import find_tensor, place_of
from headrace.resources import UnboundedAllocator
from headrace.tensor import Tensor, TensorMap


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


class Plan(NamedTuple):
    """One step of an operator, for frames of one kind: a routine with its arguments, and what its result is.

    Attributes
    ----------
    routine, threads
        The routine, and its threads.
    shape, element
        The shape and the element type of the result.
    arguments
        The arguments of the routine after the result, the frame and the tables.
    tables
        Arrays that the routine reads besides the frame.
    """

    routine: Routine
    threads: int
    shape: tuple[int, ...]
    element: np.dtype[Any]
    arguments: tuple[Any, ...]
    tables: tuple[np.ndarray[Any, Any], ...] = ()


class FrameOperator(TensorOperator):
    """The base of operators that make one tensor of another; a subclass writes `plan`."""

    ports: ClassVar[tuple[str, str]]
    """The input and the output."""

    pool: Any
    in_tensor_name: str
    out_tensor_name: str

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the ports."""
        spec.input(self.ports[0])
        spec.output(self.ports[1])

    def plan(self, tensor: Tensor) -> list[Plan]:
        """Return the steps for frames such as this one; raise if it is none that the operator takes.

        Without a step, `view` makes the result.
        """
        raise NotImplementedError

    def view(self, tensor: Tensor) -> Tensor:
        """Return the result of a frame that needs no step, on the memory of the frame."""
        raise NotImplementedError

    def refusal(self, text: str) -> ValueError:
        """Return the error for a frame that the operator does not take."""
        return ValueError(f"{place_of(self, self.ports[0])}: {text}")

    def start(self) -> None:
        """Begin a run: no frame has been seen."""
        # The steps depend on all parameters but these.
        others = {"pool", "allocator", "in_tensor_name", "out_tensor_name"}
        self._settings = attrgetter(*(name for name in self.spec.params if name not in others))
        # The steps for the last kind of frame: frames of a run are all of one kind, as a rule.
        self._planned_for: list[Any] = []
        self._steps: list[Plan] = []
        # The tables of these steps, and the stream that they were uploaded on, so that this happens once.
        self._tables: tuple[list[Plan] | None, int | None, list[list[Tensor]]] = (None, None, [])

    def stop(self) -> None:
        """Let go of the tables."""
        self._tables = (None, None, [])

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Make the tensor of one frame."""
        source, target = self.ports
        tensor = find_tensor(op_input.receive(source), self.in_tensor_name, self, source)
        settings = [list(value) if type(value) is list else value for value in self._settings(self)]
        kind = [tensor.shape, tensor.strides, tensor.dl_dtype, settings]
        if kind != self._planned_for:
            self._steps, self._planned_for = self.plan(tensor), kind
        place = workplace(self, op_input, source, tensor, pool=self.pool)
        result = place.bring(tensor)
        for step, tables in zip(self._steps, self._tables_at(place), strict=True):
            given, result = result, place.empty(step.shape, step.element)
            place.run(step.routine, step.threads, result, given, *tables, *step.arguments)
        result = result if self._steps else self.view(result)
        op_output.emit(TensorMap({self.out_tensor_name: result}), target)

    def _tables_at(self, place: Workplace) -> list[list[Tensor]]:
        """Return the tables of each step as tensors at a place."""
        stream = None if place.stream is None else int(place.stream)
        steps, at, tables = self._tables
        if steps is not self._steps or at != stream:
            tables = [[place.upload(table) for table in step.tables] for step in self._steps]
            self._tables = (self._steps, stream, tables)
        return tables
