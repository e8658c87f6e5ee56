"""What fragments and operators of the SDK answer about their graph and their run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.compat.holoscan.core.subgraph import execution_end
from headrace.compat.holoscan.flow_graphs import FragmentFlowGraphImpl, OperatorFlowGraphImpl
from headrace.compat.holoscan.lenience import tell
from headrace.core.errors import PortError
from headrace.core.graph import check_member, port_pairs_of
from headrace.core.wiring import owner_of


class ComposedFragment:
    """Answers of a fragment: names without that of the fragment, None for what is not there."""

    _graph_type: ClassVar[Any] = OperatorFlowGraphImpl
    _fragment_graph_type: ClassVar[Any] = FragmentFlowGraphImpl
    # Of headrace's fragment.
    name: str
    graph: Any
    _root: Any
    _whole: Any

    @property
    def _is_part(self) -> bool:
        return self._whole is not self

    def _qualified(self, name: str) -> str:
        # The names of a run are unique, so a name that another fragment has as well is told apart.
        if self._is_part and any(name in part.graph.names for part in self._whole.fragment_graph.fragments):
            return f"{self.name}.{name}"
        return name

    def _full_name(self, name: str) -> str:
        return f"{self.name}.{name.removeprefix(f'{self.name}.')}" if self._is_part else name

    def _find_operator(self, name: str) -> Any:
        names = self.graph.names
        return names.get(name) or names.get(f"{self.name}.{name}")

    def stop_execution(self, op_name: str = "") -> None:
        """Stop one operator, or all."""
        operator = self._find_operator(op_name) if op_name else None
        if operator is not None:
            operator.stop_execution()
        elif op_name:
            tell(f"stop_execution({op_name!r}) stops nothing", f"there is no operator {op_name!r}")
        else:
            super().stop_execution()  # type: ignore[misc]

    def _check_place(self, end: Any) -> None:
        """Let the operators of a subgraph be connected outside of it."""
        check_member(self._root, owner_of(end), or_subgraph=True)

    @property
    def subgraphs(self) -> list[Any]:
        """The subgraphs that were made in it."""
        return [each for each in self.graph.subgraphs.values() if each._place is self]

    def add_subgraph(self, subgraph: Any) -> None:
        """Do nothing: a subgraph is a part of where it was made."""
        self._check_place(subgraph)


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
