"""How captured segments are drawn: as groups of their operators."""

from __future__ import annotations

import random
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from headrace.core import GraphError
from tests.harness import App, Step, source
from tests.harness.segments import chain
from tests.limits import examples

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_the_list_has_the_operators_of_a_segment_and_why_it_is_eager() -> None:
    app = App(chain)
    app.compose_graph()
    assert app.draw().splitlines()[-1] == "segment middle: one, two, three"
    app.segment.state, app.segment.reason = "eager", "it waits"  # type: ignore[attr-defined]
    assert app.draw().splitlines()[-1] == "segment middle, eager: one, two, three (it waits)"


def test_mermaid_and_dot_have_groups() -> None:
    app = App(chain)
    lines = app.draw("mermaid").splitlines()
    at = lines.index('  subgraph s0["middle"]')
    assert lines[at : at + 5] == ['  subgraph s0["middle"]', "    n1", "    n2", "    n3", "  end"]
    lines = app.draw("dot").splitlines()
    at = lines.index("  subgraph cluster_0 {")
    assert lines[at + 1 : at + 6] == [
        '    label="middle"; style=dashed;',
        '    "one";',
        '    "two";',
        '    "three";',
        "  }",
    ]


# Random graphs: every box of a segment is inside its frame, and no other box is.


class Captured(Step):
    """A step that says that it may be captured."""

    capturable = True


def random_app(seed: int) -> App:
    """Return an application with two segments at random."""
    random_ = random.Random(seed)

    def compose(app: Any) -> None:
        made: list[Step] = [source(app, [1], name="o0")]
        for number in range(1, random_.randint(4, 12)):
            before = random_.sample(made, min(len(made), random_.choice((1, 1, 2))))
            inputs = [f"i{position}" for position in range(len(before))]
            step = Captured(
                app, inputs=inputs, outputs=["out"], body=lambda self, i, o: None, name=f"o{number}"
            )
            for one, name in zip(before, inputs, strict=True):
                app.add_flow(one, step, {("out", name)})
            made.append(step)
        for _ in range(2):
            app.capture(*_connected(random_, made[1:], app, random_.randint(1, 4)))

    while True:
        app = App(compose)
        try:
            app.compose_graph()
        except GraphError:  # messages leave the segment and come back, or no operator is left
            continue
        return app


def _connected(random_: random.Random, made: list[Step], app: Any, size: int) -> list[Step]:
    free = [step for step in made if not any(step in segment.operators for segment in app._headrace.segments)]
    if not free:
        return []
    chosen = [random_.choice(free)]
    while len(chosen) < size:
        near = [flow.target for step in chosen for flow in step._headrace.outgoing if flow.target in free]
        near = [step for step in near if step not in chosen]
        if not near:
            break
        chosen.append(near[0])  # type: ignore[arg-type]
    return chosen


@pytest.mark.parametrize("seed", range(examples(40)))
def test_frames_are_around_their_own_boxes_only(seed: int) -> None:
    app = random_app(seed)
    root = ElementTree.fromstring(app.draw("svg"))
    boxes = {}
    frames = {}
    for group in root.iter(f"{NAMESPACE}g"):
        title = group.findtext(f"{NAMESPACE}title") or ""
        rect, path = group.find(f"{NAMESPACE}rect"), group.find(f"{NAMESPACE}path")
        if rect is not None:
            x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            boxes[title.split(":")[0]] = (x, y, x + width, y + height)
        elif path is not None:
            numbers = [float(text) for text in re.findall(r"[\d.]+", path.attrib["d"])]
            frames[title.removeprefix("segment ")] = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert len(boxes) == len(app.graph)
    assert len(frames) == len(app.segments)
    for segment in app.segments:
        members = {operator.name for operator in segment.operators}
        for name, (left, top, right, bottom) in boxes.items():
            corners = [(left, top), (right, top), (left, bottom), (right, bottom)]
            inside = [_is_inside(corner, frames[segment.name]) for corner in corners]
            assert all(inside) if name in members else not any(inside), (segment, name)


def _is_inside(point: tuple[float, float], outline: list[tuple[float, float]]) -> bool:
    """Return whether a point is inside a polygon: a line from it to the right crosses the outline an odd number."""
    x, y = point
    crossings = 0
    for (x1, y1), (x2, y2) in zip(outline, outline[1:] + outline[:1], strict=True):
        if (y1 > y) != (y2 > y) and x < x1 + (y - y1) * (x2 - x1) / (y2 - y1):
            crossings += 1
    return crossings % 2 == 1
