"""Where the p99 goes, and files that are cut off, foreign or hostile."""

from __future__ import annotations

import argparse
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.cli import Failed
from headrace.cli import trace as command
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.gpu import sim
from headrace.observe import TraceError, TraceSummary, summarize_trace
from headrace.observe.traces import trace_summary
from tests.harness import Consumer, MakeScheduler, Producer, Step, greedy, launch, source
from tests.observe.traces.traces import traced

HEADER = {"ph": "M", "name": "headrace", "pid": 1, "tid": 1, "ts": 0, "args": {"format": 1}}


def busy(app: Any, nanoseconds: int) -> None:
    """Let the time of a run pass, as if the host computed."""
    app.scheduler().clock.sleep_for(nanoseconds / 1e9)


def part(summary: TraceSummary, kind: str, where: str) -> Any:
    (found,) = [part for part in summary.paths[0].parts if (part.kind, part.where) == (kind, where)]
    return found


def summary_of(compose: Any, tmp_path: Path, scheduler: MakeScheduler = greedy) -> TraceSummary:
    traced(compose, tmp_path / "out.json", scheduler)
    return summarize_trace(tmp_path / "out.json")


def test_a_slow_compute_is_named_on_the_host(tmp_path: Path) -> None:
    """One frame in ten takes 8 ms longer."""

    def compose(app: Any) -> None:
        def work(self: Step, i: Any, o: Any) -> None:
            i.receive("in")
            busy(app, 9_000_000 if self.ticks % 10 == 0 else 1_000_000)

        first = source(app, range(200), PeriodicCondition(app, 20e-3), name="camera")
        app.add_flow(first, Step(app, inputs=["in"], body=work, name="filter"))

    summary = summary_of(compose, tmp_path)
    (path,) = summary.paths
    assert (path.name, path.count) == ("camera → filter", 200)
    assert (path.p50, path.p99) == pytest.approx((1, 9))
    assert (part(summary, "host", "filter").median, part(summary, "host", "filter").late) == pytest.approx(
        (1, 9)
    )
    assert path.conclusion == "Of the 8.00 ms more, 8.00 ms are spent in the compute of filter, on the host."
    assert summary.is_virtual
    assert summary.is_complete


def test_a_queue_is_named_with_the_operator_that_is_computed_instead(tmp_path: Path) -> None:
    """With one thread, a slow branch holds up the other one."""

    def compose(app: Any) -> None:
        def encode(self: Step, i: Any, o: Any) -> None:
            i.receive("in")
            busy(app, 30_000_000 if self.ticks % 20 == 0 else 1_000_000)

        first = source(app, range(400), PeriodicCondition(app, 50e-3), name="camera")
        app.add_flow(first, Step(app, inputs=["in"], body=take, name="display"))
        app.add_flow(first, Step(app, inputs=["in"], body=encode, name="encode"))

    traced(compose, tmp_path / "out.json")
    summary = summarize_trace(tmp_path / "out.json")
    (path,) = [path for path in summary.paths if path.name == "camera → display"]
    assert path.conclusion == (
        "Of the 29.00 ms more, 29.00 ms are spent in the wait of display for a worker, "
        "while encode computes for 100% of that time."
    )


def test_a_queue_is_named_with_its_own_consumer_if_that_is_busy(tmp_path: Path) -> None:
    """Message 9 waits for 7 of its 8 ms, in which the consumer computes for 6 ms."""
    events: list[Any] = []
    for number in range(10):
        wait = 7000 if number == 9 else 0
        times = {"received": [0, number * 1e4 + wait], "emitted": [number * 1e4, number * 1e4 + wait + 1000]}
        parts = {"queue display.in": wait, "host display": 1000}
        events.append({**path_with(parts_us=parts, latency_us=wait + 1000, **times), "id": number})
        events[-1]["name"] = "camera → display"
    compute = {"ph": "X", "name": "display", "cat": "compute", "pid": 1, "tid": 100, "ts": 9e4, "dur": 6000}
    (tmp_path / "out.json").write_bytes(lines(HEADER, *events, compute))
    assert summarize_trace(tmp_path / "out.json").paths[0].conclusion == (
        "Of the 7.00 ms more, 7.00 ms are spent in the queue of display.in, which waits for compute of display: "
        "earlier messages take 86% of that time."
    )


def test_a_neighbour_on_the_same_sms_is_named_and_a_slice_proposed(
    machine: sim.Machine, tmp_path: Path
) -> None:
    def compose(app: Any) -> None:
        class Wide(Consumer):
            def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
                op_input.receive("in")
                launch(op_input.receive_cuda_stream("in"), 0.5e-3, lambda: None, grid=100)

        def noise(self: Step, i: Any, o: Any, context: Any) -> None:
            launch(context.allocate_cuda_stream("own"), 4e-3, lambda: None, grid=2112)

        pace = PeriodicCondition(app, 10e-3), CountCondition(app, 100)
        app.add_flow(Producer(app, *pace, name="camera"), Wide(app, name="critical"))
        pace = PeriodicCondition(app, 70e-3), CountCondition(app, 14)
        app.add_operator(Step(app, *pace, body=noise, name="noise"))

    summary = summary_of(compose, tmp_path)
    conclusion = summary.paths[0].conclusion
    assert "GPU work of c" in conclusion
    assert "on all 132 SMs, while noise works on the same SMs" in conclusion
    assert "a slice of its own would keep c" in conclusion
    assert part(summary, "gpu", "critical").slice == "all 132 SMs"


def test_a_steady_path_has_no_culprit(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        def work(self: Step, i: Any, o: Any) -> None:
            i.receive("in")
            busy(app, 1_000_000)

        first = source(app, range(50), PeriodicCondition(app, 5e-3), name="camera")
        app.add_flow(first, Step(app, inputs=["in"], body=work, name="filter"))

    assert "nothing stands out" in str(summary_of(compose, tmp_path))


def test_the_command_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, range(4)), Step(app, inputs=["in"], body=take))

    traced(compose, tmp_path / "o.json")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.main(parser.parse_args(["summary", str(tmp_path / "o.json")])) == 0
    assert "source → step: 4 messages, p50 0.00 ms, p99 0.00 ms" in capsys.readouterr().out
    assert command.main(parser.parse_args(["summary", "--json", str(tmp_path / "o.json")])) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["paths"][0]["count"] == 4
    with pytest.raises(Failed, match="missing.json: No such file or directory"):
        command.main(parser.parse_args(["summary", str(tmp_path / "missing.json")]))


def take(self: Step, i: Any, o: Any) -> None:
    i.receive("in")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The trace of a run of 100 messages."""
    path = tmp_path / "out.json"
    traced(lambda app: app.add_flow(source(app, range(100)), Step(app, inputs=["in"], body=take)), path)
    return path


def test_a_cut_off_trace_is_read_up_to_there(written: Path, tmp_path: Path) -> None:
    data = written.read_bytes()
    end = data.rindex(b'"ph":"b"')
    counts = []
    for cut in (len(data) - 3, end + 40, data.index(b"\n", end) - 1):
        (tmp_path / "cut.json").write_bytes(data[:cut])
        summary = summarize_trace(tmp_path / "cut.json")
        assert not summary.is_complete
        assert "the trace is cut off" in str(summary)
        counts.append(summary.paths[0].count)
    assert counts == [100, 99, 100]


def lines(*events: Any) -> bytes:
    return b"[\n" + b",\n".join(json.dumps(event).encode() for event in events) + b"\n]\n"


PATH = {
    "ph": "b",
    "name": "a → b",
    "cat": "path",
    "pid": 2,
    "tid": 2,
    "ts": 0,
    "id": 1,
    "args": {
        "latency_us": 1,
        "parts_us": {"host a": 1},
        "received": [0, 0],
        "emitted": [0, 1],
        "gpu_started": [None, None],
        "gpu_ended": [None, None],
    },
}


def path_with(**arguments: Any) -> dict[str, Any]:
    return {**PATH, "args": {**PATH["args"], **arguments}}


def busy_with(**arguments: Any) -> dict[str, Any]:
    kinds = ("operators", "gpu", "queues", "threads", "slices", "saturated")
    return {**HEADER, "name": "busy", "args": {**{kind: {} for kind in kinds}, **arguments}}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no events"),
        (b"[\n", "no events"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "line 1: a trace of headrace begins with a line"),
        (b'{"traceEvents": []}\n', "line 1: a trace of headrace begins"),
        (
            lines({"ph": "X", "name": "x", "ts": 0, "dur": 1, "pid": 1, "tid": 1}),
            "line 2: .* says so in its first",
        ),
        (lines({**HEADER, "args": {"format": 99}}), "line 2: the format 99 is unknown"),
        (lines({**HEADER, "args": {"format": "x" * 9999}}), "line 2: the format"),
        (b"[\n" + b"[" * 500_000 + b"\n]\n", "line 2: not an event"),
        (b"[\n" + b"x" * 5_000_000, "line 2: a line longer"),
        (b"[\n\xff\xfe,\n]\n", "line 2: not an event"),
        (lines(HEADER, 7), "line 3: not an event"),
        (lines(HEADER, {"ph": "X", "name": "x"}), "line 3: an event has numbers"),
        (lines(HEADER, {"ph": [], "name": "x"}), "line 3: an event has a kind"),
        (lines(HEADER, {**HEADER, "ph": "X", "dur": -1}), "line 3: a slice has a duration"),
        (lines(HEADER, {**HEADER, "args": []}), "line 3: the arguments"),
        (lines(HEADER, {**HEADER, "ts": True}), "line 3: an event has numbers"),
        (b"[\n" + json.dumps(HEADER).encode() + b',\n{"ph":"X","ts":NaN},\n]\n', "line 3: .*NaN"),
        (
            b"[\n" + json.dumps(HEADER).encode() + b',\n{"ph":"i","name":"","ts":1e999,"pid":1,"tid":1},\n',
            "line 3",
        ),
        (b"[\n" + json.dumps(HEADER).encode() + b',\n{"ts":' + b"9" * 5000 + b"},\n", "line 3"),
        (lines(HEADER, path_with(latency_us="1")), "line 3: a path lacks its times"),
        (lines(HEADER, path_with(parts_us=[])), "line 3: a path lacks its times"),
        (lines(HEADER, path_with(received="00")), "line 3: a path lacks its times"),
        (lines(HEADER, {**HEADER, "name": "busy"}), "line 3: shares of the time"),
        (lines(HEADER, busy_with(gpu={"a": "1"})), "line 3: shares of the time"),
        (lines(HEADER, busy_with(saturated={"a": [["b"]]})), "line 3: shares of the time"),
        (
            lines(HEADER, path_with(parts_us={"__import__": 1})),
            "a part '__import__', which",
        ),
        (b"\x1f\x8b" + b"\x00" * 50, "out.json"),
    ],
)
def test_a_foreign_or_hostile_file_is_refused_in_a_line(tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=what) as caught:
        summarize_trace(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_paths_with_wrong_lengths_are_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(
        lines(HEADER, path_with(received=[], emitted=[], parts_us={"queue b.in": 5, "gpu zzz": 2}))
    )
    assert summarize_trace(path).paths[0].count == 1


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="Is a directory"):
        summarize_trace(tmp_path)


def test_a_long_trace_is_read_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_summary, "_SAMPLE", 200)
    sizes = []
    for count in (300, 1500):
        path = tmp_path / f"{count}.json"
        latencies = np.linspace(0, 100, count)  # slower and slower: the sample must not be the beginning
        path.write_bytes(lines(HEADER, *(path_with(latency_us=float(latency)) for latency in latencies)))
        tracemalloc.start()
        summary = summarize_trace(path)
        sizes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert summary.paths[0].count == count
        assert summary.paths[0].p50 == pytest.approx(0.05, abs=0.02)
    assert sizes[1] < sizes[0] + 100_000  # 1200 more messages would take more than 300 KB
