"""The operators of `export_topic` and `import_topic`: a sink that publishes, and a source that receives.

Messages of the device. The sink hands each message to the thread of the publication, with an event after the work
that makes it. That thread waits for the event, copies, and only then lets go of the message. So no operator and no
stream waits for a subscriber, and the memory is not reused before the copy is complete.

The end of a run. A message that was published shall arrive. So the sink holds the run open while messages wait to
be sent. This takes a moment if the subscribers are alive, and the link gives up those that are frozen. A run that
is stopped does not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from headrace.core.condition import Condition
from headrace.core.operator import Operator
from headrace.core.ports import ConditionType, SchedulingStatusType

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime import Node
    from headrace.core.clock import Clock
    from headrace.core.composition import Composition
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.spec import OperatorSpec
    from headrace.topics.publication import Publication
    from headrace.topics.subscription import Subscription

_READY, _WAIT = SchedulingStatusType.READY, SchedulingStatusType.WAIT
_WAIT_EVENT, _NEVER = SchedulingStatusType.WAIT_EVENT, SchedulingStatusType.NEVER


class ExportTopicOp(Operator):
    """Publishes what it receives; `Fragment.export_topic` makes it.

    Parameters
    ----------
    fragment, topic, name
        The fragment that it belongs to, the topic, and the name.
    make
        Makes the publication at the start of a run, which gives the name of the program and what to call when there
        is room.

    Attributes
    ----------
    publication
        The topic and its subscribers, in a run.
    """

    parallel = True  # a message is copied, and sent or received

    publication: Publication | None = None

    def __init__(
        self, fragment: Composition, topic: str, make: Callable[..., Publication], *, name: str
    ) -> None:
        self._topic, self._make = topic, make
        self._may_publish = _MayPublish(fragment, name="may_publish")
        self._may_publish.operator = self
        super().__init__(fragment, self._may_publish, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the input. It drops nothing: each subscriber has a queue, with the policy of the topic."""
        spec.input("in").condition(ConditionType.NONE)

    def start(self) -> None:
        """Announce the topic."""
        program, on_room = self.fragment._headrace.whole.name, self._may_publish.notify_scheduler
        time_base = _clock_of(self).time_base
        self.publication = self._make(program=program, time_base=time_base, on_room=on_room)

    def compute(self, op_input: InputContext, op_output: Any, context: ExecutionContext) -> None:
        """Publish the messages that wait: an operator may emit several at once."""
        node, publication = cast("Node", self._headrace.node), self.publication
        assert publication is not None
        waiting = self._may_publish.receiver("in")
        while True:
            data = op_input.receive("in")
            event = node.streams.hand_out(node.input.ports[0], ())
            timestamp = op_input.get_acquisition_timestamp("in")
            metadata = dict(self.metadata) or None
            publication.publish(data, acq_timestamp=timestamp, metadata=metadata, event=event)
            if not (waiting.size and publication.has_room):
                return
            node.input.clear()  # the timestamp, which is that of the first message otherwise
            self.metadata.clear()

    def stop(self) -> None:
        """Tell the subscribers that the topic has ended."""
        publication = self.publication
        if publication is None:
            return
        publication.close()
        self.logger.info(
            "topic %r: %d messages published, %d sent, %d lost",
            self._topic,
            publication.published,
            publication.sent,
            publication.lost,
        )


def _clock_of(operator: Operator) -> Clock:
    """Return the clock of the run of an operator."""
    clock: Clock = cast("Node", operator._headrace.node).engine.clock
    return clock


class _MayPublish(Condition):
    """Lets a message be published when there is room, and holds the run open while messages wait to be sent."""

    polled = False
    operator: ExportTopicOp

    def evaluate(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Check it, also while it waits for an event: a message that arrives at the input is one, too."""
        self._headrace.awaits_event = False
        return super().evaluate(timestamp)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return whether a message can be published."""
        publication = self.operator.publication
        assert publication is not None
        if self.receiver("in").size:
            return (_READY if publication.has_room else _WAIT_EVENT), None
        return (_WAIT if publication.is_idle else _WAIT_EVENT), None


class ImportTopicOp(Operator):
    """Emits the messages of a topic; `Fragment.import_topic` makes it.

    Parameters
    ----------
    fragment, topic, *conditions, name
        The fragment that it belongs to, the topic, what else it waits for, and the name.
    make
        Makes the subscription at the start of a run, which gives the name of the program and what to call when
        something has come.
    ends_with_topic
        Whether it ends when the topic has ended.

    Attributes
    ----------
    subscription
        The topic as this program receives it, in a run.
    """

    parallel = True  # a message is copied, and sent or received

    subscription: Subscription | None = None

    def __init__(
        self,
        fragment: Composition,
        topic: str,
        make: Callable[..., Subscription],
        *conditions: Condition,
        ends_with_topic: bool,
        name: str,
    ) -> None:
        self._topic, self._make = topic, make
        self._has_message = _HasMessage(fragment, name="has_message")
        self._has_message.operator = self
        self._has_message.ends_with_topic = self.ends_with_topic = ends_with_topic
        super().__init__(fragment, self._has_message, *conditions, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("out")

    def start(self) -> None:
        """Look for a publisher, from now on."""
        program, on_change = self.fragment._headrace.whole.name, self._has_message.notify_scheduler
        self._time_base = _clock_of(self).time_base
        self._has_warned = False
        self.subscription = self._make(program=program, on_change=on_change)

    def compute(self, op_input: Any, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit the next message, with the metadata and the time that it came with."""
        assert self.subscription is not None
        message = self.subscription.take()
        if message is None:
            return
        if message.metadata:
            self.metadata.update(message.metadata)
        timestamp = message.acquired(self._time_base)
        if timestamp is None and message.acq_timestamp is not None and not self._has_warned:
            self._has_warned = True
            self.logger.warning(
                "topic %r: its messages come without their acquisition timestamps, which mean nothing here: %s "
                "runs in simulated time, or at another speed (this is logged once)",
                self._topic,
                "this program" if self._time_base is None else "its publisher",
            )
        op_output.emit(message.data, "out", acq_timestamp=-1 if timestamp is None else timestamp)

    def end(self, op_input: Any, op_output: OutputContext, context: ExecutionContext) -> None:
        """Leave the topic: a publisher that waits for its subscribers must not wait for this one any more."""
        assert self.subscription is not None
        self.subscription.close()

    def stop(self) -> None:
        """Leave the topic, unless its end did."""
        subscription = self.subscription
        if subscription is None:
            return
        subscription.close()
        self.logger.info(
            "topic %r: %d messages received, %d missed, %d not taken",
            self._topic,
            subscription.received,
            subscription.missed,
            subscription.undelivered,
        )


class _HasMessage(Condition):
    """Lets the operator run while there are messages."""

    polled = False
    depends_on_ports = False
    operator: ImportTopicOp
    ends_with_topic: bool

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return whether a message waits; without one, wait for the topic or end with it."""
        subscription = self.operator.subscription
        assert subscription is not None
        # Read first: the last messages come before the end.
        has_ended = subscription.has_ended
        if subscription.waiting:
            return _READY, None
        return (_NEVER if has_ended and self.ends_with_topic else _WAIT_EVENT), None
