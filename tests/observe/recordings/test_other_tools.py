"""Recordings in the hands of other tools: read by MCAP's own reader, and by nothing but the schemas in the file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.observe import PortRecorder, Recording, watch
from tests.harness import App, Step, greedy, run, source

reader = pytest.importorskip("mcap.reader")

# The definition of ROS 2, which Foxglove's image panel draws; and the encodings that it lists for images.
PUBLISHED = [
    ("std_msgs/Header", "header"), ("uint32", "height"), ("uint32", "width"), ("string", "encoding"),
    ("uint8", "is_bigendian"), ("uint32", "step"), ("uint8[]", "data"),
]  # fmt: skip
ELEMENTS = {
    "mono8": (np.uint8, 1), "rgb8": (np.uint8, 3), "rgba8": (np.uint8, 4), "mono16": (np.uint16, 1),
    "32FC1": (np.float32, 1),
}  # fmt: skip
FRAMES: list[Any] = [
    np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3),
    np.arange(4 * 6 * 4, dtype=np.uint8).reshape(4, 6, 4),
    np.arange(24, dtype=np.uint8).reshape(4, 6),
    np.arange(24, dtype=np.uint16).reshape(4, 6) * 1000,
    {"depth": np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)},
]


def fields_of(schema: str) -> dict[str, list[tuple[str, str]]]:
    """Return the fields of each type in a schema of ROS 2; the first is named ""."""
    first, *others = schema.split("=" * 80)
    texts = {"": first} | {
        part.split("\n", 2)[1].removeprefix("MSG: "): part.split("\n", 2)[2] for part in others
    }
    lines = {
        name: [line.partition("#")[0].split() for line in text.splitlines()] for name, text in texts.items()
    }
    return {name: [(line[0], line[1]) for line in found if line] for name, found in lines.items()}


class Cdr:
    """Reads values of a schema, as any tool does that knows ROS 2 and not headrace."""

    def __init__(self, content: bytes, types: dict[str, list[tuple[str, str]]]) -> None:
        assert content[:4] == b"\0\1\0\0"  # little-endian
        self._content, self._types, self._at = content[4:], types, 0

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        self._at += -self._at % size
        self._at += size
        return int(struct.unpack_from(f"<{form}", self._content, self._at - size)[0])

    def read(self, kind: str) -> Any:
        if kind in ("uint8", "uint32", "int32"):
            return self.number({"uint8": "B", "uint32": "I", "int32": "i"}[kind])
        if kind in ("string", "uint8[]"):
            size = self.number("I")
            self._at += size
            content = self._content[self._at - size : self._at]
            return content[:-1].decode() if kind == "string" else content
        return {name: self.read(one) for one, name in self._types[kind]}

    def all(self) -> dict[str, Any]:
        value: dict[str, Any] = self.read("")
        assert self._at == len(self._content)
        return value


def test_pictures_are_images_of_ros_2_and_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"

    def compose(app: App) -> None:
        take = {"inputs": ["in"], "body": lambda self, op_input, _: op_input.receive("in")}
        app.add_flow(source(app, [*FRAMES, {"x": 1.5}], name="camera"), Step(app, **take))
        watch(app, PortRecorder(path, ["camera"]))

    run(compose, greedy)
    with path.open("rb") as file:
        found = list(reader.make_reader(file, validate_crcs=True).iter_messages())
    assert [schema.name for schema, _, _ in found] == ["sensor_msgs/msg/Image"] * 5 + ["headrace/msg/Message"]
    for frame, (schema, channel, message) in zip(FRAMES, found, strict=False):
        assert (schema.encoding, channel.message_encoding) == ("ros2msg", "cdr")
        assert channel.topic.startswith("camera.")
        types = fields_of(schema.data.decode())
        assert types[""] == PUBLISHED
        image = Cdr(message.data, types).all()
        element, channels = ELEMENTS[image["encoding"]]
        pixels = np.frombuffer(image["data"], element)
        expected = frame["depth"] if isinstance(frame, dict) else frame
        np.testing.assert_array_equal(pixels.reshape(expected.shape), expected)
        size = np.dtype(element).itemsize * channels
        assert (image["height"], image["width"], image["step"]) == (4, 6, 6 * size)
        stamp = image["header"]["stamp"]
        assert stamp["sec"] * 1_000_000_000 + stamp["nanosec"] == message.log_time
    with Recording(path) as recording:
        for frame, message in zip(FRAMES, recording, strict=False):
            data = message.data["depth"] if isinstance(frame, dict) else message.data
            given = frame["depth"] if isinstance(frame, dict) else frame
            assert np.asarray(data).tobytes() == given.tobytes()
