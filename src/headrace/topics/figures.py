"""TopicFigures: the rate, the size and the delay of a topic, and its last message in words."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

from headrace.core.values import size_text
from headrace.tensor import TensorError, as_tensor, tree
from headrace.tensor.conversion import is_array

if TYPE_CHECKING:
    from headrace.topics.subscription import Message

_CHANNELS = {1: "grey", 3: "RGB", 4: "RGBA"}


class TopicFigures:
    """What the messages of one publisher tell of a topic.

    The rate is that of the publisher, by its own numbers and times: messages that did not arrive count, too. The
    delay is the time from `publish` to here; between hosts, the difference of their clocks is in it.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sizes: list[int] = []
        """The bytes of each message."""
        self.delays: list[float] = []
        """The seconds from publishing each message to its arrival."""
        self._first: Message | None = None
        self.last: Message | None = None

    def add(self, message: Message, now: int) -> None:
        """Count a message that arrived, by a clock in nanoseconds since 1970."""
        if self.last is not None and message.number < self.last.number:
            self._first = None  # another publisher
        if self._first is None:
            self._first = message._replace(data=None)
        else:  # the first may be an old one that was kept
            self.delays.append((now - message.published) / 1e9)
        self.count += 1
        self.sizes.append(size_of(message.data))
        self.last = message

    @property
    def rate(self) -> float | None:
        """The messages that are published a second; None before the second message."""
        if self._first is None or self.last is None or self.last.published <= self._first.published:
            return None
        seconds = (self.last.published - self._first.published) / 1e9
        return (self.last.number - self._first.number) / seconds

    def lines(self) -> list[str]:
        """Return the figures and the last message, for people to read."""
        if self.last is None:
            return ["no message has come"]
        rate = self.rate
        lines = [
            "rate     " + ("not known yet" if rate is None else f"{rate:.4g} messages a second"),
            "size     " + _range([size_text(each) for each in (min(self.sizes), max(self.sizes))]),
        ]
        if self.delays:
            ordered = sorted(self.delays)
            middle = ordered[len(ordered) // 2]
            lines.append(f"delay    {middle * 1e3:.3g} ms median, {ordered[-1] * 1e3:.3g} ms at most")
        message = self.last
        lines.append(f"message {message.number}:")
        lines += [f"  {line}" for line in described(message.data)]
        if message.metadata:
            lines.append(f"  metadata: {reprlib.repr(message.metadata)}")
        return lines


def size_of(data: Any) -> int:
    """Return the bytes of the arrays, bytes and texts in a message."""
    total = 0
    for leaf in tree.leaves(data):
        if isinstance(leaf, (bytes, bytearray)):
            total += len(leaf)
        elif isinstance(leaf, str):
            total += len(leaf.encode())
        elif is_array(leaf):
            total += _nbytes(leaf)
    return total


def described(data: Any) -> list[str]:
    """Return a message in words: arrays by type and shape, all else as Python shows it, shortened."""
    if isinstance(data, dict) and data:
        return [
            f"{name}: {line}" if not at else f"  {line}"
            for name, value in data.items()
            for at, line in enumerate(described(value))
        ]
    if not is_array(data):
        return [reprlib.repr(data)]
    try:
        tensor = as_tensor(data)
    except TensorError as error:
        return [f"{type(data).__name__} ({error})"]
    shape = tuple(tensor.shape)
    text = f"{tensor.dtype} {shape}"
    if len(shape) in (2, 3) and str(tensor.dtype) in ("uint8", "uint16", "float32") and min(shape[:2]) > 4:
        channels = _CHANNELS.get(shape[2] if len(shape) == 3 else 1)
        if channels:
            text += f", a picture of {shape[1]} x {shape[0]}, {channels}"
    return [text]


def _nbytes(array: Any) -> int:
    try:
        return int(as_tensor(array).nbytes)
    except TensorError:
        return 0


def _range(ends: list[str]) -> str:
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
