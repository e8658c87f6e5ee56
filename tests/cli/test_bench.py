"""headrace bench."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.installation import bundled

sys.path.append(str(bundled("benchmarks").parent))

import benchmarks.report
from benchmarks.sides import command, measuring, report
from benchmarks.sides.measuring import Measured, Places
from benchmarks.sides.scenario import HOLOSCAN, Scenario, Way, sdk_version
from benchmarks.sides.scenarios import SCENARIOS
from tests.harness.processes import forking

pytestmark = pytest.mark.usefixtures("forks")


@pytest.fixture(scope="module")
def forks() -> Iterator[None]:
    """What is measured runs in forks of a process that has imported headrace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", forking())
        yield


WORK = Scenario("work", "Some work", "µs", (Way("headrace", "chains:none"), Way("by hand", "chains:none")))


def shown(*found: Measured, more_is_better: bool = False) -> dict[str, Any]:
    scenario = Scenario("work", "Some work", "µs", WORK.ways, more_is_better=more_is_better)
    return report.as_json(scenario, list(found))


def test_the_scenarios_are_listed_and_others_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [scenario.name for scenario in SCENARIOS]
    assert {line.split()[0] for line in lines if line.endswith("(GPU)")} >= {"streams", "captured", "slices"}
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "chain-6"])
    assert "no scenario chain-6: there are chain-5, " in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "--rounds", "0"])
    assert "must be a whole number of at least 1" in capsys.readouterr().err


def test_ways_are_measured_in_turn_and_those_that_are_missing_are_skipped_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "join", "--quick", "--output", str(tmp_path)]) == 0
    assert "skipped: the Holoscan SDK (--holoscan-python) is not installed" in capsys.readouterr().out
    results = json.loads((tmp_path / "bench.json").read_text())
    assert set(results["about"]) == {"date", "machine", "device", "commit", "versions"}
    (scenario,) = results["scenarios"]
    ours = scenario["ways"][0]
    assert ours["name"] == "headrace"
    assert ours["ratio"] == 1.0
    assert len(ours["figures"]) == 1
    assert ours["figure"] > 0
    # What another machine measured is written as if it had been measured here.
    taken = ["bench", "--from", str(tmp_path / "bench.json"), "--output", str(tmp_path / "again")]
    assert main(taken) == 0
    assert json.loads((tmp_path / "again" / "bench.json").read_text()) == results
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "--from", str(tmp_path / "none.json")])
    assert "cannot read" in capsys.readouterr().err


def test_an_interpreter_without_the_sdk_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # By a path from here, although what is measured runs in another folder, and by a link, as in an environment.
    interpreter = tmp_path / "bin" / "python"
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    for python, why in {"bin/none": "there is no program bin/none", "bin": "there is no program bin"}.items():
        with pytest.raises(SystemExit, match="2"):
            main(["bench", "join", "--holoscan-python", python])
        assert f"error: --holoscan-python: {why}\n" in capsys.readouterr().err
    with pytest.raises(ValueError, match="^bin/python has none of holoscan, holoscan-cu12, holoscan-cu13"):
        command._sdk_of("bin/python")
    interpreter.unlink()
    interpreter.write_text("#!/bin/sh\necho 5.0.1\n")
    interpreter.chmod(0o755)
    assert command._sdk_of("bin/python") == ("5.0.1", str(interpreter))


def test_an_installation_makes_the_page_in_the_folder_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {
        "date": "today",
        "machine": "this",
        "device": "no GPU",
        "commit": "unknown",
        "versions": "headrace 0.1.0",
    }
    taken = {"about": about, "scenarios": [shown(Measured("headrace", [3.0]))]}
    (tmp_path / "bench.json").write_text(json.dumps(taken))
    monkeypatch.setattr(command, "in_checkout", lambda: False)
    words = ["bench", "--from", str(tmp_path / "bench.json"), "--page", "--output", str(tmp_path / "out")]
    assert main(words) == 0
    page = (tmp_path / "out" / "bench.md").read_text()
    assert "- `work`: today, this, no GPU; commit unknown; headrace 0.1.0.\n" in page
    assert json.loads((tmp_path / "out" / "bench.json").read_text()) == taken


def test_an_installation_has_no_commit_even_in_the_repository_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_COMMIT", raising=False)
    bundled = tmp_path / "site-packages" / "headrace" / "_bundled"
    bundled.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    someone = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(
        ["git", *someone, "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True
    )
    monkeypatch.setattr(benchmarks.report, "__file__", str(bundled / "benchmarks" / "report.py"))
    assert benchmarks.report.commit() == "unknown"
    monkeypatch.setenv("HEADRACE_COMMIT", "1d06c14")
    assert benchmarks.report.commit() == "1d06c14"


def test_the_sdk_is_found_by_the_name_of_any_of_its_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    there: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(metadata, "version", version)
    assert sdk_version() == ""
    there["holoscan-cu13"] = "4.6.0"
    assert sdk_version() == "4.6.0"


def test_who_does_other_work_is_struck_out() -> None:
    found = [Measured("headrace", [2.0], answer=15), Measured("by hand", [1.0], answer=14)]
    measuring._compare(found)
    assert found[0].skipped == ""
    assert found[1].skipped == "did other work: 14, not 15"
    assert "| by hand | – | skipped: did other work: 14, not 15 |" in report.as_text(shown(*found))


def test_what_needs_a_gpu_is_skipped_where_there_is_none() -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "slices")
    found = measuring.measure(scenario, Places(), 0.1, None)
    assert {measured.skipped for measured in found} == {"there is no GPU"}
    assert not any(measured.figures for measured in found)


def test_what_fails_says_how_and_the_others_go_on() -> None:
    found = measuring.measure(WORK, Places(), 0.1, 2)  # a scenario that the processes do not know
    assert [measured.skipped for measured in found] == ["failed: StopIteration"] * 2
    slow = replace(WORK, timeout=0.001)
    assert measuring.measure(slow, Places(), 0.1, 2)[1].skipped == "failed: took more than 0 s"
    plain = next(scenario for scenario in SCENARIOS if scenario.name == "import")
    alone = replace(plain, ways=plain.ways[:1])
    built = measuring.measure(alone, Places(compiled="/nowhere"), 0.01, 1)[1]
    assert built.skipped == "failed: /nowhere has no compiled build for this Python"
    gone = Scenario("work", "", "", (replace(WORK.ways[0], name=HOLOSCAN), WORK.ways[1]))
    found = measuring.measure(gone, Places(holoscan={"4.6": "/nowhere/a", "5.0": "/nowhere/b"}), 0.1, 1)
    assert [way.name for way in found] == ["Holoscan SDK 4.6", "Holoscan SDK 5.0", "by hand"]
    assert found[0].skipped.startswith("failed: [Errno 2]")


def test_the_page_is_made_of_the_json_and_says_where_headrace_loses(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    about = dict.fromkeys(("date", "machine", "device", "commit", "versions"), "x")
    scenario = shown(Measured("headrace", [3.0]), Measured("by hand", [1.5]))
    earlier = {**scenario, "name": "before", "about": {**about, "machine": "another"}}
    results = {"about": about, "scenarios": [scenario, earlier]}
    files = report.write(results, tmp_path / "results", tmp_path / "docs")
    assert [file.name for file in files] == ["bench.json", "bench.md"]
    page = (tmp_path / "docs" / "bench.md").read_text()
    assert "- `work`: x, x, x; commit x; x.\n- `before`: x, another, x; commit x; x.\n" in page
    assert "![Some work: µs](bench/work.svg)" in page
    assert "| by hand | 0.50 | 1.5 | 1.5 to 1.5 |" in page
    assert "**headrace loses here to by hand (2.0 times).**" in page
    assert "Some work" in (tmp_path / "docs" / "bench" / "work.svg").read_text()
    again = json.loads((tmp_path / "results" / "bench.json").read_text())
    assert report.page(again, ["work.svg", "before.svg"]) == page
