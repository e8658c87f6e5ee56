"""What came along with headrace, in a checkout and where a wheel was installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace import installation
from headrace.cli import main
from headrace.cli.demo import examples
from headrace.installation import installing

ROOT = Path(installation.__file__).parents[2]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package is where a wheel puts it."""
    package = tmp_path / "site-packages" / "headrace"
    (package / "_bundled" / "examples").mkdir(parents=True)
    monkeypatch.setattr(installation, "_PACKAGE", package)
    monkeypatch.setattr(installation, "_CHECKOUT", tmp_path)
    return package


@pytest.mark.skipif(not installation.in_checkout(), reason="not a checkout")
def test_a_checkout_installs_extras_from_itself_and_runs_its_own_examples() -> None:
    assert installing("view", "video") == "pip install '.[view,video]' in a checkout of headrace"
    assert installation.bundled("examples") == ROOT / "examples"


def test_an_installation_installs_extras_by_name_and_has_examples_of_its_own(installed: Path) -> None:
    assert installing("view") == "pip install 'headrace[view]'"
    assert installation.bundled("examples") == installed / "_bundled" / "examples"
    with pytest.raises(FileNotFoundError, match="this installation of headrace has no benchmarks"):
        installation.bundled("benchmarks")


def test_the_demo_lists_shows_and_runs_examples(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--list"]) == 0
    listed = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(examples())
    assert "first_pipeline    A first pipeline: three functions, two flows." in listed
    assert main(["demo", "first_pipeline", "--show"]) == 0
    assert capfd.readouterr().out == examples()["first_pipeline"].read_text()
    assert main(["demo", "first_pipeline"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 20


def test_the_words_after_two_dashes_go_to_the_example(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "noisy_neighbour", "--", "--no-such-option"]) == 2
    assert "noisy_neighbour.py: error: unrecognized arguments: --no-such-option" in capfd.readouterr().err


def test_an_example_that_is_not_there_is_named_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "no_such_thing"])
    assert "no example 'no_such_thing': there are captured_chain, " in capsys.readouterr().err


def test_the_free_threaded_build_of_python_is_refused_with_a_sentence() -> None:
    code = "import sys; sys.abiflags = 't'\nimport headrace"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: headrace does not run on the free-threaded build of Python" in done.stderr
