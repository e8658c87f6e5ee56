"""The controller itself: on toys small enough to know every schedule of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.processes import output_of

from . import exploring
from .controller import Controller, Strategy, Task
from .effects import Effects
from .exploring import Replay, explore, format_schedule, parse_schedule, replay, sample
from .faults import Fault, Kind
from .planting import planted
from .plants import PLANTS
from .primitives import ControlledThreading, ControlledTime
from .scenario import run
from .scenarios import SCENARIOS

Toy = Callable[[Controller, ControlledThreading], None]


class Every:
    """Takes every way through a toy, one after the other."""

    def __init__(self) -> None:
        self.path: list[tuple[int, int]] = []

    def choose(self, number: int, options: list[Task], costs: list[int]) -> int:
        if number == len(self.path):
            self.path.append((0, len(options)))
        assert self.path[number][1] == len(options), "the same schedule gave another run"
        return self.path[number][0]

    def advance(self) -> bool:
        while self.path:
            taken, count = self.path.pop()
            if taken + 1 < count:
                self.path.append((taken + 1, count))
                return True
        return False


def play(toy: Toy, strategy: Strategy) -> Controller:
    control = Controller(strategy, max_steps=1000)
    control.run("main", lambda: toy(control, ControlledThreading(control)))
    return control


def faults_of(toy: Toy) -> list[Kind | None]:
    """Run every schedule of a toy and return the faults."""
    every = Every()
    found: list[Kind | None] = []
    while True:
        fault = play(toy, every).fault
        found.append(fault.kind if fault else None)
        if not every.advance():
            return found


def test_threads_that_share_a_lock_never_hold_it_at_once() -> None:
    def toy(control: Controller, threading: ControlledThreading) -> None:
        lock = threading.Lock()
        inside: list[str] = []

        def work() -> None:
            with lock:
                assert not inside
                inside.append("someone")
                control.point("inside")
                inside.clear()

        for number in range(2):
            threading.Thread(target=work, name=f"t{number}").start()

    found = faults_of(toy)
    assert len(found) > 10
    assert set(found) == {None}


def test_a_look_before_a_sleep_is_found_to_lose_a_wake_up() -> None:
    def toy(control: Controller, threading: ControlledThreading) -> None:
        token = threading.Lock()
        token.acquire()
        state = {"ready": False, "asleep": False}

        def sleeper() -> None:
            if state["ready"]:
                return
            control.point("about to sleep")
            state["asleep"] = True
            token.acquire()

        def waker() -> None:
            state["ready"] = True
            if state["asleep"]:
                token.release()

        threading.Thread(target=sleeper, name="sleeper").start()
        threading.Thread(target=waker, name="waker").start()

    found = faults_of(toy)
    assert set(found) == {None, Kind.HANG}


def test_time_moves_to_the_earliest_deadline_and_a_release_beats_it() -> None:
    def toy(control: Controller, threading: ControlledThreading) -> None:
        token = threading.Lock()
        token.acquire()
        seen: list[tuple[str, bool, int]] = []

        def wait(name: str, seconds: float) -> None:
            seen.append((name, token.acquire(timeout=seconds), control.now))

        threads = [
            threading.Thread(target=wait, args=args, name=args[0])
            for args in (("late", 2e-3), ("early", 1e-3))
        ]
        for thread in threads:
            thread.start()
        ControlledTime(control).sleep(1.5e-3)
        token.release()
        for thread in threads:
            thread.join()
        assert seen == [("early", False, 1_000_000), ("late", True, 1_500_000)], seen

    assert play(toy, Replay(())).fault is None


def test_an_exception_on_a_thread_is_a_fault() -> None:
    def toy(control: Controller, threading: ControlledThreading) -> None:
        threading.Thread(target=lambda: 1 // 0, name="t").start()

    assert set(faults_of(toy)) == {Kind.ERROR}


def test_a_thread_that_goes_on_for_ever_is_a_fault() -> None:
    def toy(control: Controller, threading: ControlledThreading) -> None:
        while True:
            control.point("again")

    assert play(toy, Replay(())).fault.kind is Kind.LIVELOCK  # type: ignore[union-attr]


def test_an_interrupt_comes_where_a_thread_waits() -> None:
    def toy(control: Controller, threading: ControlledThreading) -> None:
        token = threading.Lock()
        token.acquire()
        threading.Thread(target=lambda: control.interrupt("main", KeyboardInterrupt()), name="user").start()
        with pytest.raises(KeyboardInterrupt):
            token.acquire()

    assert set(faults_of(toy)) == {None}


# On headrace.


@pytest.mark.parametrize("name", ["loaded-3", "event-2", "scale-2"])
def test_the_same_schedule_gives_the_same_run(name: str) -> None:
    scenario = SCENARIOS[name]
    first = run(scenario, Replay(()))
    number, decision = next(
        (n, d) for n, d in enumerate(first.record) if n > len(first.record) // 2 and len(d.options) > 1
    )
    schedule = ((number, decision.options[-1].name),)
    runs = [run(scenario, Replay(schedule)) for _ in range(2)]
    paths = [
        [
            ([task.name for task in decision.options], decision.position, decision.line)
            for decision in outcome.record
        ]
        for outcome in runs
    ]
    assert paths[0] == paths[1]
    assert runs[0].schedule() == schedule


def test_the_same_seed_gives_the_same_run_in_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "from tests.interleavings.exploring import _run_seed\n"
        "from tests.interleavings.scenarios import SCENARIOS\n"
        "for seed in range(3):\n"
        "    outcome = _run_seed(SCENARIOS['loaded-3'], seed)\n"
        "    lines = [(d.position, d.line and d.line[0][1]) for d in outcome.record]\n"
        "    print(outcome.steps, outcome.schedule(), lines)\n"
    )
    exec(program, {})
    assert capsys.readouterr().out == output_of("-c", program, PYTHONHASHSEED="1")


def test_a_schedule_by_seed_is_replayed_by_its_seed_and_by_its_text() -> None:
    plant = next(plant for plant in PLANTS if plant.what == "a stop wakes one worker")
    scenario = SCENARIOS[plant.scenario]
    with planted(plant):
        found = sample(scenario, range(500))
        assert found.fault is not None
        assert found.fault.seed is not None
        seed = found.fault.seed
        again = sample(scenario, range(seed, seed + 1))
        replayed = replay(found.fault.schedule, SCENARIOS)
    assert again.fault is not None
    assert again.fault.report() == found.fault.report()
    assert replayed.fault is not None
    assert replayed.fault.kind is found.fault.kind
    assert found.fault.schedule.count("=") <= 8, "a failing schedule is made short"


def test_a_schedule_is_written_and_read() -> None:
    for lines in (True, False):
        text = format_schedule("chain-2", ((3, "worker-1"), (17, "caller")), lines)
        assert parse_schedule(text) == ("chain-2", ((3, "worker-1"), (17, "caller")), lines)
    assert parse_schedule("chain-2:") == ("chain-2", (), True)
    with pytest.raises(ValueError, match="scenario:number=thread"):
        parse_schedule("chain-2")


def test_a_schedule_of_other_code_is_refused() -> None:
    outcome = replay("chain-2:0=nobody", SCENARIOS)
    assert outcome.fault is not None
    assert "the code is not the one that this schedule was found in" in outcome.fault.what


def test_a_report_says_how_to_replay_where_each_thread_is_and_how_the_engine_stands() -> None:
    plant = next(plant for plant in PLANTS if plant.what == "an announcement wakes nobody")
    with planted(plant):
        fault = explore(SCENARIOS["event-1"], 0).fault
    assert isinstance(fault, Fault)
    report = fault.report()
    for part in (
        "lost wake-up: an announcement for reader is ready, and worker-0 stay parked",
        "python -m tests.interleavings --replay 'event-1:",
        "engine: stopping False, running 0",
        "worker-0: parked, without a deadline",
        "self._permit.acquire()",
        "setter: done",
    ):
        assert part in report, report


def test_leaving_out_what_makes_no_difference_leaves_out_no_fault() -> None:
    """Pruned and not, the same plants are found within one preemption; unpruned it takes more runs."""

    class Everything(Effects):
        def matters(self, *args: object) -> bool:
            return True

    for what in ("a stop is not in the inbox", "a worker that parks does not look at the inbox again"):
        plant = next(plant for plant in PLANTS if plant.what == what)
        with planted(plant), pytest.MonkeyPatch.context() as patch:
            pruned = explore(SCENARIOS[plant.scenario], 1)
            patch.setattr(exploring, "Effects", Everything)
            whole = explore(SCENARIOS[plant.scenario], 1)
        assert pruned.fault is not None
        assert whole.fault is not None
        assert pruned.fault.kind is whole.fault.kind
