"""Idleness: parts in which nothing can run unless another part sends or takes something.

In one process a run ends when nothing can run any more. Then operators that wait in vain are ended, or it is found
that one starves. A part cannot know this alone, because another part may send something. So each part reports when
it is idle. If all are, and both ends of each flow have counted the same, then nothing can run in the whole program.
The reports are not of one moment, so that all parts are asked twice: if nothing has changed, it was so in between.

What happens next is what would happen in one process (`decide`): the stage that comes first is done by the parts
that are at it, and the others wait. Circles of operators that wait for each other's room, and loops without a
first message, are not put together across parts: such a run finishes, and its outcome counts what was left. Before
all stages, parts that wait for answers to what came of their messages answer these (`ANSWER`): an operator may
wait for more of them, as one that takes batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace._runtime import FED_BEFORE, IN_LOOP, NONE_LEFT, STARVED, STUCK
from headrace.parts.messages import EndIdle

if TYPE_CHECKING:
    from headrace.parts.cut_flow import CutFlow

ANSWER = STUCK - 1
"""The stage at which parts give back the places of what they have received."""


@dataclass(frozen=True, slots=True)
class IdleReport:
    """What an idle part says.

    Attributes
    ----------
    passed
        What went along each flow, as this end sees it: messages and the end of the stream; credits. If nothing is
        under way, both ends say the same.
    ended
        The flows of which nothing more arrives or leaves at this end.
    stage
        What could be done in this part if nothing can run in any part; `decide` compares it.
    """

    passed: dict[str, tuple[int, int]] = field(default_factory=dict)
    ended: tuple[str, ...] = ()
    stage: int = NONE_LEFT


def is_still(reports: Mapping[str, IdleReport], flows: tuple[CutFlow, ...]) -> bool:
    """Return whether nothing is under way between parts; a part without a report has ended."""
    return all(_is_still(flow, [reports.get(flow.source), reports.get(flow.target)]) for flow in flows)


def _is_still(flow: CutFlow, reports: list[IdleReport | None]) -> bool:
    here = [report for report in reports if report is not None]
    if len(here) == 1:  # the last words of the other part are under way until they have arrived
        return flow.name in here[0].ended
    if all(flow.name in report.ended for report in here):
        return True  # perhaps by different links, if one of them was started again
    return len({report.passed[flow.name] for report in here}) < 2


def decide(reports: Mapping[str, IdleReport]) -> dict[str, EndIdle]:
    """Return what each part of a program in which nothing can run is told to do (`PartIdleness.end`)."""
    stage = min(report.stage for report in reports.values())
    parts = [part for part, report in reports.items() if report.stage == stage]
    if stage in (STARVED, NONE_LEFT):
        parts = list(reports)  # the run is over
    elif stage in (FED_BEFORE, IN_LOOP):
        parts = parts[:1]  # one operator ends, and the others may go on
    return dict.fromkeys(parts, EndIdle(stage))


class PartIdleness:
    """Notices that a part is idle, and does what is decided then.

    Attributes
    ----------
    on_idle
        Called with a report when the part is found to be idle, by a worker that must not be kept waiting.
    on_risk
        Called with the name of a flow into the part, the number of its messages that were answered and may be lost
        with the part, and the parts of which one has to be lost as well; by whoever answers.
    waits_to_be_asked
        Whether it only notes that the part was idle, and reports the next time after `ask`: parts are idle between
        frames, and a report takes longer than a frame.
    was_idle
        Whether the part was idle and has something new to report.
    """

    def __init__(self) -> None:
        self.on_idle: Callable[[IdleReport], object] | None = None
        self.on_risk: Callable[[str, int, tuple[str, ...]], object] | None = None
        self.waits_to_be_asked = False
        self.was_idle = False
        self._is_asked = False
        self._operators: list[Any] = []
        self._receivers: list[Any] = []
        self._engine: Any = None
        self.decided: EndIdle | None = None  # and is to be done
        self._last: IdleReport | None = None

    def compose(self, senders: Iterable[Any], receivers: Iterable[Any]) -> None:
        """Take on the link operators of a graph."""
        self._receivers = list(receivers)
        self._operators = [*senders, *self._receivers]
        self.decided = self._last = None

    def begin(self, engine: Any) -> None:
        """Watch a run."""
        self._engine = engine
        engine.on_idle = self._on_idle

    def ask(self) -> None:
        """Report again, as soon as the part is idle; from any thread."""
        self._last = None
        self.was_idle = False
        self._is_asked = True
        self._wake()

    def relieve(self) -> None:
        """Let no sender wait because this part is never idle; called now and then, from any thread."""
        for each in self._receivers:
            each.relieve()

    def end(self, decided: EndIdle) -> None:
        """Do what was decided, because nothing can run in any part; from any thread."""
        self._last, self.decided = None, decided
        self._wake()

    def _wake(self) -> None:
        waiting = next((each for each in self._operators if not each.is_done), None)
        if waiting is not None:
            waiting.announce()

    # With the lock of the engine held.

    def settle(self) -> None:
        """Do what was decided, if anything was; called when conditions are evaluated."""
        decided, self.decided = self.decided, None
        if decided is None:
            return
        if decided.stage == ANSWER:
            for each in self._receivers:
                each.answer()
        elif not self._engine.ends.end_stage(decided.stage):
            self._engine.request_stop("")

    def _on_idle(self, waits_for_events: bool) -> None:
        for each in self._receivers:
            each.note_idle()
        if waits_for_events:
            self._report()

    def _has_passed(self) -> bool:
        """Return whether something went along the flows since the last report."""
        last = self._last
        return last is None or any(each.passed != last.passed[each.flow.name] for each in self._operators)

    def _report(self) -> None:
        if self.waits_to_be_asked and not self._is_asked:
            # A report with the same counts would wake this part and the driver for nothing. What else may have
            # changed is in the answers to the driver's questions, which come before the end.
            self.was_idle = self.was_idle or self._has_passed()
            return
        engine, on_idle = self._engine, self.on_idle
        waiting = [each for each in self._operators if not each.is_done]
        if on_idle is None or engine.stopping or not all(each.waits_for_link for each in waiting):
            return
        if engine.outstanding != sum(each.is_outstanding for each in waiting):
            return  # something else is waited for
        is_withholding = any(each.is_withholding for each in self._receivers if not each.is_done)
        report = IdleReport(
            {each.flow.name: each.passed for each in self._operators},
            tuple(each.flow.name for each in self._operators if each.is_over),
            ANSWER if is_withholding else engine.ends.find_stage()[0],
        )
        if report != self._last:
            self._last = report
            self._is_asked = False
            on_idle(report)
