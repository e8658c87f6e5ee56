"""The runs of all parts as one run: one table, one trace, and goals over paths that lead through links.

The parts run side by side in this process and are recorded. What they sent is then put together in any order.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace import Application, CountCondition, Fragment, GreedyScheduler, IOSpec
from headrace.core.checks import compose
from headrace.core.errors import GraphError
from headrace.observe import (
    Dashboard,
    OtelSpans,
    TraceWriter,
    Tracker,
    Watcher,
    watch,
)
from headrace.observe.events.clock_offsets import ClockOffset
from headrace.observe.figures.goals import Goal, GoalsWatcher
from headrace.parts.forwarding import Forwarder, interests_of
from headrace.parts.joined_run import JoinedRun
from headrace.resources import ManualClock, RealtimeClock
from tests.harness import Step, sink, source
from tests.limits import examples
from tests.parts.running import MemoryLinks, UnixLinks, run_parts
from tests.random_programs.making import make
from tests.random_programs.parts import PartsApp, can_be_cut, parts_of, places_of
from tests.random_programs.program import Program, is_orderly


def real(app: Any) -> GreedyScheduler:
    return GreedyScheduler(app, clock=RealtimeClock(app))


LINK = "edge.camera.out -> server.detector.in"
PATH = "edge.camera,server.detector"


class Plant(Application):
    """A camera, and a detector in another part."""

    def __init__(
        self, count: int, taken: list[Any], scheduler: Any = real, make_camera: Any = source, **terms: Any
    ) -> None:
        super().__init__([])
        self._make_camera = make_camera
        self._count, self._taken, self._make_scheduler, self._terms = count, taken, scheduler, terms

    def compose(self) -> None:
        self.scheduler(self._make_scheduler(self))
        count, taken, make_camera = self._count, self._taken, self._make_camera

        class Edge(Fragment):
            def compose(self) -> None:
                self.add_operator(make_camera(self, range(count), name="camera"))

        class Server(Fragment):
            def compose(self) -> None:
                self.add_operator(sink(self, taken, name="detector"))

        self.add_flow(
            Edge(self, "edge"), Server(self, "server"), {("camera.out", "detector.in")}, **self._terms
        )


class Recorded:
    """What the parts of a run sent."""

    def __init__(self, make: Callable[[], Application], parts: list[str], links: Any = None) -> None:
        self.application, self.parts = make(), parts
        self.sent: dict[str, list[Any]] = {part: [] for part in parts}
        interests = interests_of([TraceWriter("unused.json"), GoalsWatcher()])

        def prepare(cut: Any) -> None:
            watch(cut.application, Forwarder(self.sent[cut.part].append, interests))

        result = run_parts(make, parts, links or MemoryLinks(), prepare=prepare)
        assert not result.errors

    def join(
        self, *watchers: Any, order: Iterable[str] = (), clocks: dict[str, ClockOffset] | None = None
    ) -> None:
        """Show the run to watchers; `order` names the part of each piece, and the rest comes part by part."""
        joined = JoinedRun(self.application, self.parts, watchers, {})
        left = {part: iter(pieces) for part, pieces in self.sent.items()}
        for part in (*order, *(each for each in self.parts for _ in self.sent[each])):
            piece = next(left[part], None)
            if piece is not None:
                joined.add(part, piece, (clocks or {}).get(part, ClockOffset()))
        joined.end(None)


def goal_for(path: str, **bounds: Any) -> tuple[Goal, GoalsWatcher]:
    goal, watcher = Goal(path, bounds, None), GoalsWatcher()
    watcher.goals.append(goal)
    return goal, watcher


@pytest.mark.parametrize("links", [MemoryLinks, UnixLinks])
@pytest.mark.parametrize("order", [(), ("server",) * 9, ("server", "edge") * 9])
def test_a_table_has_the_operators_links_and_paths_of_all_parts(links: Any, order: tuple[str, ...]) -> None:
    recorded = Recorded(lambda: Plant(20, [], size=3), ["edge", "server"], links())
    tracker = Tracker()
    goal, goals = goal_for("edge.camera->server.detector", max="60s")
    recorded.join(goals, tracker, order=order)
    found = tracker.statistics
    assert [each.name for each in found.operators] == ["edge.camera", "server.detector"]
    assert [(each.name, each.count) for each in found.links] == [(LINK, 20)]
    assert {each.name: each.received for each in found.queues} == {
        f"{LINK}, sender": 20,
        "server.detector.in": 20,
    }
    assert found.path(PATH).count == 20
    assert found.path(PATH).latency.mean >= found.links[0].time.mean > 0
    assert (goal.count, goal.is_met) == (20, True)
    text = str(found)
    assert "clocks: edge, server read the clock of one host, offset 0" in text
    assert f"\n{LINK} " in text
    assert "edge.camera → server.detector" in text


def test_where_the_time_of_a_late_message_went_names_the_link() -> None:
    recorded = Recorded(lambda: Plant(5, [], size=3), ["edge", "server"])
    goal, goals = goal_for("edge.camera->server.detector", max="1ms")
    recorded.join(goals, clocks={"server": ClockOffset(10**9, 1000, is_shared=False)})
    assert goal.late == 5
    largest = goal.recent[-1].breakdown.largest
    assert (largest.kind, largest.where) == ("link", LINK)
    assert f"on the link {LINK}" in str(goal.recent[-1])


def test_the_times_of_another_host_are_converted_and_the_error_is_stated(tmp_path: Path) -> None:
    recorded = Recorded(lambda: Plant(20, [], size=3), ["edge", "server"])
    here, there = Tracker(), Tracker()
    recorded.join(here)
    clock = ClockOffset(5_000_000, 40_000, is_shared=False)
    recorded.join(there, TraceWriter(tmp_path / "out.json"), clocks={"server": clock})
    more = there.statistics.path(PATH).latency.mean - here.statistics.path(PATH).latency.mean
    assert more == pytest.approx(5_000_000)
    stated = "clock of server: +5.000 ms ± 0.040 ms added"
    assert stated in str(there.statistics)
    events = json.loads((tmp_path / "out.json").read_text())
    assert events[0]["args"]["clocks"]["server"] == {
        "offset_ns": 5_000_000,
        "error_ns": 40_000,
        "is_shared": False,
    }


@pytest.mark.parametrize("clock", [ClockOffset(), ClockOffset(5_000_000, 40_000, is_shared=False)])
def test_the_time_of_a_frame_begins_with_its_acquisition_by_the_clock_of_the_run(clock: ClockOffset) -> None:
    def emit(camera: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(1, "out", acq_timestamp=context.timestamp - 1_000_000_000)

    def camera(fragment: Any, frames: Any, name: str) -> Step:
        return Step(fragment, CountCondition(fragment, len(frames)), outputs=["out"], body=emit, name=name)

    def scheduler(app: Any) -> GreedyScheduler:
        return GreedyScheduler(app, clock=RealtimeClock(app, initial_time_offset=60.0))

    recorded = Recorded(lambda: Plant(3, [], scheduler, make_camera=camera), ["edge", "server"])
    goal, goals = goal_for("edge.camera->server.detector", max="1s")
    recorded.join(goals, clocks={"edge": clock, "server": clock})
    assert (goal.late, goal.arrived) == (3, 0)


def test_a_message_never_arrives_before_it_left() -> None:
    recorded = Recorded(lambda: Plant(20, [], size=3), ["edge", "server"])
    tracker = Tracker()
    recorded.join(tracker, clocks={"server": ClockOffset(-(10**9), 10**9, is_shared=False)})
    assert tracker.statistics.links[0].time.max == 0


def test_a_trace_has_the_threads_of_each_part_and_arrows_between_them(tmp_path: Path) -> None:
    recorded = Recorded(lambda: Plant(20, [], size=3), ["edge", "server"])
    recorded.join(TraceWriter(tmp_path / "out.json"))
    events = json.loads((tmp_path / "out.json").read_text())
    groups = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    computes: dict[str, set[str]] = {}
    for event in events:
        if event.get("cat") == "compute":
            computes.setdefault(groups[event["pid"]], set()).add(event["name"])
    assert computes == {
        "Plant: edge": {"edge.camera"},
        "Plant: server": {"server.detector"},
        "Plant: links": {LINK},
    }
    arrows = {
        kind: Counter(
            event["id"] for event in events if event.get("cat") == "message" and event["ph"] == kind
        )
        for kind in "sf"
    }
    assert arrows["s"] == arrows["f"]
    assert len(arrows["s"]) == 40
    # Slices on one track do not overlap, or a viewer would show them one inside the other.
    ended: dict[tuple[int, int], float] = {}
    for event in sorted((e for e in events if e.get("cat") == "compute"), key=lambda event: event["ts"]):
        track = event["pid"], event["tid"]
        assert event["ts"] >= ended.get(track, event["ts"]) - 1e-3
        ended[track] = event["ts"] + event["dur"]
    paths = [event for event in events if event["ph"] == "b"]
    assert [path["name"] for path in paths] == [f"edge.camera → {LINK} → server.detector"] * 20
    parts = {part.partition(" ")[0] for path in paths for part in path["args"]["parts_us"]}
    assert parts >= {"link", "host"}


def test_messages_that_a_queue_dropped_are_counted() -> None:
    taken: list[int] = []
    recorded = Recorded(lambda: Plant(50, taken, size=1, policy=IOSpec.QueuePolicy.POP), ["edge", "server"])
    tracker = Tracker()
    goal, goals = goal_for("edge.camera->server.detector", p50="60s")
    recorded.join(goals, tracker)
    assert tracker.statistics.path(PATH).count == len(taken) == goal.count
    assert (goal.sent, goal.dropped, goal.is_met) == (50, 50 - len(taken), True)


def test_a_part_that_is_gone_leaves_what_it_sent() -> None:
    recorded = Recorded(lambda: Plant(20, [], size=3), ["edge", "server"])
    recorded.sent["server"] = []
    tracker = Tracker()
    recorded.join(tracker)
    assert tracker.statistics.operator("edge.camera").count == 20
    recorded = Recorded(lambda: Plant(20, [], size=3), ["edge", "server"])
    recorded.sent["edge"] = recorded.sent["edge"][:1]
    recorded.join(tracker)
    assert tracker.statistics.operator("server.detector").count == 20
    assert not tracker.statistics.paths


def test_a_span_leads_through_the_link() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = OtelSpans(tracer=provider.get_tracer("test"))
    assert spans.spans_parts
    Recorded(lambda: Plant(1, [], size=3), ["edge", "server"]).join(spans)
    names = {span.name for span in exporter.get_finished_spans()}
    assert {"edge.camera", LINK, "server.detector"} <= names
    assert len({span.context.trace_id for span in exporter.get_finished_spans()}) == 1


@pytest.mark.parametrize("order", [(), ("edge", "server") * 20])
def test_the_figures_of_a_restarted_part_go_on(order: tuple[str, ...], tmp_path: Path) -> None:
    """Its paths end at its links from then on."""
    recorded, again = (Recorded(lambda: Plant(20, [], size=3), ["edge", "server"]) for _ in range(2))
    recorded.sent["edge"] += again.sent["edge"]
    recorded.sent["server"] += again.sent["server"]
    tracker, trace = Tracker(), TraceWriter(tmp_path / "trace.json")
    goal, goals = goal_for("edge.camera->server.detector", max="60s")
    recorded.join(goals, tracker, trace, order=order)
    # The goal does not know which frames crossed the link since then, and says so.
    assert (goal.sent, goal.late, goal.failed, goal.lost, goal.is_met) == (40, 0, 0, 0, None)
    assert goal.arrived + goal.outstanding == 40
    assert goal.outstanding >= 20
    assert f"of {goal.outstanding} nobody knows, because a process was started again" in str(goal)
    found = tracker.statistics
    assert [(each.name, each.count) for each in found.operators] == [
        ("edge.camera", 40),
        ("server.detector", 40),
    ]
    assert found.queue("server.detector.in").received == 40
    assert found.sources == {"edge.camera.out": 40}
    assert sum(path.count for path in found.paths) <= 20
    events = json.loads((tmp_path / "trace.json").read_text())
    computes = [each for each in events if (each["name"], each.get("cat")) == ("server.detector", "compute")]
    assert len(computes) == 40


def test_parts_with_simulated_clocks_are_one_table_whose_paths_end_at_the_links() -> None:
    def simulated(app: Any) -> GreedyScheduler:
        return GreedyScheduler(app, clock=ManualClock(app))

    recorded = Recorded(lambda: Plant(20, [], simulated, size=3), ["edge", "server"])
    tracker = Tracker()
    recorded.join(tracker)
    assert tracker.statistics.operator("server.detector").count == 20
    assert {path.name: path.count for path in tracker.statistics.paths} == {
        f"edge.camera,{LINK}": 20,
        f"{LINK},server.detector": 20,
    }


def test_the_dashboard_shows_all_parts() -> None:
    recorded = Recorded(lambda: Plant(20, [], size=3), ["edge", "server"])
    compose(recorded.application)
    dashboard = Dashboard(announce=lambda url: None)
    told: list[dict[str, Any]] = []

    class Look(Watcher):
        def resolved(self) -> None:
            assert dashboard._page is not None
            told[:] = json.loads(json.dumps([dashboard._page.graph(), dashboard._page.figures()]))

    recorded.join(dashboard, Look())
    graph, figures = told
    assert [(each["name"], each["kind"]) for each in graph["operators"]] == [
        ("edge.camera", "Step"),
        (LINK, "Link"),
        ("server.detector", "Step"),
    ]
    assert [(each["from"], each["to"]) for each in graph["flows"]] == [(0, 1), (1, 2)]
    assert [each["count"] for each in figures["operators"]] == [20, 20, 20]
    assert [(each["names"], each["count"]) for each in figures["paths"]] == [
        (["edge.camera", "server.detector"], 20)
    ]


class Changing(Application):
    """A detector that sends on from its fifth frame on, to an operator that begins then."""

    def __init__(self, name: str = "late") -> None:
        super().__init__([])
        self._late = name

    def compose(self) -> None:
        self.scheduler(real(self))
        name = self._late

        class Edge(Fragment):
            def compose(self) -> None:
                self.add_operator(source(self, range(20), name="camera"))

        class Server(Fragment):
            def compose(self) -> None:
                def detect(operator: Any, op_input: Any, op_output: Any) -> None:
                    op_output.emit(op_input.receive("in"), "out")
                    if operator.ticks == 4:
                        self.add_flow(operator, sink(self, [], name=name), {("out", "in")})

                detector = Step(self, inputs=["in"], outputs=["out"], body=detect, name="detector")
                self.add_flow(detector, sink(self, [], name="first"), {("out", "in")})

        self.add_flow(Edge(self, "edge"), Server(self, "server"), {("camera.out", "detector.in")})


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("order", [(), ("server",) * 99, ("edge", "server") * 9])
def test_operators_that_begin_in_a_part_are_shown_like_the_others(
    order: tuple[str, ...], lives: int, tmp_path: Path
) -> None:
    """In tables, paths, goals, traces and on the page; also in a part that was restarted."""
    recorded = Recorded(Changing, ["edge", "server"])
    for _ in range(lives - 1):
        again = Recorded(Changing, ["edge", "server"])
        recorded.sent["edge"] += again.sent["edge"]
        recorded.sent["server"] += again.sent["server"]
    graphs: list[Any] = []
    tracker, trace = Tracker(), TraceWriter(tmp_path / "out.json")
    dashboard = Dashboard(announce=lambda url: None)
    goal, goals = goal_for("edge.camera->server.first", max="60s")

    class Page(Watcher):
        def changed(self, run: Any) -> None:
            graphs.append(dashboard._page.graph())

    recorded.join(tracker, trace, dashboard, goals, Page(), order=order)
    found = tracker.statistics
    late = found.operator("server.late").count
    assert 0 < late < 20 * lives
    assert [each.name for each in found.operators] == [
        "edge.camera",
        "server.detector",
        "server.first",
        "server.late",
    ]
    assert found.queue("server.late.in").received == late
    assert found.operator("server.first").count == 20 * lives
    assert len(graphs) == 3 * lives - 2  # each part that was restarted sends its graph, too
    shown = graphs[-1]
    names = [each["name"] for each in shown["operators"]]
    assert [(names[each["from"]], shown["queues"][each["queue"]]["name"]) for each in shown["flows"]][-1] == (
        "server.detector",
        "server.late.in",
    )
    events = json.loads((tmp_path / "out.json").read_text())
    computes = [each for each in events if (each["name"], each.get("cat")) == ("server.late", "compute")]
    assert len(computes) == late
    if lives == 1:
        assert found.path("edge.camera,server.detector,server.late").count == late
        assert goal.count == 20


def test_a_restarted_part_may_begin_other_operators() -> None:
    """What it has of the process before goes on, and the rest of both has figures of its own."""
    recorded, other = (
        Recorded(Changing, ["edge", "server"]),
        Recorded(lambda: Changing("other"), ["edge", "server"]),
    )
    for part, sent in other.sent.items():
        recorded.sent[part] += sent
    tracker = Tracker()
    goal, goals = goal_for("server.detector->server.first", max="60s")
    recorded.join(tracker, goals)
    found = tracker.statistics
    late, others = (found.operator(name).count for name in ("server.late", "server.other"))
    assert 0 < late < 20
    assert 0 < others < 20
    assert found.operator("server.first").count == 40
    assert (goal.sent, goal.arrived, goal.outstanding) == (40, 40, 0)


def test_a_goal_for_an_operator_that_is_not_there_is_refused() -> None:
    recorded = Recorded(lambda: Plant(1, [], size=3), ["edge", "server"])
    _, goals = goal_for("edge.camera->server.display", max="1s")
    with pytest.raises(GraphError, match="there is no operator 'server.display'"):
        recorded.join(goals)


def test_a_watcher_that_raises_watches_no_more(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Tracker):
        def computed(self, computes: Any) -> None:
            raise LookupError("broken")

    recorded = Recorded(lambda: Plant(20, [], size=3), ["edge", "server"])
    tracker = Tracker()
    recorded.join(Broken(), tracker)
    assert caplog.text.count("Broken raised, and watches no more") == 1
    assert tracker.statistics.path(PATH).count == 20


class Loop(Application):
    """A message that goes to another part and back."""

    def compose(self) -> None:
        self.scheduler(real(self))

        class Here(Fragment):
            def compose(self) -> None:
                self.add_operator(source(self, range(8), name="first"))
                self.add_operator(sink(self, [], name="last"))

        class There(Fragment):
            def compose(self) -> None:
                def pass_on(step: Any, op_input: Any, op_output: Any) -> None:
                    op_output.emit(op_input.receive("in"), "out")

                self.add_operator(Step(self, inputs=["in"], outputs=["out"], body=pass_on, name="middle"))

        here, there = Here(self, "here"), There(self, "there")
        self.add_flow(here, there, {("first.out", "middle.in")})
        self.add_flow(there, here, {("middle.out", "last.in")})


@pytest.mark.parametrize("order", [(), ("there",) * 9, ("there", "here") * 9])
def test_paths_lead_through_several_links(order: tuple[str, ...]) -> None:
    tracker = Tracker()
    Recorded(Loop, ["here", "there"]).join(tracker, order=order)
    found = {path.name: path.count for path in tracker.statistics.paths}
    assert found == {"here.first,there.middle,here.last": 8}


def test_random_programs_have_the_same_paths_as_in_one_process() -> None:
    programs = (replace(make(seed), clock="real", track=False) for seed in itertools.count())
    plain = (each for each in programs if is_orderly(each) and can_be_cut(each) and not _has_own_paths(each))
    for program in itertools.islice(plain, 2 + examples(4)):
        places = places_of(program)
        whole = PartsApp(program, places)
        with whole.track() as alone:
            whole.run()
        recorded = Recorded(lambda: PartsApp(program, places), parts_of(places))  # noqa: B023
        tracker = Tracker()
        order = [part for part in recorded.parts for _ in recorded.sent[part]]
        Random(program.seed).shuffle(order)
        recorded.join(tracker, order=order)
        wanted = {path.name: path.count for path in alone.statistics.paths}
        assert {path.name: path.count for path in tracker.statistics.paths} == wanted, program


def _has_own_paths(program: Program) -> bool:
    """Return whether its paths depend on who was faster: on which replica, or on what was retried."""
    return any(stage.workers > 1 or stage.retries or stage.on_error for stage in program.stages)
