"""TraceShares: how busy operators, queues, threads and slices were, from the events of a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from headrace.observe.figures.coverage import Coverage
from headrace.observe.figures.statistics import (
    OperatorStatistics,
    QueueStatistics,
    SliceStatistics,
    Statistics,
    WorkersStatistics,
    saturated,
)
from headrace.observe.traces.trace_tracks import HOST, QUEUES

_MOST = 1000  # operators, queues, threads or slices
_BATCH = 4096  # intervals that are joined at once
_SHOWN = 5  # shares of one kind in the text
_NOTABLE = 0.005  # a share that is shown as more than 0%


@dataclass(slots=True)
class Shares:
    """How busy everything in a trace was: shares of the time from its first compute to the end of its last work.

    Attributes
    ----------
    operators, gpu
        By operator: the share of the time in which it computed on the host, and in which the device worked for it.
    queues
        By queue: the share of its places that were taken, on average.
    threads
        By thread: the share of the time in which it computed.
    slices
        By slice of a device: the share of the time in which at least one operator's work was on it.
    saturated
        What was busy at least 90 % of the time, in words, with the operators whose work that was.
    """

    operators: dict[str, float] = field(default_factory=dict)
    gpu: dict[str, float] = field(default_factory=dict)
    queues: dict[str, float] = field(default_factory=dict)
    threads: dict[str, float] = field(default_factory=dict)
    slices: dict[str, float] = field(default_factory=dict)
    saturated: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the largest shares of each kind, a line for each kind, and what is saturated."""
        kinds = {
            "busy on the host": self.operators,
            "busy on the GPU": self.gpu,
            "busy threads": self.threads,
            "busy slices": self.slices,
            "filled queues": self.queues,
        }
        lines = []
        for kind, shares in kinds.items():
            notable = sorted(
                ((share, name) for name, share in shares.items() if share >= _NOTABLE),
                key=lambda each: -each[0],
            )
            texts = [f"{name} {share:.0%}" for share, name in notable[:_SHOWN]]
            if len(notable) > _SHOWN:
                texts.append(f"and {len(notable) - _SHOWN} more")
            if texts:
                lines.append(f"{kind}: {', '.join(texts)}")
        return [*lines, *(f"saturated: {text}" for text in self.saturated)]


class TraceShares:
    """Adds up events of a trace."""

    def __init__(self) -> None:
        self._first = float("inf")
        self._last = 0.0
        # By what it is and its name or number: operators, their work on the device, threads and slices.
        self._work: dict[str, dict[Any, _Work]] = {kind: {} for kind in ("compute", "gpu", "thread", "slice")}
        self._names: dict[int, str] = {}
        self._queues: dict[str, _Filling] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Add an event; others than computes, work and queues are passed over."""
        kind, name, group, track = event["ph"], event["name"], event["pid"], event["tid"]
        category = event.get("cat")
        if kind == "X" and category in ("compute", "gpu"):
            began, ended = event["ts"], event["ts"] + event["dur"]
            self._first, self._last = min(self._first, began), max(self._last, ended)
            shared = ("thread", track) if category == "compute" else ("slice", group)
            for what, key in ((category, name), shared):
                work = _entry(self._work[what], key, _Work)
                if work is not None:
                    work.add(name, began, ended)
        elif kind == "C" and group == QUEUES:
            depth = event["args"].get("messages")
            filling = _entry(self._queues, name, _Filling)
            if type(depth) in (int, float) and filling is not None:
                filling.add(event["ts"], depth)
        elif kind == "M" and name == "thread_name" and group == HOST and len(self._names) < _MOST:
            self._names[track] = str(event["args"].get("name", ""))

    def shares(self, limits: dict[str, int], groups: dict[int, str]) -> Shares:
        """Return the shares, given the limit of each queue and the names of groups."""
        span = self._last - self._first
        if not self._work["compute"] or span <= 0:
            return Shares()

        def share(part: float, places: int = 1) -> float:
            return min(max(part / (span * places), 0.0), 1.0) if places > 0 else 0.0

        computes, gpu, threads, slices = (
            {key: (share(work.total / 1e3), work) for key, work in found.items()}
            for found in self._work.values()
        )
        queues = {
            name: share(filling.until(self._last), limits.get(name, 0))
            for name, filling in self._queues.items()
        }
        found = Statistics(
            operators=tuple(
                OperatorStatistics(name, work.count, busy=busy, gpu_busy=gpu[name][0] if name in gpu else 0.0)
                for name, (busy, work) in computes.items()
            ),
            queues=tuple(
                QueueStatistics(name, self._queues[name].count, busy=busy) for name, busy in queues.items()
            ),
            workers=tuple(
                WorkersStatistics(self._names.get(track) or f"thread {track}", 1, busy, tuple(work.operators))
                for track, (busy, work) in threads.items()
            ),
            slices=tuple(
                SliceStatistics(groups.get(group) or f"slice {group}", 0, busy, tuple(work.operators))
                for group, (busy, work) in slices.items()
            ),
        )
        return Shares(
            {name: busy for name, (busy, _) in computes.items()},
            {name: busy for name, (busy, _) in gpu.items()},
            queues,
            {each.name: each.busy for each in found.workers},
            {each.name: each.busy for each in found.slices},
            saturated(found),
        )


_Entry = TypeVar("_Entry")


def _entry(known: dict[Any, _Entry], key: Any, make: Callable[[], _Entry]) -> _Entry | None:
    """Return what is known of a key, made at its first use; None if there are too many already."""
    if key not in known and len(known) < _MOST:
        known[key] = make()
    return known.get(key)


@dataclass(slots=True)
class _Work:
    """Work of operators on one thread or slice, or of one operator; in nanoseconds."""

    count: int = 0
    operators: set[str] = field(default_factory=set)
    _coverage: Coverage = field(default_factory=Coverage)
    _waiting: list[tuple[float, float]] = field(default_factory=list)

    def add(self, operator: str, began: float, ended: float) -> None:
        self.count += 1
        if len(self.operators) < _MOST:
            self.operators.add(operator)
        self._waiting.append((began, ended))
        if len(self._waiting) >= _BATCH:
            self._join()

    @property
    def total(self) -> int:
        """The time in which something went on."""
        self._join()
        return self._coverage.total()

    def _join(self) -> None:
        times = np.array(self._waiting).reshape(-1, 2) * 1e3
        starts, ends = np.clip(times, -(2.0**60), 2.0**60).astype(np.int64).T
        self._coverage.add(starts, ends)
        self._waiting.clear()


@dataclass(slots=True)
class _Filling:
    """How many messages waited in a queue, multiplied by for how long."""

    count: int = 0
    _depth: float = 0.0
    _since: float = 0.0
    _total: float = 0.0

    def add(self, time: float, depth: float) -> None:
        self.count += 1
        self._total = self.until(time)
        self._since, self._depth = max(time, self._since), depth

    def until(self, time: float) -> float:
        return self._total + self._depth * max(time - self._since, 0.0)
