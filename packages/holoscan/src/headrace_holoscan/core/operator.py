"""Operator: takes whatever the SDK's takes, and ignores with a warning what headrace calls a mistake."""

from __future__ import annotations

import enum
import inspect
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeVar

from headrace.core import Composition, ErrorPolicy, GraphError, Resource
from headrace.core import Operator as _Operator
from headrace.resources import CudaGreenContext
from headrace.resources import CudaStreamPool as AnyStreamPool
from headrace.vocabulary import BareCondition, Inner, map_of_arrays
from headrace.vocabulary import InnerOperator as _InnerOperator
from headrace_holoscan.absent import NotHereError
from headrace_holoscan.core.arguments import Arg, described
from headrace_holoscan.core.components import set_once
from headrace_holoscan.core.composing import ComposedOperator
from headrace_holoscan.core.errors import raises_runtime_errors
from headrace_holoscan.core.flows import ChoosesFlows
from headrace_holoscan.core.hidden import Hidden
from headrace_holoscan.core.metadata import MetadataDictionary
from headrace_holoscan.core.spec import OperatorSpec, described_spec, refused
from headrace_holoscan.core.tensors import InputView, OutputView, in_their_terms
from headrace_holoscan.core.yaml_values import dump, value_of_argument
from headrace_holoscan.lenience import tell

T = TypeVar("T", bound=type[_Operator])

_numbers = count(1)

# The attributes of every operator of the SDK; a parameter of such a name does not replace them.
_NAMES = {
    *("add_arg", "add_dynamic_flow", "args", "async_condition", "compute", "conditions"),
    *("description", "enable_metadata", "execution_context", "find_all_flow_info", "find_flow_info"),
    *("fragment", "get_data_flow_tracking_label", "id", "initialize", "is_metadata_enabled"),
    *("metadata", "metadata_policy", "name", "next_flows", "operator_type", "queue_policy"),
    *("receiver", "resource", "resources", "service", "setup", "spec", "start", "stop"),
    *("stop_execution", "transmitter"),
}


class _OperatorType(enum.IntEnum):
    """What an operator is written in."""

    NATIVE = 0
    GXF = 1
    VIRTUAL = 2


class InnerOperator(_InnerOperator):
    """The state of an operator, and what the SDK does otherwise."""

    operator: Operator

    spec_type = OperatorSpec
    metadata_type = MetadataDictionary
    methods: ClassVar = {name: form for name, form in _InnerOperator.methods.items() if name != "end"}
    default_name = ""
    is_ready = False  # whether it is one of headrace's ready operators, which check their parameters

    def __init__(self, operator: Any) -> None:
        super().__init__(operator)
        self.once = SimpleNamespace()
        # The arguments of a ready operator.
        self.given: dict[str, Any] = {}
        # The views of the input and the output of a compute.
        self.views: tuple[InputView, OutputView] | None = None
        # The pool of streams that an operator is shown which was given none.
        self.default_pool: Any = None

    def construct(self, fragment: Any, args: tuple[Any, ...], name: str, keywords: dict[str, Any]) -> None:
        """Do the work of ``__init__``, with the keywords as a dict, in which any word may be a name."""
        if not isinstance(name, str):
            raise RuntimeError(f"the name of an operator must be a str, not {name!r}")
        name = name or self.default_name or f"unnamed_operator_{next(_numbers)}"
        super().construct(fragment, args, name, keywords)

    def take_policies(self, given: dict[str, Any]) -> None:
        """Remove the keywords that `setup` does not declare: headrace's own are not known to the SDK."""
        self.operator.spec.is_strict = self.is_ready
        if self.is_ready:
            super().take_policies(given)
            return
        values = {name: given[name] for name in given if not self.is_part(name, given[name])}
        self.operator.args.extend(Arg(name, value_of_argument(value)) for name, value in values.items())
        for name in values:
            if name not in self.operator.spec.params:
                refused(f"operator {self.operator.name!r}", name, self.operator.spec.params)
                del given[name]

    @property
    def error_policy(self) -> ErrorPolicy:
        """What happens when `compute` raises."""
        return super().error_policy if self.is_ready else ErrorPolicy.of("stop", self.operator.name)

    @property
    def has_end(self) -> bool:
        """Whether it has an `end` of its own."""
        # An `end` of the program is a method like any other.
        owner = next(kind for kind in type(self.operator).__mro__ if "end" in vars(kind))
        return owner is not _Operator and not issubclass(owner, Operator)

    def has_own(self, name: str) -> bool:
        """Return whether the program, or the SDK, gave the operator an attribute of this name that is not None."""
        if name in _NAMES:
            return True
        kinds = filter(_is_of_program, type(self.operator).__mro__)
        places = [vars(self.operator), *map(vars, kinds)]
        return next((place[name] for place in places if name in place), None) is not None

    max_in_flight = None
    parallel = True  # as in the SDK, whose workers know of no interpreter lock

    def recall_values(self) -> None:
        """Set the parameters once more: what was given comes before what `__init__` assigned meanwhile."""
        operator, spec = self.operator, self.operator.spec
        if not self.is_ready:
            spec.apply(operator, {arg.name: arg.value for arg in operator.args if arg.name in spec.params})
        super().recall_values()

    def set_parameter(self, name: str, value: Any, origin: str = "") -> None:
        """Set a parameter, or what else every operator takes by name."""
        self.operator.spec.give(self.operator, f"operator {self.operator.name!r}", name, value)
        self.operator.args.append(Arg(name, value_of_argument(value), origin))

    def is_part(self, key: str, value: Any) -> bool:
        """Return whether a named value is a condition or a resource."""
        return isinstance(value, (BareCondition, Resource)) and (
            not self.is_ready or super().is_part(key, value)
        )

    def add_named_part(self, key: str, part: Any) -> None:
        """Add a condition or a resource that was given by keyword."""
        part.name = key
        if key in self.operator.spec.params:
            setattr(self.operator, key, part)
        self.operator.add_arg(part)

    def add_part(self, parts: dict[str, Any], part: Any, kind: str) -> None:
        """Add a condition or a resource under its name."""
        if part.name in parts:
            raise GraphError(f"operator {self.operator.name!r} was given two {kind}s named {part.name!r}")
        parts[part.name] = part

    def refuse(self, arg: object) -> None:
        """Raise for a positional argument that an operator does not take."""
        self.operator.args.append(Arg("", value_of_argument(arg)))
        tell(
            f"operator {self.operator.name!r} was given {arg!r} by position, which is ignored",
            "an operator takes conditions, resources and Arg values as positional arguments",
        )

    def make_hold_condition(self) -> Any:
        """Return the condition that `async_condition` asked for."""
        from headrace_holoscan.conditions import AsynchronousCondition

        return AsynchronousCondition(self.operator.fragment)


class _Resources(dict[str, Any]):
    """The resources of an operator by name.

    In a run with a device, an operator that was given no pool of streams has one under ``NAME_stream_pool``. It is
    made for who asks for it: the stream of such an operator comes from a pool of the run.
    """

    def __init__(self, operator: Any) -> None:
        super().__init__()
        self._operator = operator

    def __missing__(self, name: str) -> Any:
        operator = self._operator
        context = operator.execution_context if name == f"{operator.name}_stream_pool" else None
        from headrace_holoscan.resources import CudaStreamPool

        given = (*self.values(), getattr(operator, "cuda_stream_pool", None))
        has_own = any(isinstance(each, (AnyStreamPool, CudaGreenContext)) for each in given)
        if context is None or has_own or not context.is_gpu_available:
            raise KeyError(name)
        pool = operator._headrace.default_pool
        if pool is None:
            pool = operator._headrace.default_pool = CudaStreamPool(operator.fragment, name=name)
        return pool

    def get(self, name: str, default: Any = None) -> Any:
        """Return a resource, or another value if there is none of this name."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None


class Operator(ChoosesFlows, ComposedOperator, _Operator):
    """The base of operators; subclass it and write `setup` and `compute`."""

    OperatorType: TypeAlias = _OperatorType
    convert_dict = staticmethod(map_of_arrays)
    _headrace = Inner(InnerOperator)
    live_parameters: Any = Hidden()

    fragment = set_once("fragment")
    conditions = set_once("conditions")
    resources = set_once("resources", _Resources)
    args = set_once("args")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("compute")
        if inspect.isfunction(own):
            cls.compute = in_their_terms(own)  # type: ignore[method-assign]

    @raises_runtime_errors
    def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
        if fragment is None:
            raise ValueError(f"{type(self).__name__}: the fragment that the operator belongs to is None")
        if any(isinstance(arg, Composition) for arg in args):
            raise RuntimeError(f"{type(self).__name__} was given two fragments; an operator belongs to one")
        super().__init__(fragment, *args, **kwargs)

    @raises_runtime_errors
    def queue_policy(self, port_name: str, port_type: Any = None, policy: Any = None) -> None:
        """Set what a full queue of a port does."""
        super().queue_policy(port_name, port_type, policy)

    @raises_runtime_errors
    def add_arg(self, /, *args: Any, **kwargs: Any) -> None:
        """Add a condition, a resource or named values after construction."""
        super().add_arg(*args, **kwargs)

    def get_data_flow_tracking_label(self, input_port_name: str) -> NoReturn:
        """Raise: messages carry no label; a tracker works out their paths after them."""
        raise NotHereError(
            f"get_data_flow_tracking_label({input_port_name!r}) of operator {self.name!r} is not here: messages "
            "carry no label; read the paths and latencies from the tracker (get_path_strings, get_metric)"
        )

    @property
    def operator_type(self) -> _OperatorType:
        """What it is written in."""
        return _OperatorType.NATIVE

    @property
    def id(self) -> int:
        """A number of its own in a run; -1 before."""
        operators = self.fragment.graph.operators
        return operators.index(self) if self._headrace.node is not None and self in operators else -1

    @property
    def description(self) -> str:
        """What it is, in YAML."""
        parts = [_entries(self.conditions), _entries(self.resources)]
        return dump(
            [
                ("id", self.id),
                ("name", self.name),
                ("fragment", self.fragment.name or '""'),
                ("args", [described(arg) for arg in self.args]),
                ("type", f"k{self.operator_type.name.capitalize()}"),
                ("conditions", parts[0]),
                ("resources", parts[1]),
                ("spec", tuple(described_spec(self.spec))),
            ]
        )

    def __repr__(self) -> str:
        return self.description


def _entries(parts: dict[str, Any]) -> list[Any]:
    return [
        part._headrace.entries(part) if hasattr(part._headrace, "entries") else [("name", name)]
        for name, part in parts.items()
    ]


def _is_of_program(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in ("headrace", "headrace_holoscan") and kind is not object


def adopt(cls: T, default_name: str = "", is_ready: bool = True, **members: Any) -> T:
    """Return one of headrace's operators as an operator of this package.

    Parameters
    ----------
    cls
        The class, which keeps its name, its parameters and their checks.
    default_name
        The name of an operator that is given none.
    is_ready
        Whether it checks its parameters, as headrace does.
    members
        What the class has besides, or instead.
    """
    inner = type("InnerOperator", (InnerOperator,), {"is_ready": is_ready, "default_name": default_name})
    own: dict[str, Any] = {
        "__doc__": cls.__doc__,
        "__module__": "headrace_holoscan.operators",
        "_headrace": Inner(inner),
    }
    return type(cls.__name__, (cls, Operator), own | members)  # type: ignore[return-value]


OperatorBase = Operator
"""The base of Operator in the SDK."""
