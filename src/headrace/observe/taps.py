"""Taps: where messages are recorded, at the queue that they are received from and before it.

They stand in place of the runtime's queues in a run that is observed; `recorder` says what is recorded, and how.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace._runtime import MessageCounter, Queue
from headrace.observe.recorder import FIRST_DISCARD, KINDS

if TYPE_CHECKING:
    from headrace.observe.recorder import NodeRecorder
    from headrace.observe.records import OutputInfo, QueueInfo

__all__ = ["ObservedQueue", "Tap", "UnconnectedTap"]

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
    position
        The position among the queues of the operator.
    show
        Called with every message that is received, if somebody watches the data.

    Attributes
    ----------
    labels
        The labels of the waiting messages, if they need any. A label is added before its message and taken after
        it, so a thread that finds a message finds its label.
    discarded
        The number of messages that failed computes left behind.
    popleft
        Takes a message and records it.
    """

    __slots__ = ("_position", "_recorder", "_show", "discarded", "info", "labels", "popleft")

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
        position: int,
        show: Show | None,
    ) -> None:
        super().__init__(consumer, port, limit, policy)
        self.info = info
        self.labels: deque[int] | None = None
        self.discarded = 0
        self._recorder = recorder
        self._position = position
        self._show = show
        self._prepare()

    def share(self) -> None:
        """Prepare for several feeders."""
        super().share()
        self._prepare()

    def _prepare(self) -> None:
        # A queue has a lock if producers share it or if it drops its oldest message.
        if self.lock is not None:
            self.labels = deque()
        self.popleft = _showing_result(self._recorder.taking(self, self._position), self._show)

    def discard(self) -> None:
        """Take a message that is not received, and record that."""
        recorder = self._recorder
        with nullcontext() if self.lock is None else self.lock:
            super().popleft()
            self.discarded += 1
            label = 0 if self.labels is None else self.labels.popleft()
            recorder.log.extend((FIRST_DISCARD - KINDS * self._position, label, recorder.now(), 0))


class Tap(MessageCounter):
    """Stands between an output and one queue behind it: records and passes on every message.

    Parameters
    ----------
    behind
        The queue.
    output
        The output in the observation.
    recorder
        The recorder of the operator that emits.
    show
        Called with every message, if somebody watches the data; given to the first tap of an output.

    Attributes
    ----------
    offer
        Passes on a message; made for the kind of queue behind.
    replayed
        The number of messages that a captured segment passed on in replays, and that came through no queue.
    """

    __slots__ = ("_count", "_most", "offer", "output", "replayed")

    behind: ObservedQueue
    offer: Callable[[Any], None]  # type: ignore[assignment]

    def __init__(
        self, behind: ObservedQueue, output: OutputInfo, recorder: NodeRecorder, show: Show | None
    ) -> None:
        self._count: Callable[[], int] = int
        self._most: Callable[[], int]
        self.replayed = 0
        super().__init__(behind)
        self.output = output
        position = len(recorder.taps)
        recorder.taps.append(self)
        behind.info.taps.append(self)
        behind.info.outputs.append(output)
        offer, self._count, self._most = recorder.offering(self, position)
        self.offer = _showing_argument(offer, show)

    @property
    def passed_on(self) -> int:
        """The number of messages so far."""
        return self._count() + self.replayed

    @passed_on.setter
    def passed_on(self, count: int) -> None:
        """Do nothing: `offer` counts."""

    @property
    def most(self) -> int:
        """The largest number of messages that waited once one of these had been added."""
        return self._most() or int(self.replayed > 0)


class UnconnectedTap(MessageCounter):
    """Stands before the queue of an unconnected output, which drops everything."""

    __slots__ = ("_show",)

    def __init__(self, behind: Queue, show: Show | None) -> None:
        super().__init__(behind)
        self._show = show

    def offer(self, item: Any) -> None:
        """Show a message, if somebody watches the data, and drop it."""
        if self._show is not None:
            self._show(item)
        super().offer(item)


def _showing_result(take: Callable[[], Any], show: Show | None) -> Callable[[], Any]:
    """Return a `take` whose results are shown."""
    if show is None:
        return take

    def take_and_show() -> Any:
        item = take()
        show(item)
        return item

    return take_and_show


def _showing_argument(offer: Callable[[Any], None], show: Show | None) -> Callable[[Any], None]:
    """Return an `offer` whose arguments are shown."""
    if show is None:
        return offer

    def show_and_offer(item: Any) -> None:
        show(item)
        offer(item)

    return show_and_offer
