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
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.observe.traces.trace_reader import TraceError, TraceReader
from headrace.observe.traces.trace_shares import Shares, TraceShares

__all__ = ["PathSummary", "TraceError", "TraceSummary", "summarize_trace"]

_SAMPLE = 10_000  # messages of a path
_MOST_PATHS = 100
_MOST_PARTS = 1000  # of a path
_INTERVALS = 200  # of late messages that are looked at closely
_HOST = 1


@dataclass(slots=True)
class Part:
    """One part of the time of a path, in milliseconds.

    Attributes
    ----------
    kind
        ``"queue"``, ``"host"`` (in `compute`), ``"device"`` (a wait for the device), ``"gpu"`` or
        ``"before"``.
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
        words = {
            "queue": "queue of {}",
            "host": "compute of {}",
            "gpu": "GPU work of {}",
            "device": "wait of {} for the GPU",
            "before": "before {}",
        }
        return words[self.kind].format(self.where)


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
    parts: list[Part]
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
    """

    application: str
    is_virtual: bool
    is_complete: bool
    seconds: float
    paths: list[PathSummary]
    dropped: dict[str, int] = field(default_factory=dict)
    busy: Shares = field(default_factory=Shares)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as values that JSON can hold."""
        return {
            "application": self.application,
            "is_virtual": self.is_virtual,
            "is_complete": self.is_complete,
            "seconds": self.seconds,
            "dropped": self.dropped,
            "busy": self.busy.to_dict(),
            "saturated": list(self.busy.saturated),
            "paths": [
                {
                    "name": path.name,
                    "count": path.count,
                    "p50_ms": path.p50,
                    "p99_ms": path.p99,
                    "conclusion": path.conclusion,
                    "parts": [
                        {
                            "kind": part.kind,
                            "where": part.where,
                            "slice": part.slice,
                            "median_ms": part.median,
                            "late_ms": part.late,
                            "more_ms": part.more,
                        }
                        for part in path.parts
                    ],
                }
                for path in self.paths
            ],
        }

    def __str__(self) -> str:
        time = "simulated" if self.is_virtual else "real"
        cut = "" if self.is_complete else "; the trace is cut off"
        lines = [f"{self.application}: {self.seconds:.3g} s of {time} time{cut}"]
        for queue, count in self.dropped.items():
            lines.append(f"{queue} dropped {count} {'message' if count == 1 else 'messages'}")
        lines += self.busy.lines()
        if not self.paths:
            lines.append("no message reached the end of a path")
        for path in self.paths:
            lines += ["", *_table(path)]
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
    dropped: dict[str, int] = defaultdict(int)
    last = 0.0
    shares = TraceShares()
    for event in reader.events(without="sfe"):
        shares.add(event)
        kind, name, arguments = event["ph"], event["name"], event["args"]
        if kind == "b" and event.get("cat") == "path":
            if name not in samples:
                if len(samples) >= _MOST_PATHS:
                    continue
                samples[name] = _Sample(name)
            samples[name].add(arguments)
        elif kind == "X":
            last = max(last, event["ts"] + event["dur"])
            if event.get("cat") == "gpu" and len(used) < _MOST_PARTS:
                used[name] = event["pid"]
        elif kind == "i" and event.get("cat") == "drop" and len(dropped) < _MOST_PARTS:
            dropped[name.removeprefix("dropped: ")] += 1
        elif kind == "M" and name == "process_name" and len(groups) < _MOST_PARTS:
            groups[event["pid"]] = str(arguments.get("name", ""))
    is_complete = reader.is_complete
    # The name of a group ends with the slice and its SMs.
    slices = {operator: groups.get(group, "").partition(": ")[2] for operator, group in used.items()}
    busy = shares.shares(_limits(reader.header), groups)
    found = [(sample, sample.compare(slices)) for sample in samples.values()]
    company = _company(reader, [_Question(sample, parts) for sample, parts in found])
    paths = [
        PathSummary(
            sample.name,
            sample.count,
            sample.percentile(50),
            sample.percentile(99),
            parts,
            _conclude(sample, parts, company.get(sample.name, {}), slices, busy),
        )
        for sample, parts in found
    ]
    paths.sort(key=lambda path: -path.p99)
    header = reader.header
    return TraceSummary(
        str(header.get("application", "")),
        header.get("is_virtual") is True,
        is_complete,
        last / 1e6,
        paths,
        dict(dropped),
        busy,
    )


def _limits(header: dict[str, Any]) -> dict[str, int]:
    """Return the limit of each queue; what is not as headrace writes it is left out."""
    operators = header.get("operators")
    found: dict[str, int] = {}
    for operator in operators if isinstance(operators, list) else ():
        queues = operator.get("queues") if isinstance(operator, dict) else None
        if isinstance(queues, dict):
            found.update((name, limit) for name, limit in queues.items() if type(limit) is int)
    return found


class _Sample:
    """Messages of one path: their latencies, the parts of their time, and their times at the operators."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operators = name.split(" → ")
        self.count = 0
        self._columns: dict[str, int] = {}
        self._rows: list[tuple[float, dict[int, float], dict[str, list[float | None]]]] = []
        self._random = random.Random(12)
        self._sorted = False

    def add(self, arguments: dict[str, Any]) -> None:
        """Add a message."""
        self.count += 1
        place = len(self._rows)
        if place >= _SAMPLE:
            place = self._random.randrange(self.count)
            if place >= _SAMPLE:
                return
        parts: dict[int, float] = {}
        for key, value in arguments["parts_us"].items():
            if len(self._columns) < _MOST_PARTS or key in self._columns:
                parts[self._columns.setdefault(key, len(self._columns))] = value / 1e3
        hops = {
            column: arguments[column][: len(self.operators)]
            for column in ("received", "emitted", "gpu_started", "gpu_ended")
        }
        row = (arguments["latency_us"] / 1e3, parts, hops)
        if place == len(self._rows):
            self._rows.append(row)
        else:
            self._rows[place] = row

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latencies, in milliseconds."""
        return float(np.percentile([row[0] for row in self._rows], percent))

    def late(self) -> list[tuple[float, dict[int, float], dict[str, list[float | None]]]]:
        """Return the messages around the p99."""
        return self._around(0.99, 0.01)

    def compare(self, slices: dict[str, str]) -> list[Part]:
        """Return the parts of the time, in the order of the path."""
        median, late = self._mean(self._around(0.5, 0.05)), self._mean(self.late())
        found = []
        for key, column in self._columns.items():
            kind, where = _split(key)
            on_device = kind in ("gpu", "device")
            found.append(
                Part(
                    kind,
                    where,
                    float(median[column]),
                    float(late[column]),
                    slices.get(where, "") if on_device else "",
                )
            )
        places = {operator: place for place, operator in reversed(list(enumerate(self.operators)))}
        order = {"before": 0, "queue": 1, "host": 2, "device": 3, "gpu": 4}

        def place_of(part: Part) -> tuple[int, int]:
            operator = part.where.rpartition(".")[0] if part.kind == "queue" else part.where
            return places.get(operator, len(places)), order[part.kind]

        return sorted(found, key=place_of)

    def _mean(self, rows: list[tuple[float, dict[int, float], Any]]) -> NDArray[np.float64]:
        total = np.zeros(len(self._columns))
        for _, parts, _ in rows:
            for column, value in parts.items():
                total[column] += value
        return total / len(rows)

    def _around(self, share: float, width: float) -> list[Any]:
        if not self._sorted:
            self._rows.sort(key=lambda row: row[0])
            self._sorted = True
        count = len(self._rows)
        first = min(round((share - width) * count), count - 1)
        return self._rows[first : max(first + 1, round((share + width) * count))]


class _Question:
    """The times at which late messages were in the part of their path that grows most."""

    def __init__(self, sample: _Sample, parts: list[Part]) -> None:
        self.path = sample.name
        grown = max(parts, key=lambda part: part.more, default=None)
        intervals = []
        if grown is not None:
            operator = grown.where.rpartition(".")[0] if grown.kind == "queue" else grown.where
            if operator in sample.operators:
                place = sample.operators.index(operator)
                for _, _, hops in sample.late()[:_INTERVALS]:
                    began, ended = _interval(grown.kind, place, hops)
                    if began is not None and ended is not None and ended > began:
                        intervals.append((began, ended))
        self.began = np.array([began for began, _ in intervals])
        self.ended = np.array([ended for _, ended in intervals])


def _interval(
    kind: str, place: int, hops: dict[str, list[float | None]]
) -> tuple[float | None, float | None]:
    """Return when a part of a message's time began and ended."""
    try:
        if kind == "queue":
            return hops["emitted"][place - 1], hops["received"][place]
        if kind == "gpu":
            return hops["gpu_started"][place], hops["gpu_ended"][place]
        if kind == "device":
            return hops["received"][place], hops["gpu_started"][place]
        return hops["received"][place], hops["emitted"][place]
    except IndexError:
        return None, None


def _company(reader: TraceReader, questions: list[_Question]) -> dict[str, dict[tuple[int, str], float]]:
    """Return what share of the time in question each operator worked, by the group of its track and its name."""
    answers: dict[str, dict[tuple[int, str], float]] = {
        question.path: defaultdict(float) for question in questions
    }
    asked = [question for question in questions if len(question.began)]
    if not asked:
        return answers
    for event in reader.events(without="sfeCbiM"):
        if event["ph"] != "X" or event.get("cat") not in ("compute", "gpu"):
            continue
        began, ended = event["ts"], event["ts"] + event["dur"]
        for question in asked:
            overlap = np.minimum(question.ended, ended) - np.maximum(question.began, began)
            total = float(overlap[overlap > 0].sum())
            answer = answers[question.path]
            if total and (len(answer) < _MOST_PARTS or (event["pid"], event["name"]) in answer):
                answer[event["pid"], event["name"]] += total
    for question in asked:
        length = float((question.ended - question.began).sum())
        answers[question.path] = {key: total / length for key, total in answers[question.path].items()}
    return answers


def _conclude(
    sample: _Sample,
    parts: list[Part],
    company: dict[tuple[int, str], float],
    slices: dict[str, str],
    busy: Shares,
) -> str:
    """Return a sentence on what makes the p99 higher than the median."""
    grown = max(parts, key=lambda part: part.more, default=None)
    total = sum(part.more for part in parts)
    p50 = sample.percentile(50)
    if grown is None or total < 0.05 * p50 or grown.more <= 0:
        # Saturation is no less of a problem if all messages wait equally.
        saturated = [
            text
            for text, operators in busy.saturated.items()
            if not set(operators).isdisjoint(sample.operators)
        ]
        if saturated:
            return f"The p99 is close to the median, but {saturated[0]}: messages cannot come any faster."
        return "The p99 is close to the median; nothing stands out."
    start = f"Of the {_ms(total)} more, {_ms(grown.more)} are spent in the {grown.name}"
    if grown.more > total * _MUCH:  # other parts take less
        start = f"Messages around the p99 spend {_ms(grown.more)} more in the {grown.name}"
    if grown.kind == "queue":
        return f"{start}{_reason_of_queue(grown, company)}."
    if grown.kind == "gpu":
        others = {
            name: share
            for (group, name), share in company.items()
            if group != _HOST and name != grown.where and _share_sms(grown.slice, slices.get(name, ""))
        }
        where = f", on {grown.slice}" if grown.slice else ""
        other = max(others, key=lambda name: others[name], default=None)
        if other is not None and others[other] > _NOTABLE:
            return (
                f"{start}{where}, while {other} works on the same SMs for {others[other]:.0%} of that time; "
                f"a slice of its own would keep {grown.where} apart."
            )
        return f"{start}{where}."
    if grown.kind == "device":
        return f"{start}: its stream is still busy with earlier messages."
    return f"{start}, on the host."


def _share_sms(one: str, other: str) -> bool:
    """Return whether two slices have SMs in common: they are the same, or one is the whole device."""
    return one == other or one.startswith("all ") or other.startswith("all ")


def _reason_of_queue(part: Part, company: dict[tuple[int, str], float]) -> str:
    consumer = part.where.rpartition(".")[0]
    own = company.get((_HOST, consumer), 0.0)
    if own > _NOTABLE:
        return f", which waits for compute of {consumer}: earlier messages take {own:.0%} of that time"
    others = {name: share for (group, name), share in company.items() if group == _HOST and name != consumer}
    other = max(others, key=lambda name: others[name], default=None)
    if other is not None and others[other] > _NOTABLE:
        return f", while {other} computes for {others[other]:.0%} of that time"
    device = max(
        (share for (group, name), share in company.items() if group != _HOST and name == consumer),
        default=0.0,
    )
    if device > _NOTABLE:
        return f", while the GPU still works on earlier messages of {consumer} for {device:.0%} of that time"
    return f", which waits until {consumer} is ready"


def _table(path: PathSummary) -> list[str]:
    count = f"{path.count} {'message' if path.count == 1 else 'messages'}"
    lines = [f"{path.name}: {count}, p50 {_ms(path.p50)}, p99 {_ms(path.p99)}"]
    rows = [("", "median", "p99", "more")]
    for part in path.parts:
        if max(part.median, part.late) < _SHOWN:
            continue
        where = f", {part.slice}" if part.slice else ""
        rows.append((part.name + where, _ms(part.median), _ms(part.late), _ms(part.more)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for name, *figures in rows:
        cells = (figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=True))
        lines.append(f"  {name.ljust(widths[0])}  {'  '.join(cells)}".rstrip())
    return [*lines, f"  {path.conclusion}"]


def _split(key: str) -> tuple[str, str]:
    for kind in ("queue", "host", "device", "gpu", "before"):
        if key.startswith(kind + " "):
            return kind, key[len(kind) + 1 :]
    raise TraceError(f"a path has a part {key[:100]!r}, which headrace does not write")


def _ms(value: float) -> str:
    return f"{value:.2f} ms"


_MUCH = 1.05
_SHOWN = 0.005  # milliseconds that are shown as more than 0.00
_NOTABLE = 0.25  # a share of the time that is worth a word
