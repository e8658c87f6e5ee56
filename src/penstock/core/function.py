"""@op: a plain function as an operator.

Its arguments are the inputs, in the order and by the names they have; its keyword-only arguments are the
parameters; what it returns is emitted. A function that yields emits each value: one without inputs is a
source, runs one step for each value and ends when it does; one with inputs may yield any number of times
for each message.

The decorated function is still a function: called with a fragment first it makes an operator, called
with anything else it does what it did before, so that it can be tried and tested by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from penstock.core.errors import GraphError, choices
from penstock.core.operator import Operator
from penstock.core.parameter import REQUIRED
from penstock.core.ports import IOSpec

if TYPE_CHECKING:
    from penstock.core.spec import OperatorSpec
    from penstock.runtime.contexts import ExecutionContext, InputContext, OutputContext

Compute: TypeAlias = Callable[[Any, Any, Any], None]

__all__ = ["FunctionOperator", "OperatorFunction", "op"]


@overload
def op(function: Callable[..., Any], /) -> OperatorFunction: ...
@overload
def op(
    *, outputs: str | Sequence[str] = "out", on_error: Any = "stop"
) -> Callable[[Callable[..., Any]], OperatorFunction]: ...
def op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    outputs: str | Sequence[str] = "out",
    on_error: Any = "stop",
) -> Any:
    """Make a function usable as an operator.

    Parameters
    ----------
    function
        Its positional arguments become inputs of the same names (``*values`` an ``ANY_SIZE`` input, to which
        any number of outputs may be connected), its keyword-only arguments parameters, and what it returns
        or yields is emitted; None emits nothing.
    outputs
        The names of the outputs, ``"out"`` unless given. With several, the function returns a tuple with
        a value for each or a dict by name; None in a tuple, or a name that is missing, emits nothing there.
        An empty tuple declares that it has none.
    on_error
        What happens when the function raises (see :attr:`Operator.on_error`), unless the operator is made with
        another ``on_error=``.
    """
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    if function is None:
        return lambda function: OperatorFunction(function, names, on_error)
    return OperatorFunction(function, names, on_error)


class OperatorFunction:
    """A function that can also make operators of itself."""

    def __init__(
        self, function: Callable[..., Any], outputs: tuple[str, ...], on_error: Any = "stop"
    ) -> None:
        if not inspect.isfunction(function):
            raise TypeError(f"@op takes a plain function, not {function!r}")
        self.function = function
        self.outputs = outputs
        self.on_error = on_error
        self.inputs: list[str] = []
        self.receivers = ""
        self.parameters: dict[str, Any] = {}
        for name, argument in inspect.signature(function).parameters.items():
            if argument.kind is argument.KEYWORD_ONLY:
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
            else:
                self.inputs.append(name)
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

    def __init__(
        self, fragment: Any, declared: OperatorFunction, *args: Any, name: str = "", **kwargs: Any
    ) -> None:
        self.declared = declared
        self.on_error = declared.on_error
        super().__init__(fragment, *args, name=name or fragment._unused_name(declared.__name__), **kwargs)
        self._steps: Iterator[Any] | None = None

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the function's ports and parameters."""
        for name in self.declared.inputs:
            spec.input(name)
        if self.declared.receivers:
            spec.input(self.declared.receivers, size=IOSpec.ANY_SIZE)
        for name in self.declared.outputs:
            spec.output(name)
        for name, default in self.declared.parameters.items():
            spec.param(name, default)

    def start(self) -> None:
        """Choose the compute that this function needs; made once, so that a step costs one call more."""
        parameters = {name: getattr(self, name) for name in self.declared.parameters}
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
        """Close the generator of a source that did not come to its end."""
        close = getattr(self._steps, "close", None)
        self._steps = None
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
            several = receive(receivers) if receivers else ()
            emit_parts(op_output, call(*[receive(name) for name in inputs], *several))

        return compute

    def _yielding(self, call: Callable[..., Any]) -> Compute:
        inputs, receivers, emit_parts = tuple(self.declared.inputs), self.declared.receivers, self._emit

        def compute(op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
            receive = op_input.receive
            several = receive(receivers) if receivers else ()
            for value in call(*[receive(name) for name in inputs], *several):
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
