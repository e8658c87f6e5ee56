"""Launching simulated kernels and host functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.gpu.kernels import P
from headrace.gpu.sim.graph_nodes import HostCallbackNode, KernelNode
from headrace.gpu.sim.kernel import Kernel
from headrace.gpu.sim.launch_config import LaunchConfig, check_limits
from headrace.gpu.sim.memory import memory_of
from headrace.gpu.sim.memory_pool import Bytes
from headrace.gpu.sim.operations import CallHostFunction, RunGrid
from headrace.gpu.sim.processors import Grid, indices_of
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
    check_limits(kernel, config, device.profile)
    operation = RunGrid(  # created without the lock: `block_time` calls a function of the program
        device.processors,
        context.sms,
        blocks=config._block_count,
        threads=config._threads_per_block,
        period=kernel.block_time(*kernel_args, **kernel_kwargs),
        overhead=device.launch_overhead,
        effect=_effect_of(kernel, config, kernel_args, memory, device.machine.fail),
    )
    with queue.timeline.lock:
        if queue.capture is None:
            queue.submit(operation)
        else:
            used = [found for found in memory if found is not None]
            queue.capture.add(queue, KernelNode, operation, used, kernel=kernel, config=config)


def launch_host(stream: Stream | SupportsStream, function: Callable[[], object]) -> None:
    """Call a function on the host after the work submitted so far; later work waits until it returns."""
    queue = stream_of(stream)._queue
    queue.context.device.machine.check()
    with queue.timeline.lock:
        if queue.capture is None:
            queue.submit(CallHostFunction(function))
        else:
            queue.capture.add(queue, HostCallbackNode, CallHostFunction(function), callback=function)


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
