"""How a drawing shows the operators that share a stream."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from headrace.core import Subgraph
from tests.harness import App, Step, sink, source, through
from tests.harness.segments import chain

NAMESPACE = "{http://www.w3.org/2000/svg}"


def sharing(app: Any) -> None:
    a, b = through(app, name="a"), through(app, name="b")
    last = Step(app, inputs=("in",), setup=lambda spec: spec.default_stream(), name="last")
    app.add_flow(source(app, [1]), a, b, last)
    app.share_stream(a, b)


def test_the_list_has_the_operators_of_each_shared_stream() -> None:
    assert App(sharing).draw().splitlines()[-2:] == ["stream 2: a, b", "default stream: last"]


def test_a_picture_has_a_bar_of_one_colour_for_each_shared_stream() -> None:
    picture = ElementTree.fromstring(App(sharing).draw("svg"))
    bars = [each.get("style") for each in picture.iter(f"{NAMESPACE}rect") if each.get("width") == "5"]
    assert len(bars) == 3
    assert len(set(bars)) == 2
    texts = [each.text for each in picture.iter(f"{NAMESPACE}text")]
    assert texts.count("Step, stream 2") == 2
    assert texts.count("Step, default stream") == 1


def test_the_box_of_a_subgraph_has_the_stream_of_all_its_operators() -> None:
    class Pair(Subgraph):
        def compose(self) -> None:
            first, second = through(self, name="first"), through(self, name="second")
            self.add_flow(first, second)
            self.add_input("in", first["in"])
            self.add_output("out", second["out"])

    def compose(app: Any) -> None:
        app.stream_per = "branch"
        begin, pair = source(app, [1]), Pair(app, name="pair")
        app.add_flow(begin, pair, (sink(app, [], name="left"), sink(app, [], name="right")))

    assert App(compose).draw().splitlines()[-1] == "stream 1: pair, source"


def test_a_captured_operator_shares_no_stream() -> None:
    def compose(app: Any) -> None:
        app.stream_per = "branch"
        chain(app)

    assert "stream" not in App(compose).draw()
