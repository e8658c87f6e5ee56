"""What holds for every graph, whatever its shape and its conditions. Time is virtual."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness import SCHEDULERS, MakeScheduler
from tests.limits import examples
from tests.random_programs.graphs import check_conserved, check_nothing_ready, orderly, run_plan, unruly

pytestmark = pytest.mark.turns()  # every test under every scheduler

several = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@several
@given(st.randoms(use_true_random=False))
def test_the_three_schedulers_agree(random: Random) -> None:
    plan = orderly(random)
    outcomes = [run_plan(plan, scheduler) for scheduler in SCHEDULERS]
    for outcome in outcomes:
        check_conserved(plan, outcome)
        assert outcome.app.dropped().keys() <= {
            f"{stage.name}.out" for stage in outcome.stages if not stage._headrace.outgoing
        }
    first, *others = [outcome.received() for outcome in outcomes]
    for other in others:
        assert other == first


@several
@given(st.randoms(use_true_random=False))
def test_every_message_is_delivered_once_and_in_order_or_counted(
    scheduler: MakeScheduler, random: Random
) -> None:
    plan = unruly(random)
    check_conserved(plan, run_plan(plan, scheduler))


@several
@given(st.randoms(use_true_random=False))
def test_a_run_ends_only_when_nothing_can_go_on(scheduler: MakeScheduler, random: Random) -> None:
    """No deadlock is declared while an event or a time is outstanding: no stage is left able to run."""
    plan = orderly(random)
    check_nothing_ready(plan, run_plan(plan, scheduler))


@several
@given(st.randoms(use_true_random=False))
def test_a_failure_anywhere_comes_out_once_and_leaves_nothing_running(
    scheduler: MakeScheduler, random: Random
) -> None:
    plan = unruly(random, faults=True)
    raised = []
    try:
        check_conserved(plan, run_plan(plan, scheduler))
    except ZeroDivisionError as error:
        raised = error.__notes__
    failing = next(n for n, stage in enumerate(plan.stages) if stage.fails_at)
    assert raised in ([], [f"raised in compute of operator 's{failing}' (Stage)"])
