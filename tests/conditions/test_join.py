"""Joins in runs: what operators receive, and where everything else is counted, under every scheduler."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace import (
    CountCondition,
    Input,
    IOSpec,
    PeriodicCondition,
    aligned,
    at_rate,
    latest_within,
    op,
    reuse_last,
    substitute,
    window,
)
from headrace.conditions import CudaStreamCondition
from headrace.core import GraphError, JoinError, JoinRule, MetadataPolicy
from headrace.schedulers import EventBasedScheduler
from tests.conditions.test_joiner import in_order, tightest
from tests.harness import App, MakeScheduler, Step, run

POP = IOSpec.QueuePolicy.POP


@op
def sensor(*, stamps, context, metadata):
    """Emit the numbers of messages, with the key as the timestamp and in the metadata."""
    for number, stamp in enumerate(stamps):
        context.acq_timestamp = stamp
        metadata["frame"] = number
        metadata["stamp"] = stamp
        yield number


def sink(app: Any, inputs: tuple[str, ...], taken: list[Any], **settings: Any) -> Step:
    """Return an operator that notes what it receives."""

    def note(operator: Step, op_input: Any, op_output: Any) -> None:
        taken.append({name: op_input.receive(name) for name in inputs})
        operator.fragment.times.append(operator.fragment.now)

    app.times = []
    return Step(app, *settings.pop("parts", ()), inputs=list(inputs), body=note, name="sink")


def joined(
    streams: dict[str, list[int]],
    rule: JoinRule | None,
    scheduler: Any,
    taken: list[Any],
    periods: dict[str, int] | None = None,
    flow: dict[str, Any] | None = None,
    parts: Any = lambda app: (),
    **rules: JoinRule,
) -> App:
    """Run sources with these timestamps into an operator that joins them."""

    def compose(app: App) -> None:
        to = sink(app, tuple(streams), taken, parts=parts(app))
        to.join(rule, **rules)
        for name, stamps in streams.items():
            when = PeriodicCondition(app, (periods or {}).get(name, 10))
            source = sensor(app, when, stamps=stamps, name=f"{name}_source")
            app.add_flow(source, to, {("out", name)}, **(flow or {}))

    return run(compose, scheduler)


def five(app: Any, **settings: Any) -> Any:
    from headrace.resources import ManualClock

    return EventBasedScheduler(app, worker_thread_number=5, clock=ManualClock(app), **settings)


def stamps(chance: random.Random, length: int, spacing: int) -> list[int]:
    result, time = [], 0
    for _ in range(length):
        time += chance.randint(0, spacing)
        result.append(time)
    return result


@pytest.mark.parametrize("seed", range(4))
def test_operators_receive_the_sets_of_the_definition(scheduler: MakeScheduler, seed: int) -> None:
    for make in (scheduler, five) if seed == 0 else (scheduler,):
        chance = random.Random(seed)
        given = {name: stamps(chance, 60, 8) for name in ("left", "right", "depth")}
        taken: list[Any] = []
        app = joined(given, aligned(6), make, taken, periods={"left": 7, "right": 10, "depth": 3 + seed * 5})
        kept = {name: in_order([(key, 0) for key in keys], 0) for name, keys in given.items()}
        expected = tightest(kept, 6)
        # The streams do not end for the operator, so the last sets may still have waited for more.
        assert taken == expected[: len(taken)]
        assert len(expected) - len(taken) <= 2
        counted = app.progress().dropped
        for name in given:
            assert counted[f"sink.{name}"] + len(taken) == 60
        reasons = app.progress().drop_reasons
        assert all(sum(reasons[port].values()) == counted[port] for port in counted)
        assert app.outcome.drop_reasons == reasons


def test_a_reference_waits_up_to_a_time_of_the_runs_clock(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []
    # The second of `right` comes at 20. The second of `left` came at 10, and waited until 15.
    app = joined(
        {"left": [0, 100, 200], "right": [0, 100]},
        aligned(5, reference="left", wait=5, missing=substitute("none")),
        scheduler,
        taken,
        periods={"left": 10, "right": 20},
    )
    assert taken == [
        {"left": 0, "right": 0},
        {"left": 1, "right": "none"},
        {"left": 2, "right": "none"},
    ]
    assert app.progress().drop_reasons == {"sink.right": {"late": 1}}
    assert app.times == [0, 16, 26]  # type: ignore[attr-defined]  # a nanosecond after the end of a wait


def test_the_metadata_of_joined_inputs_is_kept_apart(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []

    @op(join=aligned(0))
    def pair(left, right, *, context, metadata):
        assert context.metadata is metadata
        seen.append((metadata["left"]["frame"], metadata["right"]["frame"]))
        return left

    @op
    def after(value, *, metadata):
        seen.append(dict(metadata["right"]))

    def compose(app: App) -> None:
        pairs = pair(app)
        app.add_flow(sensor(app, stamps=[0, 1], name="a"), pairs, {("out", "left")})
        app.add_flow(sensor(app, stamps=[1], name="b"), pairs, {("out", "right")})
        app.add_flow(pairs, after(app))

    run(compose, scheduler)
    assert seen == [(1, 0), {"frame": 0, "stamp": 1}]


def test_a_window_has_the_metadata_of_each_message_and_a_policy_merges_them(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []

    @op(join=window(2))
    def batch(frames, *, metadata):
        seen.append(metadata.copy())

    def compose(app: App, policy: MetadataPolicy | None) -> None:
        to = batch(app)
        if policy is not None:
            to.metadata_policy = policy
        app.add_flow(sensor(app, stamps=[5, 6]), to)

    run(lambda app: compose(app, None), scheduler)
    run(lambda app: compose(app, MetadataPolicy.UPDATE), scheduler)
    assert seen == [
        {"frames": [{"frame": 0, "stamp": 5}, {"frame": 1, "stamp": 6}]},
        {"frame": 1, "stamp": 6},
    ]


def test_messages_of_a_set_that_are_not_received_are_counted(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        to = Step(app, inputs=["left", "right"], body=lambda op, i, o: i.receive("left"), name="sink")
        to.join(aligned(0))
        app.add_flow(sensor(app, stamps=[0, 1], name="a"), to, {("out", "left")})
        app.add_flow(sensor(app, stamps=[0, 1], name="b"), to, {("out", "right")})

    app = run(compose, scheduler)
    assert app.progress().drop_reasons == {"sink.right": {"not received": 2}}


def test_what_a_join_holds_is_shown_as_waiting_until_the_run_ends(scheduler: MakeScheduler) -> None:
    waiting: list[Any] = []

    def compose(app: App) -> None:
        to = sink(app, ("left", "right"), [])
        to.join(aligned(0))
        look = Step(
            app,
            PeriodicCondition(app, 100),
            CountCondition(app, 2),
            body=lambda op, i, o: waiting.append(app.progress().waiting),
        )
        app.add_operator(look)
        app.add_flow(
            sensor(app, PeriodicCondition(app, 10), stamps=[5, 6, 7], name="a"), to, {("out", "left")}
        )
        app.add_flow(
            sensor(app, PeriodicCondition(app, 200), stamps=[0, 1], name="b"), to, {("out", "right")}
        )

    app = run(compose, scheduler)
    assert waiting[1] == {"sink.left": 3}
    assert app.progress().waiting == {}
    assert app.dropped() == {"sink.left": 3, "sink.right": 2}


@pytest.mark.parametrize(
    ("streams", "rule", "message"),
    [
        ({"left": [0], "right": [None]}, aligned(5), "'right' has no acquisition timestamp; emit it with"),
        (
            {"left": [0, 20], "right": [20, 40]},
            aligned(5, missing="error"),
            "no message for key 0 at input 'right'",
        ),
        (
            {"left": [9, 3], "right": [0]},
            aligned(5, late="error"),
            "key 3 at input 'left' came out of order",
        ),
        (
            {"left": [1_800_000_000 * 10**9], "right": [0]},
            aligned(5),
            "at input 'right' are of the run's clock, and at input 'left' they count since 1970",
        ),
    ],
)
def test_an_error_says_what_is_wrong(
    scheduler: MakeScheduler, streams: Any, rule: JoinRule, message: str
) -> None:
    with pytest.raises(JoinError, match=message):
        joined(streams, rule, scheduler, [])


@pytest.mark.parametrize(
    ("inputs", "rules", "message"),
    [
        (("a", "b"), {}, "not clear which of the inputs 'a', 'b'"),
        (("a",), {"*": aligned(5)}, "two or more inputs"),
        (("a", "b"), {"*": aligned(5, reference="c")}, "'c' is none of 'a', 'b'"),
        (("a",), {"a": reuse_last()}, "nothing says when the operator runs"),
        (("a",), {"*": reuse_last()}, "give it by name"),
        (("a", "b"), {"a": aligned(5)}, "rule for all inputs"),
        (("a",), {"*": at_rate(5)}, "each input needs latest_within"),
        (("a",), {"*": at_rate(5), "a": reuse_last()}, "reuse_last has none"),
        (("a", "b"), {"*": aligned(5, key="x"), "b": latest_within(5, key="y")}, "two or more"),
        (
            ("a", "b"),
            {"a": window(2, key="x"), "b": latest_within(5, key="y")},
            "different keys: 'x' and 'y'",
        ),
        (("a", "b"), {"c": reuse_last()}, "has no input 'c'"),
    ],
)
def test_rules_that_do_not_say_what_to_do_are_refused(
    inputs: tuple[str, ...], rules: dict[str, Any], message: str
) -> None:
    def compose(app: App) -> None:
        to = sink(app, inputs, [])
        to.join(rules.get("*"), **{name: rule for name, rule in rules.items() if name != "*"})
        for name in inputs:
            app.add_flow(sensor(app, stamps=[0], name=f"{name}_source"), to, {("out", name)})

    with pytest.raises(GraphError, match=message):
        run(compose)


def test_an_input_of_several_messages_and_a_stream_condition_are_refused() -> None:
    @op(join=aligned(0), inputs={"left": Input(size=2)})
    def pair(left, right): ...

    def compose(app: App, parts: Any = ()) -> None:
        to = pair(app) if not parts else sink(app, ("left", "right"), [], parts=parts)
        to.join(aligned(0))
        app.add_flow(sensor(app, stamps=[0], name="a"), to, {("out", "left")})
        app.add_flow(sensor(app, stamps=[0], name="b"), to, {("out", "right")})

    with pytest.raises(GraphError, match="'left' has size=2"):
        run(compose)
    with pytest.raises(GraphError, match="CudaStreamCondition"):
        run(lambda app: compose(app, (CudaStreamCondition(app, "left"),)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: aligned("ten"), "tolerance"),
        (lambda: aligned(-1), "tolerance must not be less than 0"),
        (lambda: aligned(5, policy="best"), "'tightest' or 'first'"),
        (lambda: aligned(5, missing=substitute()), "needs a reference="),
        (lambda: aligned(5, missing="ignore"), "'drop', 'error' or substitute"),
        (lambda: aligned(5, late="ignore"), "late must be"),
        (lambda: aligned(5, key=3), "key must be"),
        (lambda: window(0), "length"),
        (lambda: window(2, step=3), "must not be more than the length"),
        (lambda: window("1s", step=3), "step must be a time"),
        (lambda: at_rate(0), "period must be more than 0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
