"""The fragments of an application, composed into one graph, so that one run runs them all.

Each fragment keeps what it declares: its graph, its settings, its green contexts. The graph of the application has
the operators of all of them, under names such as ``edge.camera``, the flows inside of each and those between them.

A flow between fragments names its ends by texts such as ``"camera.out"``, because the operators do not exist yet
when the application is composed. It is here that an application can be cut into parts that run elsewhere.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.core.errors import GraphError, choices, noting
from headrace.core.graph import port_pairs_of
from headrace.core.ports import INPUT_EXEC, OUTPUT_EXEC
from headrace.core.wiring import Port

if TYPE_CHECKING:
    from headrace.application.application import Application
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator
    from headrace.core.ports import IOSpec
    from headrace.core.wiring import End


def connect_parts(
    application: Application,
    source: Any,
    target: Any,
    port_pairs: Any,
    size: int | None,
    policy: IOSpec.QueuePolicy | None,
    *more: object,
) -> None:
    """Add a flow between two fragments."""
    where = f"add_flow({', '.join(map(_name_of, (source, target, *more)))})"
    if more:
        raise GraphError(
            f"{where}: a flow between fragments connects two of them; call add_flow for each pair"
        )
    for part in (source, target):
        check_part(application, part, where)
    pairs = port_pairs_of(port_pairs, where)
    if not pairs:
        raise GraphError(
            f"{where}: a flow between fragments names its operators, as in {{('camera.out', 'detector.in')}}"
        )
    for part in (source, target):
        application.fragment_graph.add(part)
    application.fragment_graph.flows += [
        FragmentFlow(source, output, target, input_, size, policy) for output, input_ in pairs
    ]


def check_part(application: Application, part: Any, where: str) -> None:
    """Raise if something is not a fragment that was made for an application."""
    of = getattr(part, "application", None)
    if of is not application or part is application:
        known = hasattr(part, "application") and not isinstance(part, type)
        why = f"was made for {of.name!r}" if known and of not in (None, part) else "was not made for it"
        raise GraphError(
            f"{where}: {_name_of(part)} cannot be a part of {application.name!r}, because it {why}; a part is a "
            "Fragment that is made in compose() with the application as its first argument: Edge(self, 'edge')"
        )


def compose_parts(application: Application) -> list[Operator]:
    """Compose the fragments of an application into its graph, and return the operators that they created."""
    graph, parts = application.graph, application.fragment_graph
    for part in application._headrace.made_parts:
        if part not in parts.fragments:
            application._headrace.report(
                f"fragment {part.name!r} ({type(part).__name__}) was created in compose but is not a part of "
                f"{application.name!r}, so it would never run; connect it with add_flow(...), or add it with "
                "add_fragment(...)"
            )
    if not parts.fragments:
        return []
    if graph.operators:
        raise GraphError(
            f"{application.name!r} consists of fragments and has the operator {graph.operators[0].name!r} of its "
            "own; make it an operator of a fragment"
        )
    made: list[Operator] = []
    for composed in parts.fragments:
        with noting(f"raised in compose of fragment {composed.name!r} ({type(composed).__name__})"):
            made += composed._headrace.compose_graph()
        for operator in composed.graph:
            graph.add(operator)
        graph.flows += composed.graph.flows
        graph.subgraphs.update(composed.graph.subgraphs)
        composed._headrace.graph_of_whole = graph
        _warn_of_scheduler(application, composed)
    try:
        for flow in parts.flows:
            graph.connect(*flow.ends(), None, flow.size, flow.policy)
    except GraphError as error:
        application._headrace.report_mistake(error)
        graph.rebuild((), ())  # if it may pass, nothing runs
    return made


def _warn_of_scheduler(application: Application, part: Any) -> None:
    own = part._headrace.scheduler
    if own is not None:
        logging.getLogger("headrace.run").warning(
            "fragment %r has a scheduler of its own, %r, which is not used: the fragments of %r run in one "
            "process, with the scheduler of the application",
            part.name,
            own,
            application.name,
        )


def _name_of(part: Any) -> str:
    return repr(getattr(part, "name", part))


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


class FragmentGraph:
    """The fragments of an application in the order they were added, and the flows between them."""

    __slots__ = ("flows", "fragments")

    def __init__(self) -> None:
        self.fragments: list[Composition] = []
        self.flows: list[FragmentFlow] = []

    def add(self, fragment: Composition) -> None:
        """Add a fragment; adding the same one again changes nothing."""
        for known in self.fragments:
            if known is fragment:
                return
            if known.name == fragment.name:
                raise GraphError(f"two fragments are named {fragment.name!r}; give one another name=...")
        self.fragments.append(fragment)
