"""The error that a simulated driver raises."""

from __future__ import annotations


class CUDAError(Exception):
    """An error of the driver; the text begins with the name of its CUDA error code."""


def invalid_launch(kernel: str, detail: str, reason: str = "CUDA_ERROR_INVALID_VALUE") -> CUDAError:
    """Return the error for a launch configuration that the device does not support."""
    return CUDAError(f"{reason}: invalid configuration of kernel {kernel!r}: {detail}")


def invalid_resource_configuration(detail: str) -> CUDAError:
    """Return the error for a split or a context that the device's SMs cannot provide."""
    return CUDAError(f"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: {detail}")


def capture_error(code: str, detail: str) -> CUDAError:
    """Return an error of stream capture; ``code`` is the end of its name."""
    return CUDAError(f"CUDA_ERROR_STREAM_CAPTURE_{code}: {detail}")
