"""Parameters of operators that are set by name: --set op.parameter=value, or HEADRACE_SET_op__parameter."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Application, Condition, CountCondition, Operator, PeriodicCondition, Subgraph, op
from headrace.core.errors import ConfigError
from headrace.resources import CudaStreamPool, ManualClock
from headrace.schedulers import GreedyScheduler
from tests.harness import Step


class Camera(Operator):
    fps: int
    gain: float

    def setup(self, spec: Any) -> None:
        spec.output("out")
        spec.param("fps", 25)
        spec.param("gain", 1.0, live=True)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit((self.fps, self.gain), "out")


class Program(Application):
    def compose(self) -> None:
        self.seen: list[Any] = []

        @op(outputs=())
        def show(value: Any, *, scale: int = 1, stop: int = 0) -> None:
            self.seen.append((value, scale, stop))

        named = self.from_config("camera") if self._headrace.config is not None else ()
        self.camera = Camera(
            self, CountCondition(self, 1), *([named] if named else []), fps=30, name="left.camera"
        )
        self.add_flow(self.camera, show(self))


def run(*words: str, config: dict[str, Any] | None = None) -> list[Any]:
    app = Program(["program.py", *words])
    if config is not None or words:
        app.config(config or {}, argv=True)
    app.run()
    return app.seen


def setting(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


def test_any_parameter_of_any_operator_can_be_set_and_wins_over_the_program() -> None:
    words = setting("left.camera.fps=60", "left.camera.gain=2", "show.scale=3", "show.stop=4")
    assert run(*words, config={"camera": {"gain": 5.0}}) == [((60, 2.0), 3, 4)]


def test_the_environment_sets_parameters_of_a_program_without_a_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_SET_left__camera__fps", "60")
    assert run() == [((60, 1.0), 1, 0)]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (
            "left.camera.fsp=1",
            r"operator 'left.camera' has no parameter 'fsp'; it has 'fps', 'gain'; did you mean 'fps'",
        ),
        ("camra.gain=1", r"there is no operator 'camra'; there are 'left.camera', 'show'"),
        (
            "camera.fps=1",
            r"there is no operator 'camera'; .* \(.* has no key 'fps' under 'camera'; it has 'gain'\)",
        ),
        (
            "left.camera.fps=fast",
            r"^--set left.camera.fps=fast: parameter 'fps' of operator 'left.camera' must be an int",
        ),
        ("gain=1", r"has no key 'gain'; it has 'camera'"),
    ],
)
def test_what_does_not_exist_is_an_error_that_lists_what_does(pair: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(*setting(pair), config={"camera": {"gain": 5.0}})


class Every(Condition):
    """A condition of the program, which lets every n-th check pass."""

    n: int

    def setup(self, spec: Any) -> None:
        spec.param("n", 2)


class Parts(Application):
    """An operator with conditions and resources that have names, in a subgraph too."""

    def compose(self) -> None:
        class Inner(Subgraph):
            def compose(self) -> None:
                self.add_operator(Step(self, CountCondition(self, 1, name="times"), name="step"))

        self.scheduler(GreedyScheduler(self, clock=ManualClock(self), name="turns"))
        self.parts = {
            "tick": PeriodicCondition(self, "1s", name="tick"),
            "times": CountCondition(self, 3, name="times"),
            "every": Every(self, n=1),
            "pool": CudaStreamPool(self, max_size=1, name="pool"),
        }
        self.step = Step(self, *self.parts.values(), name="step")
        self.add_operator(self.step)
        Inner(self, name="left")  # its condition is left.times


def run_parts(*pairs: str) -> Parts:
    app = Parts(["program.py", *setting(*pairs)])
    app.config({}, argv=True)
    app.run()
    return app


def test_parameters_of_conditions_resources_and_schedulers_can_be_set() -> None:
    app = run_parts(
        "tick.recess_period=20ms", "times.count=4", "every.n=5", "pool.max_size=3", "left.times.count=2"
    )
    parts: Any = app.parts
    assert (parts["tick"].recess_period_ns(), parts["every"].n, parts["pool"].max_size) == (20_000_000, 5, 3)
    assert {name: each.computes for name, each in app.outcome.operators.items()} == {
        "step": 4,
        "left.step": 2,
    }
    stopped = run_parts("turns.max_duration_ms=1500").outcome
    assert stopped is not None
    assert (stopped.ended_by, stopped.operators["step"].computes) == ("duration", 2)


def test_what_was_set_is_named_where_it_does_not_go_with_the_others() -> None:
    with pytest.raises(ConfigError, match="--set turns.clock=3: 'turns': clock must be a Clock, not int"):
        run_parts("turns.clock=3")


class Eyes(Application):
    def compose(self) -> None:
        class Inner(Subgraph):
            frames: int

            def setup(self, spec: Any) -> None:
                spec.param("frames", 1)

            def compose(self) -> None:
                self.add_operator(Step(self, CountCondition(self, self.frames), name="step"))

        class Eye(Subgraph):
            frames: int

            def setup(self, spec: Any) -> None:
                spec.param("frames", 1)

            def compose(self) -> None:
                Inner(self, frames=self.frames, name="camera")

        Eye(self, name="left", frames=3)
        Eye(self, name="right", frames=3)


def computes_of_eyes(*pairs: str) -> dict[str, int]:
    app = Eyes(["program.py", *setting(*pairs)])
    app.config({}, argv=True)
    outcome = app.run()
    return {name: figures.computes for name, figures in outcome.operators.items()}


def test_parameters_of_a_subgraph_can_be_set_and_win_over_the_program() -> None:
    assert computes_of_eyes("left.frames=5", "right.camera.frames=2") == {
        "left.camera.step": 5,
        "right.camera.step": 2,
    }
