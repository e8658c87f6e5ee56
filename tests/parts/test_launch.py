"""The processes of parts execute what the interpreter of the driver was started with."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from headrace.cli.program import Program
from headrace.core.errors import GraphError
from headrace.parts.environment import Launch


def launch_of(monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None, file: Path) -> Launch:
    main = ModuleType("__main__")
    main.__spec__, main.__file__ = spec, str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", [str(file), "-v"])
    return Launch.of(None)


def test_a_module_stays_one_beside_a_file_or_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m plant` is mostly called where the folder of the package is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = tmp_path / "launched_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("WORD = 'relative'")
    (package / "__main__.py").write_text("from .words import WORD; print(WORD, __spec__.name)")
    (tmp_path / "launched_data").mkdir()
    (tmp_path / "launched_data.py").write_text("print('beside', __spec__.name)")
    for name, file in (
        ("launched_package.__main__", package / "__main__.py"),
        ("launched_data", tmp_path / "launched_data.py"),
    ):
        launch = launch_of(monkeypatch, ModuleSpec(name, None), file)
        assert launch == Launch(name, "", ("-v",), is_module=True)
        Program(launch.name, launch.class_name, launch.is_module).execute([], print, lambda: True)
    said = capsys.readouterr().out.splitlines()
    assert said == ["relative launched_package.__main__", "beside launched_data"]
    for name in ("launched_package", "launched_package.words"):
        del sys.modules[name]


def test_a_folder_is_launched_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python plant/` gives the program a specification without a name of its own."""
    file = tmp_path / "__main__.py"
    file.touch()
    launch = launch_of(monkeypatch, ModuleSpec("__main__", None), file)
    assert launch == Launch(str(file), "", ("-v",), False)


def test_an_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphError, match="or is in an archive"):
        launch_of(monkeypatch, ModuleSpec("__main__", None), tmp_path / "plant.pyz" / "__main__.py")
