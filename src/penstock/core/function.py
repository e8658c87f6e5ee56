"""@op: a plain function as an operator.

Its arguments are the inputs, in the order and by the names they have; its keyword-only arguments are the
parameters; what it returns is emitted. Two keyword-only arguments are given by the run: ``metadata``, what
came with what it received and goes with what it emits, and ``context``, what `compute` of an operator is
handed. A function that yields emits each value, one in each step: one without
inputs is a source and ends when it does; one with inputs may yield any number of times for each message, and takes
the next when it has ended for the last. So no queue behind it need hold more than one message, and it waits for
room between two values like any operator between two messages. Emitting all of them in one step, as `emit` in a
loop does, would need queues as long as the longest answer.

The decorated function is still a function: called with a fragment first it makes an operator, called
with anything else it does what it did before, so that it can be tried and tested by itself.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from penstock.core.declared import Declared, Input, Output
from penstock.core.errors import GraphError, choices
from penstock.core.operator import Operator
from penstock.core.parameter import REQUIRED
from penstock.core.ports import IOSpec
from penstock.core.registry import registry

if TYPE_CHECKING:
    from penstock.core.contexts import ExecutionContext, InputContext, OutputContext
    from penstock.core.protocols import Resume
    from penstock.core.spec import OperatorSpec

Outputs: TypeAlias = str | Sequence[str] | Mapping[str, Output]
Compute: TypeAlias = Callable[[Any, Any, Any], None]

__all__ = ["FunctionOperator", "OperatorFunction", "op"]


@overload
def op(function: Callable[..., Any], /) -> OperatorFunction: ...
@overload
def op(
    *, inputs: Mapping[str, Input] | None = None, outputs: Outputs = "out", on_error: Any = "stop"
) -> Callable[[Callable[..., Any]], OperatorFunction]: ...
def op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inputs: Mapping[str, Input] | None = None,
    outputs: Outputs = "out",
    on_error: Any = "stop",
) -> Any:
    """Make a function usable as an operator.

    Parameters
    ----------
    function
        Its positional arguments become inputs of the same names (``*values`` an ``ANY_SIZE`` input, to which
        any number of outputs may be connected), its keyword-only arguments parameters, and what it returns
        is emitted, or what it yields, a value in each step; None emits nothing. A keyword-only argument named
        ``metadata`` or ``context`` is no parameter: it is the operator's metadata, or its
        :class:`ExecutionContext`.
    inputs
        What is to be said of inputs beside their names: ``{"frame": Input(policy=IOSpec.QueuePolicy.POP)}``.
    outputs
        The names of the outputs, ``"out"`` unless given. With several, the function returns a tuple with
        a value for each or a dict by name; None in a tuple, or a name that is missing, emits nothing there.
        An empty tuple declares that it has none. A dict says more about each: ``{"out": Output(size=2)}``.
    on_error
        What happens when the function raises (see :attr:`Operator.on_error`), unless the operator is made with
        another ``on_error=``.
    """
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for name in names:
        if not isinstance(name, str) or not name or names.count(name) > 1:
            raise ValueError(
                f"@op(outputs={outputs!r}): an output's name is a str that is not empty, and each is another; "
                "leave outputs away for one named 'out', outputs=() declares none"
            )
    if function is None:
        return lambda function: OperatorFunction(function, outputs, inputs, on_error)
    return OperatorFunction(function, outputs, inputs, on_error)


_GIVEN = ("metadata", "context")


def _ports(
    kind: type[Declared], what: str, said: Mapping[str, Any], names: Sequence[str], function: str
) -> dict[str, Declared]:
    """Return what is declared of each port, the defaults where nothing is."""
    for name, port in said.items():
        if name not in names:
            raise GraphError(f"@op: {function} has no {what} {name!r}; it has {choices(names)}")
        if not isinstance(port, kind):
            example = f"{kind.__name__}(size=...)"
            raise GraphError(f"@op: {what} {name!r} of {function} is declared by {example}, not by {port!r}")
    return {name: said.get(name) or kind() for name in names}


class OperatorFunction:
    """A function that can also make operators of itself."""

    def __init__(
        self,
        function: Callable[..., Any],
        outputs: Outputs = "out",
        inputs: Mapping[str, Input] | None = None,
        on_error: Any = "stop",
    ) -> None:
        if not inspect.isfunction(function):
            raise TypeError(f"@op takes a plain function, not {function!r}")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"@op cannot run {function.__name__}, which is async: an operator has no event loop to await it. "
                f"Make it a plain function (def {function.__name__}), with asyncio.run(...) inside it for a "
                "coroutine that ends; for work that goes on outside, write an Operator with an "
                "AsynchronousCondition"
            )
        self.function = function
        self.outputs: tuple[str, ...] = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        self.on_error = on_error
        self.inputs: list[str] = []
        self.receivers = ""
        self.parameters: dict[str, Any] = {}
        # The keyword-only arguments that the run gives.
        self.given: list[str] = []
        for name, argument in inspect.signature(function).parameters.items():
            if argument.kind is argument.KEYWORD_ONLY and name in _GIVEN:
                self.given.append(name)
            elif argument.kind is argument.KEYWORD_ONLY:
                self.parameters[name] = REQUIRED if argument.default is argument.empty else argument.default
            elif argument.kind is argument.VAR_POSITIONAL:
                self.receivers = name
            elif argument.kind is argument.VAR_KEYWORD:
                raise TypeError(
                    f"@op cannot make parameters of {argument} in {function.__name__}: name each of them"
                )
            elif argument.default is not argument.empty:
                raise TypeError(
                    f"@op: is {name!r} of {function.__name__} an input or a parameter? An input has no "
                    f"default; a parameter stands after a *: def {function.__name__}(..., *, {argument})"
                )
            elif name in ("self", "cls"):
                raise TypeError(
                    f"@op takes a plain function, and {function.__qualname__} is a method: its {name!r} would be "
                    "an input; write a class that derives from Operator instead"
                )
            else:
                self.inputs.append(name)
        names = [*self.inputs, self.receivers] if self.receivers else self.inputs
        self.input_ports = _ports(Input, "input", inputs or {}, names, function.__name__)
        if self.receivers and self.input_ports[self.receivers].size in (1, IOSpec.SIZE_ONE):
            raise GraphError(
                f"@op: *{self.receivers} of {function.__name__} takes several messages; give its Input another "
                "size than 1, or none"
            )
        declared = outputs if isinstance(outputs, Mapping) else {}
        self.output_ports = _ports(Output, "output", declared, self.outputs, function.__name__)
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make an operator if the first argument is a fragment; otherwise call the function."""
        from penstock.core.fragment import Fragment

        if args and isinstance(args[0], Fragment):
            return self.operator(*args, **kwargs)
        return self.function(*args, **kwargs)

    def operator(self, fragment: Any, *args: Any, name: str = "", **kwargs: Any) -> FunctionOperator:
        """Make an operator of this function in a fragment."""
        return FunctionOperator(fragment, self, *args, name=name, **kwargs)

    def __repr__(self) -> str:
        inputs = [*self.inputs, f"*{self.receivers}"] if self.receivers else self.inputs
        return f"<op {self.__name__}({', '.join(inputs)}) -> {', '.join(self.outputs) or 'nothing'}>"


class FunctionOperator(Operator):
    """The operator that a decorated function makes."""

    is_function = True

    @property
    def has_more(self) -> bool:
        """Whether the function has begun to yield and has not ended."""
        return self._steps is not None

    @property
    def never_emits(self) -> bool:
        """Whether the function never returns a value."""
        return _never_returns(self.declared.function)

    def __init__(
        self, fragment: Any, declared: OperatorFunction, *args: Any, name: str = "", **kwargs: Any
    ) -> None:
        self.declared = declared
        self.on_error = declared.on_error
        super().__init__(fragment, *args, name=name or fragment._unused_name(declared.__name__), **kwargs)
        self._steps: Iterator[Any] | None = None
        # What keeps its node ready while it has more to yield; made at the first start of a run.
        self._resume: Resume | None = None

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the function's ports and parameters."""
        declared = self.declared
        for name in declared.inputs:
            declared.input_ports[name].declare(spec.input, name)
        if declared.receivers:
            declared.input_ports[declared.receivers].declare(spec.input, declared.receivers, IOSpec.ANY_SIZE)
        for name in declared.outputs:
            declared.output_ports[name].declare(spec.output, name)
            if inspect.isgeneratorfunction(declared.function):
                spec.outputs[name].size = 1  # it emits one value in each step, however many there are
        for name, default in self.declared.parameters.items():
            spec.param(name, default)

    def start(self) -> None:
        """Choose the compute that this function needs; made once, so that a step costs one call more."""
        parameters = {name: getattr(self, name) for name in self.declared.parameters}
        if self.declared.given:
            assert self._node is not None
            given = {"metadata": self.metadata, "context": self._node.context}
            parameters.update({name: given[name] for name in self.declared.given})
        function = self.declared.function
        call = partial(function, **parameters) if parameters else function
        if not inspect.isgeneratorfunction(function):
            chosen = self._returning(call)
        elif self.declared.inputs or self.declared.receivers:
            chosen = self._yielding(call)
        else:
            self._steps = call()
            chosen = self._stepping(self._steps)
        self.compute = chosen  # type: ignore[method-assign, assignment]

    def stop(self) -> None:
        """Close a generator that did not come to its end."""
        close = getattr(self._steps, "close", None)
        self._steps = None
        if self._resume is not None:
            self._resume.end()  # where it is restarted, it waits for the next message
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
        if resume is None or resume.node is not self._node:  # a restart goes on with the one there is
            resume = self._resume = registry.resume(self._node)

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
                    # The step that finds out that there is no other value emits none, so it can begin the next
                    # message. One in each step, so that a function that yields nothing lets others run, too.
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
                f"operator {self.name!r} gave {value!r} and is declared without outputs: @op(outputs=...)"
            )
        if isinstance(value, dict):
            unknown = [name for name in value if name not in outputs]
            if unknown:
                raise GraphError(
                    f"operator {self.name!r} gave a value for {choices(unknown)}; "
                    f"its outputs are {choices(outputs)}"
                )
            pairs = list(value.items())
        elif isinstance(value, tuple) and len(value) == len(outputs):
            pairs = list(zip(outputs, value, strict=True))
        else:
            raise GraphError(
                f"operator {self.name!r} has the outputs {choices(outputs)} and must give a tuple with a "
                f"value for each or a dict by name, not {value!r}"
            )
        for name, part in pairs:
            if part is not None:
                op_output.emit(part, name)


def _never_returns(function: Callable[..., Any]) -> bool:
    """Return whether a function ends by itself and never with a value."""
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
