"""The progress of a program in parts: the same rows as in one process."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Application, CountCondition, IOSpec
from headrace.core import Progress
from headrace.parts.cut import Cut, cut_flows
from headrace.parts.cut_flow import FlowCounts
from headrace.parts.outcomes import PartProgress, merge_progress
from tests.harness import PATIENCE, Step, wait_until
from tests.parts.running import MemoryLinks
from tests.parts.test_cut import detector, plant


def burst(part: Any) -> None:
    def emit(self: Any, op_input: Any, op_output: Any) -> None:
        for number in range(5):
            op_output.emit(number, "out")

    part.add_operator(Step(part, CountCondition(part, 4), outputs=["out"], body=emit, name="camera"))


def paused_plant(**terms: Any) -> Application:
    app = plant(burst, detector([]), **terms)
    compose = app.compose

    def paused() -> None:
        app.pause()
        compose()

    app.compose = paused  # type: ignore[method-assign]
    return app


@pytest.mark.parametrize("terms", [{"size": 8}, {"size": 2, "policy": IOSpec.QueuePolicy.POP}])
def test_it_has_the_rows_of_one_process_and_counts_what_is_between_parts(terms: Any) -> None:
    links = MemoryLinks()
    alone = paused_plant(**terms)
    cuts = {part: Cut(paused_plant(**terms), part, links.connect) for part in ("edge", "server")}
    apps = [alone, *(cut.application for cut in cuts.values())]
    futures = [app.run_async() for app in apps]
    for app in apps:
        assert app.wait_until_paused(PATIENCE)
    for app in apps[:2]:
        app.step(1, "edge.camera")
        assert app.wait_until_paused(PATIENCE)
    expected = alone.progress()
    assert expected.fraction == 0.25

    def find() -> Progress:
        parts = {part: PartProgress.of(cut) for part, cut in cuts.items()}
        return merge_progress("Plant", True, list(alone.graph), cuts["edge"].outgoing, parts)

    wait_until(lambda: find() == expected, f"{expected}, not {find()}")
    apps[2].step(1, "server.detector")
    wait_until(lambda: find().computes["server.detector"] == 1, "the compute")
    for app in apps:
        app.stop_execution()
    for future in futures:
        future.result(PATIENCE)


def test_it_has_operators_that_began_in_the_run_and_no_links() -> None:
    app = plant(burst, detector([]))
    app.compose_graph()
    flows = cut_flows(app)
    counts = {"server.late": 3, "server.detector": 4, flows[0].name: 9}
    part = PartProgress(
        Progress("Plant", True, counts, waiting={"server.late.in": 1, f"{flows[0].name}.in": 2})
    )
    found = merge_progress("Plant", True, list(app.graph), flows, {"server": part})
    assert list(found.computes.items()) == [("server.detector", 4), ("server.late", 3)]
    assert found.waiting == {"server.late.in": 1}


def test_what_was_dropped_or_is_under_way_counts_at_the_receiver() -> None:
    app = plant(burst, detector([]), size=2)
    cut = Cut(app, "edge")
    app.compose_graph()
    flow = cut.outgoing[0]
    counts = {"edge": FlowCounts(dropped=4, waiting=1, over_link=5), "server": FlowCounts(over_link=3)}
    parts = {part: PartProgress(Progress("Plant", True), flows={flow.name: counts[part]}) for part in counts}
    found = merge_progress("Plant", True, [], [flow], parts)
    assert (found.dropped, found.waiting) == ({flow.input: 4}, {flow.input: 1 + 2})
