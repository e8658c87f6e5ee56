"""Launches of simulated kernels and host functions; their configuration, and its limits on a device."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.gpu.declared_kernels import P
from headrace.gpu.sim.graph_nodes import HostCallbackNode, KernelNode
from headrace.gpu.sim.kernel import Kernel, LaunchConfig
from headrace.gpu.sim.memory import memory_of
from headrace.gpu.sim.memory_pool import Bytes
from headrace.gpu.sim.objects import CUDAError
from headrace.gpu.sim.operations import CallHostFunction, RunGrid
from headrace.gpu.sim.processors import Grid, indices_of
from headrace.gpu.sim.profiles import Profile
from headrace.gpu.sim.stream import Stream, stream_of
from headrace.gpu.stream_handle import SupportsStream


def launch(
    stream: Stream | SupportsStream,
    config: LaunchConfig,
    kernel: Kernel[P],
    *kernel_args: P.args,
    **kernel_kwargs: P.kwargs,
) -> None:
    """Launch a simulated kernel on a stream; its arguments are positional, as those of CUDA kernels are."""
    if kernel_kwargs:
        raise TypeError(f"launch takes kernel arguments by position, got {', '.join(kernel_kwargs)} by name")
    if not isinstance(config, LaunchConfig):
        raise TypeError(f"launch takes a LaunchConfig, got {type(config).__name__}")
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"launch on a simulated device takes a simulated kernel, got {type(kernel).__name__}; "
            "declare it with headrace.gpu.kernel and launch kernel.on(device)"
        )
    queue = stream_of(stream)._queue
    context = queue.context
    device = context.device
    device.machine.check()
    memory = [memory_of(arg) for arg in kernel_args]
    _check_limits(kernel, config, device.profile)
    operation = RunGrid(  # created without the lock: `block_time` calls a function of the program
        device,
        context.sms,
        config._block_count,
        config._threads_per_block,
        kernel.block_time(*kernel_args, **kernel_kwargs),
        _effect_of(kernel, config, kernel_args, memory, device.machine.fail),
        overhead=device.launch_overhead,
    )
    with queue.timeline.lock:
        queue.add(KernelNode, operation, memory, kernel=kernel, config=config)


def launch_host(stream: Stream | SupportsStream, function: Callable[[], object]) -> None:
    """Call a function on the host after the work submitted so far; later work waits until it returns."""
    queue = stream_of(stream)._queue
    queue.context.device.machine.check()
    with queue.timeline.lock:
        queue.add(HostCallbackNode, CallHostFunction(queue.context.device, function), callback=function)


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch, as the kernel's effect sees it.

    Attributes
    ----------
    config : LaunchConfig
        Its configuration.
    sms : tuple of int
        The SMs that its blocks ran on.
    start, end : float
        When its first block began and its last block ended, in seconds of the machine's time.
    """

    config: LaunchConfig
    sms: tuple[int, ...]
    start: float
    end: float


_running = threading.local()


def launched() -> Launch:
    """Return the launch whose effect is running; call it only in the ``effect`` of a kernel."""
    launch: Launch | None = getattr(_running, "launch", None)
    if launch is None:
        raise RuntimeError("launched() was called outside the effect of a simulated kernel")
    return launch


def _effect_of(
    kernel: Kernel[...],
    config: LaunchConfig,
    args: tuple[Any, ...],
    memory: list[Bytes | None],
    fail: Callable[[str, BaseException], None],
) -> Callable[[Grid], None] | None:
    effect = kernel.effect
    if effect is None:
        return None
    # The memory, not the buffer: freeing the buffer does not stop a kernel that was launched.
    given = [arg if found is None else found for arg, found in zip(args, memory, strict=True)]

    def apply(grid: Grid) -> None:
        sms = tuple(indices_of(grid.used))
        _running.launch = Launch(config, sms, grid.first_block / 1e9, grid.ended / 1e9)
        try:
            effect(*given)
        except Exception as error:
            fail(f"the effect of kernel {kernel.name!r}", error)
        finally:
            _running.launch = None

    return apply


def _check_limits(kernel: Kernel[...], config: LaunchConfig, limits: Profile) -> None:
    """Raise the driver's error for a configuration that exceeds the limits of a device."""
    _check_size(kernel, "grid", config._grid_in_blocks, limits.max_grid)
    _check_size(kernel, "block", config.block, limits.max_block)
    if config._threads_per_block > limits.threads_per_block:
        raise _invalid_launch(
            kernel.name,
            f"a block of {config._threads_per_block} threads; the maximum is {limits.threads_per_block}",
        )
    most_shared = limits.shared_memory_per_block
    if kernel.max_dynamic_shared_size_bytes is not None:
        most_shared = min(kernel.max_dynamic_shared_size_bytes, limits.shared_memory_per_block_optin)
    if not 0 <= config.shmem_size <= most_shared:
        raise _invalid_launch(
            kernel.name,
            f"{config.shmem_size} bytes of shared memory for a block; the maximum is {most_shared}, or "
            f"{limits.shared_memory_per_block_optin} with Kernel(max_dynamic_shared_size_bytes=...)",
        )
    if config.cluster is not None:
        _check_cluster(kernel, math.prod(config.cluster), limits)


def _check_size(
    kernel: Kernel[...], noun: str, sizes: tuple[int, int, int], most: tuple[int, int, int]
) -> None:
    if sizes[0] > most[0] or sizes[1] > most[1] or sizes[2] > most[2]:
        raise _invalid_launch(kernel.name, f"a {noun} of {_joined(sizes)}; the maximum is {_joined(most)}")


def _check_cluster(kernel: Kernel[...], size: int, limits: Profile) -> None:
    if not limits.blocks_per_cluster:
        raise CUDAError(
            f"CUDA_ERROR_NOT_SUPPORTED: kernel {kernel.name!r}: thread-block clusters need compute capability "
            f"9.0; this device has {_joined(limits.compute_capability, '.')}"
        )
    most = limits.blocks_per_cluster
    if kernel.non_portable_cluster_size_allowed:
        most = limits.blocks_per_cluster_optin
    if size > most:
        raise _invalid_launch(
            kernel.name,
            f"a cluster of {size} blocks; the maximum is {most}, or {limits.blocks_per_cluster_optin} with "
            "Kernel(non_portable_cluster_size_allowed=True)",
            "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        )


def _joined(sizes: tuple[int, ...], separator: str = " x ") -> str:
    return separator.join(map(str, sizes))


def _invalid_launch(kernel: str, detail: str, reason: str = "CUDA_ERROR_INVALID_VALUE") -> CUDAError:
    return CUDAError(f"{reason}: invalid configuration of kernel {kernel!r}: {detail}")
