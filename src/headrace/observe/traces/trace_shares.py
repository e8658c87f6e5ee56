"""TraceShares: how busy operators, queues, threads and slices were, from the events of a trace."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.observe.figures.coverage import Coverage
from headrace.observe.figures.saturation import FEW, percent, saturated
from headrace.observe.traces.trace_tracks import HOST, QUEUES

_MOST = 1000  # operators, queues, threads or slices
_BATCH = 4096  # intervals of a slice that are joined at once
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

    def to_dict(self) -> dict[str, Any]:
        """Return the shares as values that JSON can hold."""
        return {
            "operators": self.operators,
            "gpu": self.gpu,
            "queues": self.queues,
            "threads": self.threads,
            "slices": self.slices,
        }

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
            notable = {name: share for name, share in shares.items() if share >= _NOTABLE}
            largest = sorted(notable, key=lambda name: -notable[name])[:_SHOWN]
            if largest:
                more = len(notable) - len(largest)
                texts = [f"{name} {percent(notable[name])}" for name in largest]
                lines.append(f"{kind}: {', '.join(texts)}{f', and {more} more' if more else ''}")
        return [*lines, *(f"saturated: {text}" for text in self.saturated)]


class TraceShares:
    """Adds up events of a trace."""

    def __init__(self) -> None:
        self._first = float("inf")
        self._last = 0.0
        self._computes: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)
        self._gpu: dict[str, float] = defaultdict(float)
        self._threads: dict[int, float] = defaultdict(float)
        self._by_thread: dict[int, set[str]] = defaultdict(set)
        self._names: dict[int, str] = {}
        self._slices: dict[int, _Slice] = {}
        self._queues: dict[str, _Filling] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Add an event; others than computes, work and queues are passed over."""
        kind, name, group, track = event["ph"], event["name"], event["pid"], event["tid"]
        if kind == "X" and event.get("cat") in ("compute", "gpu"):
            began, length = event["ts"], event["dur"]
            self._first, self._last = min(self._first, began), max(self._last, began + length)
            if event["cat"] == "gpu":
                if _fits(self._gpu, name) and _fits(self._slices, group):
                    self._gpu[name] += length
                    self._slices.setdefault(group, _Slice()).add(name, began, began + length)
            elif _fits(self._computes, name) and _fits(self._threads, track):
                self._computes[name] += length
                self._counts[name] += 1
                self._threads[track] += length
                self._by_thread[track].add(name)
        elif kind == "C" and group == QUEUES:
            depth = event["args"].get("messages")
            if type(depth) in (int, float) and _fits(self._queues, name):
                self._queues.setdefault(name, _Filling()).add(event["ts"], depth)
        elif kind == "M" and name == "thread_name" and group == HOST and _fits(self._names, track):
            self._names[track] = str(event["args"].get("name", ""))

    def shares(self, limits: dict[str, int], groups: dict[int, str]) -> Shares:
        """Return the shares, given the limit of each queue and the names of groups."""
        span = self._last - self._first
        if not self._computes or span <= 0:
            return Shares()
        found = Shares(
            {name: _share(total, span) for name, total in self._computes.items()},
            {name: _share(total, span) for name, total in self._gpu.items()},
            {
                name: _share(filling.until(self._last), span * limits.get(name, 0))
                for name, filling in self._queues.items()
            },
        )
        threads = {
            track: (self._names.get(track, "") or f"thread {track}", _share(total, span))
            for track, total in self._threads.items()
        }
        slices = {
            group: (groups.get(group, "") or f"slice {group}", _share(one.total, span))
            for group, one in self._slices.items()
        }
        found.threads, found.slices = dict(threads.values()), dict(slices.values())
        found.saturated = saturated(
            [each for each in found.operators.items() if self._counts[each[0]] >= FEW],
            [each for each in found.gpu.items() if self._counts[each[0]] >= FEW],
            [(name, 1, share, self._by_thread[track]) for track, (name, share) in threads.items()],
            [(name, share, self._slices[group].operators) for group, (name, share) in slices.items()],
            found.queues.items(),
        )
        return found


def _fits(known: Any, key: Any) -> bool:
    return len(known) < _MOST or key in known


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0


class _Slice:
    """The work on a slice, in nanoseconds."""

    __slots__ = ("_coverage", "_waiting", "operators")

    def __init__(self) -> None:
        self.operators: set[str] = set()
        self._coverage = Coverage()
        self._waiting: list[tuple[float, float]] = []

    def add(self, operator: str, began: float, ended: float) -> None:
        if len(self.operators) < _MOST:
            self.operators.add(operator)
        self._waiting.append((began, ended))
        if len(self._waiting) >= _BATCH:
            self._join()

    @property
    def total(self) -> float:
        """The time in which something was on it, in microseconds."""
        self._join()
        return self._coverage.total / 1e3

    def _join(self) -> None:
        if self._waiting:
            times = np.clip(np.array(self._waiting) * 1e3, -(2.0**60), 2.0**60).astype(np.int64)
            self._coverage.add(times[:, 0], times[:, 1])
            self._waiting.clear()


class _Filling:
    """How many messages waited in a queue, multiplied by for how long."""

    __slots__ = ("_depth", "_since", "_total")

    def __init__(self) -> None:
        self._depth = self._since = self._total = 0.0

    def add(self, time: float, depth: float) -> None:
        self._total += self._depth * max(time - self._since, 0.0)
        self._since, self._depth = max(time, self._since), depth

    def until(self, time: float) -> float:
        return self._total + self._depth * max(time - self._since, 0.0)
