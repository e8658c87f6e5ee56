"""Running the examples with arrays, and what plain NumPy says that they should show."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from examples.shared.frames import picture
from tests.harness.processes import EXAMPLES, output_of


def show(
    example: str, out: Path, frames: int, *arguments: str, forked: bool = False, **environment: str
) -> list[str]:
    """Run an example; return what its probe printed."""
    program = EXAMPLES / example, "--frames", frames, "--out", out, *arguments
    printed = output_of(*program, forked=forked, **environment)
    *probed, last = printed.splitlines()
    assert last == f"the last frame is in {out}"
    return probed


def probed(frame: np.ndarray, device: str) -> str:
    return f"{frame.shape} {frame.dtype} on {device}, checksum {zlib.crc32(frame.tobytes()):08x}"


def read_picture(path: Path) -> np.ndarray:
    header, _, pixels = path.read_bytes().partition(b"\n")
    form, width, height, most = header.split()
    assert (form, most) == (b"P6", b"255")
    return np.frombuffer(pixels, np.uint8).reshape(int(height), int(width), 3)


def louder(number: int) -> np.ndarray:
    return picture(number) * np.uint8(2)


def mirrored(number: int) -> np.ndarray:
    return picture(number)[:, ::-1]


def inverted(number: int) -> np.ndarray:
    return 255 - picture(number)


def blurred(number: int) -> np.ndarray:
    wide = picture(number).astype(np.int32)
    moves = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    return (sum(np.roll(wide, move, axis=(0, 1)) for move in moves) // 5).astype(np.uint8)


def enlarged(number: int) -> np.ndarray:
    """Twice as large, by linear interpolation between the centres of pixels; not rounded."""
    frame = picture(number).astype(np.float64)
    for axis in (0, 1):
        size = frame.shape[axis]
        at = np.clip((np.arange(2 * size) + 0.5) / 2 - 0.5, 0, size - 1)
        below = at.astype(int)
        above = np.minimum(below + 1, size - 1)
        part = (at - below).reshape([-1 if n == axis else 1 for n in range(3)])
        frame = frame.take(below, axis) * (1 - part) + frame.take(above, axis) * part
    return frame
