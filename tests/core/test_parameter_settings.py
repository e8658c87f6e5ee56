"""Parameters of operators that are set by name: --set op.parameter=value, or HEADRACE_SET_op__parameter."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Application, CountCondition, Operator, op
from headrace.core.errors import ConfigError


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

        named = self.from_config("camera") if self._config is not None else ()
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


def test_a_key_of_the_configuration_is_set_there() -> None:
    assert run(*setting("camera.gain=4"), config={"camera": {"gain": 5.0}}) == [((30, 4.0), 1, 0)]


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
