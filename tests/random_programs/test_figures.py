"""The figures of random programs in virtual time are those of a model that knows what each of them does.

A program has sources with a clock or with acquisition timestamps, of which some stall, and chains of operators that
take time, fail, are tried again, and answer with nothing. One worker computes; the model is a list of what
happened, which the operators write themselves. Every count, latency and lateness of tracker, goals, JSON,
Prometheus, outcome, trace, summary and page is compared with it.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace import retry
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import IOSpec
from headrace.core.error_policy import skip
from headrace.observe import Miss, TraceWriter, watch
from tests.harness.application import App, greedy
from tests.harness.operators import Step
from tests.limits import THOROUGH
from tests.observe.traces.traces import load
from tests.random_programs.figures import FATES as ENDS
from tests.random_programs.figures import told_by_a_page

MS = 1_000_000
FATES = ("sent", *ENDS)
PROGRAMS = 300 if THOROUGH else 20


@dataclass
class Plan:
    """What an operator does, and how its queue and its errors are treated."""

    milliseconds: list[int]
    fails: float = 0.0
    silent: float = 0.0
    policy: Any = None
    retries: int = 0
    queue: Any = None
    size: int = 1


@dataclass
class Model:
    """What happened, as the operators saw it."""

    sent: int = 0
    origins: dict[int, int] = field(default_factory=dict)
    latencies: dict[int, int] = field(default_factory=dict)
    fates: dict[int, str] = field(default_factory=dict)
    computes: Counter[str] = field(default_factory=Counter)
    host: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    retries: Counter[str] = field(default_factory=Counter)
    lateness: list[int] = field(default_factory=list)
    skipped: int = 0
    # By frame: where its time went, at the last compute of each operator that received it.
    parts: defaultdict[int, dict[str, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    # By operator and frame: when it came to the operator; by operator: when its last compute ended.
    came: dict[tuple[str, int], int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    # By operator: how many messages wait for it, and the most that did at once.
    waiting: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    places: dict[str, int] = field(default_factory=dict)

    def send(self, number: int, to: str, now: int) -> None:
        """Note that a message comes to a queue, which may be full."""
        self.came[to, number] = now
        self.waiting[to] = min(self.waiting[to] + 1, self.places[to])
        self.most[to] = max(self.most[to], self.waiting[to])


def plans_of(rng: random.Random) -> list[Plan]:
    found = []
    for _ in range(rng.randint(1, 4)):
        plan = Plan([rng.randint(0, 6) for _ in range(rng.randint(1, 4))])
        if rng.random() < 0.5:
            plan.fails = rng.choice([0.1, 0.4])
            plan.policy = skip()
            if rng.random() < 0.5:
                plan.retries = rng.randint(1, 2)
                plan.policy = retry(times=plan.retries, backoff=rng.choice([0, "3ms"])) | plan.policy
        if rng.random() < 0.3:
            plan.silent = 0.2
        plan.size = rng.randint(1, 3)
        plan.queue = rng.choice([None, None, IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT])
        found.append(plan)
    return found


def program(seed: int, model: Model) -> Any:
    """Return a compose of a random chain, which writes what it does to the model."""
    rng = random.Random(seed)
    plans = plans_of(rng)
    period, count, burst = rng.randint(5, 20) * MS, rng.randint(5, 25), rng.choice([1, 1, 3])
    policy = rng.choice(["CATCH_UP_MISSED_TICKS", "NO_CATCH_UP_MISSED_TICKS"])
    acquired = rng.random() < 0.4
    stalls = {tick: rng.randint(1, 50) * MS for tick in range(count) if rng.random() < 0.15}

    def compose(app: Any) -> None:
        due = [0]

        def send(self: Any, op_input: Any, op_output: Any) -> None:
            began, tick = app.now, self.ticks - 1
            model.lateness.append(began - due[0])
            origin = due[0]
            if policy.startswith("NO"):
                missed = (began - due[0]) // period if tick else 0
                model.skipped += missed if tick < count - 1 else 0  # nothing is due after the last tick
                due[0] += (missed + 1) * period
            else:
                due[0] += period
            app.scheduler().clock.sleep_for(stalls.get(tick, 0))
            for _ in range(burst):
                number = model.sent
                model.sent += 1
                stamp = {}
                model.origins[number] = origin
                if acquired:
                    model.origins[number] = stamp["acq_timestamp"] = max(app.now - 7 * MS, 0)
                model.send(number, "step0", app.now)
                op_output.emit(number, "out", **stamp)
            model.computes["source"] += 1
            model.host["source"].append(app.now - began)

        def work(plan: Plan, place: int, is_last: bool) -> Any:
            chance = random.Random(seed + 1)
            attempts: Counter[int] = Counter()

            def body(self: Any, op_input: Any, op_output: Any) -> None:
                began, number = app.now, op_input.receive("in")
                model.waiting[self.name] -= not attempts[number]  # a later attempt has taken it already
                took = plan.milliseconds[self.ticks % len(plan.milliseconds)]
                app.scheduler().clock.sleep_for(took * MS)
                if seed % 2 and self.ticks % 3 == 0:  # figures add up from portions of any size
                    app.data_flow_tracker().catch_up()
                model.computes[self.name] += 1
                model.host[self.name].append(app.now - began)
                came = model.came[self.name, number]
                ready = min(max(came, model.ended.get(self.name, 0)), began)
                model.parts[number][self.name] = [ready - came, began - ready, app.now - began]
                model.ended[self.name] = app.now
                if chance.random() < plan.fails:
                    attempts[number] += 1
                    if attempts[number] > plan.retries:
                        model.fates[number] = "failed"
                    else:
                        model.retries[self.name] += 1
                    raise ValueError(number)
                if is_last:
                    model.latencies[number] = app.now - model.origins[number]
                elif chance.random() >= plan.silent:
                    model.send(number, f"step{place + 1}", app.now)
                    op_output.emit(number, "out")

            return body

        before = Step(
            app,
            CountCondition(app, count),
            PeriodicCondition(app, period, policy),
            outputs=[("out", {"size": burst})],
            body=send,
            name="source",
        )
        for place, plan in enumerate(plans):
            is_last = place == len(plans) - 1
            operator = Step(
                app,
                inputs=["in"],
                outputs=[] if is_last else ["out"],
                body=work(plan, place, is_last),
                name=f"step{place}",
            )
            if plan.policy is not None:
                operator.on_error = plan.policy
            size = max(plan.size, burst) if plan.queue is None else plan.size
            model.places[operator.name] = size
            app.add_flow(before, operator, size=size, policy=plan.queue)
            before = operator

    compose.last = f"step{len(plans) - 1}"  # type: ignore[attr-defined]
    compose.period = period  # type: ignore[attr-defined]
    return compose


def parts_of(miss: Miss) -> tuple[tuple[Any, ...], ...]:
    """Return the time of a miss at each operator: in the queue, until it was run, and in its compute."""
    found: dict[str, list[int]] = {}
    for part in miss.breakdown.parts:
        place = {"queue": 0, "worker": 1, "held": 1, "host": 2}.get(part.kind, -1)
        name = part.where.removesuffix(".in")
        if place >= 0 and name != "source":
            found.setdefault(name, [0, 0, 0])[place] = part.duration
    return tuple((name, *times) for name, times in found.items())


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_every_figure_is_the_models(seed: int, tmp_path: Path) -> None:
    model = Model()
    compose = program(seed, model)
    app = App(compose, greedy)
    rng = random.Random(-seed)
    bound, jitter = rng.randint(1, 60) * MS, rng.randint(1, 20) * MS
    path = f"source->{compose.last}"
    goal = app.expect(path, max=bound)
    median = app.expect(path, p50=bound)
    ticks = app.expect("source", period=compose.period, jitter=jitter)
    tracker = app.track()
    watch(app, TraceWriter(tmp_path / "trace.json"))
    page: list[dict[str, Any]] = []
    if seed % 5 == 0:  # a page is a server
        told_by_a_page(app, page)
    outcome = app.run()
    statistics = tracker.statistics
    context = f"seed {seed}: {goal}"

    # Each frame that neither arrived nor failed was dropped on purpose: every source ended, and nothing waits.
    late = sum(latency > bound for latency in model.latencies.values())
    failed = sum(fate == "failed" for fate in model.fates.values())
    assert (goal.sent, goal.late, goal.arrived) == (model.sent, late, len(model.latencies) - late), context
    assert (goal.failed, goal.lost, goal.outstanding, goal.untimed) == (failed, 0, 0, 0), context
    assert goal.dropped == model.sent - len(model.latencies) - failed, context
    is_known = bool(model.latencies or failed)
    assert goal.is_met == (not late and not failed if is_known else None), context
    judged = sorted(model.latencies.values()) + [1 << 60] * failed
    assert median.is_met == (judged[(len(judged) + 1) // 2 - 1] <= bound if judged else None), context
    assert goal.figure("max") == max(model.latencies.values(), default=0), context
    assert len(goal.recent) == late, context
    assert all(sum(part.duration for part in miss.breakdown.parts) == miss.latency for miss in goal.recent), (
        context
    )
    assert sorted(miss.latency for miss in goal.recent) == sorted(
        latency for latency in model.latencies.values() if latency > bound
    ), context

    # Where the time of each late frame went: behind others, until the operator had its turn, and computing.
    expected_parts = Counter(
        tuple((name, *found) for name, found in model.parts[number].items() if any(found))
        for number, latency in model.latencies.items()
        if latency > bound
    )
    assert Counter(map(parts_of, goal.recent)) == expected_parts, context

    # Ticks.
    assert (ticks.late, ticks.lost) == (sum(each > jitter for each in model.lateness), model.skipped), context
    assert ticks.sent == len(model.lateness) + model.skipped, context
    assert ticks.figure("jitter") == max(model.lateness), context
    assert statistics.operator("source").latest == max(model.lateness), context
    assert statistics.operator("source").skipped_ticks == model.skipped, context
    assert statistics.operator("source").late_ticks == sum(
        each >= compose.period for each in model.lateness[1:]
    ), context

    # Operators, paths, and the same in JSON, Prometheus and the outcome.
    for operator in statistics.operators:
        assert operator.count == model.computes[operator.name], context
        assert operator.retries == model.retries[operator.name], context
        host = model.host[operator.name]
        assert (operator.host.max, operator.host.min) == (max(host, default=0), min(host, default=0)), context
    for name, most in model.most.items():
        assert statistics.queue(f"{name}.in").most == most, context
    latencies = sorted(model.latencies.values())
    expected = [(len(latencies), latencies[-1])] if latencies else []
    assert [(path.count, path.latency.max) for path in statistics.paths] == expected, context
    (told, *_) = json.loads(statistics.to_json())["goals"]
    text = statistics.to_prometheus()
    for fate in FATES:
        assert told[fate] == getattr(outcome.goals[path], fate) == getattr(goal, fate), context
        assert (
            f'headrace_goal_{fate}_total{{application="App",goal="{path}"}} {getattr(goal, fate)}.0' in text
        )
    assert outcome.goals[path].is_met == goal.is_met == told["is_met"], context

    # The trace.
    trace = load(tmp_path / "trace.json")
    (end,) = trace.of("M", name="end")
    assert end["args"]["goals"][path] == asdict(outcome.goals[path]), context
    in_trace = [sorted(found) for found in trace.latencies.values()]
    assert in_trace == ([pytest.approx(sorted(each / 1e3 for each in latencies))] if latencies else []), (
        context
    )
    dropped = sum(queue.dropped for queue in statistics.queues)
    assert len(trace.of("i", cat="drop")) == dropped, context

    # The page.
    for figures in page:
        told = next(each for each in figures["goals"] if each["path"] == path.replace("->", " → "))
        assert [told[fate] for fate in FATES] == [getattr(goal, fate) for fate in FATES], context
        assert told["is_met"] == goal.is_met, context
        counts = {
            each["name"]: found["count"]
            for each, found in zip(figures["graph"], figures["operators"], strict=True)
        }
        assert counts == {each.name: each.count for each in statistics.operators}, context
        assert sum(each["dropped"] for each in figures["queues"]) == dropped, context
        (source,) = [
            found
            for each, found in zip(figures["graph"], figures["operators"], strict=True)
            if each["name"] == "source"
        ]
        assert source["faults"].get("skipped_ticks", 0) == model.skipped, context
