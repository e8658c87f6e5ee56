"""Snapshots: the contents of messages as they were when they were emitted or received.

A logger or a recorder looks at a message later, on a thread of its own. By then the operators that have the message
may have changed it. So its contents are copied at once:

- Host memory is copied on the computing thread. If the message comes with unfinished work of the device, which may
  still write that memory, it is copied when that work is complete.
- Device memory is copied on the device, on a stream that belongs to this use and to one operator. The stream waits
  for the fences of the message. The message then gets one more fence, and the stream it was emitted on waits for
  it, too: whoever writes to the frame next writes after the copy. So a pipeline waits for a copy within the device
  and never for the way to the host, which is a second copy on the same stream.

The frame is kept until both copies are complete. The host waits for nothing, unless it is asked to.

Decided against: copying on the operator's own stream, which would delay its work by the way to the host; and
reading the frame itself later, which is wrong if an operator uses its memory again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import gpu
from headrace._runtime import Envelope, Fences, ManagedStream, create_event
from headrace.tensor import (
    DLDataType,
    DLDevice,
    DLDeviceType,
    Tensor,
    TensorError,
    TensorMap,
    as_tensor,
    stream_of,
    tree,
)
from headrace.tensor.conversion import is_array
from headrace.tensor.copies import HostMemory, copy
from headrace.tensor.description import compute_layout
from headrace.tensor.tensor import Described

if TYPE_CHECKING:
    from headrace.observe.events.records import OperatorInfo

Check: TypeAlias = Callable[[Any], Any]
_BYTE = DLDataType(1, 8)


def _described_by(name: str, what: str) -> Any:
    """Return a property of a copy that is an attribute of its array."""
    return property(lambda self: getattr(self.owner, name), doc=what)


@dataclass(slots=True, eq=False, repr=False)
class TensorCopy(Described):
    """A copy of a tensor's contents in host memory, with the tensor's description.

    It has the attributes of a :class:`headrace.Tensor` that describe it, and NumPy reads it (``np.asarray``).

    Attributes
    ----------
    owner
        The array that holds the copy. Its elements are bytes of their size, for types that NumPy does not know.
    dl_dtype
        The element type of the tensor.
    device
        Where the tensor was.
    library
        The library of the array: ``"headrace"`` for a Tensor, else the name of its module.
    """

    owner: np.ndarray
    dl_dtype: DLDataType
    device: DLDevice
    library: str

    shape = _described_by("shape", "The shape of the tensor.")
    strides = _described_by("strides", "The strides of the copy.")

    def elements(self) -> np.ndarray:
        """Return the elements as bytes of their size, for types that NumPy does not know."""
        return self.owner

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.owner.view(self.dtype)
        return np.array(array, dtype=dtype) if copy else np.asarray(array, dtype=dtype)

    def __repr__(self) -> str:
        return f"TensorCopy(shape={self.shape}, dtype={self.dl_dtype.name}, device={self.device})"


class TensorMapCopy(dict[str, TensorCopy]):
    """Copies of the tensors of a TensorMap, by name."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class Snapshot:
    """The contents of a message; they may be read once `is_ready`.

    Attributes
    ----------
    data
        The message, with a :class:`TensorCopy` in place of each tensor. Arrays of NumPy are copies, as are tuples,
        lists and dicts. Other objects are the message's own.
    acq_timestamp, metadata
        What the message carries; the metadata is copied, too.
    nbytes
        The number of bytes that were copied.
    error
        The error of the device, if it failed.
    kept
        The message, until `complete`.
    later
        Arrays to copy when the work of the device is complete: each to and from which array.
    streams
        The streams that have not passed the copies yet.
    """

    data: Any = None
    acq_timestamp: int | None = None
    metadata: dict[str, Any] | None = None
    nbytes: int = 0
    error: BaseException | None = None
    kept: Any = None
    later: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    streams: list[Any] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        """Whether the copies are complete, except for the ones that `complete` makes."""
        return not self.streams

    def complete(self) -> None:
        """Make the copies that had to wait for the device; the snapshot is ready."""
        for target, source in self.later:
            np.copyto(target, source)
        self.later = []
        self.kept = None


class Snapshots:
    """Takes snapshots of the messages of one run.

    Messages of one operator are taken by one thread at a time, messages of several operators at once.

    Parameters
    ----------
    check
        Called with each object of a message that is no container, or its copy; returns what takes its place.
    changed
        Notified when a snapshot becomes ready.
    """

    def __init__(self, check: Check | None = None, changed: threading.Condition | None = None) -> None:
        self._check = check
        self._changed = changed or threading.Condition()
        self._memory = HostMemory()
        self._readers: dict[tuple[OperatorInfo, int], _Reader] = {}

    def take(self, operator: OperatorInfo, item: Any, is_emitted: bool) -> Snapshot:
        """Return a snapshot of a message that an operator emits or receives now, on the thread that computes."""
        if type(item) is not Envelope and type(item) in _IMMUTABLE:
            return Snapshot(item if self._check is None else self._check(item))
        copying = _Copying(self, operator, item, is_emitted)
        try:
            copying.run()
        finally:
            copying.finish()  # also if an object cannot be recorded: the device is reading the frame
        return copying.snapshot

    def wait(self, snapshot: Snapshot) -> None:
        """Wait until a snapshot is ready."""
        for stream in tuple(snapshot.streams):
            error: BaseException | None = None
            try:
                stream.sync()
            except Exception as failure:
                error = failure
            # Not left to the callback: simulated time may stand still from here on.
            self.passed(snapshot, stream, error)

    def close(self) -> None:
        """End: the run is over, and its work is complete."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def passed(self, snapshot: Snapshot, stream: Any, error: BaseException | None) -> None:
        """Note that a stream has passed the copies of a snapshot."""
        with self._changed:
            if stream in snapshot.streams:
                snapshot.streams.remove(stream)
                snapshot.error = snapshot.error or error
                self._changed.notify_all()

    def reader(self, operator: OperatorInfo, device_id: int) -> _Reader:
        """Return the stream on which the frames of an operator are read on a device."""
        reader = self._readers.get((operator, device_id))
        if reader is None:
            reader = self._readers[operator, device_id] = _Reader(operator, device_id)
        return reader


class _Reader:
    """The stream on which the frames of one operator are read, on one device."""

    def __init__(self, operator: OperatorInfo, device_id: int) -> None:
        self.device_id = device_id
        with gpu.on_device(device_id):
            self.stream = gpu.Device(device_id).create_stream()
        self.managed = ManagedStream(self.stream, device_id, partial(create_event, device_id))
        self.fences = Fences(self.managed)
        operator.node.engine.streams.manage(self.managed)  # the run waits for its work

    def close(self) -> None:
        self.fences.close()
        with gpu.on_device(self.device_id):
            self.stream.close()


class _Copying:
    """The copying of one message."""

    def __init__(self, snapshots: Snapshots, operator: OperatorInfo, item: Any, is_emitted: bool) -> None:
        self._snapshots, self._operator, self._is_emitted = snapshots, operator, is_emitted
        self._message = item if type(item) is Envelope else None
        self.snapshot = Snapshot(item, kept=item)
        self._readers: dict[int, _Reader] = {}
        # The copies within the device that are to come to the host: from a buffer, for a tensor.
        self._staged: list[tuple[_Reader, Any, Callable[[np.ndarray], None]]] = []
        self._is_read = False
        # The streams of work that the message does not carry.
        self._streams: list[int] = []

    def run(self) -> None:
        """Copy what the host can read, and start to copy the rest within the device."""
        snapshot, message = self.snapshot, self._message
        if message is None:
            snapshot.data = self._copy(snapshot.data)
            return
        snapshot.data = self._copy(message.data)
        snapshot.acq_timestamp = message.acq_timestamp
        if message.metadata is not None:
            snapshot.metadata = self._copy(dict(message.metadata))

    def finish(self) -> None:
        """Order whoever works on the frame next after the copies, and start the way to the host."""
        if self._is_read:
            for reader in self._readers.values():
                self._hold_back(reader)
        for reader, buffer, fetched in self._staged:
            fetched(self._snapshots._memory.copy(_as_bytes(buffer), reader.managed.handle))
            buffer.close(reader.stream)
        streams = [reader.stream for reader in self._readers.values()]
        self.snapshot.streams = list(streams)
        for stream in streams:
            gpu.when_done(stream, partial(self._snapshots.passed, self.snapshot, stream))

    def _copy(self, data: Any) -> Any:
        return tree.map(self._copy_checked, data, lambda inside: type(inside) not in _CONTAINERS)

    def _copy_checked(self, data: Any) -> Any:
        copied = data if type(data) in _IMMUTABLE else self._copy_leaf(data)
        check = self._snapshots._check
        return copied if check is None else check(copied)

    def _copy_leaf(self, data: Any) -> Any:
        kind = type(data)
        if kind is Tensor:
            return self._copy_tensor(data, "headrace")
        if kind is TensorMap:
            return TensorMapCopy({name: self._copy_tensor(one, "headrace") for name, one in data.items()})
        if isinstance(data, np.ndarray):
            return self._copy_host(data)
        if isinstance(data, gpu.Buffer):
            return self._copy_tensor(_as_bytes(data), "buffer")
        if is_array(data):
            try:
                return self._copy_tensor(as_tensor(data), kind.__module__.partition(".")[0])
            except TensorError:
                return data
        return data

    def _copy_host(self, array: np.ndarray) -> np.ndarray:
        self.snapshot.nbytes += array.nbytes
        message = self._message
        if message is None or message.is_done or array.dtype.hasobject:
            return array.copy(order="K")
        target = np.empty_like(array)
        self.snapshot.later.append((target, array))
        self._read_on(int(message.all_fences()[0][0].stream.device_id))
        return target

    def _copy_tensor(self, tensor: Tensor, library: str) -> TensorCopy:
        element, device = tensor.dl_dtype, tensor.device
        kind = np.dtype(f"V{element.itemsize}")
        if not tensor.size:
            return TensorCopy(np.empty(tensor.shape, kind), element, device, library)
        # All bytes from the first to the last, gaps included.
        _, first, end = compute_layout(tensor.shape, tensor.strides, 1, element.itemsize)
        source = _bytes_at(tensor.data + first, end - first, device, tensor.owner)
        copied = TensorCopy(np.empty(0, kind), element, device, library)

        def fetched(memory: np.ndarray) -> None:
            copied.owner = np.ndarray(tensor.shape, kind, memory, -first, tensor.strides)

        if device.is_cuda:
            self._copy_from_device(tensor, source, fetched)
        elif device.is_host:
            fetched(self._copy_host(np.asarray(source)))
        else:
            raise TensorError(f"{tensor!r} is on a device that cannot be read")
        return copied

    def _copy_from_device(
        self, tensor: Tensor, source: Tensor, fetched: Callable[[np.ndarray], None]
    ) -> None:
        """Copy within the device, so that nobody waits for the way to the host."""
        self.snapshot.nbytes += source.nbytes
        self._is_read = True
        reader = self._read_on(
            tensor.device.device_id if tensor.device.device_type == DLDeviceType.CUDA else 0
        )
        handle, pending = reader.managed.handle, tensor._pending_work
        if pending is not None and (self._message is None or self._message.work is None):
            pending.order(handle)
            self._streams.append(pending.stream_handle)
        with gpu.on_device(reader.device_id):
            try:
                buffer = gpu.Device(reader.device_id).allocate(source.nbytes, stream=reader.stream)
            except Exception:  # no memory is left: the frame itself is read, which takes longer
                fetched(self._snapshots._memory.copy(source, handle))
                return
        copy(_as_bytes(buffer), source, handle)
        self._staged.append((reader, buffer, fetched))

    def _read_on(self, device_id: int) -> _Reader:
        """Return the reader on a device, ordered after the fences of the message."""
        reader = self._readers.get(device_id)
        if reader is None:
            reader = self._readers[device_id] = self._snapshots.reader(self._operator, device_id)
            if self._message is not None:
                for fences, number, event in self._message.all_fences():
                    if number > fences.completed:
                        reader.managed.wait(event)
        return reader

    def _hold_back(self, reader: _Reader) -> None:
        """Make later work on the frame wait for the copies so far."""
        reader.fences.update(reader.fences.completed + 1)
        event = reader.fences.insert()
        for handle in self._streams:
            stream_of(handle).wait(event)
        message = self._message
        if message is None:
            return
        for fences, _, _ in message.all_fences():
            managed = fences.stream
            if self._is_emitted and fences is message.fences:
                managed.wait(event)  # the operator's own stream, whose timer leaves out the wait
            else:
                managed.stream.wait(event)
        message.set_more_fences((*(message.more_fences or ()), (reader.fences, reader.fences.last, event)))


def _as_bytes(buffer: Any) -> Tensor:
    """Describe a buffer of the device as a tensor of bytes."""
    device_id = int(buffer.device_id)
    device = DLDevice(DLDeviceType.CUDA, device_id) if device_id >= 0 else DLDevice(DLDeviceType.CUDA_HOST, 0)
    return _bytes_at(int(buffer.handle), int(buffer.size), device, buffer)


def _bytes_at(address: int, size: int, device: DLDevice, owner: Any) -> Tensor:
    """Describe memory as a tensor of bytes."""
    return Tensor._create((address, (size,), (1,), _BYTE, device, False), owner, None, None)


_IMMUTABLE = frozenset(
    (int, float, complex, bool, str, bytes, range, slice, type(None), type(Ellipsis), type(NotImplemented))
)
_CONTAINERS = frozenset((tuple, list, dict))
