"""Block: memory of an allocator, and the work that its next user comes after."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from headrace import gpu
from headrace._runtime import ManagedStream, create_event, default_stream_of, is_default
from headrace.gpu.allocation import StreamUser

Key = tuple[int, int]
"""What tells a stream from others: its device and its handle."""

SEVERAL: Key = (-1, -1)
"""The key of no stream: it stands for several."""


class StreamUse:
    """A stream that works on a block, as the program named it."""

    __slots__ = ("_streams", "key", "managed")

    def __init__(self, managed: ManagedStream) -> None:
        self.managed = managed
        self.key = key_of(managed)
        self._streams = (managed,)

    def streams(self) -> Iterable[ManagedStream]:
        """Return the stream."""
        return self._streams

    @classmethod
    def of(cls, stream: Any, device_id: int) -> StreamUse:
        """Return the use of a stream: a handle, or an object with ``__cuda_stream__``.

        The handle of a default stream does not say whose it is; then it is that of the given device.
        """
        handle = stream if isinstance(stream, int) else gpu.StreamHandle(stream)
        if is_default(handle):
            own = getattr(stream, "device_id", None)
            return cls(default_stream_of(device_id if own is None else own))
        found: Any = getattr(handle, "stream", None)
        if not isinstance(found, gpu.Stream):  # those of CuPy and PyTorch record events of their own kinds
            found = gpu.Stream.from_handle(int(handle))
        device_id = found.device.device_id
        return cls(ManagedStream(found, device_id, partial(create_event, device_id)))


class Block:
    """A block of memory.

    Attributes
    ----------
    waits
        Where it is idle, the streams that may still work on it, with an event after that work.
    user
        Where it is idle, the only stream that may still work on it; None if there is none, `SEVERAL` if there are
        several.
    """

    __slots__ = ("_spare", "address", "buffer", "size", "user", "waits")

    def __init__(self, buffer: Any, size: int) -> None:
        self.buffer = buffer
        self.address = int(buffer.handle)
        self.size = size
        self.waits: list[tuple[Key, Any]] = []
        self.user: Key | None = None
        # Events that nobody needs any more, by device. Recording one again does not disturb a stream that was told
        # to wait for it.
        self._spare: dict[int, list[Any]] = {}

    def record(self, users: Iterable[StreamUser]) -> None:
        """Record an event on each stream of its users, after their work on it."""
        seen: list[Key] = []
        for user in tuple(users):
            for managed in user.streams():
                key = key_of(managed)
                if key in seen or not _is_open(managed):
                    continue
                seen.append(key)
                spare = self._spare.get(managed.device_id)
                try:
                    event = spare.pop() if spare else managed.create_event()
                    managed.record(event)
                except Exception:  # in a finalizer nobody would hear of it; the next user does
                    event = _Unrecorded(managed)
                self.waits.append((key, event))
                self.user = key if self.user is None or self.user == key else SEVERAL

    def is_complete(self) -> bool:
        """Return whether the device is done with it."""
        return all(_is_done(event) for _, event in self.waits)

    @property
    def has_events(self) -> bool:
        """Whether a stream can be ordered after all work on it, without a wait of the host."""
        return all(type(event) is not _Unrecorded for _, event in self.waits)

    def order(self, managed: ManagedStream | None) -> None:
        """Order a stream, or where it is None the host, after all work on it."""
        own = None if managed is None else key_of(managed)
        for key, event in self.waits:
            if managed is None or type(event) is _Unrecorded:
                _synchronize(event)
            elif key != own:
                managed.wait(event)
        # Only now: if a wait fails, the next user has to wait for all of them.
        waits, self.waits, self.user = self.waits, [], None
        for key, event in waits:
            if type(event) is not _Unrecorded:
                self._spare.setdefault(key[0], []).append(event)

    def memory_bytes(self) -> Any:
        """Return its bytes, where the device is simulated or the memory is the host's."""
        return self.buffer.__simulated_memory__()

    def view(self, size: int, owner: object) -> Any:
        """Return a buffer on its first bytes that keeps its owner and frees nothing."""
        buffer: Any = gpu.Buffer
        return buffer.from_handle(self.address, size, owner=owner)


class _Unrecorded:
    """Stands for an event that could not be recorded: the host waits for the stream instead.

    The run that ends on another thread may close the stream at any moment, after its work.
    """

    __slots__ = ("_managed",)

    def __init__(self, managed: ManagedStream) -> None:
        self._managed = managed

    @property
    def is_done(self) -> bool:
        return not _is_open(self._managed)

    def sync(self) -> None:
        try:
            with gpu.on_device(self._managed.device_id):
                self._managed.stream.sync()
        except Exception:
            if not self.is_done:
                raise


def key_of(managed: ManagedStream) -> Key:
    """Return the key of a stream; the default streams of all devices have one handle."""
    handle = int(managed.handle)
    return (managed.device_id, handle if handle > 1 else 0)  # `is_default`, without the call


def _is_open(managed: ManagedStream) -> bool:
    """Return whether a stream still exists: at the end of a run its streams are closed, after their work."""
    if managed.handle <= 1:  # `is_default`, without the call
        return True
    try:
        return bool(int(managed.stream.handle))
    except Exception:  # it has no handle any more
        return False


def _is_done(event: Any) -> bool:
    try:
        return bool(event.is_done)
    except Exception:  # its device is gone
        return True


def _synchronize(event: Any) -> None:
    if not _is_done(event):
        event.sync()
