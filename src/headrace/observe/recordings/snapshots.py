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
_NO_BYTES = np.empty(0, np.uint8)


@dataclass(slots=True, eq=False, repr=False)
class TensorCopy(Described):
    """A copy of a tensor's contents in host memory, with the tensor's description.

    It has the attributes of a :class:`headrace.Tensor` that describe it, and NumPy reads it (``np.asarray``).

    Attributes
    ----------
    shape, strides, dl_dtype
        The shape and element type of the tensor, and the strides of the copy.
    device
        Where the tensor was.
    library
        The library of the array: ``"headrace"`` for a Tensor, else the name of its module.
    """

    _memory: np.ndarray
    _offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dl_dtype: DLDataType
    device: DLDevice
    library: str

    @property
    def owner(self) -> np.ndarray:
        """The array that holds the copy."""
        return self._memory

    def elements(self) -> np.ndarray:
        """Return the elements as bytes of their size, for types that NumPy does not know."""
        return self._view(np.dtype(f"V{self.dl_dtype.itemsize}"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._view(self.dtype)
        return np.array(array, dtype=dtype) if copy else np.asarray(array, dtype=dtype)

    def __repr__(self) -> str:
        return f"TensorCopy(shape={self.shape}, dtype={self.dl_dtype.name}, device={self.device})"

    def _view(self, dtype: np.dtype[Any]) -> np.ndarray:
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        return np.ndarray(self.shape, dtype, self._memory, self._offset, self.strides)


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
    """

    data: Any = None
    acq_timestamp: int | None = None
    metadata: dict[str, Any] | None = None
    nbytes: int = 0
    error: BaseException | None = None
    _kept: Any = None
    _later: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    _streams: list[Any] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tell: Callable[[], None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the copies are complete, except for the ones that `complete` makes."""
        return not self._streams

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Call a function when the snapshot is ready, at once if it is."""
        with self._lock:
            self._tell = tell
            is_ready = self.is_ready
        if is_ready:
            tell()

    def complete(self) -> None:
        """Make the copies that had to wait for the device; the snapshot is ready."""
        for target, source in self._later:
            np.copyto(target, source)
        self._later = []
        self._kept = None

    def wait(self) -> None:
        """Wait until the snapshot is ready."""
        for stream in tuple(self._streams):
            error: BaseException | None = None
            try:
                stream.sync()
            except Exception as failure:
                error = failure
            # Not left to the callback: simulated time may stand still from here on.
            self._pass(stream, error)

    def _begin(self, kept: Any, streams: list[Any]) -> None:
        """Keep an object until streams have passed what they have to do now."""
        self._kept = kept
        self._streams = list(streams)
        for stream in streams:
            gpu.when_done(stream, partial(self._pass, stream))

    def _pass(self, stream: Any, error: BaseException | None) -> None:
        with self._lock:
            if stream not in self._streams:
                return
            self._streams.remove(stream)
            self.error = self.error or error
            tell = self._tell if self.is_ready else None
        if tell is not None:
            tell()


class Snapshots:
    """Takes snapshots of the messages of one run.

    Messages of one operator are taken by one thread at a time, messages of several operators at once.

    Parameters
    ----------
    check
        Called with each object of a message that is no container, or its copy; returns what takes its place.
    """

    def __init__(self, check: Check | None = None) -> None:
        self._check = check
        self._lock = threading.Lock()
        self._memory = HostMemory()
        self._readers: dict[tuple[OperatorInfo, int], _Reader] = {}

    def take(self, operator: OperatorInfo, item: Any, is_emitted: bool) -> Snapshot:
        """Return a snapshot of a message that an operator emits or receives now, on the thread that computes."""
        if type(item) is not Envelope and type(item) in _IMMUTABLE:
            return Snapshot(item if self._check is None else self._check(item))
        return _Copying(self, operator, item, is_emitted).run()

    def close(self) -> None:
        """End: the run is over, and its work is complete."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _reader(self, operator: OperatorInfo, device_id: int) -> _Reader:
        reader = self._readers.get((operator, device_id))
        if reader is None:
            with self._lock:
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
        self._snapshots = snapshots
        self._operator = operator
        self._item = item
        self._is_emitted = is_emitted
        self._message = item if type(item) is Envelope else None
        self._snapshot = Snapshot()
        self._readers: dict[int, _Reader] = {}
        # The copies within the device that are to come to the host.
        self._fetches: list[tuple[_Reader, TensorCopy, Tensor]] = []
        self._is_read = False
        self._staged: list[tuple[_Reader, Any]] = []
        # The streams of work that the message does not carry.
        self._streams: list[int] = []

    def run(self) -> Snapshot:
        snapshot, message = self._snapshot, self._message
        try:
            snapshot.data = self._copy(self._item if message is None else message.data)
            if message is not None and message.details is not None:
                snapshot.acq_timestamp = message.acq_timestamp
                metadata = message.metadata
                snapshot.metadata = None if metadata is None else self._copy(dict(metadata))
        finally:
            if self._readers:  # also if an object cannot be recorded: the device is reading the frame
                self._finish()
            for reader, buffer in self._staged:
                buffer.close(reader.stream)
        return snapshot

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
            return TensorMapCopy(
                {name: self._copy_tensor(tensor, "headrace") for name, tensor in data.items()}
            )
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
        self._snapshot.nbytes += array.nbytes
        message = self._message
        if message is None or message.is_done or array.dtype.hasobject:
            return array.copy(order="K")
        target = np.empty_like(array)
        self._snapshot._later.append((target, array))
        self._read_on(int(message.all_fences()[0][0].stream.device_id))
        return target

    def _copy_tensor(self, tensor: Tensor, library: str) -> TensorCopy:
        shape, strides, element = tensor.shape, tensor.strides, tensor.dl_dtype
        if not tensor.size:
            return TensorCopy(_NO_BYTES, 0, shape, strides, element, tensor.device, library)
        _, first, end = compute_layout(shape, strides, 1, element.itemsize)
        size = end - first
        self._snapshot.nbytes += size
        if not tensor.device.is_cuda:
            if not tensor.device.is_host:
                raise TensorError(f"{tensor!r} is on a device that cannot be read")
            memory = self._copy_host(np.asarray(_Bytes(tensor, tensor.data + first, size)))
            return TensorCopy(memory, -first, shape, strides, element, tensor.device, library)
        reader = self._read_on(_device_of(tensor))
        if tensor._pending_work is not None and (self._message is None or self._message.work is None):
            tensor._pending_work.order(reader.managed.handle)
            self._streams.append(tensor._pending_work.stream_handle)
        source = _bytes_at(tensor.data + first, size, tensor.device, tensor.owner)
        copied = TensorCopy(_NO_BYTES, -first, shape, strides, element, tensor.device, library)
        staged = self._stage(reader, source)
        if staged is None:  # the frame itself is read, which takes longer
            copied._memory = self._snapshots._memory.copy(source, reader.managed.handle)
        else:
            self._fetches.append((reader, copied, staged))
        self._is_read = True
        return copied

    def _stage(self, reader: _Reader, source: Tensor) -> Tensor | None:
        """Copy within the device, so that nobody waits for the way to the host; None if it has no memory left."""
        with gpu.on_device(reader.device_id):
            try:
                buffer = gpu.Device(reader.device_id).allocate(source.nbytes, stream=reader.stream)
            except Exception:
                return None
        self._staged.append((reader, buffer))
        device = DLDevice(DLDeviceType.CUDA, reader.device_id)
        staged = _bytes_at(int(buffer.handle), source.nbytes, device, buffer)
        copy(staged, source, reader.managed.handle)
        return staged

    def _read_on(self, device_id: int) -> _Reader:
        """Return the reader on a device, ordered after the fences of the message."""
        reader = self._readers.get(device_id)
        if reader is None:
            reader = self._readers[device_id] = self._snapshots._reader(self._operator, device_id)
            if self._message is not None:
                for fences, number, event in self._message.all_fences():
                    if number > fences.completed:
                        reader.managed.wait(event)
        return reader

    def _finish(self) -> None:
        """Order whoever works on the frame next after the copies, and start the way to the host."""
        if self._is_read:
            for reader in self._readers.values():
                self._hold_back(reader)
        for reader, copied, staged in self._fetches:
            copied._memory = self._snapshots._memory.copy(staged, reader.managed.handle)
        self._snapshot._begin(self._item, [reader.stream for reader in self._readers.values()])

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
        message.more_fences = (*(message.more_fences or ()), (reader.fences, reader.fences.last, event))


class _Bytes:
    """Host memory of a tensor as NumPy sees it; keeps the tensor."""

    def __init__(self, tensor: Tensor, address: int, size: int) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "data": (address, True),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def _as_bytes(buffer: Any) -> Tensor:
    """Describe a buffer of the device as a tensor of bytes."""
    device_id = int(buffer.device_id)
    device = DLDevice(DLDeviceType.CUDA, device_id) if device_id >= 0 else DLDevice(DLDeviceType.CUDA_HOST, 0)
    return _bytes_at(int(buffer.handle), int(buffer.size), device, buffer)


def _bytes_at(address: int, size: int, device: DLDevice, owner: Any) -> Tensor:
    """Describe memory as a tensor of bytes."""
    return Tensor._create((address, (size,), (1,), _BYTE, device, False), owner, None, None)


def _device_of(tensor: Tensor) -> int:
    return tensor.device.device_id if tensor.device.device_type == DLDeviceType.CUDA else 0


_IMMUTABLE = frozenset(
    (int, float, complex, bool, str, bytes, range, slice, type(None), type(Ellipsis), type(NotImplemented))
)
_CONTAINERS = frozenset((tuple, list, dict))
