"""RecordingPage: a recording in the browser, message by message.

The page is told the port and the time of every message, and asks for the one that it shows. Pictures are sent as
the bytes of their pixels: that needs no library, and the page shows the values under the pointer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import numpy as np

from headrace import waits
from headrace._web.live_server import Client, LiveServer
from headrace._web.messages import Fields, MalformedMessage, whole
from headrace.brief import brief
from headrace.observe.recordings.carriers import RecordedMessage, RecordingError
from headrace.observe.recordings.recording import Recording
from headrace.observe.recordings.snapshots import TensorCopy
from headrace.tensor import TensorError

_MOST_PICTURES = 8  # of a message
_MOST_PIXELS = 1 << 24  # of a picture
_LONGEST = 4000  # characters of a text


class RecordingPage(LiveServer):
    """Serves a recording, which stays open meanwhile.

    Parameters
    ----------
    recording
        The recording.
    **options
        Where to listen, the token and the most clients, as :class:`LiveServer` takes them.
    """

    def __init__(self, recording: Recording, **options: Any) -> None:
        self._recording = recording
        ports = recording.ports
        numbers = {port: number for number, port in enumerate(ports)}
        outline = recording.outline()
        super().__init__(
            "the page of a recording",
            resources.files("headrace.observe.dashboard").joinpath("recording.html").read_text("utf-8"),
            {
                "title": f"{recording.path.name}: {recording.run.application}",
                "ports": [f"{port.name}{'' if port.is_output else ' (input)'}" for port in ports],
                "messages": [[numbers[port], time / 1e9] for port, time in outline],
                "problem": recording.problem or "",
            },
            remedy="name another --page-port (0 takes any port that is free)",
            **options,
        )
        self._count = len(outline)

    def wait(self) -> None:
        """Wait until the server ends, or Ctrl-C comes."""
        waits.join(self._thread)

    def on_message(self, client: Client, fields: Fields) -> None:
        """Send the message that a page asks for."""
        if fields.get("type") != "show" or not self._count:
            raise MalformedMessage(f"there is no request of the type {fields.get('type')!r:.40}")
        client.send(self._item(whole(fields, "number", 0, self._count - 1)), True)

    def _item(self, number: int) -> bytes:
        """Return a message for the page: the length of its description, its description, and its pixels."""
        head: Fields = {"number": number, "error": "", "text": "", "pictures": []}
        pixels: list[bytes] = []
        try:
            message = self._recording.load(number)
        except RecordingError as error:
            head["error"] = str(error)[:_LONGEST]
        else:
            head |= _described(message)
            for name, array in _pictures(message.data):
                description = f"{array.dtype} {'×'.join(map(str, array.shape))}"
                every = math.isqrt((array.shape[0] * array.shape[1] - 1) // _MOST_PIXELS) + 1
                description += f", rows and columns in steps of {every}" * (every > 1)
                rgba = _rgba(array[::every, ::every])
                height, width = rgba.shape[:2]
                head["pictures"].append(
                    {"name": name, "width": width, "height": height, "description": description}
                )
                pixels.append(rgba.tobytes())
        described = json.dumps(head).encode()
        return b"".join([len(described).to_bytes(4, "little"), described, *pixels])


def _described(message: RecordedMessage) -> Fields:
    return {
        "sequence": message.sequence,
        "step": message.step,
        "acq_timestamp": None if message.acq_timestamp is None else str(message.acq_timestamp),
        "metadata": {str(name): brief(value) for name, value in (message.metadata or {}).items()},
        "text": _text_of(message.data)[:_LONGEST],
    }


def _text_of(data: Any) -> str:
    if isinstance(data, Mapping):
        return "\n".join(f"{name!r}: {_text_of(value)}" for name, value in data.items())
    if isinstance(data, np.ndarray):
        return f"array of {data.dtype}, {data.shape}" if data.size > 100 else repr(data)
    return brief(data)


def _pictures(data: Any, name: str = "") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Return the arrays of a message that are pictures, with their names: the first few."""
    values = data if isinstance(data, Mapping) else {name: data}
    found = 0
    for key, value in values.items():
        if isinstance(value, (TensorCopy, np.ndarray)) and found < _MOST_PICTURES:
            try:
                array = np.asarray(value)
            except TensorError:  # an element type that NumPy does not know
                continue
            array = array[0] if array.ndim == 4 and len(array) == 1 else array
            if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
                array = np.moveaxis(array, 0, -1)
            is_picture = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))
            if is_picture and array.dtype.kind in "buif" and min(array.shape[:2]) > 1:
                found += 1
                yield str(key), array


def _rgba(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array as pixels; all but bytes are scaled from their least to their greatest value."""
    if array.dtype != np.uint8:
        values = array.astype(np.float64)
        finite = values[np.isfinite(values)]
        least, most = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
        values = np.nan_to_num((values - least) / ((most - least) or 1.0), nan=0.0, posinf=1.0, neginf=0.0)
        array = np.clip(np.rint(values * 255), 0, 255).astype(np.uint8)
    array = array[..., None] if array.ndim == 2 else array
    rgba = np.full((*array.shape[:2], 4), 255, np.uint8)
    rgba[..., : max(array.shape[2], 3)] = array
    return rgba
