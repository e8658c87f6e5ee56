"""Terms: what both ends of a link are given alike, and Sample: what they are given to carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.core.ports import IOSpec


@dataclass(frozen=True, slots=True)
class Terms:
    """What both ends of a link are given alike.

    Attributes
    ----------
    name
        The name of the link, such as ``"edge.camera.out -> server.detector.frame"``.
    size
        The places in the receiver's queue.
    policy
        What the queue does when it is full.
    max_bytes
        The most shared memory, in bytes: of the link, and as much of allocators, and of each device. Between
        hosts, the most of one frame.
    silence
        The seconds within which a peer that is frozen or cut off is known to be lost; None if whoever began the two
        processes finds that out.
    epoch
        Which life of the parts the link belongs to.
    """

    name: str
    size: int
    policy: IOSpec.QueuePolicy = IOSpec.QueuePolicy.FAULT
    max_bytes: int = 1 << 30
    silence: float | None = 3.0
    epoch: int = 0

    def __post_init__(self) -> None:
        is_watched = self.silence is None or self.silence > 0
        if self.size < 1 or self.max_bytes < 1 or not is_watched or not 0 <= self.epoch < 1 << 32:
            raise ValueError(f"such a link cannot be: {self}")

    def text(self) -> bytes:
        """Return what the ends compare in their first messages."""
        return f"{self.name}|{self.size}|{self.policy.name}|{self.max_bytes}|{self.silence}".encode()[:4096]


class Sample(NamedTuple):
    """A message on its way: its data, its acquisition time and its metadata.

    `number` is the number of messages before it on the link, where it was received.
    """

    data: Any
    acq_timestamp: int | None = None
    metadata: dict[str, Any] | None = None
    number: int = -1
