"""headrace record and headrace replay."""

from __future__ import annotations

import itertools
import signal
import struct
from collections import defaultdict
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.observe import Recording, environment
from tests.harness.processes import signal_python


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_runs", defaultdict(lambda: itertools.count(1)))


PROGRAM = """
from headrace import Application, op


@op
def camera(*, count: int):
    print("camera runs")
    yield from range(count)


@op
def show(value):
    print(value)


class Shows(Application):
    def compose(self):
        self.add_flow(camera(self, count=3), show(self))


Shows().run()
"""


@pytest.fixture
def app(folder: Path) -> str:
    (folder / "app.py").write_text(PROGRAM)
    return "app.py"


def test_a_program_is_recorded_and_replayed(
    app: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", app, "--ports", "camera.out", "-o", "a.mcap"]) == 0
    assert capsys.readouterr().out.splitlines() == ["camera runs", "0", "1", "2"]
    assert [one.data for one in Recording(folder / "a.mcap")] == [0, 1, 2]
    for options in ([], ["--fast"]):
        assert main(["replay", app, "a.mcap", *options]) == 0
        assert capsys.readouterr().out.splitlines() == ["0", "1", "2"]


def test_every_connected_output_is_recorded_unless_ports_are_named(
    app: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", app]) == 0
    assert [port.name for port in Recording(folder / "recording.mcap").ports] == ["camera.out"]
    capsys.readouterr()
    assert main(["replay", app, "recording.mcap", "--ports", "camera.*"]) == 0
    assert capsys.readouterr().out.splitlines() == ["0", "1", "2"]
    assert main(["replay", app, "recording.mcap", "--ports", "blur"]) == 1
    assert "has nothing named blur to play: it has the outputs 'camera.out'" in capsys.readouterr().err


def test_a_recording_is_listed(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", app, "--ports", "camera,show.value", "-o", "a.mcap"]) == 0
    capsys.readouterr()
    assert main(["replay", "a.mcap", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Shows: 6 messages, ")
    assert lines[2].split() == ["port", "direction", "messages", "first", "last"]
    assert [line.split()[:3] for line in lines[4:]] == [
        ["camera.out", "output", "3"],
        ["show.value", "input", "3"],
    ]


def test_a_recording_is_served_as_a_page_until_ctrl_c(app: str, folder: Path) -> None:
    pytest.importorskip("aiohttp")
    assert main(["record", app, "--ports", "camera", "-o", "a.mcap"]) == 0
    done = signal_python(signal.SIGINT, "-m", "headrace", "replay", str(folder / "a.mcap"), "--page")
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_recording_is_refused(
    app: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["app.py", "--list"], ["app.py", "app.py"], ["app.py", "missing.mcap"]):
        assert main(["replay", *arguments]) == 1
        error = capsys.readouterr().err
        assert error.startswith("headrace replay: ")
        assert error.count("\n") == 1


def test_a_damaged_recording_is_played_up_to_the_damage_only_if_asked(
    app: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", app, "--ports", "camera.out", "-o", "a.mcap"]) == 0
    content = bytearray((folder / "a.mcap").read_bytes())
    content[content.rindex(struct.pack("<QH", 3, 1))] ^= 1  # the number of messages, and that of schemas
    (folder / "a.mcap").write_bytes(content)
    capsys.readouterr()
    assert main(["replay", app, "a.mcap"]) == 1
    assert "'a.mcap' is damaged at byte" in capsys.readouterr().err
    assert main(["replay", app, "a.mcap", "--no-strict"]) == 0
    out, error = capsys.readouterr()
    assert out.splitlines() == ["0", "1", "2"]
    assert error.count("the 3 messages in its first") == 1  # once, however often the file is opened
    assert main(["replay", "a.mcap", "--list", "--no-strict"]) == 0
    out, error = capsys.readouterr()
    assert out.startswith("Shows: 3 messages, ")
    assert error.count("the 3 messages in its first") == 1
