"""Notes on exceptions."""

from __future__ import annotations

import pytest

from headrace import Application, Operator
from headrace._runtime.scheduling.notes import note
from headrace.gpu.sim import CUDAError


@pytest.mark.parametrize(
    "error",
    [
        CUDAError("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: a device cannot be synchronized"),
        RuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"),
    ],
)
def test_an_error_because_a_segment_is_recorded_says_what_to_do(error: Exception) -> None:
    note(error, "compute", Operator(Application(), name="reader"))
    assert error.__notes__[0] == "raised in compute of operator 'reader' (Operator)"
    assert "synchronize a stream" in error.__notes__[1]


def test_another_error_has_a_note_of_where_it_was_raised_and_no_more() -> None:
    error = ValueError("of the program")
    note(error, "compute", Operator(Application(), name="reader"))
    assert error.__notes__ == ["raised in compute of operator 'reader' (Operator)"]
