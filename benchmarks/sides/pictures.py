"""A 4K video from a file to pictures of 1080p: decode, make small, look at."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SIZE, SMALL, FRAMES = (2160, 3840), (1080, 1920), 90


def of_headrace(*, share: float) -> tuple[float, int]:
    """Return the frames per second, and how many there were."""
    from headrace import Application, op
    from headrace.operators import FormatConverterOp, VideoReaderOp

    seen: list[float] = []

    @op
    def look(picture: Any) -> None:
        if not seen or len(seen) % 30 == 0:
            _check(np.asarray(picture[""]))
        seen.append(time.perf_counter())

    class Program(Application):
        def compose(self) -> None:
            reader = VideoReaderOp(self, path=str(_clip()), realtime=False, name="reader")
            small = FormatConverterOp(
                self,
                out_dtype="rgb888",
                resize_height=SMALL[0],
                resize_width=SMALL[1],
                resize_mode=2,
                name="small",
            )
            self.add_flow(reader, small)
            self.add_flow(small, look(self, name="look"))

    Program().run()
    return (len(seen) - 1) / (seen[-1] - seen[0]), len(seen)


def of_opencv(*, share: float) -> tuple[float, int]:
    """Return the same for a loop over OpenCV's reader."""
    import cv2

    reader, seen = cv2.VideoCapture(str(_clip())), []
    while True:
        found, frame = reader.read()
        if not found:
            break
        picture = cv2.resize(frame, SMALL[::-1], interpolation=cv2.INTER_LINEAR)
        if len(seen) % 30 == 0:
            _check(picture)
        seen.append(time.perf_counter())
    return (len(seen) - 1) / (seen[-1] - seen[0]), len(seen)


def of_gstreamer(*, share: float) -> tuple[float, int]:
    """Return the same for GStreamer's own command, whose last element counts the frames."""
    command = shutil.which("gst-launch-1.0")
    if command is None:
        raise ModuleNotFoundError("gst-launch-1.0")
    words = f"filesrc location={_clip()} ! decodebin ! videoscale ! videoconvert ! "
    words += f"video/x-raw,format=RGB,width={SMALL[1]},height={SMALL[0]} ! "
    words += "fpsdisplaysink text-overlay=false sync=false video-sink=fakesink"
    began = time.perf_counter()
    done = subprocess.run([command, "-v", *words.split()], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    frames = int(re.findall(r"rendered: (\d+)", done.stdout)[-1])
    return frames / seconds, frames


def _clip() -> Path:
    """Return a video, which is made once."""
    path = Path(tempfile.gettempdir()) / f"headrace-bench-{SIZE[1]}x{SIZE[0]}x{FRAMES}.mp4"
    if not path.exists():
        from headrace.video import write_video

        rows, columns = np.indices(SIZE)
        base = ((rows + columns) // 16 % 256).astype(np.uint8)
        frames = (np.repeat(np.roll(base, 8 * n, 1)[..., None], 3, 2) for n in range(FRAMES))
        partial = path.with_suffix(".partial.mp4")
        write_video(partial, frames)
        partial.rename(path)
    return path


def _check(picture: np.ndarray) -> None:
    if picture.shape != (*SMALL, 3) or not 100 < picture.mean() < 155:
        raise AssertionError(f"a picture of {picture.shape} with the mean {picture.mean():.0f}")
