"""Memory that is sent again: what was emitted must not be changed while others may read it.

A sender that fills one buffer again and again changes frames under its readers, unless they are done. Nobody can
see the change itself, but that the same memory is sent again. Receivers keep the owners of what they received
anyway, so they notice an owner that comes twice, at no cost (`held_frames`). From then on its sender notes who has
received each of its messages, and in which compute. When it sends memory again that a reader has not passed, it
warns, once, and names the cure. With ``HEADRACE_CHECK=streams`` every sender notes this from the start, and the
warning is an error.

A reader has passed a message when its compute has ended and the device has completed the fence after that. For a
reader on the stream of the sender the end of the compute is enough, since the stream keeps the order.

Memory that is never changed may be sent as often as one likes: ``emit(table, constant=True)``, or an array that is
read-only. Memory that an operator received and passes on, at once or later, is another one's to change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from headrace._runtime.messages.envelope import Envelope, Extra, make_envelope
from headrace._runtime.messages.ports import parts_of
from headrace._runtime.streams.owners import memory_in
from headrace.core.errors import ResentMemoryWarning, StreamError
from headrace.gpu.allocation import Allocation
from headrace.tensor import Tensor
from headrace.tensor.tree import map as map_tree

if TYPE_CHECKING:
    from headrace._runtime.messages.ports import OutputPort
    from headrace._runtime.streams.running_operator import RunningOperator

# Messages in a row, all of other memory, after which a sender notes nothing any more: a frame may have come to a
# reader twice on two ways through the graph.
_QUIET: Final = 100


class SentMessage:
    """Who has received a message; the message refers to it.

    Attributes
    ----------
    reads
        The operators that have received it, each with its compute.
    """

    __slots__ = ("__weakref__", "reads")

    def __init__(self) -> None:
        self.reads: list[tuple[RunningOperator, int]] = []

    def note_received(self, node: RunningOperator) -> None:
        """Note that an operator has received the message in its present compute."""
        self.reads.append((node, node.remaining))
        node.streams.fence_this_compute()


class _Sending:
    """One message with some memory, until all readers have passed it."""

    __slots__ = ("_receivers", "_sent", "owner", "reads", "turn")

    def __init__(self, owner: Any, turn: int, sent: SentMessage, receivers: int) -> None:
        self.owner = owner
        self.turn = turn
        self.reads = sent.reads
        self._sent = ref(sent)
        self._receivers = receivers

    def reader(self, sender: RunningOperator, asked: Collection[RunningOperator] = ()) -> str | None:
        """Return who may still read the memory, in words; None if all have passed it.

        A reader that has sent it on is asked for its own readers, except those in `asked`.
        """
        if len(self.reads) < self._receivers and self._sent() is not None:
            return "a message that is not received yet"
        for node, turn in tuple(self.reads):
            if not node.streams.has_passed(turn, sender.streams.own):
                return f"operator {node.name!r}"
            if node is not sender and node not in asked:
                further = node.streams.reader_of(self.owner, sender, (*asked, node))
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
        self._sendings: dict[int, list[_Sending]] = {}
        self._quiet = 0
        self.is_constant = False
        self.is_over = self.has_warned = False

    def stamping(
        self, port: OutputPort, name: str, stamp: Callable[[Any], Any] | None
    ) -> Callable[[Any], Envelope]:
        """Return a function that makes the messages of an output, each with a note of its readers."""

        def stamp_and_note(data: Any) -> Envelope:
            self._check(data, name)
            message: Envelope = make_envelope(data) if stamp is None else stamp(data)
            self._note(data, message, len(port.queues))
            return message

        return stamp_and_note

    def reader_of(
        self, owner: Any, sender: RunningOperator, asked: Collection[RunningOperator]
    ) -> str | None:
        """Return who may still read memory of a sender that was sent on; may be called from any thread."""
        readers = [sending.reader(sender, asked) for sending in tuple(self._sendings.get(id(owner), ()))]
        return next((reader for reader in readers if reader is not None), None)

    def _check(self, data: Any, name: str) -> None:
        """Warn if a message has memory that readers of an earlier compute may still read."""
        is_constant, self.is_constant = self.is_constant, False
        self._quiet += 1
        turn = self._node.remaining
        for owner in memory_in(data):
            for sending in self._sendings.get(id(owner), ()):
                if sending.turn == turn:
                    continue
                self._quiet = 0
                reader = None if is_constant else sending.reader(self._node)
                if reader is None or _is_read_only(data):
                    continue
                if not self._is_received(owner):
                    self._report(name, reader)
                    return
                if self._node.lifetimes is not None:
                    self._node.lifetimes.suspect()  # who sent it may send it again

    def _note(self, data: Any, message: Envelope, receivers: int) -> None:
        self._forget_passed()
        sent = SentMessage()
        extra = message.extra
        message.extra = (
            Extra(None, None, sent) if extra is None else Extra(extra.details, extra.more_fences, sent)
        )
        for owner in memory_in(data):
            if type(owner) is not Allocation:  # which stands for one use of the memory
                sending = _Sending(owner, self._node.remaining, sent, receivers)
                self._sendings.setdefault(id(owner), []).append(sending)
        if self._quiet > _QUIET and not self._is_strict:
            self._end()

    def _forget_passed(self) -> None:
        for key, sendings in list(self._sendings.items()):
            left = [each for each in sendings if each.reader(self._node) is not None]
            if left:
                self._sendings[key] = left
            else:
                del self._sendings[key]

    def _end(self) -> None:
        self.is_over = True
        self._sendings.clear()
        self._node.streams.update_outputs()

    def _is_received(self, owner: Any) -> bool:
        """Return whether the operator received memory, now or earlier, and passes it on."""
        lifetimes = self._node.lifetimes
        # A list of several operators does not tell which of them received it.
        if lifetimes is not None and len(lifetimes.frames.members) == 1 and lifetimes.frames.held.has(owner):
            return True
        items = [part for port in self._node.input.ports for part in parts_of(port.item)]
        received = [part.data if type(part) is Envelope else part for part in items]
        return any(each is owner for data in received for each in memory_in(data))

    def _report(self, name: str, reader: str) -> None:
        text = (
            f"operator {self._node.name!r} sends memory again at {name!r} that it sent before, and that {reader} "
            "may still read; send a fresh array each time, or one of a RingAllocator; if it is never changed, say "
            "emit(..., constant=True)"
        )
        if self._is_strict:
            raise StreamError(text)
        self.has_warned = True  # once for each operator
        self._end()
        warnings.warn(text, ResentMemoryWarning, stacklevel=5)


def _is_read_only(data: Any) -> bool:
    """Return whether all arrays of a message are read-only."""
    are: list[bool] = []

    def ask(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            are.append(leaf.is_readonly)
        elif hasattr(type(leaf), "__dlpack__"):
            are.append(not getattr(getattr(leaf, "flags", None), "writeable", True))
        return leaf

    map_tree(ask, data)
    return bool(are) and all(are)
