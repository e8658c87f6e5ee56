from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace import Application, Operator, OperatorSpec
from headrace.core.errors import ConfigError
from tests.harness import App


class Scale(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.param("factor", 1.0)
        spec.param("label", "")


@pytest.fixture
def app(tmp_path: Path) -> Application:
    file = tmp_path / "settings.yaml"
    file.write_text("scale:\n  factor: 2.5\n  label: fast\nsource:\n  count: 3\nempty:\n")
    app = App(lambda app: None)
    app.config(file)
    return app


def test_a_section_becomes_a_positional_argument(app: Application) -> None:
    scale: Any = Scale(app, app.from_config("scale"))
    assert (scale.factor, scale.label) == (2.5, "fast")


def test_an_unknown_key_lists_the_keys_beside_it(app: Application) -> None:
    with pytest.raises(KeyError, match=r"has no key 'speed' under 'scale'; it has 'factor', 'label'"):
        app.from_config("scale.speed")


def test_a_file_that_holds_no_sections_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ValueError, match="mapping of sections"):
        Application([]).config(tmp_path / "list.yaml")


# -- what a file says -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e6", 2e6),
        ("1e6", 1e6),
        ("2e-3", 2e-3),
        ("-1E+3", -1e3),
        (".5e3", 500.0),
        ("1.e3", 1000.0),
        ("2.0e+6", 2e6),
        ("1_000e3", 1e6),
        ("2.5", 2.5),
        (".5", 0.5),
        ("30", 30),
        ("-7", -7),
        ("1.2.3", "1.2.3"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("1e", "1e"),
        ("e6", "e6"),
        ("1e6x", "1e6x"),
        ('"2e6"', "2e6"),
        ("33ms", "33ms"),
        ("true", True),
        ("[1e3, 2]", [1000.0, 2]),
    ],
)
def test_numbers_are_read_as_people_write_them(tmp_path: Path, text: str, value: Any) -> None:
    (tmp_path / "n.yaml").write_text(f"part:\n  value: {text}\n")
    app = Application([])
    app.config(tmp_path / "n.yaml")
    found = app.from_config("part.value")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("camera:\n  since: 2024-13-45\n", r"2024-13-45 is not a date \(month .*line 2, .*since: 2024-13-45"),
        (
            "camera:\n  at: [1, {x: 2024-01-01T99:00:00}]\n",
            r"2024-01-01T99:00:00 is not a date \(hour must be .*line 2, .*at: \[1, {x: 2024",
        ),
        ("2024-13-45: 1\n", "2024-13-45 is not a date .*line 1"),
        (
            "camera:\n  id: " + "1" * 5000,
            r"1{20}\.\.\. \(5000 characters\) is not a number that can be read \(Exceeds the .*line 2, .*id: 11",
        ),
        ("camera: !!bool maybe\n", "maybe is not what its tag says .*line 1"),
        ("camera: &all\n  inner: [1, *all]\n", r"'camera\.inner\[1\]' contains itself"),
        ("camera:\n  deep: " + "[" * 600, " is nested too deeply to be read"),
        ("camera: \0\n", " is not valid YAML: unacceptable character #x0000"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_with_its_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"(?s){message}") as caught:
        Application([]).config(file)
    assert str(caught.value).startswith(f"configuration file '{file}'")
    assert len(str(caught.value)) < 500


def test_such_a_value_is_named_with_the_variable_or_the_option_that_sets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="^--set a=2024-13-45 is not valid YAML: 2024-13-45 is not a date"):
        Application(["", "--set", "a=2024-13-45"]).config({"a": 1}, argv=True)
    with pytest.raises(ValueError, match=r"^--set a=&x \[\*x\]: '\[0\]' contains itself"):
        Application(["", "--set", "a=&x [*x]"]).config({"a": 1}, argv=True)
    monkeypatch.setenv("HEADRACE_SET_a", "2024-13-45")
    with pytest.raises(
        ValueError, match="^HEADRACE_SET_a=2024-13-45 is not valid YAML: 2024-13-45 is not a date"
    ):
        Application([]).config({"a": 1})


def test_a_few_lines_that_stand_for_any_number_of_values_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.core.config._MOST_VALUES", 1000)
    file = tmp_path / "app.yaml"
    lines = [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcd")]
    file.write_text("a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + lines[0])
    Application([]).config(file)
    file.write_text("a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(lines))
    with pytest.raises(ValueError, match=r"'.*app.yaml' has more than 1,000 values, at 'c\["):
        Application([]).config(file)


@pytest.mark.parametrize(
    "text",
    ["camera: {fps: 1}\ncamera: {fps: 2}\n", "camera:\n  fps: 1\n  fps: 2\n"],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match="appears twice"):
        Application([]).config(file)


def test_setting_a_value_of_a_section_that_the_file_repeats_sets_it_there_only(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text("left: &camera {size: {width: 1}}\nright: *camera\nfar: {<<: *camera}\n")
    app = Application(["app.py", "--set", "right.size.width=5"])
    app.config(file, argv=True)
    assert [app.from_config(f"{key}.size.width") for key in ("left", "right", "far")] == [1, 5, 1]


@pytest.mark.parametrize("given", ["file", "dict"])
def test_what_is_done_to_a_value_does_not_change_the_configuration(tmp_path: Path, given: str) -> None:
    file = tmp_path / "app.yaml"
    file.write_text("camera: {gains: [1, 2]}\n")
    app = Application([])
    app.config(file if given == "file" else {"camera": {"gains": [1, 2]}})
    app.kwargs("camera")["gains"].append(3)
    app.from_config("camera")[0].value.append(3)
    app.from_config("camera.gains").append(3)
    assert app.from_config("camera.gains") == [1, 2]


def test_a_file_that_cannot_be_read_is_named_with_who_named_it(tmp_path: Path) -> None:
    app = Application(["app.py", "--config", str(tmp_path)])
    with pytest.raises(OSError, match=r"^configuration file '.*' cannot be read: .* \(--config .*\)$"):
        app.config(argv=True)


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_bytes("camera: {name: Bär}".encode("latin-1"))
    with pytest.raises(ValueError, match=r"^configuration file '.*app\.yaml' is not UTF-8 text"):
        Application([]).config(file)


# -- a dict ---------------------------------------------------------------------------------------------


def test_a_configuration_can_be_a_dict() -> None:
    app = Application([])
    settings = {"camera": {"fps": 30, "size": [640, 480]}}
    config = app.config(settings)
    assert config is app.config()
    assert app.from_config("camera.fps") == 30
    assert app.kwargs("camera") == {"fps": 30, "size": [640, 480]}
    with pytest.raises(ConfigError, match="the configuration has no key 'fsp' under 'camera'"):
        app.from_config("camera.fsp")


def test_a_dict_is_not_changed_by_what_is_set_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SET_camera__fps", "60")
    settings = {"camera": {"fps": 30}}
    app = Application([])
    app.config(settings)
    assert app.from_config("camera.fps") == 60
    assert settings == {"camera": {"fps": 30}}


# -- the environment and the command line ------------------------------------------------------------------

CAMERA = {"camera": {"fps": 30, "name": "front", "size": [640, 480]}, "scale": {"factor": 1.0}}


def configured(*words: str, source: Any = CAMERA, argv: bool = True) -> Application:
    app = Application(["camera.py", *words])
    app.config(source, argv=argv)
    return app


def test_a_value_can_be_set_on_the_command_line() -> None:
    app = configured("--set", "camera.fps=60", "--set=camera.name=rear")
    assert app.kwargs("camera") == {"fps": 60, "name": "rear", "size": [640, 480]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("60", 60),
        ("2e6", 2e6),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("a=b", "a=b"),
        ("", None),
        ("null", None),
    ],
)
def test_what_is_set_has_the_type_it_would_have_in_a_file(text: str, value: Any) -> None:
    assert configured("--set", f"camera.fps={text}").from_config("camera.fps") == value


def test_the_programs_own_arguments_are_left_to_it() -> None:
    app = configured("--frames", "5", "--set", "camera.fps=60", "in.mp4", "--settle", "--", "--set", "x")
    assert app.argv == ["camera.py", "--frames", "5", "in.mp4", "--settle", "--", "--set", "x"]


def test_what_was_taken_from_the_command_line_counts_for_the_next_configuration_as_well() -> None:
    app = configured("--set", "camera.fps=60")
    app.config({"camera": {"fps": 25}}, argv=True)
    assert app.from_config("camera.fps") == 60


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--set", "camera.fsp=3"],
            r"--set camera.fsp=3: .* has no key 'fsp' under 'camera'; .* did you mean 'fps'",
        ),
        (["--set", "camrea.fps=3"], r"has no key 'camrea'; it has 'camera', 'scale'; did you mean 'camera'"),
        (["--set", "camera=3"], r"'camera' is a section; set one of its keys: 'camera.fps'"),
        (["--set", "camera.fps"], r"--set camera.fps: must be section.key=value, as in --set camera.fps=30"),
        (["--set", "=3"], r"must be section.key=value"),
        (["--set", "camera.size=[1"], r"--set camera.size=\[1 is not valid YAML"),
        (["--set", "camera.fps.x=3"], r"has no key 'x' under 'camera.fps'; it has no keys"),
        (["--set"], r"--set needs a value, as in --set camera.fps=30"),
        (["--config"], r"--config needs a value, as in --config file.yaml"),
    ],
)
def test_what_cannot_be_set_is_told(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configured(*words).compose_graph()


def test_another_file_takes_the_place_of_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("program", "environment", "line", "sdk"):
        (tmp_path / f"{name}.yaml").write_text(f"camera:\n  name: {name}\n")

    def chosen(*words: str, source: Any = tmp_path / "program.yaml") -> Any:
        return configured(*words, source=source).from_config("camera.name")

    assert chosen() == "program"
    assert chosen(source=CAMERA) == "front"
    monkeypatch.setenv("HEADRACE_CONFIG", str(tmp_path / "environment.yaml"))
    assert chosen() == "environment"
    assert chosen(source=CAMERA) == "environment"
    assert chosen("--config", str(tmp_path / "line.yaml")) == "line"
    assert chosen(f"--config={tmp_path}/line.yaml", "--set", "camera.name=set") == "set"
    assert chosen("--config", f"{tmp_path}/program.yaml", f"--config={tmp_path}/line.yaml") == "line"


def test_a_file_that_is_not_there_is_told_with_who_named_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"'nothing.yaml' does not exist \(--config nothing.yaml\)"):
        configured("--config", "nothing.yaml")
    monkeypatch.setenv("HEADRACE_CONFIG", "none.yaml")
    with pytest.raises(FileNotFoundError, match=r"does not exist \(HEADRACE_CONFIG=none.yaml\)"):
        configured()


def test_an_unknown_key_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SET_camera__fsp", "50")
    with pytest.raises(ConfigError, match=r"HEADRACE_SET_camera__fsp=50: .* did you mean 'fps'\?"):
        configured().compose_graph()


def test_a_keyword_wins_over_the_command_line_that_over_the_environment_and_that_over_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def factor(app: Application, **given: Any) -> Any:
        return Scale(app, app.from_config("scale"), **given).factor  # type: ignore[attr-defined]

    assert Scale(configured(), name="plain").factor == 1.0  # type: ignore[attr-defined]
    assert factor(configured(source={"scale": {"factor": 2.0}})) == 2.0
    monkeypatch.setenv("HEADRACE_SET_scale__factor", "3")
    assert factor(configured()) == 3.0
    assert factor(configured("--set", "scale.factor=4")) == 4.0
    assert factor(configured("--set", "scale.factor=4"), factor=5) == 5.0
