"""Player: the operator that plays the messages of a recording."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.core.condition import Condition
from headrace.core.condition_types import SchedulingStatusType
from headrace.core.metadata import MetadataPolicy
from headrace.core.operator import Operator
from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
from headrace.resources import MemoryStorageType, UnboundedAllocator
from headrace.tensor import DLDataType, Tensor, TensorMap, as_tensor, tree
from headrace.tensor.copies import copy
from headrace.tensor.libraries import library_named

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.ports import IOSpec
    from headrace.core.spec import OperatorSpec
    from headrace.observe.recordings.carriers import MessageSource, RecordedMessage


class Entry(NamedTuple):
    """A message that is to be played: when, at which output, and its number in the source."""

    time: int
    output: str
    number: int


@dataclass(slots=True, eq=False)
class Playback:
    """What the players of one run share.

    Attributes
    ----------
    source
        The messages.
    is_paced
        Whether messages are played at their recorded times of the run's clock.
    began
        When the first message was due.
    left
        What each player has not played yet, the next message last.
    """

    source: MessageSource
    is_paced: bool
    began: int | None = None
    left: list[list[Entry]] = field(default_factory=list)

    def go_on(self, now: int) -> None:
        """Move all messages that are still to come by the time that the next one is overdue, after a pause."""
        times = [entries[-1].time for entries in self.left if entries]
        if times and self.began is not None:
            self.began = max(self.began, now - min(times))


class Player(Operator):
    """Emits recorded messages, at their times or as fast as they are received.

    Parameters
    ----------
    outputs
        The outputs to declare, by name.
    playback, entries
        The source, and the messages of it to emit.
    replaced
        The operator in whose place it plays, whose resources it takes, so that its tensors are on the same slice.
    """

    parallel = True  # it reads a file

    def __init__(
        self,
        fragment: Composition,
        outputs: Mapping[str, IOSpec],
        playback: Playback,
        entries: Sequence[Entry],
        *,
        name: str,
        replaced: Operator | None = None,
    ) -> None:
        self._declared = outputs
        self._playback = playback
        self._left = list(entries)[::-1]
        self._next: RecordedMessage | None = None  # the next message, once it is loaded
        playback.left.append(self._left)
        self._allocators: dict[int, UnboundedAllocator] = {}
        resources = () if replaced is None else replaced.resources.values()
        super().__init__(fragment, _Due(fragment, playback, self._left), *resources, name=name)
        self.metadata_policy = MetadataPolicy.UPDATE
        if replaced is not None:
            self.max_in_flight = replaced.max_in_flight
            self.enable_metadata(replaced.is_metadata_enabled)
            pool = getattr(replaced, "cuda_stream_pool", None)
            if pool is not None:
                self.cuda_stream_pool = pool

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the outputs."""
        for name, port in self._declared.items():
            spec.output(name, size=port.size, policy=port.policy).conditions = list(port.conditions)

    def stop(self) -> None:
        """End, and release the memory that nobody uses."""
        self._playback.left.remove(self._left)
        if not self._playback.left:
            self._playback.source.close()
        for allocator in self._allocators.values():
            allocator.release()

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit the messages of one recorded compute."""
        message = self._load_next()
        compute = None if message is None else (message.port.operator, message.step)
        while message is not None and (message.port.operator, message.step) == compute:
            output = self._left.pop().output
            self._next = None
            self.metadata.clear()
            self.metadata.update(message.metadata or {})
            data = self._restore(
                message.data, context, partial(op_output.set_cuda_stream, output_port_name=output)
            )
            op_output.emit(data, output, acq_timestamp=message.acq_timestamp)
            message = self._load_next()

    def _load_next(self) -> RecordedMessage | None:
        """Return the next message; None if none is left."""
        if self._next is None and self._left:
            self._next = self._playback.source.load(self._left[-1].number)
        return self._next

    def _restore(self, data: Any, context: ExecutionContext, emit_on: Callable[[Any], None]) -> Any:
        """Return data with tensors in the memory they were recorded from, if there is such memory.

        `emit_on` is called with the stream, if there is one.
        """

        def restored(data: Any) -> Any:
            if type(data) is TensorCopy:
                return _as_recorded(data, self._restore_tensor(data, context, emit_on))
            if type(data) is TensorMapCopy:
                return TensorMap(
                    {name: self._restore_tensor(one, context, emit_on) for name, one in data.items()}
                )
            return data

        return tree.map(restored, data, lambda inside: type(inside) not in (dict, list, tuple))

    def _restore_tensor(
        self, copied: TensorCopy, context: ExecutionContext, emit_on: Callable[[Any], None]
    ) -> Tensor:
        storage, stream = MemoryStorageType.SYSTEM, None
        if copied.device.is_cuda and context.is_gpu_available:
            storage = MemoryStorageType.at(copied.device)
        if storage is MemoryStorageType.SYSTEM and copied.dl_dtype.typestr is not None:
            return as_tensor(np.asarray(copied))
        if storage is MemoryStorageType.DEVICE:
            stream = context.allocate_cuda_stream(f"{self.name}_stream")
            if stream is None:
                raise RuntimeError(
                    f"operator {self.name!r}: its stream pool has no stream left to play device memory on; give "
                    "the pool a larger max_size"
                )
            emit_on(stream)
        tensor = self._allocator(0 if stream is None else stream.stream.device.device_id).allocate_tensor(
            copied.shape, copied.dl_dtype, storage, stream=stream, operator=self.name
        )
        content = np.ascontiguousarray(copied.elements()).reshape(-1).view(np.uint8)
        if stream is None:
            ctypes.memmove(tensor.data, content.ctypes.data, content.size)
        else:  # as bytes, since NumPy does not know every type of elements
            description = (tensor.data, content.shape, (1,), DLDataType(1, 8), tensor.device, False)
            copy(Tensor._create(description, tensor.owner, None, None), content, stream)
        return tensor

    def _allocator(self, device_id: int) -> UnboundedAllocator:
        if device_id not in self._allocators:
            # Without a fragment: a frame that the application keeps would refer to the application through it, and
            # other libraries hide that from the garbage collector.
            self._allocators[device_id] = UnboundedAllocator(
                None, dev_id=device_id, name=f"{self.name}_allocator"
            )
        return self._allocators[device_id]


def _as_recorded(copied: TensorCopy, tensor: Tensor) -> Any:
    """Return a tensor as an array of the library that it was of, if it is installed."""
    if copied.library == "buffer" and hasattr(tensor.owner, "buffer"):
        return tensor.owner.buffer
    try:
        return library_named(copied.library).from_tensor(tensor)
    except ImportError:
        return tensor


class _Due(Condition):
    """Lets a player run from the time of its next message on."""

    polled = False

    def __init__(self, fragment: Composition, playback: Playback, left: list[Entry]) -> None:
        super().__init__(fragment, name="due")
        self._playback = playback
        self._left = left

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY from the time of the next message on, and NEVER when none is left."""
        playback = self._playback
        if playback.began is None:
            playback.began = timestamp
        if not self._left:
            return SchedulingStatusType.NEVER, None
        if not playback.is_paced:
            return SchedulingStatusType.READY, None
        due = playback.began + self._left[-1].time
        return (SchedulingStatusType.READY if timestamp >= due else SchedulingStatusType.WAIT_TIME), due

    def on_resume(self, timestamp: int) -> None:
        """Go on with the next message as if no time had passed."""
        self._playback.go_on(timestamp)
