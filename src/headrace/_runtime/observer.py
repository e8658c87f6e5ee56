"""Observer: the seam through which tracking, traces and loggers watch a run.

They stand above the runtime, which does not import them. No code calls isinstance with these Protocols: they are
imported for annotations only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headrace import gpu
    from headrace.core.outcome import Outcome


class Launches(Protocol):
    """What launches a recorded graph."""

    def launch(self, addresses: list[int], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""

    def close(self) -> None:
        """Release the graph; the device has finished."""


class Replays(Protocol):
    """What watches the replays of operators that are recorded together."""

    def new_spans(self, inner: Any) -> Any:
        """Return what notes where the work of each operator begins and ends in a graph; None if nobody wants it.

        `inner` has the inputs inside the segment that the messages of each output go to.
        """

    def around(self, replay: Callable[..., None]) -> Callable[..., None]:
        """Return what to call in place of `replay`, with the same arguments."""

    def around_launches(self, launches: Any, spans: Any, managed: Any) -> Launches:
        """Return what launches a recorded graph in place of `launches`, on a managed stream.

        `spans` tells where the work of each operator begins and ends in the graph; None if nobody wanted to know.
        """


class Observer(Protocol):
    """What watches a run: the only way in which tracking, traces and loggers take part in it.

    Attributes
    ----------
    sees_messages
        Whether it is shown messages, which need fences then, whoever receives them.
    """

    sees_messages: bool

    def make_queue(self, consumer: Any, port: str, limit: int, policy: Any) -> Any:
        """Return a queue in place of the runtime's own, with the same arguments."""

    def attach(self, engine: Any) -> None:
        """Prepare to watch a run, after its nodes and queues were created and before anything is started."""

    def follow(self, changed: Collection[Any]) -> None:
        """Watch a graph that has changed, whose new queues `make_queue` made (`Engine.followers`)."""

    def around(self, node: Any, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute to run in place of `compute`."""

    def uses_stream(self, node: Any, managed: Any) -> None:
        """Note that a node will submit work to a stream; called once for each, in its compute."""

    def watch_replays(self, captured: Any) -> Replays:
        """Return what watches the replays of operators that are recorded together, which do not compute then."""

    def finish(self) -> None:
        """Complete what was watched: the device is idle, and the streams still exist."""

    def close(self, outcome: Outcome | None) -> None:
        """End: the run is over; `outcome` is None if there is none."""
