"""Supervision: the driver's decisions about the processes of a run, without processes, sockets and clocks.

A process goes through these states::

    SPAWNED --composed--> COMPOSED --all are, links made--> LINKED --started--> RUNNING --ended--> REPORTED --> GONE

A process that has reported stays until all have: another one may still read what it has sent.

A process may be lost in each of them: it exits, or says nothing for longer than `silence`. One that has not
composed the program has `START` seconds more, because its imports may keep the interpreter lock. Its time begins
when it is known that it was started: on other hosts, somebody may have to come first who starts it. What happens
then is the fragment's policy (``on_loss``), unless the run is ending anyway:

``stop``     the run fails; all others are stopped.
``restart``  a new process takes the place of the lost one, with an epoch of its own, and new links to the others.
             Only a process that had started is replaced: one that fails before would fail again.
``go_on``    the others run on. What they receive from the part has ended, and what they send to it is dropped.

An error in any part, an interrupt and a stop in any part end all parts. The run raises the error that came first,
except that an interrupt comes before errors, and errors before their consequences: a part whose peer has gone
reports that as an error, and it is not why the run ended.

Every method returns the actions to be carried out, in order. Times are passed in.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.core.errors import DigestError, Failure, PartLost
from headrace.core.outcome import EndedBy, Outcome
from headrace.core.values import GO_ON, STOP
from headrace.parts.digest import LIVE, difference
from headrace.parts.idleness import IdleReport, decide, is_still
from headrace.parts.messages import Ask, Cancel, Ended, EndIdle, Leave, Stop

if TYPE_CHECKING:
    from headrace.parts.cut_flow import CutFlow


SILENCE = 2.85
"""The seconds for which a process may say nothing: a frozen one is known within 3 s, also if the driver is late."""
START = 60.0
"""The seconds for which a process may say nothing while it starts, beside those of every process."""
GRACE = 5.0
"""The seconds to the exit of a process when all have reported, or after a stop before its run began."""
_WHY_SILENT = "it is frozen, or a call holds the interpreter lock"


class State(enum.IntEnum):
    """What is known of a process."""

    SPAWNED = 0
    COMPOSED = 1
    LINKED = 2
    RUNNING = 3
    REPORTED = 4
    GONE = 5


# Actions.


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for a part."""

    part: str


@dataclass(frozen=True, slots=True)
class Join:
    """Make a link for each of these flows, and send their ends to the processes of both parts.

    The named parts begin with it, even if they have no links.
    """

    flows: tuple[CutFlow, ...]
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell a process something."""

    part: str
    what: Stop | Cancel | Ask | EndIdle | Leave


@dataclass(frozen=True, slots=True)
class Kill:
    """End a process at once."""

    part: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Write a line to the log."""

    text: str


Action = Spawn | Join | Tell | Kill | Warn


@dataclass(slots=True)
class Part:
    """A part, and the process that runs it now."""

    name: str
    on_loss: str = STOP
    state: State = State.SPAWNED
    epoch: int = 0
    heard_at: float | None = None
    """When the process was last alive; None if it is not known to have been started."""
    kill_at: float | None = None
    idle: IdleReport | None = None
    is_interrupted: bool = False
    """Whether it was interrupted because the run ends, and says so."""
    is_killed: bool = False
    """Whether it was killed because it did not end, or was frozen."""
    report: Ended | None = None
    at_risk: dict[str, _Risk] = field(default_factory=dict)
    """The messages that are lost with its process, by the flow into it."""

    def begin_again(self) -> None:
        """Expect another process, which is not known to have been started."""
        self.state, self.heard_at, self.is_killed = State.SPAWNED, None, False


@dataclass(frozen=True, slots=True)
class _Risk:
    """So many messages of a flow are lost if one of the holders is lost, which had these epochs."""

    flow: str
    count: int
    epochs: dict[str, int]


@dataclass(slots=True)
class Supervisor:
    """Decides what becomes of the processes of a run.

    Attributes
    ----------
    failures
        The exceptions of the run, in the order in which they became known: the part, and the exception. The first
        one in the order of `rank` is raised.
    """

    parts: dict[str, Part]
    flows: Sequence[CutFlow]
    description: dict[str, str]
    silence: float = SILENCE
    failures: list[tuple[str, BaseException, int]] = field(default_factory=list)
    is_stopping: bool = False
    is_draining: bool = False
    """Whether the sources have ended, and all parts compute what is under way."""
    ended_by: EndedBy | None = None
    restarts: dict[str, int] = field(default_factory=dict)
    # Those of parts that were lost.
    _risks: list[_Risk] = field(default_factory=list)
    # The last wave of questions whether all parts are idle: what they had said, and what they answer.
    _wave: int = 0
    _asked: dict[str, IdleReport] | None = None
    _answers: dict[str, IdleReport] = field(default_factory=dict)

    @property
    def has_started(self) -> bool:
        """Whether the operators of all parts have started."""
        return all(part.state >= State.RUNNING for part in self.parts.values())

    @property
    def has_begun(self) -> bool:
        """Whether the parts have been linked."""
        return any(part.state >= State.LINKED for part in self.parts.values())

    def begin(self) -> list[Action]:
        """Start all processes."""
        return [Spawn(part.name) for part in self.parts.values()]

    # What the processes say.

    def composed(self, name: str, description: dict[str, str], now: float) -> list[Action]:
        """Handle that a process has composed the program."""
        part = self._heard(name, now)
        if part.state is not State.SPAWNED:
            return []
        part.state = State.COMPOSED
        if self.is_stopping:
            return self._stop_part(part, now)
        expected = self.description
        if part.epoch:  # the driver sends it the values of now
            expected, description = (
                {what: text for what, text in each.items() if not what.startswith(LIVE)}
                for each in (expected, description)
            )
        differs = difference(expected, description, name)
        if differs:
            error = DigestError(
                f"fragment {name!r} composed another program than the driver: {differs}. Every process composes "
                "the program anew, so compose() must not depend on the time, random numbers, or files that change"
            )
            return self.fail(name, error, now)
        return self._join(now)

    def _join(self, now: float) -> list[Action]:
        """Link the parts that have composed with those that are there, once all of them are.

        Some may take the place of lost ones. A neighbour that has ended gets no link any more.
        """
        if any(part.state is State.SPAWNED for part in self.parts.values()):
            return []
        found = [part for part in self.parts.values() if part.state is State.COMPOSED]
        for part in found:
            part.state, part.heard_at = State.LINKED, now
        names = {part.name for part in found}
        there = {each.name for each in self.parts.values() if State.LINKED <= each.state <= State.RUNNING}
        flows = [
            flow for flow in self.flows if names & (ends := {flow.source, flow.target}) and ends <= there
        ]
        return [Join(tuple(flows), tuple(part.name for part in found))]

    def started(self, name: str, now: float) -> list[Action]:
        """Handle that all operators of a part have started."""
        part = self._heard(name, now)
        if part.state is State.LINKED:
            part.state = State.RUNNING
        return []

    def beat(self, name: str, at: float) -> None:
        """Handle that a process was alive at a time."""
        part = self.parts[name]
        if at > (part.heard_at or 0.0):
            part.heard_at = at

    def idle(self, name: str, report: IdleReport, wave: int, now: float) -> list[Action]:
        """Handle that nothing can run in a part unless a link brings something.

        The program is idle if all parts are and nothing is under way between them. The reports of the parts are not
        of one moment. So all parts are asked once more, in a wave that begins when all have reported: if nothing
        has passed meanwhile, it was so in between. `wave` is the number of the wave that the report answers, or 0.
        """
        part = self._heard(name, now)
        part.idle = report
        if wave and wave == self._wave:
            self._answers[name] = report
        return self._look_for_the_end()

    def _look_for_the_end(self) -> list[Action]:
        alive = [part for part in self.parts.values() if part.state in (State.LINKED, State.RUNNING)]
        reports = {part.name: part.idle for part in alive if part.idle is not None}
        is_starting = any(part.state < State.LINKED for part in self.parts.values())
        if self.is_stopping or is_starting or not alive or len(reports) < len(alive):
            return []
        if self._asked is not None and self._asked.keys() == reports.keys():
            if self._answers.keys() != reports.keys():
                return []  # the wave is under way
            if self._answers == self._asked:
                self._asked = None
                decided = decide(reports)
                # The others are as they were, and report again when something has passed.
                for told in decided:
                    self.parts[told].idle = None
                return [Tell(told, what) for told, what in decided.items()]
        self._asked = None
        if not is_still(reports, tuple(flow for flow in self.flows if not self._is_given_up(flow))):
            return []
        self._wave += 1
        self._asked, self._answers = reports, {}
        return [Tell(part.name, Ask(self._wave)) for part in alive]

    def _is_given_up(self, flow: CutFlow) -> bool:
        """Return whether a part of a flow was lost, so that nothing comes from it any more."""
        ends = (self.parts[flow.source], self.parts[flow.target])
        return any(part.state is State.GONE and part.report is None for part in ends)

    def at_risk(self, name: str, flow: str, count: int, holders: Iterable[str]) -> None:
        """Handle that so many messages of a flow into a part are lost if it is lost, and one of the holders."""
        epochs = {holder: self.parts[holder].epoch for holder in holders}
        self.parts[name].at_risk[flow] = _Risk(flow, count, epochs)

    @property
    def lost(self) -> Counter[str]:
        """The messages that were lost with several parts, at most, by flow."""
        found: Counter[str] = Counter()
        for risk in self._risks:
            if self._is_real(risk):
                found[risk.flow] += risk.count
        return found

    def _is_real(self, risk: _Risk) -> bool:
        """Return whether one of the holders was lost."""
        holders = [(self.parts[name], epoch) for name, epoch in risk.epochs.items()]
        return any(
            part.epoch != epoch or (part.state is State.GONE and part.report is None)
            for part, epoch in holders
        )

    def ended(self, name: str, report: Ended, now: float) -> list[Action]:
        """Handle the report of a process whose run is over."""
        part = self._heard(name, now)
        part.state, part.report = State.REPORTED, report
        part.kill_at = None  # it may have been interrupted, and ends when all others have reported
        return [*self._follow(name, report, now), *self._let_leave(now)]

    def _follow(self, name: str, report: Ended, now: float) -> list[Action]:
        """Do what the end of one part means for the others."""
        if report.failure is not None:
            return self._failed(name, report.failure, now)
        outcome = report.outcome
        by = None if outcome is None else outcome.ended_by
        if not self.is_stopping and by in (EndedBy.STOPPED, EndedBy.DURATION):
            self.ended_by = by
            return self.stop(now)
        return self._look_for_the_end()

    def _let_leave(self, now: float) -> list[Action]:
        """Let the processes end if the runs of all parts are over."""
        if any(part.state < State.REPORTED for part in self.parts.values()):
            return []
        there = [
            part for part in self.parts.values() if part.state is State.REPORTED and part.kill_at is None
        ]
        for part in there:
            part.kill_at = now + GRACE
        return [Tell(part.name, Leave()) for part in there]

    def _failed(self, name: str, failure: Failure, now: float) -> list[Action]:
        if failure.is_interrupt and self.parts[name].is_interrupted:
            return []
        if failure.is_interrupt and self.is_draining:  # SIGTERM came to all processes, and drained them
            return self._look_for_the_end()
        rank = 0 if failure.is_interrupt else 3 if failure.is_consequence else 1
        return self.fail(name, failure.error(f"fragment {name!r}"), now, rank)

    # What happens to the processes.

    def exited(self, name: str, how: str, now: float, failure: BaseException | None = None) -> list[Action]:
        """Handle that a process is gone; `how` says in words how it ended, for one that should not have."""
        part = self.parts[name]
        state, part.state = part.state, State.GONE
        part.idle = part.kill_at = None
        found = [] if part.is_interrupted or part.is_killed else self._ended(part, state, how, now, failure)
        return [*found, *self._let_leave(now)]

    def _ended(
        self, part: Part, state: State, how: str, now: float, failure: BaseException | None = None
    ) -> list[Action]:
        if state >= State.REPORTED:
            return []
        doing = {
            State.SPAWNED: "before it had composed the program",
            State.COMPOSED: "before its links were made",
            State.LINKED: "while its operators started",
            State.RUNNING: "while it ran",
        }[state]
        error = PartLost(f"fragment {part.name!r}: {how} {doing}")
        if self.is_stopping:  # perhaps since its peers noticed it first
            return self.fail(part.name, failure or error, now, 2)
        if failure is not None:  # it was interrupted before it could say so
            return self.fail(part.name, failure, now, 0)
        self._risks += part.at_risk.values()
        part.at_risk.clear()
        if state is not State.RUNNING or part.on_loss == STOP:
            return self.fail(part.name, error, now, 2)
        if part.on_loss == GO_ON:
            return [Warn(f"{error}; the other fragments go on")]
        part.begin_again()
        part.epoch += 1
        self.restarts[part.name] = self.restarts.get(part.name, 0) + 1
        return [Warn(f"{error}; it is started again"), Spawn(part.name)]

    def tick(self, now: float) -> list[Action]:
        """Notice processes that say nothing, or do not end."""
        found: list[Action] = []
        for part in self.parts.values():
            if part.state is State.GONE:
                continue
            if part.kill_at is not None and now >= part.kill_at:
                part.kill_at, part.is_killed = None, True
                found += [Kill(part.name)]
            elif (limit := self._limit(part)) is not None and now >= limit:
                silence = limit - (part.heard_at or 0.0)
                how = f"its process has said nothing for {silence:.4g} s ({_WHY_SILENT})"
                state, part.state, part.idle = part.state, State.GONE, None
                part.heard_at, part.is_killed = now, True
                found += [Kill(part.name), *self._ended(part, state, how, now)]
        return found

    def _limit(self, part: Part) -> float | None:
        """Return when a process is silent that is not heard of until then; None if never."""
        if part.heard_at is None or part.state > State.RUNNING or part.kill_at is not None:
            return None
        return part.heard_at + self.silence + (START if part.state is State.SPAWNED else 0.0)

    def forgive(self, now: float) -> None:
        """Let all processes have their time once more, because the driver itself was stopped for a while."""
        for part in self.parts.values():
            if part.heard_at is not None:
                part.heard_at = now
            if part.kill_at is not None:
                part.kill_at = now + GRACE

    def next_time(self) -> float | None:
        """Return when `tick` has something to do; None if never."""
        times = [part.kill_at for part in self.parts.values() if part.kill_at is not None]
        times += [limit for part in self.parts.values() if (limit := self._limit(part)) is not None]
        return min(times, default=None)

    # The end.

    def fail(self, name: str, error: BaseException, now: float, rank: int = 1) -> list[Action]:
        """End the run with an error."""
        self.failures.append((name, error, rank))
        return self.stop(now)

    def stop(self, now: float) -> list[Action]:
        """End all parts."""
        if self.is_stopping:
            return []
        self.is_stopping = True
        return [action for part in self.parts.values() for action in self._stop_part(part, now)]

    def _stop_part(self, part: Part, now: float) -> list[Action]:
        if part.state < State.LINKED:
            part.kill_at, part.is_interrupted = now + GRACE, True
            return [Tell(part.name, Cancel())]
        if part.state <= State.RUNNING:
            return [Tell(part.name, Stop())]
        return []

    @property
    def failure(self) -> BaseException | None:
        """What `run` raises, with the other errors in its notes; None if the run did not fail."""
        ranked = sorted(self.failures, key=lambda failure: failure[2])
        return ranked[0][1] if ranked else None

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcomes that were reported, by part."""
        return {
            name: part.report.outcome
            for name, part in self.parts.items()
            if part.report is not None and part.report.outcome is not None
        }

    def _heard(self, name: str, now: float) -> Part:
        part = self.parts[name]
        part.heard_at = now
        return part
