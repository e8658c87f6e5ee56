"""How subgraphs are drawn: as one box each, or unfolded."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from headrace import Application, Subgraph, op
from headrace.gpu import sim
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from tests.harness import App, sink, source, through


@op
def unused() -> int:
    return 1


@op(capturable=True)
def double(value: int) -> int:
    return 2 * value


class Inner(Subgraph):
    def compose(self) -> None:
        one, two = through(self, name="one"), through(self, name="two")
        one >> two
        self.add_input("value", one)
        self.add_output("result", two)


class Outer(Subgraph):
    def compose(self) -> None:
        first, second = Inner(self, name="first"), Inner(self, name="second")
        first >> second
        self.add_input("in", first)
        self.add_output("out", second)


def compose(app: Application) -> None:
    (
        source(app, [1], name="camera")
        >> Outer(app, name="left")
        >> Inner(app, name="right")
        >> sink(app, [], name="show")
    )


FOLDED = ["camera", "left", "right", "show"]
UNFOLDED = [
    "left.first.one",
    "left.first.two",
    "left.second.one",
    "left.second.two",
    "right.one",
    "right.two",
]


def test_a_subgraph_is_drawn_as_one_box_with_its_ports() -> None:
    assert App(compose).draw().splitlines() == [
        "left (Outer)",
        "  out -> right.value",
        "camera (Step)",
        "  out -> left.in",
        "right (Inner)",
        "  result -> show.in",
        "show (Step)",
    ]


def test_every_style_folds_and_unfolds() -> None:
    app = App(compose)
    for style in ("svg", "mermaid", "dot"):
        folded, unfolded = app.draw(style), app.draw(style, unfold=True)
        assert all(name in folded for name in FOLDED)
        assert not any(name in folded for name in UNFOLDED)
        assert all(name in unfolded for name in UNFOLDED)
    texts = [text for text in ElementTree.fromstring(app.draw("svg")).itertext() if text.strip()]
    assert "left: Outer" in texts  # with the class of the subgraph
    assert "left.out -> right.value" in texts
    assert " [1]" in texts  # the queue behind the port


def test_a_segment_in_a_subgraph_is_folded_with_it_and_one_across_is_a_frame() -> None:
    class Chain(Subgraph):
        def compose(self) -> None:
            self.one, self.two = double(self, name="one"), double(self, name="two")
            self.one >> self.two
            self.add_input("in", self.one)
            self.add_output("out", self.two)

    def captured(inside: bool) -> str:
        def compose(app: Any) -> None:
            middle, last = Chain(app, name="middle"), double(app, name="last")
            source(app, [1], name="camera") >> middle >> last >> sink(app, [], name="show")
            app.capture(middle.one, middle.two, *([] if inside else [last]), name="replayed")

        return App(compose).draw()

    assert "segment" not in captured(inside=True)
    assert "segment replayed: middle, last" in captured(inside=False)


def test_a_flow_from_a_subgraph_back_to_it_is_drawn_and_those_inside_are_not() -> None:
    class Loop(Subgraph):
        def compose(self) -> None:
            first, last = double(self, name="first"), double(self, name="last")
            first >> last
            self.add_input("in", first)
            self.add_output("out", last)

    def compose(app: Any) -> None:
        loop = Loop(app, name="loop")
        loop >> loop

    assert App(compose).draw().splitlines() == ["loop (Loop)", "  out -> loop.in"]
    assert App(compose).draw("svg").count('class="flow"') == 1


def test_a_box_has_the_slice_that_all_of_its_operators_share(machine: sim.Machine) -> None:
    class Sliced(Subgraph):
        def compose(self) -> None:
            slices: CudaGreenContextPool = self._headrace.place.slices
            names = ("vision", "vision") if self.name == "same" else ("vision", "control")
            for number, name in enumerate(names):
                pool = CudaStreamPool(self, cuda_green_context=CudaGreenContext(self, slices, name))
                self.add_output(f"out{number}", source(self, [1], pool, name=f"{number}"))

    def compose(app: Any) -> None:
        app.slices = CudaGreenContextPool(app, sms_per_partition={"vision": 16, "control": 40})
        Sliced(app, name="same")
        Sliced(app, name="different")

    texts = list(ElementTree.fromstring(App(compose).draw("svg")).itertext())
    assert "same: Sliced, vision: 16 SMs" in texts
    assert "different: Sliced" in texts
