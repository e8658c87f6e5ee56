"""Forwarder: shows the run of a part to the driver, which puts the runs of all parts together (`joined_run`).

The process of a part records and reads its computes as every observed run does. What its watchers would see is sent
over the control channel instead, in batches of arrays. Operators, queues and streams have numbers there.

Nothing travels with a message. Those of a link arrive in the order in which they left, so the times that both of
its ends note belong together by their numbers, as the two ends of every queue do (`observe.events.recorder`).
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.observe.events.records import OperatorInfo, QueueInfo, StreamInfo
from headrace.observe.events.watchers import Watcher
from headrace.parts.link_operators import LinkOperator, SendToPart

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@dataclass(frozen=True, slots=True)
class Interests:
    """What the watchers of the driver want to know, together."""

    flags: dict[str, bool]
    period: float
    longest_period: float

    @classmethod
    def of(cls, watchers: Sequence[Watcher]) -> Interests:
        """Return the interests of some watchers."""
        return cls(
            {name: any(getattr(watcher, name) for watcher in watchers) for name in _WANTS},
            min(watcher.period for watcher in watchers),
            min(watcher.longest_period for watcher in watchers),
        )


@dataclass(frozen=True, slots=True)
class PartOperator:
    """An operator of a part; `sends` and `receives` name the flow of which it is one end.

    `queues` has the numbers of the queues behind each of its outputs.
    """

    name: str
    kind: str
    outputs: tuple[str, ...]
    queues: tuple[tuple[int, ...], ...]
    slice: str
    sm_count: int
    sends: str = ""
    receives: str = ""
    goes_on: bool = False
    is_parallel: bool = False


@dataclass(frozen=True, slots=True)
class PartQueue:
    """A queue of a part: its operator, and the operators and outputs that emit into it."""

    index: int
    operator: int
    port: str
    size: int
    outputs: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PartGraph:
    """What the driver has to know of the run of a part, before anything else; and again when it has changed."""

    started: int
    is_virtual: bool
    operators: tuple[PartOperator, ...]
    queues: tuple[PartQueue, ...]
    workers: tuple[tuple[str, int, tuple[int, ...]], ...]
    segments: tuple[tuple[str, tuple[int, ...]], ...]
    kernels: str
    is_changed: bool = False

    @classmethod
    def of(cls, run: RunInfo, is_changed: bool = False) -> PartGraph:
        """Describe a run."""
        count = len(run.operators)  # what the next change has added is described with it
        queues = list(run.queues)
        known = {queue.index for queue in queues}
        return cls(
            run.started,
            run.is_virtual,
            tuple(_operator(each, known) for each in run.operators),
            tuple(
                PartQueue(
                    queue.index,
                    queue.operator.index,
                    queue.port,
                    queue.size,
                    tuple(
                        (output.operator.index, output.port)
                        for output in queue.outputs
                        if 0 <= output.operator.index < count
                    ),
                )
                for queue in queues
            ),
            tuple((each.name, each.count, _indices(each.operators)) for each in run.workers),
            tuple((each.name, _indices(each.operators)) for each in run.segments),
            run.kernels,
            is_changed,
        )


def _operator(info: OperatorInfo, known: Container[int]) -> PartOperator:
    operator = info.node.operator
    name = operator.flow.name if isinstance(operator, LinkOperator) else ""
    is_sender = isinstance(operator, SendToPart)
    outputs = tuple(output.port for output in info.outputs)
    return PartOperator(
        info.name,
        "Link" if name else type(operator).__name__,
        outputs,
        tuple(tuple(each.index for each in output.queues if each.index in known) for output in info.outputs),
        info.slice,
        info.sm_count,
        name if is_sender else "",
        "" if is_sender else name,
        info.goes_on,
        info.is_parallel,
    )


def _indices(operators: list[OperatorInfo]) -> tuple[int, ...]:
    return tuple(operator.index for operator in operators)


@dataclass(slots=True)
class Round:
    """What happened in a part since the last round.

    Attributes
    ----------
    links
        By flow: when this end sent or took each message, in order.
    operators, queues, outputs, segments
        The counts so far, in the order of the graph; see `joined_run`.
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
    kernels: list[Activity] = field(default_factory=list)
    links: dict[str, list[int]] = field(default_factory=dict)
    operators: list[tuple[int, ...]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    queues: list[tuple[int, ...]] = field(default_factory=list)
    segments: list[tuple[str, str, int, int]] = field(default_factory=list)
    live: dict[tuple[int, str], bool | int | float | str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    device_sm_counts: dict[int, int] = field(default_factory=dict)
    clock_errors: dict[int, int] = field(default_factory=dict)
    clock_offset: int = 0
    kernels_shown: str = ""
    page: str = ""


class _Pickler(pickle.Pickler):
    """Writes operators, queues and streams by their numbers."""

    def persistent_id(self, item: Any) -> Any:
        """Return a number for what belongs to the graph, and None for everything else."""
        kind = type(item)
        if kind is OperatorInfo:
            return "operator", item.index
        if kind is QueueInfo:
            return "queue", item.index
        if kind is StreamInfo:
            return "stream", (item.operator.index, item.device, item.handle, item.number, item.segment)
        return None


class Unpickler(pickle.Unpickler):
    """Reads a round; `find` returns the operator, queue or stream of a number."""

    def __init__(self, content: bytes, find: Callable[[str, Any], Any]) -> None:
        super().__init__(io.BytesIO(content))
        self._find = find

    def persistent_load(self, found: Any) -> Any:
        """Return what a number stands for."""
        return self._find(*found)


class Forwarder(Watcher):
    """Sends what happens in a part.

    Parameters
    ----------
    send
        Sends the graph, and then the content of each round.
    interests
        What the other end wants to know.
    """

    def __init__(self, send: Callable[[PartGraph | bytes], object], interests: Interests) -> None:
        self._send = send
        self.period, self.longest_period = interests.period, interests.longest_period
        for name, is_wanted in interests.flags.items():
            setattr(self, name, is_wanted)
        self._known = 0
        self._round = Round()
        self._live: dict[tuple[int, str], Any] = {}

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
        self._send(PartGraph.of(run))

    def changed(self, run: RunInfo) -> None:
        """Describe the run as it is now; what was seen before belongs to the graph before."""
        self.resolved()
        self._known = len(run.operators)
        self._send(PartGraph.of(run, is_changed=True))

    def computed(self, computes: Computes) -> None:
        """Keep computes for the end of the round."""
        self._round.computes.append(computes)

    def messages_dropped(self, drops: list[Drops]) -> None:
        """Keep messages that were dropped for the end of the round."""
        self._round.drops += drops

    def ran(self, kernels: list[Activity]) -> None:
        """Keep kernels for the end of the round."""
        self._round.kernels += kernels

    def resolved(self) -> None:
        """Send the round."""
        found, self._round = self._round, Round()
        run = self._run
        # Before the threads that computed last are gone.
        found.threads = {thread.ident or 0: thread.name for thread in threading.enumerate()}
        found.links = {link.flow.name: link.take_times() for link in self._links}
        for each in run.operators[: self._known]:
            found.operators.append((*each.faults.numbers, each.frames_kept))
            found.outputs.append([output.count for output in each.outputs])
            for queue in each.inputs:
                found.queues.append(
                    (queue.index, queue.waiting, queue.most, queue.dropped, queue.discarded, queue.size)
                )
            live = each.node.operator._headrace.live_state
            for name in () if live is None else live.parameters:
                value, key = live.get(name), (each.index, name)
                if isinstance(value, (bool, int, float, str)) and self._live.get(key) != value:
                    self._live[key] = found.live[key] = value
        found.segments = [(each.state, each.reason, each.frames, each.replayed) for each in run.segments]
        found.device_sm_counts, found.clock_errors = dict(run.device_sm_counts), dict(run.clock_errors)
        found.clock_offset = run.clock_offset
        found.kernels_shown = run.kernels
        assert self.observation is not None
        pages = (getattr(each, "url", "") for each in self.observation.watchers)
        found.page = next((url for url in pages if url), "")
        content = io.BytesIO()
        _Pickler(content, pickle.HIGHEST_PROTOCOL).dump(found)
        self._send(content.getvalue())

    def end(self, outcome: Outcome | None) -> None:
        """Send what is left."""
        self.resolved()
