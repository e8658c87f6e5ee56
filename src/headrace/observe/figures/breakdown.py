"""Where the time of a message went: in which queue, in which operator on the host, and on the device."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Breakdown", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message's time."""

    kind: str
    """``"before"`` (from the acquisition to the first operator), ``"queue"``, ``"host"`` (in `compute`),
    ``"device"`` (waiting for the device), or ``"gpu"``."""
    where: str
    """The queue, as in ``"display.in"``, or the operator."""
    slice: str
    """The slice of the device, for work on one."""
    duration: int
    """Nanoseconds."""

    def __str__(self) -> str:
        text = {
            "before": f"before {self.where}",
            "queue": f"in the queue {self.where}",
            "host": f"in compute of {self.where}",
            "gpu": f"on the GPU for {self.where}",
            "device": f"waiting for the GPU in {self.where}",
        }[self.kind]
        return f"{self.duration / 1e6:.3f} ms {text}{f' (slice {self.slice})' if self.slice else ''}"


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts of a message's time, in their order; they add up to all of it."""

    parts: tuple[Part, ...]

    @property
    def largest(self) -> Part:
        """The largest part."""
        return max(self.parts, key=lambda part: part.duration)

    def __str__(self) -> str:
        shown = [part for part in self.parts if part.duration >= 1000] or [self.largest]
        return ", ".join(map(str, sorted(shown, key=lambda part: -part.duration)))
