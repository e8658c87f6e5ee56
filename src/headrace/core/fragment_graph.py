"""FragmentGraph: the fragments of an application, and the flows between their operators.

A flow between fragments names its ends by texts such as ``"camera.out"``, because the operators do not exist yet
when the application is composed. It is here that an application can be cut into parts that run elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.core.errors import GraphError, choices
from headrace.core.graph_queries import GraphQueries, Link
from headrace.core.ports import INPUT_EXEC, OUTPUT_EXEC
from headrace.core.wiring import Port

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.ports import IOSpec
    from headrace.core.wiring import End


@dataclass(frozen=True, slots=True)
class FragmentFlow:
    """A connection of two fragments: from an output of an operator, ``"camera.out"``, to an input of another.

    An operator without inputs that is named by itself runs after each compute of the first one, as by ``then``.
    """

    source: Composition
    output: str
    target: Composition
    input: str
    size: int | None = None
    policy: IOSpec.QueuePolicy | None = None

    def ends(self) -> tuple[End, End]:
        """Return the operators or ports that it connects, once its fragments have been composed."""
        call = f"add_flow({self.source.name!r}, {self.target.name!r})"
        source = end_named(self.source, self.output, call)
        target = end_named(self.target, self.input, call)
        ends = [
            end for end in (source, target) if not isinstance(end, Port) and not end._headrace.is_subgraph
        ]
        if len(ends) == 2 and not target.spec.inputs:  # type: ignore[union-attr]
            return source[OUTPUT_EXEC], target[INPUT_EXEC]  # type: ignore[index]
        return source, target


def end_named(fragment: Composition, text: str, call: str) -> End:
    """Return the operator or port that a text such as ``"camera.out"`` names in a composed fragment."""
    graph = fragment.graph
    prefix = f"{fragment.name}."
    known: dict[str, End] = {
        each.name.removeprefix(prefix): each for each in (*graph.subgraphs.values(), *graph.operators)
    }
    if text in known:  # it has one port
        return known[text]
    name, _, port = text.rpartition(".")
    if name not in known:
        raise GraphError(
            f"{call}: fragment {fragment.name!r} has no operator {name or text!r}; it has "
            f"{choices(known, name or text)}, and a port of one is named as in 'operator.port'"
        )
    return Port(known[name], port)


class FragmentGraph(GraphQueries["Composition"]):
    """The fragments of an application in the order they were added, and the flows between them."""

    __slots__ = ("flows", "fragments")

    def __init__(self) -> None:
        self.fragments: list[Composition] = []
        self.flows: list[FragmentFlow] = []

    @property
    def _nodes(self) -> list[Composition]:
        return self.fragments

    @property
    def _links(self) -> list[Link[Composition]]:
        return [Link(flow.source, flow.output, flow.target, flow.input) for flow in self.flows]

    def _port_name(self, node: Composition, port: str) -> str:
        return f"{node.name}.{port}"

    def add(self, fragment: Composition) -> None:
        """Add a fragment; adding the same one again changes nothing."""
        for known in self.fragments:
            if known is fragment:
                return
            if known.name == fragment.name:
                raise GraphError(f"two fragments are named {fragment.name!r}; give one another name=...")
        self.fragments.append(fragment)
