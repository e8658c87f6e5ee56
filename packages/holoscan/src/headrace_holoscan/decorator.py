"""holoscan.decorator: functions and classes as operators, with the arguments of the SDK's `create_op`.

headrace's own `op` takes positional arguments as inputs and keyword-only ones as parameters, and checks both where
the operator is created. `create_op` maps any argument to any part of a message and fills the others from keywords
of the call; so this is an operator of its own.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from headrace.conditions import BooleanCondition
from headrace.core import Composition, ConditionType, OperatorSpec, Resource
from headrace.tensor import Tensor
from headrace.vocabulary import BareCondition, is_array
from headrace_holoscan.core.operator import Operator
from headrace_holoscan.core.spec import IOSpec
from headrace_holoscan.lenience import tell

__all__ = ["Input", "Output", "create_op"]

_ENDS = "_generator_func"


@dataclass
class Input:
    """An input port, and which arguments of the function get its messages.

    Parameters
    ----------
    name
        The name of the port.
    arg_map
        The argument that gets the message; of a message of tensors it gets the one of its name, or the only one. A
        dict maps the names of tensors to arguments.
    size, policy
        The length of the queue, and what it does when it is full.
    condition_type, condition_kwargs, connector_type, connector_kwargs
        Passed to ``condition`` and ``connector`` of the port.
    """

    name: str
    arg_map: str | dict[str, str] | tuple[()] | None = ()
    size: int | IOSpec.IOSize = IOSpec.SIZE_ONE
    policy: IOSpec.QueuePolicy | None = None
    condition_type: ConditionType | None = None
    condition_kwargs: dict[str, Any] = field(default_factory=dict)
    connector_type: Any = None
    connector_kwargs: dict[str, Any] = field(default_factory=dict)

    def create_input(self, spec: OperatorSpec) -> None:
        """Declare the port."""
        _refine(self, spec.input(self.name, **_queue(self)))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that it fills."""
        return (self.arg_map,) if isinstance(self.arg_map, str) else tuple(dict(self.arg_map or ()).values())


@dataclass
class Output:
    """An output port, and which tensors of what the function returns are sent there.

    Parameters
    ----------
    name
        The name of the port.
    tensor_names
        The names of the tensors, of a returned dict, or one name for a returned array; everything unless given.
    size, policy, condition_type, condition_kwargs, connector_type, connector_kwargs
        The same as for an `Input`.
    """

    name: str
    tensor_names: str | tuple[str, ...] | None = ()
    size: int | IOSpec.IOSize = IOSpec.SIZE_ONE
    policy: IOSpec.QueuePolicy | None = None
    condition_type: ConditionType | None = None
    condition_kwargs: dict[str, Any] = field(default_factory=dict)
    connector_type: Any = None
    connector_kwargs: dict[str, Any] = field(default_factory=dict)

    def create_output(self, spec: OperatorSpec) -> None:
        """Declare the port."""
        _refine(self, spec.output(self.name, **_queue(self)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, as a tuple."""
        return (self.tensor_names,) if isinstance(self.tensor_names, str) else tuple(self.tensor_names or ())


Ports: TypeAlias = str | Input | Output | Sequence[str | Input | Output]


def create_op(
    function_or_class: Any = None,
    inputs: Ports = (),
    outputs: Ports = (),
    cast_tensors: bool = True,
    op_param: str | None = None,
) -> Any:
    """Make a function or a class usable as an operator; the result is called with a fragment.

    Parameters
    ----------
    function_or_class
        Given if the decorator has no parentheses: each positional argument is an input then, and there is an output
        without a name if the function returns something. A class is created first, and its ``__call__`` is the
        function: ``Made(k=10)(app, name="made")``.
    inputs, outputs
        The ports, by name or as `Input` and `Output`.
    cast_tensors
        Whether tensors arrive as arrays of NumPy, or of CuPy if they are on a device.
    op_param
        The argument that gets the operator itself.
    """
    if not isinstance(op_param, str | None):
        raise TypeError(f"create_op: op_param must be the name of an argument, not {op_param!r}")
    ports = _ports(inputs, Input, "inputs"), _ports(outputs, Output, "outputs")

    def decorate(made_of: Any) -> Callable[..., Any]:
        is_bare = function_or_class is not None
        settings = (*ports, cast_tensors, op_param, is_bare)
        if inspect.isclass(made_of):
            return lambda *args, **kwargs: _maker(made_of(*args, **kwargs), settings)
        return _maker(made_of, settings)

    return decorate if function_or_class is None else decorate(function_or_class)


def _maker(called: Any, settings: tuple[Any, ...]) -> Callable[..., Operator]:
    """Return what creates operators of a function, or of an object with a ``__call__``."""
    if not callable(called):
        raise ValueError(f"create_op: {called!r} has no __call__, which would be the operator's function")

    def make(*args: Any, **kwargs: Any) -> Operator:
        fragment = kwargs.pop("fragment", args[0] if args else None)
        if not isinstance(fragment, Composition):
            raise ValueError(
                "create_op: a fragment must be provided, as the first argument or as fragment=..., not "
                f"{fragment!r}"
            )
        parts = [arg for arg in args if isinstance(arg, BareCondition | Resource)]
        others = [arg for arg in args if not isinstance(arg, BareCondition | Resource | Composition)]
        made = CreatedOperator(fragment, *parts, declared=(called, *settings), values=kwargs)
        if others:
            tell(
                f"create_op: {made.name!r} ignores {', '.join(map(repr, others))}, given by position",
                "arguments of the function are given by keyword",
            )
        return made

    return make


class CreatedOperator(Operator):
    """The operator that `create_op` makes of a function.

    Attributes
    ----------
    func
        The function, or the method ``__call__`` of `class_obj`.
    fixed_kwargs, dynamic_kwargs
        The arguments that keep their values, and those that messages fill.
    input_mappings, output_tensor_map
        The arguments of each input, and the names of the tensors of each output.
    """

    def __init__(
        self, fragment: Composition, *parts: Any, declared: tuple[Any, ...], values: dict[str, Any]
    ) -> None:
        called, self.input_objs, self.output_objs, self.cast_tensors, self.op_param, is_bare = declared
        is_function = inspect.isroutine(called)
        self.func = called if is_function else called.__call__
        if not is_function:
            self.class_obj = called
        arguments = inspect.getfullargspec(self.func)
        positional = arguments.args[not is_function or inspect.ismethod(called) :]
        if is_bare:
            self.input_objs = tuple(Input(each, each) for each in positional if each != self.op_param)
            returns = not inspect.isgeneratorfunction(self.func) and not _never_returns(self.func)
            self.output_objs = (Output(""),) if returns else ()
        self.input_mappings = {port.name: port.arg_map for port in self.input_objs}
        self.output_tensor_map = {port.name: port.names for port in self.output_objs}
        self._steps: Iterator[Any] | None = None
        name = values.pop("name", self.func.__name__)
        if inspect.isgeneratorfunction(self.func):
            parts = (*parts, BooleanCondition(fragment, name=_ENDS))
        self.dynamic_kwargs = self._find_dynamic(positional, arguments.kwonlyargs)
        defaults = dict(zip(reversed(positional), reversed(arguments.defaults or ()), strict=False))
        fixed = defaults | (arguments.kwonlydefaults or {}) | values
        self.fixed_kwargs = {key: fixed[key] for key in fixed if key not in self.dynamic_kwargs}
        if self.op_param:
            self.fixed_kwargs[self.op_param] = self
        for argument in (*positional, *arguments.kwonlyargs):
            if argument not in self.fixed_kwargs and argument not in self.dynamic_kwargs:
                raise ValueError(
                    f"create_op: a required argument, '{argument}', has not been specified for "
                    f"{self.func.__qualname__}: name it in inputs, or give it by keyword"
                )
        super().__init__(fragment, *parts, name=name)
        kind = type(called).__name__ if not is_function else self.func.__name__
        words = [kind] if not is_function else [word.capitalize() for word in kind.split("_")]
        self.__name__ = "".join(words).removesuffix("" if is_function else "Op") + "Op"
        self.__qualname__ = self.__name__

    def _find_dynamic(self, positional: list[str], keywords: list[str]) -> dict[str, Any]:
        """Return the arguments that messages fill, without values yet."""
        found: dict[str, Any] = {}
        for port in self.input_objs:
            for argument in port.arguments:
                if argument not in (*positional, *keywords):
                    raise KeyError(
                        f"Provided func does not have an arg or kwarg named '{argument}', which input "
                        f"{port.name!r} is mapped to; {self.func.__qualname__} has {positional + keywords}"
                    )
                if argument in found:
                    raise ValueError(f"create_op: two inputs are mapped to the argument {argument!r}")
                found[argument] = None
        return found

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the ports."""
        spec.may_be_unnamed = True
        for port in self.input_objs:
            port.create_input(spec)
        for port in self.output_objs:
            port.create_output(spec)

    def stop(self) -> None:
        """Let the next run begin the function anew."""
        self._steps = None

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Receive, call the function or continue it, and emit."""
        for port in self.input_objs:
            self._take(port, op_input.receive(port.name))
        if inspect.isgeneratorfunction(self.func):
            if self._steps is None:
                self._steps = self.func(**self.fixed_kwargs, **self.dynamic_kwargs)
            try:
                result = next(self._steps)
            except StopIteration:
                ends = self.conditions[_ENDS]
                assert isinstance(ends, BooleanCondition)
                ends.disable_tick()
                return
        else:
            result = self.func(**self.fixed_kwargs, **self.dynamic_kwargs)
        self._emit(op_output, result)

    def _take(self, port: Input, message: Any) -> None:
        """Pass a message, or its parts, to arguments."""
        if isinstance(port.arg_map, str):
            if isinstance(message, dict):
                message = _tensor_for(port.arg_map, message)
            self.dynamic_kwargs[port.arg_map] = self._as_array(message)
            return
        for name, argument in dict(port.arg_map or ()).items():
            if not isinstance(message, Mapping) or name not in message:
                raise KeyError(
                    f"key with name '{name}' not found in what input {port.name!r} received: {message!r}"
                )
            self.dynamic_kwargs[argument] = self._as_array(message[name])

    def _as_array(self, value: Any) -> Any:
        """Return a tensor as an array of NumPy or CuPy, if that is wanted."""
        if not self.cast_tensors or not isinstance(value, Tensor):
            return value
        if hasattr(value, "__array_interface__") or value.__dlpack_device__()[0] == 1:
            return np.asarray(value)
        try:
            import cupy
        except ImportError:
            return value  # on a simulated device, without CuPy
        # DLPack passes on neither of these.
        is_odd = value.is_readonly or any(stride < 0 for stride in value.strides)
        return cupy.asarray(value) if is_odd else cupy.from_dlpack(value)

    def _emit(self, op_output: Any, result: Any) -> None:
        ports = self.output_objs
        if isinstance(result, tuple) and len(ports) > 1:
            if len(result) != len(ports) or any(len(port.names) > 1 for port in ports):
                raise ValueError(
                    "The number of output tuple elements and number of tensors must match.\n"
                    f"Output tuple length = {len(result)}\nNumber of output tensors = {len(ports)}\n"
                    f"create_op: {self.func.__qualname__} must return one element for each output, and each output "
                    "has at most one tensor name"
                )
            for port, value in zip(ports, result, strict=True):
                op_output.emit({(*port.names, "")[0]: value} if is_array(value) else value, port.name)
            return
        for port in ports:
            if is_array(result) and len(port.names) < 2:
                op_output.emit({(*port.names, "")[0]: result}, port.name)
            elif not port.names:
                op_output.emit(result, port.name)
            else:
                for name in port.names:
                    if name not in result:
                        raise ValueError(
                            f"create_op: a tensor with name '{name}' not found in function output"
                        )
                op_output.emit({name: result[name] for name in port.names}, port.name)


def _ports(ports: Any, kind: type, what: str) -> tuple[Any, ...]:
    if isinstance(ports, str | Input | Output):
        ports = (ports,)
    made = tuple(
        (Input(each, each) if kind is Input else Output(each)) if isinstance(each, str) else each
        for each in ports
    )
    for port in made:
        if not isinstance(port, kind):
            raise ValueError(f"create_op: {what} must be names or {kind.__name__} objects, not {port!r}")
    return made


def _queue(port: Input | Output) -> dict[str, Any]:
    if isinstance(port.size, bool) or not isinstance(port.size, int | IOSpec.IOSize):
        raise ValueError(f"Invalid size: {port.size!r}; port {port.name!r} takes an int or an IOSpec.IOSize")
    if not isinstance(port.policy, IOSpec.QueuePolicy | None):
        raise ValueError(f"Invalid policy: {port.policy!r}; port {port.name!r} takes an IOSpec.QueuePolicy")
    return {"size": port.size, "policy": port.policy}


def _refine(port: Input | Output, spec: Any) -> None:
    if port.condition_type is not None:
        spec = spec.condition(port.condition_type, **port.condition_kwargs)
    if port.connector_type is not None:
        spec.connector(port.connector_type, **port.connector_kwargs)


def _tensor_for(argument: str, message: dict[Any, Any]) -> Any:
    """Return the part of a message for an argument: that of its name, the only tensor, or all."""
    if argument in message:
        return message[argument]
    tensors = [value for value in message.values() if isinstance(value, Tensor)]
    if len(tensors) > 1:
        raise ValueError(f"More than one tensor found in port, but none has name {argument}")
    return tensors[0] if tensors else message


def _never_returns(function: Callable[..., Any]) -> bool:
    """Return whether every end of a function returns None: the SDK reads its code for it, too."""
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
