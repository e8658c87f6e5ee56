"""Numbers, names and states that a program gives are checked where they are given, and the error names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import Application, ConditionType, CountCondition, EventBasedScheduler, GreedyScheduler
from headrace.conditions import (
    AsynchronousCondition,
    CudaStreamCondition,
    ExpiringMessageAvailableCondition,
    MessageAvailableCondition,
    MultiMessageAvailableCondition,
    OrConditionCombiner,
    PeriodicCondition,
)
from headrace.core.values import whole_number
from headrace.resources import (
    BlockMemoryPool,
    CudaGreenContextPool,
    CudaStreamPool,
    RealtimeClock,
    SyntheticClock,
    ThreadPool,
)
from tests.harness import App, Step, run, source


def set_state(value: Any) -> None:
    AsynchronousCondition().event_state = value


# Of each way in which a number is declared or taken, one.
NUMBERS: dict[str, Callable[[Any], object]] = {
    "parameter 'worker_thread_number' of EventBasedScheduler 'eventbasedscheduler'": (
        lambda v: EventBasedScheduler(worker_thread_number=v)
    ),
    "each number in EventBasedScheduler 'eventbasedscheduler': pin_cores": (
        lambda v: EventBasedScheduler(pin_cores=[v])
    ),
    "each number in thread pool 'thread_pool': pin_cores": lambda v: ThreadPool().add([], pin_cores=[v]),
    "parameter 'count' of CountCondition 'count_condition'": lambda v: CountCondition(None, v),
    "condition 'count_condition': count": lambda v: setattr(CountCondition(), "count", v),
    "parameter 'front_stage_max_size' of MessageAvailableCondition 'message_available_condition'": (
        lambda v: MessageAvailableCondition(None, 1, v)
    ),
    "each number in MultiMessageAvailableCondition 'multi_message_condition': min_sizes": (
        lambda v: MultiMessageAvailableCondition(None, "PerReceiver", min_sizes=[v])
    ),
    "clock 'synthetic_clock': new_time_ns": lambda v: SyntheticClock().advance_to(v),
    "BlockMemoryPool 'block_memory_pool': num_blocks": lambda v: BlockMemoryPool(None, 0, 1024, v),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_what_is_no_whole_number_is_refused_by_name(what: str) -> None:
    for wrong in ("2", 1.5, True, float("nan"), [1], object):
        with pytest.raises(TypeError, match=re.escape(f"{what} must be an int, not ")):
            NUMBERS[what](wrong)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: ThreadPool(None, 0),
            "parameter 'initial_size' of ThreadPool 'thread_pool' must be at least 1, not 0",
        ),
        (lambda: ThreadPool(None, 10**5000), "must be at most 1024, not <builtins.int that cannot be shown>"),
        (lambda: MessageAvailableCondition(None, -1), "must be at least 0, not -1"),
        (lambda: ExpiringMessageAvailableCondition(None, 0), "must be at least 1, not 0"),
        (lambda: CudaStreamPool(None, 0, 0, 0, -1), "must be at least 0, not -1"),
        (
            lambda: CudaStreamPool(None, 0, 0, 1),
            "'stream_priority' of CudaStreamPool 'cuda_stream_pool' must",
        ),
        (lambda: CudaStreamPool(None, 0, 4), "must be one of 0, 1, not 4"),
        (lambda: CudaGreenContextPool(num_partitions=2, flags=1), "must be one of 0, not 1"),
        (lambda: BlockMemoryPool(None, 0, 8, 10**30), "num_blocks must be from 1 to 1048576, not 1000"),
        (lambda: EventBasedScheduler(pin_cores=[0, -1]), "pin_cores must be at least 0, not -1"),
        (lambda: RealtimeClock(None, 0, 0), "initial_time_scale must be positive, not 0"),
        (
            lambda: GreedyScheduler(check_recession_period_ms=-1),
            "check_recession_period_ms must not be negative, and is -1",
        ),
    ],
)
def test_a_number_out_of_bounds_is_refused_with_the_bounds(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda v: EventBasedScheduler(pin_cores=v), "pin_cores must be a list of ints, such as [0, 1]"),
        (lambda v: ThreadPool().add([], pin_cores=v), "pin_cores must be a list of ints, such as [0, 1]"),
        (lambda v: ThreadPool().add(v), "thread pool 'thread_pool': add takes an operator or a list of"),
        (lambda v: OrConditionCombiner(None, v), "'or_combiner': terms must be"),
        (lambda v: MultiMessageAvailableCondition(None, receivers=[v]), "receivers must be names of ports"),
        (
            lambda v: CudaStreamCondition(None, v),
            "'receiver' of CudaStreamCondition 'cuda_stream_condition' must be a str",
        ),
        (
            lambda v: MessageAvailableCondition(None, receiver=v),
            "'receiver' of MessageAvailableCondition 'message_available_condition' must be a str",
        ),
        (lambda v: MultiMessageAvailableCondition(None, v), "sampling_mode must be 'SumOfAll' or"),
        (lambda v: PeriodicCondition(None, 1, v), "policy must be a PeriodicConditionPolicy or one of"),
        (
            set_state,
            "condition 'async_condition': event_state must be an AsynchronousEventState (READY, WAIT",
        ),
        (lambda v: RealtimeClock(None, v), "initial_time_offset must be a number"),
        (lambda v: RealtimeClock(None, 0, v), "initial_time_scale must be a number"),
        (lambda v: RealtimeClock().set_time_scale(v), "the time scale must be a number"),
        (lambda v: EventBasedScheduler(name=v), "the name of an EventBasedScheduler must be a str"),
        (lambda v: CountCondition(name=v), "the name of a CountCondition must be a str"),
    ],
)
@pytest.mark.parametrize("wrong", [[1.5], object, False])
def test_what_is_of_the_wrong_kind_is_refused_by_name(
    make: Callable[[Any], Any], text: str, wrong: Any
) -> None:
    if (wrong == [1.5]) and "list of ints" in text:
        text = "pin_cores must be an int, not 1.5"
    with pytest.raises(TypeError, match=re.escape(text)):
        make(wrong)


def test_a_number_of_messages_is_checked_where_a_port_declares_it() -> None:
    def compose(app: App) -> None:
        last = Step(app, inputs=["in"], name="last")
        last.spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size="2")
        app.add_flow(source(app, [1]), last)

    with pytest.raises(TypeError, match="input 'in' of operator 'last': min_size must be an int, not '2'"):
        run(compose)


def test_the_ports_of_a_condition_are_names() -> None:
    app = Application([])
    step = Step(app, inputs=["in", "other"], name="step")
    with pytest.raises(TypeError, match="operator 'step': the ports of a condition must be names of ports"):
        step.spec.or_combine_port_conditions(3)  # type: ignore[arg-type]
    step.spec.or_combine_port_conditions("in")  # one name, and not its letters
    assert step.spec.or_combined == [("in",)]


def test_a_whole_number_of_any_library_is_one() -> None:
    number = whole_number(np.int64(3), "it")
    assert (number, type(number)) == (3, int)
    assert EventBasedScheduler(worker_thread_number=np.int8(3), pin_cores=np.array([0, 1])).pin_cores == (
        0,
        1,
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("period", [0, 0.25, "0ms"])
def test_a_period_of_polling_is_never_so_short_that_an_idle_run_uses_a_core(period: Any) -> None:
    assert GreedyScheduler(check_recession_period_ms=period).check_recession_period_ms == 1
