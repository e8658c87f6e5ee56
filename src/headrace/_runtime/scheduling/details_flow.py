"""DetailsFlow: how metadata and timestamps pass operators that do not compute.

A frame that is replayed differs from others in its metadata and its timestamp. So the order is noted in which each
operator received and emitted in a compute (`direct_compute`). The same steps are gone through again with metadata
and timestamps alone: each operator merges what it received by its own policy, and emits what it has by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace._runtime.messages.envelope import Details
from headrace.core.calls import NO_CALLS, Calls
from headrace.core.metadata import MetadataDictionary

if TYPE_CHECKING:
    from headrace._runtime.scheduling.node import Node

    Where: TypeAlias = tuple[Node, str]


class Step(NamedTuple):
    """A message that an operator received or emitted at one of its ports."""

    is_received: bool
    port: str


class DetailsFlow:
    """The steps of the operators of a group, in their order.

    Parameters
    ----------
    inner
        The inputs inside the group that the messages of each output go to.
    """

    def __init__(self, inner: dict[Where, list[Where]]) -> None:
        self.steps: list[tuple[Node, list[Step]]] = []
        self._inner = inner

    @property
    def is_chain(self) -> bool:
        """Whether every operator receives one message before it emits one, and all pass metadata on unchanged."""
        return all(
            [step.is_received for step in steps] in ([True, False], [True])
            and node.operator.is_metadata_enabled
            for node, steps in self.steps
        )

    def carry(self, entered: dict[Where, Details]) -> dict[Where, Details]:
        """Return what the messages of every output carry, for what the messages at the inputs carry."""
        waiting = dict(entered)
        emitted: dict[Where, Details] = {}
        for node, steps in self.steps:
            operator = node.operator
            metadata = MetadataDictionary(operator.metadata_policy, operator.name)
            metadata.is_joined = operator.metadata.is_joined
            timestamp: int | None = None
            calls: Calls = NO_CALLS
            for is_received, port in steps:
                if not is_received:
                    if timestamp is not None or metadata or calls:
                        details = Details(timestamp, dict(metadata) if metadata else None, calls)
                        emitted[node, port] = details
                        waiting.update(dict.fromkeys(self._inner.get((node, port), ()), details))
                    continue
                received = waiting.get((node, port))
                if received is None:
                    continue
                if received.metadata is not None and operator.is_metadata_enabled:
                    metadata.receive(port, received.metadata)
                latest = received.acq_timestamp
                if latest is not None and (timestamp is None or latest < timestamp):
                    timestamp = latest
                if received.calls:
                    calls = {**calls, **received.calls}
        return emitted
