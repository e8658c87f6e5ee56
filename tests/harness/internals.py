"""What tests look at inside a running operator: a rename in the runtime is followed here.

`tests/interleavings/bindings.py` is the like for the schedulers. Tests of one file of the runtime may import it.
"""

from __future__ import annotations

from typing import Any


def node_of(operator: Any) -> Any:
    """Return what the runtime holds of an operator."""
    node = operator._headrace.node
    assert node is not None
    return node


def input_queues(operator: Any, port: str | None = None) -> list[Any]:
    """Return the queues of an input, or of all inputs."""
    node = node_of(operator)
    return list(node.inputs if port is None else node.input_queues[port])


def output_queues(operator: Any, port: str) -> list[Any]:
    """Return the queues behind an output."""
    return list(node_of(operator).output_queues[port])


def free_places(operator: Any, port: str) -> int:
    """Return how many messages an output has room for."""
    return int(node_of(operator).transmitter(port).free)


def has_standby(operator: Any) -> bool:
    """Return whether a worker stands by while the operator computes."""
    return node_of(operator).ready_queue.standby is not None


def arrived_on(operator: Any, port: str) -> int:
    """Return the handle of the stream that came with what was received last at an input."""
    return int(node_of(operator).input._by_name[port].item.fences.stream.handle)
