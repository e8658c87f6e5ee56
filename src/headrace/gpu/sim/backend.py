"""The backend of simulated devices: the additions to cuda.core, on simulated streams and memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headrace.gpu import array_libraries, sim
from headrace.gpu.backend import Backend, Callback, do_nothing
from headrace.gpu.callbacks import report_ignored, report_uncaught
from headrace.gpu.sim.capture import Capture, RecordedNode
from headrace.gpu.sim.graph import EventRecordNode, Graph, GraphDefinition
from headrace.gpu.sim.ipc import IPCBufferDescriptor
from headrace.gpu.sim.kernel import launch_host, model_of
from headrace.gpu.sim.machine import DEFAULT_TIME, DeviceState, Machine, current_machine, existing_machine
from headrace.gpu.sim.memory import (
    Buffer,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    copy_between,
    copy_of_launch,
)
from headrace.gpu.sim.memory_pool import find_in
from headrace.gpu.sim.objects import CUDAError
from headrace.gpu.sim.operations import REPORTS, Fence, Operation, SignalFence, StreamQueue, WorkReports
from headrace.gpu.sim.stream import Event, stream_of
from headrace.gpu.stream_handle import SupportsStream

if TYPE_CHECKING:
    from headrace.gpu.kernels import kernel


class SimBackend(Backend):
    """The devices of the current simulated machine."""

    name = "sim"
    models_time = True

    @property
    def description(self) -> str:  # type: ignore[override]
        """The kind of its time is that of the machine in use, or of the one that would be created."""
        machine = existing_machine()
        time = (os.environ.get("HEADRACE_SIM_TIME") or DEFAULT_TIME) if machine is None else machine.time
        return f"a simulated device, in {time} time"

    @property
    def names(self) -> Any:
        """The package of the simulation."""
        return sim

    @property
    def driver_version(self) -> tuple[int, int]:
        """The version of the simulated driver."""
        return current_machine().driver

    def remember_current(self) -> Callable[[], None]:
        """Return a function that restores this thread's current context."""
        machine = current_machine()
        context, view = machine.current_context, machine.current_view
        return do_nothing if context is None else lambda: machine.make_current(context, view)

    # -- streams ---------------------------------------------------------------------------------------

    def when_done(self, stream: SupportsStream, callback: Callback, event: Event | None) -> None:
        """Let the simulation call a function when a stream has reached an event."""
        event = stream_of(stream).record() if event is None else event
        device = event._context.device
        timeline = device.machine.timeline
        # An event of a capture cannot be waited for. On a real device the waiting thread gets the error.
        refused = event._refuse_capture("waited for")

        def notify() -> None:
            try:
                callback(refused or device.machine.failure)
            except Exception as error:  # KeyboardInterrupt belongs to the waiting thread, not to the callback
                report_uncaught(error)

        def call() -> None:
            if timeline.remove_stop_callback(token):
                device.call(notify)

        with timeline.lock:
            # A closed machine reaches no more points: the callback is then called with the error of that machine.
            token = timeline.add_stop_callback(lambda error: device.call(lambda: callback(error)))
            fence = event._fence
            if fence is None or fence.is_signaled:
                timeline.run_user_code(call)
            else:
                fence.on_signal(lambda: timeline.run_user_code(call))

    def launch_host(self, stream: SupportsStream, function: Callable[[], object]) -> None:
        """Let the simulation call a function between two pieces of a stream's work."""

        def call() -> None:
            try:
                function()
            except Exception as error:  # the thread that waits for the stream must receive Ctrl-C
                report_ignored(error, function)

        launch_host(stream, call)

    def may_submit(self) -> bool:
        """Return whether the simulation's lock is free: this thread may be the one that holds it."""
        return super().may_submit() and not current_machine().timeline.lock.locked()

    # -- memory and kernels ----------------------------------------------------------------------------

    def copy(self, stream: SupportsStream, target: Any, source: Any, size: int) -> None:
        """Copy bytes by the copy engine between the memories that they are in."""
        copy_between(stream_of(stream), target, source, size)

    def write_words(self, stream: SupportsStream, words: Iterable[tuple[int, int]]) -> None:
        """Write words, each like a fill."""
        on = stream_of(stream)
        for address, word in words:
            Buffer.from_handle(address, 4).fill(word.to_bytes(4, sys.byteorder), stream=on)

    def managed_memory(self) -> ManagedMemoryResource:
        """Return a memory resource of memory that both the host and devices can access."""
        return ManagedMemoryResource()

    def pin(self, memory: Any) -> bool:
        """Let the devices know memory of the host; they forget it when it goes."""
        LegacyPinnedMemoryResource.known[int(memory.ctypes.data)] = memory
        return True

    def unpin(self, memory: Any) -> None:
        """Let the devices forget memory of the host."""
        LegacyPinnedMemoryResource.known.pop(int(memory.ctypes.data), None)

    def is_pinned(self, memory: Any) -> bool:
        """Return whether an array lies in memory that the devices know."""
        return find_in(LegacyPinnedMemoryResource.known, int(memory.ctypes.data), memory.nbytes) is not None

    def buffer_descriptor(self, payload: bytes, size: int) -> IPCBufferDescriptor:
        """Return the descriptor of a buffer of another process."""
        return IPCBufferDescriptor._init(payload, size)

    def memory_left(self, device_id: int) -> int:
        """Return the bytes of device memory that are left."""
        device = current_machine().devices[device_id]
        return device.memory.capacity - sum(pool.in_use for pool in device.pools)

    def compile(self, kernel: kernel[...], device: sim.Device) -> sim.Kernel[...]:
        """Return the kernel's model."""
        return model_of(kernel)

    def array_module(self) -> Any:
        """Return our own module, by the Array API standard."""
        if not hasattr(np, "cumulative_sum"):
            raise ImportError(f"arrays on a simulated device need NumPy 2.1 or newer, not {np.__version__}")
        from headrace.gpu.sim import arrays  # when it is used: few programs need all of it

        array_libraries.use_library("simulated")
        return arrays

    # -- capture ---------------------------------------------------------------------------------------

    def is_capturing(self, stream: SupportsStream) -> bool:
        """Return whether a stream captures, even if an error has invalidated the capture."""
        queue = stream_of(stream)._queue
        with queue.timeline.lock:
            return queue.capture is not None

    def captured_nodes(self, stream: SupportsStream) -> int:
        """Return the number of nodes that a capture has recorded so far."""
        queue = stream_of(stream)._queue
        with queue.timeline.lock:
            return len(_capture(queue).nodes)

    def captured_frontier(self, stream: SupportsStream) -> dict[int, RecordedNode]:
        """Return the nodes that the next work of a capturing stream will depend on, by their handles."""
        queue = stream_of(stream)._queue
        with queue.timeline.lock:
            return {node.handle: node for node in _capture(queue).frontiers[queue]}

    def instantiate_with_records(
        self,
        definition: GraphDefinition,
        records: Iterable[tuple[Mapping[int, RecordedNode], Event]],
        options: Any,
    ) -> Graph:
        """Return an executable graph that also records events, each after the nodes given with it."""
        nodes = list(definition._records)
        for before, event in records:
            event._check()
            missing = [node for node in before.values() if node not in nodes]
            if missing:
                raise CUDAError(f"CUDA_ERROR_INVALID_VALUE: {missing[0]} is not a node of {definition!r}")
            pred, record = frozenset(before.values()), _RecordEvent(event)
            nodes.append(RecordedNode(event._context, 0, EventRecordNode, record, pred, (), ""))
        return GraphDefinition._create(definition._machine, nodes).instantiate(options)

    def record_copy(self, stream: SupportsStream, target: int, source: int, size: int) -> None:
        """Record a copy in a capture; on a simulated device, copy engines copy."""
        self.copy(stream, target, source, size)

    def record_addresses(self, stream: SupportsStream) -> _RecordedAddresses:
        """Return what records copies whose addresses are other ones in each launch."""
        return _RecordedAddresses()

    # -- time ------------------------------------------------------------------------------------------

    def clock(self) -> Machine:
        """Return the machine: it keeps the time of its devices."""
        return current_machine()

    def work_reports(self) -> WorkReports:
        """Return where its devices report their kernels and copies."""
        return REPORTS

    def in_virtual_time(self) -> AbstractContextManager[Any]:
        """Return a machine in virtual time that is otherwise the current one, if that is in another time."""
        current = current_machine()
        if current.is_virtual:
            return nullcontext()
        return Machine(current.devices[0].profile, devices=len(current.devices), driver=current.driver)


def _capture(queue: StreamQueue) -> Capture:
    if queue.capture is None:
        raise CUDAError("CUDA_ERROR_INVALID_VALUE: the stream does not capture")
    queue.capture.check()
    return queue.capture


class _RecordedAddresses:
    """The table of addresses; a launch finds its row there at once."""

    def __init__(self) -> None:
        self.number = 0
        self._table: Any = None

    def begin(self, stream: SupportsStream) -> None:
        """Do nothing."""

    def copy(self, stream: SupportsStream, place: int, inside: int, size: int, enters: bool) -> None:
        """Record a copy, by a copy engine."""
        queue = stream_of(stream)._queue
        copy_between(stream_of(stream), inside, inside, size)
        with queue.timeline.lock:
            (node,) = _capture(queue).frontiers[queue]
            node.operation = _CopyOutside(self, node.context.device, place, inside, size, enters)

    def open(self, count: int, rows: int, stream: SupportsStream) -> Any:
        """Return the table."""
        self._table = np.zeros((rows, count), np.uint64)
        return memoryview(self._table.reshape(-1).view(np.uint8))

    def close(self) -> None:
        """Free nothing: the table is memory of the host."""

    def address(self, place: int) -> int:
        """Return an address of the next launch."""
        return int(self._table[self.number % len(self._table), place])


@dataclass(slots=True, eq=False)
class _CopyOutside(Operation):
    """Copies between a fixed address and one that is another in each launch."""

    takes_time: ClassVar[bool] = True
    addresses: _RecordedAddresses
    device: DeviceState
    place: int
    inside: int
    size: int
    enters: bool

    def for_replay(self) -> Operation:
        """Return the copy of one launch."""
        outside = self.addresses.address(self.place)
        target, source = (self.inside, outside) if self.enters else (outside, self.inside)
        return copy_of_launch(self.device, target, source, self.size)


@dataclass(slots=True, eq=False)
class _RecordEvent(Operation):
    """Records an event; it is recorded, though not reached, from the launch of the graph on."""

    event: Event

    def for_replay(self) -> Operation:
        """Return the record of one launch."""
        self.event._check()
        fence = Fence(self.event._context.device.machine.timeline)
        self.event._set(fence)
        return SignalFence(fence)
