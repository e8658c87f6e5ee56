"""Frames that come from another device: copies of them on the device of the operator that receives them.

An operator works on the device of its streams. A tensor, or an array of a library, that was made on another device
is copied when it is received, also inside containers (`tensor.tree`). The copy is ordered on the device: the
operator's own stream waits for the work behind the message, then copies. The message that the operator gets comes
after the copy. The original stays until the operator's streams have passed the compute, as everything does that an
operator received (`lifetimes`). Other receivers get the original, or copies of their own.

If one device cannot access the memory of the other, the frame goes through pinned memory of the host. The device
that has the frame copies it there on a stream of its own. The operator's stream waits for that and copies it on.

Raw buffers (`gpu.Buffer`) are not copied. A program that handles them works on the streams that it received, on
whatever device these are.

Programs with one device do not come here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import gpu
from headrace._runtime.messages.envelope import Envelope, copy_envelope, make_envelope, wait_for
from headrace._runtime.messages.queue import Batch
from headrace._runtime.streams.owners import add_owners
from headrace.gpu.backend import active
from headrace.tensor import Tensor, as_tensor
from headrace.tensor.copies import HostMemory
from headrace.tensor.description import compute_layout
from headrace.tensor.libraries import library_of
from headrace.tensor.tree import leaves
from headrace.tensor.tree import map as map_tree
from headrace.tensor.types import DLDevice, DLDeviceType

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import ManagedStream
    from headrace._runtime.streams.node_streams import NodeStreams

_log = logging.getLogger("headrace.streams")


class OtherDevices:
    """Copies what an operator receives from other devices.

    Parameters
    ----------
    streams
        The streams of the operator.
    """

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams
        self._device_id = streams.device_id
        # Of devices whose memory this one cannot access: the stream on which each copies to the host.
        self._leaving: dict[int, gpu.StreamHandle] = {}
        self._host_memory = HostMemory()
        self._kept: list[Any] = []

    def bring(self, item: Any) -> Any:
        """Return a received item with everything that is on other devices copied to the operator's."""
        if type(item) is Batch:
            return Batch([self.bring(part) for part in item])
        message = item if type(item) is Envelope else None
        data = item if message is None else message.data
        if not any(_is_on_other(leaf, self._device_id) for leaf in leaves(data)):
            return item
        streams = self._streams
        own = streams.open()
        assert streams.lifetimes is not None
        # The original stays until the operator's streams have passed this compute, as everything received does.
        self._kept = streams.lifetimes.held.unsorted
        add_owners(data, self._kept)
        if message is not None:
            wait_for(message, own)
        with gpu.on_device(own.device_id):
            brought = map_tree(lambda leaf: self._copy(leaf, own), data)
        copied = make_envelope(brought) if message is None else copy_envelope(message, brought)
        # After the copies, and so after all that the message came after.
        fences = streams.fences_on(own)
        copied.event = fences.insert()
        copied.fences, copied.number = fences, fences.last
        copied.set_more_fences(())
        return copied

    def _copy(self, leaf: Any, own: ManagedStream) -> Any:
        if not _is_on_other(leaf, self._device_id):
            return leaf
        if type(leaf) is Tensor:
            return self._copy_tensor(leaf, own)
        return library_of(type(leaf)).from_tensor(self._copy_tensor(as_tensor(leaf), own))

    def _copy_tensor(self, tensor: Tensor, own: ManagedStream) -> Tensor:
        """Return a copy in the order of a stream, and of the work behind the tensor."""
        work = tensor._pending_work
        if work is not None:
            work.order(own.handle)
        _, first, end = compute_layout(tensor.shape, tensor.strides, 1, tensor.itemsize)
        size = end - first if tensor.size else 0
        device = gpu.Device(own.device_id)
        buffer = device.allocate(max(size, 1), stream=own.stream)
        target = int(buffer.handle)
        if size:
            read, peer = tensor.data + first, tensor.device.device_id
            if device.can_access_peer(peer):
                active().copy_from_peer(own.handle, target, own.device_id, read, peer, size)
            else:
                self._kept.append(self._copy_by_host(target, read, peer, size, own))
        where = DLDevice(DLDeviceType.CUDA, own.device_id)
        description = (target - first, tensor.shape, tensor.strides, tensor.dl_dtype, where, False)
        return Tensor._at(description, buffer)

    def _copy_by_host(self, target: int, source: int, peer: int, size: int, own: ManagedStream) -> Any:
        """Copy memory of another device through the host; return the memory in between, which has to be kept."""
        leaving = self._leaving.get(peer)
        if leaving is None:
            with gpu.on_device(peer):
                leaving = self._leaving[peer] = gpu.StreamHandle(gpu.Device(peer).create_stream())
            _log.warning(
                "operator %r: device %d cannot access the memory of device %d: frames are copied through the host",
                self._streams.node.name,
                own.device_id,
                peer,
            )
        between = self._host_memory.array((size,), np.dtype(np.uint8))
        host = int(between.ctypes.data)
        ready = own.now()  # the stream has been ordered after the work behind the frame
        with gpu.on_device(peer):
            leaving.stream.wait(ready)
            active().copy(leaving, host, source, size)
            done = leaving.stream.record()
        own.wait(done)
        active().copy(own.handle, target, host, size)
        return between


def _is_on_other(leaf: Any, device_id: int) -> bool:
    """Return whether a leaf of a message is an array in the memory of another device."""
    kind = type(leaf)
    if kind is Tensor:
        device = leaf.device
    elif not hasattr(kind, "__dlpack_device__") or isinstance(leaf, gpu.Buffer):
        return False
    else:
        try:
            device = DLDevice(*map(int, leaf.__dlpack_device__()))
        except Exception:  # a sparse tensor, for example, has none
            return False
    return bool(device.device_type == DLDeviceType.CUDA and device.device_id != device_id)
