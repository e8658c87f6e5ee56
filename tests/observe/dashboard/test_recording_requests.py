"""The page of a recording: what its server is asked for, and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.observe import RecordedMessage, RecordedPort, RecordedRun, Recording
from tests._web.clients import ask, connect
from tests.observe.dashboard.recorded import record

pytest.importorskip("mcap", reason="needs mcap for recordings")
from headrace.observe.dashboard.recording_page import RecordingPage


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    with Recording(record(tmp_path_factory.mktemp("recording") / "a.mcap")) as recording:
        yield recording


def asked(recording: Recording, *requests: Any) -> list[Any]:
    """Return what the server says to requests: the descriptions of messages, or that it closes the connection."""
    server = RecordingPage(recording)

    async def action(session: Any, base: str) -> list[Any]:
        answers: list[Any] = []
        for request in requests:
            async with connect(session, base, server, max_msg_size=0) as socket:
                await socket.send_json(request)
                data = (await socket.receive()).data
                answers.append(
                    json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
                    if type(data) is bytes
                    else data
                )
        return answers

    try:
        return ask(server, action)
    finally:
        server.close()


@pytest.mark.parametrize(
    "request_", [{"type": "show", "number": 12}, {"type": "show", "number": "0"}, {"type": "x"}]
)
def test_a_request_for_something_else_is_refused(recording: Recording, request_: Any) -> None:
    assert asked(recording, request_, {"type": "show", "number": 0})[0] == 1007


def test_a_message_that_is_damaged_shows_why(recording: Recording, tmp_path: Path) -> None:
    content = bytearray(recording.path.read_bytes())
    content[content.index(b"</script>")] ^= 1
    (tmp_path / "b.mcap").write_bytes(content)
    with Recording(tmp_path / "b.mcap") as damaged:
        (answer,) = asked(damaged, {"type": "show", "number": 0})
    assert "b.mcap" in answer["error"]
    assert answer["pictures"] == []


def test_a_large_picture_is_thinned_out() -> None:
    recorded = RecordedPort("a", "out", True)
    message = RecordedMessage(recorded, 0, 0, 0, None, {}, np.zeros((4097, 4097), np.uint8))

    class One:
        path, ports, problem, run = Path("a.mcap"), [recorded], None, RecordedRun("app", [recorded], [])
        outline = staticmethod(lambda: [(recorded, 0)])
        load = staticmethod(lambda number: message)

    (answer,) = asked(One(), {"type": "show", "number": 0})  # type: ignore[arg-type]
    (picture,) = answer["pictures"]
    assert (picture["width"], picture["description"]) == (
        2049,
        "uint8 4097×4097, rows and columns in steps of 2",
    )
