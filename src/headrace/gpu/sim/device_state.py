"""The driver's state of a device and of its contexts.

The objects that a program uses (Device, Context, Stream, Event) are views of this state, as cuda.core's objects are
views of the real driver's state.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.gpu.sim.memory_pool import MemoryPool
from headrace.gpu.sim.operations import CopyEngine
from headrace.gpu.sim.processors import Processors, SMs
from headrace.gpu.sim.profiles import Profile
from headrace.gpu.sim.stream_queues import StreamQueue
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE

if TYPE_CHECKING:
    from headrace.gpu.sim.device import Device
    from headrace.gpu.sim.machine import Machine


class DeviceState:
    """One device of a machine."""

    def __init__(self, machine: Machine, index: int, profile: Profile) -> None:
        self.machine = machine
        self.index = index
        self.profile = profile
        self.launch_overhead = round(profile.launch_overhead * 1e9)  # nanoseconds
        self.graph_launch_overhead = round(profile.graph_launch_overhead * 1e9)
        self.graph_node_overhead = round(profile.graph_node_overhead * 1e9)
        self.processors = Processors(
            machine.timeline, profile.sm_count, profile.threads_per_sm, profile.blocks_per_sm
        )
        starts = itertools.accumulate(profile.clusters, initial=0)
        self.clusters = tuple(
            range(start, start + size) for start, size in zip(starts, profile.clusters, strict=False)
        )
        self.memory = MemoryPool(profile.memory, machine.timeline.lock)
        self.to_device = CopyEngine(profile.copy_bandwidth)
        self.to_host = CopyEngine(profile.copy_bandwidth)
        self.within_device = CopyEngine(profile.memory_bandwidth)
        self.busy_queues: set[StreamQueue] = set()
        self.device: Device | None = None  # the only Device object that programs see
        self.primary_context = ContextState(
            self, self.processors.all_sms, handle=0x5000_0000 + 16 * index, is_green=False
        )

    def call(self, code: Callable[[], object]) -> None:
        """Call a function of the program with this device current, then restore the thread's context."""
        machine = self.machine
        context, view = machine.current_context, machine.current_view
        machine.make_current(self.primary_context, None)
        try:
            code()
        finally:
            machine.make_current(context, view)


class ContextState:
    """A primary or a green context: the SMs that its streams may use."""

    def __init__(
        self,
        device: DeviceState,
        sms: SMs,
        *,
        handle: int,
        is_green: bool,
        workqueue: tuple[str, int] | None = None,
    ) -> None:
        self.device = device
        self.sms = sms
        self.handle = handle
        self.is_green = is_green
        self.workqueue = workqueue  # sharing scope and concurrency limit, if the program chose them
        self._queues: weakref.WeakSet[StreamQueue] = weakref.WeakSet()
        self.default_queue = StreamQueue(
            self, LEGACY_DEFAULT_HANDLE, priority=0, nonblocking=False, is_default=True
        )

    def create_queue(self, *, priority: int, nonblocking: bool) -> StreamQueue:
        """Create the queue of a new stream of this context."""
        machine = self.device.machine
        queue = StreamQueue(self, machine.new_handle(), priority=priority, nonblocking=nonblocking)
        machine.stream_queues[queue.handle] = queue
        self._queues.add(queue)
        return queue

    def blocking_queues(self) -> list[StreamQueue]:
        """Return the queues that the default stream is ordered with, oldest first."""
        return sorted(
            (queue for queue in self._queues if not queue.nonblocking), key=lambda queue: queue.handle
        )
