"""What fragments and operators of the SDK answer about their graph and their run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.core import PortError
from headrace.vocabulary import InnerFragment, check_member, owner_of, port_pairs_of
from headrace_holoscan.core.subgraph import execution_end
from headrace_holoscan.flow_graphs import OperatorFlowGraphImpl
from headrace_holoscan.lenience import tell


class InnerComposedFragment(InnerFragment):
    """Names without that of the fragment."""

    graph_type: ClassVar[Any] = OperatorFlowGraphImpl
    fragment: Any

    @property
    def is_part(self) -> bool:
        """Whether it is a part of an application."""
        return self.whole is not self.fragment

    def qualified(self, name: str) -> str:
        """Return the name that an operator of this name has in the whole fragment."""
        # The names of a run are unique, so a name that another fragment has as well is told apart.
        whole: Any = self.whole
        if self.is_part and any(name in part.graph.names for part in whole.fragment_graph.fragments):
            return f"{self.fragment.name}.{name}"
        return name

    def full_name(self, name: str) -> str:
        """Return the name of an operator with that of its fragment, if that is a part of an application."""
        return f"{self.fragment.name}.{name.removeprefix(f'{self.fragment.name}.')}" if self.is_part else name

    def find_operator(self, name: str) -> Any:
        """Return the operator that its operators mean by a name."""
        names = self.fragment.graph.names
        return names.get(name) or names.get(f"{self.fragment.name}.{name}")

    def check_place(self, end: Any) -> None:
        """Let the operators of a subgraph be connected outside of it."""
        check_member(self.root, owner_of(end), or_subgraph=True)


class ComposedFragment:
    """Answers of a fragment: names without that of the fragment, None for what is not there."""

    # Of headrace's fragment.
    name: str
    graph: Any
    _headrace: Any

    def stop_execution(self, op_name: str = "") -> None:
        """Stop one operator, or all."""
        operator = self._headrace.find_operator(op_name) if op_name else None
        if operator is not None:
            operator.stop_execution()
        elif op_name:
            tell(f"stop_execution({op_name!r}) stops nothing", f"there is no operator {op_name!r}")
        else:
            super().stop_execution()  # type: ignore[misc]

    @property
    def subgraphs(self) -> list[Any]:
        """The subgraphs that were made in it."""
        return [each for each in self.graph.subgraphs.values() if each._headrace.place is self]

    def add_subgraph(self, subgraph: Any) -> None:
        """Do nothing: a subgraph is a part of where it was made."""
        self._headrace.check_place(subgraph)


class ComposedOperator:
    """Answers of an operator about its ports: None for an unknown one, and before the run."""

    spec: Any

    def receiver(self, port_name: str) -> Any:
        """Return a view of an input: `size`, `back_size`, `capacity`."""
        return self._view("receiver", port_name)

    def transmitter(self, port_name: str) -> Any:
        """Return a view of an output: `size`, `back_size`, `capacity`."""
        view = self._view("transmitter", port_name)
        return view and Transmitter(port_name, max(self.spec.every_output[port_name].size, 1), view.queues)

    def _view(self, call: str, port_name: str) -> Any:
        try:
            return getattr(super(), call)(port_name)
        except (PortError, RuntimeError):
            return None


@dataclass(frozen=True)
class Transmitter:
    """An output of an operator, from which messages are gone after the compute that emitted them."""

    name: str
    capacity: int
    queues: tuple[Any, ...]
    size: int = 0

    @property
    def back_size(self) -> int:
        """The number of messages of this compute; 0 where earlier ones still wait for their receiver."""
        new = [len(queue) for queue in self.queues if queue.state is not None and not queue.state.available]
        return max(new, default=0)


def connect(add_flow: Any, source: Any, target: Any, pairs: Any, *rest: Any, **options: Any) -> None:
    """Call `add_flow`, with the operators behind the execution ports of subgraphs."""
    named = port_pairs_of(pairs, "add_flow()") if isinstance(pairs, (set, frozenset, dict, list)) else []
    if not named:
        add_flow(execution_end(source, "output"), execution_end(target, "input"), pairs, *rest, **options)
        return
    for output, input_ in named:
        ends = execution_end(source, "output", output), execution_end(target, "input", input_)
        if ends == (source, target):
            add_flow(source, target, {(output, input_)}, *rest, **options)
        else:
            add_flow(*ends, None, *rest, **options)
