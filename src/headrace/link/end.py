"""End: what the sender and the receiver of a link have in common: its life, what it hears, and its silence.

The thread of the operator encodes, copies into shared memory and sends; the thread of the loop reads and tells by
`on_event` that something came. The lock of an end guards its state machine and its carrier, and is never held while
a frame is copied, an object is unpickled or `on_event` is called.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Any

from headrace.core.errors import Failure, LinkError, PeerAborted, PeerLost
from headrace.link.carrier import Buffer, Carrier, CarrierClosed
from headrace.link.loop import LinkLoop
from headrace.link.protocol import Kind, LinkEnd, Terms

_NEVER = 3600.0
_SOON = 0.5  # seconds
_TO_CLOSE = 0.2  # seconds that a peer has at least to read the rest, however long it has been silent
COLLECT = Kind.COLLECT  # members of an enumeration are slow to find


class End:
    """What both ends have in common."""

    def __init__(
        self,
        carrier: Carrier,
        terms: Terms,
        on_event: Callable[[], object],
        machine: LinkEnd,
        loop: LinkLoop,
    ) -> None:
        self.terms = terms
        self._carrier = carrier
        self.on_event = on_event
        """Called by the thread of the loop; whoever uses the link may set it."""
        self._loop = loop
        self._lock = threading.Lock()
        self.failure: BaseException | None = None
        """Why the link failed: a PeerLost, a PeerAborted or a ProtocolError; None if it has not."""
        self._is_closing = False
        self._is_peer_gone = False
        self._is_released = False
        # Whether only the connection is left, between hosts, until the peer has read everything; and how long.
        self._is_leaving = False
        self._leaves_at = 0.0
        self._is_writing = False
        self._machine = machine
        self._is_local = carrier.is_local
        with self._lock:
            self._post(machine.hello())
        self._loop.add(self)

    def abort(self, error: BaseException, part: str) -> None:
        """Tell the peer that this part has failed; `close` afterwards."""
        body = encode_failure(error, part)
        with self._lock:
            if self._can_say():
                self._post(self._machine.abort(len(body)), (body,))
        self._after_lock()

    def close(self) -> None:
        """Close the link; what was sent still arrives. A second call does nothing.

        Descriptors and memory go at once, except for what is still to be sent, and for frames made in an
        allocator's memory that the receiver still has: these go when it has let go of them or has ended.
        """
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self._prepare_close()
                self._release_if_done()
        self._after_lock()

    def lose(self, error: PeerLost) -> None:
        """Abandon a peer that is known to be lost, though nobody says so here; what it has sent is received.

        After `close`, nobody waits any more until the peer has read what was sent.
        """
        with self._lock:
            tell = not self._is_released and self._abandon(error)
            self._leave()
            self._carrier.reset()
            self._release_if_done()
            tell = tell and not self._is_closing
        try:
            if tell:
                self.on_event()
        finally:
            self._after_lock()

    # What the loop calls.

    def fileno(self) -> int:
        """Return the descriptor of the carrier."""
        return self._carrier.fileno()

    def serve(self, readable: bool, writable: bool) -> None:
        """Read what arrived and send what is left; for the loop."""
        tell = False
        with self._lock:
            if self._is_leaving and self._carrier.is_read():
                self._leave()
            if self._is_released or self._is_peer_gone:
                return
            if writable:
                self._carrier.flush()
            if readable:
                tell = self._read(monotonic())
            if self._is_writing:
                self._watch()
            if self._is_closing:
                self._release_if_done()
                tell = False
        try:
            if tell:  # at once: it takes the thread that is told a while to wake up
                self.on_event()
        finally:
            self._after_lock()

    def tick(self, now: float, was_stopped: bool = False) -> float:
        """Send a beat if it is due, and notice silence; for the loop."""
        tell = False
        with self._lock:
            if self._is_leaving and now >= self._leaves_at:
                self._leave()
            if self._is_released:
                return self._leaves_at if self._is_leaving else now + _NEVER
            if was_stopped:  # Ctrl-Z stops all processes of a terminal: the peer has its time once more
                self._machine.heard = now
            if self._machine.is_silent(now):
                # This process itself may have been stopped, and the beats of the peer wait to be read.
                tell = self._read(now)
            if self._machine.is_silent(now) and self.failure is None:
                text = f"link {self.terms.name!r}: nothing was heard of the peer for {self._machine.patience:.3g} s"
                self._fail(PeerLost(f"{text}: it is frozen, or cut off"))
                self._reset()
                tell = True
            if self.failure is None and not self._is_peer_gone:
                if beat := self._machine.tick(now):
                    self._post(beat)
                self._look_after(now)
            self._release_if_done(is_late=self.failure is not None)
            # After a failure nothing is due before it is closed.
            following = now + _SOON if self.failure is not None else self._machine.next_tick()
            tell = tell and not self._is_closing
        self._after_tick()
        if tell:
            self.on_event()
        return following

    # With the lock held.

    def _read(self, now: float) -> bool:
        """Accept what arrived; return whether the program has to be told."""
        tell = False
        try:
            for kind, body, bulk, descriptors in self._carrier.receive():
                try:
                    asked = self._machine.receive(kind, body, now)
                    if asked is not None:
                        self._do(asked, bulk, descriptors)
                        tell = tell or asked is not COLLECT
                    elif self._note(kind, bulk):
                        tell = True
                    asked = None  # a failure of the next message must not keep memory that came back
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
        except CarrierClosed as error:
            self._is_peer_gone = True
            if not self._machine.peer_ended:
                self._fail(
                    PeerLost(f"link {self.terms.name!r}: the peer is gone, and did not say why: {error}")
                )
                tell = True
            self._loop.remove(self)
        except LinkError as error:
            self._break(error)
            tell = True
        except Exception as error:  # of a damaged message, or of a system without memory: the loop has others
            self._break(LinkError(f"link {self.terms.name!r}: {type(error).__name__}: {error}"))
            tell = True
        return tell

    def _read_rest(self) -> bool:
        """Accept all that has arrived; return whether the program has to be told."""
        tell, received = False, -1
        while not self._is_peer_gone and self._machine.received != received:
            received = self._machine.received
            tell = self._read(monotonic()) or tell
        return tell

    def _abandon(self, error: PeerLost) -> bool:
        """Fail unless the peer has ended, and hear it no more; return whether the program has to be told."""
        tell = self._read_rest()
        if self.failure is None and not self._machine.peer_ended:
            self._fail(error)
            tell = True
        self._is_peer_gone = True
        self._loop.remove(self)
        return tell

    def _note(self, kind: int, bulk: Buffer | None) -> bool:
        """Note a message that only the state machine had to know of; return whether the program has to be told."""
        if kind == Kind.ABORT:
            self._fail(decode_failure(bulk, self.terms.name))
        return kind in (Kind.ABORT, Kind.END)

    def _do(self, asked: Any, bulk: Buffer | None, descriptors: tuple[int, ...]) -> None:
        """Do what a message asks for, with the descriptors that it came with."""
        raise NotImplementedError

    def _look_after(self, now: float) -> None:
        """Do what is due now and then, while the link works."""

    def _prepare_close(self) -> None:
        """Send what has to be said before the end."""

    def _is_needed(self) -> bool:
        """Return whether the peer still uses memory that may be written again."""
        return False

    def _can_say(self) -> bool:
        return not (self._is_released or self._is_closing or self._is_peer_gone or self._machine.has_ended)

    def _post(self, message: bytes, bulk: Sequence[Buffer] = (), descriptors: Sequence[int] = ()) -> None:
        self._carrier.send(message, bulk, descriptors)
        if self._carrier.wants_write is not self._is_writing:
            self._watch()

    def _watch(self) -> None:
        """Tell the loop whether there is something left to send."""
        wants = self._carrier.wants_write
        if wants is not self._is_writing:
            self._is_writing = wants
            self._loop.watch(self, wants)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    def _break(self, error: BaseException) -> None:
        """Fail because of what the peer said, and hear it no more."""
        self._fail(error)
        if not self._machine.has_ended:
            body = encode_failure(error, self.terms.name)
            self._post(self._machine.abort(len(body)), (body,))
        self._is_peer_gone = True
        self._loop.remove(self)

    def _reset(self) -> None:
        """Break the connection to a peer on another host, so that one that still hears this end knows it now.

        A connection whose packets are lost in one direction sends nothing new in the other, either: its
        acknowledgements are missing. Only a reset passes.
        """
        if not self._is_local:
            self._is_peer_gone = True
            self._loop.remove(self)
            self._carrier.reset()

    def _release_if_done(self, is_late: bool = False) -> None:
        """Let go of everything, if this end is closed and nobody needs it any more."""
        if not self._is_closing or self._is_released:
            return
        if self._is_peer_gone or not (self._is_needed() or (self._carrier.wants_write and not is_late)):
            self._is_released = True
            self._release()
            self._is_leaving = not self._is_peer_gone and self._carrier.say_end()
            if not self._is_leaving:
                self._leave()
                return
            self._watch()
            now = monotonic()
            left = self._machine.patience_left(now)
            self._leaves_at = now + max(self._carrier.silence if left == inf else left, _TO_CLOSE)
        self._loop.note_closing(self, self._is_leaving or self._carrier.wants_write)

    def _leave(self) -> None:
        """Close the connection, if nothing else is left."""
        if self._is_released:
            self._is_leaving = False
            self._loop.remove(self)
            self._carrier.close()

    def _release(self) -> None:
        """Let go of memory."""

    # Without the lock.

    def _after_lock(self) -> None:
        """Do what must not be done, or could not be done, with the lock held."""

    def _after_tick(self) -> None:
        """Do now and then what could wait."""


# What an ABORT says: the exception of a part, for the parts that it is linked to.


def encode_failure(error: BaseException, part: str) -> bytes:
    """Return what an ABORT says."""
    return pickle.dumps((part, Failure.of(error)))


def decode_failure(body: Buffer, link: str) -> PeerAborted:
    """Return the error for the peers of a part that failed, whose exception is the cause."""
    part, failure = pickle.loads(body)
    error = PeerAborted(f"link {link!r}: {part!r} failed: {failure.kind}: {failure.text}", part)
    error.__cause__ = failure.error(repr(part))
    return error
