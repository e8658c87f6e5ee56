"""The headrace command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Never

import pytest

from headrace.cli import COMMANDS, main
from headrace.cli.info import LIBRARIES
from headrace.gpu import sim
from tests.harness import PATIENCE
from tests.harness.processes import forking, output_of


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    with sim.Machine("h200"):
        yield


def test_partition_draws_what_the_device_would_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", "16,40"]) == 0
    drawn = capsys.readouterr().out
    for words in ("NVIDIA H200", "132 SMs", "16", "40", "leftover", "76", "█"):
        assert words in drawn


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ("16,forty", "'forty' is not an SM count"),
        ("16,4--0", "'4--0' is not an SM count"),
        ("16,²", "'²' is not an SM count"),
        ("a=16,40", "name all of them or none"),
        ("a=16,a=40", "gives a name twice"),
        ("100,40", "140 SMs requested"),
        ("0", "at least 1 SM"),
    ],
)
def test_partition_says_what_is_wrong(capsys: pytest.CaptureFixture[str], counts: Any, text: str) -> None:
    assert main(["partition", counts]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err


def test_info_tells_the_device_its_partitions_the_libraries_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DEVICE", "sim")
    assert main(["info"]) == 0
    told = capsys.readouterr().out
    for words in (
        "simulated (HEADRACE_DEVICE=sim)",
        "CUDA 13.0",
        "132 SMs, partitions of 8 SMs or more in steps of 8",
        "NumPy",
        "a driver for CUDA 13.1",
    ):
        assert words in told


def test_info_lists_the_libraries_of_every_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the project's own file, but for the extras of people who change headrace itself."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        re.split(r"[\[<>=!; ]", requirement)[0].lower(): extra
        for extra, requirements in {"": project["dependencies"], **extras}.items()
        if extra not in ("all-cpu", "docs", "dev")
        for requirement in requirements
    }
    wanted.pop("headrace")
    known = {name.lower(): extra for names, extra in LIBRARIES.values() for name in names}
    assert wanted.keys() <= known.keys()
    assert {extra for extra in known.values() if extra} <= extras.keys()
    assert all(known[name] for name, extra in wanted.items() if extra)

    def no_version(name: str) -> Never:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", no_version)
    assert main(["info"]) == 0
    told = capsys.readouterr().out
    for library, (_, extra) in LIBRARIES.items():
        assert re.search(
            rf"^  {library} +-{re.escape(f'  (headrace[{extra}])') if extra else ''}$", told, re.M
        )


def test_info_tells_why_auto_simulates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DEVICE", "auto")
    monkeypatch.setattr("headrace.gpu.cuda.backend.CudaBackend.why_not", lambda backend: "there is no GPU")
    assert main(["info"]) == 0
    told = capsys.readouterr().out
    assert "simulated (there is no GPU)" in told
    assert "a real device: there is no GPU" in told


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PROFILE", "HEADRACE_SIM_PROFILE must be one of h200, orin, l4, got 'h999'"),
        ("TIME", "HEADRACE_SIM_TIME must be one of virtual, paced, got 'h999'"),
        ("DRIVER", "HEADRACE_SIM_DRIVER must be a version such as 13.0, got 'h999'"),
        ("DEVICES", "HEADRACE_SIM_DEVICES must be an integer of at least 1, got 'h999'"),
    ],
)
@pytest.mark.parametrize("command", [["info"], ["partition", "16"]], ids=["info", "partition"])
def test_a_simulated_device_that_cannot_be_made_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: Any,
    variable: Any,
    text: str,
) -> None:
    monkeypatch.setenv("HEADRACE_DEVICE", "sim")
    monkeypatch.setenv(f"HEADRACE_SIM_{variable}", "h999")
    monkeypatch.setattr("headrace.gpu.sim.machine._current", None)
    assert main(command) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"headrace {command[0]}: {text}\n"


@pytest.mark.parametrize(
    ("entry", "arguments"),
    [
        (["-m", "headrace"], ["info"]),
        (["-c", "import sys; from headrace.cli import main; sys.exit(main())"], ["--help"]),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(entry, arguments):
    reader, writer = os.pipe()
    os.close(reader)  # as `headrace info | head -0` leaves it
    try:
        environment = {**os.environ, "HEADRACE_DEVICE": "sim"}
        command = [sys.executable, *entry, *arguments]
        with forking()(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment) as result:
            stderr = result.communicate(timeout=PATIENCE)[1]
    finally:
        os.close(writer)
    assert (result.returncode, stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "closed"),
    [("run app.py", ">&-"), ("run app.py", "<&- >&- 2>&-"), ("no-such-command", "<&- >&- 2>&-")],
)
def test_closed_outputs_are_no_error(tmp_path: Path, arguments: str, closed: str) -> None:
    (tmp_path / "app.py").write_text(
        "from headrace import Application, CountCondition, op\n"
        "@op\ndef say(): print('said')\n"
        "class App(Application):\n"
        "    def compose(self): self.add_operator(say(self, CountCondition(self, 2)))\n"
    )
    command = f"{shlex.quote(sys.executable)} -m headrace {arguments} {closed}"
    environment = {**os.environ, "HEADRACE_DEVICE": "sim"}
    result = subprocess.run(
        command, shell=True, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=PATIENCE
    )
    assert result.returncode == (2 if arguments == "no-such-command" else 0)
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error_of_one_line() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "headrace", "completion", "bash"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    told = "headrace: cannot write the output: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, told)


def test_help_fits_on_a_screen_and_has_examples_and_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    told = capsys.readouterr().out
    assert len(told.splitlines()) <= 32
    assert max(map(len, told.splitlines())) <= 100
    for words in (*COMMANDS, "examples:", "exit status:"):
        assert words in told


def test_help_imports_nothing_heavy() -> None:
    heavy = ("numpy", "yaml", "headrace.gpu.sim", "headrace._runtime.scheduling.engine", "asyncio")
    asked = [["--help"], ["--version"], ["run", "--help"], ["graph", "--help"]]
    code = (
        f"import sys\nfrom headrace.cli import main\nfor words in {asked}:\n"
        "    try:\n        main(words)\n    except SystemExit:\n        pass\n"
        f"print('loaded:', [name for name in {heavy} if name in sys.modules])\n"
    )
    assert output_of("-c", code).splitlines()[-1] == "loaded: []"


def test_a_command_imports_only_its_own_module() -> None:
    code = (
        "import sys\nfrom headrace.cli import main\nmain(['partition', '16'])\n"
        "print(sorted(name for name in sys.modules if name.startswith('headrace.cli')))\n"
    )
    assert output_of("-c", code).splitlines()[-1] == "['headrace.cli', 'headrace.cli.partition']"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "the following arguments are required: command"),
        (["fly"], "invalid choice: 'fly'"),
        (["info", "app.py", "more"], "headrace info: error: unrecognized arguments: more"),
        (["info", "--", "more"], "headrace info: error: unrecognized arguments: more"),
    ],
)
def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert text in capsys.readouterr().err
