"""TraceShares: how busy operators, queues, threads and slices were, from the events of a trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

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
from headrace.observe.traces.trace_file import Group

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
    """Adds up events of a trace.

    Attributes
    ----------
    last
        When the last work ended, in microseconds.
    dropped
        The number of messages that each queue dropped.
    """

    def __init__(self) -> None:
        self._first = float("inf")
        self.last = 0.0
        self.dropped: Counter[str] = Counter()
        # By what it is and its name or number: operators, their work on the device, threads and slices.
        self._work: dict[str, defaultdict[Any, _Work]] = {
            kind: defaultdict(_Work) for kind in ("compute", "gpu", "thread", "slice")
        }
        # The names of groups and of threads.
        self._names: dict[tuple[str, int], str] = {}
        self._queues: defaultdict[str, _Filling] = defaultdict(_Filling)

    def add(self, event: dict[str, Any]) -> None:
        """Add an event."""
        kind, name, group, track = event["ph"], event["name"], event["pid"], event["tid"]
        category = event.get("cat")
        if kind == "X" and category in ("compute", "gpu"):
            began, ended = event["ts"], event["ts"] + event["dur"]
            self._first, self.last = min(self._first, began), max(self.last, ended)
            shared = ("thread", track) if category == "compute" else ("slice", group)
            for what, key in ((category, name), shared):
                self._work[what][key].add(name, began, ended)
        elif kind == "C" and group == Group.QUEUES:
            depth = event["args"].get("messages")
            if type(depth) in (int, float):
                self._queues[name].add(event["ts"], depth)
        elif kind == "i" and category == "drop":
            self.dropped[name.removeprefix("dropped: ")] += 1
        elif kind == "M" and name in ("process_name", "thread_name"):
            self._names[name, track] = str(event["args"].get("name", ""))

    def slices(self) -> dict[str, str]:
        """Return the slice of each operator that used a device, with its SMs."""
        return {
            # The name of a group ends with them.
            operator: self._names.get(("process_name", group), "").partition(": ")[2]
            for group, work in self._work["slice"].items()
            for operator in work.operators
        }

    def shares(self, limits: dict[str, int]) -> Shares:
        """Return the shares, given the limit of each queue."""
        span = self.last - self._first
        if not self._work["compute"] or span <= 0:
            return Shares()

        def share(part: float, places: int = 1) -> float:
            return min(max(part / (span * places), 0.0), 1.0) if places > 0 else 0.0

        computes, gpu, threads, slices = self._work.values()
        found = Statistics(
            operators=tuple(
                OperatorStatistics(name, work.count, busy=share(work.total), gpu_busy=share(gpu[name].total))
                for name, work in computes.items()
            ),
            queues=tuple(
                QueueStatistics(name, each.count, busy=share(each.until(self.last), limits.get(name, 0)))
                for name, each in self._queues.items()
            ),
            workers=tuple(
                WorkersStatistics(self._name("thread", key), 1, share(work.total), tuple(work.operators))
                for key, work in threads.items()
            ),
            slices=tuple(
                SliceStatistics(self._name("process", key), 0, share(work.total), tuple(work.operators))
                for key, work in slices.items()
            ),
        )
        return Shares(
            {each.name: each.busy for each in found.operators},
            {each.name: each.gpu_busy for each in found.operators if each.gpu_busy},
            {each.name: each.busy for each in found.queues},
            {each.name: each.busy for each in found.workers},
            {each.name: each.busy for each in found.slices},
            saturated(found),
        )

    def _name(self, what: str, number: int) -> str:
        return self._names.get((f"{what}_name", number)) or f"{what} {number}"


@dataclass(slots=True)
class _Work:
    """Work of operators on one thread or slice, or of one operator."""

    count: int = 0
    operators: set[str] = field(default_factory=set)
    _coverage: Coverage = field(default_factory=Coverage)
    _waiting: list[tuple[float, float]] = field(default_factory=list)

    def add(self, operator: str, began: float, ended: float) -> None:
        self.count += 1
        self.operators.add(operator)
        self._waiting.append((began, ended))
        if len(self._waiting) >= _BATCH:
            self._join()

    @property
    def total(self) -> float:
        """The time in which something went on, in microseconds."""
        self._join()
        return self._coverage.total() / 1e3

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
