"""The configuration and the command line. What a test states is what the SDK 4.6.0 did with the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace_holoscan.core import (
    Application,
    Arg,
    ArgList,
    Config,
    arglist_to_kwargs,
    py_object_to_arg,
)

VALUES: dict[str, Any] = {
    '"1"': 1,
    "010": 8,
    "1_000": "1_000",
    "2024-01-02": "2024-01-02",
    "1e6": 1000000.0,
    "yes": True,
    '"true"': True,
    "No": False,
    "[1, '3', [4]]": [1, 3, [4]],
    "{n: 1, o: x}": {"n": 1, "o": "x"},
    "~": None,
    "": None,
    '"null"': "null",
    "0x10": 16,
    "-0x10": -16,
    "1:30": "1:30",
    "0b11": "0b11",
    "0o17": "0o17",
    "08": 8.0,
    "!!str 5": 5,
    '""': "",
    "12345678901234567890": 1.2345678901234567e19,
    '"1 "': 1,
    "1.": 1.0,
    ".5": 0.5,
    ".inf": float("inf"),
}


def app_with(tmp_path: Path, text: str, *argv: str) -> Application:
    file = tmp_path / "app.yaml"
    file.write_text(text)
    app = Application(["python", "app.py", *argv])
    app.config(str(file))
    return app


def test_values_are_read_by_their_text(tmp_path: Path) -> None:
    lines = [f"  k{place}: {text}\n" for place, text in enumerate(VALUES)]
    found = app_with(tmp_path, "%YAML 1.2\n# no document marker\nsection:\n" + "".join(lines)).kwargs(
        "section"
    )
    assert [(type(value), value) for value in found.values()] == [
        (type(value), value) for value in VALUES.values()
    ]


def test_sections_may_be_missing_or_empty(tmp_path: Path) -> None:
    app = app_with(tmp_path, "empty:\nscalar: 5\nlist: [1]\none:\n  deep: 1\ntwo:\n  a: 1\n  b: x\n")
    assert [app.kwargs(key) for key in ("empty", "missing", "two.missing", "scalar", "one", "two")] == [
        *[{}, {}, {}, {"scalar": 5}, {"deep": 1}, {"a": 1, "b": "x"}]
    ]
    assert app.config_keys() == {"empty", "scalar", "list", "one", "one.deep", "two", "two.a", "two.b"}
    assert [app.from_config(key).size for key in ("empty", "missing", "two")] == [0, 0, 2]
    assert arglist_to_kwargs(app.from_config("two")) == {"a": 1, "b": "x"}
    assert (app.from_config("one").name, app.from_config("two.b").name) == ("deep", "b")
    with pytest.raises(RuntimeError, match="list"):
        app.kwargs("list")


def test_a_single_value_converts(tmp_path: Path) -> None:
    app = app_with(tmp_path, "number: 5\ntext: hello\n")
    number, text = app.from_config("number"), app.from_config("text")
    assert (int(number), float(number), str(number), bool(number), str(text)) == (5, 5.0, "5", True, "hello")
    assert (number.has_value, number.arg_type.to_string, Arg("x").has_value) == (True, "YAML::Node", False)
    assert repr(number) == "name: number\ntype: YAML::Node\nvalue: 5"
    with pytest.raises(RuntimeError):
        bool(text)


def test_a_list_of_arguments() -> None:
    args = ArgList()
    assert (args.size, args.name, args.args) == (0, "arglist", [])
    args.add(Arg("q"))
    args.add(py_object_to_arg((1, 2), "w"))
    assert (args.size, args.args[1].value) == (2, [1, 2])
    args.clear()
    assert args.size == 0
    for value in (None, {}, object(), 1j):
        with pytest.raises(RuntimeError):
            py_object_to_arg(value)


def test_there_may_be_no_configuration(tmp_path: Path) -> None:
    app = Application()
    assert (app.kwargs("x"), app.from_config("x").size, app.config_keys()) == ({}, 0, set())
    app.config("")
    assert app.kwargs("x") == {}
    for wrong in ("/no/such/file.yaml", str(tmp_path)):
        with pytest.raises(RuntimeError):
            app.config(wrong)
    with pytest.raises(TypeError):
        app.config({"a": 1})  # type: ignore[arg-type]
    app.config(Config(""))
    assert isinstance(app.config(), Config)


def test_the_command_line_names_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("scalar: 6\n")
    app = app_with(tmp_path, "scalar: 5\n", "-x", f"--config={other}", "-c", "y")
    assert (app.kwargs("scalar"), app.argv) == ({"scalar": 6}, ["app.py", "-x", "-c", "y"])
    assert Application(["python", "app.py", "--config", str(other)]).kwargs("scalar") == {"scalar": 6}
    monkeypatch.setenv("HOLOSCAN_CONFIG_PATH", str(other))
    app = Application(["python", "app.py"])
    app.config("/no/such/file.yaml")
    assert app.kwargs("scalar") == {"scalar": 6}


@pytest.mark.parametrize(
    ("given", "host", "warns"),
    [
        ("w:2", "w", True),
        ("w", "w", False),
        ("fe80::5:1", "fe80::5:1", False),
        ("[::1]:2", "[::1]", True),
        (":2", "", True),
    ],
)
def test_the_address_of_a_worker_has_no_port(
    given: str, host: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = Application(["python", "a.py", "--worker", "--worker-address", given]).options
    assert options.variables.get("HEADRACE_WORKER_ADDRESS", "") == host
    assert ("the port is ignored" in caplog.text) == warns


def test_options_are_taken_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Application(
        [
            "python",
            "a.py",
            "--driver",
            "--worker",
            "--address",
            "h:1",
            "--worker-address=w:2",
            "--fragments",
            "a,b",
        ]
    )
    assert app.argv == ["a.py"]
    assert repr(app.options) == (
        "<holoscan.core.CLIOptions: run_driver:True run_worker:True driver_address:'h:1' worker_address:'w:2' "
        "worker_targets:a,b config_path:''>"
    )
    assert app.options.variables["HEADRACE_WORKER_ADDRESS"] == "w"
    assert Application(["python", "a.py", "--", "--config", "x"]).argv == ["a.py", "--", "--config", "x"]
    assert Application(["python", "a.py", "--config"]).argv == ["a.py"]
    assert Application(["python"]).argv == [""]
    monkeypatch.setattr("sys.argv", ["b.py", "--config", "c.yaml", "rest"])
    assert Application().argv == Application([]).argv == ["b.py", "rest"]
