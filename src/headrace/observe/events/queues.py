"""The queues of a run that is observed; `recorder` says what is recorded at them, and how.

An `ObservedQueue` stands in place of the runtime's queue, a `Feed` between an output and each queue behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace._runtime import MessageCounter, Queue
from headrace.core.ports import IOSpec
from headrace.observe.events.recorder import AT_START, Emitter, Receiver

if TYPE_CHECKING:
    from headrace.observe.events.recorder import NodeRecorder
    from headrace.observe.events.records import OutputInfo, QueueInfo

Show: TypeAlias = Callable[[Any], None]


class ObservedQueue(Queue):
    """A queue whose messages are recorded as they are received.

    Parameters
    ----------
    consumer, port, limit, policy
        As in `Queue`.
    recorder
        The recorder of the operator that receives.
    info
        The queue in the observation.
    show
        Called with every message that is received, if somebody watches the data.

    Attributes
    ----------
    receiver
        Takes and records messages.
    discarded
        The number of messages that failed computes left behind.
    is_put_off
        Whether messages are received by the last attempt of a compute that may be tried again.
    popleft
        Takes a message and records it.
    """

    __slots__ = (
        *("_show", "discarded", "info", "is_put_off"),
        *("popleft", "receiver"),
    )

    popleft: Callable[[], Any]

    def __init__(
        self,
        consumer: Any,
        port: str,
        limit: int,
        policy: Any,
        *,
        recorder: NodeRecorder,
        info: QueueInfo,
        show: Show | None,
    ) -> None:
        super().__init__(consumer, port, limit, policy)
        self.info = info
        self.discarded = 0
        self.receiver = Receiver(recorder, self)
        # Messages of a compute that may be tried again are received by the last attempt.
        policy = recorder.info.node.operator._headrace.error_policy
        self.is_put_off = bool(policy.retries and policy.same_message)
        taking = self.receiver.putting_off if self.is_put_off else self.receiver.taking
        take = taking(self.receiver.take_item)
        self.popleft = take if show is None else _showing_result(take, show)
        self._show = show

    def discard(self) -> None:
        """Take a message that is not received, and record that."""
        with nullcontext() if self.lock is None else self.lock:
            self.discarded += 1
            item = self.receiver.discard()
            if self.policy is IOSpec.QueuePolicy.LATEST:
                item, self.last = self.last, item
        del item  # without the lock: its finalizer may run any code

    def _take_dropped(self) -> Any:
        return self.receiver.drop_oldest()

    def receive_taken(self) -> None:
        """Record that what was taken is received by this compute."""
        if self.is_put_off:
            with nullcontext() if self.lock is None else self.lock:
                self.receiver.receive_held()

    def expect_join(self, most: int) -> None:
        """Show how many messages may wait, and expect them to leave in any order."""
        self.info.size += most
        self.receiver.places = []

    def drop(self, reason: str, number: int) -> None:
        """Count and record a message that nobody receives."""
        super().drop(reason, number)
        with nullcontext() if self.lock is None else self.lock:
            self.receiver.note_drop(number)

    def deliver(self, item: Any, number: int) -> None:
        """Record that a message is received now."""
        super().deliver(item, number)
        with nullcontext() if self.lock is None else self.lock:
            self.receiver.note(AT_START, number)
        self.receiver.begin_with(item)
        if self._show is not None:
            self._show(item)


class Feed(MessageCounter):
    """Stands between an output and one queue behind it: records every message and passes it on.

    Parameters
    ----------
    behind
        The queue.
    output
        The output in the observation.
    recorder
        The recorder of the operator that emits.

    Attributes
    ----------
    earlier
        The number of messages that came before through the only other feed of the queue.
    """

    __slots__ = ("_offer_unseen", "earlier", "emitter", "offer", "output")

    behind: ObservedQueue
    offer: Callable[[Any], None]  # type: ignore[assignment]

    def __init__(
        self,
        behind: ObservedQueue,
        output: OutputInfo,
        recorder: NodeRecorder,
    ) -> None:
        self.emitter = Emitter(recorder, behind)
        super().__init__(behind)
        self.output = output
        others = behind.info.feeds
        self.earlier = others[0].emitter.number if len(others) == 1 else 0
        others.append(self)
        behind.info.outputs.append(output)
        self._offer_unseen = self.offer = self.emitter.offering()

    def show_by(self, show: Show | None) -> None:
        """Call `show` with every message, if somebody watches the data; done for one feed of an output."""
        self.offer = self._offer_unseen if show is None else _showing_argument(self._offer_unseen, show)

    @property
    def passed_on(self) -> int:
        """The number of messages so far."""
        return self.emitter.number + self.emitter.rejected

    @passed_on.setter
    def passed_on(self, count: int) -> None:
        """Do nothing: the emitter counts."""


class UnconnectedFeed(MessageCounter):
    """Stands before the queue of an unconnected output, which drops everything."""

    __slots__ = ("_show",)

    def __init__(self, behind: Queue) -> None:
        super().__init__(behind)
        self._show: Show | None = None

    def show_by(self, show: Show | None) -> None:
        """Call `show` with every message, if somebody watches the data."""
        self._show = show

    def offer(self, item: Any) -> None:
        """Show a message, if somebody watches the data, and drop it."""
        if self._show is not None:
            self._show(item)
        super().offer(item)


def _showing_result(take: Callable[[], Any], show: Show) -> Callable[[], Any]:
    """Return a `take` whose results are shown."""

    def take_and_show() -> Any:
        item = take()
        show(item)
        return item

    return take_and_show


def _showing_argument(offer: Callable[[Any], None], show: Show) -> Callable[[Any], None]:
    """Return an `offer` whose arguments are shown."""

    def show_and_offer(item: Any) -> None:
        show(item)
        offer(item)

    return show_and_offer
