"""The bases of operators on tensors: TensorOperator, with their allocators, and FrameOperator.

A FrameOperator makes one tensor of another, by routines that are chosen once.

What messages hold: tensors by name, and the items of batches.

A message with tensors is an array of any library, or a dict or TensorMap of arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np

from headrace.brief import brief
from headrace.core.construction import needs_fragment
from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.errors import ParameterError, choices
from headrace.core.function import op
from headrace.core.metadata import of_part
from headrace.core.operator import Operator
from headrace.core.spec import OperatorSpec
from headrace.operators.arrays import Routine, Workplace, workplace
from headrace.resources import UnboundedAllocator
from headrace.tensor import Tensor, TensorMap, as_tensor


def place_of(operator: Operator, port: str) -> str:
    """Return an operator and its input, for the beginning of an error."""
    return f"operator {operator.name!r}, input {port!r}"


def tensors_of(message: Any, operator: Operator, port: str) -> dict[str, Tensor]:
    """Return the tensors of a message; an array by itself is named ""."""
    arrays = message if isinstance(message, Mapping) else {"": message}
    return {str(name): _tensor(array, name, operator, port) for name, array in arrays.items()}


def _tensor(array: Any, name: Any, operator: Operator, port: str) -> Tensor:
    if type(array) is Tensor:
        return array
    try:
        return as_tensor(array)
    except Exception as error:
        raise TypeError(
            f"{place_of(operator, port)}: expected an array of any library, or a dict or TensorMap of arrays; "
            f"{name!r} is a {type(array).__name__} ({error})"
        ) from error


def find_tensor(message: Any, name: str, operator: Operator, port: str) -> Tensor:
    """Return one tensor of a message: the one with a name, or the only one if the name is "".

    An array by itself has no name, so every name fits it.

    Raises
    ------
    ValueError
        If the message has no such tensor, or several and no name was asked for.
    """
    if type(message) is TensorMap and name in message:
        return message[name]
    if not isinstance(message, Mapping):
        message = {name: message}
    elif name not in message:
        where = f"{place_of(operator, port)}: the message has"
        if not message:
            raise ValueError(f"{where} no tensor")
        if name:
            raise ValueError(
                f"{where} no tensor {name!r}; it has {choices(message, name)}. Set in_tensor_name, or the name "
                "that the sender uses"
            )
        if len(message) > 1:
            raise ValueError(
                f"{where} {len(message)} tensors, {choices(message)}; set in_tensor_name to one of them"
            )
        name = next(iter(message))
    return _tensor(message[name], name, operator, port)


def gather(
    messages: Iterable[Any],
    needed: Mapping[str, str],
    unnamed: str | None,
    operator: Operator,
    port: str,
    kind: type[Exception] = ValueError,
) -> dict[str, Tensor]:
    """Return the tensors that are needed, from all messages that an input received.

    Parameters
    ----------
    messages
        The messages; None for a connection without one.
    needed
        The names of the tensors, and what needs each, for errors.
    unnamed
        The name that stands for a tensor without one, if it is the only tensor.
    operator, port
        The operator, and the input.
    kind
        The error that is raised if a tensor is missing or comes twice.
    """
    arrays: dict[str, Any] = {}
    twice: set[str] = set()
    for message in messages:
        named = message if isinstance(message, Mapping) else {} if message is None else {"": message}
        twice |= arrays.keys() & named.keys()
        arrays.update(named)
    if unnamed is not None and len(arrays) == 1 and "" in arrays and not twice:
        arrays = {unnamed: arrays[""]}
    for name, user in needed.items():
        where = f"{place_of(operator, port)}: {user} needs the tensor {name!r}"
        if name in twice or (name not in arrays and "" in twice):
            brought = name if name in twice else ""
            raise kind(f"{where}, and two messages brought the tensor {brought!r}; give them different names")
        if name not in arrays:
            raise kind(
                f"{where}; the messages have {choices(arrays, name)}. Name it so in the sender, or name another "
                "one in the operator"
            )
    return {name: _tensor(arrays[name], name, operator, port) for name in needed}


@op
def split_batch(batch: Any, *, context: Any) -> Iterator[Any]:
    """Emit each item of what it receives, a list or an array, as a message of its own.

    Each carries the metadata and the timestamp of what was received. If that stems from the messages of a batch,
    each item answers the call of its own message alone.
    """
    count = len(batch)
    for place in range(count):
        output = context.output
        output.calls = of_part(output.calls, place, count)
        yield batch[place]


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
            parameter.checked(getattr(operator, parameter.name), f"operator {operator.name!r}")
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
