"""What a program must do, written independently of the runtime.

The model goes through a program operator by operator and flow by flow. What an operator sends follows from what it
received; what an input receives follows from what was sent to it. By these two, the messages of an orderly program
are the same in every run. Where the rules leave freedom (which of two producers comes first, what was dropped by a
full queue, what has arrived at a time), the model says what is allowed, and goes on with what was seen. At the end,
every message is in one count, and no operator is left that could go on.

Each function yields the sentences that are not true of a run.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core import FeedClosedError, UnansweredError
from tests.random_programs.building import (
    FRAMES,
    Compute,
    Ending,
    PlannedError,
    Record,
    Working,
    fails_on,
    flat,
    number_of,
    results_of,
)
from tests.random_programs.join_sets import latest, nearest, tightest
from tests.random_programs.program import Port, Program, Stage
from tests.random_programs.running import run_program

FRAMES_AT_MOST = 1 << 30
FATES = ("arrived", "late", "failed", "dropped", "lost", "outstanding", "untimed")


@dataclass
class Message:
    """A message that was sent."""

    value: Any
    stamp: int | None
    metadata: Any
    time: int


def faults(program: Program, record: Record) -> list[str]:
    """Return what is wrong with a run."""
    return list(_Model(program, record).check())


def verdict(program: Program) -> list[str] | Exception:
    """Run a program, and return what is wrong with the run, or the error of the program itself."""
    try:
        return faults(program, run_program(program))
    except Exception as error:
        return error


def is_wrong(program: Program) -> bool:
    """Return whether the run of a program goes wrong; an error of the program itself counts."""
    return bool(verdict(program))


class _Model:
    def __init__(self, program: Program, record: Record) -> None:
        self.program, self.record, self.outcome = program, record, record.outcome
        self.ended_by = str(record.outcome.ended_by)
        self.is_whole = self.ended_by in ("finished", "starved")
        self.changed = {change.stage for change in program.changes if change.what in ("detach", "again")}
        self.stopped = {change.stage for change in program.changes if change.what == "stop"}
        # Stages of which nobody sees what they do; what they may send follows from what is sent to them.
        self.unseen = {stage.name for stage in program.stages if stage.captured or stage.on_processes}
        self.is_virtual = program.clock == "virtual"
        self.is_timeless = self.is_virtual and not any(stage.takes for stage in program.stages)

    def path(self, stage: Stage) -> str:
        """Return the name of the operator of a stage in its application."""
        return self.program.path(stage)

    def computes(self, stage: Stage) -> list[Compute]:
        """Return what a stage did."""
        return self.record.computes.get(stage.name, [])

    def check(self) -> Iterator[str]:
        yield from self._end_of_run()
        for stage in self.program.stages:
            yield from (f"{stage.name}: {fault}" for fault in self._stage(stage))
            for port in stage.ports:
                yield from (f"{stage.name}.{port.name}: {fault}" for fault in self._port(stage, port))
        yield from self._tracked()
        yield from self._goals()
        yield from self._live()
        yield from self._recorded()
        yield from self._answered()

    # How calls are answered.

    def _answered(self) -> Iterator[str]:
        """Check that an answer stems from its call, and that a call to which there is a result is answered."""
        if not self.program.calls:
            return
        arrived = {value for values in self.record.results.values() for value in flat(values)}
        calls = Counter(type(answer) for _, answer in self.record.answers)
        feeds = sum(stage.kind == "feed" for stage in self.program.stages)
        if calls.total() != FRAMES * feeds:
            yield f"{calls.total()} calls of {FRAMES * feeds} have ended"
        for call, answer in self.record.answers:
            results = arrived & self._made_of(call)
            if not isinstance(answer, BaseException):
                if not {*flat(answer)} <= results:
                    yield f"call {call} was answered by {answer}"
            elif not isinstance(answer, (PlannedError, UnansweredError, FeedClosedError)):
                yield f"call {call} raised {answer!r}"
            elif (
                isinstance(answer, UnansweredError)
                and results
                and results <= self._made_of(call, alone=True)  # that of a batch answers with an error
            ):
                yield f"call {call} was not answered by {results}: {answer}"

    def _made_of(self, call: int, alone: bool = False) -> set[int]:
        """Return what was made of a message, the message too; if `alone`, by computes that received no batch."""
        found = {call}
        computes = []
        for stage in self.program.stages:
            is_single = all(port.size == 1 for port in stage.ports) and not (stage.join or stage.after)
            before = [
                each for name in stage.after for each in self.record.computes.get(name, ())
            ]  # call and all
            for compute in self.computes(stage) if is_single or not alone else ():
                taken = {*flat([list(each.received.values()) for each in (compute, *before)])}
                computes.append((compute, taken))
        while True:
            more = {value for compute, taken in computes if taken & found for value in compute.sent} - found
            if not more:
                return found
            found |= more

    # How the run ends.

    def _end_of_run(self) -> Iterator[str]:
        program = self.program
        if self.record.was_over is False:
            yield "the run went on after its block"
        yield from self._refusals()
        failing = [stage for stage in program.stages if stage.fails and not (stage.retries or stage.on_error)]
        raised = [stage for stage in failing if any(each.has_failed for each in self.computes(stage))]
        if raised:
            kinds = [(Ending if stage.ends else Working).__name__ for stage in raised]
            notes = [
                f"raised in compute of operator '{self.path(stage)}' ({kind})"
                for stage, kind in zip(raised, kinds, strict=True)
            ]
            found = getattr(self.record.error, "__notes__", None)
            is_left = found is None and program.block in ("raise", "twice")  # by Ctrl-C, before it has failed
            if self.ended_by != "failed" or (found != notes and not is_left):
                yield f"the run ended by {self.ended_by} with {self.record.error!r}, not by an error in {notes}"
            return
        allowed = {"finished"}
        if self._is_starved() or (self.ended_by == "starved" and program.block == "leave"):
            allowed = {"starved"}
        if program.stop is not None:
            name, turn = program.stop
            reached = len(self.record.computes.get(name, ())) >= turn
            allowed = {"stopped"} if reached else allowed
        if program.duration:
            allowed.add("duration")
        if program.block in ("raise", "twice"):
            allowed.add("stopped")
        if self.ended_by not in allowed:
            yield f"the run ended by {self.ended_by}, not {' or '.join(sorted(allowed))}"

    def _refusals(self) -> Iterator[str]:
        """Check that a run on one thread gets no queue that drops, whose producer would wait for its consumer."""
        program, record = self.program, self.record
        drops = any(port.policy != "FAULT" for stage in program.stages for port in stage.ports)
        has_one_thread = program.scheduler == "default" and program.clock == "real" and not drops
        if not has_one_thread and record.refused:
            yield f"refused {record.refused}"
        if has_one_thread and any(change.drops for change in record.attached):
            yield "got a queue that drops on one thread"

    def _is_starved(self) -> bool:
        """Return whether the run was starved; `_could_go_on` checks that nothing could go on then.

        Without a message left, a loop was disconnected that none ever entered.
        """
        never_entered = any(
            stage.name in self.changed
            and not self.computes(stage)
            and any(port.name == "back" for port in stage.ports)
            for stage in self.program.stages
        )
        return self.ended_by == "starved" and (bool(self.outcome.undelivered) or never_entered)

    # What an operator does.

    def _stage(self, stage: Stage) -> Iterator[str]:
        computes = self.computes(stage)
        if stage.kind in ("feed", "results") or stage.name in self.unseen:
            return
        if self.program.plays and stage.is_source:
            return
        yield from self._turns(stage, computes)
        turn = 0
        for compute in computes:
            turn += 1
            if compute.is_end:
                continue
            for port in stage.ports:
                if fault := self._amount(stage, port, compute):
                    yield f"compute {turn} {fault}"
            expected = self._expected(stage, compute, turn)
            if expected is not None and compute.sent and compute.sent != expected:
                yield f"compute {turn} sent {compute.sent} of {compute.received}"
        if stage.retries or stage.on_error:
            yield from self._attempts(stage, computes)
        if (
            stage.ends
            and self.ended_by == "finished"
            and not (stage.workers > 1 or stage.name in self.stopped)
        ):
            ends = [n for n, compute in enumerate(computes) if compute.is_end]
            if ends != [len(computes) - 1]:
                yield f"ended {len(ends)} times in {len(computes)} computes"
        yield from self._times(stage, computes)
        yield from self._waits(stage, [compute for compute in computes if not compute.is_end])
        yield from self._count_of_sent(stage)
        if self.is_whole:
            yield from self._could_go_on(stage, computes)

    def _expected(self, stage: Stage, compute: Compute, turn: int) -> list[Any] | None:
        if stage.is_source or (stage.workers > 1 and not stage.is_pure):
            return None
        return results_of(stage, compute.received, turn)[: stage.emits]

    def _turns(self, stage: Stage, computes: list[Compute]) -> Iterator[str]:
        """Check the number of computes."""
        done = [compute for compute in computes if not compute.is_end]
        if stage.count and len(done) > stage.count:
            yield f"computed {len(done)} times, {stage.count} at most"
        ahead = stage.kind == "async"  # one value is made ahead
        if stage.is_source and self.program.max_messages and len(done) > self.program.max_messages + ahead:
            yield f"a source computed {len(done)} times, {self.program.max_messages} at most"
        for before in stage.after:
            turns = [each for each in self.record.computes.get(before, ()) if not each.is_end]
            if len(done) > len(turns):
                yield f"computed {len(done)} times after {len(turns)} computes of {before}"

    def _amount(self, stage: Stage, port: Port, compute: Compute) -> str:
        """Check how many messages an input gave to a compute."""
        if not port.sources:
            return ""
        found, join = len(compute.received.get(port.name, [])), stage.join
        if stage.timeout:
            return ""
        if join is not None:
            least, most = (1, join.length) if join.rule == "window" else (1, 1)
        elif port.least == 0:
            least, most = 0, 1 if port.size == 1 else port.limit
        elif port.size == 0:
            least = most = len(port.sources)
            if stage.name in self.changed:
                least, most = 1, most
        elif port.size > 1:
            least, most = port.needs, port.limit
        else:
            least = most = 1
        if least <= found <= most:
            return ""
        if port.name == "back" and found == 1:
            return ""
        return f"received {found} messages at {port.name}, not {least} to {most}"

    def _attempts(self, stage: Stage, computes: list[Compute]) -> Iterator[str]:
        """Check how often each message was tried."""
        counts = self.outcome.operators.get(self.path(stage))
        groups = [list(each) for _, each in itertools.groupby(computes, key=lambda one: repr(one.received))]
        if not self.is_whole or stage.count or stage.name in self.stopped or (counts and counts.cut_off):
            groups = groups[: -1 - stage.ends]
        for group in groups:
            expected = 1
            if fails_on(stage, group[0].received):
                expected = min(stage.fails, stage.retries) + 1
            if len(group) != expected and stage.workers == 1 and not group[0].is_end:
                yield f"tried {group[0].received} {len(group)} times, not {expected}"
        given_up = self._given_up(stage)
        if counts is None or stage.workers > 1 or not self.is_whole:
            return
        if stage.on_error == "dead_letter" and counts.dead_letters != len(given_up):
            yield f"counted {counts.dead_letters} dead letters of {len(given_up)}"
        if stage.on_error == "skip" and counts.skipped != len(given_up):
            yield f"counted {counts.skipped} skipped of {len(given_up)}"
        failed = sum(compute.has_failed for compute in computes)
        if counts.retries + counts.cut_off != failed - len(given_up):
            yield f"counted {counts.retries} retries and {counts.cut_off} cut off of {failed - len(given_up)}"

    def _count_of_sent(self, stage: Stage) -> Iterator[str]:
        """Check the number of messages that the outcome says a stage sent, where it counts them."""
        counts = self.outcome.operators[self.path(stage)].sent if stage.workers == 1 else None
        messages = self.sent(stage.name)
        if counts is None or messages is None or stage.kind not in ("source", "step") or stage.routes:
            return
        if counts["out"] != len(messages) and self.is_whole:
            yield f"sent {len(messages)} messages, of which {counts['out']} were counted"

    def _given_up(self, stage: Stage) -> list[Compute]:
        """Return the failed computes that were not tried again."""
        computes = self.computes(stage)
        found, in_a_row = [], 0
        for compute in computes:
            if not compute.has_failed:
                in_a_row = 0
                continue
            in_a_row += 1
            if in_a_row > stage.retries:
                found.append(compute)
                in_a_row = 0
        return found

    def _times(self, stage: Stage, computes: list[Compute]) -> Iterator[str]:
        times = [compute.time for compute in computes if not compute.is_end]
        if times != sorted(times) and stage.workers == 1:
            yield f"went back in time: {times}"
        if not self.is_virtual:
            return
        if stage.period and stage.kind == "source":
            early = [n for n, time in enumerate(times) if time < n * stage.period]
            if early:
                yield f"computed before its period: {times}"
            if self.is_timeless and self.program.scheduler == "greedy" and not self._is_held_up(stage):
                due = [n * stage.period for n in range(len(times))]
                if times != due:
                    yield f"computed at {times}, not every {stage.period}"
        if stage.timeout and self.is_timeless:
            late = [
                n for n, (one, two) in enumerate(itertools.pairwise([0, *times])) if two - one > stage.timeout
            ]
            if late and self._is_free(stage):
                yield f"computed at {times}, with a timeout of {stage.timeout}"
            last = max(
                (each.time for name in self._names() for each in self.record.computes[name]), default=0
            )
            is_due = last > stage.timeout and self._feeders_live_at(stage, stage.timeout + 1)
            if not times and is_due and self._is_free(stage):
                yield f"never computed until {last}, with a timeout of {stage.timeout}"
            elif (
                times
                and last - times[-1] > stage.timeout
                and self._feeders_live_at(stage, last)
                and self._is_free(stage)
            ):
                yield f"computed last at {times[-1]} of {last}, with a timeout of {stage.timeout}"
        if stage.kind == "async" and not stage.is_source and self.is_timeless:
            for compute in computes:
                # Its real time counts towards a duration, which ends the run while it awaits.
                if compute.is_done and compute.ended not in (compute.time, self.program.duration):
                    yield f"virtual time went from {compute.time} to {compute.ended} while it awaited"

    def _waits(self, stage: Stage, computes: list[Compute]) -> Iterator[str]:
        """Check that a join waits no longer for messages than it may."""
        join = stage.join
        if join is None or join.wait is None or not (self.is_timeless and self._is_free(stage)):
            return
        if join.rule == "reference" and not stage.period and not stage.count:
            first = stage.ports[0]
            sent = {repr(each.value): each.time for each in self.sent(first.sources[0]) or ()}
            for compute in computes:
                arrived = max((sent.get(repr(each), 0) for each in compute.received[first.name]), default=0)
                if compute.time > arrived + join.wait + 1:
                    yield f"computed at {compute.time} what came at {arrived}, with a wait of {join.wait}"

    def _is_cut(self, stage: Stage, times: list[int]) -> bool:
        """Return whether a stage need not have computed to the end of its sources."""
        return not self.is_whole or (bool(stage.count) and len(times) >= stage.count)

    def _last_time(self, source: str) -> int:
        return max((each.time for each in self.record.computes.get(source, ())), default=0)

    def _names(self) -> list[str]:
        return [*self.record.computes]

    def _feeders_live_at(self, stage: Stage, time: int) -> bool:
        """Return whether a stage that sends to this one computed at a time or later."""
        sources = [source.partition(".")[0] for port in stage.ports for source in port.sources]
        return any(
            each.time >= time for source in sources for each in self.record.computes.get(source, ())[-1:]
        )

    def _is_free(self, stage: Stage) -> bool:
        """Return whether nothing but its own conditions holds a stage back."""
        return not self._is_held_up(stage) and stage.name not in self.stopped | self.changed

    def _is_held_up(self, stage: Stage) -> bool:
        """Return whether a stage may wait for room."""
        is_followed = any(stage.name in other.after for other in self.program.stages)
        is_slow = any(self._may_be_slow(other, port) for other, port in self.program.behind(stage.name))
        return is_followed or is_slow or stage.routes

    def _may_be_slow(self, stage: Stage, port: Port) -> bool:
        if port.policy != "FAULT":
            return False
        if stage.name in self.stopped or port.size == 0:  # it waits for the others, too
            return True
        is_plain = stage.kind == "step" and not self.program.behind(stage.name) and not stage.join
        is_plain = is_plain and stage.name not in self.unseen
        return not is_plain or bool(
            stage.period or stage.count or stage.after or len(stage.ports) > 1 or stage.retries
        )

    def _could_go_on(self, stage: Stage, computes: list[Compute]) -> Iterator[str]:
        """Check that a stage had no reason to go on when the run ended."""
        turns = len([each for each in computes if not each.is_end])
        if stage.name in self.stopped or stage.name in self.changed or stage.routes:
            return
        if stage.count and turns >= stage.count:
            return
        if stage.is_source:
            if stage.kind == "feed" or (self.program.max_messages and turns >= self.program.max_messages):
                return
            if self.program.block:  # it ends with the block
                return
            if not self._has_room(stage):
                return
            yield f"a source computed {turns} of {stage.count} times"
            return
        # With several queues, it ends when one can receive no more, and the others may.
        has_one = len(stage.ports) == 1 and stage.ports[0].size and not stage.after
        takes_rest = stage.timeout or (stage.ends and has_one)
        if takes_rest and self.ended_by == "finished" and self._is_free(stage):
            left = sum(self._left(stage, port) for port in stage.ports)
            if left:
                yield f"ended with {left} messages left"
        if stage.join is not None or stage.timeout or stage.after or stage.workers > 1 or not stage.ports:
            return
        if any(port.size == 0 for port in stage.ports) or all(port.least == 0 for port in stage.ports):
            return
        if all(self._left(stage, port) >= port.needs for port in stage.ports) and self._has_room(stage):
            yield f"could go on with {[self._left(stage, port) for port in stage.ports]} messages"

    def _left(self, stage: Stage, port: Port) -> int:
        return int(self.outcome.undelivered.get(f"{self.path(stage)}.{_name_in(stage, port)}", 0))

    def _has_room(self, stage: Stage) -> bool:
        if any(stage.name in other.after for other in self.program.stages):
            return False  # perhaps: the one behind it may not have run
        outputs = [stage.name] + [f"{stage.name}.failed"] * (stage.on_error == "dead_letter")
        return all(
            port.policy != "FAULT"
            or (
                port.limit * (len(port.sources) if port.size == 0 else 1) - self._left(other, port)
                >= stage.emits
                and not other.workers > 1
                and other.join is None
                and port.size != 0
                and other.name not in self.changed | self.unseen
            )
            for output in outputs
            for other, port in self.program.behind(output)
        )

    # What a flow carries.

    def sent(self, source: str, target: str = "") -> list[Message] | None:
        """Return what an output sent, in order, to one of the stages behind it; None if the order is not known."""
        name, _, output = source.partition(".")
        stage = self.program.stage(name)
        if stage.kind == "feed":
            emitted = self.outcome.operators[self.path(stage)].computes
            return [Message(number_of(self.path(stage), turn), None, None, 0) for turn in range(emitted)]
        if name in self.unseen:
            (port,) = stage.ports
            received = self.sent(port.sources[0], name)
            return received and [
                Message(results_of(stage, {port.name: [each.value]}, 0)[0], each.stamp, None, each.time)
                for each in received
            ]
        computes = self.computes(stage)
        given_up = {id(compute) for compute in self._given_up(stage)}
        found: list[Message] = []
        if stage.workers > 1:
            in_order = self._in_order(stage)
            if in_order is None:
                return None
            computes = in_order
        for compute in computes:
            if output:
                if id(compute) in given_up:
                    found.append(Message(_flat_message(stage, compute), None, None, compute.time))
                continue
            if compute.has_failed and (stage.retries or not compute.sent or not stage.sends_first):
                continue
            if stage.routes and target and compute.route != target:
                continue
            metadata = {"v": compute.sent[0]} if compute.sent and stage.kind in ("source", "step") else None
            found += [Message(value, compute.stamp, metadata, compute.time) for value in compute.sent]
        return found

    def _in_order(self, stage: Stage) -> list[Compute] | None:
        """Return the computes of replicas in the order of what they received."""
        port = stage.ports[0]
        sent = self.sent(port.sources[0]) if len(port.sources) == 1 or port.size == 0 else None
        if sent is None or stage.name in self.changed:
            return None
        place = {repr(message.value): n for n, message in enumerate(sent)}
        computes = self.computes(stage)
        key = port.name
        if any(not each.received[key] and not each.is_end for each in computes):
            return None
        ends = sorted((each for each in computes if each.is_end), key=lambda each: each.by)
        others = [each for each in computes if not each.is_end]
        return sorted(others, key=lambda each: place.get(repr(each.received[key][0]), -1)) + ends

    def arrived(self, stage: Stage, port: Port) -> list[Any]:
        """Return what an input gave to the computes of its stage, in order; that of attempts once."""
        if stage.kind == "results":
            return self.record.results[stage.name]
        computes = self.computes(stage)
        if stage.workers > 1:
            computes = self._in_order(stage) or computes
        found: list[Any] = []
        in_a_row = 0
        for compute in computes:
            in_a_row = in_a_row + 1 if compute.has_failed else 0
            if compute.has_failed and in_a_row <= stage.retries and compute is not computes[-1]:
                continue
            if compute.has_failed:
                in_a_row = 0
            found += compute.received.get(port.name, [])
        return found

    def _port(self, stage: Stage, port: Port) -> Iterator[str]:
        if not port.sources or stage.name in self.unseen:
            return
        arrived = self.arrived(stage, port)
        if stage.join is not None:
            yield from self._joined(stage, port, arrived)
            return
        sent = {source: self.sent(source, stage.name) for source in port.sources}
        known = {source: messages for source, messages in sent.items() if messages is not None}
        if len(known) < len(sent):
            return
        total = 0
        rest = Counter(map(repr, arrived))
        for source, messages in known.items():
            values = [message.value for message in messages]
            total += len(values)
            own = Counter(map(repr, values))
            mine = [value for value in arrived if repr(value) in own]
            rest -= Counter(map(repr, mine))
            yield from self._one_flow(stage, port, source, values, mine)
        if rest:
            yield f"received {dict(rest)}, which nobody sent"
        if stage.name not in self.changed and port.policy != "LATEST" and stage.kind != "results":
            yield from self._balance(stage, port, total, len(arrived))
        yield from self._metadata(stage, port, known)

    def _one_flow(
        self, stage: Stage, port: Port, source: str, sent: list[Any], arrived: list[Any]
    ) -> Iterator[str]:
        if port.policy == "LATEST":
            arrived = [value for value, _ in itertools.groupby(arrived)]
        # Replicas that are stopped leave what they were given.
        is_exact = port.policy == "FAULT" and (stage.workers == 1 or self.is_whole)
        if is_exact and stage.name not in self.changed:
            if arrived != sent[: len(arrived)]:
                yield f"received {arrived} of {source}, which sent {sent}"
            return
        rest = iter(sent)
        if not all(value in rest for value in arrived):
            yield f"received {arrived} of {source} out of order or twice; it sent {sent}"
        if len(port.sources) > 1 or stage.name in self.changed:
            return
        left = self._left(stage, port)
        if port.policy == "REJECT" and arrived[: port.limit] != sent[: min(port.limit, len(arrived))]:
            yield f"received {arrived} of {sent}, although it refuses the newest"
        is_sent = not self._made_ahead(port)
        if port.policy == "POP" and self.is_whole and is_sent and not left and arrived[-1:] != sent[-1:]:
            yield f"received {arrived} of {sent}, without the newest"

    def _balance(self, stage: Stage, port: Port, sent: int, arrived: int) -> Iterator[str]:
        """Check that every message is in one count."""
        name = f"{self.path(stage)}.{_name_in(stage, port)}"
        dropped = self.outcome.dropped.get(name, 0)
        discarded = 0
        if dropped and port.policy == "FAULT" and self.is_whole and not self._has_cut_short(port):
            yield f"dropped {dropped} of {sent}"
        left = self._left(stage, port)
        if stage.workers > 1:
            return
        for source in port.sources:  # results of replicas that waited for room behind them
            before = self.program.stage(source.partition(".")[0])
            results = f"{self.path(before)}[results].out"
            dropped += self.outcome.dropped.get(results, 0)
            left += self.outcome.undelivered.get(results, 0)
        counted = arrived + dropped + left + discarded
        if counted > sent or (self.is_whole and sent - counted > self._made_ahead(port)):
            yield f"{sent} sent, {arrived} received, {dropped} dropped, {left} left"

    def _made_ahead(self, port: Port) -> int:
        """Return how many messages may have been made and not sent when the run ended."""
        stages = [self.program.stage(source.partition(".")[0]) for source in port.sources]
        if any(stage.name in self.unseen for stage in stages):
            return FRAMES_AT_MOST
        return sum(stage.emits for stage in stages if stage.kind in ("yields", "async") or stage.workers > 1)

    def _has_cut_short(self, port: Port) -> bool:
        """Return whether messages may be sent to a stage that has ended: by an end, or by replicas."""
        stages = [self.program.stage(source.partition(".")[0]) for source in port.sources]
        return any(stage.ends or stage.workers > 1 for stage in stages)

    def _metadata(self, stage: Stage, port: Port, sent: dict[str, list[Message]]) -> Iterator[str]:
        """Check the metadata by port."""
        if not stage.by_port or stage.kind != "step":
            return
        of = {repr(message.value): message.metadata for messages in sent.values() for message in messages}
        for compute in self.computes(stage):
            # Of what functions and feeds send, and of dead letters, it is not known.
            expected = [of.get(repr(value)) for value in compute.received.get(port.name, [])]
            if compute.is_end or not any(expected):
                continue
            found = compute.metadata.get(port.name)
            entries = [found] if port.size == 1 else found
            if len(entries) != len(expected) or any(
                known not in (None, each) for known, each in zip(expected, entries, strict=True)
            ):
                yield f"has the metadata {found}, not {expected}"

    # Joins.

    def _joined(self, stage: Stage, port: Port, arrived: list[Any]) -> Iterator[str]:
        join = stage.join
        assert join is not None
        sent = {each.name: self.sent(each.sources[0]) for each in stage.ports if len(each.sources) == 1}
        if len(sent) < len(stage.ports) or any(messages is None for messages in sent.values()):
            return
        known: dict[str, list[Message]] = {name: messages or [] for name, messages in sent.items()}
        of = {repr(message.value): n for n, message in enumerate(known[port.name])}
        numbers = [of.get(repr(value), -1) for value in arrived]
        if -1 in numbers:
            yield f"received {arrived}, some of which nobody sent"
            return
        uses_again = join.rule in ("latest", "reuse", "rate", "reference", "window")
        if not uses_again and numbers != sorted(set(numbers)):
            yield f"received messages {numbers}, out of order or twice"
        if not self.is_whole or self.stopped or stage.count or self.program.duration:
            return
        places = {
            name: {repr(m.value): n for n, m in enumerate(messages)} for name, messages in known.items()
        }
        sets = [
            {name: [places[name].get(repr(v), -1) for v in compute.received.get(name, [])] for name in known}
            for compute in self.computes(stage)
            if not compute.is_end
        ]
        if port is not stage.ports[0]:
            return
        if self.program.max_messages or any(each.policy != "FAULT" for each in stage.ports):
            yield from self._rejecting(stage, known, sets)
            return
        if any(self._made_ahead(each) for each in stage.ports):
            return  # the last messages may have been made and not sent
        expected = self._sets(stage, known)
        if expected is not None and (
            self.ended_by == "starved" or self._left(stage, port) or not self._has_room(stage)
        ):
            expected = expected[: len(sets)]  # the stages behind it have ended
        if expected is not None and expected != sets:
            yield f"formed the sets {sets}, not {expected}"

    def _rejecting(
        self, stage: Stage, known: dict[str, list[Message]], sets: list[dict[str, list[int]]]
    ) -> Iterator[str]:
        """Check that inputs which refuse the newest keep the oldest."""
        join = stage.join
        assert join is not None
        if join.rule != "aligned" or join.tolerance or join.wait is not None or len(stage.ports) != 2:
            return
        first, other = stage.ports
        if first.policy == "FAULT":
            first, other = other, first
        if (first.policy, other.policy) != ("REJECT", "FAULT"):
            return
        keys = [message.stamp for message in known[first.name]][: first.places or 64]
        common = [key for key in keys if key in {message.stamp for message in known[other.name]}]
        found = [known[first.name][each[first.name][0]].stamp for each in sets]
        if not (self._has_room(stage) and self.ended_by == "finished"):
            common = common[: len(found)]
        if found[: len(common)] != common:
            yield f"formed sets of the timestamps {found}; those of {common} came first"

    def _sets(self, stage: Stage, known: dict[str, list[Message]]) -> list[dict[str, list[int]]] | None:
        """Return the sets that a join forms, as the numbers of messages; None if that depends on time."""
        join = stage.join
        assert join is not None
        names = [port.name for port in stage.ports]
        if join.rule == "window":
            length, step = join.length, join.step or join.length
            count = len(known[names[0]])
            full = [list(range(n, n + length)) for n in range(0, count - length + 1, step)]
            rest = list(range(len(full) * step, count))
            if rest and (not full or full[-1][-1] < count - 1):
                full.append(rest)
            return [{names[0]: each} for each in full]
        kept = {name: [(m.stamp or 0, n) for n, m in enumerate(messages)] for name, messages in known.items()}
        if join.wait is not None and not self._are_in_time(stage, known):
            return None
        if join.rule == "aligned":
            return [{name: [each[name]] for name in names} for each in tightest(kept, join.tolerance)]
        if join.rule == "reference":
            first = names[0]
            chosen = [
                {first: [n], **{name: [nearest(kept[name], key, join.tolerance)] for name in names[1:]}}
                for key, n in kept[first]
            ]
            return [each for each in chosen if [None] not in each.values()]  # type: ignore[misc]
        if join.rule == "latest":
            one, two = names
            chosen = [{one: [n], two: [latest(kept[two], key, join.tolerance)]} for key, n in kept[one]]
            return [each for each in chosen if [None] not in each.values()]  # type: ignore[misc]
        if join.rule == "rate":
            if not all(kept.values()):
                return []
            first_key = -(-max(each[0][0] for each in kept.values()) // join.step) * join.step
            end = max(each[-1][0] for each in kept.values())
            ticks = [
                {name: [latest(each, tick, join.tolerance)] for name, each in kept.items()}
                for tick in range(first_key, end + 1, join.step)
            ]
            return [each for each in ticks if [None] not in each.values()]  # type: ignore[misc]
        return None

    def _are_in_time(self, stage: Stage, known: dict[str, list[Message]]) -> bool:
        """Return whether the messages of one timestamp are sent at one time, so that none can be late."""
        join = stage.join
        assert join is not None
        assert join.wait is not None
        sources = [self.program.stage(port.sources[0]) for port in stage.ports]
        periods = {(each.period, each.stamp, each.delay) for each in sources}
        period, stamp, _ = periods.pop()
        return (
            not periods
            and period == stamp > 0
            and self.is_virtual
            and self.program.scheduler == "greedy"
            and not any(each.takes for each in self.program.stages)
            and join.lateness == 0
            and ((join.rule == "aligned" and join.tolerance < period) or join.rule == "rate")
            and all(len(self.program.behind(each.name)) == 1 for each in sources)
            and not self.program.changes
        )

    # What was set and recorded.

    def _live(self) -> Iterator[str]:
        """Check that each compute finds what was set last before it began; others may begin while it is set."""
        program = self.program
        for stage in program.stages if program.scheduler == "greedy" else ():
            known = [(place, value) for name, value, place in self.record.live if name == stage.name]
            for compute in self.computes(stage):
                expected = max((each for each in known if each[0] < compute.place), default=(0, 0))[1]
                if stage.kind in ("step", "source") and compute.live != expected:
                    yield f"{stage.name}: compute {compute.place} found {compute.live}, not {expected}"

    def _recorded(self) -> Iterator[str]:
        """Check that a recording has what each output sent."""
        recorded = self.record.recorded
        for stage in self.program.stages if recorded is not None else ():
            sent = self.sent(stage.name)
            is_known = sent is not None and stage.name not in self.unseen
            if not is_known or stage.kind not in ("source", "step") or stage.routes or not self.is_whole:
                continue
            name = self.path(stage) + "[results]" * (stage.workers > 1)
            found = recorded[f"{name}.out"]
            is_connected = bool(self.program.behind(stage.name)) and not self.program.changes
            if is_connected and found != [message.value for message in sent]:
                yield f"{stage.name}: {len(found)} of {len(sent)} messages were recorded"

    # What a tracker saw.

    def _tracked(self) -> Iterator[str]:
        statistics = self.record.statistics
        if statistics is None or not self.is_whole or self.program.block or self.program.changes:
            return
        for stage in self.program.stages:
            if stage.kind != "step" or stage.workers > 1 or stage.name in self.unseen:
                continue
            with_figures = _or_none(statistics.operator, self.path(stage))
            computes = self.computes(stage)
            if computes and (with_figures is None or with_figures.count != len(computes)):
                yield f"{stage.name}: tracked {with_figures and with_figures.count} of {len(computes)} computes"
            yield from self._paths(stage)

    def _goals(self) -> Iterator[str]:
        """Check that every message of a goal is in one count, and that it is met only if all are in time."""
        for (source, last), goal in self.record.goals.items():
            counts = {fate: getattr(goal, fate) for fate in FATES}
            name = f"the goal {source}->{last}"
            if sum(counts.values()) != goal.sent or min(counts.values()) < 0:
                yield f"{name} has {goal.sent} messages in {counts}"
            bad = [fate for fate in ("late", "failed", "lost", "outstanding", "untimed") if counts[fate]]
            if goal.is_met and bad:
                yield f"{name} is met, with {counts}"
            told = self.outcome.goals.get(f"{source}->{last}")
            if told is None or any(getattr(told, fate, counts[fate]) != counts[fate] for fate in FATES):
                yield f"{name} has {counts}, and {told} in the outcome"
            first = source.rpartition(".")[2]
            messages = self.sent(first)
            sent = None if messages is None else len(messages)
            is_exact = (
                self.is_whole and self.program.stage(first).kind == "source" and not self.program.changes
            )
            is_exact = is_exact and not any(each.after for each in self.program.stages)  # a way without data
            if is_exact and sent not in (None, goal.sent):
                yield f"{name} has {goal.sent} of {sent} messages"

    def _paths(self, stage: Stage) -> Iterator[str]:
        """Check that the tracker has a path of each message of a chain."""
        names: list[str] = [self.path(stage)]
        if self.program.behind(stage.name) or stage.ends:
            return
        before = stage
        while before.ports:
            if len(before.ports) != 1 or before.join or before.after or before.timeout:
                return
            (port,) = before.ports
            if len(port.sources) != 1 or port.size != 1 or port.policy != "FAULT" or "." in port.sources[0]:
                return
            if not port.sources:
                break
            before = self.program.stage(port.sources[0])
            if (
                before.workers > 1
                or before.name in self.unseen
                or before.ends
                or before.kind in ("yields", "async")
                or before.emits > 1
                or before.on_error
                or before.delay
            ):
                return
            names.insert(0, self.path(before))
        if before is stage or before.after or stage.on_error or any(port.least == 0 for port in before.ports):
            return
        path = _or_none(self.record.statistics.path, ",".join(names))
        expected = len(self.arrived(stage, stage.ports[0]))
        if expected and (path is None or path.count != expected):
            yield f"{stage.name}: {path and path.count} of {expected} messages have the path {','.join(names)}"


def _or_none(get: Any, name: str) -> Any:
    try:
        return get(name)
    except KeyError:
        return None


def _name_in(stage: Stage, port: Port) -> str:
    """Return the name that an input has in the application."""
    return {"yields": "message", "async": "message", "results": "in"}.get(stage.kind, port.name)


def _flat_message(stage: Stage, compute: Compute) -> Any:
    """Return the dead letter of a compute."""
    if len(stage.ports) > 1:
        return {name: _one(stage, name, values) for name, values in compute.received.items() if values}
    (name,) = compute.received
    return _one(stage, name, compute.received[name])


def _one(stage: Stage, name: str, values: list[Any]) -> Any:
    port = stage.ports[0] if stage.kind in ("yields", "async") else stage.port(name)
    return values[0] if port.size == 1 and stage.join is None else tuple(values)


def flow_faults(program: Program, record: Record) -> list[str]:
    """Return what is wrong with what the flows of a program carried."""
    model = _Model(program, record)
    return [
        f"{stage.name}.{port.name}: {fault}"
        for stage in program.stages
        for port in stage.ports
        for fault in model._port(stage, port)
    ]


def differences(program: Program, record: Record, other: Program, other_record: Record) -> Iterator[str]:
    """Yield what an orderly program received differently when it was run in another way.

    The documentation promises the same messages, in the same order, on streams, captured, as replicas and in parts.
    It does not promise how much a stage receives before the one behind it ends, which holds it up sooner or later;
    nor which replica computed what. What happens inside a captured segment, or in a replica in another process, is
    not seen, but what comes out of it.
    """
    models = _Model(program, record), _Model(other, other_record)
    for stage, same in zip(program.stages, other.stages, strict=True):
        for port, same_port in zip(stage.ports, same.ports, strict=True):
            if same.captured or same.on_processes:
                continue
            received: Sequence[Any] = [models[0].arrived(stage, port), models[1].arrived(same, same_port)]
            if record.outcome.undelivered or other_record.outcome.undelivered:
                length = min(map(len, received))
                received = [each[:length] for each in received]
            if received[0] != received[1]:
                yield f"{stage.name}.{port.name}: received {received[0]} and {received[1]}"
