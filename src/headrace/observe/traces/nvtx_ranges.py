"""NvtxRanges: names for Nsight Systems, through the package ``nvtx``.

Each compute, and each replay of a captured segment, is a range in the domain ``headrace``, on the thread that
computes. Its message is the name of the operator or the segment, its payload the number of the compute. The number
is no part of the message because NVTX keeps every message that it has seen. If no tool is attached, computes run as
they are.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.installation import installing
from headrace.observe.events.watchers import Watcher

if TYPE_CHECKING:
    from headrace.observe.events.records import OperatorInfo, RunInfo, SegmentInfo

_log = logging.getLogger("headrace.observe")


class NvtxRanges(Watcher):
    """Puts an NVTX range around each compute of the runs that it watches.

    Without the package ``nvtx`` it only logs a warning.
    """

    wants_gpu_times = False
    period = 1.0

    def __init__(self) -> None:
        self._domain: Any = None

    def begin(self, run: RunInfo) -> None:
        """Open the domain."""
        try:
            self._domain = import_module("nvtx").get_domain("headrace")
        except ImportError:
            self._domain = None
            _log.warning("no NVTX ranges: the package nvtx is not installed (%s)", installing("nvtx"))

    def around(self, operator: OperatorInfo, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute in a range; the compute itself if there is no tool to see it."""
        return self._ranged(operator.name, compute)

    def around_replays(self, segment: SegmentInfo, replay: Callable[..., None]) -> Callable[..., None]:
        """Return a replay in a range with the name of the segment."""
        return self._ranged(segment.name, replay)

    def _ranged(self, name: str, compute: Callable[..., None]) -> Callable[..., None]:
        domain = self._domain
        attributes = None if domain is None else domain.get_event_attributes(message=name, payload=0)
        if attributes is None:
            return compute
        push, pop = domain.push_range, domain.pop_range
        numbers = itertools.count()

        def ranged(*arguments: Any) -> None:
            attributes.payload = next(numbers)
            push(attributes)
            try:
                compute(*arguments)
            finally:
                pop()

        return ranged
