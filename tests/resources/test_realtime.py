"""Real-time threads: the kernel is asked for the policy of an operator, and a refusal does not stop the run."""

from __future__ import annotations

import os
import platform
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import CountCondition
from headrace._runtime.scheduling import realtime_thread
from headrace.resources import SchedulingPolicy
from tests.harness import App, MakeScheduler, Step, run, threaded

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="needs Linux")


def may_schedule(policy: int) -> bool:
    """Return whether this process has the right; asked on a thread of its own, which ends."""
    allowed: list[bool] = []

    def ask() -> None:
        try:
            os.sched_setscheduler(0, policy, os.sched_param(1))
            allowed.append(True)
        except OSError:
            allowed.append(False)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return allowed[0]


def compose_with(seen: dict[str, tuple[int, int]], **wanted: Any) -> Any:
    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            flag = os.SCHED_RESET_ON_FORK
            seen[op.name] = os.sched_getscheduler(0) & ~flag, os.sched_getparam(0).sched_priority

        made = [Step(app, CountCondition(app, 2), body=body, name=name) for name in ("fast", "plain")]
        for operator in made:
            app.add_operator(operator)
        app.make_thread_pool("pool").add_realtime(made[0], **wanted)

    return compose


@threaded
@pytest.mark.parametrize(
    "policy", [SchedulingPolicy.SCHED_FIFO, "SCHED_RR", 1], ids=["enum", "name", "number"]
)
def test_an_operator_runs_with_its_policy_and_no_other_does(scheduler: MakeScheduler, policy: Any) -> None:
    if not may_schedule(os.SCHED_FIFO):
        pytest.skip("this process has no right to real-time priorities")
    seen: dict[str, tuple[int, int]] = {}
    run(compose_with(seen, sched_policy=policy, sched_priority=7), scheduler)
    number = os.SCHED_RR if policy == "SCHED_RR" else os.SCHED_FIFO
    assert seen == {"fast": (number, 7), "plain": (os.SCHED_OTHER, 0)}


@threaded
def test_an_operator_without_the_right_runs_normally_and_is_told(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(realtime_thread.os, "sched_setscheduler", refuse)
    seen: dict[str, tuple[int, int]] = {}
    run(compose_with(seen, sched_policy="SCHED_FIFO", sched_priority=10), scheduler)
    assert seen == {"fast": (os.SCHED_OTHER, 0), "plain": (os.SCHED_OTHER, 0)}
    (record,) = [record for record in caplog.records if record.name == "headrace.threads"]
    assert "operator 'fast' runs at normal priority, since SCHED_FIFO was refused" in record.message
    assert "CAP_SYS_NICE" in record.message


@threaded
def test_a_deadline_is_asked_for_by_the_system_call(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[int, ...]] = []

    class Library:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def syscall(self, number: Any, thread: Any, attributes: Any, flags: Any) -> int:
            sent = attributes._obj
            asked.append((sent.size, sent.policy, sent.flags, sent.runtime, sent.deadline, sent.period))
            return 0

    monkeypatch.setattr(realtime_thread.ctypes, "CDLL", Library)
    machine = SimpleNamespace(machine="x86_64")
    monkeypatch.setattr(realtime_thread.os, "uname", lambda: machine)
    wanted = {"sched_policy": "SCHED_DEADLINE", "sched_runtime": 2_000_000, "sched_deadline": 9_000_000}
    run(compose_with({}, **wanted), scheduler)
    assert asked == [(48, 6, 1, 2_000_000, 9_000_000, 9_000_000)]
    machine.machine = "s390x"
    run(compose_with({}, **wanted), scheduler)
    assert "does not know the system call on s390x" in caplog.text


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the system call is not known")
def test_the_kernel_takes_a_deadline(caplog: pytest.LogCaptureFixture) -> None:
    seen: dict[str, tuple[int, int]] = {}
    compose = compose_with(
        seen, sched_policy="SCHED_DEADLINE", sched_runtime=1_000_000, sched_deadline=50_000_000
    )
    run(compose, lambda app: _event_based(app))
    assert seen["fast"] == (6, 0) or "runs at normal priority, since SCHED_DEADLINE" in caplog.text


def _event_based(app: App) -> Any:
    from headrace.schedulers import EventBasedScheduler

    return EventBasedScheduler(app, worker_thread_number=2)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"sched_policy": "SCHED_OTHER"}, "sched_policy must be one of 'SCHED_FIFO', 'SCHED_RR'"),
        ({"sched_policy": 0}, "not 0"),
        ({"sched_policy": None}, "not None"),
        (
            {"sched_policy": "SCHED_FIFO"},
            "operator 'a': sched_priority of SCHED_FIFO must be from 1 to 99, not 0",
        ),
        ({"sched_policy": 2, "sched_priority": 100}, "from 1 to 99, not 100"),
        ({"sched_policy": 6}, "1024 <= sched_runtime <= sched_deadline <= sched_period.*not 0, 0, 0"),
        (
            {"sched_policy": 6, "sched_runtime": 5000, "sched_deadline": 9000, "sched_period": 8000},
            "not 5000, 9000, 8000",
        ),
        (
            {"sched_policy": 6, "sched_runtime": 5000, "sched_deadline": 9000, "pin_cores": [0]},
            "leave out pin_cores",
        ),
        ({"sched_policy": 1, "sched_priority": 1, "pin_operator": False}, "leave out pin_operator=False"),
    ],
)
def test_what_no_kernel_would_take_is_refused(wanted: Any, message: str) -> None:
    app = App(lambda app: None)
    pool = app.make_thread_pool("pool")
    with pytest.raises(ValueError, match=message):
        pool.add_realtime(Step(app, name="a"), **wanted)
    assert pool.operators == []
