"""Runs the parts of an application side by side in one process, each with an application of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import Any

from headrace import Application
from headrace.core.outcome import Outcome
from headrace.link.carrier import Carrier
from headrace.link.channel import Channel
from headrace.link.connect import carrier_of
from headrace.link.protocol import Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.parts.cut import Cut
from headrace.parts.cut_flow import CutFlow, FlowCounts
from headrace.parts.idleness import IdleReport, decide, is_still
from tests.harness import PATIENCE
from tests.parts.memory_link import MemoryLink


class MemoryLinks:
    """Makes links of deques."""

    def __init__(self, memory: int = 1 << 30) -> None:
        self.made: dict[str, MemoryLink] = {}
        self._memory = memory
        self._lock = threading.Lock()

    def connect(self, cut: Cut) -> None:
        """Connect all flows of a part."""
        for flow in (*cut.outgoing, *cut.incoming):
            with self._lock:
                link = self.made.setdefault(flow.name, MemoryLink(flow.name, flow.size, self._memory))
            end: Any = link.sender if flow in cut.outgoing else link.receiver
            cut.connect(flow.name, end)


class UnixLinks:
    """Makes links over pairs of sockets."""

    def __init__(self, silence: float = 60.0) -> None:
        self.made: dict[str, tuple[socket.socket, socket.socket]] = {}
        self._silence = silence
        self._lock = threading.Lock()

    def connect(self, cut: Cut) -> None:
        """Connect all flows of a part."""
        for flow in (*cut.outgoing, *cut.incoming):
            with self._lock:
                pair = self.made.get(flow.name)
                if pair is None:
                    pair = self.made[flow.name] = socket.socketpair(socket.AF_UNIX)
            terms = Terms(flow.name, flow.size, flow.policy, silence=self._silence)
            if flow in cut.outgoing:
                cut.connect(flow.name, Sender(Carrier(pair[0]), terms, lambda: None))
            else:
                cut.connect(flow.name, Receiver(Carrier(pair[1]), terms, lambda: None))


@dataclass
class PartsRun:
    """What became of the parts."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    counts: dict[str, FlowCounts] = field(default_factory=dict)
    flows: dict[str, CutFlow] = field(default_factory=dict)
    cuts: dict[str, Cut] = field(default_factory=dict)

    def by_port(self, what: str) -> dict[str, int]:
        """Return a number of all operators that the program declared, by port, with what is between the parts."""
        found: dict[str, int] = {}
        for outcome in self.outcomes.values():
            for name, operator in outcome.operators.items():
                if name not in self.flows:
                    for port, count in getattr(operator, what).items():
                        found[f"{name}.{port}"] = found.get(f"{name}.{port}", 0) + count
        for name, counts in self.counts.items():
            extra = undelivered(counts) if what == "undelivered" else getattr(counts, what, 0)
            if extra:
                port = self.flows[name].input
                found[port] = found.get(port, 0) + extra
        return found


def channel_of(connection: socket.socket) -> Channel:
    """Return one end of a control channel over a connected socket."""
    return Channel(carrier_of(connection))


def channel_and_socket() -> tuple[Channel, socket.socket]:
    """Return one end of a control channel of this host, and the socket at the other."""
    ours, theirs = socket.socketpair()
    return channel_of(ours), theirs


def both(one: FlowCounts, other: FlowCounts) -> FlowCounts:
    """Return what both ends of a flow have seen."""
    return FlowCounts(*map(sum, zip(astuple(one), astuple(other), strict=True)))


def undelivered(counts: FlowCounts) -> int:
    """Return how many messages never reached the queue of their receiver, of what both ends have seen."""
    return counts.sent - counts.arrived + counts.waiting + counts.lost


class Coordinator:
    """Finds out that no part can go on, as a driver does for processes."""

    def __init__(self, cuts: dict[str, Cut]) -> None:
        self._lock = threading.Lock()
        self._cuts = dict(cuts)
        self._reports: dict[str, IdleReport] = {}
        self._before: dict[str, IdleReport] = {}
        self.decisions: list[dict[str, int]] = []
        for part, cut in cuts.items():
            cut.idleness.on_idle = partial(self._report, part)

    def _report(self, part: str, report: IdleReport) -> None:
        with self._lock:
            self._reports[part] = report
            self._look()

    def leave(self, part: str) -> None:
        """Do not wait for a part that has ended."""
        with self._lock:
            self._cuts.pop(part)
            self._reports.pop(part, None)
            self._look()

    def _look(self) -> None:
        flows = {flow for cut in self._cuts.values() for flow in (*cut.outgoing, *cut.incoming)}
        reports = self._reports
        if not self._cuts or len(reports) < len(self._cuts) or not is_still(reports, tuple(flows)):
            return
        decided = decide(reports) if reports == self._before else {}
        self._before, self._reports = reports, {}
        if decided:
            self.decisions.append(decided)
        for part, cut in self._cuts.items():
            if part in decided:
                cut.idleness.end(decided[part])
            else:
                cut.idleness.ask()


def run_parts(
    make: Callable[[], Application],
    parts: list[str],
    links: Any = None,
    prepare: Callable[[Cut], Any] = lambda cut: None,
) -> PartsRun:
    """Run each part of an application; `make` makes the application, once for each part."""
    links = links or MemoryLinks()
    result = PartsRun()
    futures = {}
    for part in parts:
        cut = Cut(make(), part, links.connect)
        prepare(cut)
        result.cuts[part] = cut
    coordinator = Coordinator(result.cuts)
    for part, cut in result.cuts.items():
        futures[part] = cut.application.run_async()
        futures[part].add_done_callback(lambda _, part=part: coordinator.leave(part))
    for part, future in futures.items():
        try:
            future.result(PATIENCE)
        except TimeoutError:
            raise
        except BaseException as error:
            result.errors[part] = error
        outcome = result.cuts[part].application.outcome
        if outcome is not None:
            result.outcomes[part] = outcome
    for cut in result.cuts.values():
        result.flows |= {flow.name: flow for flow in (*cut.outgoing, *cut.incoming)}
        for name, counts in cut.counts().items():
            result.counts[name] = both(result.counts.get(name, FlowCounts()), counts)
    return result
