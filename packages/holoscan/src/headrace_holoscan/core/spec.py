"""What `setup` declares: parameters that take any value, ports and their conditions."""

from __future__ import annotations

import enum
import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.core import ComponentSpec as _ComponentSpec
from headrace.core import ConditionType
from headrace.core import IOSpec as _IOSpec
from headrace.core import OperatorSpec as _OperatorSpec
from headrace.vocabulary import CONDITIONS, REQUIRED, PortCondition, absent
from headrace_holoscan.core.arguments import Arg, ArgList, Sealed, refuse_assignment
from headrace_holoscan.core.flows import ConnectedPort, ConnectorType
from headrace_holoscan.core.yaml_values import dump, value_of_argument
from headrace_holoscan.lenience import tell

_Size = int | _IOSpec.IOSize
_POLICIES = {policy.name.lower(): policy for policy in _IOSpec.QueuePolicy} | {
    "fail": _IOSpec.QueuePolicy.FAULT
}


def _accepted(kind: ConditionType, arguments: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the arguments that a condition of a port has; the others are ignored."""
    taken = inspect.signature(CONDITIONS[kind]).parameters if kind in CONDITIONS else arguments
    known = [name for name in taken if name != "fragment"]
    for name in arguments:
        if name not in known:
            tell(
                f"{where}: the condition {kind.name} has no argument {name!r}, which is ignored",
                absent(f"the condition {kind.name}", "argument", name, known),
            )
    return {name: value for name, value in arguments.items() if name in known}


class DeclaredCondition(PortCondition):
    """A condition of a port, which is the pair of its type and of a component with its arguments."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        yield self.kind
        yield None if self.kind is ConditionType.NONE else _unmade(self.kind, self.arguments)

    def __getitem__(self, place: int) -> Any:
        return tuple(self)[place]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, DeclaredCondition) else other)

    __hash__ = None  # type: ignore[assignment]


def _unmade(kind: ConditionType, arguments: dict[str, Any]) -> Any:
    """Return a condition with its arguments alone: the run makes the condition that counts."""
    from headrace_holoscan import conditions
    from headrace_holoscan.core.components import unmade

    cls = getattr(conditions, f"{_camel(kind.name)}Condition")
    return unmade(cls, arguments)


@dataclass
class MultiMessageConditionInfo:
    """A condition over several ports: its type, their names and its arguments."""

    kind: ConditionType = ConditionType.NONE
    port_names: list[str] = field(default_factory=list)
    args: ArgList = field(default_factory=ArgList)


class IOSpec(ConnectedPort):
    """One input or output of an operator."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("name", "io_type", "conditions") and hasattr(self, name):
            refuse_assignment(self, name)
        super().__setattr__(name, value)

    def __init__(self, *args: Any, op_spec: Any = None, **kwargs: Any) -> None:
        # A program gives the spec of the operator first.
        super().__init__(*(args[1:] if args and not isinstance(args[0], str) else args), **kwargs)

    @property
    def queue_size(self) -> int:
        """The length of the queue."""
        return self.size

    @queue_size.setter
    def queue_size(self, size: int) -> None:
        self.size = size

    def condition(self, kind: ConditionType, **arguments: Any) -> IOSpec:
        """Put a condition on this port; an input of any size keeps its own."""
        where = f"port {self.name!r}"
        if self.is_receivers:
            tell(
                f"{where} takes any number of flows (ANY_SIZE); the condition {kind.name} is ignored, and the "
                "operator waits for a message of each flow",
                "nothing: the condition replaces the default one",
            )
            return self
        if kind is ConditionType.NONE and self.io_type is IOSpec.IOType.OUTPUT and self.policy is None:
            tell(
                f"output {self.name!r} waits for no room (NONE), so messages for a full queue are dropped",
                "the queue is full and its policy is FAULT, when there is such a message",
            )
            self.policy = IOSpec.QueuePolicy.REJECT
        super().condition(kind, **_accepted(kind, arguments, where))
        self.conditions[-1] = DeclaredCondition(kind, self.conditions[-1].arguments, (self.name,))
        return self

    @property
    def description(self) -> str:
        """What it is, in YAML."""
        return dump(described_port(self))

    def __repr__(self) -> str:
        return self.description


def described_port(port: _IOSpec) -> list[tuple[str, Any]]:
    """Return what a port is, for `dump`."""
    conditions = [[("type", f"k{_camel(each.kind.name)}")] for each in port.conditions]
    return [
        ("name", port.name),
        ("io_type", f"k{port.io_type.name.capitalize()}"),
        ("typeinfo_name", "N8holoscan3gxf6EntityE"),
        ("connector_type", f"k{_camel(getattr(port, 'connector_type', ConnectorType.DEFAULT).name)}"),
        ("conditions", conditions),
    ]


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


class ParameterFlag(enum.Enum):
    """Whether a parameter must have a value."""

    NONE = 0
    OPTIONAL = 1
    DYNAMIC = 2


def _described_params(spec: _ComponentSpec) -> list[list[tuple[str, Any]]]:
    return [
        [
            ("name", parameter.name),
            ("type", "CustomType"),
            ("description", parameter.description or '""'),
            (
                "flag",
                f"k{getattr(spec, '_flags', {}).get(parameter.name, ParameterFlag.NONE).name.capitalize()}",
            ),
        ]
        for parameter in reversed(spec.params.values())
    ]


def _fragment_name(fragment: Any) -> str:
    return getattr(fragment, "name", "") or '""'


class ComponentSpec(Sealed, _ComponentSpec):
    """The parameters of a component."""

    _read_only = ("fragment", "inputs", "outputs")

    def __init__(self, fragment: Any = None, component: Any = None) -> None:
        super().__init__(fragment)  # a parameter may have any name
        self._flags: dict[str, ParameterFlag] = {}
        self._sealed = type(self) is ComponentSpec

    def param(
        self,
        name: str,
        default_value: Any = REQUIRED,
        flag: ParameterFlag = ParameterFlag.NONE,
        **limits: Any,
    ) -> None:
        """Declare a parameter."""
        is_optional = flag is ParameterFlag.OPTIONAL and default_value is REQUIRED
        super().param(name, None if is_optional else default_value, **limits)
        self._flags[name] = flag

    @property
    def description(self) -> str:
        """What it declares, in YAML."""
        return dump(described_parameters(self))

    def __repr__(self) -> str:
        return self.description


def described_parameters(spec: _ComponentSpec) -> list[tuple[str, Any]]:
    """Return what a component declares, for `dump`."""
    return [("fragment", _fragment_name(spec.fragment)), ("params", _described_params(spec))]


class OperatorSpec(_OperatorSpec, ComponentSpec):
    """The parameters, ports and port conditions of an operator."""

    _port_type = IOSpec
    waits_for_queues_that_drop = True

    is_strict = False
    """Whether parameters are checked: those of the ready operators."""

    def __init__(self, fragment: Any = None, op: Any = None, check_name: Any = None) -> None:
        super().__init__(fragment, op if isinstance(op, str) else getattr(op, "name", ""))
        self._sealed = True

    def param(self, name: str, *args: Any, kind: str = "", **limits: Any) -> None:
        """Declare a parameter; of the kind ``"receivers"``, an input of any size."""
        if not kind:
            super().param(name, *args, **limits)
        elif kind == "receivers":
            self.input(name, size=IOSpec.ANY_SIZE)
        else:
            raise ValueError(f"parameter {name!r}: kind {kind!r} is not known")

    def multi_port_conditions(self) -> list[Any]:
        """Return the conditions over several ports."""
        return [
            MultiMessageConditionInfo(
                each.kind, [*each.ports], ArgList(Arg(*item) for item in each.arguments.items())
            )
            for each in self.multi_port
        ]

    def input(
        self, name: str = "__iospec_input", *, size: _Size = 1, policy: _IOSpec.QueuePolicy | None = None
    ) -> _IOSpec:
        """Declare an input port."""
        return self._add(self.inputs, name, IOSpec.IOType.INPUT, size, policy)

    def output(
        self, name: str = "__iospec_output", *, size: _Size = 1, policy: _IOSpec.QueuePolicy | None = None
    ) -> _IOSpec:
        """Declare an output port."""
        return self._add(self.outputs, name, IOSpec.IOType.OUTPUT, size, policy)

    def _add(
        self,
        ports: dict[str, _IOSpec],
        name: str,
        io_type: _IOSpec.IOType,
        size: _Size,
        policy: _IOSpec.QueuePolicy | None,
    ) -> _IOSpec:
        if name in ports:
            what = f"operator {self.owner!r}: the {io_type.name.lower()} {name!r} already exists"
            tell(f"{what}; the first counts", what, error=True)
            return ports[name]
        if policy is None or (policy is _POLICIES["fault"] and io_type is IOSpec.IOType.INPUT):
            policy = _POLICIES.get(os.environ.get("HOLOSCAN_QUEUE_POLICY", "").lower())
        port = ports[name] = self._port_type(name, io_type, size, policy)
        return port

    def apply(self, component: Any, values: dict[str, Any]) -> None:
        """Set the parameters: the given values, or else what the operator has already, the defaults, or None."""
        if self.is_strict:
            super().apply(component, values)
            return
        for name, parameter in self.params.items():
            if name not in values and not component._headrace.has_own(name):
                setattr(component, name, None if parameter.default is REQUIRED else parameter.default)
        for name, value in values.items():
            self.give(component, f"operator {component.name!r}", name, value)

    def give(self, component: Any, owner: str, name: str, value: Any) -> None:
        """Set one parameter; its value may have any type, and one that `setup` does not declare is ignored."""
        if self.is_strict:
            super().give(component, owner, name, value)
        elif name in self.params:
            setattr(component, name, value_of_argument(value))
        else:
            refused(owner, name, self.params)

    def multi_port_condition(self, kind: ConditionType, port_names: Any, **arguments: Any) -> None:
        """Put one condition on several inputs together, in place of their defaults."""
        where = f"operator {self.owner!r}"
        super().multi_port_condition(kind, port_names, **_accepted(kind, arguments, where))

    @property
    def description(self) -> str:
        """What it declares, in YAML."""
        return dump(described_spec(self))


def described_spec(spec: OperatorSpec) -> list[tuple[str, Any]]:
    """Return what an operator declares, for `dump`."""
    return [
        *described_parameters(spec),
        ("inputs", [described_port(port) for port in spec.inputs.values()]),
        ("outputs", [described_port(port) for port in spec.outputs.values()]),
    ]


def refused(owner: str, name: str, params: Any) -> None:
    """Tell that an argument is ignored, since no parameter has its name."""
    tell(
        f"{owner} was given an argument {name!r}, which its setup does not declare; it is ignored",
        absent(owner, "parameter", name, params),
    )
