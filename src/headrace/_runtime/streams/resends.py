"""Memory that is sent again: what was emitted must not be changed while others may read it.

A sender that fills one buffer again and again changes frames under its readers, unless they are done. Nobody can
see the change itself, but that the same memory is sent again. So a sender notes who has received each of its
messages, and in which compute. When it sends memory again that a reader has not passed, it warns, once, and names
the cure. If a hundred messages in a row bring other memory each, it notes nothing any more. Receivers keep the
owners of what they received anyway, so they notice an owner that comes twice, at no cost (`lifetimes`), and the
sender begins again. With ``HEADRACE_CHECK=streams`` it never ends, and the warning is an error.

A reader has passed a message when its compute has ended and the device has completed the fence after that. For a
reader on the stream of the sender the end of the compute is enough, since the stream keeps the order. A function
that awaits or yields has passed it when it goes on with it no more. And an operator that keeps it in one of its
attributes may read it in a later compute.

Memory that is never changed may be sent as often as one likes: ``emit(table, constant=True)``, or an array that is
read-only. Memory that an operator received and passes on, at once or later, is another one's to change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from headrace._runtime.messages.envelope import Envelope, make_envelope
from headrace._runtime.messages.ports import parts_of
from headrace._runtime.streams.owners import PLAIN, memory_in
from headrace.core.errors import ResentMemoryWarning, StreamError
from headrace.tensor import Tensor
from headrace.tensor.tree import leaves

if TYPE_CHECKING:
    from headrace._runtime.messages.ports import OutputPort
    from headrace._runtime.streams.running_operator import RunningOperator
    from headrace.core.operator import Operator

# Messages in a row, all of other memory, after which a sender notes nothing any more.
_QUIET: Final = 100
# How often the attributes of an operator are walked that changes them meanwhile.
_TRIES: Final = 3
# The memory that is remembered, for senders that fill so many buffers in turn.
_MOST: Final = 64


class SentMessage:
    """Who has received a message; the message refers to it.

    Attributes
    ----------
    reads
        The operators that have received it, each with its compute; the last one, if it received it again.
    """

    __slots__ = ("__weakref__", "reads")

    def __init__(self) -> None:
        self.reads: dict[RunningOperator, int] = {}

    def note_received(self, node: RunningOperator) -> None:
        """Note that an operator has received the message in its present compute."""
        self.reads[node] = node.remaining
        node.streams.fence_this_compute()


class _Sending:
    """The last message with some memory."""

    __slots__ = ("_key", "_receivers", "_sent", "reads", "turn")

    def __init__(self, key: int, turn: int, sent: SentMessage, receivers: int) -> None:
        self.turn = turn
        self._key = key
        self.reads = sent.reads
        self._sent = ref(sent)
        self._receivers = receivers

    def reader(self, sender: RunningOperator, asked: Collection[RunningOperator] = ()) -> str | None:
        """Return who may still read the memory, in words; None if all have passed it.

        A reader that has sent it on is asked for its own readers, except those in `asked`.
        """
        if len(self.reads) < self._receivers and self._sent() is not None:
            return "a receiver that has not received it yet"
        for node, turn in self.reads.copy().items():
            if node is sender:
                continue  # what it keeps is its own to change; and memory that is new may have an old identity
            if not node.streams.has_passed(turn, sender.streams.own, self._key):
                return f"operator {node.name!r}"
            if node not in asked:
                further = node.streams.reader_of(self._key, sender, (*asked, node))
                if further is not None:
                    return further
        return None


class Resends:
    """Notes what one operator sends, to find out whether it sends memory again that others may read.

    Its fields are changed in the operator's computes.

    Attributes
    ----------
    is_constant
        Whether the next message is said to be constant.
    is_over, has_warned
        Whether it notes nothing any more, and whether that is because it has warned.
    """

    __slots__ = ("_is_strict", "_node", "_quiet", "_sendings", "has_warned", "is_constant", "is_over")

    def __init__(self, node: RunningOperator, is_strict: bool) -> None:
        self._node = node
        self._is_strict = is_strict
        # By the identity of the owner of the memory, the oldest first. Readers keep an owner until they have passed
        # it, so that another one with the identity of one that is gone is never taken for memory in use.
        self._sendings: dict[int, _Sending] = {}
        self._quiet = 0
        self.is_constant = False
        self.is_over = self.has_warned = False

    def stamping(
        self, port: OutputPort, name: str, stamp: Callable[[Any], Any] | None
    ) -> Callable[[Any], Envelope]:
        """Return a function that makes the messages of an output, each with a note of its readers."""

        def stamp_and_note(data: Any) -> Envelope:
            is_constant, self.is_constant = self.is_constant, False
            owners = () if is_constant or type(data) in PLAIN else memory_in(data)
            self._check(data, owners, name)
            message: Envelope = make_envelope(data) if stamp is None else stamp(data)
            if owners and not self.is_over:
                self._note(message, owners, len(port.queues))
            return message

        return stamp_and_note

    def reader_of(self, key: int, sender: RunningOperator, asked: Collection[RunningOperator]) -> str | None:
        """Return who may still read memory of a sender that was sent on; may be called from any thread."""
        sending = self._sendings.get(key)
        return None if sending is None else sending.reader(sender, asked)

    def _check(self, data: Any, owners: Sequence[Any], name: str) -> None:
        """Warn if a message has memory that readers of an earlier compute may still read."""
        self._quiet += 1
        turn = self._node.remaining
        for owner in owners:
            sending = self._sendings.get(id(owner))
            if sending is None or sending.turn == turn:
                continue
            if _is_read_only(data):
                break
            reader = sending.reader(self._node)
            if reader is None:
                continue
            self._quiet = 0
            if not self._is_received(owner):
                self._report(name, reader)
                return
            if self._node.lifetimes is not None:
                self._node.lifetimes.suspect()  # who sent it may send it again
        if self._quiet > _QUIET and not self._is_strict:
            self._end()

    def _note(self, message: Envelope, owners: Sequence[Any], receivers: int) -> None:
        sent = message.sent = SentMessage()
        sendings, turn = self._sendings, self._node.remaining
        for owner in owners:
            earlier = sendings.pop(id(owner), None)
            if earlier is not None and earlier.turn == turn:
                sendings[id(owner)] = earlier  # of another output of this compute
            else:
                sendings[id(owner)] = _Sending(id(owner), turn, sent, receivers)
        while len(sendings) > _MOST:
            del sendings[next(iter(sendings))]

    def _end(self) -> None:
        self.is_over = True
        self._sendings.clear()
        self._node.streams.update_outputs()

    def _is_received(self, owner: Any) -> bool:
        """Return whether the operator received memory, now or earlier, and passes it on."""
        lifetimes = self._node.lifetimes
        if lifetimes is not None and lifetimes.held.has(owner):
            return True
        items = [part for port in self._node.input.ports for part in parts_of(port.item)]
        received = [part.data if type(part) is Envelope else part for part in items]
        return any(each is owner for data in received for each in memory_in(data))

    def _report(self, name: str, reader: str) -> None:
        text = (
            f"operator {self._node.name!r} sends memory again at {name!r} that it sent before, and that {reader} "
            "may still read; send a fresh array each time, or memory of an allocator; if it is never changed, say "
            "emit(..., constant=True)"
        )
        if self._is_strict:
            raise StreamError(text)
        self.has_warned = True  # once for each operator
        self._end()
        warnings.warn(text, ResentMemoryWarning, stacklevel=5)


def holds_memory(operator: Operator, key: int) -> bool:
    """Return whether an attribute of an operator holds memory, in whatever container; from any thread."""
    for _ in range(_TRIES):
        try:
            return any(id(owner) == key for owner in memory_in(dict(vars(operator))))
        except RuntimeError:  # it computes on another thread, and changes what is walked
            continue
    return True


def _is_read_only(data: Any) -> bool:
    """Return whether all arrays of a message are read-only."""
    arrays = [leaf for leaf in leaves(data) if isinstance(leaf, Tensor) or hasattr(type(leaf), "__dlpack__")]
    return bool(arrays) and all(map(_is_array_read_only, arrays))


def _is_array_read_only(array: Any) -> bool:
    if isinstance(array, Tensor):
        return array.is_readonly
    return not getattr(getattr(array, "flags", None), "writeable", True)
