"""Importing video and operators imports no heavy library."""

from __future__ import annotations

import pytest

from tests.harness.processes import output_of

HEAVY = "av", "cv2", "PIL", "torch", "cupy", "numpy"


@pytest.mark.parametrize("package", ["headrace.video", "headrace.operators"])
def test_a_package_imports_nothing_heavy(package: str) -> None:
    program = f"import sys, {package}; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert output_of("-c", program) == "[]\n"


@pytest.mark.parametrize(
    "name", ["CameraSimOp", "V4L2VideoCaptureOp", "VideoStreamRecorderOp", "VideoStreamReplayerOp"]
)
def test_an_operator_imports_no_library_that_it_may_not_need(name: str) -> None:
    program = (
        f"import sys\nfrom headrace.operators import {name}\n"
        f"print([name for name in {HEAVY[:5]!r} if name in sys.modules])"
    )
    assert output_of("-c", program) == "[]\n"
