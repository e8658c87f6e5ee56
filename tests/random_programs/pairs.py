"""Pairs of features that the generator never makes, each in a small program: what it gives, or how it is refused.

The programs of `WORKS` give the values there, those of `REFUSED` raise an error. `test_pairs.py` runs them all, and
the page of combinations shows them (`combinations.py`).
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from headrace import (
    Application,
    CountCondition,
    Fragment,
    Input,
    IOSpec,
    PeriodicCondition,
    Subgraph,
    aligned,
    dead_letter,
    op,
    restart,
    retry,
    reuse_last,
    skip,
    substitute,
    watch,
    window,
)
from headrace.conditions import MultiMessageAvailableTimeoutCondition
from headrace.core import ConditionType, FeedClosedError, MetadataPolicy
from headrace.gpu import current_stream, sim
from headrace.operators import FeedOp, ResultsOp
from headrace.parts.driver import DriverControl, open_driver
from headrace.parts.environment import Launch
from headrace.planner import Plan
from headrace.planner.plan import flows_of
from headrace.resources import CudaGreenContext, UnboundedAllocator
from tests.harness import PATIENCE, App, Consumer, Producer, Step, once, run, sink, source, through
from tests.harness.segments import COUNT, Ends, Work
from tests.parts.running import run_parts

POLICIES = IOSpec.QueuePolicy
VALUES = [1, 2, 3, 4]

Compose = Callable[[App, list[Any]], Any]


def composed(compose: Compose) -> list[Any]:
    """Run a program, and return what it has kept."""
    kept: list[Any] = []
    run(lambda app: compose(app, kept))
    return kept


# A feed, and what is put into it.


def fed(
    behind: Callable[[App, FeedOp, list[Any]], Any] | None = None,
    conditions: Callable[[App], Iterable[Any]] = lambda app: (),
    kind: type[FeedOp] = FeedOp,
    **options: Any,
) -> list[Any]:
    """Return what comes out of a feed with conditions and options, and what is behind it: a sink, mostly."""
    kept: list[Any] = []

    def compose(app: App) -> None:
        feed = kind(app, *conditions(app), name="feed", size=8, **options)
        if behind is None:
            app.add_flow(feed, sink(app, kept))
        else:
            behind(app, feed, kept)

    app = App(compose)
    with app.running(), suppress(FeedClosedError):
        feed = app.feed("feed")
        for value in VALUES:
            feed.put(value, metadata={"value": value})
    return kept


def into(app: App, feed: FeedOp, kept: list[Any]) -> None:
    """Connect a flow to a feed, which has no input."""
    app.add_flow(source(app, VALUES), feed)


def in_subgraph(kind: type[Any]) -> Callable[..., Any]:
    """Return what makes an operator in a subgraph, under its port ``port``."""

    class Group(Subgraph):
        def compose(self) -> None:
            self.inside = kind(self, name="end", size=8)
            if kind is FeedOp:
                self.add_output("port", self.inside)
            else:
                self.add_input("port", self.inside)

    return Group


def feed_in_subgraph() -> list[Any]:
    """Feed through a subgraph."""
    kept: list[Any] = []
    app = App(lambda app: app.add_flow(in_subgraph(FeedOp)(app, name="group"), sink(app, kept)))
    with app.running():
        for value in VALUES:
            app.feed("group.end").put(value)
    return kept


def ordered(app: App, feed: FeedOp, kept: list[Any]) -> None:
    """Let an operator run after each compute of a feed."""
    app.add_flow(feed, sink(app, kept))
    feed.then(Step(app, body=lambda op, i, o: kept.append("after"), name="after"))


def at_times(app: App, feed: FeedOp, kept: list[Any]) -> None:
    """Keep when a feed gives each value, in milliseconds."""

    def keep(self: Step, i: Any, o: Any, context: Any) -> None:
        kept.append((i.receive("in"), context.timestamp // 1_000_000))

    app.add_flow(feed, Step(app, inputs=["in"], body=keep, name="last"))


def described(app: App, feed: FeedOp, kept: list[Any]) -> None:
    """Keep what a feed gives, with its metadata; it has no input whose metadata could be kept apart."""

    def keep(self: Step, i: Any, o: Any) -> None:
        kept.append((i.receive("in"), dict(self.metadata)))

    feed.metadata_policy = MetadataPolicy.BY_PORT
    app.add_flow(feed, Step(app, inputs=["in"], body=keep, name="last"))


def chosen(app: App, feed: FeedOp, kept: list[Any]) -> None:
    """Send what a feed gives to one of two sinks."""
    left, right = sink(app, kept, name="left"), sink(app, [], name="right")
    app.add_flow(feed, left)
    app.add_flow(feed, right)
    app.set_dynamic_flows(feed, lambda op: op.add_dynamic_flow(left))


# Results, and what is sent to them.


def taken_from(
    before: Callable[[App, ResultsOp], Any] | None = None,
    conditions: Callable[[App], Iterable[Any]] = lambda app: (),
    kind: type[ResultsOp] = ResultsOp,
    **options: Any,
) -> list[Any]:
    """Return what a program takes out of results with conditions and options, and what is before them."""

    def compose(app: App) -> None:
        results = kind(app, *conditions(app), name="results", size=8, **options)
        if before is None:
            app.add_flow(source(app, VALUES), results)
        else:
            before(app, results)

    app = App(compose)
    with app.running():
        return list(app.results("results"))


def queued(**options: Any) -> Callable[[App, ResultsOp], Any]:
    """Send a burst of messages in one compute to results with a queue."""

    def before(app: App, results: ResultsOp) -> None:
        def burst(self: Step, i: Any, o: Any) -> None:
            for value in VALUES:
                o.emit(value, "out")

        app.add_flow(
            Step(app, CountCondition(app, 1), outputs=[("out", {"size": 4})], body=burst, name="burst"),
            results,
            **options,
        )

    return before


def two_flows(app: App, results: ResultsOp) -> None:
    """Send from two sources."""
    app.add_flow(source(app, [1, 2], name="left"), results)
    app.add_flow(source(app, [3, 4], name="right"), results)


class Pairs(ResultsOp):
    """Results with a queue for each flow."""

    def setup(self, spec: Any) -> None:
        """Declare the input."""
        spec.input("in", size=IOSpec.ANY_SIZE)


def results_in_subgraph() -> list[Any]:
    """Take out of results in a subgraph."""
    app = App(lambda app: app.add_flow(source(app, VALUES), in_subgraph(ResultsOp)(app, name="group")))
    with app.running():
        return list(app.results("group.end"))


def results_in_a_loop(app: App, results: ResultsOp) -> None:
    """Connect results with what comes before them."""
    first = source(app, VALUES)
    app.add_flow(first, results)
    app.add_flow(results, first)


def followed_results(conditions: Callable[[App], Iterable[Any]] = lambda app: ()) -> list[Any]:
    """Return what results give, and when an operator ran after each of their computes, in milliseconds."""
    times: list[int] = []

    def follow(app: App, results: ResultsOp) -> None:
        def note(self: Step, i: Any, o: Any, context: Any) -> None:
            times.append(context.timestamp // 1_000_000)

        app.add_flow(source(app, VALUES), results)
        results.then(Step(app, body=note, name="after"))

    return [*taken_from(follow, conditions), *times]


def fails_once(program: Callable[..., list[Any]], kind: Any, on_error: Any) -> list[Any]:
    """Return what a program gives whose feed or results fail in the second compute, and how often these started."""
    starts: list[Any] = []

    class Failing(kind):  # type: ignore[misc]
        computes = 0

        def start(self) -> None:
            starts.append(self)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.computes += 1
            if self.computes == 2:
                raise ValueError("once")
            super().compute(op_input, op_output, context)

    return [*program(kind=Failing, on_error=on_error), len(starts)]


def results_with_letters() -> list[Any]:
    """Send what results failed with to a sink."""
    letters: list[Any] = []

    def before(app: App, results: ResultsOp) -> None:
        app.add_flow(source(app, VALUES), results)
        app.add_flow(results, sink(app, letters))

    return [*fails_once(partial(taken_from, before), ResultsOp, dead_letter("failed")), letters]


def joined_results(rule: Any) -> Callable[[App, ResultsOp], Any]:
    """Join the input of results."""

    def before(app: App, results: ResultsOp) -> None:
        results.join(rule)
        app.add_flow(source(app, VALUES), results)

    return before


def results_after_a_timeout(app: App, results: ResultsOp) -> None:
    """Give results a timeout."""
    results.add_arg(MultiMessageAvailableTimeoutCondition(app, 100, "SumOfAll", min_sum=2, receivers=["in"]))
    app.add_flow(source(app, VALUES), results)


def optional_results(app: App, results: ResultsOp) -> None:
    """Let results run without a message."""
    results.spec.inputs["in"].condition(ConditionType.NONE)
    app.add_flow(source(app, VALUES), results)


def chosen_after_results() -> list[Any]:
    """Let results choose which of two operators runs after each of their computes."""
    ran: list[Any] = []

    def choose(app: App, results: ResultsOp) -> None:
        left, right = (
            Step(app, body=lambda self, i, o: ran.append(self.name), name=name) for name in ("left", "right")
        )
        app.add_flow(source(app, VALUES), results)
        results.then(left)
        results.then(right)
        app.set_dynamic_flows(results, lambda op: op.add_dynamic_flow(left))

    return [*taken_from(choose), *ran]


def described_results() -> list[Any]:
    """Return what results give, and its metadata by port."""

    def describe(self: Step, i: Any, o: Any) -> None:
        self.metadata["value"] = self.ticks
        o.emit(self.ticks, "out")

    def compose(app: App) -> None:
        results = ResultsOp(app, name="results")
        results.metadata_policy = MetadataPolicy.BY_PORT
        first = Step(app, CountCondition(app, len(VALUES)), outputs=["out"], body=describe, name="first")
        app.add_flow(first, results)

    app = App(compose)
    with app.running():
        results = app.results("results")
        return [(value, results.metadata) for value in results]


# Functions.


@op(inputs={"left": Input(), "right": Input()}, join={"*": aligned("1ms")})
def both(left: Any, right: Any) -> Any:
    """Yield what arrives together."""
    yield (left, right)


@op(inputs={"left": Input(), "right": Input()}, join={"*": aligned("1ms")})
async def both_async(left: Any, right: Any) -> Any:
    """Return what arrives together."""
    return (left, right)


@op(inputs={"value": Input(size=4)})
def doubled(value: Any) -> Any:
    """Yield a value twice."""
    yield value
    yield value


@op(inputs={"value": Input(size=4)})
async def awaited(value: Any) -> Any:
    """Return a value."""
    return value


def stamped(app: App, name: str) -> Step:
    """Return a source whose messages have timestamps."""

    def emit(self: Step, i: Any, o: Any) -> None:
        o.emit(self.ticks, "out", acq_timestamp=self.ticks * 10_000_000)

    return Step(app, CountCondition(app, 3), outputs=["out"], body=emit, name=name)


def joined(function: Any) -> Compose:
    """Join the inputs of a function."""

    def compose(app: App, kept: list[Any]) -> None:
        last = function(app, name="both")
        for side in ("left", "right"):
            app.add_flow(stamped(app, side), last, {("out", side)})
        app.add_flow(last, sink(app, kept))

    return compose


def timed(function: Any, **options: Any) -> Compose:
    """Let a function run after a timeout, with the messages that are there."""

    def compose(app: App, kept: list[Any]) -> None:
        timeout = MultiMessageAvailableTimeoutCondition(app, 100, "SumOfAll", min_sum=3, receivers=["value"])
        last = function(app, timeout, name="timed", **options)
        app.add_flow(source(app, VALUES), last)
        app.add_flow(last, sink(app, kept))

    return compose


def timed_step(*conditions: Any, before: Any = None, **options: Any) -> Compose:
    """Let an operator that fails once run after a timeout."""

    def compose(app: App, kept: list[Any]) -> None:
        timeout = MultiMessageAvailableTimeoutCondition(app, 100, "SumOfAll", min_sum=3, receivers=["in"])

        def body(self: Step, i: Any, o: Any) -> None:
            values = i.receive("in")
            if self.ticks == 1 and options:
                raise ValueError("once")
            kept.append(values)

        made = [condition(app) for condition in conditions]
        step = Step(app, timeout, *made, inputs=[("in", {"size": 4})], body=body, name="timed", **options)
        app.add_flow(source(app, VALUES), step)
        if before is not None:
            before(app, step)
        if options:
            _follow(app, step, kept)

    return compose


def _follow(app: App, step: Step, kept: list[Any]) -> None:
    def keep(self: Step, i: Any, o: Any) -> None:
        kept.append(("failed", i.receive("in")))

    for port in step.spec.outputs:
        app.add_flow(step, Step(app, inputs=["in"], body=keep, name="last"), {(port, "in")})


def timed_optional(app: App, kept: list[Any]) -> None:
    """Let an operator run after a timeout, with the messages of one input, and of another if there is one."""
    timeout = MultiMessageAvailableTimeoutCondition(app, 100, "SumOfAll", min_sum=3, receivers=["in"])

    def setup(spec: Any) -> None:
        spec.input("in", size=4)
        spec.input("more").condition(ConditionType.NONE)

    def keep(self: Step, i: Any, o: Any, context: Any) -> None:
        kept.append((context.timestamp, i.receive("in"), i.receive("more")))

    step = Step(app, timeout, setup=setup, body=keep, name="timed")
    slow = source(app, [3, 4], PeriodicCondition(app, 250), name="slow")
    app.add_flow(source(app, [1, 2], name="fast"), step, {("out", "in")})
    app.add_flow(slow, step, {("out", "in")})
    app.add_flow(once(app), step, {("out", "more")})


def timed_shared(app: App, kept: list[Any]) -> None:
    """Let two sources share the queue of an operator with a timeout."""
    timeout = MultiMessageAvailableTimeoutCondition(app, 100, "SumOfAll", min_sum=3, receivers=["in"])
    step = Step(
        app,
        timeout,
        inputs=[("in", {"size": 4})],
        body=lambda self, i, o: kept.append(i.receive("in")),
        name="timed",
    )
    app.add_flow(source(app, [1, 2], name="left"), step)
    app.add_flow(source(app, [3, 4], name="right"), step)


def joined_shared(app: App, kept: list[Any]) -> None:
    """Join inputs of which one has two flows in one queue."""
    last = Step(
        app,
        inputs=["left", "right"],
        body=lambda self, i, o: kept.append((i.receive("left"), i.receive("right"))),
        name="last",
    )
    last.join(aligned("1ms"))
    app.add_flow(stamped(app, "first"), last, {("out", "left")})
    app.add_flow(stamped(app, "second"), last, {("out", "left")})
    app.add_flow(stamped(app, "third"), last, {("out", "right")})


# Errors.


def failing(on_error: Any, before: Any = None, **kinds: Any) -> Compose:
    """Let an operator fail with one message."""

    def compose(app: App, kept: list[Any]) -> None:
        def body(self: Step, i: Any, o: Any) -> None:
            value = i.receive("in")
            if value == 2 and not getattr(self, "failed", False):
                self.failed = kinds.get("once", False)
                raise ValueError(value)
            kept.append(value)

        step = Step(app, inputs=["in"], body=body, on_error=on_error, name="fails")
        app.add_flow(source(app, VALUES), step)
        if before is not None:
            before(app, step, kept)
        _follow(app, step, kept)

    return compose


def failing_thrice(on_error: Any) -> list[Any]:
    """Return what an operator makes that fails with three messages: what it does, when it starts, how it ends."""
    kept: list[Any] = []

    class Failing(Step):
        def start(self) -> None:
            kept.append("start")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            value = op_input.receive("in")
            if value > 1:
                raise ValueError(value)
            kept.append(value)

    def compose(app: App) -> None:
        step = Failing(app, inputs=["in"], on_error=on_error, name="fails")
        app.add_flow(source(app, VALUES), step)
        _follow(app, step, kept)

    with pytest.raises(ValueError, match="4"):
        run(compose)
    return kept


def after_once(app: App, step: Step, kept: list[Any]) -> None:
    """Let it run after another operator, too."""
    source(app, VALUES, name="other").then(step)


def ended(function: Any) -> Compose:
    """Let a function end."""

    def compose(app: App, kept: list[Any]) -> None:
        last = function(app, name="ends")
        last.end = lambda op_input, op_output, context: op_output.emit("end")
        app.add_flow(source(app, VALUES), last)
        app.add_flow(last, sink(app, kept))

    return compose


@op
def passed(value: Any) -> Any:
    """Yield a value."""
    yield value


@op
async def passed_async(value: Any) -> Any:
    """Return a value."""
    return value


def described_by(function: Any) -> list[Any]:
    """Return what a function sends, with the metadata of what it received."""
    kept: list[Any] = []

    def describe(self: Step, i: Any, o: Any) -> None:
        self.metadata["value"] = self.ticks
        o.emit(self.ticks, "out")

    def compose(app: App) -> None:
        between = function(app, name="between")
        between.metadata_policy = MetadataPolicy.BY_PORT
        first = Step(app, CountCondition(app, len(VALUES)), outputs=["out"], body=describe, name="first")
        app.add_flow(first, between, ResultsOp(app, name="results"))

    app = App(compose)
    with app.running():
        results = app.results("results")
        kept += [(value, results.metadata) for value in results]
    return kept


def timed_after(app: App, step: Step) -> None:
    """Let it run after another operator, too."""
    source(app, [1], name="other").then(step)


# Loops.


def looped(
    declare: Callable[[Any], Any], size: int = 1, flows: dict[str, Any] | None = None, more: Any = None
) -> Compose:
    """Send each message round once, by an input that is declared in some way."""

    def compose(app: App, kept: list[Any]) -> None:
        def body(self: Step, i: Any, o: Any) -> None:
            for port in ("in", "back"):
                value = i.receive(port)
                for each in value if isinstance(value, tuple) else (value,):
                    if each is None:
                        continue
                    kept.append((port, each))
                    if port == "in":
                        o.emit(each, "out")

        def setup(spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)
            declare(spec)
            spec.output("out").condition(ConditionType.NONE)

        head = Step(app, CountCondition(app, 6), setup=setup, body=body, name="head")
        tail = through(app, name="tail")
        app.add_flow(source(app, [1, 2]), head, {("out", "in")})
        app.add_flow(head, tail, {("out", "in")})
        app.add_flow(tail, head, {("out", "back")}, **(flows or {}))
        if more is not None:
            more(app, head, tail)

    return compose


def one_choice(app: App, head: Step, tail: Step) -> None:
    """Let the head of a loop choose its flows."""
    app.set_dynamic_flows(head, lambda op: op.add_dynamic_flow(tail))


def second_back(app: App, head: Step, tail: Step) -> None:
    """Let a second flow lead back."""
    other = through(app, name="other")
    app.add_flow(head, other, {("out", "in")})
    app.add_flow(other, head, {("out", "back")})


def joined_loop(rule: Any) -> Compose:
    """Let one input of the head of a loop follow the other."""

    def compose(app: App, kept: list[Any]) -> None:
        def body(self: Step, i: Any, o: Any) -> None:
            value = i.receive("in")
            kept.append((value, i.receive("back")))
            o.emit(value, "out")

        head = Step(app, inputs=["in", "back"], outputs=["out"], body=body, name="head")
        head.join(back=rule)
        tail = through(app, name="tail")
        app.add_flow(source(app, [1, 2]), head, {("out", "in")})
        app.add_flow(head, tail, {("out", "in")})
        app.add_flow(tail, head, {("out", "back")})

    return compose


# Others.


def replicated_shared(app: App, kept: list[Any]) -> None:
    """Let two sources share the queue of an operator with replicas."""
    middle = Step(
        app,
        inputs=["in"],
        outputs=["out"],
        body=lambda self, i, o: o.emit(i.receive("in"), "out"),
        name="middle",
        workers=2,
    )
    app.add_flow(source(app, [1, 2], name="left"), middle)
    app.add_flow(source(app, [3, 4], name="right"), middle)
    app.add_flow(middle, sink(app, kept))


def optional_window(app: App, kept: list[Any]) -> None:
    """Give one input of an operator a window, and let another be empty."""

    def setup(spec: Any) -> None:
        spec.input("in")
        spec.input("more").condition(ConditionType.NONE)
        spec.join(**{"in": window(2)})

    step = Step(
        app,
        setup=setup,
        body=lambda self, i, o: kept.append((tuple(i.receive("in")), i.receive("more"))),
        name="windows",
    )
    app.add_flow(source(app, VALUES), step, {("out", "in")})
    app.add_flow(once(app), step, {("out", "more")})


# A run with an end of its own, beside a feed or results.


def fed_until(**limits: Any) -> list[Any]:
    """Return what a run with a limit takes from a feed that stays open."""
    kept: list[Any] = []

    def compose(app: App) -> None:
        app.add_flow(FeedOp(app, name="feed", size=8), sink(app, kept))

    app = App(compose)
    future = app.run_async(**limits)
    for value in VALUES[:2]:
        app.feed("feed").put(value)
    future.result(PATIENCE)
    return kept


def taken_until(**limits: Any) -> list[Any]:
    """Return what a run with a limit gives to results."""

    def compose(app: App) -> None:
        ticks = source(app, VALUES, PeriodicCondition(app, "1ms"))
        app.add_flow(ticks, ResultsOp(app, name="results", size=8))

    app = App(compose)
    future = app.run_async(**limits)
    found = list(app.results("results"))
    future.result(PATIENCE)
    return found


def block_with(**limits: Any) -> list[Any]:
    """Give a block a limit."""
    app: Any = App(lambda app: app.add_operator(once(app)))
    app.running(**limits)
    return []


# Parts: one sends to the other.


def two_parts(kept: list[Any], edge: Any, server: Any, *flows: tuple[str, str]) -> Application:
    """Return an application of two parts, which are composed by functions."""

    class Edge(Fragment):
        def compose(self) -> None:
            edge(self)

    class Server(Fragment):
        def compose(self) -> None:
            server(self, kept)

    class Plant(Application):
        def compose(self) -> None:
            self.add_flow(Edge(self, "edge"), Server(self, "server"), set(flows))

    return Plant()


def parted(edge: Any, server: Any, *flows: tuple[str, str]) -> list[Any]:
    """Return what a program of two parts keeps."""
    kept: list[Any] = []
    done = run_parts(lambda: two_parts(kept, edge, server, *flows), ["edge", "server"])
    assert not done.errors
    return kept


def first_values(part: Any) -> None:
    """Send some values from a part."""
    part.add_operator(source(part, VALUES, name="first"))


def grouped(part: Any, kept: list[Any]) -> None:
    """Receive in a subgraph of a part."""

    class Group(Subgraph):
        def compose(self) -> None:
            self.add_input("port", sink(self, kept, name="last"))

    Group(part, name="group")


def in_several_queues(part: Any, kept: list[Any]) -> None:
    """Receive from another part and from this one, each in a queue."""
    last = Step(
        part,
        inputs=[("in", {"size": IOSpec.ANY_SIZE})],
        body=lambda self, i, o: kept.append(sorted(i.receive("in"))),
        name="last",
    )
    part.add_flow(source(part, [10, 20, 30, 40], name="own"), last)


@op
def tripled(value: int) -> int:
    """Return three times a value, in a process of its own; else the value."""
    return 3 * value if multiprocessing.parent_process() else value


def in_replicas(part: Any, kept: list[Any]) -> None:
    """Compute in replicas of a part, which are processes."""
    part.add_flow(tripled(part, workers=2, on="processes", name="triple"), sink(part, kept, name="last"))


class Answers(ResultsOp):
    """Results of a class of the program."""


def with_an_end(kind: type[Any]) -> list[Any]:
    """Open the driver of parts of which one exchanges frames with the program."""

    def edge(part: Any) -> None:
        end, first = kind(part, name="ends"), source(part, VALUES, name="first")
        part.add_flow(*((first, end) if end.spec.inputs else (end, sink(part, [], name="taken"))))
        part.add_operator(first)

    app = two_parts(
        [],
        edge,
        lambda part, kept: part.add_operator(sink(part, kept, name="last")),
        ("first.out", "last.in"),
    )
    app.compose_graph()
    open_driver(app, DriverControl(), Launch("", "", (), False), ())
    return []


# Replays: of what the operator "first" sends.


def replayed(compose: Compose, use: Callable[[App], Any] = App.run) -> list[Any]:
    """Record a program, play its first operator, and return what the second run keeps; `use` runs it."""
    pytest.importorskip("mcap")
    from headrace.observe import PortRecorder, replay

    kept: list[Any] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.mcap"
        watch(recorded := App(lambda app: compose(app, [])), PortRecorder(path, ["first"]))
        use(recorded)
        replay(again := App(lambda app: compose(app, kept)), path, "fast")
        use(again)
    return kept


def from_feed_to_results(app: App, kept: list[Any]) -> None:
    """Compose a feed and results; what they give is kept."""
    app.kept = kept  # type: ignore[attr-defined]
    app.add_flow(FeedOp(app, name="first", size=8), ResultsOp(app, name="results", size=8))


def feed_once(app: App) -> None:
    """Feed a run, if its feed is not played, and take out all results."""
    with app.running():
        if isinstance(app.graph.find("first"), FeedOp):
            with app.feed("first") as feed:
                for value in VALUES:
                    feed.put(value)
        app.kept += app.results("results")  # type: ignore[attr-defined]


def call_once(app: App) -> None:
    """Call a run; a feed that is played takes no calls."""
    with app.running():
        answer = asyncio.run(app.call("first", 1))
        assert answer == 1


def to_results(app: App, kept: list[Any]) -> None:
    """Compose a source and results; what they give is kept."""
    app.kept = kept  # type: ignore[attr-defined]
    app.add_flow(source(app, VALUES, name="first"), ResultsOp(app, name="results"))


def take_results(app: App) -> None:
    """Take out all results."""
    with app.running():
        app.kept += app.results("results")  # type: ignore[attr-defined]


def changing(app: App, kept: list[Any]) -> None:
    """Connect another operator in the second compute."""

    def change(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")
        if self.ticks == 2:
            app.add_flow(self, sink(app, kept, name="late"))

    middle = Step(app, inputs=["in"], outputs=["out"], body=change, name="middle")
    app.add_flow(source(app, VALUES, name="first"), middle, sink(app, [], name="last"))


def replicated(app: App, kept: list[Any]) -> None:
    """Compute in replicas, which are processes."""
    triple = tripled(app, workers=2, on="processes", name="triple")
    app.add_flow(source(app, VALUES, name="first"), triple, sink(app, kept))


def count_sms(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    """Send on how many SMs an operator works."""
    op_input.receive("in")
    op_output.emit(context.allocate_cuda_stream("mine").stream.resources.sm.sm_count, "out")


def counted(app: Any, kept: list[Any]) -> None:
    """Keep on how many SMs an operator works."""
    middle = Step(app, inputs=["in"], outputs=["out"], body=count_sms, name="middle")
    app.add_flow(source(app, VALUES, name="first"), middle, sink(app, kept))


def on_a_slice(app: App, kept: list[Any]) -> None:
    """Keep on how many SMs of a slice an operator works."""
    app.add_default_green_context_pool(0, [16, 40], 1)
    counted(app, kept)


def replayed_on_a_slice() -> list[Any]:
    """Play what an operator on a slice receives."""
    with sim.Machine("h200"):
        sim.Device(0).set_current()
        return replayed(on_a_slice)


# Calls.


def called(
    values: Iterable[Any] = VALUES, compose: Any = None, prepare: Any = lambda app: app, **limits: Any
) -> list[Any]:
    """Return the answers to calls, of a run with limits; the last comes when the feed has taken all."""

    def connect(app: App) -> None:
        results = ResultsOp(app, name="results")
        feed = FeedOp(app, name="feed", size=8)
        app.add_flow(feed, compose(app) if compose else through(app, name="middle"), results)

    async def call() -> list[Any]:
        app = prepare(App(connect))
        future = app.run_async(**limits)
        calls = [asyncio.ensure_future(app.call("feed", value)) for value in values]
        found = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE)
        app.feed("feed").close()
        await asyncio.to_thread(future.result, PATIENCE)
        return [each if isinstance(each, int) else type(each).__name__ for each in found]

    return asyncio.run(call())


def ticking_middle(app: App) -> Step:
    """Return an operator that passes on one message in a millisecond."""
    return through(app, PeriodicCondition(app, "1ms"), name="middle")


def called_on_a_slice() -> list[Any]:
    """Return on how many SMs a call was computed."""

    def compose(app: App) -> Step:
        app.add_default_green_context_pool(0, [16, 40], 1)
        return Step(app, inputs=["in"], outputs=["out"], body=count_sms, name="middle")

    with sim.Machine("h200"):
        sim.Device(0).set_current()
        return called(VALUES[:2], compose)


# Slices of a simulated device.


class Watched(Producer):
    """Fills frames, and notes on how many SMs."""

    counts: list[Any]

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        self.counts.append(stream.stream.resources.sm.sm_count)
        super().compute(op_input, op_output, context)


def watched(fragment: Any, kept: list[Any], *arguments: Any) -> Watched:
    """Return an operator that fills two frames, on a slice unless it is given something else."""
    fragment.add_default_green_context_pool(0, [16, 40], 1)
    made = Watched(fragment, *arguments, CountCondition(fragment, 2), name="first")
    made.counts = kept
    return made


def recorded_slice() -> list[Any]:
    """Record what is filled on a slice."""
    pytest.importorskip("mcap")
    from headrace.observe import PortRecorder, Recording

    kept: list[Any] = []

    def compose(app: App) -> None:
        app.add_flow(watched(app, kept), Consumer(app, name="last"))

    with sim.Machine("h200"), TemporaryDirectory() as folder:
        sim.Device(0).set_current()
        watch(app := App(compose), PortRecorder(path := Path(folder) / "run.mcap"))
        app.run()
        with Recording(path) as recording:
            return kept + [int(np.asarray(each.data)[0]) for each in recording]


def parted_slice() -> list[Any]:
    """Send what is filled on a slice to another part, which reads it on its own slice."""
    counts: list[Any] = []

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        memory = op_input.receive("in").__simulated_memory__()
        counts.append(int(memory.view(np.int64)[0]))

    def edge(part: Any) -> None:
        part.add_operator(watched(part, counts))

    def server(part: Any, kept: list[Any]) -> None:
        part.add_operator(Step(part, inputs=["in"], body=read, name="last"))

    with sim.Machine("h200"):
        sim.Device(0).set_current()
        parted(edge, server, ("first.out", "last.in"))
    return sorted(counts)


def replicated_slice() -> list[Any]:
    """Give a slice to an operator with replicas in processes, which have no resource of this one."""

    def compose(app: App, kept: list[Any]) -> None:
        slices = app.add_default_green_context_pool(0, [16, 40])
        triple = tripled(app, CudaGreenContext(app, slices, 0), workers=2, on="processes", name="triple")
        app.add_flow(source(app, VALUES), triple, sink(app, kept))

    with sim.Machine("h200"):
        return composed(compose)


# Frames of a device, captured segments, and replicas in processes, which take no such frames.


class Filling(Work):
    """Makes a frame of the number that it receives."""

    capturable = False

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Fill it."""
        self.emit(current_stream(), op_output, COUNT, op_input.receive("in"))


class Adding(Work):
    """Adds a number, on some SMs."""

    capturable = True

    def start(self) -> None:
        """Note on how many."""
        stream: Any = current_stream()
        self.sm_count = stream.stream.resources.sm.sm_count


def in_segment(
    before: Callable[[App], Iterable[Any]],
    captured: bool = True,
    prepare: Callable[[App], App] = lambda app: app,
) -> list[Any]:
    """Return what a segment makes of numbers, its state, how often it was replayed, and the SMs of its stages."""

    def compose(app: Any) -> None:
        memory = UnboundedAllocator(app)
        app.stages = [Adding(app, alloc=memory, plus=plus, name=f"add {plus}") for plus in (10, 20)]
        app.last = Ends(app, name="last")
        app.add_flow(*before(app), Filling(app, alloc=memory, name="filling"), *app.stages, app.last)
        if captured:
            app.capture(*app.stages)

    app: Any = prepare(App(compose))
    (segment,) = app.run().segments
    return [*app.last.seen, segment.state, segment.replayed, *(stage.sm_count for stage in app.stages)]


def behind_replicas(app: App) -> Iterable[Any]:
    """Return replicas in processes, behind a source."""
    return source(app, VALUES), tripled(app, workers=2, on="processes", name="triple")


def frames_in_processes() -> list[Any]:
    """Send frames to replicas in processes."""

    def compose(app: App, kept: list[Any]) -> None:
        triple = tripled(app, workers=2, on="processes", name="triple")
        app.add_flow(Producer(app, CountCondition(app, 2), name="first"), triple, sink(app, kept))

    return composed(compose)


# Plans, which put an operator on a slice.


def planned(app: Any, name: str = "middle") -> Any:
    """Return an application that uses a plan of its graph."""
    flows = flows_of(app.compose_graph())
    app.use_plan(Plan("NVIDIA H200 (simulated)", 132, flows, {"own": (16, [name])}))
    return app


def on_h200(program: Callable[[], Any]) -> Any:
    """Run a program on a simulated device."""
    with sim.Machine("h200"):
        sim.Device(0).set_current()
        return program()


def recorded_plan() -> list[Any]:
    """Record what an operator sends from the slice of a plan."""
    pytest.importorskip("mcap")
    from headrace.observe import PortRecorder, Recording

    with TemporaryDirectory() as folder:
        watch(app := planned(App(partial(counted, kept=[]))), PortRecorder(path := Path(folder) / "run.mcap"))
        app.run()
        return [message.data for message in Recording(path).messages("middle.out")]


def segment_by_plan(captured: bool) -> list[Any]:
    """Put a segment on the slice of a plan; the program declares it, or the plan does."""
    names = ["add 10", "add 20"]

    def plan(app: App) -> App:
        segments = [] if captured else [names]
        flows = flows_of(app.compose_graph())
        app.use_plan(Plan("NVIDIA H200 (simulated)", 132, flows, {"own": (16, names)}, segments=segments))
        return app

    return in_segment(lambda app: [source(app, VALUES)], captured, plan)


def called_by_plan() -> list[Any]:
    """Return on how many SMs of a plan a call was computed."""
    return called(
        VALUES[:2],
        lambda app: Step(app, inputs=["in"], outputs=["out"], body=count_sms, name="middle"),
        planned,
    )


def parted_by_plan() -> list[Any]:
    """Compute in a part on the slice that the plan of all parts gives to an operator."""

    def server(part: Any, kept: list[Any]) -> None:
        middle = Step(part, inputs=["in"], outputs=["out"], body=count_sms, name="middle")
        part.add_flow(middle, sink(part, kept))

    kept: list[Any] = []
    flow = ("first.out", "middle.in")
    graph = two_parts([], first_values, server, flow).compose_graph()
    plan = Plan("NVIDIA H200 (simulated)", 132, flows_of(graph), {"own": (16, ["server.middle"])})

    def make() -> Application:
        app = two_parts(kept, first_values, server, flow)
        app.use_plan(plan)
        return app

    assert not run_parts(make, ["edge", "server"]).errors
    return kept


def replicated_by_plan(**options: Any) -> list[Any]:
    """Put an operator with replicas on the slice of a plan."""

    def compose(app: App) -> None:
        middle = tripled(app, workers=2, name="middle", **options)
        app.add_flow(source(app, VALUES), middle, sink(app, []))

    app = App(compose)
    flows = {"source": ["middle"], "middle": ["sink"], "sink": []}
    app.use_plan(Plan("NVIDIA H200 (simulated)", 132, flows, {"own": (16, ["middle"])}))
    app.run()
    return []


def behind(change: Callable[[Any], Any]) -> Callable[[App, FeedOp, list[Any]], Any]:
    """Return what changes a feed and connects it with a sink."""

    def connect(app: App, feed: FeedOp, kept: list[Any]) -> None:
        change(feed)
        app.add_flow(feed, sink(app, kept))

    return connect


def with_end(operator: Any) -> None:
    """Give an operator an end."""
    operator.end = lambda i, o, c: o.emit("end", "out")


def ended_results() -> list[Any]:
    """Return what results give, and what they had taken when they ended."""
    taken: list[Any] = []

    class Ending(ResultsOp):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)
            taken.append("compute")

        def end(self, op_input: Any, op_output: Any, context: Any) -> None:
            taken.append("end")

    return [*taken_from(kind=Ending), *taken]


def timeout(app: Any) -> list[Any]:
    """Return a timeout on an input."""
    return [MultiMessageAvailableTimeoutCondition(app, 100, "SumOfAll", min_sum=2, receivers=["in"])]


def counting(app: Any) -> list[Any]:
    """Return the condition that ends an operator after two computes."""
    return [CountCondition(app, 2)]


def ticking(app: Any) -> list[Any]:
    """Return the condition that lets an operator compute once in a millisecond."""
    return [PeriodicCondition(app, "1ms")]


def back(size: int = 1, policy: Any = None, optional: bool = True) -> Callable[[Any], Any]:
    """Return what declares the input of a loop."""

    def declare(spec: Any) -> None:
        port = spec.input("back", size=size, policy=policy)
        if optional:
            port.condition(ConditionType.NONE)

    return declare


def timed_back(spec: Any) -> None:
    """Declare the input of a loop, with a timeout."""
    spec.input("back", size=4)
    spec.multi_port_condition(
        ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT,
        ["back"],
        execution_frequency="100ns",
        sampling_mode="SumOfAll",
        min_sum=3,
    )


Program = Callable[[], list[Any]]
ROUND = [("in", 1), ("in", 2), ("back", 1), ("back", 2)]
FAILED = [1, ("failed", 2), 3, 4]
DESCRIBED = [(value, {"value": {"value": value}}) for value in VALUES]
BATCHES = [(1, 2, 3), (4,)]

WORKS: dict[tuple[str, str], tuple[Program, list[Any]]] = {
    ("feed", "count"): (partial(fed, None, counting), [1, 2]),
    ("feed", "period"): (partial(fed, at_times, ticking), [(1, 0), (2, 1), (3, 2), (4, 3)]),
    ("feed", "skip"): (partial(fails_once, fed, FeedOp, "skip"), [*VALUES, 1]),
    ("feed", "restart"): (partial(fails_once, fed, FeedOp, restart(2)), [*VALUES, 2]),
    ("feed", "end"): (partial(fed, behind(with_end)), [*VALUES, "end"]),
    ("feed", "order"): (partial(fed, ordered), ["after", 1, "after", 2, "after", 3, "after", 4]),
    ("feed", "chosen flows"): (partial(fed, chosen), VALUES),
    ("feed", "metadata by port"): (partial(fed, described), [(value, {"value": value}) for value in VALUES]),
    ("feed", "subgraph"): (feed_in_subgraph, VALUES),
    ("feed", "max_messages"): (partial(fed_until, max_messages=2), [1, 2]),
    ("feed", "duration"): (partial(fed_until, duration="100ms"), [1, 2]),
    ("results", "batch"): (partial(taken_from, queued(size=4)), VALUES),
    ("results", "several flows, several queues"): (
        partial(taken_from, two_flows, kind=Pairs),
        [(1, 3), (2, 4)],
    ),
    ("results", "several flows, one queue"): (partial(taken_from, two_flows), [1, 3, 2, 4]),
    ("results", "POP"): (partial(taken_from, queued(policy=POLICIES.POP)), [4]),
    ("results", "REJECT"): (partial(taken_from, queued(policy=POLICIES.REJECT)), [1]),
    ("results", "window"): (partial(taken_from, joined_results(window(2))), [[1, 2], [3, 4]]),
    ("results", "count"): (partial(taken_from, None, counting), [1, 2]),
    ("results", "period"): (partial(followed_results, ticking), [*VALUES, 0, 1, 2, 3]),
    ("results", "retry"): (partial(fails_once, taken_from, ResultsOp, retry(2)), [*VALUES, 1]),
    ("results", "skip"): (partial(fails_once, taken_from, ResultsOp, "skip"), [1, 3, 4, 1]),
    ("results", "restart"): (partial(fails_once, taken_from, ResultsOp, restart(2)), [1, 3, 4, 2]),
    ("results", "dead letter"): (results_with_letters, [1, 3, 4, 1, [2]]),
    ("results", "end"): (ended_results, [*VALUES, *["compute"] * 4, "end"]),
    ("results", "order"): (followed_results, [*VALUES, 0, 0, 0, 0]),
    ("results", "chosen flows"): (chosen_after_results, [*VALUES, *["left"] * 4]),
    ("results", "metadata by port"): (
        described_results,
        [(value, {"in": {"value": value}}) for value in VALUES],
    ),
    ("results", "subgraph"): (results_in_subgraph, VALUES),
    ("results", "max_messages"): (partial(taken_until, max_messages=2), [1, 2]),
    ("results", "duration"): (partial(taken_until, duration="2500us"), [1, 2, 3]),
    ("generator", "join by time"): (partial(composed, joined(both)), [(1, 1), (2, 2), (3, 3)]),
    ("async function", "join by time"): (partial(composed, joined(both_async)), [(1, 1), (2, 2), (3, 3)]),
    ("generator", "timeout"): (partial(composed, timed(doubled)), [(1, 2, 3), (1, 2, 3), (4,), (4,)]),
    ("async function", "timeout"): (partial(composed, timed(awaited)), BATCHES),
    ("generator", "end"): (partial(composed, ended(passed)), [*VALUES, "end"]),
    ("async function", "end"): (partial(composed, ended(passed_async)), [*VALUES, "end"]),
    ("generator", "metadata by port"): (partial(described_by, passed), DESCRIBED),
    ("async function", "metadata by port"): (partial(described_by, passed_async), DESCRIBED),
    ("dead letter", "skip"): (
        partial(failing_thrice, skip(2) | dead_letter("failed")),
        ["start", 1, ("failed", 2), ("failed", 3)],
    ),
    ("dead letter", "restart"): (
        partial(failing_thrice, restart(2) | dead_letter("failed")),
        ["start", 1, "start", ("failed", 2), "start", ("failed", 3)],
    ),
    ("dead letter", "order"): (partial(composed, failing(dead_letter("failed"), after_once)), FAILED),
    ("retry", "order"): (partial(composed, failing(retry(3), after_once, once=True)), VALUES),
    ("timeout", "several flows, one queue"): (partial(composed, timed_shared), [(1, 3, 2), (4,)]),
    ("timeout", "optional input"): (
        partial(composed, timed_optional),
        [(0, (1, 3, 2), 1), (100, None, None), (200, None, None), (300, (4,), None)],
    ),
    ("timeout", "period"): (
        partial(composed, timed_step(lambda app: PeriodicCondition(app, "1us"))),
        BATCHES,
    ),
    ("timeout", "order"): (partial(composed, timed_step(before=timed_after)), [(1, 2, 3)]),
    ("timeout", "retry"): (partial(composed, timed_step(on_error=retry(2))), BATCHES),
    ("timeout", "dead letter"): (
        partial(composed, timed_step(on_error=dead_letter("failed"))),
        [("failed", (1, 2, 3)), (4,)],
    ),
    ("join by time", "several flows, one queue"): (
        partial(composed, joined_shared),
        [(1, 1), (2, 2), (3, 3)],
    ),
    ("replicas", "several flows, one queue"): (partial(composed, replicated_shared), [1, 3, 2, 4]),
    ("window", "optional input"): (partial(composed, optional_window), [((1, 2), 1), ((3, 4), None)]),
    ("loop", "batch"): (partial(composed, looped(back(2))), ROUND),
    ("loop", "POP"): (partial(composed, looped(back(policy=POLICIES.POP))), ROUND),
    ("loop", "REJECT"): (partial(composed, looped(back(policy=POLICIES.REJECT))), ROUND),
    ("loop", "optional input"): (partial(composed, looped(back())), ROUND),
    ("loop", "chosen flows"): (partial(composed, looped(back(), more=one_choice)), ROUND),
    ("loop", "timeout"): (partial(composed, looped(timed_back)), ROUND),
    ("loop", "LATEST"): (
        partial(composed, looped(back(policy=POLICIES.LATEST, optional=False))),
        [*ROUND, *[("back", 2)] * 3],
    ),
    ("loop", "several flows, several queues"): (
        partial(composed, looped(back(IOSpec.ANY_SIZE), more=second_back)),
        [("in", 1), ("in", 2), *[("back", 1)] * 2, *[("back", 2)] * 2],
    ),
    ("loop", "join by time"): (
        partial(composed, joined_loop(reuse_last(wait="1ms", missing=substitute(None)))),
        [(1, None), (2, None)],
    ),
    ("parts", "subgraph"): (partial(parted, first_values, grouped, ("first.out", "group.port")), VALUES),
    ("parts", "several flows, several queues"): (
        partial(parted, first_values, in_several_queues, ("first.out", "last.in")),
        [[1, 10], [2, 20], [3, 30], [4, 40]],
    ),
    ("parts", "replicas in processes"): (
        partial(parted, first_values, in_replicas, ("first.out", "triple.value")),
        [3, 6, 9, 12],
    ),
    ("request and reply", "max_messages"): (
        partial(called, max_messages=2),
        [1, 2, *["FeedClosedError"] * 2],
    ),
    ("request and reply", "duration"): (
        partial(called, VALUES, ticking_middle, duration="2500us"),
        [1, 2, 3, "FeedClosedError"],
    ),
    ("request and reply", "slice"): (called_on_a_slice, [40, 40]),
    ("captured segment", "replicas in processes"): (
        partial(on_h200, partial(in_segment, behind_replicas)),
        [33, 36, 39, 42, "captured", 3, 132, 132],
    ),
    ("plan", "captured segment"): (
        partial(on_h200, lambda: segment_by_plan(True) + segment_by_plan(False)),
        [31, 32, 33, 34, "captured", 3, 16, 16] * 2,
    ),
    ("plan", "recording"): (partial(on_h200, recorded_plan), [16] * 4),
    ("plan", "replay"): (
        partial(on_h200, partial(replayed, counted, lambda app: planned(app).run())),
        [16] * 4,
    ),
    ("plan", "request and reply"): (partial(on_h200, called_by_plan), [16] * 2),
    ("plan", "parts"): (partial(on_h200, parted_by_plan), [16] * 4),
    ("replay", "feed"): (partial(replayed, from_feed_to_results, feed_once), VALUES),
    ("replay", "results"): (partial(replayed, to_results, take_results), VALUES),
    ("replay", "running()"): (partial(replayed, to_results, take_results), VALUES),
    ("replay", "changes"): (partial(replayed, changing), [3, 4]),
    ("replay", "replicas in processes"): (partial(replayed, replicated), [3, 6, 9, 12]),
    ("replay", "slice"): (replayed_on_a_slice, [40] * 4),
    ("slice", "recording"): (recorded_slice, [40, 40, 0, 1]),
    ("slice", "parts"): (parted_slice, [0, 1, 40, 40]),
}
"""What works together, and what the program of it gives."""

REFUSED: dict[tuple[str, str], Program] = {
    **{
        ("feed", kind): partial(fed, into)
        for kind in (
            *(
                "batch",
                "several flows, several queues",
                "several flows, one queue",
                "POP",
                "REJECT",
                "LATEST",
            ),
            *("optional input", "loop"),
        )
    },
    ("feed", "timeout"): partial(fed, None, timeout),
    ("feed", "join by time"): partial(fed, behind(lambda feed: feed.join(aligned("1ms")))),
    ("feed", "window"): partial(fed, behind(lambda feed: feed.join(**{"in": window(2)}))),
    ("feed", "replicas"): partial(fed, workers=2),
    ("feed", "retry"): partial(fed, on_error=retry(2)),
    ("feed", "dead letter"): partial(fed, on_error=dead_letter("failed")),
    ("results", "LATEST"): partial(taken_from, queued(policy=POLICIES.LATEST)),
    ("results", "optional input"): partial(taken_from, optional_results),
    ("results", "timeout"): partial(taken_from, results_after_a_timeout),
    ("results", "join by time"): partial(taken_from, joined_results(aligned("1ms"))),
    ("results", "replicas"): partial(taken_from, workers=2),
    ("results", "loop"): partial(taken_from, results_in_a_loop),
    ("loop", "window"): partial(composed, joined_loop(window(1))),
    ("running()", "max_messages"): partial(block_with, max_messages=2),
    ("running()", "duration"): partial(block_with, duration="1s"),
    ("frames on streams", "replicas in processes"): partial(on_h200, frames_in_processes),
    ("slice", "replicas in processes"): replicated_slice,
    ("plan", "replicas"): partial(on_h200, replicated_by_plan),
    ("plan", "replicas in processes"): partial(on_h200, partial(replicated_by_plan, on="processes")),
    ("plan", "slice"): partial(on_h200, lambda: planned(App(partial(on_a_slice, kept=[]))).run()),
    ("replay", "request and reply"): partial(replayed, from_feed_to_results, call_once),
    ("request and reply", "parts"): partial(with_an_end, FeedOp),
    ("parts", "feed"): partial(with_an_end, FeedOp),
    ("parts", "results"): partial(with_an_end, Answers),
}
"""What is refused: the program raises a GraphError, a ParameterError or a TypeError."""
