"""The one error a simulated driver raises."""


class CUDAError(Exception):
    """A call that the driver refused; the text begins with the driver's own name for the reason."""


def invalid_launch(kernel: str, detail: str, reason: str = "CUDA_ERROR_INVALID_VALUE") -> CUDAError:
    """Return the error of a launch whose configuration the device does not take."""
    return CUDAError(f"{reason}: invalid configuration of kernel {kernel!r}: {detail}")


def invalid_resource_configuration(detail: str) -> CUDAError:
    """Return the error of a split or a context that the device's SMs cannot give."""
    return CUDAError(f"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: {detail}")
