"""Forwarder: shows the run of a part to the driver, which puts the runs of all parts together (`joined_run`).

The process of a part records and reads its computes as every observed run does. What its watchers would see is sent
over the control channel instead: the records themselves, in which operators, outputs, queues and streams are names.

Nothing travels with a message. Those of a link arrive in the order in which they left, so the times that both of
its ends note belong together by their numbers, as the two ends of every queue do (`observe.events.recorder`).
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from headrace.observe.events.records import (
    OperatorInfo,
    OutputInfo,
    QueueInfo,
    SegmentInfo,
    StreamInfo,
    WorkersInfo,
)
from headrace.observe.events.watchers import Watcher
from headrace.parts.link_operators import LinkOperator, SendToPart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.core.outcome import Outcome
    from headrace.observe.events.cupti_activity import Activity
    from headrace.observe.events.records import Computes, Drops, RunInfo

_WANTS = (
    "wants_threads",
    "wants_emissions",
    "wants_every_gpu_time",
    "wants_gpu_times",
    "wants_kernels",
    "wants_cpu_times",
)


def interests_of(watchers: Sequence[Watcher]) -> dict[str, Any]:
    """Return what some watchers want to know, together, as attributes of one."""
    found: dict[str, Any] = {name: any(getattr(each, name) for each in watchers) for name in _WANTS}
    for name in ("period", "longest_period"):
        found[name] = min(getattr(each, name) for each in watchers)
    return found


@dataclass(frozen=True, slots=True)
class PartOperator:
    """An operator of a part, with its outputs and the queues of its inputs.

    `end` says which end of a flow to another part it is (``"sends"``, ``"receives"``); empty if it is none.
    """

    info: OperatorInfo
    kind: str
    end: str
    attributes: dict[str, Any]
    outputs: list[tuple[OutputInfo, list[QueueInfo]]]
    inputs: list[tuple[QueueInfo, int, list[OutputInfo]]]


@dataclass(frozen=True, slots=True)
class PartGraph:
    """What the driver has to know of the run of a part, before anything else; and again when it has changed."""

    started: int
    is_virtual: bool
    kernels: str
    operators: list[PartOperator]
    workers: list[WorkersInfo]
    segments: list[SegmentInfo]
    is_changed: bool

    @classmethod
    def of(cls, run: RunInfo, is_changed: bool = False) -> PartGraph:
        """Describe a run."""
        there = set(run.operators)  # what the next change has added is described with it
        segments = [
            SegmentInfo(each.name, each.operators, SimpleNamespace(**_state(each))) for each in run.segments
        ]
        workers = [
            WorkersInfo(each.name, each.count, [of for of in each.operators if not _end_of(of)])
            for each in run.workers
        ]
        operators = [_operator(each, there) for each in run.operators]
        return cls(run.started, run.is_virtual, run.kernels, operators, workers, segments, is_changed)


def _operator(info: OperatorInfo, there: Container[OperatorInfo]) -> PartOperator:
    end = _end_of(info)
    return PartOperator(
        info,
        "Link" if end else type(info.node.operator).__name__,
        end,
        {name: getattr(info, name) for name in ("slice", "sm_count", "goes_on", "is_parallel")},
        [(each, [queue for queue in each.queues if queue.operator in there]) for each in info.outputs],
        [
            (each, each.size, [output for output in each.outputs if output.operator in there])
            for each in info.inputs
        ],
    )


def _end_of(info: OperatorInfo) -> str:
    operator = info.node.operator
    if not isinstance(operator, LinkOperator):
        return ""
    return "sends" if isinstance(operator, SendToPart) else "receives"


def _state(segment: SegmentInfo) -> dict[str, Any]:
    return {name: getattr(segment, name) for name in ("state", "reason", "frames", "replayed")}


@dataclass(slots=True)
class Round:
    """What happened in a part since the last round.

    Attributes
    ----------
    kernels
        Kernels and copies, with the operators that launched them.
    links
        By flow: when this end sent or took each message, in order.
    operators, queues, outputs, segments
        The counts so far, which `joined_run` reads.
    live
        The values of live parameters that have changed, by the operator and the name.
    threads
        The names of the threads.
    clock_offset
        What the run's clock showed at time 0 of the part's time line.
    page
        The address of its dashboard, if it has one.
    """

    computes: list[Computes] = field(default_factory=list)
    drops: list[Drops] = field(default_factory=list)
    kernels: list[tuple[Activity, OperatorInfo | None]] = field(default_factory=list)
    links: dict[str, list[int]] = field(default_factory=dict)
    operators: list[tuple[OperatorInfo, int, tuple[int, ...]]] = field(default_factory=list)
    outputs: list[tuple[OutputInfo, int]] = field(default_factory=list)
    queues: list[tuple[QueueInfo, int, int, int, tuple[int, int]]] = field(default_factory=list)
    segments: list[dict[str, Any]] = field(default_factory=list)
    live: dict[tuple[OperatorInfo, str], bool | int | float | str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    device_sm_counts: dict[int, int] = field(default_factory=dict)
    clock_errors: dict[int, int] = field(default_factory=dict)
    clock_offset: int = 0
    kernels_shown: str = ""
    page: str = ""


class _Pickler(pickle.Pickler):
    """Writes operators, outputs, queues and streams by their names."""

    def persistent_id(self, item: Any) -> tuple[Any, ...] | None:
        """Return a name for what belongs to the graph, and None for everything else."""
        kind = type(item)
        if kind is OperatorInfo:
            return OperatorInfo, item.name
        if kind is OutputInfo:
            return OutputInfo, item.operator.name, item.port
        if kind is QueueInfo:
            of_port = [each for each in item.operator.inputs if each.port == item.port]
            return QueueInfo, item.operator.name, item.port, of_port.index(item)
        if kind is StreamInfo:
            return StreamInfo, item.operator.name, item.device, item.handle, item.number, item.segment
        return None


class Unpickler(pickle.Unpickler):
    """Reads a graph or a round; `find` returns the operator, output, queue or stream of a name."""

    def __init__(self, content: bytes, find: Callable[..., Any]) -> None:
        super().__init__(io.BytesIO(content))
        self._find = find

    def persistent_load(self, found: Any) -> Any:
        """Return what a name stands for."""
        return self._find(*found)


class Forwarder(Watcher):
    """Sends what happens in a part.

    Parameters
    ----------
    send
        Sends the graph, and then each round, as bytes.
    interests
        What the other end wants to know (`interests_of`).
    """

    def __init__(self, send: Callable[[bytes], object], interests: Mapping[str, Any]) -> None:
        self._send = send
        for name, wanted in interests.items():
            setattr(self, name, wanted)
        self._known = 0
        self._round = Round()
        self._live: dict[tuple[OperatorInfo, str], Any] = {}

    def begin(self, run: RunInfo) -> None:
        """Describe the run."""
        assert self.observation is not None
        self._run = run
        self._known = len(run.operators)
        self._links: list[LinkOperator] = []
        for each in run.operators:
            operator = each.node.operator
            if isinstance(operator, LinkOperator):
                operator.note_times(self.observation.now)
                self._links.append(operator)
        self._write(PartGraph.of(run))

    def changed(self, run: RunInfo) -> None:
        """Describe the run as it is now; what was seen before belongs to the graph before."""
        self.resolved()
        self._known = len(run.operators)
        self._write(PartGraph.of(run, is_changed=True))

    def _write(self, what: PartGraph | Round) -> None:
        content = io.BytesIO()
        _Pickler(content, pickle.HIGHEST_PROTOCOL).dump(what)
        self._send(content.getvalue())

    def computed(self, computes: Computes) -> None:
        """Keep computes for the end of the round."""
        self._round.computes.append(computes)

    def messages_dropped(self, drops: list[Drops]) -> None:
        """Keep messages that were dropped for the end of the round."""
        self._round.drops += drops

    def ran(self, kernels: list[Activity]) -> None:
        """Keep kernels for the end of the round."""
        operators = self._run.operators
        self._round.kernels += [
            (each, None if each.operator is None else operators[each.operator]) for each in kernels
        ]

    def resolved(self) -> None:
        """Send the round."""
        found, self._round = self._round, Round()
        run = self._run
        # Before the threads that computed last are gone.
        found.threads = {thread.ident or 0: thread.name for thread in threading.enumerate()}
        found.links = {link.flow.name: link.take_times() for link in self._links}
        for each in run.operators[: self._known]:
            found.operators.append((each, each.frames_kept, each.faults.numbers))
            found.outputs += [(output, output.count) for output in each.outputs]
            found.queues += [
                (queue, queue.size, queue.waiting, queue.most, (queue.dropped, queue.discarded))
                for queue in each.inputs
            ]
            live = each.node.operator._headrace.live_state
            for name in () if live is None else live.parameters:
                value, key = live.get(name), (each, name)
                if isinstance(value, (bool, int, float, str)) and self._live.get(key) != value:
                    self._live[key] = found.live[key] = value
        found.segments = [_state(each) for each in run.segments]
        found.device_sm_counts, found.clock_errors = dict(run.device_sm_counts), dict(run.clock_errors)
        found.clock_offset = run.clock_offset
        found.kernels_shown = run.kernels
        assert self.observation is not None
        pages = (getattr(each, "url", "") for each in self.observation.watchers)
        found.page = next((url for url in pages if url), "")
        self._write(found)

    def end(self, outcome: Outcome | None) -> None:
        """Send what is left."""
        self.resolved()
