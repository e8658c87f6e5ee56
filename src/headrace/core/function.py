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

A function that yields emits one value in each step. So queues behind it need hold only one message, and it waits
for room between two values as other operators do between two messages. Emitting all values in one step, like `emit`
in a loop, would need queues as long as the longest result.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from headrace.core.composition import Composition
from headrace.core.construction import needs_fragment
from headrace.core.errors import GraphError, choices
from headrace.core.operator import Operator
from headrace.core.parameter import REQUIRED, reserved_names
from headrace.core.ports import Input, IOSpec, Output, PortDeclaration

if TYPE_CHECKING:
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.error_policy import OnError
    from headrace.core.node import Resume
    from headrace.core.operator import Part
    from headrace.core.spec import OperatorSpec

P = ParamSpec("P")
R = TypeVar("R")
Outputs: TypeAlias = str | Sequence[str] | Mapping[str, Output]
Compute: TypeAlias = Callable[[Any, Any, Any], None]


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
    make = partial(OperatorFunction, outputs=outputs, inputs=inputs, on_error=on_error, capturable=capturable)
    return make if function is None else make(function)


_SUPPLIED = ("metadata", "context")
# Keywords of the call that creates an operator.
_OF_THE_OPERATOR = ("name", "on_error")


class OperatorFunction(Generic[P, R]):
    """A function that creates an operator when it is called with a fragment.

    Attributes
    ----------
    inputs, outputs
        The declarations of its ports, by name; `receivers` is the input of ``*values``, if there is one.
    parameters
        The defaults of its parameters, by name.
    supplied
        The keyword-only arguments that the run supplies.
    """

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
        called = function.__name__
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"@op cannot run {called}, which is async: an operator has no event loop to await it. Make it a "
                f"plain function (def {called}), with asyncio.run(...) inside it for a coroutine that ends; for "
                "work that continues outside, write an Operator with an AsynchronousCondition"
            )
        self.function = function
        self.on_error = on_error
        self.capturable = capturable
        self.receivers = ""
        self.parameters: dict[str, Any] = {}
        self.supplied: list[str] = []
        found: list[str] = []
        for name, argument in inspect.signature(function).parameters.items():
            is_keyword = argument.kind is argument.KEYWORD_ONLY
            if is_keyword and name in _OF_THE_OPERATOR:
                raise TypeError(
                    f"@op: {name!r} of {called} cannot be a parameter: {called}(self, {name}=...) sets the {name} "
                    "of the operator; give the parameter another name"
                )
            if is_keyword and name in _SUPPLIED:
                self.supplied.append(name)
            elif is_keyword:
                self.parameters[name] = REQUIRED if argument.default is argument.empty else argument.default
            elif argument.kind is argument.VAR_KEYWORD:
                raise TypeError(f"@op cannot make parameters of {argument} in {called}: name each of them")
            elif argument.default is not argument.empty:
                raise TypeError(
                    f"@op: is {name!r} of {called} an input or a parameter? An input has no default; a parameter "
                    f"stands after a *: def {called}(..., *, {argument})"
                )
            elif name in ("self", "cls"):
                raise TypeError(
                    f"@op takes a plain function, and {function.__qualname__} is a method: its {name!r} would be "
                    "an input; write a class that derives from Operator instead"
                )
            else:
                found.append(name)
                if argument.kind is argument.VAR_POSITIONAL:
                    self.receivers = name
        self.inputs = _ports(Input, "input", inputs or {}, found, called)
        if self.receivers and self.inputs[self.receivers].given_size in (1, IOSpec.SIZE_ONE):
            raise GraphError(
                f"@op: *{self.receivers} of {called} takes several messages; give its Input a size other than 1, "
                "or no size"
            )
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        for name in names:
            if not isinstance(name, str) or not name or names.count(name) > 1:
                raise ValueError(
                    f"@op(outputs={outputs!r}): the names of outputs must be non-empty strs, all different; omit "
                    "outputs for one named 'out', outputs=() declares none"
                )
        declared = outputs if isinstance(outputs, Mapping) else {}
        self.outputs = _ports(Output, "output", declared, names, called)
        self.__name__ = called
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
        if args and isinstance(args[0], Composition):
            return self.operator(*args, **kwargs)
        return self.function(*args, **kwargs)

    def operator(
        self, fragment: Composition, /, *parts: Part, name: str = "", **parameters: Any
    ) -> FunctionOperator:
        """Create an operator from this function in a fragment."""
        return FunctionOperator(fragment, self, *parts, name=name, **parameters)

    def __reduce__(self) -> str:
        """Pickle it by its name, as a function is."""
        return self.function.__qualname__

    def __repr__(self) -> str:
        inputs = [f"*{name}" if name == self.receivers else name for name in self.inputs]
        return f"<op {self.__name__}({', '.join(inputs)}) -> {', '.join(self.outputs) or 'nothing'}>"


D = TypeVar("D", bound=PortDeclaration)


def _ports(
    kind: type[D], what: str, given: Mapping[str, Any], names: Sequence[str], function: str
) -> dict[str, D]:
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
    def _parameters(self) -> _Values:
        return self._values

    @property
    def has_more(self) -> bool:
        """Whether the function has begun to yield and has not ended."""
        return self._steps is not None

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
        for name, port in declared.inputs.items():
            port.declare(spec.input, name, IOSpec.ANY_SIZE if name == declared.receivers else IOSpec.SIZE_ONE)
        for name, output in declared.outputs.items():
            output.declare(spec.output, name, IOSpec.SIZE_ONE)
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
        elif self.declared.inputs:
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

    def _arguments(self) -> Callable[[InputContext], list[Any]]:
        """Return a function that receives the arguments of one call."""
        receivers = self.declared.receivers
        names = [name for name in self.declared.inputs if name != receivers]

        def receive(op_input: InputContext) -> list[Any]:
            values = [op_input.receive(name) for name in names]
            return [*values, *(op_input.receive(receivers) or ())] if receivers else values

        return receive

    def _returning(self, call: Callable[..., Any]) -> Compute:
        inputs, outputs = tuple(self.declared.inputs), tuple(self.declared.outputs)
        if len(inputs) == 1 and len(outputs) == 1 and not self.declared.receivers:
            (input_,), (output,) = inputs, outputs

            def compute_one(
                op_input: InputContext, op_output: OutputContext, context: ExecutionContext
            ) -> None:
                value = call(op_input.receive(input_))
                if value is not None:
                    op_output.emit(value, output)

            return compute_one

        receive, emit_parts = self._arguments(), self._emit

        def compute(op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
            emit_parts(op_output, call(*receive(op_input)))

        return compute

    def _yielding(self, call: Callable[..., Iterator[Any]]) -> Compute:
        receive, emit_parts = self._arguments(), self._emit
        assert self._node is not None
        resume = self._resume
        if resume is None or resume.node is not self._node:  # a restart keeps the existing one
            resume = self._resume = self._node.make_resume()

        def compute(op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
            resume.begin_step()
            steps = self._steps
            while True:
                if steps is None:
                    steps = self._steps = call(*receive(op_input))
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
            op_output.emit(value, next(iter(outputs)))
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
