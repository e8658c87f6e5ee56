"""The layout: which operator works on which stream follows from the program, in every run and on every host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import CountCondition
from headrace._runtime.streams.layout import StreamLayout
from headrace.core.errors import GraphError
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from tests.harness import App, MakeScheduler, Step, run
from tests.harness.libraries import here, use_arrays

FRAMES = 6


class Noting(Step):
    """An operator that notes its stream in each compute, and passes on what it receives."""

    def __init__(self, fragment: Any, *args: Any, default: bool = False, **kwargs: Any) -> None:
        self.default = default
        self.streams: set[int] = set()
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        super().setup(spec)
        if self.default:
            spec.default_stream()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.streams.add(int(here.stream))
        received = [op_input.receive(name) for name in self.spec.inputs]
        for name in self.spec.outputs:
            op_output.emit(received[0] if received else 1, name)


def operators(app: Any, names: str, *args: Any, **kwargs: Any) -> list[Noting]:
    """Return operators by name: ``>a`` has no input, ``a>`` no output."""
    made = []
    for word in names.split():
        name = word.strip(">")
        given: list[Any] = [CountCondition(app, FRAMES)] if word.startswith(">") else []
        inputs = [] if word.startswith(">") else ["in"]
        outputs = [] if word.endswith(">") else ["out"]
        made.append(Noting(app, *given, *args, inputs=inputs, outputs=outputs, name=name, **kwargs))
    return made


def row(app: Any, names: str, *args: Any) -> list[Noting]:
    """Return operators that receive from each other, one after the other."""
    made = operators(app, names, *args)
    app.add_flow(*made)
    return made


def planned(app: Any, captured: str = "") -> list[str]:
    """Return the operators of each stream, and what kind of stream it is."""
    graph = app.compose_graph()
    layout = StreamLayout(graph, [operator for operator in graph if operator.name in captured.split()])
    return [f"{each.kind} {' '.join(op.name for op in each.operators)}" for each in layout]


def layout_of(compose: Callable[[Any], Any]) -> list[str]:
    return planned(App(compose))


def per(value: str, *rows: str) -> Callable[[Any], None]:
    def compose(app: Any) -> None:
        app.stream_per = value
        for names in rows:
            row(app, names)

    return compose


def test_every_operator_has_a_stream_of_its_own_unless_the_program_says_otherwise() -> None:
    assert layout_of(lambda app: row(app, ">a b c>")) == ["own a", "own b", "own c"]


def test_a_branch_has_one_stream_and_ends_at_every_fork_and_join() -> None:
    def compose(app: Any) -> None:
        app.stream_per = "branch"
        a, b, c, d, e, f, g = operators(app, ">a b c d e f g>")
        app.add_flow(a, b, c)
        app.add_flow(b, d)
        app.add_flow(c, e)
        for before in (d, e):
            app.add_flow(before, f)
        app.add_flow(f, g)

    assert layout_of(compose) == ["branch a b", "branch c e", "branch d", "branch f g"]


def test_a_circle_is_a_branch() -> None:
    def compose(app: Any) -> None:
        app.stream_per = "branch"
        b, c = operators(app, "b c")
        app.add_flow(b, c, b)

    assert layout_of(compose) == ["branch b c"]


def test_a_branch_and_the_program_have_a_stream_for_each_pool_and_slice() -> None:
    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, name="pool")
        slices = CudaGreenContextPool(app, sms_per_partition=[16, 32])
        part = CudaGreenContext(app, slices, 0)
        made = [*operators(app, ">a b"), *operators(app, "c d", pool), *operators(app, "e f>", part)]
        app.stream_per = app.per
        app.add_flow(*made)

    for value in ("branch", "program"):

        def with_value(app: Any, value: str = value) -> None:
            app.per = value
            compose(app)

        assert layout_of(with_value) == [f"{value} a b", f"{value} c d", f"{value} e f"]


def test_operators_that_share_a_stream_do_so_whatever_stream_per_says() -> None:
    for value in ("operator", "branch", "program"):

        def compose(app: Any, value: str = value) -> None:
            app.stream_per = value
            a, _, c, _ = row(app, ">a b c d>")
            app.share_stream(a, c)

        rest = {
            "operator": ["own b", "own d"],
            "branch": ["branch b", "branch d"],
            "program": ["program b d"],
        }
        assert sorted(layout_of(compose)) == sorted(["share a c", *rest[value]])


def test_operators_on_the_default_stream_share_it_and_a_segment_has_streams_of_its_own() -> None:
    def compose(app: Any) -> None:
        app.stream_per = "program"
        a, d = operators(app, ">a d>", default=True)
        b, c = operators(app, "b c")
        app.add_flow(a, b, c, d)

    assert planned(App(compose), captured="c") == ["default a d", "program b", "own c"]


# -- in runs -----------------------------------------------------------------------------------------


def streams_of(compose: Callable[[Any], None], scheduler: MakeScheduler) -> list[list[str]]:
    """Run a program, and return the operators that worked on each stream."""
    app = run(compose, scheduler)
    found: dict[int, list[str]] = {}
    for operator in app.graph:
        (stream,) = operator.streams
        found.setdefault(stream, []).append(operator.name)
    return list(found.values())


@pytest.mark.parametrize("checks", ["", "streams"])
@pytest.mark.parametrize("value", ["operator", "branch", "program", "share"])
def test_every_run_has_the_streams_that_the_layout_says(
    value: str, checks: str, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_arrays(monkeypatch)
    monkeypatch.setenv("HEADRACE_CHECK", checks)

    def compose(app: Any) -> None:
        app.stream_per = "operator" if value == "share" else value
        a, b, _ = row(app, ">a b c>")
        _, e = row(app, ">d e>")
        app.add_flow(a, operators(app, "f>")[0])
        if value == "share":
            app.share_stream(b, e)

    expected = {
        "operator": [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]],
        "branch": [["a"], ["b", "c"], ["d", "e"], ["f"]],
        "program": [["a", "b", "c", "d", "e", "f"]],
        "share": [["a"], ["b", "e"], ["c"], ["d"], ["f"]],
    }[value]
    for _ in range(2):
        assert streams_of(compose, scheduler) == expected


def test_replicas_have_streams_of_their_own_and_share_one_if_the_program_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_arrays(monkeypatch)
    for shared in (False, True):
        streams: dict[str, set[int]] = {}

        class Replica(Noting):
            def compute(self, op_input: Any, op_output: Any, context: Any, into: Any = streams) -> None:
                super().compute(op_input, op_output, context)
                into.setdefault(self.name, set()).update(self.streams)

        def compose(app: Any, kind: Any = Replica, shared: bool = shared) -> None:
            (first,) = operators(app, ">first")
            b = kind(app, inputs=["in"], outputs=["out"], name="b", workers=2)
            (last,) = operators(app, "last>")
            app.add_flow(first, b, last)
            if shared:
                app.share_stream(b, last)

        run(compose)
        used = [stream for each in streams.values() for stream in each]
        assert len(streams) == len(used) == 2
        assert len(set(used)) == (1 if shared else 2)


@pytest.mark.parametrize("value", ["operator", "branch", "program"])
def test_an_operator_that_joins_a_run_has_a_stream_of_its_own_or_that_of_the_program(
    value: str, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_arrays(monkeypatch)

    class Adding(Noting):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if not self.streams:
                (late,) = operators(self.fragment, "late>")
                self.fragment.add_flow(self, late)
            super().compute(op_input, op_output, context)

    def compose(app: Any) -> None:
        app.stream_per = value
        adding = Adding(app, CountCondition(app, FRAMES), outputs=["out"], name="adding")
        app.add_flow(adding, *operators(app, "b>"))

    assert (
        streams_of(compose, scheduler)
        == {
            "operator": [["adding"], ["b"], ["late"]],
            "branch": [["adding", "b"], ["late"]],
            "program": [["adding", "b", "late"]],
        }[value]
    )


def test_operators_take_the_streams_of_a_pool_with_too_few_in_turn(
    monkeypatch: pytest.MonkeyPatch, scheduler: MakeScheduler
) -> None:
    use_arrays(monkeypatch)

    def compose(app: Any) -> None:
        row(app, ">a b c d>", CudaStreamPool(app, max_size=2))

    assert streams_of(compose, scheduler) == [["a", "c"], ["b", "d"]]


# -- errors ------------------------------------------------------------------------------------------


def outside(app: Any) -> None:
    class Other(App):
        pass

    other = Other(lambda app: None)
    app.share_stream(operators(app, ">a")[0], operators(other, ">b")[0])


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (
            per("stream", ">a b>"),
            r"stream_per must be 'operator' .*, 'branch' .* or 'program' .*, not 'stream'",
        ),
        (lambda app: app.share_stream(*operators(app, ">a")), "two operators or more"),
        (lambda app: app.share_stream(*operators(app, ">a") * 2), "two operators or more"),
        (lambda app: app.share_stream(1, 2), "share_stream takes operators, not 1"),
        (outside, r"operator 'b' belongs to .*, not to 'App'"),
        (
            lambda app: [app.share_stream(made[0], made[1]) for made in [operators(app, ">a b")] * 2],
            r"operator 'a' shares a stream already, with 'b'; name all of them in one call",
        ),
        (
            lambda app: app.share_stream(*operators(app, ">a"), *row(app, ">b c>", CudaStreamPool(app))),
            "operator 'b' takes its stream from another pool or slice than 'a'",
        ),
        (
            lambda app: app.share_stream(*row(app, ">a b>"), *operators(app, ">c", default=True)),
            r"operator 'c' says spec.default_stream\(\)",
        ),
    ],
)
def test_what_no_layout_can_give_is_an_error_that_names_the_operator(
    compose: Callable[[Any], Any], message: str
) -> None:
    def added(app: Any) -> None:
        compose(app)
        for operator in app._headrace.made or ():
            app.add_operator(operator)

    with pytest.raises(GraphError, match=message):
        App(added).compose_graph()


class Captured(Step):
    capturable = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")


def test_a_captured_operator_shares_no_stream() -> None:
    def compose(app: Any) -> None:
        (first, _) = row(app, ">a b>")
        middle = Captured(app, inputs=("in",), body=None, name="middle")
        app.add_flow(first, middle, {("out", "in")})
        app.share_stream(first, middle)
        app.capture(middle)

    with pytest.raises(GraphError, match=r"operator 'middle' is part of a captured segment"):
        App(compose).compose_graph()
