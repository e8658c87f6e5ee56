"""Subgraph: operators that are connected as one, with interface ports and names such as ``one_camera``."""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.core import GraphError, Port
from headrace.core import Subgraph as _Subgraph
from headrace.vocabulary import Inner, absent, owner_of
from headrace.vocabulary import InnerSubgraph as _InnerSubgraph
from headrace_holoscan.core.errors import raises_runtime_errors
from headrace_holoscan.core.flows import DeclaresFlows

INPUT_EXEC_PORT, OUTPUT_EXEC_PORT = "__input_exec__", "__output_exec__"


class InterfacePortType(enum.Enum):
    """What passes an interface port."""

    DATA = 0
    EXECUTION = 1

    def __int__(self) -> int:
        return self.value


@dataclass(frozen=True)
class InterfacePortMapping:
    """A port of an operator behind an interface port."""

    internal_operator: Any
    internal_port_name: str


@dataclass(frozen=True)
class InterfacePort:
    """A port of a subgraph, and the ports of its operators behind it."""

    is_input: bool
    mappings: list[InterfacePortMapping]
    port_type: InterfacePortType = InterfacePortType.DATA

    def __len__(self) -> int:
        return len(self.mappings)


def _warn_of_instance_name() -> None:
    warnings.warn("instance_name is called name from version 4 on", DeprecationWarning, stacklevel=4)


class InnerSubgraph(_InnerSubgraph):
    """The state of a subgraph, and what the SDK does otherwise."""

    separator: ClassVar[str] = "_"
    of_the_fragment: ClassVar[set[str]] = {"metadata_policy", "is_metadata_enabled"}

    def __init__(self, subgraph: Any) -> None:
        super().__init__(subgraph)
        self.config_file: Any = None
        self.exec_inputs: dict[str, Port] = {}
        self.exec_outputs: dict[str, Port] = {}

    def set_up(self) -> None:
        """Read the configuration, before `compose` needs it."""
        given = self.config_file
        if given is not None and (hasattr(given, "__fspath__") or isinstance(given, str)):
            self.subgraph.config(given)
        elif given is not None:
            self.config = given

    def check_place(self, end: Any) -> None:
        """Let an operator of the fragment, which is in no graph yet, become one of this subgraph."""
        owner, mine = owner_of(end), self.subgraph
        if owner._headrace.place is mine.fragment is not mine and owner not in mine.graph.operators:
            owner._headrace.place = mine
            owner.name = self.qualified(owner.name)
        super().check_place(end)

    def configured(self, call: str, *args: str) -> Any:
        """Return what a method of the configuration returns."""
        if not self.config:
            return getattr(self.place, call)(*args)
        # As a fragment reads its own.
        return getattr(type(self.subgraph.fragment), call)(self.subgraph, *args)

    def add_exec(self, ports: dict[str, Port], name: str, internal: Any, port: str, of_operator: str) -> None:
        """Add an execution port."""
        spec, inner = self.spec, internal._headrace
        self.check_free(name, spec.inputs, spec.outputs, self.exec_inputs, self.exec_outputs)
        self.check_place(internal)
        if not isinstance(internal, Subgraph):
            self.subgraph.fragment.graph.add(internal)
            ports[name] = Port(internal, of_operator)
            return
        known = inner.exec_inputs if ports is self.exec_inputs else inner.exec_outputs
        if port not in known:
            what = f"subgraph {internal.name!r}"
            if port in {**inner.spec.inputs, **inner.spec.outputs}:
                raise GraphError(f"{port!r} is a data interface port of {what}, not one of execution")
            raise GraphError(absent(what, "execution interface port", port, known))
        ports[name] = known[port]

    def check_free(self, name: str, *taken: Any) -> None:
        """Raise if an interface port has the name already."""
        if any(name in ports for ports in taken):
            raise GraphError(f"interface port {name!r} already exists in subgraph {self.subgraph.name!r}")


class Subgraph(DeclaresFlows, _Subgraph):
    """Operators that are connected as one; subclass it and write `compose`.

    Parameters
    ----------
    fragment
        The fragment or the subgraph that it is a part of.
    name, instance_name
        Its name; the names of its operators begin with it.
    config
        A file of YAML for `from_config` and `kwargs`; that of the fragment unless given.
    """

    _headrace = Inner(InnerSubgraph)

    @raises_runtime_errors
    def __init__(
        self, fragment: Any, name: str | None = None, *, config: Any = None, instance_name: str | None = None
    ) -> None:
        kind = type(self).__name__
        if instance_name is not None:
            if name is not None:
                raise ValueError(f"{kind}: Cannot specify both name and instance_name")
            _warn_of_instance_name()
            name = instance_name
        if not name:
            raise ValueError(f"{kind}: the 'name' argument must be provided, as the second one")
        if fragment is None:
            raise ValueError(
                "The first argument to a Subgraph's constructor must be the Fragment or Subgraph around it"
            )
        self._headrace.config_file = config
        super().__init__(fragment, name=name)

    @property
    def instance_name(self) -> str:
        """The name, in older programs."""
        _warn_of_instance_name()
        return self.name

    # The configuration: that of its file, or of the fragment.

    def from_config(self, key: str) -> Any:
        """Return a section of the configuration."""
        return self._headrace.configured("from_config", key)

    def kwargs(self, key: str) -> dict[str, Any]:
        """Return a section of the configuration as keyword arguments."""
        found: dict[str, Any] = self._headrace.configured("kwargs", key)
        return found

    def config_keys(self) -> set[str]:
        """Return every key of the configuration."""
        found: set[str] = self._headrace.configured("config_keys")
        return found

    # Interface ports.

    def add_interface_port(
        self,
        external_name: str,
        internal_op: Any,
        internal_port: str | None = None,
        is_input: bool | None = None,
    ) -> None:
        """Let a port of an operator, or of a subgraph inside, be a port of this one."""
        port = internal_port or external_name
        spec = internal_op._headrace.spec
        sides = spec.inputs, spec.outputs
        if is_input is None and (port in sides[0]) is (port in sides[1]):
            where = f"subgraph {self.name!r}: interface port {external_name!r}"
            if port in sides[0]:
                raise GraphError(f"{where}: {port!r} is an input and an output; say which by is_input=")
            raise GraphError(
                f"{where}: {absent(repr(internal_op.name), 'port', port, {**sides[0], **sides[1]})}"
            )
        into = port in sides[0] if is_input is None else is_input
        mine, other = self._headrace.spec.inputs, self._headrace.spec.outputs
        if not into:
            mine, other = other, mine
        self._headrace.check_free(external_name, other, () if into else mine)
        before = mine.pop(external_name, ())
        try:
            self._headrace.declare(
                mine, "input" if into else "output", external_name, (Port(internal_op, port),)
            )
        finally:
            mine[external_name] = tuple(dict.fromkeys((*before, *mine.get(external_name, ()))))
            if not mine[external_name]:
                del mine[external_name]

    def add_input_interface_port(
        self, external_name: str, internal_op: Any, internal_port: str | None = None
    ) -> None:
        """Let an input of an operator, or of a subgraph inside, be an input of this one."""
        self.add_interface_port(external_name, internal_op, internal_port, True)

    def add_output_interface_port(
        self, external_name: str, internal_op: Any, internal_port: str | None = None
    ) -> None:
        """Let an output of an operator, or of a subgraph inside, be an output of this one."""
        self.add_interface_port(external_name, internal_op, internal_port, False)

    def add_input_exec_interface_port(self, external_name: str, internal_op: Any, port: str = "") -> None:
        """Let what runs before an operator inside be connected with this subgraph."""
        self._headrace.add_exec(self._headrace.exec_inputs, external_name, internal_op, port, INPUT_EXEC_PORT)

    def add_output_exec_interface_port(self, external_name: str, internal_op: Any, port: str = "") -> None:
        """Let what runs after an operator inside be connected with this subgraph."""
        self._headrace.add_exec(
            self._headrace.exec_outputs, external_name, internal_op, port, OUTPUT_EXEC_PORT
        )

    def interface_ports(self) -> dict[str, InterfacePort]:
        """Return the ports for data."""
        return {
            name: InterfacePort(into, [InterfacePortMapping(port.owner, port.name) for port in ports])
            for into, side in ((True, self._headrace.spec.inputs), (False, self._headrace.spec.outputs))
            for name, ports in side.items()
        }

    def exec_interface_ports(self) -> dict[str, InterfacePort]:
        """Return the ports for execution."""
        return {
            name: InterfacePort(
                into, [InterfacePortMapping(port.owner, port.name)], InterfacePortType.EXECUTION
            )
            for into, side in ((True, self._headrace.exec_inputs), (False, self._headrace.exec_outputs))
            for name, port in side.items()
        }

    def interface_port_names(self) -> list[str]:
        """Return the names of the ports for data."""
        return list(self.interface_ports())

    def get_interface_operator_port(self, port_name: str) -> tuple[Any, str]:
        """Return the operator behind a port for data, and its port; (None, "") if there is none."""
        return _first(self.interface_ports().get(port_name))

    def get_exec_interface_operator_port(self, port_name: str) -> tuple[Any, str]:
        """Return the operator behind a port for execution, and its port; (None, "") if there is none."""
        return _first(self.exec_interface_ports().get(port_name))

    # What it consists of.

    def operators(self) -> list[Any]:
        """Return its operators, and those of the subgraphs in it."""
        return [operator for operator in self.graph if self in places_of(operator)]

    @property
    def nested_subgraphs(self) -> list[Any]:
        """The subgraphs that were made in it."""
        return [each for each in self.graph.subgraphs.values() if each._headrace.place is self]

    def add_subgraph(self, subgraph: Any) -> None:
        """Do nothing: a subgraph is a part of where it was made."""
        self._headrace.check_place(subgraph)

    def is_composed(self) -> bool:
        """Return True: a subgraph is composed where it is made."""
        return True

    def set_composed(self, composed: bool) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name in _OF_FRAGMENTS:
            return getattr(self.fragment, name)
        return super().__getattr__(name)


_OF_FRAGMENTS = ("add_data_logger", "make_thread_pool", "register_service", "service", "set_dynamic_flows")


def places_of(end: Any) -> list[Any]:
    """Return the subgraphs and the fragment that an operator or a subgraph was made in, the inner ones first."""
    found = [end._headrace.place]
    while found[-1] is not found[-1]._headrace.root:
        found.append(found[-1]._headrace.place)
    return found


def _first(port: InterfacePort | None) -> tuple[Any, str]:
    if port is None:
        return None, ""
    return port.mappings[0].internal_operator, port.mappings[0].internal_port_name


def execution_end(end: Any, side: str, name: str = "") -> Any:
    """Return the operator behind an execution port of a subgraph; anything else as it is.

    Without a name, it is the only port, of a subgraph that has no port for data on this side.
    """
    if not isinstance(end, Subgraph):
        return end
    ports = end._headrace.exec_inputs if side == "input" else end._headrace.exec_outputs
    if name in ports:
        return ports[name].owner
    if name or (end._headrace.spec.inputs if side == "input" else end._headrace.spec.outputs):
        return end
    if len(ports) > 1:
        raise GraphError(
            f"subgraph {end.name!r} has more than one execution {side} port: {', '.join(ports)}; name one"
        )
    if not ports:
        raise GraphError(f"subgraph {end.name!r} has no data or execution interface ports for an {side}")
    return next(iter(ports.values())).owner
