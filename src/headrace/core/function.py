"""@op: a plain function as an operator.

Its positional arguments are inputs of the same names, its keyword-only arguments are parameters, and its return
value is emitted. The run supplies two keyword-only arguments: ``metadata`` is the metadata of the received
messages, which emitted messages carry on, and ``context`` is the :class:`ExecutionContext`. A function that yields
emits one value in each step. Without inputs it is a source, which ends when the function ends. With inputs it may
yield any number of times for each message, and receives the next message when it has ended for the previous one.

The decorated function can still be called. With a fragment as its first argument it creates an operator; otherwise
it works as before, so that it can be tested by itself.

A type checker sees both. A plain call has the signature of the function. A call that creates an operator takes
conditions and resources by position, and ``name``, ``on_error`` and any other keyword. A ParamSpec cannot express
the parameters without the inputs and the arguments that the run supplies. So their names and types are checked when
the operator is created.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from headrace.core.errors import GraphError, choices
from headrace.core.function_operator import FunctionOperator
from headrace.core.parameter import REQUIRED
from headrace.core.port_declarations import Input, Output, PortDeclaration
from headrace.core.ports import IOSpec

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.error_policy import OnError
    from headrace.core.operator import Part

P = ParamSpec("P")
R = TypeVar("R")
Outputs: TypeAlias = str | Sequence[str] | Mapping[str, Output]


@overload
def op(function: Callable[P, R], /) -> OperatorFunction[P, R]: ...
@overload
def op(
    *,
    inputs: Mapping[str, Input] | None = None,
    outputs: Outputs = "out",
    on_error: OnError = "stop",
    capturable: bool | str = False,
) -> Callable[[Callable[P, R]], OperatorFunction[P, R]]: ...
def op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inputs: Mapping[str, Input] | None = None,
    outputs: Outputs = "out",
    on_error: OnError = "stop",
    capturable: bool | str = False,
) -> Any:
    """Make a function usable as an operator.

    Parameters
    ----------
    function
        Its positional arguments become inputs of the same names; ``*values`` becomes an ``ANY_SIZE`` input, to
        which any number of outputs may be connected. Its keyword-only arguments become parameters. Its return value
        is emitted, or the values that it yields, one in each step; None emits nothing. A keyword-only argument
        named ``metadata`` or ``context`` is not a parameter: it is the operator's metadata, or its
        :class:`ExecutionContext`.
    inputs
        Declarations of inputs beyond their names: ``{"frame": Input(policy=IOSpec.QueuePolicy.POP)}``.
    outputs
        The names of the outputs, ``"out"`` unless given. With several outputs, the function returns a tuple with a
        value for each, or a dict by name; None in a tuple, or a missing name, emits nothing there. An empty tuple
        declares no outputs. A dict declares more about each output: ``{"out": Output(size=2)}``.
    on_error
        What happens when the function raises (see :attr:`Operator.on_error`), unless the operator is created with
        another ``on_error=``.
    capturable
        Whether a segment may replay it as a CUDA graph (see :attr:`Operator.capturable`).
    """
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for name in names:
        if not isinstance(name, str) or not name or names.count(name) > 1:
            raise ValueError(
                f"@op(outputs={outputs!r}): the names of outputs must be non-empty strs, all different; omit "
                "outputs for one named 'out', outputs=() declares none"
            )
    if function is None:
        return lambda function: OperatorFunction(function, outputs, inputs, on_error, capturable)
    return OperatorFunction(function, outputs, inputs, on_error, capturable)


_SUPPLIED = ("metadata", "context")
# Keywords of the call that creates an operator.
_OF_THE_OPERATOR = ("name", "on_error")


def _ports(
    kind: type[PortDeclaration], what: str, given: Mapping[str, Any], names: Sequence[str], function: str
) -> dict[str, PortDeclaration]:
    """Return the declaration of each port, or the default if none was given."""
    for name, port in given.items():
        if name not in names:
            raise GraphError(f"@op: {function} has no {what} {name!r}; it has {choices(names)}")
        if not isinstance(port, kind):
            example = f"{kind.__name__}(size=...)"
            raise GraphError(
                f"@op: {what} {name!r} of {function} must be declared by {example}, not {port!r}"
            )
    return {name: given.get(name) or kind() for name in names}


class OperatorFunction(Generic[P, R]):
    """A function that creates an operator when it is called with a fragment."""

    def __init__(
        self,
        function: Callable[P, R],
        outputs: Outputs = "out",
        inputs: Mapping[str, Input] | None = None,
        on_error: OnError = "stop",
        capturable: bool | str = False,
    ) -> None:
        if not inspect.isfunction(function):
            raise TypeError(f"@op takes a plain function, not {function!r}")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"@op cannot run {function.__name__}, which is async: an operator has no event loop to await it. "
                f"Make it a plain function (def {function.__name__}), with asyncio.run(...) inside it for a "
                "coroutine that ends; for work that continues outside, write an Operator with an "
                "AsynchronousCondition"
            )
        self.function = function
        self.outputs: tuple[str, ...] = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        self.on_error = on_error
        self.capturable = capturable
        self.inputs: list[str] = []
        self.receivers = ""
        self.parameters: dict[str, Any] = {}
        # The keyword-only arguments that the run supplies.
        self.supplied: list[str] = []
        for name, argument in inspect.signature(function).parameters.items():
            if argument.kind is argument.KEYWORD_ONLY and name in _OF_THE_OPERATOR:
                raise TypeError(
                    f"@op: {name!r} of {function.__name__} cannot be a parameter: {function.__name__}(self, "
                    f"{name}=...) sets the {name} of the operator; give the parameter another name"
                )
            if argument.kind is argument.KEYWORD_ONLY and name in _SUPPLIED:
                self.supplied.append(name)
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
                f"@op: *{self.receivers} of {function.__name__} takes several messages; give its Input a "
                "size other than 1, or no size"
            )
        declared = outputs if isinstance(outputs, Mapping) else {}
        self.output_ports = _ports(Output, "output", declared, self.outputs, function.__name__)
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    # A function whose first input is a fragment would match both; the first overload is what happens.
    @overload
    def __call__(
        self,
        fragment: Composition,
        /,
        *parts: Part,
        name: str = "",
        on_error: OnError = "stop",
        **parameters: Any,
    ) -> FunctionOperator: ...
    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Create an operator if the first argument is a fragment; otherwise call the function."""
        from headrace.core.composition import Composition

        if args and isinstance(args[0], Composition):
            return self.operator(*args, **kwargs)
        return self.function(*args, **kwargs)

    def operator(
        self, fragment: Composition, /, *parts: Part, name: str = "", **parameters: Any
    ) -> FunctionOperator:
        """Create an operator from this function in a fragment."""
        return FunctionOperator(fragment, self, *parts, name=name, **parameters)

    def __repr__(self) -> str:
        inputs = [*self.inputs, f"*{self.receivers}"] if self.receivers else self.inputs
        return f"<op {self.__name__}({', '.join(inputs)}) -> {', '.join(self.outputs) or 'nothing'}>"
