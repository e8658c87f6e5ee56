from __future__ import annotations

import pytest

from tests.harness import App, sink, source, through


@pytest.fixture
def app() -> App:
    def compose(app: App) -> None:
        middle = through(app, name='the "middle"')
        app.add_flow(source(app, [1], name="a"), middle)
        app.add_flow(middle, sink(app, [], name="b"))

    return App(compose)


def test_a_graph_is_drawn_as_text(app: App) -> None:
    assert app.draw().splitlines() == [
        "a (Step)",
        '  out -> the "middle".in',
        'the "middle" (Step)',
        "  out -> b.in",
        "b (Step)",
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


def test_an_unknown_style_lists_the_styles(app: App) -> None:
    with pytest.raises(ValueError, match="there are 'text', 'boxes', 'svg', 'mermaid', 'dot'"):
        app.draw("ascii")
