from __future__ import annotations

import random
from itertools import combinations
from xml.etree import ElementTree

import pytest

from headrace.conditions import CountCondition
from headrace.core import IOSpec
from headrace.gpu import sim
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from tests.harness import App, Step, sink, source, through


@pytest.fixture
def app() -> App:
    def compose(app: App) -> None:
        middle = through(app, name='the "middle"')
        app.add_flow(source(app, [1], name="a"), middle, sink(app, [], name="b"))

    return App(compose)


def test_a_graph_is_drawn_as_text(app: App) -> None:
    assert app.draw().splitlines() == [
        "a (Step)",
        '  out -> the "middle".in',
        'the "middle" (Step)',
        "  out -> b.in",
        "b (Step)",
    ]


def test_the_list_has_the_slice_of_each_operator(machine: sim.Machine) -> None:
    lines = App(sliced).draw().splitlines()
    assert [line for line in lines if line[0] != " "] == [
        "camera & co (Step)",
        "vision (Step), vision: 16 SMs",
        "control (Step), <control>: 40 SMs",
        "viewer (Step)",
    ]


def test_a_graph_is_drawn_as_mermaid(app: App) -> None:
    assert app.draw("mermaid").splitlines() == [
        "flowchart LR",
        '  n0["a"]',
        '  n1["the #quot;middle#quot;"]',
        '  n2["b"]',
        '  n0 -- "out → in" --> n1',
        '  n1 -- "out → in" --> n2',
    ]


def test_a_graph_is_drawn_as_dot(app: App) -> None:
    drawn = app.draw("dot")
    assert drawn.startswith("digraph pipeline {")
    assert '  "a" -> "the \\"middle\\"" [taillabel="out", headlabel="in"];' in drawn


NAMESPACE = "{http://www.w3.org/2000/svg}"


def sliced(app: App) -> None:
    """Two operators on slices, one with the default, an input that drops, and a loop."""
    pool = CudaGreenContextPool(app, sms_per_partition={"vision": 16, "<control>": 40})
    camera = Step(app, CountCondition(app, 1), outputs=["frame", "depth"], name="camera & co")
    vision = Step(
        app,
        CudaGreenContext(app, pool, "vision"),
        inputs=["in", "old"],
        outputs=["out", "state"],
        name="vision",
    )
    streams = CudaStreamPool(app, 0, 1, cuda_green_context=CudaGreenContext(app, pool, "<control>"))
    control = Step(app, streams, inputs=["in"], name="control")
    viewer = Step(
        app,
        inputs=[("receivers", {"size": IOSpec.ANY_SIZE, "policy": IOSpec.QueuePolicy.POP})],
        name="viewer",
    )
    app.add_flow(camera, vision, {("frame", "in")}, size=4)
    app.add_flow(vision, vision, {("state", "old")})
    app.add_flow(vision, control, {("out", "in")}, size=3, policy=IOSpec.QueuePolicy.REJECT)
    app.add_flow(vision, viewer, {("out", "receivers")})
    app.add_flow(camera, viewer, {("depth", "receivers")})


def svg_of(app: App) -> tuple[ElementTree.Element, list[str]]:
    """Return the root of the drawing, and its texts."""
    root = ElementTree.fromstring(app.draw("svg"))
    return root, ["".join(text.itertext()) for text in root.iter(f"{NAMESPACE}text")]


def test_a_picture_has_operators_ports_and_queues(machine: sim.Machine) -> None:
    root, texts = svg_of(App(sliced))
    for words in (
        "camera & co",
        "Step",
        "frame",
        "in [4]",
        "in [3 reject]",
        "receivers [2×1 pop]",
        "old [1]",
    ):
        assert words in texts
    assert len(root.findall(f"{NAMESPACE}path[@class='flow']")) == 5
    titles = [title.text for title in root.iter(f"{NAMESPACE}title")]
    assert "camera & co.frame -> vision.in" in titles


def test_a_picture_colours_slices_and_says_which_is_which(machine: sim.Machine) -> None:
    root, texts = svg_of(App(sliced))
    assert "vision: 16 SMs" in texts
    assert "<control>: 40 SMs" in texts
    tinted = [rect for rect in root.iter(f"{NAMESPACE}rect") if "fill-opacity" in rect.get("style", "")]
    assert len({rect.get("style") for rect in tinted}) == len(tinted) == 2


@pytest.mark.parametrize("seed", range(10))
def test_boxes_of_a_picture_do_not_overlap_and_stay_inside(seed: int) -> None:
    generator = random.Random(seed)
    names = ["i" * generator.randint(1, 30) + str(number) for number in range(generator.randint(2, 9))]

    def compose(app: App) -> None:
        operators = [
            Step(app, inputs=[("in", {"size": IOSpec.ANY_SIZE})], outputs=["a", "b"], name=name)
            for name in names
        ]
        for operator in operators:
            app.add_operator(operator)
        pairs = {tuple(generator.sample(range(len(names)), 2)) for _ in names}
        for source_, target in sorted(pairs):
            app.add_flow(operators[source_], operators[target], {(generator.choice("ab"), "in")})

    root, _ = svg_of(App(compose))
    boxes = [
        tuple(float(rect.get(key, "")) for key in ("x", "y", "width", "height"))
        for rect in root.iter(f"{NAMESPACE}rect")
        if rect.get("class") == "box"
    ]
    assert len(boxes) == len(names)
    for x, y, width, height in boxes:
        assert 0 < x < x + width < float(root.get("width", ""))
        assert 0 < y < y + height < float(root.get("height", ""))
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in combinations(boxes, 2):
        assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1
