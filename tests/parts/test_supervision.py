"""What the driver decides about its processes, without any."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace._runtime import FED_BEFORE, IN_LOOP, NONE_LEFT, STARVED, STUCK
from headrace.core.errors import DigestError, Failure, PartLost, PeerLost
from headrace.core.outcome import EndedBy, Outcome
from headrace.core.ports import IOSpec
from headrace.parts.cut_flow import CutFlow
from headrace.parts.idleness import IdleReport, PartIdleness, decide
from headrace.parts.lines import Lines
from headrace.parts.messages import Ask, Cancel, Ended, EndIdle, Leave, Stop
from headrace.parts.supervision import (
    GRACE,
    SILENCE,
    START,
    Join,
    Kill,
    Part,
    Spawn,
    State,
    Supervisor,
    Tell,
    Warn,
)

SAME = {"operator 'a.source'": "a camera"}
FLOW = CutFlow("a.x.out -> b.y.in", "a", "b", ("a.x.out",), "b.y.in", 4, IOSpec.QueuePolicy.FAULT, True)


def supervisor(**on_loss: str) -> Supervisor:
    parts = {name: Part(name, on_loss.get(name, "stop")) for name in ("a", "b", "c")}
    return Supervisor(parts, [FLOW], SAME)


def started(now: float = 0.0, **on_loss: str) -> Supervisor:
    """Return a supervisor whose parts all run."""
    made = supervisor(**on_loss)
    made.begin()
    for name in made.parts:
        made.composed(name, SAME, now)
    for name in made.parts:
        made.started(name, now)
    return made


def ended(by: EndedBy = EndedBy.FINISHED, error: BaseException | None = None) -> Ended:
    return Ended(Outcome("app", by, 1.0), None if error is None else Failure.of(error))


def test_who_waits_for_room_at_one_that_has_ended_goes_on_before_the_run_ends() -> None:
    reports = {"a": IdleReport(stage=STUCK), "b": IdleReport(stage=NONE_LEFT)}
    assert decide(reports) == {"a": EndIdle(STUCK)}


@pytest.mark.parametrize(
    ("stage", "told"),
    [(STUCK, "ab"), (STARVED, "abc"), (FED_BEFORE, "a"), (IN_LOOP, "a"), (NONE_LEFT, "abc")],
)
def test_one_operator_ends_at_a_time_where_the_others_may_then_go_on(stage: int, told: str) -> None:
    reports = {part: IdleReport(stage=stage) for part in "ab"} | {"c": IdleReport(stage=NONE_LEFT)}
    assert decide(reports) == {part: EndIdle(stage) for part in told}


def test_processes_leave_when_all_have_reported() -> None:
    """One that has ended its run may still be read from."""
    made = started(b="go_on")
    assert made.ended("a", ended(), 1) == []
    assert made.next_time() is not None
    assert made.tick(2.0) == []
    made.exited("b", "was killed", 2)
    assert made.ended("c", ended(), 3) == [Tell("a", Leave()), Tell("c", Leave())]
    assert made.tick(3 + GRACE) == [Kill("a"), Kill("c")]


def test_links_are_made_when_all_have_composed_the_same() -> None:
    made = supervisor()
    assert made.begin() == [Spawn("a"), Spawn("b"), Spawn("c")]
    assert made.composed("a", SAME, 0) == made.composed("c", SAME, 0) == []
    assert made.composed("b", SAME, 0) == [Join((FLOW,), ("a", "b", "c"))]


def test_another_program_is_an_error_that_says_what_differs() -> None:
    made = supervisor()
    made.composed("a", SAME, 0)
    actions = made.composed("b", {"operator 'a.source'": "a file"}, 0)
    assert actions == [Tell("a", Cancel()), Tell("b", Cancel()), Tell("c", Cancel())]
    assert isinstance(made.failure, DigestError)
    assert "operator 'a.source' is a camera in the driver and a file in the process of fragment 'b'" in str(
        made.failure
    )


def test_an_error_stops_the_others_and_comes_before_its_consequences() -> None:
    made = started()
    assert made.ended("a", ended(error=PeerLost("b is gone")), 1) == [
        Tell("b", Stop()),
        Tell("c", Stop()),
    ]
    assert made.ended("b", ended(error=LookupError("why")), 1) == []
    assert made.ended("c", ended(EndedBy.STOPPED), 1) == [Tell(name, Leave()) for name in "abc"]
    assert isinstance(made.failure, LookupError)
    assert made.failure.__notes__[0].startswith("raised in the process of fragment 'b'\n")
    for name in "abc":
        made.exited(name, "", 1)
    assert all(part.state is State.GONE for part in made.parts.values())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupt_of_any_part_comes_before_errors(interrupt: BaseException) -> None:
    made = started()
    made.ended("a", ended(error=LookupError()), 1)
    made.ended("b", ended(error=interrupt), 1)
    assert type(made.failure) is type(interrupt)


def test_a_process_that_the_end_of_the_run_interrupts_is_no_interrupt() -> None:
    made = supervisor()
    made.composed("a", SAME, 0)
    assert made.stop(0) == [Tell("a", Cancel()), Tell("b", Cancel()), Tell("c", Cancel())]
    made.ended("a", ended(error=KeyboardInterrupt()), 0)
    made.exited("b", "was ended by SIGINT", 0, KeyboardInterrupt())
    assert made.failure is None


@pytest.mark.parametrize("by", [EndedBy.STOPPED, EndedBy.DURATION])
def test_a_part_that_is_stopped_stops_all(by: EndedBy) -> None:
    made = started()
    assert made.ended("b", ended(by), 1) == [Tell("a", Stop()), Tell("c", Stop())]
    assert (made.failure, made.ended_by) == (None, by)


@pytest.mark.parametrize(
    ("steps", "doing"),
    [(0, "before it had composed"), (1, "before its links"), (2, "operators started"), (3, "while it ran")],
)
@pytest.mark.parametrize("policy", ["stop", "restart", "go_on"])
def test_a_loss_is_an_error_unless_the_policy_lets_a_started_part_go(
    steps: int, doing: str, policy: str
) -> None:
    made = supervisor(b=policy)
    for name in {0: "", 1: "b"}.get(steps, "abc"):
        made.composed(name, SAME, 0)
    for name in "abc" if steps == 3 else "":
        made.started(name, 0)
    actions = made.exited("b", "its process was ended by SIGKILL", 1)
    if steps < 3 or policy == "stop":
        assert isinstance(made.failure, PartLost)
        assert doing in str(made.failure)
        assert made.is_stopping
    else:
        assert made.failure is None
        assert isinstance(actions[0], Warn)
        assert actions[1:] == ([Spawn("b")] if policy == "restart" else [])


def test_a_restarted_part_gets_links_to_those_that_are_there() -> None:
    made = started(b="restart")
    made.exited("b", "was killed", 1)
    assert made.composed("b", SAME, 2) == [Join((FLOW,), ("b",))]
    made.started("b", 2)
    made.ended("a", ended(), 3)
    made.exited("b", "was killed", 4)
    assert made.composed("b", SAME, 5) == [Join((), ("b",))]
    assert (made.parts["b"].epoch, made.restarts) == (2, {"b": 2})


@pytest.mark.parametrize(
    ("lost", "count"),
    [("b", 0), ("c", 0), ("bc", 3), ("cb", 3), ("bb", 0), ("bbc", 3)],
)
def test_answered_messages_are_lost_with_their_part_and_the_one_that_holds_them(
    lost: str, count: int
) -> None:
    made = started(b="restart", c="restart")
    made.at_risk("b", FLOW.name, 4, ["c"])
    made.at_risk("b", FLOW.name, 3, ["c"])
    for now, name in enumerate(lost):
        made.exited(name, "was killed", now)
        made.composed(name, SAME, now)
        made.started(name, now)
    assert made.lost[FLOW.name] == count


@pytest.mark.parametrize("policy", ["restart", "go_on"])
def test_messages_that_are_answered_early_are_lost_with_their_part(policy: str) -> None:
    made = started(b=policy)
    made.at_risk("b", FLOW.name, 2, ["b"])
    assert made.lost[FLOW.name] == 0
    made.exited("b", "was killed", 1)
    assert made.lost == {FLOW.name: 2}


def test_neighbours_that_are_lost_at_once_are_linked_when_both_are_there() -> None:
    made = started(a="restart", b="restart")
    made.exited("a", "was killed", 1)
    made.exited("b", "was killed", 1)
    assert made.composed("b", SAME, 2) == []
    assert made.composed("a", SAME, 3) == [Join((FLOW,), ("a", "b"))]


def test_silence_is_noticed_within_three_seconds_and_not_too_early() -> None:
    made = started(now=10.0)
    for name in "ac":
        made.beat(name, 12.8)
    made.beat("b", 9.0)  # a note from before something else was heard
    assert made.next_time() == 12.85
    assert made.tick(12.84) == []
    assert made.tick(12.85) == [Kill("b"), Tell("a", Stop()), Tell("c", Stop())]
    assert "said nothing for 2.85 s" in str(made.failure)
    assert made.exited("b", "was ended by SIGKILL", 13.0) == []


def test_processes_may_be_silent_before_their_run_and_while_the_driver_is_stopped() -> None:
    made = supervisor()
    assert made.next_time() is None
    assert made.tick(1000.0) == []
    made = started(now=10.0)
    made.forgive(100.0)
    assert made.tick(102.0) == []


def test_a_process_that_is_frozen_while_it_starts_is_given_up_and_named() -> None:
    made = supervisor(b="restart")
    made.beat("b", 0.0)  # nothing was heard of it
    assert made.next_time() is None
    for name in "abc":
        made.beat(name, 10.0)
    made.beat("b", 12.0)
    made.composed("a", SAME, 70.0)
    made.beat("c", 70.0)
    assert made.tick(12.0 + SILENCE + START - 0.01) == [Kill("a"), Tell("b", Cancel()), Tell("c", Cancel())]
    assert "fragment 'a': its process has said nothing for 2.85 s" in str(made.failure)
    made = supervisor(b="restart")
    for name in "abc":
        made.beat(name, 10.0 + (name != "b"))
    assert made.next_time() == 10.0 + SILENCE + START
    assert made.tick(9.9 + SILENCE + START) == []
    assert made.tick(10.0 + SILENCE + START) == [Kill("b"), Tell("a", Cancel()), Tell("c", Cancel())]
    assert "fragment 'b': its process has said nothing for 62.85 s (it is frozen, or a call" in str(
        made.failure
    )
    assert made.exited("b", "was ended by SIGKILL", 100.0) == []


def test_the_time_of_a_process_that_is_started_again_begins_when_it_is_started() -> None:
    made = started(now=10.0, b="restart")
    made.exited("b", "was killed", 12.0)
    made.forgive(13.0)
    assert made.parts["b"].heard_at is None
    assert made.tick(14.0) == []


def test_a_process_that_does_not_exit_is_killed() -> None:
    made = started()
    for name in "abc":
        made.ended(name, ended(), 1)
    for name in "ac":
        made.exited(name, "ended", 1)
    assert made.tick(1 + GRACE) == [Kill("b")]
    assert made.exited("b", "was killed", 2 + GRACE) == []
    assert made.failure is None


def idle(sent: int, stage: int = NONE_LEFT) -> IdleReport:
    return IdleReport({FLOW.name: (sent, sent)}, (), stage)


def test_the_program_ends_when_all_are_idle_twice_and_nothing_is_under_way() -> None:
    made = started()

    def report(sent: int, received: int, wave: int = 0, names: str = "abc") -> list[Any]:
        reports = {"a": idle(sent), "b": idle(received, STARVED), "c": IdleReport()}
        return [action for name in names for action in made.idle(name, reports[name], wave, 1)]

    def asks(wave: int) -> list[Any]:
        return [Tell(name, Ask(wave)) for name in "abc"]

    assert report(3, 2) == []  # one is under way
    assert report(3, 3, names="b") == asks(1)
    assert report(3, 3) == []  # said before the question came
    assert report(3, 3, 1, "ab") == []
    assert report(4, 4, 1, "a") == report(4, 4, 1, "b") == []  # something passed meanwhile
    assert report(4, 4, 1, "c") == asks(2)
    assert report(4, 4, 1) == []
    assert report(4, 4, 2) == [Tell(name, EndIdle(STARVED)) for name in "abc"]


def test_parts_that_were_told_nothing_need_not_report_again() -> None:
    """They have nothing new to report, unless what the others do reaches them."""
    made = started()
    reports = {"a": idle(3), "b": idle(3, IN_LOOP), "c": IdleReport()}
    for wave in (0, 1):
        found = [action for name in "abc" for action in made.idle(name, reports[name], wave, 1)]
    assert found == [Tell("b", EndIdle(IN_LOOP))]
    reports["b"] = idle(3)
    assert made.idle("b", reports["b"], 0, 1) == [Tell(name, Ask(2)) for name in "abc"]
    found = [action for name in "abc" for action in made.idle(name, reports[name], 2, 1)]
    assert found == [Tell(name, EndIdle(NONE_LEFT)) for name in "abc"]


def test_a_flow_that_has_ended_at_both_ends_brings_nothing_whatever_they_have_counted() -> None:
    """One of them may have been started again, and counts what came over a link that was refused."""
    made = started()
    reports = {"a": IdleReport({FLOW.name: (-1, -1)}, (FLOW.name,)), "b": idle(1), "c": IdleReport()}
    assert [action for name in "abc" for action in made.idle(name, reports[name], 0, 1)] == []
    has_ended = replace(reports["b"], ended=(FLOW.name,))
    assert made.idle("b", has_ended, 0, 1) == [Tell(name, Ask(1)) for name in "abc"]


def test_a_part_that_ends_is_not_waited_for_any_more() -> None:
    made = started()
    made.idle("a", idle(3), 0, 1)
    made.idle("b", idle(3), 0, 1)
    assert made.ended("c", ended(), 1) == [Tell("a", Ask(1)), Tell("b", Ask(1))]
    assert made.idle("a", idle(3), 1, 1) == []
    assert made.idle("b", idle(3), 1, 1) == [Tell(name, EndIdle(NONE_LEFT)) for name in "ab"]


def test_a_pipe_that_has_ended_keeps_its_number_until_it_is_closed() -> None:
    """The driver knows it by its number, and another file that got that number would be taken for it."""
    reading, writing = os.pipe()
    lines = Lines(os.fdopen(reading, "rb", 0), lambda data: None)
    os.close(writing)
    assert not lines.read()
    assert lines.is_closed
    assert lines.fileno() == reading
    os.fstat(reading)
    lines.close()
    lines.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


def test_a_part_that_is_idle_between_frames_reports_when_it_is_asked() -> None:
    idleness, reports, announced = PartIdleness(), [], []
    link = SimpleNamespace(
        is_done=False,
        is_over=False,
        waits_for_link=True,
        is_outstanding=True,
        is_withholding=False,
        flow=FLOW,
        passed=(3, 3),
        note_idle=lambda: None,
        announce=lambda: announced.append(True),
    )
    engine = SimpleNamespace(
        stopping=False,
        outstanding=1,
        on_idle=None,
        nodes=[],
        ends=SimpleNamespace(find_stage=lambda: (NONE_LEFT,)),
    )
    idleness.on_idle, idleness.waits_to_be_asked = reports.append, True
    idleness.compose([link], [])
    idleness.begin(engine)
    engine.on_idle(True)
    assert (idleness.was_idle, reports) == (True, [])
    idleness.ask()
    assert (idleness.was_idle, announced) == (False, [True])
    engine.on_idle(False)  # it waits for a time, too
    assert reports == []
    engine.on_idle(True)
    assert reports == [IdleReport({FLOW.name: (3, 3)}, (), NONE_LEFT)]
    engine.on_idle(True)  # nothing has passed since
    assert (idleness.was_idle, len(reports)) == (False, 1)
    link.passed = (4, 3)
    engine.on_idle(True)
    assert (idleness.was_idle, len(reports)) == (True, 1)
