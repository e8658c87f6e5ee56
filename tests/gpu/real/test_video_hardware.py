"""NVDEC: frames that the hardware decodes are those that software decodes, at the same times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.operators import VideoReaderOp, VideoWriterOp
from headrace.testing import Message, run_operator
from headrace.video.files import open_input

av = pytest.importorskip("av")
pytestmark = pytest.mark.usefixtures("real")

TIMES = [1_700_000_000_000_000_000 + 16_683_000 * number + 1_000_000 * (number % 3) for number in range(40)]


def require_nvdec(path: Path) -> None:
    """Skip the test unless the first frame comes from NVDEC: in its format, and not in that of software."""
    with open_input(av, str(path), hardware=True) as container:
        if next(container.decode(video=0)).format.name != "nv12":
            pytest.skip("PyAV or this machine has no NVDEC")


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_frames_of_nvdec_are_those_of_software(tmp_path: Path, codec: str) -> None:
    blocks = np.random.default_rng(1).integers(0, 256, (48, 80, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    frames = [
        Message(np.roll(blocks, 5 * number, 1), acq_timestamp=time) for number, time in enumerate(TIMES)
    ]
    path = tmp_path / "a.mp4"
    run_operator(VideoWriterOp, inputs=frames, path=path, codec=codec, preset="ultrafast", hardware=False)
    require_nvdec(path)
    for pixel_format, tolerance in (("nv12", 0), ("gray", 0), ("rgb24", 0)):
        software, hardware = (
            run_operator(
                VideoReaderOp, path=path, realtime=False, pixel_format=pixel_format, hardware=is_hardware
            ).messages["output"]
            for is_hardware in (False, True)
        )
        assert [message.acq_timestamp for message in hardware] == TIMES
        for one, other in zip(software, hardware, strict=True):
            given, found = np.asarray(one.data[""]).astype(int), np.asarray(other.data[""])
            np.testing.assert_allclose(found, given, atol=tolerance)
