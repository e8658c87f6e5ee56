"""A recording, read as PortRecorder describes the file: by the package mcap, without headrace."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from mcap.reader import make_reader

from headrace import Application, PeriodicCondition, op
from headrace.observe import PortRecorder, watch

FRAME = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


@op
def camera() -> Any:
    yield FRAME
    yield FRAME + 1


@op(outputs=["result"])
def enhance(frame: Any) -> Any:
    return {"mean": float(frame.mean()), "rows": (frame.sum(axis=(1, 2)), b"raw")}


@op
def show(result: Any) -> None:
    pass


class Live(Application):
    def compose(self) -> None:
        enhanced = enhance(self)
        self.add_flow(camera(self, PeriodicCondition(self, "1ms")), enhanced, show(self))


def record(path: Path) -> None:
    app = Live()
    watch(app, PortRecorder(path))
    app.run()


def fields(content: bytes, layout: str) -> list[Any]:
    """Return the fields of a message in the CDR: t for text, B and I for numbers, d for bytes up to the end."""
    at, found = 4, []
    for kind in layout:
        if kind == "B":
            found.append(content[at])
            at += 1
            continue
        at += -at % 4
        (number,) = struct.unpack_from("<I", content, at)
        at += 4
        if kind == "t":
            found.append(content[at : at + number - 1].decode())
            at += number
        else:
            found.append(content[at : at + number] if kind == "d" else number)
    return found


def test_messages_are_read_with_mcap_alone(tmp_path: Path) -> None:
    record(tmp_path / "run.mcap")
    found: dict[str, list[Any]] = {}
    with open(tmp_path / "run.mcap", "rb") as file:
        reader = make_reader(file, validate_crcs=True)
        assert reader.get_header().profile == "headrace"
        (about,) = reader.iter_metadata()
        run = json.loads(about.metadata["run"])
        for schema, channel, message in reader.iter_messages():
            assert schema is not None
            assert run["ports"][int(channel.metadata["port"])]["operator"] == channel.topic.split(".")[0]
            found.setdefault(f"{channel.topic} {schema.name}", []).append(message)
    assert run["application"] == "Live"
    assert list(found) == ["camera.out sensor_msgs/msg/Image", "enhance.result headrace/msg/Message"]
    images, results = found.values()
    assert [message.sequence for message in images] == [0, 1]
    _, _, text, height, width, encoding, _, row, data = fields(images[1].data, "IItIItBId")
    assert (height, width, encoding, row) == (2, 3, "rgb8", 9)
    assert np.array_equal(np.frombuffer(data, np.uint8).reshape(2, 3, 3), FRAME + 1)
    assert json.loads(text)["data"] == {"$array": [0, "|u1", [2, 3, 3], "C"]}

    text, data = fields(results[0].data, "td")
    tree = json.loads(text)
    assert tree["step"] == 0
    assert tree["data"]["mean"] == FRAME.mean()
    rows, raw = tree["data"]["rows"]["$tuple"]
    at, dtype, shape, _ = rows["$array"]
    count = int(np.prod(shape))
    assert np.array_equal(np.frombuffer(data, dtype, count, at).reshape(shape), FRAME.sum(axis=(1, 2)))
    at, size = raw["$bytes"]
    assert data[at : at + size] == b"raw"
