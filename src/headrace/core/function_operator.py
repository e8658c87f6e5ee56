"""FunctionOperator: the operator of a function decorated with `@op`.

A function that yields emits one value in each step. So queues behind it need hold only one message, and it waits
for room between two values as other operators do between two messages. Emitting all values in one step, like `emit`
in a loop, would need queues as long as the longest result.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.core.construction import needs_fragment
from headrace.core.errors import GraphError, choices
from headrace.core.operator import Operator
from headrace.core.ports import IOSpec
from headrace.core.reserved_names import reserved_names

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.function import OperatorFunction
    from headrace.core.node import Resume
    from headrace.core.operator import Part
    from headrace.core.spec import OperatorSpec

Compute: TypeAlias = Callable[[Any, Any, Any], None]


class FunctionOperator(Operator):
    """The operator of a decorated function."""

    is_function = True

    declared: OperatorFunction[..., Any]
    _values: _Values
    _steps: Iterator[Any] | None
    _resume: Resume | None

    @property
    def yields(self) -> bool:
        """Whether the function yields values instead of returning one."""
        return inspect.isgeneratorfunction(self.declared.function)

    @property
    def has_more(self) -> bool:
        """Whether the function has begun to yield and has not ended."""
        return self._steps is not None

    @property
    def _parameters(self) -> _Values:
        return self._values

    @property
    def never_emits(self) -> bool:
        """Whether the function never returns a value."""
        return _never_returns(self.declared.function)

    @needs_fragment
    def __init__(
        self,
        fragment: Composition,
        declared: OperatorFunction[..., Any],
        /,
        *parts: Part,
        name: str = "",
        **parameters: Any,
    ) -> None:
        self.declared = declared
        self.on_error = declared.on_error
        self.capturable = declared.capturable
        self._values = _Values(self)
        unused_name = name or fragment._unused_name(declared.__name__)
        self._construct(fragment, parts, unused_name, parameters)
        self._steps = None
        # Keeps its node ready while the function has more to yield; made at the first start of a run.
        self._resume = None

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the function's ports and parameters."""
        declared = self.declared
        for name in declared.inputs:
            declared.input_ports[name].declare(spec.input, name)
        if declared.receivers:
            declared.input_ports[declared.receivers].declare(spec.input, declared.receivers, IOSpec.ANY_SIZE)
        for name in declared.outputs:
            declared.output_ports[name].declare(spec.output, name)
            if self.yields:
                spec.outputs[name].size = 1  # it emits one value in each step
        # Those of the operator's own attributes say nothing about parameters that happen to have their names.
        spec.annotations = inspect.get_annotations(declared.function)
        for name, default in declared.parameters.items():
            spec.param(name, default)

    def start(self) -> None:
        """Create the compute for this function once, so that a step costs only one more call."""
        parameters = {name: getattr(self._values, name) for name in self.declared.parameters}
        if self.declared.supplied:
            assert self._node is not None
            supplied = {"metadata": self.metadata, "context": self._node.context}
            parameters.update({name: supplied[name] for name in self.declared.supplied})
        function = self.declared.function
        call = partial(function, **parameters) if parameters else function
        if not self.yields:
            chosen = self._returning(call)
        elif self.declared.inputs or self.declared.receivers:
            chosen = self._yielding(call)
        else:
            self._steps = call()
            chosen = self._stepping(self._steps)
        self.compute = chosen  # type: ignore[method-assign, assignment]

    def stop(self) -> None:
        """Close a generator that has not ended."""
        close = getattr(self._steps, "close", None)
        self._steps = None
        if self._resume is not None:
            self._resume.end()  # after a restart it waits for the next message
        if close is not None:
            close()

    def _returning(self, call: Callable[..., Any]) -> Compute:
        inputs, outputs, emit_parts = tuple(self.declared.inputs), self.declared.outputs, self._emit
        receivers = self.declared.receivers
        if len(inputs) == 1 and len(outputs) == 1 and not receivers:
            (input_,), (output,) = inputs, outputs

            def compute_one(
                op_input: InputContext, op_output: OutputContext, context: ExecutionContext
            ) -> None:
                value = call(op_input.receive(input_))
                if value is not None:
                    op_output.emit(value, output)

            return compute_one

        def compute(op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
            receive = op_input.receive
            several = (receive(receivers) or ()) if receivers else ()
            emit_parts(op_output, call(*[receive(name) for name in inputs], *several))

        return compute

    def _yielding(self, call: Callable[..., Iterator[Any]]) -> Compute:
        inputs, receivers, emit_parts = tuple(self.declared.inputs), self.declared.receivers, self._emit
        assert self._node is not None
        resume = self._resume
        if resume is None or resume.node is not self._node:  # a restart keeps the existing one
            resume = self._resume = self._node.make_resume()

        def compute(op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
            resume.begin_step()
            steps = self._steps
            while True:
                if steps is None:
                    receive = op_input.receive
                    several = (receive(receivers) or ()) if receivers else ()
                    steps = self._steps = call(*[receive(name) for name in inputs], *several)
                    resume.note()
                try:
                    value = next(steps)
                    break
                except StopIteration:
                    steps = self._steps = None
                    resume.end()
                    # The step that finds no further value emits nothing, so it can begin the next message. It
                    # begins at most one, so that a function that yields nothing still lets other operators run.
                    if resume.received or not resume.may_receive():
                        return
            resume.go_on()
            emit_parts(op_output, value)

        return compute

    def _stepping(self, steps: Iterator[Any]) -> Compute:
        emit_parts, end = self._emit, self.stop_execution

        def compute(op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
            try:
                value = next(steps)
            except StopIteration:
                end()
            else:
                emit_parts(op_output, value)

        return compute

    def _emit(self, op_output: OutputContext, value: Any) -> None:
        if value is None:
            return
        outputs = self.declared.outputs
        if len(outputs) == 1:
            op_output.emit(value, outputs[0])
            return
        if not outputs:
            raise GraphError(
                f"operator {self.name!r} returned {value!r} but is declared without outputs: @op(outputs=...)"
            )
        if isinstance(value, dict):
            unknown = [name for name in value if name not in outputs]
            if unknown:
                raise GraphError(
                    f"operator {self.name!r} returned a value for {choices(unknown)}; "
                    f"its outputs are {choices(outputs)}"
                )
            pairs = list(value.items())
        elif isinstance(value, tuple) and len(value) == len(outputs):
            pairs = list(zip(outputs, value, strict=True))
        else:
            raise GraphError(
                f"operator {self.name!r} has the outputs {choices(outputs)} and must return a tuple with a "
                f"value for each or a dict by name, not {value!r}"
            )
        for name, part in pairs:
            if part is not None:
                op_output.emit(part, name)


class _Values:
    """The parameters of a function, by name.

    They are attributes of the operator, except for those with the name of an attribute that it has anyway: `start`,
    `stop` and `fragment` are ordinary words for parameters.
    """

    __slots__ = ("_hidden", "_operator")

    def __init__(self, operator: FunctionOperator) -> None:
        object.__setattr__(self, "_operator", operator)
        object.__setattr__(self, "_hidden", {})

    def __getattribute__(self, name: str) -> Any:
        get = object.__getattribute__
        if name not in reserved_names(FunctionOperator):
            return getattr(get(self, "_operator"), name)
        try:
            return get(self, "_hidden")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        get = object.__getattribute__
        if name in reserved_names(FunctionOperator):
            get(self, "_hidden")[name] = value
        else:
            setattr(get(self, "_operator"), name, value)


def _never_returns(function: Callable[..., Any]) -> bool:
    """Return whether every end of a function returns None."""
    if inspect.isgeneratorfunction(function):
        return False
    ends = []
    last: Any = None
    for instruction in dis.get_instructions(function):
        if instruction.opname == "RETURN_CONST":
            ends.append(instruction.argval)
        elif instruction.opname == "RETURN_VALUE":
            is_constant = last.opname == "LOAD_CONST" and not instruction.is_jump_target
            ends.append(last.argval if is_constant else function)
        last = instruction
    return bool(ends) and all(value is None for value in ends)
