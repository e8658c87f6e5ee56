"""SinglePortCondition: the base of conditions about one port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.condition import Condition
from headrace.core.errors import GraphError

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.node import Node


class SinglePortCondition(Condition):
    """A condition about the port that it names, or about the only port.

    A subclass sets `port_role` to ``"receiver"``, for an input, or ``"transmitter"``, for an output.
    """

    polled = False

    def __init__(self, fragment: Composition | None, port: str | None, *, name: str) -> None:
        super().__init__(fragment, name=name)
        if port is not None and not isinstance(port, str):
            raise TypeError(f"condition {name!r}: {self.port_role} must be the name of a port, not {port!r}")
        self.port = port

    @property
    def port_names(self) -> tuple[str, ...]:
        """The port that it names; empty if it names none."""
        return (self.port,) if self.port is not None else ()

    def ports_of(self, node: Node) -> tuple[str, ...]:
        """Return the port that it names, or the only one of `node`."""
        is_output = self.port_role == "transmitter"
        ports = node.output_queues if is_output else node.input_queues
        if self.port is None and len(ports) != 1:
            raise GraphError(
                f"condition {self.name!r} of operator {node.name!r} must name its "
                f"{'output' if is_output else 'input'}: {self.port_role}=... "
                f"(one of {', '.join(map(repr, ports)) or 'none'})"
            )
        return self.port_names or tuple(ports)

    def port_of(self, node: Node) -> str:
        """Return the port that it names, or the only one of `node`."""
        (port,) = self.ports_of(node)
        return port
