"""One outcome of those of all parts."""

from __future__ import annotations

import pickle
import threading

import pytest

from headrace.core.errors import Failure
from headrace.core.outcome import EndedBy, OperatorOutcome, Outcome, Starved, Waiting
from headrace.core.ports import IOSpec
from headrace.parts.cut_flow import CutFlow, FlowCounts
from headrace.parts.outcomes import merge

FLOW = CutFlow("a.x.out -> b.y.in", "a", "b", ("a.x.out",), "b.y.in", 4, IOSpec.QueuePolicy.FAULT, True)


def part(by: EndedBy = EndedBy.FINISHED, **operators: OperatorOutcome) -> Outcome:
    named = {name.replace("_", "."): each for name, each in operators.items()}
    return Outcome(
        "app",
        by,
        1.0,
        named,
        (
            Starved("b.y", 1, (Waiting("in", (f"{FLOW.name!r} (waits itself, after 9 computes)",)),)),
            Starved("a.x", 1, (Waiting("", reason=f"room at 'in' of {FLOW.name!r}"),)),
        ),
    )


A = part(a_x=OperatorOutcome(5))
B = part(b_y=OperatorOutcome(2, undelivered={"in": 1}))


def test_it_has_the_operators_of_all_parts_and_counts_what_is_between_them() -> None:
    ends = FlowCounts(sent=5, waiting=1, dropped=2, over_link=5), FlowCounts(arrived=3, over_link=3)
    found = merge("app", ["b.y", "a.x"], [A, B], [(FLOW, ends)])
    assert list(found.operators) == ["b.y", "a.x"]
    assert (found.computes, found.undelivered, found.dropped) == (7, {"b.y.in": 4}, {"b.y.in": 2})
    assert found.lost == {}
    assert (
        str(found.starved[0])
        == "'b.y' waits for a message at 'in' from 'a.x' (waits itself, after 5 computes)"
    )
    assert str(found.starved[1]) == "'a.x' waits for room at 'in' of 'b.y'"
    assert pickle.loads(pickle.dumps(found)) == found


def test_it_has_operators_that_began_in_the_run_and_no_links() -> None:
    began = OperatorOutcome(3, undelivered={"in": 2})
    b = part(b_y=OperatorOutcome(2), b_late=began, **{FLOW.name: OperatorOutcome(9)})
    found = merge("app", ["a.x", "b.y"], [A, b], [(FLOW, (FlowCounts(), FlowCounts()))])
    assert list(found.operators) == ["a.x", "b.y", "b.late"]
    assert (found.computes, found.undelivered) == (10, {"b.late.in": 2})


def test_what_was_sent_to_a_lost_process_and_not_taken_is_lost() -> None:
    ends = FlowCounts(sent=5, waiting=1, lost=2, unanswered=3, over_link=5), None
    found = merge("app", ["a.x", "b.y"], [A], [(FLOW, ends)], restarts={"b.y": 1})
    assert (found.lost, found.undelivered, found.restarts) == ({"b.y.in": 5}, {"b.y.in": 1}, 1)
    assert "5 messages lost" in str(found)


@pytest.mark.parametrize("sender", [None, FlowCounts(sent=5, lost=1)])
def test_what_was_lost_after_its_sender_had_forgotten_it_is_lost(sender: FlowCounts | None) -> None:
    found = merge("app", ["a.x", "b.y"], [A], [(FLOW, (sender, FlowCounts()))], lost={FLOW.name: 3})
    assert found.lost == {"b.y.in": 3 if sender is None else 4}


def test_a_restarted_sender_has_not_counted_all_that_arrived() -> None:
    ends = FlowCounts(sent=2, over_link=2), FlowCounts(arrived=9, over_link=2)
    assert merge("app", ["a.x", "b.y"], [A, part()], [(FLOW, ends)]).undelivered == {}


@pytest.mark.parametrize(
    ("ways", "whole"),
    [
        ("finished finished", "finished"),
        ("finished starved", "starved"),
        ("starved duration", "duration"),
        ("stopped finished", "stopped"),
        ("failed stopped", "failed"),
    ],
)
def test_it_ended_as_the_part_that_ended_it(ways: str, whole: str) -> None:
    outcomes = [part(EndedBy(way)) for way in ways.split()]
    assert merge("app", [], outcomes).ended_by == whole


def test_an_exception_is_itself_in_another_process_or_its_text_is() -> None:
    class Local(Exception): ...

    error = ValueError("wrong")
    error.add_note("raised in compute of operator 'x'")
    found = Failure.of(error).error("fragment 'edge'")
    assert type(found) is ValueError
    assert found.__notes__[0] == "raised in compute of operator 'x'"
    assert found.__notes__[1].startswith("raised in the process of fragment 'edge'\n")
    assert repr(Failure.of(Local("text")).error("fragment 'edge'")) == "PartError('Local: text')"


class OwnError(ValueError):
    """Is made from other things than it keeps."""

    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"code {code} at {where}")
        self.code, self.where = code, where
        self.lock = threading.Lock()


def test_an_exception_with_a_constructor_of_its_own_arrives_as_itself_with_its_cause() -> None:
    try:
        try:
            try:
                raise ZeroDivisionError("the first")
            except ZeroDivisionError:
                raise KeyError("second")  # noqa: B904
        except KeyError as error:
            raise OwnError(7, where="here") from error
    except OwnError as error:
        failure = pickle.loads(pickle.dumps(Failure.of(error)))
    found = failure.error("fragment 'edge'")
    assert type(found) is OwnError
    assert (str(found), found.code, found.where) == ("code 7 at here", 7, "here")
    assert not hasattr(found, "lock"), "it cannot be sent"
    assert type(found.__cause__) is KeyError
    assert repr(found.__cause__.__context__) == "ZeroDivisionError('the first')"


def test_the_cause_of_an_exception_that_cannot_be_made_again_is_kept() -> None:
    class Local(Exception):
        pass

    error = Local("text")
    error.__cause__ = OSError(28, "no room", "a.txt")
    found = Failure.of(error).error("fragment 'edge'")
    assert repr(found) == "PartError('Local: text')"
    assert repr(found.__cause__) == repr(error.__cause__)


def test_causes_that_go_in_a_circle_are_cut() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    found, count = Failure.of(one).error("fragment 'edge'"), 0
    while found.__cause__ is not None:
        found, count = found.__cause__, count + 1
    assert count == 8
