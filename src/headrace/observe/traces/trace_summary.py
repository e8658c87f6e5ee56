"""Where the p99 of each path goes, from a trace file.

The messages around the p99 are compared with those around the median: each part of their time (`critical_path`) is
averaged over both groups, and the part that grows most is the one to look at. A second reading of the file tells
what else went on during that part: what the consumer of a queue was doing, or who worked on the same SMs.

Messages may all take the same time and the pipeline still be too slow. So the summary also has how busy everything
was (`trace_shares`), and names what was saturated.

Memory is bounded however long the trace is: of a path with more messages than are kept, a random sample is.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headrace.observe.events.clock_offsets import ClockOffset, describe_clocks
from headrace.observe.figures.tables import table
from headrace.observe.traces.trace_reader import HOPS, TraceError, TraceReader

__all__ = ["PathSummary", "TraceError", "TraceSummary", "summarize_trace"]

_SAMPLE = 10_000  # messages of a path
_MOST = 1000  # parts of a path
_MOST_SHARES = 5  # of one kind in the text
_LEAST_SHARE = 0.005  # that is shown as more than 0%
_INTERVALS = 200  # of late messages that are looked at closely
_MUCH = 1.05
_SHOWN = 0.005  # milliseconds that are shown as more than 0.00
_NOTABLE = 0.25  # a share of the time that is worth a word

# The kinds of parts in the order of a message's way, in words, and where each begins and ends: the column of the
# message's times, and the operator, counted from the one of the part.
_KINDS = {
    "before": ("before {}", ("received", 0), ("emitted", 0)),
    "queue": ("queue of {}", ("emitted", -1), ("received", 0)),
    "message": ("wait of {} for another message", ("emitted", -1), ("received", 0)),
    "worker": ("wait of {} for a worker", ("emitted", -1), ("received", 0)),
    "memory": ("wait of {} for memory or a worker", ("emitted", -1), ("received", 0)),
    "held": ("wait of {} for a worker, a condition, a retry or room", ("emitted", -1), ("received", 0)),
    "host": ("compute of {}", ("received", 0), ("emitted", 0)),
    "link": ("link {}", ("received", 0), ("emitted", 0)),
    "device": ("wait of {} for the GPU", ("received", 0), ("gpu_started", 0)),
    "gpu": ("GPU work of {}", ("gpu_started", 0), ("gpu_ended", 0)),
}


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
                ((share, name) for name, share in shares.items() if share >= _LEAST_SHARE),
                key=lambda each: -each[0],
            )
            texts = [f"{name} {share:.0%}" for share, name in notable[:_MOST_SHARES]]
            if len(notable) > _MOST_SHARES:
                texts.append(f"and {len(notable) - _MOST_SHARES} more")
            if texts:
                lines.append(f"{kind}: {', '.join(texts)}")
        return [*lines, *(f"saturated: {text}" for text in self.saturated)]


@dataclass(slots=True)
class PathPart:
    """One part of the time of a path, in milliseconds.

    Attributes
    ----------
    kind
        As in `critical_path.Part`.
    where
        The operator, or the queue as in ``"display.in"``.
    median
        The average of the messages around the median.
    late
        The average of the messages around the p99.
    slice
        The slice of the operator with its SMs, for work on the device.
    """

    kind: str
    where: str
    median: float
    late: float
    slice: str = ""

    @property
    def more(self) -> float:
        """The time that it adds to a late message."""
        return self.late - self.median

    @property
    def name(self) -> str:
        """The part in words."""
        return _KINDS[self.kind][0].format(self.where)

    @property
    def operator(self) -> str:
        """The operator; of a queue, the one that receives from it."""
        if self.kind != "queue":
            return self.where
        return (
            self.where.removesuffix(", sender")
            if self.where.endswith(", sender")
            else self.where.rpartition(".")[0]
        )


@dataclass(slots=True)
class PathSummary:
    """One path, in milliseconds.

    Attributes
    ----------
    conclusion
        What makes the p99 higher than the median, in a sentence.
    """

    name: str
    count: int
    p50: float
    p99: float
    parts: list[PathPart]
    conclusion: str


@dataclass(slots=True)
class TraceSummary:
    """A trace: its paths, the slowest first.

    Attributes
    ----------
    dropped
        The number of messages that each queue dropped.
    busy
        How busy operators, queues, threads and slices were, and what was saturated.
    clocks
        How the clock of each part is related to that of the trace, for a run in several processes.
    """

    application: str
    is_virtual: bool
    is_complete: bool
    seconds: float
    paths: list[PathSummary]
    dropped: dict[str, int] = field(default_factory=dict)
    busy: Shares = field(default_factory=Shares)
    clocks: dict[str, ClockOffset] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as values that JSON can hold."""
        found = asdict(self)
        found["saturated"] = list(found["busy"].pop("saturated"))
        for path in found["paths"]:
            path |= {"p50_ms": path.pop("p50"), "p99_ms": path.pop("p99")}
            for part in path["parts"]:
                median, late = part.pop("median"), part.pop("late")
                part |= {"median_ms": median, "late_ms": late, "more_ms": late - median}
        return found

    def __str__(self) -> str:
        time = "simulated" if self.is_virtual else "real"
        cut = "" if self.is_complete else "; the trace is cut off"
        lines = [f"{self.application}: {self.seconds:.3g} s of {time} time{cut}"]
        lines += describe_clocks(self.clocks)
        lines += [f"{queue} dropped {_messages(count)}" for queue, count in self.dropped.items()]
        lines += self.busy.lines()
        if not self.paths:
            lines.append("no message reached the end of a path")
        for path in self.paths:
            lines += ["", f"{path.name}: {_messages(path.count)}, p50 {_ms(path.p50)}, p99 {_ms(path.p99)}"]
            rows = [
                (
                    f"{part.name}, {part.slice}" if part.slice else part.name,
                    *map(_ms, (part.median, part.late, part.more)),
                )
                for part in path.parts
                if max(part.median, part.late) >= _SHOWN
            ]
            lines += [f"  {line}" for line in table(("", "median", "p99", "more"), rows, is_ruled=False)]
            lines.append(f"  {path.conclusion}")
        return "\n".join(lines)


def summarize_trace(path: str | os.PathLike[str]) -> TraceSummary:
    """Return where the p99 of each path in a trace file goes.

    Raises
    ------
    TraceError
        If the file cannot be read or is not a trace of headrace.
    """
    reader = TraceReader(Path(path))
    samples: dict[str, _Sample] = {}
    groups: dict[int, str] = {}
    used: dict[str, int] = {}
    dropped: Counter[str] = Counter()
    last, busy = 0.0, Shares()
    for event in reader.events(without="sfeC"):
        kind, category, name, arguments = event["ph"], event.get("cat"), event["name"], event["args"]
        if kind == "b" and category == "path":
            if name not in samples:
                samples[name] = _Sample(name)
            samples[name].add(arguments)
        elif kind == "X":
            last = max(last, event["ts"] + event["dur"])
            if category == "gpu":
                used[name] = event["pid"]
        elif kind == "i" and category == "drop":
            dropped[name.removeprefix("dropped: ")] += 1
        elif name == "process_name":
            groups[event["pid"]] = str(arguments.get("name", ""))
        elif name == "busy":
            busy = Shares(**{kind.name: arguments[kind.name] for kind in fields(Shares)})
    header, is_complete = reader.header, reader.is_complete
    # The name of a group ends with the slice and its SMs.
    slices = {operator: groups.get(group, "").partition(": ")[2] for operator, group in used.items()}
    for sample in samples.values():
        sample.compare(slices)
    _find_company(reader, [sample for sample in samples.values() if len(sample.began)])
    paths = [
        PathSummary(
            sample.name,
            sample.count,
            sample.percentile(50),
            sample.percentile(99),
            sample.parts,
            sample.conclusion(slices, busy),
        )
        for sample in samples.values()
    ]
    return TraceSummary(
        str(header.get("application", "")),
        header.get("is_virtual") is True,
        is_complete,
        last / 1e6,
        sorted(paths, key=lambda path: -path.p99),
        dict(dropped),
        busy,
        _clocks(header.get("clocks")),
    )


def _clocks(found: Any) -> dict[str, ClockOffset]:
    """Return the clocks of a header, as far as they are clocks."""
    try:
        return {
            str(part)[:_MOST]: ClockOffset(
                int(clock["offset_ns"]), int(clock["error_ns"]), clock["is_shared"] is True
            )
            for part, clock in islice(found.items(), _MOST)
        }
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return {}


def _find_company(reader: TraceReader, samples: list[_Sample]) -> None:
    """Find what each operator did while late messages were in the part of their path that grows most."""
    for event in reader.events(without="sfeCbiM") if samples else ():
        if event["ph"] != "X" or event.get("cat") not in ("compute", "gpu"):
            continue
        began, ended = event["ts"], event["ts"] + event["dur"]
        key = event["cat"] == "compute", event["name"]
        for sample in samples:
            overlap = np.minimum(sample.ended, ended) - np.maximum(sample.began, began)
            total = float(overlap[overlap > 0].sum())
            if total:
                sample.company[key] += total / float((sample.ended - sample.began).sum())


class _Sample:
    """Messages of one path: their latencies, the parts of their time, and their times at the operators.

    Attributes
    ----------
    parts
        The parts of the time, in the order of the path.
    grown
        The part that grows most, from the median to the p99.
    began, ended
        When late messages were in that part.
    company
        The share of these times in which each operator worked, by whether that was on the host, and its name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.operators = name.split(" → ")
        self.count = 0
        # For each message: the latency, the parts, and the columns of times.
        self._rows: list[tuple[float, dict[str, float], dict[str, list[float | None]]]] = []
        self._random = random.Random(12)
        self.parts: list[PathPart] = []
        self.grown: PathPart | None = None
        self.began = self.ended = np.zeros(0)
        self.company: dict[tuple[bool, str], float] = defaultdict(float)

    def add(self, arguments: dict[str, Any]) -> None:
        """Add a message; of many, a random sample is kept."""
        self.count += 1
        place = len(self._rows) if self.count <= _SAMPLE else self._random.randrange(self.count)
        if place < _SAMPLE:
            parts = dict(islice(arguments["parts_us"].items(), _MOST))
            hops = {column: arguments[column][: len(self.operators)] for column in HOPS}
            self._rows[place : place + 1] = [(arguments["latency_us"], parts, hops)]

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latencies, in milliseconds."""
        return float(np.percentile([row[0] for row in self._rows], percent)) / 1e3

    def compare(self, slices: dict[str, str]) -> None:
        """Compare the messages around the p99 with those around the median."""
        self._rows.sort(key=lambda row: row[0])
        median, late = self._around(0.5, 0.05), self._around(0.99, 0.01)
        for key in list(dict.fromkeys(key for _, parts, _ in (*median, *late) for key in parts))[:_MOST]:
            kind, _, where = key.partition(" ")
            if kind not in _KINDS:
                raise TraceError(f"a path has a part {key[:100]!r}, which headrace does not write")
            before, now = (
                sum(parts.get(key, 0.0) for _, parts, _ in rows) / len(rows) / 1e3 for rows in (median, late)
            )
            share = slices.get(where, "") if kind in ("gpu", "device") else ""
            self.parts.append(PathPart(kind, where, before, now, share))
        places = {operator: place for place, operator in reversed(list(enumerate(self.operators)))}
        order = list(_KINDS)
        self.parts.sort(key=lambda part: (places.get(part.operator, len(places)), order.index(part.kind)))
        self.grown = max(self.parts, key=lambda part: part.more, default=None)
        if self.grown is not None and self.grown.operator in places:
            place = places[self.grown.operator]
            times = [_interval(self.grown.kind, place, hops) for _, _, hops in late[:_INTERVALS]]
            self.began, self.ended = np.array([each for each in times if each]).reshape(-1, 2).T

    def _around(self, share: float, width: float) -> list[Any]:
        count = len(self._rows)
        first = min(round((share - width) * count), count - 1)
        return self._rows[first : max(first + 1, round((share + width) * count))]

    def conclusion(self, slices: dict[str, str], busy: Shares) -> str:
        """Return a sentence on what makes the p99 higher than the median."""
        grown = self.grown
        total = sum(part.more for part in self.parts)
        if grown is None or total < 0.05 * self.percentile(50) or grown.more <= 0:
            # Saturation is no less of a problem if all messages wait equally.
            if saturated := self._saturated(busy):
                return f"The p99 is close to the median, but {saturated}"
            return "The p99 is close to the median; nothing stands out."
        where = grown.name if grown.kind == "before" else f"in the {grown.name}"
        start = f"Of the {_ms(total)} more, {_ms(grown.more)} are spent {where}"
        if grown.more > total * _MUCH:  # other parts take less
            start = f"Messages around the p99 spend {_ms(grown.more)} more {where}"
        if grown.kind == "before":
            saturated = self._saturated(busy)
            return f"{start}{f', while {saturated}' if saturated else '.'}"
        if grown.kind in ("queue", "worker", "memory", "held"):
            return f"{start}{self._reason_of_queue(grown.operator)}."
        if grown.kind == "gpu":
            where = f", on {grown.slice}" if grown.slice else ""
            others = [
                name for name in slices if name != grown.where and _share_sms(grown.slice, slices[name])
            ]
            other, share = self._busiest(False, others)
            if share > _NOTABLE:
                where += f", while {other} works on the same SMs for {share:.0%} of that time; "
                where += f"a slice of its own would keep {grown.where} apart"
            return f"{start}{where}."
        if grown.kind == "device":
            return f"{start}: its stream is still busy with earlier messages."
        return f"{start}." if grown.kind in ("link", "message") else f"{start}, on the host."

    def _saturated(self, busy: Shares) -> str:
        """Return what keeps messages from coming faster; empty if nothing on the path does."""
        for text, operators in busy.saturated.items():
            if not set(operators).isdisjoint(self.operators):
                return f"{text}: messages cannot come any faster."
        return ""

    def _reason_of_queue(self, consumer: str) -> str:
        _, own = self._busiest(True, [consumer])
        if own > _NOTABLE:
            return f", which waits for compute of {consumer}: earlier messages take {own:.0%} of that time"
        other, share = self._busiest(True, [name for _, name in self.company if name != consumer])
        if share > _NOTABLE:
            return f", while {other} computes for {share:.0%} of that time"
        _, share = self._busiest(False, [consumer])
        if share > _NOTABLE:
            return (
                f", while the GPU still works on earlier messages of {consumer} for {share:.0%} of that time"
            )
        return f", which waits until {consumer} is ready"

    def _busiest(self, on_host: bool, names: Collection[str]) -> tuple[str, float]:
        """Return which of some operators worked most, on the host or on the device, and its share of the time."""
        shares = [
            (name, share)
            for (is_host, name), share in self.company.items()
            if is_host is on_host and name in names
        ]
        return max(shares, key=lambda each: each[1], default=("", 0.0))


def _interval(kind: str, place: int, hops: dict[str, list[float | None]]) -> tuple[float, float] | None:
    """Return when a part of a message's time began and ended, if that is known."""
    (first, before), (last, after) = _KINDS[kind][1:]
    try:
        began, ended = hops[first][place + before], hops[last][place + after]
    except IndexError:
        return None
    return (began, ended) if began is not None and ended is not None and ended > began else None


def _share_sms(one: str, other: str) -> bool:
    """Return whether two slices have SMs in common: they are the same, or one is the whole device."""
    return one == other or one.startswith("all ") or other.startswith("all ")


def _messages(count: int) -> str:
    return f"{count} {'message' if count == 1 else 'messages'}"


def _ms(value: float) -> str:
    return f"{value:.2f} ms"
