"""Which paths a tracker finds, and what it counts on them."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, operator, program


def through(sdk: SimpleNamespace) -> type:
    """Make a class of operators that pass on."""
    return operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in"), "out"))


def sink(sdk: SimpleNamespace, *inputs: str) -> type:
    """Make a class of operators that receive from all their inputs."""

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        for name in inputs or ("in",):
            i.receive(name)

    return operator(sdk, list(inputs or ("in",)), [], take)


def counts(sdk: SimpleNamespace, log: list, compose: Any, **options: Any) -> None:
    """Run an application with a tracker, and log its paths with the numbers of messages."""
    metric = sdk.DataFlowMetric
    app = application(sdk, compose)
    with sdk.Tracker(app, **options) as tracker:
        app.run()
        log.append(tracker.get_num_paths())
        for path in sorted(tracker.get_path_strings()):
            count = tracker.get_metric(path, metric.NUM_DST_MESSAGES)
            ids = [tracker.get_metric(path, each) for each in (metric.MIN_MESSAGE_ID, metric.MAX_MESSAGE_ID)]
            log.append([path, count, [1 <= number <= count for number in ids] if count else ids])
        log.append(sorted(tracker.get_metric(metric=metric.NUM_SRC_MESSAGES).items()))


def chain(sdk: SimpleNamespace, messages: int) -> Any:
    def compose(app: Any) -> None:
        tx = counter(sdk)(app, sdk.CountCondition(app, messages), name="tx")
        mx = through(sdk)(app, name="mx")
        rx = sink(sdk)(app, name="rx")
        app.add_flow(tx, mx)
        app.add_flow(mx, rx)

    return compose


@program
def a_tracked_chain(sdk: SimpleNamespace, log: list) -> None:
    counts(sdk, log, chain(sdk, 30))


@program
def a_tracked_chain_of_few_messages(sdk: SimpleNamespace, log: list) -> None:
    counts(sdk, log, chain(sdk, 15))


@program
def a_tracked_chain_that_skips_nothing(sdk: SimpleNamespace, log: list) -> None:
    counts(sdk, log, chain(sdk, 12), num_start_messages_to_skip=0, num_last_messages_to_discard=0)


@program
def a_tracked_chain_that_skips_and_discards(sdk: SimpleNamespace, log: list) -> None:
    counts(sdk, log, chain(sdk, 12), num_start_messages_to_skip=3, num_last_messages_to_discard=2)


@program
def a_tracked_chain_with_a_threshold(sdk: SimpleNamespace, log: list) -> None:
    counts(sdk, log, chain(sdk, 12), num_start_messages_to_skip=0, latency_threshold=1000)


@program
def a_tracked_chain_with_only_its_ends(sdk: SimpleNamespace, log: list) -> None:
    options = {"num_start_messages_to_skip": 0, "num_last_messages_to_discard": 0}
    counts(sdk, log, chain(sdk, 12), is_limited_tracking=True, **options)


@program
def a_tracked_diamond(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        tx = counter(sdk)(app, sdk.CountCondition(app, 20), name="tx")
        left, right = (through(sdk)(app, name=name) for name in ("left", "right"))
        rx = sink(sdk, "a", "b")(app, name="rx")
        app.add_flow(tx, left)
        app.add_flow(tx, right)
        app.add_flow(left, rx, {("out", "a")})
        app.add_flow(right, rx, {("out", "b")})

    counts(sdk, log, compose, num_start_messages_to_skip=2, num_last_messages_to_discard=3)


@program
def a_tracked_source_with_two_outputs_to_one_operator(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        both = lambda self, i, o, c: (o.emit(1, "out1"), o.emit(2, "out2"))  # noqa: E731
        tx = operator(sdk, [], ["out1", "out2"], both)(app, sdk.CountCondition(app, 30), name="tx")
        sums = lambda self, i, o, c: o.emit(i.receive("in1") + i.receive("in2"), "out")  # noqa: E731
        mx = operator(sdk, ["in1", "in2"], ["out"], sums)(app, name="mx")
        rx = sink(sdk)(app, name="rx")
        app.add_flow(tx, mx, {("out1", "in1"), ("out2", "in2")})
        app.add_flow(mx, rx)

    counts(sdk, log, compose, num_start_messages_to_skip=2, num_last_messages_to_discard=3)


@program
def two_tracked_sources_and_two_sinks(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        one, two = (counter(sdk)(app, sdk.CountCondition(app, 20), name=name) for name in ("one", "two"))
        sums = lambda self, i, o, c: o.emit(i.receive("a") + i.receive("b"), "out")  # noqa: E731
        join = operator(sdk, ["a", "b"], ["out"], sums)(app, name="join")
        app.add_flow(one, join, {("out", "a")})
        app.add_flow(two, join, {("out", "b")})
        for name in ("left", "right"):
            app.add_flow(join, sink(sdk)(app, name=name))

    counts(sdk, log, compose, num_start_messages_to_skip=0, num_last_messages_to_discard=0)


@program
def a_tracked_operator_that_drops_every_second_message(sdk: SimpleNamespace, log: list) -> None:
    def half(self: Any, i: Any, o: Any, c: Any) -> None:
        value = i.receive("in")
        if value % 2:
            o.emit(value, "out")

    def compose(app: Any) -> None:
        tx = counter(sdk)(app, sdk.CountCondition(app, 20), name="tx")
        mx = operator(sdk, ["in"], ["out"], half)(app, name="mx")
        rx = sink(sdk)(app, name="rx")
        app.add_flow(tx, mx)
        app.add_flow(mx, rx)

    counts(sdk, log, compose, num_start_messages_to_skip=0, num_last_messages_to_discard=0)


@program
def a_metric_that_does_not_exist(sdk: SimpleNamespace, log: list) -> None:
    app = application(sdk, chain(sdk, 3))
    with sdk.Tracker(app) as tracker:
        app.run()
        log.append(tracker.get_metric("no,path", sdk.DataFlowMetric.NUM_DST_MESSAGES))
        log.append(tracker.get_metric("tx,mx,rx", sdk.DataFlowMetric.NUM_SRC_MESSAGES))
        log.append(tracker.get_metric(metric=sdk.DataFlowMetric.AVG_E2E_LATENCY))


def log_file(sdk: SimpleNamespace, log: list, compose: Any) -> None:
    """Log what a tracker writes to its file, with T for every time."""
    app = application(sdk, compose)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flow.log"
        with sdk.Tracker(app, filename=str(file), num_buffered_messages=2):
            app.run()
        text = re.sub(r"\d+(?=[,)])", "T", file.read_text())
        # The order of ways within a group says nothing: the SDK's depends on the operators' hashes.
        log.append([text[-2:], [sorted(group.split("\n")) for group in text.split("\n\n")]])


@program
def the_log_file_of_a_chain(sdk: SimpleNamespace, log: list) -> None:
    log_file(sdk, log, chain(sdk, 5))


@program
def the_log_file_of_a_diamond(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        tx = counter(sdk)(app, sdk.CountCondition(app, 3), name="tx")
        left, right = (through(sdk)(app, name=name) for name in ("left", "right"))
        rx = sink(sdk, "a", "b")(app, name="rx")
        app.add_flow(tx, left)
        app.add_flow(tx, right)
        app.add_flow(left, rx, {("out", "a")})
        app.add_flow(right, rx, {("out", "b")})

    log_file(sdk, log, compose)


@program
def what_a_tracker_prints(sdk: SimpleNamespace, log: list) -> None:
    app = application(sdk, chain(sdk, 30))
    with sdk.Tracker(app) as tracker:
        app.run()
        with tempfile.TemporaryFile("w+") as file:
            # The SDK prints from C++, so the file takes the place of the process's own output.
            sys.stdout.flush()
            kept = os.dup(1)
            os.dup2(file.fileno(), 1)
            try:
                with redirect_stdout(file):
                    tracker.print()
                file.flush()
            finally:
                os.dup2(kept, 1)
                os.close(kept)
            file.seek(0)
            log.append(re.sub(r"(No|\(ms\)): [\d.e-]+", r"\1: N", file.read().strip()))
