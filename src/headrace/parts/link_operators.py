"""SendToPart, ReceiveFromPart: the two ends of a flow between parts, as operators of an ordinary graph.

`SendToPart` has the queue that the producers of its part emit into. If messages may not make room for others there
(`CutFlow.keeps_places`), a message keeps its place in that queue from the moment it is emitted until its receiver
has taken it. It is sent as it lies there, and removed when its credit comes back. So there are as many places as in
one process, and the producers wait exactly when they would there. The queue in the other part has the same size
and never overflows. If the queue drops messages (POP, LATEST), a message is removed when it is sent, which takes a
credit. The queue of the other part drops by the same policy; the credit comes back when the message arrives there.

`ReceiveFromPart` passes on what arrived and gives the credits back. It is looked at after each compute of its
receiver, as every operator with a condition on the room behind it. A queue that tells of each message that is taken
was decided against: observers make queues of their own, and a credit in the middle of `receive` would be a system
call in the receiver's compute.

The end of a stream travels as END, behind the last message. From then on nobody waits for places, so all credits
come back at once. A receiver that has ended says END to its sender, which is then an operator that has ended: its
producers wait in vain, as for every such operator. A run that fails says ABORT with its error. A run that was
stopped stops its peers the same way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace._runtime import Envelope, open_message, seal_message
from headrace.conditions.cuda_stream import CudaStreamCondition
from headrace.core.construction import Inner
from headrace.core.errors import LinkError, RunStopped
from headrace.core.graph import Beyond
from headrace.core.operator import InnerOperator, Operator
from headrace.core.ports import ConditionType, IOSpec, SchedulingStatusType
from headrace.link.protocol import Sample
from headrace.parts.cut_flow import FlowCounts

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.spec import OperatorSpec
    from headrace.parts.cut_flow import CutFlow
    from headrace.parts.idleness import PartIdleness

_READY = (SchedulingStatusType.READY, None)
_WAIT_EVENT = (SchedulingStatusType.WAIT_EVENT, None)
_NEVER = (SchedulingStatusType.NEVER, None)
_CLOSED = (-1, -1)  # nothing goes along the flow any more
_END, _NOTHING = object(), object()
_MOMENT = 1.0  # seconds; longer than a thread takes to deliver a message
_new = tuple.__new__  # makes a named tuple without a call of Python
_POP = IOSpec.QueuePolicy.POP
_LATEST = IOSpec.QueuePolicy.LATEST
_REJECT = IOSpec.QueuePolicy.REJECT
_FAULT = IOSpec.QueuePolicy.FAULT


class _InnerLinkOperator(InnerOperator):
    moves_messages = True

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        self.beyond: Beyond = Beyond()


class LinkOperator(Operator):
    """What both ends of a flow have in common.

    `has_news` is set by any thread. The rest is changed with `_lock` held, or before the run begins.

    Attributes
    ----------
    has_news
        Whether something has happened at the link since the last compute began.
    is_done
        Whether nothing more will be sent or arrive.
    is_given_up
        Whether the link has failed, and this part goes on without the other one.
    """

    parallel = True  # a message is copied, and sent or received

    _headrace = Inner(_InnerLinkOperator)

    def __init__(
        self,
        fragment: Composition,
        flow: CutFlow,
        port: str,
        on_failure: Callable[[BaseException], object],
        idleness: PartIdleness,
    ) -> None:
        self.flow = flow
        self.idleness = idleness
        self.has_news = True
        self.is_done = False
        self._port = port
        self._part = flow.source if isinstance(self, SendToPart) else flow.target
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._engine: Any = None
        self._link: Any = None
        self._next_links: deque[Any] = deque()
        self._has_failed = False
        self.is_given_up = False
        # When each message of the first link was sent or taken, if somebody wants to know.
        self._now: Callable[[], int] | None = None
        self._times: list[int] = []
        self._is_stalled = False  # whether a message could not be sent though there was a credit for it
        self._was_looked_at = False  # whether it was asked if it waits for its link, since the lock was taken
        self._headrace.construct(fragment, (), flow.name, {})
        self._condition = LinkCondition(self, name="link")
        self.conditions[self._condition.name] = self._condition

    def connect(self, link: Any) -> None:
        """Use a link, from the next compute on; in the place of one that failed, perhaps."""
        link.on_event = self.on_event
        self._next_links.append(link)
        self._has_failed = False
        if self.is_done:
            self._refuse_links()
        else:
            self.on_event()

    def _refuse_links(self) -> None:
        """Tell links that came too late that nothing more is sent or taken."""
        with suppress(IndexError):
            while True:
                link = self._next_links.popleft()
                self._say_end(link)
                link.close()

    def _say_end(self, link: Any) -> None:
        """Tell a link that nothing more is sent or taken; a receiver does so by closing it."""

    def note_times(self, now: Callable[[], int]) -> None:
        """Note when each message is sent or taken, until the link fails: another one begins with other messages."""
        self._now = now

    def take_times(self) -> list[int]:
        """Return the times that were noted since the last call; from any thread."""
        times = self._times
        count = len(times)
        found, times[:count] = times[:count], []
        return found

    def give_up(self) -> None:
        """End without the other end, whose link has failed.

        A sender drops and counts what is sent, so that nobody waits for it. A receiver passes on what has arrived.
        """
        self.is_given_up = self.has_news = True
        self._condition.notify_scheduler()

    def on_event(self) -> None:
        """Handle what happened at the link, in the next compute; called from any thread."""
        self.has_news = True
        link = self._latest if self._next_links else self._link
        failure = None if link is None else link.failure
        if failure is not None and not self._has_failed and not self.is_done:
            self._has_failed = True
            cause = failure.__cause__
            if isinstance(cause, RunStopped):
                # If nothing can run in any part, this one is told so as well, and what starves in it.
                if cause.ended_by or self.idleness.on_idle is None:
                    self.fragment._headrace.run_control.stop(cause.ended_by)
            else:
                self._on_failure(failure)
        self._condition.notify_scheduler()

    @property
    def _latest(self) -> Any:
        """The link that the flow was given last."""
        try:
            return self._next_links[-1]
        except IndexError:
            return self._link

    def start(self) -> None:
        """Use the link that the flow was given."""
        if not self._next_links:
            raise LinkError(f"flow {self.flow.name!r} has no link; connect it before the run (Cut.connect)")
        self._change_link()
        engine: Any = self.fragment._headrace.engine
        self._engine = engine
        self.idleness.begin(engine)

    def _can_change(self, link: Any) -> bool:
        """Return whether there is a new link, and the one before has nothing more to say."""
        return bool(self._next_links) and (link.failure is not None or link.has_ended)

    def _change_link(self) -> None:
        before, self._link = self._link, self._next_links.popleft()
        if before is not None:
            self._now = None
            before.close()

    def stop(self) -> None:
        """Tell the other end how the run ended, and give up the link."""
        control: Any = self.fragment._headrace.run_control
        self.leave(control.error, "" if control.engine is None else control.engine.ended_by)

    def leave(self, error: BaseException | None, ended_by: str) -> None:
        """Tell the other end that the run has ended with an error, or as `ended_by` says, and give up the link."""
        # A message that is being delivered is in its queue first, where it is counted. A handler that the program
        # installed during the run may have raised between the lock and its release.
        is_interrupted = error is not None and not isinstance(error, Exception)
        is_locked = waits.acquire(self._lock, _MOMENT if is_interrupted else None)
        link, earlier = self._latest, [self._link, *self._next_links]
        self._link = None
        self._next_links.clear()
        if is_locked:
            self._lock.release()
        for each in earlier:
            if each is not None and each is not link:
                each.close()
        if link is None:
            return
        try:
            if not self.is_done and link.failure is None:
                # Not END, after which the operators of the other part would go on to their ends.
                reason = error or RunStopped(f"the run of fragment {self._part!r} was ended", ended_by)
                link.abort(reason, self._part)
        finally:
            link.close()

    def announce(self) -> None:
        """Let a worker evaluate its condition; from any thread."""
        self._condition.notify_scheduler()

    # What is asked, or told, with the lock of the engine held.

    @property
    def waits_beside_others(self) -> bool:
        """Whether it waits for room in a queue that it shares with others."""
        return False

    @property
    def is_over(self) -> bool:
        """Whether nothing more arrives or leaves; the last messages may wait here, and nobody for their credits."""
        link = self._link
        return self.is_done or self.is_given_up or (link is not None and link.has_ended)

    @property
    def is_outstanding(self) -> bool:
        """Whether the run goes on because of this operator."""
        node: Any = self._headrace.node
        return bool(node.awaited.outstanding)

    @property
    def waits_for_link(self) -> bool:
        """Whether it waits for a message or a credit of the other part, and for nothing else.

        A sender without memory waits for an answer or for slots, of which neither end has a count. So it may go on
        though both ends have counted the same.
        """
        self._was_looked_at = True  # before the lock: whoever holds it looks at this afterwards
        is_busy = self.has_news or self._lock.locked() or self.has_work or self._is_stalled
        has_failed = self._has_failed and not self.is_given_up
        return not (is_busy or has_failed or self._condition.waits_for_device)

    @property
    def has_work(self) -> bool:
        """Whether a compute has something to do, besides what has happened at the link."""
        raise NotImplementedError

    def counts(self) -> FlowCounts:
        """Return how many messages this end has seen."""
        raise NotImplementedError


class LinkCondition(CudaStreamCondition):
    """Lets a link operator run when there is something to send, to pass on or to give back.

    It waits for an event otherwise, because the run is not over while another part may send or take something.
    """

    def __init__(self, operator: LinkOperator, name: str) -> None:
        super().__init__(name=name)
        self.operator = operator

    @property
    def port_names(self) -> tuple[str, ...]:
        """None: the ports have no conditions."""
        return ()

    def initialize(self) -> None:
        """Leave the inputs as they are."""

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY if there is something to do, and NEVER if there never will be."""
        operator = self.operator
        if operator.idleness.decided is not None:
            operator.idleness.settle()
        if operator.is_done:
            return _NEVER
        if operator.waits_beside_others:
            return _WAIT_EVENT  # and not for room alone: the run would be over if nothing else could run
        return _READY if operator.has_news or operator.has_work else _WAIT_EVENT

    evaluate = check  # anew each time: a message may come before what was waited for

    @property
    def waits_for_device(self) -> bool:
        """Whether the device has to finish the work behind a message first."""
        return self._awaited is not None

    def is_complete(self, message: Envelope) -> bool:
        """Return whether the device has done the work behind a message with fences; otherwise it will call back."""
        return self._is_done(message)


class SendToPart(LinkOperator):
    """Sends what the operators of its part emit to another part."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # Messages that were sent over this link; those of them that wait for their credits; those lost with a link.
        self._over_link = 0
        self._out = 0
        self._lost = 0
        self._repeated = 0  # messages that were sent again over a new link
        self._taken_back = 0  # messages that their receivers have taken
        # A message that was taken from a queue that drops, and could not be sent yet.
        self._held: list[Any] = []
        self._has_said_end = False

    def setup(self, spec: OperatorSpec) -> None:
        """Declare an input like that of the receiver; its size comes with the flows into it."""
        policy = self.flow.policy
        if self.flow.keeps_places and policy is not _REJECT:
            policy = _FAULT
        elif policy is _LATEST:
            policy = _POP  # of one place; the receiver keeps the newest one
        spec.input(self._port, policy=policy).condition(ConditionType.NONE)

    @property
    def _queue(self) -> Any:
        assert self._headrace.node is not None
        return self._headrace.node.input_queues[self._port][0]

    @property
    def has_work(self) -> bool:
        """Whether a message can be sent, or the end of the stream."""
        if self.is_given_up:
            return len(self._queue) > 0 or self._queue.has_ended
        if self._link is None:
            return False
        return self._find_next(self._queue) is not _NOTHING

    def _find_next(self, queue: Any) -> Any:
        """Return the message that can be sent next, `_END`, or `_NOTHING`."""
        if self._is_stalled or self._has_failed:
            return _NOTHING
        # Before the messages: all of them are in the queue then. Another worker may add the last one just now.
        has_ended = queue.has_ended
        out = self._out
        if self.flow.keeps_places:
            message = queue[out] if len(queue) > out else _END
        elif self._held:
            message = self._held[0]
        else:
            message = queue.peek() if len(queue) else _END
        if message is _END:
            return _END if has_ended and not self._has_said_end else _NOTHING
        if out >= self.flow.size:
            return _NOTHING
        if type(message) is Envelope and message.has_fences and not self._condition.is_complete(message):
            return _NOTHING
        return message

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Take the credits that came back, and send what waits."""
        with self._lock:
            if self.has_news or self.is_given_up:
                self.has_news = self._is_stalled = False
                if not self._note_news():
                    return
            link, queue = self._link, self._queue
            while (message := self._find_next(queue)) is not _NOTHING:
                if message is _END:
                    link.end()
                    self._has_said_end = True
                elif not self._send(link, queue, message):
                    self._is_stalled = True
            self.is_done = self._has_said_end and not self._out
            if self.is_done:
                self._refuse_links()

    def _note_sent(self, sent: int) -> None:
        self._over_link += 1
        self._out += 1
        if self._now is not None:
            self._times.append(sent)

    def _note_news(self) -> bool:
        """Note what has happened at the link; return whether messages can be sent."""
        if self.is_given_up:
            self._drop()
            return False
        link = self._link
        has_ended = link.has_ended  # before the credits are taken: all of them have come then
        returned = link.take_credits()
        if returned:
            self._take_back(returned)
        while self._can_change(link):
            self._change_link()
            link = self._link
            has_ended = link.has_ended
        if link.failure is not None:
            return False
        if has_ended:
            link.end()
            self._has_said_end = self.is_done = True
            return False
        return True

    def _say_end(self, link: Any) -> None:
        link.end()

    def _send(self, link: Any, queue: Any, message: Any) -> bool:
        """Send the next message; return whether that was possible."""
        keeps_places = self.flow.keeps_places
        if not keeps_places:
            try:
                message = self._held.pop() if self._held else self._take(queue)
            except IndexError:  # a full queue dropped it
                return True
        sent = 0 if self._now is None else self._now()
        try:
            is_sent: bool = link.send(_new(Sample, (*open_message(message), -1)))
        except LinkError as error:
            if error is not link.failure:
                raise
            is_sent = False
        if is_sent:
            self._note_sent(sent)
        elif not keeps_places:
            self._held.append(message)
        return is_sent

    @property
    def is_unanswered(self) -> bool:
        """Whether messages keep their places here, because their receiver has not answered them.

        Those that it defers, as the first ones of a batch, are safe there and may wait for others that come of it.
        """
        kept = len(self._queue) if self.flow.keeps_places else 0
        if not kept or self.is_done or self.is_given_up:
            return False
        link = self._link
        return link is None or kept != self._out or link.deferred < self._over_link

    @property
    def is_keeping(self) -> bool:
        """Whether messages keep their places here, which would be sent again to a part that is started again."""
        return self.flow.keeps_places and len(self._queue) > 0 and not (self.is_done or self.is_given_up)

    @property
    def emitted(self) -> int:
        """How many messages were emitted into the flow."""
        return self._taken_back + len(self._queue)

    def is_answered(self, emitted: int) -> bool:
        """Return whether the receiver has answered so many messages, or nobody will."""
        return self._taken_back >= emitted or not self.is_keeping

    def _drop(self) -> None:
        queue = self._queue
        self._lost += len(self._held) + (0 if self.flow.keeps_places else self._out)
        self._out = 0
        self._held.clear()
        has_ended = queue.has_ended  # before the messages, as in `_find_next`
        while len(queue):
            self._take(queue)
            self._lost += 1
        self.is_done = has_ended

    def _take(self, queue: Any) -> Any:
        return queue.take() if queue.policy is _POP else queue.popleft()

    def _take_back(self, count: int) -> None:
        """Remove messages that their receiver has taken."""
        self._out -= count
        self._taken_back += count
        if self.flow.keeps_places:
            queue = self._queue
            for _ in range(count):
                queue.popleft()

    def _change_link(self) -> None:
        if self.flow.keeps_places:
            self._repeated += self._out  # they are sent again
        else:
            self._lost += self._out
        self._out = self._over_link = 0
        self._has_said_end = False
        super()._change_link()

    @property
    def passed(self) -> tuple[int, int]:
        """What left over this link, with the end of the stream, and what came back; or `_CLOSED`."""
        if self.is_given_up or (self._link is not None and self._link.has_ended):
            return _CLOSED
        return self._over_link + self._has_said_end, self._over_link - self._out

    def counts(self) -> FlowCounts:
        """Return how many messages left this part, and how many did not."""
        if self._headrace.node is None:
            return FlowCounts()
        queue = self._queue
        waiting = max(len(queue), queue.undelivered)
        if self.flow.keeps_places:
            waiting -= self._out
        waiting += len(self._held)
        return FlowCounts(
            self._taken_back + self._out,
            waiting,
            queue.dropped,
            self._lost,
            unanswered=self._out,
            over_link=self._over_link,
            repeated=self._repeated,
        )


class ReceiveFromPart(LinkOperator):
    """Passes on what the operators of another part emit."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # Messages that arrived over all links, and over this one; and the credits that were given back over it.
        self._arrived = 0
        self._here = 0
        self._given = 0
        self._has_more = False
        self._fed: Any = None  # the queue of the receiver
        self._behind: Any = None  # the port, whose queue may be one that counts
        self._is_closed = False
        self.is_acknowledging = False
        """Whether a credit also says that the part has done with a message what it does: nothing can run there."""
        self.awaited: tuple[SendToPart, ...] = ()
        """The senders of this part whose receivers must have answered first."""
        self._done = 0
        self._deferred = 0  # messages of this link that the sender knows to be deferred
        self._is_deferring = False
        self._given_before = -1
        # Messages of this link that cannot be lost any more; those after them were answered and may be, with the
        # parts that the driver was told. So many are safe when so many that came of them were answered.
        self._safe = 0
        self._safe_later: deque[tuple[int, tuple[int, ...]]] = deque()
        self._told: tuple[int, tuple[str, ...]] = (0, ())
        self._was_idle = False  # since the last compute

    def setup(self, spec: OperatorSpec) -> None:
        """Declare an output; credits see to it that there is room behind it."""
        output = spec.output(self._port)
        if not self.flow.is_shared:  # it waits for room with the others otherwise, for one place at a time
            output.condition(ConditionType.NONE)

    def start(self) -> None:
        """Use the link that the flow was given."""
        super().start()
        queue = self._queue
        queue.state.is_awaited_elsewhere = self.flow.keeps_places
        self._fed = queue
        self._behind = self._headrace.node.output.ports[self._port]  # type: ignore[union-attr]

    @property
    def _queue(self) -> Any:
        assert self._headrace.node is not None
        return self._headrace.node.output_queues[self._port][0]

    def _owed(self, queue: Any) -> int:
        """Return how many credits can be given back; less than 0 if others have added to a shared queue since."""
        if self.is_acknowledging:
            return self._done - self._given
        # Those of others in a shared queue count, too: credits may come late, but one does whenever there is room.
        waiting = len(queue) if self.flow.keeps_places else 0
        # Those of an earlier link come first.
        return (self._here - waiting if waiting < self._here else 0) - self._given

    def _taken(self) -> int:
        """Return how many messages of this link their receiver has taken; those of an earlier link come first."""
        return self._here - min(len(self._queue), self._here)

    @waits.shielded
    def note_idle(self) -> None:
        """Return the credits of what was taken: the part has done with it what it does.

        It needs no room in a shared queue to note the end of the stream.
        """
        self._was_idle = True
        if self.waits_beside_others and self._link.has_ended:
            self._queue.state.line.forgo(self._headrace.node)
            self._condition.notify_scheduler()
        if self._lock.acquire(blocking=False):  # otherwise a message is being delivered
            try:
                if self.is_acknowledging:
                    if not any(sender.is_unanswered for sender in self.awaited):
                        self._answer()
                    self._note_safe(is_idle=True)
                self._defer()
            finally:
                self._lock.release()

    @property
    def is_withholding(self) -> bool:
        """Whether there are messages that were taken and not answered: what came of them is not safe elsewhere."""
        return self.is_acknowledging and self._link is not None and self._taken() > self._done

    @waits.shielded
    def answer(self) -> None:
        """Return the credits of all that was taken."""
        if self._lock.acquire(blocking=False):
            try:
                self._answer(is_early=True)
            finally:
                self._lock.release()

    @waits.shielded
    def relieve(self) -> None:
        """Let no sender wait because something can always run in this part, if no credit was returned since.

        It is called now and then, from any thread.
        """
        if self._link is None or not self._lock.acquire(blocking=False):
            return
        self._was_looked_at = False
        try:
            if self._link is not None and self._given == self._given_before and not self._was_idle:
                if self._taken() - self._given >= self.flow.size:
                    self._answer(is_early=True)
                self._defer()
            self._given_before = self._given
            self._note_safe()
            if self._told[0] and self._done == self._safe:
                self._tell_risk(0, ())
        finally:
            self._unlock()

    # With `_lock` held: a message that is being delivered counts before it is in its queue, as if it were taken.

    def _answer(self, is_early: bool = False) -> None:
        """Return the credits of what was taken; early ones before it is known where that is safe."""
        if not self.is_withholding:
            return
        done = self._taken()
        holders = {sender.flow.target for sender in self.awaited if sender.is_keeping}
        if is_early:
            holders.add(self._part)
        self._note_safe()
        count, known = self._told
        at_risk = done - self._safe
        if holders and (at_risk > count or not holders.issubset(known)):
            self._tell_risk(max(at_risk, count), tuple(sorted(holders.union(known))))
        self._done = done
        self._condition.notify_scheduler()

    def _note_safe(self, is_idle: bool = False) -> None:
        """Note which of the answered messages are safe; in an idle part, all that comes of them was emitted."""
        later = self._safe_later
        if is_idle and self._done > (later[-1][0] if later else self._safe):
            later.append((self._done, tuple([sender.emitted for sender in self.awaited])))
        while later and all(map(SendToPart.is_answered, self.awaited, later[0][1])):
            self._safe = later.popleft()[0]

    def _tell_risk(self, count: int, holders: tuple[str, ...]) -> None:
        """Tell the driver how many messages are lost at most if this part is lost, and one of the holders.

        It knows that before the sender forgets them. Fewer are told of now and then, so that batches do not wake
        the driver.
        """
        self._told = count, holders
        if self.idleness.on_risk is not None:
            self.idleness.on_risk(self.flow.name, count, holders)

    def _defer(self) -> None:
        """Tell a sender that waits for answers that what is left here waits for more messages.

        An operator that takes batches is an example: its part would wait for messages that its sender holds back.
        """
        if not self.flow.is_answer_awaited or self._here == self._deferred:
            return
        if len(self._queue) and not self.is_withholding:
            self._is_deferring = True
            self._condition.notify_scheduler()

    @property
    def has_work(self) -> bool:
        """Whether there are credits to give back, or room for more messages, or nobody takes any."""
        link = self._link
        if link is None:
            return False
        # The link itself is asked: until it is told of a failure, computes that cannot give credits would go on.
        has_failed = link.failure is not None
        if has_failed and not (self.is_given_up or self._next_links):
            return False
        queue = self._queue
        if self._is_deferring and not has_failed:
            return True
        if self.flow.keeps_places and (
            queue.consumer.retired or (self._has_more and len(queue) < queue.limit)
        ):
            return True
        return not has_failed and self._owed(queue) > 0

    def _unlock(self) -> None:
        """Release the lock, and have the part looked at again if it was not idle because of that alone."""
        self._lock.release()
        if self._was_looked_at:
            self._condition.notify_scheduler()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Pass on what arrived, and give credits back."""
        with self._lock:
            self._compute()

    def _compute(self) -> None:
        self.has_news = self._was_idle = False
        link, queue = self._link, self._fed
        self._pass_on(link.take, queue)
        # If nobody takes messages any more, there will be no room for those of the link before.
        while self._can_change(link) and (queue.consumer.retired or not self._has_more):
            self._change_link()
            link = self._link
            self._pass_on(link.take, queue)
        if link.failure is not None:
            self.is_done = self.is_given_up and (queue.consumer.retired or not self._has_more)
            return
        # At the end of the stream all come back: nobody waits for places there, and the sender ends with the last.
        has_ended = link.has_ended
        has_retired = queue.consumer.retired  # before the credits are counted: it takes no more of them then
        owed = self._here - self._given if has_ended and not self.is_acknowledging else self._owed(queue)
        if owed > 0:
            link.give_credits(owed)
            self._given += owed
        if self._is_deferring:
            self._is_deferring, self._deferred = False, self._here
            if len(queue):
                link.defer(self._here)
        if self.flow.keeps_places:
            self._note_places(queue)
        is_over = has_ended and (self._given == self._here or not self.is_acknowledging)
        if self.flow.keeps_places and has_retired and not is_over:
            link.close()
            self._is_closed = True
        self.is_done = self._is_closed or is_over
        if self.is_done:
            self._refuse_links()

    def _note_places(self, queue: Any) -> None:
        """Note whether the sender may wait for places; messages on their way are known when they arrive."""
        taken = self._here - self._given
        if not self.flow.is_shared:  # several count their own messages there
            queue.state.is_awaited_elsewhere = (
                self.flow.keeps_places and taken > self.flow.size - self.flow.room
            )

    def _pass_on(self, take: Callable[[], Sample | None], queue: Any) -> None:
        self._has_more = True
        while not self.flow.keeps_places or len(queue) < queue.limit:
            sample = take()
            if sample is None:
                self._has_more = False
                return
            if self._now is not None:
                self._times.append(self._now())
            # Before it can be taken: the compute that takes it lets credits be counted.
            self._arrived += 1
            self._here += 1
            self._note_places(queue)
            data, acq_timestamp, metadata, _ = sample
            message = seal_message(data, acq_timestamp, metadata)
            behind = self._behind.queues[0]
            if len(behind) < behind.capacity:
                behind.append(message)  # as `emit`
            else:
                behind.offer(message)
            if self.flow.is_shared:
                return

    def _change_link(self) -> None:
        super()._change_link()
        # Those of the link before are where they were.
        self._safe -= self._done
        self._safe_later = deque((done - self._done, emitted) for done, emitted in self._safe_later)
        self._here = self._given = self._done = self._deferred = 0

    @property
    def waits_beside_others(self) -> bool:
        """Whether it waits for room in a queue that it shares with others."""
        return self.flow.is_shared and not self.is_done and self._headrace.node.blockers > 0  # type: ignore[union-attr]

    @property
    def _waits_for_room(self) -> bool:
        """Whether what arrives cannot be passed on, as those of others or of an earlier link have the places."""
        queue = self._queue
        return bool(self.flow.keeps_places and len(queue) >= queue.limit)

    @property
    def waits_for_link(self) -> bool:
        """Whether it waits for the other part, or for room beside others."""
        if self.flow.is_shared and self._waits_for_room and not (self._lock.locked() or self._has_failed):
            return True
        return super().waits_for_link

    @property
    def passed(self) -> tuple[int, int]:
        """What arrived over this link, with the end of the stream, and what was given back; or `_CLOSED`."""
        if self._is_closed or self.is_given_up:
            return _CLOSED
        if self._link is not None and self._waits_for_room:
            return self._latest.arrived, 0 if self._next_links else self._given
        return self._here + (self._link is not None and self._link.has_ended), self._given

    def counts(self) -> FlowCounts:
        """Return how many messages reached the queue of their receiver."""
        return FlowCounts(arrived=self._arrived, over_link=self._here)
