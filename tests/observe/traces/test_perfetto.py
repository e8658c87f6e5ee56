"""What Perfetto itself makes of a trace: its engine reads the file, and is asked what it found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headrace.gpu import sim
from tests.observe.traces.perfetto import TraceProcessor, perfetto
from tests.observe.traces.test_trace_writer import two_slices
from tests.observe.traces.traces import Trace, load_cut, traced

Read = Callable[[Path], TraceProcessor]


@pytest.fixture(scope="module")
def read() -> Iterator[Read]:
    with perfetto() as read:
        yield read


DOCS = Path(__file__).parents[3] / "docs"


def check(found: TraceProcessor, trace: Trace) -> None:
    """Compare what Perfetto found in a trace with what is in it."""
    assert found.problems == {}
    slices = found.query("select category, count(*) as count from slice group by category")
    kinds = Counter(event["cat"] for event in trace.events if event["ph"] in "Xbi")
    assert {row["category"]: row["count"] for row in slices} == kinds
    arrows = found.query(
        "select source.name as source, source.category as source_kind, source.ts as source_ts, "
        "target.name as target, target.category as target_kind, target.ts as target_ts "
        "from flow join slice source on flow.slice_out = source.id join slice target on flow.slice_in = target.id"
    )
    expected = [
        (*(value(event) for event in pair for value in (_name, _kind, _time)),) for pair in trace.arrows
    ]
    assert sorted(tuple(row.values()) for row in arrows) == sorted(expected)
    levels = found.query(
        "select track.name as name, count(*) as count from counter join counter_track track "
        "on counter.track_id = track.id group by track.name"
    )
    counts = Counter(f"{event['name']} messages" for event in trace.of("C"))
    assert {row["name"]: row["count"] for row in levels} == counts
    groups = found.query("select pid, name from process where name is not null")
    assert {row["pid"]: row["name"] for row in groups} == trace.groups
    times = found.query("select category, ts, dur from slice where category in ('compute', 'gpu', 'kernel')")
    shown = [(event["cat"], _time(event), round(event["dur"] * 1000)) for event in trace.of("X")]
    assert sorted(tuple(row.values()) for row in times) == sorted(shown)


def _name(event: dict[str, Any]) -> str:
    name: str = event["name"]
    return name


def _kind(event: dict[str, Any]) -> str:
    kind: str = event["cat"]
    return kind


def _time(event: dict[str, Any]) -> int:
    return round(event["ts"] * 1000)


def test_computes_work_on_two_slices_arrows_and_counters(
    machine: sim.Machine, read: Read, tmp_path: Path
) -> None:
    trace = traced(two_slices, tmp_path / "out.json")
    found = read(tmp_path / "out.json")
    check(found, trace)
    tracks = found.query(
        "select distinct process.name as slice, thread.name as stream from slice "
        "join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid) "
        "where category = 'gpu'"
    )
    assert {(row["slice"], row["stream"]) for row in tracks} == {
        ("GPU 0: slice camera, 16 of 132 SMs", "stream of producer"),
        ("GPU 0: slice leftover, 116 of 132 SMs", "stream of doubler"),
        ("GPU 0: all 132 SMs", "stream of consumer"),
    }
    paths = found.query(
        "select slice.name, dur, process.name as at from slice join process_track on track_id = process_track.id "
        "join process using (upid) where category = 'path'"
    )
    assert [(row["name"], row["dur"], row["at"]) for row in paths] == [
        ("producer → doubler → consumer", 3_007_500, "App: paths, from origin to end")
    ] * 3
    # The same of a process that was killed.
    data = (tmp_path / "out.json").read_bytes()
    cut = tmp_path / "cut.json"
    cut.write_bytes(data[: len(data) * 2 // 3])
    known = load_cut(cut)
    found = read(cut)
    assert found.problems == {}
    (row,) = found.query("select count(*) as count from slice where category in ('compute', 'gpu', 'kernel')")
    assert row["count"] == len(known.of("X"))


def test_the_queries_of_the_page_tell_what_grows_and_who_works_meanwhile(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "programs"))
    clinic: Any = import_module("clinic")
    goal = clinic.trace(clinic.Clinic, tmp_path / "out.json")
    found = read(tmp_path / "out.json")
    page = (DOCS / "why-is-my-p99-high.md").read_text()
    parts, work = (found.query(query) for query in re.findall(r"```sql\n(.*?)```", page, re.DOTALL))
    usual = {row["part"]: row["median"] for row in parts if row["median"] is not None}
    assert usual == {"gpu camera": 307.5, "gpu segment": 2000.0, "gpu display": 500.0}
    assert sum(row["late"] or 0 for row in parts) >= goal.figure("p99") / 1e3
    assert next(iter(work))["name"] == "report"
