"""Flows: those that order computes, those that are chosen, and the connectors between operators."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

from headrace.core import Flow, GraphError
from headrace.core import IOSpec as _IOSpec
from headrace.vocabulary import INPUT_EXEC, OUTPUT_EXEC, Connectable
from headrace_holoscan.absent import NotHereError
from headrace_holoscan.core.hidden import Hidden
from headrace_holoscan.lenience import tell

_LATEST = _IOSpec.QueuePolicy.LATEST


class _ConnectorType(enum.IntEnum):
    """What is between two ports."""

    DEFAULT = 0
    DOUBLE_BUFFER = 1
    ASYNC_BUFFER = 2
    UCX = 3
    PUBSUB = 4

    __str__ = enum.Enum.__str__


_ConnectorType.__name__ = "ConnectorType"  # as it is shown
ConnectorType = _ConnectorType
_TOPICS = "topics belong to the application; use self.export_topic and self.import_topic in compose"


def _check_connector(connector: Any, where: str) -> ConnectorType:
    if not isinstance(connector, ConnectorType):
        raise TypeError(f"{where}: a connector is an IOSpec.ConnectorType, not {connector!r}")
    if connector is ConnectorType.UCX:
        tell(
            f"{where}: the connector UCX is a queue of this process",
            "leave the connector out: messages stay here",
        )
    if connector is ConnectorType.PUBSUB:
        raise NotHereError(f"{where}: the connector PUBSUB is not here: {_TOPICS}")
    return connector


class ConnectedPort(_IOSpec):
    """A port with a connector, which is the length and the policy of its queue."""

    __slots__ = ("_connector", "_connector_arguments")
    ConnectorType: TypeAlias = _ConnectorType

    @property
    def connector_type(self) -> _ConnectorType:
        """The kind of connector."""
        connector: _ConnectorType = getattr(self, "_connector", _ConnectorType.DEFAULT)
        return connector

    def connector(self, kind: Any = None, **arguments: Any) -> Any:
        """Set what is between this port and those it is connected with; without arguments, return the queue."""
        if kind is None:
            return self._queue()
        where = f"port {self.name!r}"
        connector = _check_connector(kind, where)
        if connector is ConnectorType.ASYNC_BUFFER:
            if arguments:
                raise ValueError(f"{where}: an asynchronous buffer takes no {', '.join(arguments)}")
            self.policy = _LATEST
        self._connector_arguments = dict(arguments)
        capacity, policy = arguments.pop("capacity", None), arguments.pop("policy", None)
        if arguments and connector is not ConnectorType.UCX:
            tell(
                f"{where}: the connector has no {', '.join(arguments)}, which is ignored",
                "there is no such argument",
            )
        if capacity is not None and self.io_type is _IOSpec.IOType.INPUT:
            self.capacity = capacity
        if policy is not None:
            self.policy = _IOSpec.QueuePolicy(policy)
        self._connector = connector
        return self

    def _queue(self) -> Any:
        from headrace_holoscan import resources
        from headrace_holoscan.core.components import unmade

        if self.connector_type is ConnectorType.DEFAULT:
            return None
        kind = "".join(part.capitalize() for part in self.connector_type.name.split("_"))
        end = "Receiver" if self.io_type is _IOSpec.IOType.INPUT else "Transmitter"
        cls: Any = getattr(resources, kind + end)
        return unmade(cls, self._connector_arguments)

    def topic(self, name: str) -> Any:
        """Raise: topics belong to the application."""
        raise NotHereError(f"port {self.name!r}: topic({name!r}) is not here: {_TOPICS}")


# Flows that are chosen.


@dataclass(frozen=True, repr=False)
class FlowInfo:
    """A flow from one operator to another."""

    _flow: Flow

    curr_operator = property(attrgetter("_flow.source"), doc="The operator that it leads from.")
    next_operator = property(attrgetter("_flow.target"), doc="The operator that it leads to.")
    output_port_name = property(attrgetter("_flow.output"), doc="The output that it leads from.")
    input_port_name = property(attrgetter("_flow.input"), doc="The input that it leads to.")

    @property
    def output_port_spec(self) -> Any:
        """The declaration of the output."""
        return self._flow.source.spec.every_output[self._flow.output]

    @property
    def input_port_spec(self) -> Any:
        """The declaration of the input."""
        return self._flow.target.spec.every_input[self._flow.input]


class ChoosesFlows:
    """The part of an operator that knows its flows, and chooses among them."""

    _headrace: Any

    @property
    def next_flows(self) -> list[FlowInfo]:
        """The flows that lead from it to others."""
        return [FlowInfo(flow) for flow in self._headrace.outgoing]

    def find_flow_info(self, predicate: Callable[[FlowInfo], object]) -> FlowInfo | None:
        """Return the first flow of which a function is true, or None."""
        return next(iter(self.find_all_flow_info(predicate)), None)

    def find_all_flow_info(self, predicate: Callable[[FlowInfo], object]) -> list[FlowInfo]:
        """Return the flows of which a function is true."""
        return [flow for flow in self.next_flows if predicate(flow)]

    def add_dynamic_flow(self, *given: Any, **named: Any) -> None:
        """Send what this compute emitted along a flow."""
        given += tuple(named[name] for name in _WORDS if name in named)
        super().add_dynamic_flow(*map(_plain_flow, given))  # type: ignore[misc]


_WORDS = ("flow", "flows", "curr_output_port_name", "next_op", "next_input_port_name")


def _plain_flow(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return [_plain_flow(each) for each in given]
    return given._flow if isinstance(given, FlowInfo) else given


# Flows that compose declares.


class DeclaresFlows:
    """The part of a fragment or a subgraph that connects operators."""

    allows_undeclared_flows = True
    outcome: Any = Hidden()
    run_id: Any = Hidden()
    segments: Any = Hidden()

    def add_flow(
        self, upstream_op: Any, downstream_op: Any, port_pairs: Any = None, *more: Any, **options: Any
    ) -> None:
        """Connect two operators by data, or let the second run after the first if it has no input for data."""
        rest = [port_pairs, *more, options.pop("connector_type", None)]
        for connector in [each for each in rest if isinstance(each, ConnectorType)]:
            rest.remove(connector)
            if _check_connector(connector, "add_flow") is ConnectorType.ASYNC_BUFFER:
                options["policy"] = _LATEST
        rest = [each for each in rest if each]
        if rest or not _has_no_data(downstream_op):
            super().add_flow(upstream_op, downstream_op, *rest, **options)  # type: ignore[misc]
            return
        me: Any = self
        me._headrace.check_composing("add_flow")
        for end in (upstream_op, downstream_op):
            me._headrace.check_place(end)
        # Not by add_flow: the port may be that of an operator in a subgraph.
        me.graph.connect(_execution_end(upstream_op, OUTPUT_EXEC), _execution_end(downstream_op, INPUT_EXEC))


def _has_no_data(end: Any) -> bool:
    """Return whether a flow without port names to an operator or a subgraph orders computes."""
    inputs = getattr(getattr(getattr(end, "_headrace", None), "spec", None), "inputs", None)
    if inputs is None or (isinstance(end, Connectable) and end._headrace.is_subgraph):
        return not inputs and bool(end._headrace.exec_inputs)
    return all(port.is_execution for port in inputs.values())


def _execution_end(end: Any, port: str) -> Any:
    """Return the port at which the computes of an operator, or of the one behind a subgraph, are ordered."""
    if not (isinstance(end, Connectable) and end._headrace.is_subgraph):
        return end[port]
    side = "output" if port == OUTPUT_EXEC else "input"
    ports = list(getattr(end._headrace, f"exec_{side}s", {}).values())
    if len(ports) != 1:
        raise GraphError(
            f"subgraph {end.name!r} has {len(ports)} execution {side} ports, and a flow needs one; its compose "
            f"declares one by add_{side}_exec_interface_port('name', operator)"
        )
    return ports[0].owner[port]
