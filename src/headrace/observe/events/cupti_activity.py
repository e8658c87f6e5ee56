"""CuptiActivity: the kernels and copies of a run, from CUPTI, where its package (``cupti-python``) is installed.

CUPTI records every kernel and every copy with its times. Which compute launched one is known because each compute
pushes an id of its own (an external correlation id) for as long as it runs. CUPTI connects such an id only with
records of API calls, which are therefore collected too, and thrown away. The ids have a kind of their own, which
other tools leave alone: PyTorch's profiler uses the first two. CUPTI has its own clock; both clocks are read at the
same moment, again every few seconds.

Records are read as soon as CUPTI delivers them: they lie in its buffers, which it uses again.

One tool at a time can use CUPTI in a process, so an observation has one of these for all its watchers. If another
tool uses it, or if the driver refuses, no kernels are known, and `CuptiActivity.state` says why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.gpu.backend import expected

if TYPE_CHECKING:
    from headrace.observe.events.records import OperatorInfo

_log = logging.getLogger("headrace.observe")


@dataclass(eq=False, slots=True)
class Activity:
    """A kernel or a copy on the device.

    Attributes
    ----------
    stream
        CUPTI's number of the stream.
    operator
        The index of the operator that launched it, if one did.
    """

    name: str
    device: int
    stream: int
    started: int
    ended: int
    arguments: dict[str, Any]
    operator: int | None = None
    compute: int = -1


class CuptiActivity:
    """Collects kernels and copies while a run goes on.

    Attributes
    ----------
    state
        What is collected, or why nothing is, in one line.
    """

    def __init__(self) -> None:
        self.state = "not shown"
        self._cupti: Any = None
        self._kinds: list[Any] = []
        self._lock = threading.Lock()
        # The work that CUPTI has delivered, on a thread of its own, with the correlation id of the call.
        self._delivered: list[tuple[int, Activity]] = []
        # The latest ids that were pushed, by the correlation id of the call.
        self._pushed: OrderedDict[int, int] = OrderedDict()
        self._offset = self._aligned_at = 0

    def start(self) -> bool:
        """Begin to collect; return whether that is possible."""
        device = expected()  # a program that uses none is not given one because it is traced
        if not device.runs_cuda:
            self.state = f"not shown: CUPTI traces CUDA devices, and the device is {device.name!r}"
            return False
        try:
            self._cupti = import_module("cupti.cupti")
        except Exception as error:
            is_missing = isinstance(error, ModuleNotFoundError) and error.name in ("cupti", "cupti.cupti")
            # Otherwise it is installed, and misses a library or a package.
            self.state = (
                "not shown: the package cupti-python is not installed"
                if is_missing
                else f"not shown: cupti-python cannot be imported: {error}"
            )
            return False
        try:
            self._cupti.activity_register_callbacks(_request, self._deliver)
            for name in _KINDS:
                kind = getattr(self._cupti.ActivityKind, name)
                self._cupti.activity_enable(kind)
                self._kinds.append(kind)
            self._align()
        except Exception as error:
            self.state = f"not shown: CUPTI refused: {error}"
            _log.warning("no times of kernels: CUPTI refused: %s", error)
            self.stop()
            return False
        self.state = SHOWN
        return True

    def around(
        self, operator: OperatorInfo, number: Callable[[], int], compute: Callable[..., None]
    ) -> Callable[..., None]:
        """Return a compute whose kernels are known to be its own; `number` returns which compute it is."""
        cupti = self._cupti
        kind = cupti.ExternalCorrelationKind.CUSTOM2
        push, pop = cupti.activity_push_external_correlation_id, cupti.activity_pop_external_correlation_id

        def correlated(op_input: Any, op_output: Any, context: Any) -> None:
            push(kind, number() * _OPERATORS + operator.index)
            try:
                compute(op_input, op_output, context)
            finally:
                pop(kind)

        return correlated

    def take(self, is_last: bool = False) -> list[Activity]:
        """Return the work that is complete and was not returned yet; all of it if it `is_last`."""
        try:
            self._cupti.activity_flush_all(1 if is_last else 0)
            if time.perf_counter_ns() - self._aligned_at > _ALIGN:
                self._align()
        except Exception as error:
            self.state = f"shown in part: CUPTI failed: {error}"
            return []
        with self._lock:
            delivered, self._delivered = self._delivered, []
            for correlation, activity in delivered:
                activity.started += self._offset
                activity.ended += self._offset
                pushed = self._pushed.get(correlation)  # the ids came with the work or before it
                if pushed is not None:
                    activity.compute, activity.operator = divmod(pushed, _OPERATORS)
            while len(self._pushed) > _MOST:
                self._pushed.popitem(last=False)
        return sorted((activity for _, activity in delivered), key=lambda activity: activity.started)

    def stop(self) -> None:
        """Collect no more."""
        for kind in self._kinds:
            try:
                self._cupti.activity_disable(kind)
            except Exception as error:
                _log.debug("CUPTI could not be stopped: %s", error)
        self._kinds = []

    def _deliver(self, records: list[Any]) -> None:
        """Read records that CUPTI delivers, on any thread."""
        kinds = self._cupti.ActivityKind
        own = self._cupti.ExternalCorrelationKind.CUSTOM2
        with self._lock:
            for record in records:
                kind = record.kind
                if kind == kinds.EXTERNAL_CORRELATION:
                    if record.external_kind == own:
                        self._pushed[record.correlation_id] = record.external_id
                elif kind not in (kinds.DRIVER, kinds.RUNTIME):
                    self._delivered.append((record.correlation_id, self._activity(record)))
            if len(self._delivered) > _MOST:
                self.state = "shown in part: there were more than could be written"
                del self._delivered[:-_MOST]

    def _activity(self, record: Any) -> Activity:
        """Return the work of a record, by CUPTI's clock."""
        kinds = self._cupti.ActivityKind
        arguments: dict[str, Any]
        if record.kind in (kinds.MEMCPY, kinds.MEMSET):
            name, arguments = "fill", {"bytes": int(record.bytes)}
            if record.kind == kinds.MEMCPY:
                name = f"copy {self._cupti.ActivityMemcpyKind(record.copy_kind).name}"
        else:
            name = str(record.name)
            arguments = {
                "grid": [record.grid_x, record.grid_y, record.grid_z],
                "block": [record.block_x, record.block_y, record.block_z],
                "registers": record.registers_per_thread,
            }
        times = int(record.start), int(record.end)
        return Activity(name, int(record.device_id), int(record.stream_id), *times, arguments)

    def _align(self) -> None:
        """Read both clocks at the same moment; the tightest of several tries counts."""
        tries = []
        for _ in range(_TRIES):
            before = time.perf_counter_ns()
            there = self._cupti.get_timestamp()
            after = time.perf_counter_ns()
            tries.append((after - before, (before + after) // 2 - there))
        self._offset = min(tries)[1]
        self._aligned_at = time.perf_counter_ns()


def _request() -> tuple[int, int]:
    """Return the size of a buffer and the most records in it; 0 means as many as fit."""
    return 1 << 20, 0


SHOWN = "shown"
"""The state in which all kernels are known."""
_KINDS = ("DRIVER", "RUNTIME", "EXTERNAL_CORRELATION", "CONCURRENT_KERNEL", "MEMCPY", "MEMSET")
_OPERATORS = 1 << 16
_MOST = 1 << 18
_TRIES = 8
_ALIGN = 2_000_000_000  # nanoseconds
