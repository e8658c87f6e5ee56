"""The backend of real GPUs: cuda.core's objects, and the driver where cuda.core has no call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.gpu import cuda
from headrace.gpu.backend import DeviceUnavailable, do_nothing
from headrace.gpu.cuda.callbacks import CudaCallbacks
from headrace.gpu.cuda.capture import CudaCapture, check_status
from headrace.gpu.stream_handle import SupportsStream, handle_of
from headrace.installation import installing
from headrace.lazy import import_or_explain

if TYPE_CHECKING:
    from headrace.gpu import sim
    from headrace.gpu.kernels import kernel

_registered: dict[int, int] = {}
"""The size of plain memory that was registered with the driver, by its address."""

OLDEST_DRIVER = (12, 4)  # the first version with green contexts


class CudaBackend(CudaCapture, CudaCallbacks):
    """NVIDIA's GPUs."""

    name = "cuda"
    description = "CUDA"
    runs_cuda = True

    def why_not(self) -> str | None:
        """Return the reason why CUDA cannot be used, or None if it can.

        Raises
        ------
        DeviceUnavailable
            If there is a GPU whose driver is too old. Simulating a device would hide the problem.
        """
        try:
            from cuda.bindings import driver
            from cuda.core import Device
        except ImportError as error:
            if not os.path.exists("/proc/driver/nvidia/version"):  # the kernel has not loaded it
                return "no NVIDIA driver was found"
            return (
                f"cuda-core cannot be imported ({_first_line(error)}): "
                f"{installing('cu13')}, with cu12 for a driver before 13.0"
            )
        # Streams share connections to the device, 8 unless set otherwise, and work on one stream then waits for
        # work on another. The driver reads it when it starts; if another library has started it already, this
        # changes nothing.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        try:
            version = self.driver_version
        except Exception as error:
            return f"no usable NVIDIA driver was found ({_first_line(error)})"
        if version < OLDEST_DRIVER:
            raise DeviceUnavailable(
                f"the NVIDIA driver supports CUDA {version[0]}.{version[1]}; headrace needs 12.4 or newer. "
                "Update the driver, or set HEADRACE_DEVICE=sim to run on a simulated device"
            )
        try:
            (status,) = driver.cuInit(0)
            if status != driver.CUresult.CUDA_SUCCESS:
                return f"CUDA does not start ({status.name})"
            if not Device.get_all_devices():
                return "the driver sees no CUDA device"
        except Exception as error:
            return f"CUDA does not start ({_first_line(error)})"
        return None

    @property
    def names(self) -> Any:
        """The package with cuda.core's names."""
        return cuda

    @property
    def driver_version(self) -> tuple[int, int]:
        """The newest CUDA version that the driver supports."""
        from cuda.bindings import driver

        status, version = driver.cuDriverGetVersion()
        if status != driver.CUresult.CUDA_SUCCESS:
            raise DeviceUnavailable(f"the driver does not report its version ({status.name})")
        return version // 1000, version % 1000 // 10

    def remember_current(self) -> Callable[[], None]:
        """Return a function that restores this thread's current context."""
        from cuda.bindings import driver

        _, current = driver.cuCtxGetCurrent()
        if not int(current):
            return do_nothing
        device = cuda.Device()
        try:
            known = device.context
        except cuda.CUDAError:  # another library made it current; cuda.core was not used on this thread
            known = None

        def restore() -> None:
            # Both are needed: cuda.core creates streams in the context last set through it, whichever is current.
            if known is not None:
                device.set_current(known)
            driver.cuCtxSetCurrent(current)

        return restore

    def copy(self, stream: SupportsStream, target: Any, source: Any, size: int) -> None:
        """Copy bytes; the driver knows what memory is at an address."""
        from cuda.bindings import driver

        to, read = (one if isinstance(one, int) else int(one.ctypes.data) for one in (target, source))
        (status,) = driver.cuMemcpyAsync(to, read, size, driver.CUstream(handle_of(stream)))
        check_status(status, f"a copy of {size} bytes was refused")

    def copy_from_peer(
        self, stream: SupportsStream, target: int, device_id: int, source: int, peer_id: int, size: int
    ) -> None:
        """Copy bytes of another device; the driver does that whether or not access was granted to memory pools."""
        from cuda.bindings import driver

        to, read = _primary_context(device_id), _primary_context(peer_id)
        (status,) = driver.cuMemcpyPeerAsync(
            target, to, source, read, size, driver.CUstream(handle_of(stream))
        )
        check_status(status, f"a copy of {size} bytes from device {peer_id} to {device_id} was refused")

    def write_words(self, stream: SupportsStream, words: Iterable[tuple[int, int]]) -> None:
        """Write words by fills; a command of the stream for each word takes longer (`benchmarks.knobs`)."""
        from cuda.bindings import driver

        handle = driver.CUstream(handle_of(stream))
        for address, word in words:
            (status,) = driver.cuMemsetD32Async(address, word, 1, handle)
            check_status(status, "the write of a word was refused")

    def memory_pool(self, device_id: int, keep: int) -> Any:
        """Return a memory resource with a pool of its own, which keeps that many freed bytes."""
        from cuda.bindings import driver
        from cuda.core import DeviceMemoryResourceOptions

        make: Any = cuda.DeviceMemoryResource
        resource = make(device_id, DeviceMemoryResourceOptions())
        attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        # cuda.core has no setter. A driver that refuses allocates again what it would have kept, which is slower
        # and nothing else.
        driver.cuMemPoolSetAttribute(resource.handle, attribute, driver.cuuint64_t(keep))
        return resource

    def managed_memory(self) -> Any:
        """Return a memory resource of memory that both the host and devices can access."""
        from cuda import core

        resource = getattr(core, "ManagedMemoryResource", None)
        if resource is None:
            raise RuntimeError("this cuda.core has no managed memory; it needs cuda-core 1.0 or later")
        try:
            return resource()
        except Exception as error:
            raise RuntimeError(
                f"the driver has no managed memory ({error}); it needs CUDA 13. Use DEVICE or HOST memory"
            ) from error

    def pin(self, memory: Any) -> bool:
        """Register memory with the driver; it may refuse, for example beyond the limit of locked memory."""
        from cuda.bindings import driver

        address, size = int(memory.ctypes.data), int(memory.nbytes)
        if address not in _registered:
            (status,) = driver.cuMemHostRegister(address, size, driver.CU_MEMHOSTREGISTER_PORTABLE)
            if status != driver.CUresult.CUDA_SUCCESS:
                return False
            _registered[address] = size
        return True

    def unpin(self, memory: Any) -> None:
        """Make registered memory plain again."""
        from cuda.bindings import driver

        address = int(memory.ctypes.data)
        if _registered.pop(address, None) is not None:
            driver.cuMemHostUnregister(address)

    def is_pinned(self, memory: Any) -> bool:
        """Return whether an array lies in registered memory."""
        address, size = int(memory.ctypes.data), int(memory.nbytes)
        return any(
            start <= address and address + size <= start + length
            for start, length in list(_registered.items())
        )

    def buffer_descriptor(self, payload: bytes, size: int) -> Any:
        """Return cuda.core's descriptor; cuda.core and the driver check what is in it."""
        from cuda.core._memory._ipc import IPCBufferDescriptor

        return IPCBufferDescriptor._init(payload, size)

    def memory_left(self, device_id: int) -> int:
        """Return the bytes of device memory that are left."""
        from cuda.bindings import driver

        restore = self.remember_current()
        try:
            cuda.Device(device_id).set_current()
            _, left, _ = driver.cuMemGetInfo()
        finally:
            restore()
        return int(left)

    def array_module(self) -> Any:
        """Return CuPy."""
        return import_or_explain("cupy", "cupy", "for headrace.gpu.arrays() on a GPU")

    def compile(self, kernel: kernel[...], device: sim.Device) -> Any:
        """Compile a kernel for the chip of a device."""
        options = cuda.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
        return cuda.Program(kernel.source, "c++", options).compile("cubin").get_kernel(kernel.name)


@cache
def _primary_context(device_id: int) -> Any:
    """Return the primary context of a device, which stays retained."""
    from cuda.bindings import driver

    _, device = driver.cuDeviceGet(device_id)
    status, context = driver.cuDevicePrimaryCtxRetain(device)
    check_status(status, f"device {device_id} has no context")
    return context


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
