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

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from headrace.brief import brief
from headrace.core.composition import Composition
from headrace.core.construction import Inner, needs_fragment
from headrace.core.error_policy import check_on_stuck
from headrace.core.errors import GraphError, choices
from headrace.core.joins import JoinRule
from headrace.core.operator import InnerOperator, Operator
from headrace.core.parameters import REQUIRED, Limits, ParameterField, parameter, reserved_names
from headrace.core.ports import Input, IOSpec, Output, PortDeclaration
from headrace.core.values import boolean, whole_number

if TYPE_CHECKING:
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.error_policy import OnError, OnStuck
    from headrace.core.node import Resume
    from headrace.core.operator import Part
    from headrace.core.spec import OperatorSpec
    from headrace.core.values import Duration

P = ParamSpec("P")
R = TypeVar("R")
Outputs: TypeAlias = str | Sequence[str] | Mapping[str, Output]
Join: TypeAlias = JoinRule | Mapping[str, JoinRule]
LiveParameters: TypeAlias = str | Sequence[str] | Mapping[str, Any]
Compute: TypeAlias = Callable[[Any, Any, Any], None]


@overload
def op(function: Callable[P, R], /) -> OperatorFunction[P, R]: ...
@overload
def op(
    *,
    inputs: Mapping[str, Input] | None = None,
    outputs: Outputs = "out",
    join: Join | None = None,
    live: LiveParameters = (),
    on_error: OnError = "stop",
    deadline: Duration | None = None,
    on_stuck: OnStuck | None = None,
    capturable: bool | str = False,
    parallel: bool = False,
    concurrency: int = 1,
) -> Callable[[Callable[P, R]], OperatorFunction[P, R]]: ...
def op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inputs: Mapping[str, Input] | None = None,
    outputs: Outputs = "out",
    join: Join | None = None,
    live: LiveParameters = (),
    on_error: OnError = "stop",
    deadline: Duration | None = None,
    on_stuck: OnStuck | None = None,
    capturable: bool | str = False,
    parallel: bool = False,
    concurrency: int = 1,
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
    join
        Which messages of the inputs are received together (see :meth:`OperatorSpec.join`): a rule for all inputs,
        or a dict with the rules of single inputs by name, and that of all others as ``"*"``.
    live
        The parameters that may be changed while the operator runs (:meth:`Operator.set_live`, the live page): one
        name, several, or a dict that declares more about each: ``{"gain": parameter(minimum=0.0)}``. A
        change takes effect with the next call of the function.
    on_error
        What happens when the function raises (see :attr:`Operator.on_error`), unless the operator is created with
        another ``on_error=``.
    deadline, on_stuck
        How long one call may take, and what happens if one takes longer (see :meth:`OperatorSpec.deadline`).
    capturable
        Whether a segment may replay it as a CUDA graph (see :attr:`Operator.capturable`).
    parallel
        Whether it waits, or works outside the interpreter, so that others compute beside it
        (see :attr:`Operator.parallel`).
    concurrency
        The number of calls of an ``async def`` that may be in progress at once, 1 unless given. Their results are
        emitted in the order of the messages.
    """
    make = partial(
        OperatorFunction,
        outputs=outputs,
        inputs=inputs,
        join=join,
        live=live,
        on_error=on_error,
        deadline=deadline,
        on_stuck=on_stuck,
        capturable=capturable,
        parallel=parallel,
        concurrency=concurrency,
    )
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
        The defaults of its parameters, by name; `live` has those that may be changed in a run.
    supplied
        The keyword-only arguments that the run supplies.
    """

    def __init__(
        self,
        function: Callable[P, R],
        outputs: Outputs = "out",
        inputs: Mapping[str, Input] | None = None,
        join: Join | None = None,
        live: LiveParameters = (),
        on_error: OnError = "stop",
        deadline: Duration | None = None,
        on_stuck: OnStuck | None = None,
        capturable: bool | str = False,
        parallel: bool = False,
        concurrency: int = 1,
    ) -> None:
        if not inspect.isfunction(function):
            raise TypeError(f"@op takes a plain function, not {function!r}")
        called = function.__name__
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.concurrency = whole_number(concurrency, f"@op: concurrency of {called}", 1)
        if self.concurrency > 1 and not inspect.iscoroutinefunction(function):
            raise TypeError(
                f"@op: concurrency={concurrency} needs an `async def` that returns its value; {called} does not"
            )
        if self.is_async and capturable is True:
            raise TypeError(f"@op: {called} is async, and cannot be captured: a graph has no awaits")
        self.function = function
        self.join = join
        self.on_error = on_error
        self.deadline = deadline
        self.on_stuck = on_stuck
        self.capturable = capturable
        self.parallel = boolean(parallel, f"@op: parallel of {called}")
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
            if is_keyword and name == "context" and self.is_async:
                raise TypeError(
                    f"@op: {called} is async, and its calls outlast the compute that `context` belongs to; take "
                    "`metadata`, or write a plain function"
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
        self.ending: Callable[..., Any] | None = None
        declared = outputs if isinstance(outputs, Mapping) else {}
        self.outputs = _ports(Output, "output", declared, names, called)
        self.live = self._check_live(live)
        self.__name__ = called
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def end(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate the function that is called once when no more messages come, and emit what it returns or yields.

        Its positional arguments are inputs of this function: each gets what is left there, as `receive` returns it,
        or None. Its keyword-only arguments are parameters of this function, ``metadata`` or ``context``.
        """
        called = getattr(function, "__name__", "")
        where = f"@{self.__name__}.end"
        if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError(f"{where} takes a plain function, not {function!r}")
        if self.ending is not None:
            raise TypeError(f"{where}: {self.__name__} has an end already: {self.ending.__name__}")
        for name, argument in inspect.signature(function).parameters.items():
            is_keyword = argument.kind is argument.KEYWORD_ONLY
            known = [*self.parameters, *_SUPPLIED] if is_keyword else list(self.inputs)
            if name not in known or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
                kind = "a parameter" if is_keyword else "an input"
                raise TypeError(
                    f"{where}: {name!r} of {called} is not {kind} of {self.__name__}; there are {choices(known)}"
                )
        self.ending = function
        return function

    def _check_live(self, live: LiveParameters) -> Mapping[str, ParameterField]:
        """Return the live parameters, by name; raise if one cannot be live."""
        called = self.function.__name__
        names = [live] if isinstance(live, str) else list(live)
        declared = live if isinstance(live, Mapping) else {}
        for name in names:
            if name not in self.parameters:
                raise GraphError(
                    f"@op(live={live!r}): {called} has no parameter {name!r}; it has "
                    f"{choices(self.parameters, str(name))}"
                )
            if name in declared and not isinstance(declared[name], ParameterField):
                raise GraphError(
                    f"@op: live parameter {name!r} of {called} must be declared by parameter(minimum=...), not "
                    f"{declared[name]!r}"
                )
        if names and not self.inputs and inspect.isgeneratorfunction(self.function):
            raise GraphError(
                f"@op(live={live!r}): {called} yields and has no inputs, so it is called once in a run, and a "
                "change would never reach it; return one value in each call, or write an Operator"
            )
        return {name: declared.get(name) or parameter() for name in names}

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
        if self.is_async:
            from headrace.core.async_function import AsyncFunctionOperator

            return AsyncFunctionOperator(fragment, self, *parts, name=name, **parameters)
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


class InnerFunctionOperator(InnerOperator):
    """The state of the operator of a function."""

    operator: FunctionOperator

    def begin(self) -> None:
        """Begin with an operator that is in no graph."""
        super().begin()
        # The number of calls that may still begin, in a function that is not called in every compute.
        self.calls_left: int | None = None

    @property
    def never_emits(self) -> bool:
        """Whether the function says that it returns nothing: ``def show(image) -> None``."""
        return inspect.get_annotations(self.operator.declared.function).get("return", "") in (None, "None")

    @property
    def computes_in_use(self) -> int:
        """How many of the last computes received what the operator still works on, between two computes."""
        return int(self.operator.has_more)

    def limit_calls(self, count: int) -> bool:
        """Begin at most `count` calls: a function that yields computes once for each value."""
        if not self.operator.goes_on or not count:
            return False
        self.calls_left = count if self.calls_left is None else min(count, self.calls_left)
        return True


class FunctionOperator(Operator):
    """The operator of a decorated function."""

    is_function = True
    _headrace = Inner(InnerFunctionOperator)

    declared: OperatorFunction[..., Any]
    _values: _Values
    _steps: Iterator[Any] | None

    @property
    def yields(self) -> bool:
        """Whether the function yields values instead of returning one."""
        return inspect.isgeneratorfunction(self.declared.function)

    @property
    def has_more(self) -> bool:
        """Whether the function has begun to yield and has not ended."""
        return self._steps is not None

    @property
    def goes_on(self) -> bool:
        """Whether a compute may go on with messages that an earlier one received."""
        return self.yields and bool(self.declared.inputs)

    def base_of(self, number: int, base: int) -> int:
        """Return the compute that received what the next compute goes on with.

        `number` is the number of the next compute, and `base` is what this returned before the last one.
        """
        return base if self.has_more else number

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
        self.parallel = declared.parallel
        self._values = self._headrace.holder = _Values(self)
        unused_name = name or fragment._headrace.unused_name(declared.__name__)
        self._headrace.construct(fragment, parts, unused_name, parameters)
        self._steps = None

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the function's ports and parameters."""
        declared = self.declared
        for name, port in declared.inputs.items():
            port.declare(spec.input, name, IOSpec.ANY_SIZE if name == declared.receivers else IOSpec.SIZE_ONE)
        for name, output in declared.outputs.items():
            output.declare(spec.output, name, IOSpec.SIZE_ONE)
            if self.yields:
                spec.outputs[name].size = 1  # it emits one value in each step
        if declared.join is not None:
            rules = dict(declared.join) if isinstance(declared.join, Mapping) else {"*": declared.join}
            spec.join(rules.pop("*", None), **rules)
        # Those of the operator's own attributes say nothing about parameters that happen to have their names.
        spec.annotations = inspect.get_annotations(declared.function)
        for name, default in declared.parameters.items():
            live = declared.live.get(name)
            if live is None:
                spec.param(name, default)
            else:
                limits: Limits = {**live.limits, "live": True}
                spec.param(name, default, **limits)
        if declared.deadline is not None:
            spec.deadline(declared.deadline)
        if declared.on_stuck is not None:
            spec.on_stuck = check_on_stuck(declared.on_stuck, self.name)

    def start(self) -> None:
        """Create the compute for this function once, so that a step costs only one more call."""
        call = self._with_parameters(
            self.declared.function, [*self.declared.parameters, *self.declared.supplied]
        )
        self.compute = self._choose_compute(call)  # type: ignore[method-assign, assignment]
        if self.declared.ending is not None:
            self.end = self._ending(self.declared.ending)  # type: ignore[method-assign, assignment]

    def _choose_compute(self, call: Callable[..., Any]) -> Compute:
        if not self.yields:
            return self._returning(call)
        if self.declared.inputs:
            return self._yielding(call)
        self._steps = call()
        return self._stepping(self._steps)

    def _with_parameters(self, function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
        """Return a function that is called with the values of its keyword-only arguments."""
        assert self._headrace.node is not None or not names
        supplied = {"metadata": self.metadata, "context": getattr(self._headrace.node, "context", None)}
        if self.declared.is_async:  # its calls are given copies, each those of its own messages
            names = [name for name in names if name not in supplied]
        values, live = self._values, [name for name in names if name in self.declared.live]
        given = {
            name: supplied[name] if name in _SUPPLIED else getattr(values, name)
            for name in names
            if name not in live
        }
        call = partial(function, **given) if given else function
        if not live:
            return call
        return lambda *received, **more: call(
            *received, **more, **{name: getattr(values, name) for name in live}
        )

    def _ending(self, function: Callable[..., Any]) -> Callable[[Any, Any, Any], Iterator[None]]:
        """Return the end for the function that `OperatorFunction.end` decorated."""
        arguments = inspect.signature(function).parameters.values()
        names = [each.name for each in arguments if each.kind is not each.KEYWORD_ONLY]
        call = self._with_parameters(
            function, [each.name for each in arguments if each.kind is each.KEYWORD_ONLY]
        )

        def end(
            op_input: InputContext, op_output: OutputContext, context: ExecutionContext
        ) -> Iterator[None]:
            result = call(*[op_input.receive(name) for name in names])
            if not inspect.isgenerator(result):
                self._emit(op_output, result)
                return
            for value in result:
                self._emit(op_output, value)
                yield

        return end

    def stop(self) -> None:
        """Close a generator that has not ended."""
        close = getattr(self._steps, "close", None)
        self._steps = None
        node = self._headrace.node
        if node is not None and node.resume is not None:
            node.resume.end()  # after a restart it waits for the next message
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

    @property
    def _resume(self) -> Resume:
        """What keeps its node ready while the function has more to yield; a restart keeps the existing one."""
        node = self._headrace.node
        assert node is not None
        if node.resume is None:
            node.resume = node.make_resume()
        return node.resume

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
        resume = self._resume

        def compute(op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
            resume.begin_step()
            steps = self._steps
            while True:
                if steps is None:
                    steps = self._steps = call(*receive(op_input))
                    resume.note()
                    if self._headrace.calls_left is not None:
                        self._headrace.calls_left -= 1
                try:
                    value = next(steps)
                    break
                except StopIteration:
                    steps = self._steps = None
                    resume.end()
                    if self._headrace.calls_left == 0:
                        self.stop_execution()
                        return
                    # The step that finds no further value emits nothing, so it can begin the next message. It
                    # begins at most one, so that a function that yields nothing still lets other operators run.
                    if resume.received or not resume.may_receive():
                        return
                except BaseException:  # a generator that raised has ended
                    if self._headrace.calls_left == 0:
                        self.stop_execution()
                    raise
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
                f"operator {self.name!r} returned {brief(value)} but is declared without outputs: @op(outputs=...)"
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
                f"value for each or a dict by name, not {brief(value)}"
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
            version = get(self, "_operator")._headrace.knobs.version
            if version is not None:
                version.number += 1
        else:
            setattr(get(self, "_operator"), name, value)
