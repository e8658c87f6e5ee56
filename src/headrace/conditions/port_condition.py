"""PortCondition: the base of conditions about ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.core.condition import Condition
from headrace.core.errors import GraphError
from headrace.core.ports import port_names

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.node import Node, Queue


class PortCondition(Condition):
    """A condition about the ports that it names.

    A subclass sets `port_role` to the argument that names them: ``"receiver"`` or ``"transmitter"`` for one input
    or output, which need not be named if the operator has no other; ``"receivers"`` for several inputs, by default
    all.
    """

    polled = False

    def __init__(self, fragment: Composition | None, ports: str | Sequence[str] | None, *, name: str) -> None:
        super().__init__(fragment, name=name)
        if self.port_role != "receivers" and not isinstance(ports, str | None):
            raise TypeError(f"condition {name!r}: {self.port_role} must be the name of a port, not {ports!r}")
        self.ports = () if ports is None else port_names(ports, f"condition {name!r}: {self.port_role}")
        self._queues: tuple[Queue, ...] = ()

    @property
    def port_names(self) -> tuple[str, ...]:
        """The ports that it names."""
        return self.ports

    def ports_of(self, node: Node) -> tuple[str, ...]:
        """Return the ports that it names, or all of `node` that it may be about."""
        is_output = self.port_role == "transmitter"
        ports = node.output_queues if is_output else node.input_queues
        if not self.ports and self.port_role != "receivers" and len(ports) != 1:
            raise GraphError(
                f"condition {self.name!r} of operator {node.name!r} must name its "
                f"{'output' if is_output else 'input'}: {self.port_role}=... "
                f"(one of {', '.join(map(repr, ports)) or 'none'})"
            )
        return self.ports or tuple(ports)

    def join(self, node: Node) -> None:
        """Join the node, and look up the queues of the ports."""
        super().join(node)
        view = node.transmitter if self.port_role == "transmitter" else node.receiver
        self._queues = tuple(queue for port in self.ports_of(node) for queue in view(port).queues)

    def detach(self) -> None:
        """Leave the run, and release the messages that waited."""
        super().detach()
        self._queues = ()
