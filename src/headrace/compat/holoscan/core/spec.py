"""What `setup` declares: parameters that take any value, ports and their conditions."""

from __future__ import annotations

import os
from typing import Any

from headrace.compat.holoscan.core.flows import ConnectedPort, ConnectorType
from headrace.compat.holoscan.core.yaml_values import dump, value_of_argument
from headrace.compat.holoscan.lenience import tell
from headrace.conditions.by_type import CONDITIONS
from headrace.core.condition_types import ConditionType
from headrace.core.construction import known_keywords
from headrace.core.errors import absent
from headrace.core.parameter import REQUIRED
from headrace.core.ports import IOSpec as _IOSpec
from headrace.core.spec import ComponentSpec as _ComponentSpec
from headrace.core.spec import OperatorSpec as _OperatorSpec

_Size = int | _IOSpec.IOSize
_POLICIES = {policy.name.lower(): policy for policy in _IOSpec.QueuePolicy} | {
    "fail": _IOSpec.QueuePolicy.FAULT
}


def _accepted(kind: ConditionType, arguments: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the arguments that a condition of a port has; the others are ignored."""
    known = known_keywords(CONDITIONS[kind]) if kind in CONDITIONS else arguments
    for name in arguments:
        if name not in known:
            tell(
                f"{where}: the condition {kind.name} has no argument {name!r}, which is ignored",
                absent(f"the condition {kind.name}", "argument", name, known),
            )
    return {name: value for name, value in arguments.items() if name in known}


class IOSpec(ConnectedPort):
    """One input or output of an operator."""

    __slots__ = ()

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
        return super().condition(kind, **_accepted(kind, arguments, where))

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


def _described_params(spec: _ComponentSpec) -> list[list[tuple[str, Any]]]:
    return [
        [
            ("name", parameter.name),
            ("type", "CustomType"),
            ("description", parameter.description or '""'),
            ("flag", f"k{parameter.flag.name.capitalize()}"),
        ]
        for parameter in reversed(spec.params.values())
    ]


def _fragment_name(fragment: Any) -> str:
    return getattr(fragment, "name", "") or '""'


class ComponentSpec(_ComponentSpec):
    """The parameters of a component."""

    def __init__(self, fragment: Any = None, component: Any = None) -> None:
        super().__init__(fragment)  # a parameter may have any name

    @property
    def description(self) -> str:
        """What it declares, in YAML."""
        return dump([("fragment", _fragment_name(self.fragment)), ("params", _described_params(self))])

    def __repr__(self) -> str:
        return self.description


class OperatorSpec(_OperatorSpec, ComponentSpec):
    """The parameters, ports and port conditions of an operator."""

    _port_type = IOSpec
    waits_for_queues_that_drop = True

    is_strict = False
    """Whether parameters are checked: those of the ready operators."""

    def __init__(self, fragment: Any = None, op: Any = None, check_name: Any = None) -> None:
        super().__init__(fragment, op if isinstance(op, str) else getattr(op, "name", ""))

    def multi_port_conditions(self) -> list[Any]:
        """Return the conditions over several ports."""
        return list(self.multi_port)

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
            what = f"operator {self.owner!r} declares the {io_type.name.lower()} {name!r} twice"
            tell(f"{what}; the first counts", what)
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
            if name not in values and not component._has_own(name):
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
        ("fragment", _fragment_name(spec.fragment)),
        ("params", _described_params(spec)),
        ("inputs", [described_port(port) for port in spec.inputs.values()]),
        ("outputs", [described_port(port) for port in spec.outputs.values()]),
    ]


def refused(owner: str, name: str, params: Any) -> None:
    """Tell that an argument is ignored, since no parameter has its name."""
    tell(
        f"{owner} was given an argument {name!r}, which its setup does not declare; it is ignored",
        absent(owner, "parameter", name, params),
    )
