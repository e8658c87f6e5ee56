"""OperatorSpans: where the work of each operator begins and ends in a recorded graph.

Spans are noted while the graph is recorded, and only if somebody wants to know how long each operator works on the
device. The graph stays as it is: another one with records of events at these points is made of the same recording.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.gpu.capture import captured_frontier

if TYPE_CHECKING:
    from headrace._runtime import Node

_log = logging.getLogger("headrace.observe")


class OperatorSpans:
    """Where the work of each operator begins and ends in a recorded graph.

    Work begins when that of the operators before it has ended, or with the graph. So one point serves as the end of
    an operator and as the beginning of those behind it.

    Parameters
    ----------
    inner
        The inputs inside the segment that the messages of each output go to.

    Attributes
    ----------
    points
        The nodes of the graph that come before each point, by their handles.
    spans
        For each operator, the numbers of the points at which it begins and ends.
    is_complete
        Whether all points are known; the driver may refuse to tell.
    """

    def __init__(self, inner: Mapping[tuple[Node, str], Iterable[tuple[Node, str]]]) -> None:
        self.points: list[dict[int, Any]] = []
        self.spans: dict[Node, tuple[int, int]] = {}
        self.is_complete = True
        self._sources: dict[Node, dict[Node, None]] = {}
        for (source, _), targets in inner.items():
            for target, _ in targets:
                self._sources.setdefault(target, {})[source] = None

    def begin(self, origin: gpu.StreamHandle) -> None:
        """Note the first point, at which nothing of the operators has been recorded yet."""
        self._add([origin])

    def end(self, node: Node, streams: Iterable[gpu.StreamHandle]) -> None:
        """Note the end of an operator, whose work is on these streams."""
        before = [self.spans[source][1] for source in self._sources.get(node, ())]
        begin = before[0] if before else 0
        if len(before) > 1 and self.is_complete:
            begin = len(self.points)
            self.points.append({handle: each for at in before for handle, each in self.points[at].items()})
        self.spans[node] = begin, self._add(streams)

    def _add(self, streams: Iterable[gpu.StreamHandle]) -> int:
        """Add the point that streams have reached, and return its number."""
        if self.is_complete:
            try:
                self.points.append(
                    {handle: each for one in streams for handle, each in captured_frontier(one).items()}
                )
            except Exception:
                _log.debug("the operators of a segment cannot be timed", exc_info=True)
                self.is_complete = False
        return len(self.points) - 1
