"""Importing video imports no heavy library; that of operators is tested with theirs."""

from __future__ import annotations

from tests.harness.processes import output_of


def test_the_package_imports_nothing_heavy() -> None:
    heavy = "av", "cv2", "PIL", "torch", "cupy", "numpy"
    program = f"import sys, headrace.video; print([name for name in {heavy!r} if name in sys.modules])"
    assert output_of("-c", program) == "[]\n"
