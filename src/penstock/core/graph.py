"""Graph: the operators of a fragment and the flows between their ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.core.errors import GraphError, choices
from penstock.core.ports import IOSpec

if TYPE_CHECKING:
    from penstock.core.operator import Operator

__all__ = ["Flow", "Graph", "PortPairs"]

PortPairs: TypeAlias = Iterable[tuple[str, str]] | Mapping[str, str | Iterable[str]]
"""Which output goes to which input: pairs, or a dict from an output to one input or several."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One connection from an output port to an input port, and what was said of the queue behind it."""

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
        """Give the operator with a name."""
        try:
            return self._names[name]
        except KeyError:
            raise GraphError(f"there is no operator {name!r}; there are {choices(self._names)}") from None

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

    def connect(
        self,
        source: Operator,
        target: Operator,
        port_pairs: PortPairs | None = None,
        size: int | None = None,
        policy: IOSpec.QueuePolicy | None = None,
    ) -> None:
        """Add the flows from `source` to `target` that `port_pairs` names, or the only possible one."""
        outputs, inputs = source.spec.outputs, target.spec.inputs
        where = f"add_flow({source.name!r}, {target.name!r})"
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise GraphError(f"{where}: size must be a positive int, not {size!r}")
        if policy is not None and not isinstance(policy, IOSpec.QueuePolicy):
            raise GraphError(
                f"{where}: policy must be an IOSpec.QueuePolicy (POP, REJECT or FAULT), not {policy!r}"
            )
        for output, input_ in _pairs(port_pairs, where) or (
            (_only(outputs, "output", source.name, where), _only(inputs, "input", target.name, where)),
        ):
            if output not in outputs:
                raise GraphError(
                    f"{where}: operator {source.name!r} has no output {output!r}; it has {choices(outputs)}"
                )
            if input_ not in inputs:
                raise GraphError(
                    f"{where}: operator {target.name!r} has no input {input_!r}; it has {choices(inputs)}"
                )
            flow = Flow(source, output, target, input_, size, policy)
            if flow in self.flows[-1:] or any(flow == known for known in source._outgoing):
                raise GraphError(f"{where}: {flow} is connected already")
            self.add(source)
            self.add(target)
            self.flows.append(flow)
            source._outgoing.append(flow)
            target._incoming.append(flow)


def _pairs(port_pairs: Any, where: str) -> list[tuple[str, str]]:
    if port_pairs is None:
        return []
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
            raise GraphError(
                f"{where}: a port map is a set of (output, input) pairs such as {{('out', 'in')}}, or a dict "
                f"such as {{'out': 'in'}}; {pair!r} is not such a pair"
            )
        result.append(pair)
    # A set has no order of its own; sorted, the same program makes the same graph every time.
    return sorted(result) if isinstance(port_pairs, (set, frozenset)) else result


def _only(ports: Mapping[str, Any], kind: str, name: str, where: str) -> str:
    if len(ports) == 1:
        return next(iter(ports))
    if not ports:
        raise GraphError(f"{where}: operator {name!r} has no {kind}")
    raise GraphError(
        f"{where}: operator {name!r} has several {kind}s ({choices(ports)}), so the port map must be given, "
        f"such as {{('{'out' if kind == 'input' else next(iter(ports))}', "
        f"'{next(iter(ports)) if kind == 'input' else 'in'}')}}"
    )
