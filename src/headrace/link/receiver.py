"""Receiver: the end that a flow's messages arrive at.

A received frame belongs to its receiver, who may write to it and keep it. Its memory goes back to the sender with
the last reference to any array on it, on whatever thread that happens, also in the garbage collector, which may run
while this thread holds the lock. So a finalizer only notes what came back and sends it if the lock is free. Whoever
holds the lock sends it afterwards.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from headrace import waits
from headrace.gpu.backend import active
from headrace.link.carrier import Buffer, Carrier
from headrace.link.codec import decode
from headrace.link.device import DeviceSegment, ReceivedFrames, Uploads
from headrace.link.end import COLLECT, End
from headrace.link.loop import LinkLoop, default_loop
from headrace.link.memory import Bytes, Lease, Segment
from headrace.link.protocol import IN_BULK, Frame, ReceivingEnd, Sample, Terms
from headrace.tensor import Tensor

_log = logging.getLogger("headrace.link")
_EMPTY: Bytes = np.empty(0, np.uint8)


class Receiver(End):
    """The end that a flow's messages arrive at.

    One thread at a time takes messages.

    Parameters
    ----------
    carrier, terms, loop
        As for the sender.
    on_event
        Called by the thread of the loop, without arguments, when a message arrived, the sender has sent everything,
        or the link failed. It must not block, and may call every method of this object.
    """

    def __init__(
        self,
        carrier: Carrier,
        terms: Terms,
        on_event: Callable[[], object],
        *,
        loop: LinkLoop | None = None,
    ) -> None:
        self._arrived: deque[tuple[Frame, Buffer | None]] = deque()
        self._returned: deque[int] = deque()
        self._segments: dict[int, Segment | DeviceSegment] = {}
        self._leases: dict[int, Lease] = {}
        # Frames that are decoded and wait for a device to copy them; the oldest first.
        self._uploading: deque[tuple[Sample, list[bool]]] = deque()
        self._uploads: Uploads | None = None
        self._has_no_device = False
        served_by = loop or default_loop()
        self._received_frames = ReceivedFrames(self._give_back, served_by.call_soon)
        self._machine: ReceivingEnd
        machine = ReceivingEnd(terms.text(), terms.silence, monotonic(), terms.size)
        super().__init__(carrier, terms, on_event, machine, served_by)

    @property
    def received(self) -> int:
        """The messages that arrived."""
        return self._machine.frames

    @property
    def arrived(self) -> int:
        """How many messages arrived, taken or not, and the end of the stream."""
        return self._machine.frames + self._machine.peer_ended

    @property
    def has_ended(self) -> bool:
        """Whether the sender has sent everything, and all of it was taken."""
        is_over = self._machine.peer_ended and self.failure is None
        return is_over and not self._arrived and not self._uploading

    def take(self) -> Sample | None:
        """Return the next message that arrived, or None.

        Raises
        ------
        CrossingError
            If an object of the message cannot be unpickled here. The message is lost, which the caller gives a
            credit for, and the next can be taken.
        """
        uploading = self._uploading
        while True:
            if uploading and uploading[0][1]:
                return uploading.popleft()[0]
            if not self._arrived:
                return None
            sample = self._decode_next()
            if sample is None or self._uploads is None:
                return sample
            uploaded: list[bool] = []
            if not self._uploads.then(partial(self._is_uploaded, uploaded)):
                uploaded.append(True)
            uploading.append((sample, uploaded))

    def _decode_next(self) -> Sample | None:
        """Return the next message that arrived, whose copies to a device may be under way; or None."""
        try:
            frame, bulk = self._arrived.popleft()
        except IndexError:
            return None
        pieces = self._pieces(frame, bulk)
        described = pieces.pop(0) if frame.description is None else frame.description
        data, acq_timestamp, metadata = decode(described, pieces, self._to_device, frame.extra)
        return Sample(data, acq_timestamp, metadata, frame.number)

    def give_credits(self, count: int) -> None:
        """Tell the sender that the consumer took so many messages, so that as many places are free."""
        with self._lock:
            if not self._is_released and not self._is_peer_gone and self.failure is None:
                for message in self._machine.give(count, self._all_returned()):
                    self._post(message)
        self._after_lock()

    def defer(self, count: int) -> None:
        """Tell the sender that no more of the first so many messages are taken before others come."""
        with self._lock:
            if self._can_say() and self.failure is None:
                self._post(self._machine.defer(count))
        self._after_lock()

    def _pieces(self, frame: Frame, bulk: Buffer | None) -> list[Any]:
        """Return the memory of a frame, as arrays of bytes."""
        pieces: list[Any] = []
        lease = frame.lease
        content = _EMPTY if bulk is None else np.frombuffer(bulk, np.uint8)
        for segment, offset, length in frame.places:
            if segment == IN_BULK:
                pieces.append(content[offset : offset + length])
                continue
            memory = self._segments[segment]
            if type(memory) is Segment:
                piece: Bytes = np.ndarray((length,), np.uint8, memory.mapped, offset)
                self._lease(piece, lease)
                pieces.append(piece)
            elif type(memory) is DeviceSegment:
                pieces.append(self._received_frames.receive(memory, offset, length, lease))
            lease += 1
        return pieces

    def _to_device(self, memory: Any, element: Any, shape: Any, strides: Any) -> Tensor | None:
        """Copy memory of the host to a device, if there is one."""
        if not active().has_devices:
            if not self._has_no_device:
                self._has_no_device = True
                _log.warning(
                    "link %r: frames on devices arrive on the host: here is no device", self.terms.name
                )
            return None
        if self._uploads is None:
            self._uploads = Uploads(self._received_frames)
        return self._uploads.add(memory, element, shape, strides)

    def _is_uploaded(self, uploaded: list[bool], error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
        uploaded.append(True)
        self.on_event()

    # What arrives, with the lock held.

    def _do(self, asked: Any, bulk: Buffer | None, descriptors: tuple[int, ...]) -> None:
        if type(asked) is Frame:
            self._arrived.append((asked, bulk))
            return
        if asked is COLLECT:
            # It may take long, and other links have to be served.
            threading.Thread(target=self._collect, name="headrace collect", daemon=True).start()
            return
        number, size, is_reused, device = asked
        if device:
            (descriptor,) = descriptors
            threading.Thread(
                target=self._map_device, args=(number, os.dup(descriptor), size, device), daemon=True
            ).start()  # the first use of a device may take a second, and other links have to be served
        elif size:
            (descriptor,) = descriptors
            self._segments[number] = Segment.from_peer(descriptor, size, is_reused=is_reused)
        else:
            self._segments.pop(number, None)

    def _collect(self) -> None:
        """Let go of frames that nobody can reach any more, and of their memory."""
        gc.collect()
        self._return_memory()

    def _map_device(self, number: int, descriptor: int, size: int, description: bytes) -> None:
        """Map memory of a device, and answer whether that was possible."""
        segment, refusal = None, ""
        try:
            segment = DeviceSegment.from_peer(descriptor, size, description)
        except Exception as error:  # whatever a device, or the lack of one, raises
            refusal = str(error) or type(error).__name__
        finally:
            os.close(descriptor)
        with self._lock:
            if segment is not None:
                self._segments[number] = segment
            if not (self._is_released or self._is_peer_gone):
                self._post(self._machine.answer(number, refusal))
        self._after_lock()

    def _prepare_close(self) -> None:
        self._arrived.clear()
        if not self._is_peer_gone and self.failure is None and not self._machine.has_ended:
            self._post(self._machine.end())

    def _is_needed(self) -> bool:
        return any(
            (known := self._segments.get(segment)) is not None and known.is_reused
            for segment, _ in self._machine.leases.values()
        )

    def _release(self) -> None:
        self._segments.clear()

    # What goes back.

    def _lease(self, array: Any, number: int) -> None:
        """Return memory to the sender when an array on it is gone."""
        lease = self._leases[number] = Lease(array, self._end_lease)
        lease.number = number

    def _end_lease(self, lease: Lease) -> None:
        del self._leases[lease.number]
        self._give_back(lease.number)

    def _give_back(self, lease: int) -> None:
        """Return memory to the sender; called by finalizers.

        It goes with the next credit, or with the next beat: a message of its own would wake the sender for each
        frame. Only a sender that may be waiting for it gets it at once.
        """
        self._returned.append(lease)
        if self._is_urgent():
            self._return_memory()

    def _is_urgent(self) -> bool:
        """Return whether the sender may be waiting for memory, or this end to be released."""
        return self._is_closing or self._machine.lent * 2 > self.terms.max_bytes

    def _all_returned(self) -> Sequence[int]:
        if not self._returned:
            return ()
        returned = []
        with suppress(IndexError):
            while True:
                returned.append(self._returned.popleft())
        return returned

    def _after_lock(self) -> None:
        # What another thread notes while this one holds the lock is seen here, after the release.
        if self._returned and self._is_urgent():
            self._return_memory()

    def _after_tick(self) -> None:
        self._return_memory()

    @waits.shielded
    def _return_memory(self) -> None:
        while self._returned and self._lock.acquire(blocking=False):
            try:
                returned = self._all_returned()
                if returned and not (self._is_released or self._is_peer_gone):
                    for message in self._machine.give(0, returned):
                        self._post(message)
                    self._release_if_done()
            finally:
                self._lock.release()
