"""Graph: the operators of a fragment and the flows between their ports.

An input has one queue for all its flows or, with ``IOSpec.ANY_SIZE``, one queue for each flow. Three places declare
a queue. Its length is the input's ``size``, or the ``size`` in ``add_flow`` if that is larger. Its policy is the
input's policy; if the input has none, the policy in ``add_flow``, or else the output's policy. Flows that share a
queue must agree on its policy. A flow without a policy counts as FAULT, because its producer relies on losing no
message.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from headrace.core.errors import GraphError, absent, choices
from headrace.core.ports import ConditionType, IOSpec
from headrace.core.wiring import Connectable, Port, name_of, owner_of

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator
    from headrace.core.wiring import End


N = TypeVar("N")
E = TypeVar("E")


def edges_back(starts: Iterable[N], leaving: Callable[[N], Iterable[tuple[E, N]]]) -> list[E]:
    """Return the edges at which a way through a graph comes back to itself.

    Parameters
    ----------
    starts
        The vertices that ways begin at, the sources first.
    leaving
        The edges that leave a vertex, each with the vertex that it leads to.
    """
    found: list[E] = []
    seen: set[N] = set()
    for first in starts:
        if first in seen:
            continue
        seen.add(first)
        way = {first: iter(leaving(first))}
        while way:
            vertex = next(reversed(way))
            edge, target = next(way[vertex], (None, None))
            if edge is None or target is None:
                del way[vertex]
            elif target in way:
                found.append(edge)
            elif target not in seen:
                seen.add(target)
                way[target] = iter(leaving(target))
    return found


def reachable(
    first: N, step: Callable[[N], Iterable[N]], within: Container[N] | None = None
) -> dict[N, None]:
    """Return a vertex and those that steps lead to, within a set."""
    found = {first: None}
    for vertex in (new := [first]):
        for other in step(vertex):
            if other not in found and (within is None or other in within):
                found[other] = None
                new.append(other)
    return found


PortPairs: TypeAlias = Iterable[tuple[str, str]] | Mapping[str, str | Iterable[str]]
"""The connected ports: pairs, or a dict from an output to one input or several."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A connection from an output to an input, and the size and policy that ``add_flow`` declared."""

    source: Operator
    output: str
    target: Operator
    input: str
    size: int | None = field(default=None, compare=False)
    policy: IOSpec.QueuePolicy | None = field(default=None, compare=False)

    def check(self, where: str) -> None:
        """Raise if it leads from a port that orders computes to one for data, or the other way round."""
        ports = self.source.spec.every_output[self.output], self.target.spec.every_input[self.input]
        if ports[0].is_execution is not ports[1].is_execution:
            raise GraphError(
                f"{where}: {self} has data at one end, and orders computes at the other; "
                f"{self.source.name}.then({self.target.name}) orders their computes"
            )

    def __str__(self) -> str:
        return f"{self.source.name}.{self.output} -> {self.target.name}.{self.input}"


class Graph:
    """The operators in the order they were added, the flows between them, and the subgraphs that they came in."""

    __slots__ = ("_names", "flows", "operators", "subgraphs")

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.flows: list[Flow] = []
        # The subgraphs by name, outer ones before those inside them; of a class whose module imports this one.
        self.subgraphs: dict[str, Any] = {}
        self._names: dict[str, Operator] = {}

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def __contains__(self, operator: object) -> bool:
        name = getattr(operator, "name", None)
        return name in self._names and self._names[name] is operator

    @property
    def names(self) -> Mapping[str, Operator]:
        """The operators by name."""
        return self._names

    def find(self, name: str) -> Operator:
        """Return the operator with the given name."""
        try:
            return self._names[name]
        except KeyError:
            raise GraphError(
                f"there is no operator {name!r}; there are {choices(self._names, name)}"
            ) from None

    def add(self, operator: Operator) -> None:
        """Add an operator; adding the same one again changes nothing."""
        other = self._names.get(operator.name)
        if other is operator:
            return
        if other is not None:
            raise GraphError(
                f"two operators are named {operator.name!r} (a {type(other).__name__} and a "
                f"{type(operator).__name__}); give one another name=..."
            )
        if operator.name in self.subgraphs:
            raise GraphError(
                f"a subgraph and an operator are named {operator.name!r}; give one another name=..."
            )
        self._names[operator.name] = operator
        self.operators.append(operator)

    def remove(self, operator: Operator) -> None:
        """Remove an operator and its flows."""
        if operator not in self:
            raise GraphError(f"operator {operator.name!r} is not in the graph")
        self.rebuild(
            [each for each in self.operators if each is not operator],
            [flow for flow in self.flows if operator not in (flow.source, flow.target)],
        )
        operator._headrace.outgoing, operator._headrace.incoming = [], []

    def add_subgraph(self, subgraph: Any) -> None:
        """Add a subgraph, whose name must be its own."""
        name = subgraph.name
        if name in self.subgraphs or name in self._names:
            both = "two subgraphs" if name in self.subgraphs else "a subgraph and an operator"
            raise GraphError(f"{both} are named {name!r}; give one another name=...")
        self.subgraphs[name] = subgraph

    def rebuild(self, operators: Iterable[Operator], flows: Iterable[Flow]) -> None:
        """Replace all operators and flows."""
        operators, self.flows = list(operators), list(flows)
        self.operators, self._names = [], {}
        for operator in operators:
            self.add(operator)
            operator._headrace.outgoing, operator._headrace.incoming = [], []
        for flow in self.flows:
            if flow.source in self:
                flow.source._headrace.outgoing.append(flow)
            if flow.target in self:
                flow.target._headrace.incoming.append(flow)

    def part(self, fragment: Composition) -> Self:
        """Return what the graph of an application has of one of its fragments."""
        found = type(self)()
        found.operators = [operator for operator in self.operators if operator.fragment is fragment]
        found._names = {operator.name: operator for operator in found.operators}
        found.flows = [
            flow for flow in self.flows if flow.source.fragment is flow.target.fragment is fragment
        ]
        found.subgraphs = {name: each for name, each in self.subgraphs.items() if each.fragment is fragment}
        return found

    def connect(
        self,
        source: End,
        target: End,
        port_pairs: PortPairs | None = None,
        size: int | None = None,
        policy: IOSpec.QueuePolicy | None = None,
    ) -> None:
        """Add the flows from `source` to `target` that `port_pairs` lists, or the only possible flow."""
        where = f"add_flow({name_of(source)}, {name_of(target)})"
        for flow in self.flows_between(source, target, port_pairs, size, policy):
            if flow in flow.source._headrace.outgoing:
                flow.source.fragment._headrace.report(f"{where}: {flow} is connected already")
                continue
            self.add(flow.source)
            self.add(flow.target)
            self.flows.append(flow)
            flow.source._headrace.outgoing.append(flow)
            flow.target._headrace.incoming.append(flow)

    def flows_between(
        self,
        source: End,
        target: End,
        port_pairs: PortPairs | None,
        size: int | None,
        policy: IOSpec.QueuePolicy | None,
    ) -> list[Flow]:
        """Return the flows that `connect` would add."""
        where = f"add_flow({name_of(source)}, {name_of(target)})"
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise GraphError(f"{where}: size must be a positive int, not {size!r}")
        if policy is not None and not isinstance(policy, IOSpec.QueuePolicy):
            raise GraphError(
                f"{where}: policy must be an IOSpec.QueuePolicy (POP, REJECT, FAULT or LATEST), not {policy!r}"
            )
        pairs = port_pairs_of(port_pairs, where)
        if pairs and (isinstance(source, Port) or isinstance(target, Port)):
            raise GraphError(f"{where}: the ports are named already, so there is no port map besides")
        sides = owner_of(source)._headrace.spec.outputs, owner_of(target)._headrace.spec.inputs
        example = f"{{{tuple(next(iter(side), '...') for side in sides)!r}}}"
        flows = [
            Flow(begin.owner, begin.name, end.owner, end.name, size, policy)
            for output, input_ in pairs or (("", ""),)
            for begin in self.ports_at(source, "output", output, where, example)
            for end in self.ports_at(target, "input", input_, where, example)
        ]
        for flow in flows:
            flow.check(where)
        return flows

    def ports_at(self, end: End, kind: str, name: str, where: str, example: str) -> tuple[Port, ...]:
        """Return the ports of operators at one end of a flow: several behind an input of a subgraph.

        `kind` is ``"input"`` or ``"output"``. Without a name, it is the only one that can be meant.
        """
        owner = owner_of(end)
        spec = owner._headrace.spec
        ports = spec.every_input if kind == "input" else spec.every_output
        found = _port(owner, ports, kind, end.name if isinstance(end, Port) else name, where, example)
        behind = ports[found]
        return behind if isinstance(behind, tuple) else (Port(owner, found),)

    def disconnect(self, source: Operator, target: Operator, port_pairs: PortPairs | None = None) -> None:
        """Remove the flows from `source` to `target` that `port_pairs` lists, or all."""
        where = f"remove_flow({source.name!r}, {target.name!r})"
        flows = [flow for flow in source._headrace.outgoing if flow.target is target]
        if not flows:
            raise GraphError(f"{where}: they are not connected")
        for pair in port_pairs_of(port_pairs, where):
            if pair not in [(flow.output, flow.input) for flow in flows]:
                listed = ", ".join(map(str, flows))
                raise GraphError(f"{where}: {pair[0]!r} -> {pair[1]!r} is not connected; there are {listed}")
        wanted = port_pairs_of(port_pairs, where)
        removed = [flow for flow in flows if not wanted or (flow.output, flow.input) in wanted]
        self.rebuild(self.operators, [flow for flow in self.flows if flow not in removed])


def port_pairs_of(port_pairs: Any, where: str) -> list[tuple[str, str]]:
    """Return a port map as pairs; `where` is the call, for errors."""
    if port_pairs is None:
        return []
    if not isinstance(port_pairs, Iterable):
        raise GraphError(
            f"{where}: the third argument is a port map such as {{('out', 'in')}}, or the next operator of a "
            f"chain, not {port_pairs!r}"
        )
    if isinstance(port_pairs, Mapping):
        pairs: Iterable[Any] = [
            (output, input_)
            for output, inputs in port_pairs.items()
            for input_ in ([inputs] if isinstance(inputs, str) else inputs)
        ]
    else:
        pairs = port_pairs
    result = []
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
            example = ("out", "in")
            if isinstance(port_pairs, tuple) and len(port_pairs) == 2 and isinstance(pair, str):
                example = port_pairs
            raise GraphError(
                f"{where}: a port map is a set of (output, input) pairs such as {{{example!r}}}, or a dict "
                f"such as {{{example[0]!r}: {example[1]!r}}}; not {port_pairs!r}"
            )
        result.append(pair)
    # A set has no order; sorting makes the graph of a program the same every time.
    return sorted(result) if isinstance(port_pairs, (set, frozenset)) else result


def _port(owner: Any, ports: Mapping[str, Any], kind: str, name: str, where: str, example: str) -> str:
    """Return the name of a port; it may be omitted if there is one, or one input that is not optional."""
    what = f"{owner._headrace.noun} {owner.name!r}"
    if name in ports:
        return name
    if name:
        raise GraphError(f"{where}: {absent(what, kind, name, ports)}")
    if not owner._headrace.is_subgraph:
        ports = {each: port for each, port in ports.items() if not port.is_execution}
    if kind == "output":
        # The output for messages that are given up does not count beside others.
        lost = None if owner._headrace.is_subgraph else owner.spec.dead_letter
        required = [each for each in ports if each != lost]
    else:
        required = [each for each, port in ports.items() if not is_optional(port)]
    for choice in (required, list(ports)):
        if len(choice) == 1:
            return choice[0]
    if ports:
        raise GraphError(
            f"{where}: {what} has several {kind}s ({choices(ports)}), so name one, by {example} or by "
            f"{owner.name.rpartition('.')[2]}[{(required or list(ports))[0]!r}]"
        )
    right = f"setup declares one by spec.{kind}('name')"
    if owner._headrace.is_subgraph:
        right = f"its compose declares one by add_{kind}('name', operator['port'])"
    elif owner.is_function:
        right = "an argument of the function is one" if kind == "input" else "@op(outputs=...) declares them"
    raise GraphError(
        f"{where}: {what} has no {kind} ({right}), and a flow goes from an output of the first "
        "operator to an input of the second; first.then(second) runs the second after each compute of the first, "
        "without data"
    )


def is_optional(port: Any) -> bool:
    """Return whether an input of an operator or a subgraph may stay unconnected."""
    if isinstance(port, tuple):
        return all(is_optional(each.owner.spec.every_input[each.name]) for each in port)
    return any(condition.kind is ConditionType.NONE for condition in port.conditions)


def is_source(operator: Operator) -> bool:
    """Return whether an operator is a source: no flow leads to it, whatever inputs it declares.

    The end of a flow from another process is none.
    """
    return not operator._headrace.incoming and operator._headrace.beyond is None


def is_sink(operator: Operator) -> bool:
    """Return whether an operator is a sink: no flow leads from it, whatever outputs it declares.

    The end of a flow to another process is none.
    """
    return not operator._headrace.outgoing and operator._headrace.beyond is None


@dataclass(slots=True)
class Beyond:
    """What is behind the end of a flow to another process.

    Attributes
    ----------
    leads_to
        The ends of the flows by which what it sends comes back.
    """

    leads_to: tuple[Operator, ...] = ()


def check_member(fragment: Composition, operator: Any, *, or_subgraph: bool = False) -> None:
    """Raise if `operator` is not an operator of `fragment`, or a subgraph where that may be one."""
    if isinstance(operator, Connectable) and operator._headrace.is_subgraph and not or_subgraph:
        raise GraphError(
            f"subgraph {operator.name!r} is no operator; its operators are in the graph, and have names such as "
            f"'{operator.name}.camera'"
        )
    if not isinstance(operator, Connectable):
        hint = ""
        if isinstance(operator, type) or callable(operator):
            hint = f"; create one first: {getattr(operator, '__name__', operator)}(self, name=...)"
        raise GraphError(f"{operator!r} is not an operator{hint}")
    if getattr(operator._headrace, "spec", None) is None:
        raise GraphError(f"{type(operator).__name__}.__init__ must call super().__init__(fragment, ...)")
    operator._headrace.check_attributes()
    if operator.fragment is not fragment:
        where = getattr(operator.fragment, "name", None)
        raise GraphError(
            f"operator {operator.name!r} belongs to {where!r} and cannot be added to {fragment.name!r}, which "
            "is another fragment; create it in this compose(), with self as the first argument"
        )


_FAULT = IOSpec.QueuePolicy.FAULT
_LATEST = IOSpec.QueuePolicy.LATEST


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """One queue of an input.

    Attributes
    ----------
    flows
        The flows into it.
    size
        The number of messages it holds.
    least
        The number of messages that the operator waits for, unless it has another condition.
    policy
        What it does when it is full.
    """

    flows: tuple[Flow, ...]
    size: int
    least: int
    policy: IOSpec.QueuePolicy


def queues_of(operator: Operator, port: IOSpec) -> list[QueueSpec]:
    """Return the queues of an input; raise GraphError if the declarations of a queue disagree."""
    flows = [flow for flow in operator._headrace.incoming if flow.input == port.name]
    if port.is_receivers:
        return [_queue(operator, port, (flow,), 1) for flow in flows]
    return [_queue(operator, port, tuple(flows), port.size or max(len(flows), 1))]


def _queue(operator: Operator, port: IOSpec, flows: tuple[Flow, ...], least: int) -> QueueSpec:
    where = f"input {port.name!r} of operator {operator.name!r}"
    policy, size = _policy(where, port, flows), max(_size(where, flows, least), port.capacity)
    if policy is _LATEST:
        if size != 1:
            raise GraphError(
                f"{where} has the policy LATEST, which keeps one message, and room for {size}; leave out the size"
            )
        if operator.spec.is_joined:
            raise GraphError(
                f"{where} has the policy LATEST and is joined with others: a join takes each message once; "
                "use the rule reuse_last() instead"
            )
        least = 0  # it waits for none
    return QueueSpec(flows, size, least, policy)


def _size(where: str, flows: tuple[Flow, ...], least: int) -> int:
    sizes = {flow: flow.size for flow in flows if flow.size is not None}
    if not sizes:
        return least
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{flow} with size={size}" for flow, size in sizes.items())
        raise GraphError(f"the flows into {where} share one queue and disagree on its size: {listed}")
    (flow, size) = next(iter(sizes.items()))
    if size < least:
        raise GraphError(
            f"{flow} was connected with size={size}, and {where} takes {least} messages at once; "
            f"give size={least} or more"
        )
    return size


def _policy(where: str, port: IOSpec, flows: tuple[Flow, ...]) -> IOSpec.QueuePolicy:
    if port.policy is not None:
        for flow in flows:
            if flow.policy is not None and flow.policy is not port.policy:
                raise GraphError(
                    f"{flow} was connected with policy={flow.policy.name}, and {where} is declared with "
                    f"policy={port.policy.name}; leave one of them out, or change the input's with "
                    f"queue_policy({port.name!r}, policy=...)"
                )
        return port.policy
    chosen = [flow.policy or flow.source.spec.every_output[flow.output].policy or _FAULT for flow in flows]
    if len(set(chosen)) > 1:
        listed = ", ".join(f"{flow} has {policy.name}" for flow, policy in zip(flows, chosen, strict=True))
        flows[0].target.fragment._headrace.report(
            f"the flows into {where} share one queue and have different policies: {listed}; declare the "
            "input with policy=..., or with size=IOSpec.ANY_SIZE, which gives each flow a queue of its own"
        )
    return next((policy for policy in chosen if policy is not _FAULT), _FAULT)


def check_group(where: str, operators: Sequence[Operator]) -> None:
    """Raise GraphError if operators are not connected, form a cycle, or messages leave them and come back."""
    members = set(operators)
    reached = reachable(operators[0], lambda one: [*operators_behind(one), *operators_before(one)], members)
    apart = [operator.name for operator in operators if operator not in reached]
    if apart:
        raise GraphError(
            f"{where}: {choices(apart)} and {operators[0].name!r} are not connected; a segment is a set of "
            "connected operators, so make two"
        )
    for operator in operators:
        for flow in operator._headrace.outgoing:
            if flow.target in members:
                if operator in reachable(flow.target, operators_behind, members):
                    raise GraphError(
                        f"{where}: its operators form a cycle ({flow}); a segment has none, so leave one of them "
                        "out"
                    )
                continue
            for other in reachable(flow.target, operators_behind):
                back = next((each for each in other._headrace.outgoing if each.target in members), None)
                if other not in members and back is not None:
                    raise GraphError(
                        f"{where}: messages leave it by {flow} and come back by {back}; add the operators in "
                        "between, or make two segments"
                    )


def operators_before(operator: Operator) -> list[Operator]:
    """Return the operators at the beginnings of the flows to an operator."""
    return [flow.source for flow in operator._headrace.incoming]


def operators_behind(operator: Operator) -> list[Operator]:
    """Return the operators at the ends of the flows from an operator."""
    return [flow.target for flow in operator._headrace.outgoing]
