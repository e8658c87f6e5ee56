"""Graph: the operators of a fragment and the flows between their ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.core.errors import GraphError, absent, choices
from headrace.core.ports import IOSpec

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator

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

    def __str__(self) -> str:
        return f"{self.source.name}.{self.output} -> {self.target.name}.{self.input}"


class Graph:
    """The operators in the order they were added, and the flows between them."""

    __slots__ = ("_names", "flows", "operators")

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.flows: list[Flow] = []
        self._names: dict[str, Operator] = {}

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def __contains__(self, operator: object) -> bool:
        name = getattr(operator, "name", None)
        return name in self._names and self._names[name] is operator

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
        self._names[operator.name] = operator
        self.operators.append(operator)

    def rebuild(self, operators: Iterable[Operator], flows: Iterable[Flow]) -> None:
        """Replace all operators and flows."""
        operators, self.flows = list(operators), list(flows)
        self.operators, self._names = [], {}
        for operator in operators:
            self.add(operator)
            operator._outgoing = [flow for flow in self.flows if flow.source is operator]
            operator._incoming = [flow for flow in self.flows if flow.target is operator]

    def connect(
        self,
        source: Operator,
        target: Operator,
        port_pairs: PortPairs | None = None,
        size: int | None = None,
        policy: IOSpec.QueuePolicy | None = None,
    ) -> None:
        """Add the flows from `source` to `target` that `port_pairs` lists, or the only possible flow."""
        where = f"add_flow({source.name!r}, {target.name!r})"
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise GraphError(f"{where}: size must be a positive int, not {size!r}")
        if policy is not None and not isinstance(policy, IOSpec.QueuePolicy):
            raise GraphError(
                f"{where}: policy must be an IOSpec.QueuePolicy (POP, REJECT or FAULT), not {policy!r}"
            )
        outputs, inputs = source.spec.outputs, target.spec.inputs
        pair = tuple(next(iter(side), "...") for side in (outputs, inputs))
        for output, input_ in _pairs(port_pairs, where) or (("", ""),):
            flow = Flow(
                source,
                _port(source, outputs, "output", output, where, pair),
                target,
                _port(target, inputs, "input", input_, where, pair),
                size,
                policy,
            )
            if flow in source._outgoing:
                raise GraphError(f"{where}: {flow} is connected already")
            self.add(source)
            self.add(target)
            self.flows.append(flow)
            source._outgoing.append(flow)
            target._incoming.append(flow)

    def disconnect(self, source: Operator, target: Operator, port_pairs: PortPairs | None = None) -> None:
        """Remove the flows from `source` to `target` that `port_pairs` lists, or all."""
        where = f"remove_flow({source.name!r}, {target.name!r})"
        flows = [flow for flow in source._outgoing if flow.target is target]
        if not flows:
            raise GraphError(f"{where}: they are not connected")
        for pair in _pairs(port_pairs, where):
            if pair not in [(flow.output, flow.input) for flow in flows]:
                listed = ", ".join(map(str, flows))
                raise GraphError(f"{where}: {pair[0]!r} -> {pair[1]!r} is not connected; there are {listed}")
        wanted = _pairs(port_pairs, where)
        removed = [flow for flow in flows if not wanted or (flow.output, flow.input) in wanted]
        self.rebuild(self.operators, [flow for flow in self.flows if flow not in removed])


def _pairs(port_pairs: Any, where: str) -> list[tuple[str, str]]:
    if port_pairs is None:
        return []
    if not isinstance(port_pairs, Iterable):
        raise GraphError(
            f"{where} connects two operators, and the third argument is a port map such as {{('out', 'in')}}, not "
            f"{port_pairs!r}; call it once for each flow"
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


def _port(
    operator: Operator, ports: Mapping[str, Any], kind: str, name: str, where: str, pair: tuple[str, ...]
) -> str:
    """Return the name of a port; as in receive and emit, it may be omitted if there is one port."""
    if name in ports:
        return name
    if name:
        raise GraphError(f"{where}: {absent(f'operator {operator.name!r}', kind, name, ports)}")
    if len(ports) == 1:
        return next(iter(ports))
    if ports:
        raise GraphError(
            f"{where}: operator {operator.name!r} has several {kind}s ({choices(ports)}), so the port map must "
            f"name one, such as {{{pair!r}}}"
        )
    right = f"setup declares one by spec.{kind}('name')"
    if operator.is_function:
        right = "an argument of the function is one" if kind == "input" else "@op(outputs=...) declares them"
    raise GraphError(
        f"{where}: operator {operator.name!r} has no {kind} ({right}), and a flow goes from an output of the first "
        "operator to an input of the second"
    )


def check_member(fragment: Composition, operator: Any) -> None:
    """Raise if `operator` is not an operator of `fragment`."""
    from headrace.core.operator import Operator

    if not isinstance(operator, Operator):
        hint = ""
        if isinstance(operator, type) or callable(operator):
            hint = f"; create one first: {getattr(operator, '__name__', operator)}(self, name=...)"
        raise GraphError(f"{operator!r} is not an operator{hint}")
    if not hasattr(operator, "spec"):
        raise GraphError(f"{type(operator).__name__}.__init__ must call super().__init__(fragment, ...)")
    if operator.fragment is not fragment:
        raise GraphError(
            f"operator {operator.name!r} belongs to {operator.fragment.name!r} and cannot be added to "
            f"{fragment.name!r}, which is another fragment; create it in this compose(), with self as the first "
            "argument"
        )
