"""FeedOp: a source whose frames the program puts in from outside, through `app.feed(name)`."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headrace.core.composition import Composition
from headrace.core.condition import Condition
from headrace.core.contexts import ExecutionContext, OutputContext
from headrace.core.errors import FeedClosedError, FeedFullError, GraphError, UnansweredError
from headrace.core.metadata import NO_CALLS, Call, Calls
from headrace.core.ports import SchedulingStatusType
from headrace.core.values import Duration, nanoseconds
from headrace.operators.channel import PENDING, ChannelEnd, ChannelOperator, caller_streams

if TYPE_CHECKING:
    from headrace._runtime import Node
    from headrace.core.spec import OperatorSpec
    from headrace.operators.results import Answer


class FeedOp(ChannelOperator):
    """Emits what the program puts into its feed, in order; it ends when the feed is closed.

    ``app.feed("its name")`` returns the :class:`Feed`. The run waits for it, and does not end before it is closed.

    Parameters
    ----------
    size
        The number of frames that may wait in the feed, 4 unless given; `put` waits while it is full.
    """

    feed: Feed
    """The end that the program uses."""

    def _open(self, fragment: Composition) -> Condition:
        condition = _HasFrame(fragment, name="has_frame")
        self.feed = condition.feed = Feed(self, condition)
        return condition

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("out")

    def initialize(self) -> None:
        """Check that no compute is tried again with its frame, which the feed does not have any more."""
        policy = self._headrace.error_policy
        if policy.retries and policy.same_message:
            raise GraphError(
                f"operator {self.name!r}: retry computes again with the messages of the failed compute, and a feed "
                "does not keep its frames; retry in the operator behind it, or set same_message=False to go on "
                "with the next frame"
            )

    def compute(self, op_input: Any, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit the next frame, ordered after the work that the program had launched when it put the frame."""
        frame = self.feed._take()
        if frame is None:  # a call that was withdrawn
            return
        if frame.calls:
            cast("Node", self._headrace.node).expect_details()
            cast("Node", self._headrace.node).output.pass_calls_on(frame.calls)
        if frame.events:
            stream = context.allocate_cuda_stream("feed")
            if stream is None:
                for event in frame.events:  # the pool has no stream left, so nothing else can carry the order
                    event.sync()
            else:
                for event in frame.events:
                    stream.stream.wait(event)
                op_output.set_cuda_stream(stream, "out")
        if frame.metadata:
            self.metadata.update(frame.metadata)
        op_output.emit(
            frame.data, "out", acq_timestamp=-1 if frame.acq_timestamp is None else frame.acq_timestamp
        )

    def stop_execution(self) -> None:
        """Never run this operator again in this run; its feed takes no more."""
        super().stop_execution()
        self.feed.close()


class Feed(ChannelEnd["_Frame"]):
    """The end of a :class:`FeedOp` that the program puts frames into, from any thread or task.

    In a ``with`` block, the end of the block closes it.
    """

    def __init__(self, operator: FeedOp, condition: Condition) -> None:
        super().__init__(operator, condition)
        self.undelivered = 0
        """The number of frames that were put and that the run, which has ended, did not take."""
        self._waiting: set[Future[Answer]] = set()
        self._control.call_at_end(self._end)

    def put(
        self,
        data: Any,
        *,
        metadata: dict[str, Any] | None = None,
        acq_timestamp: int | None = None,
        stream: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Put a frame in, and wait for room if the feed is full.

        Readers are ordered after the work on the streams that are current on this thread, and the frame stays alive
        until they have read it. It must not be written to any more.

        Parameters
        ----------
        data
            What the operator emits.
        metadata, acq_timestamp
            What travels with it: metadata, and when it was acquired, in nanoseconds.
        stream
            The stream of the work that makes the frame, for a program that makes no stream current.
        timeout
            The seconds to wait for room; for ever unless given.

        Raises
        ------
        FeedClosedError
            If the feed was closed or the run has ended.
        TimeoutError
            If there was no room in time; the frame was not put.
        BaseException
            The run's own exception, if the run has failed.
        """
        frame = _frame(data, metadata, acq_timestamp, stream)
        try:
            self._channel.wait(lambda: self._add(frame), timeout)
        except TimeoutError:
            raise TimeoutError(
                f"feed {self.name!r} was full for {timeout} s: {self._channel.size} frames wait, and the run "
                "takes none"
            ) from None
        self._announce()

    async def put_async(
        self,
        data: Any,
        *,
        metadata: dict[str, Any] | None = None,
        acq_timestamp: int | None = None,
        stream: Any = None,
    ) -> None:
        """Put a frame in as `put` does; a task of asyncio awaits room. A cancelled call has put nothing."""
        frame = _frame(data, metadata, acq_timestamp, stream)
        await self._channel.wait_async(lambda: self._add(frame))
        self._announce()

    async def call(
        self,
        data: Any,
        *,
        timeout: Duration | None = None,
        metadata: dict[str, Any] | None = None,
        acq_timestamp: int | None = None,
        stream: Any = None,
    ) -> Any:
        """Put a frame in, and await the result that stems from it, from whichever results it comes.

        Parameters
        ----------
        timeout
            How long to wait for the answer, in real time.
        data, metadata, acq_timestamp, stream
            As for `put`. The answer is safe to use on `stream`, or else on the current streams.

        Raises
        ------
        FeedFullError
            If the feed has no room; nothing was put, and the caller may try again later.
        FeedClosedError
            If the feed was closed, or the run has ended or ends before the answer.
        TimeoutError
            If the answer did not come in time.
        UnansweredError
            If no message that stems from the frame is left.
        BaseException
            The exception of the operator that failed with the frame, or of the run.
        """
        import asyncio

        seconds = None if timeout is None else nanoseconds(timeout, "timeout") / 1e9
        future: Future[Answer] = Future()
        self._channel.change(lambda: self._begin(future, _frame(data, metadata, acq_timestamp, stream)))
        self._announce()
        try:
            async with asyncio.timeout(seconds) as limit:
                answer = await asyncio.wrap_future(future)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"feed {self.name!r}: a call had no answer after {seconds:g} s") from None
        except UnansweredError:
            failure = self._control.failure or self._control.error
            if failure is not None:
                raise failure from None
            if self._control.is_stopping or self._control.has_ended:
                raise self._has_ended_before() from None
            raise
        finally:
            self._channel.change(lambda: self._withdraw(future))
        return answer.take(stream)

    def close(self) -> None:
        """Put no more: the source ends when the frames that wait have been emitted; may be called repeatedly."""
        self._channel.change(lambda: setattr(self._channel, "is_closed", True))
        self._announce()

    @property
    def is_closed(self) -> bool:
        """Whether the feed takes no more frames."""
        return self._channel.is_closed

    def _add(self, frame: _Frame) -> Any:
        channel, control = self._channel, self._control
        if control.has_ended:
            if control.failure is not None:
                raise control.failure
            raise FeedClosedError(
                f"feed {self.name!r}: its run has ended, so nobody takes the frame; put frames while the "
                "application runs, in a block `with app.running():`"
            )
        node = self._operator._headrace.node
        if channel.is_closed or (node is not None and node.status() is SchedulingStatusType.NEVER):
            why = "was closed" if channel.is_closed else "has an operator that has ended"
            raise FeedClosedError(f"feed {self.name!r} {why}, so it takes no more frames")
        if channel.is_full:
            return PENDING
        channel.items.append(frame)
        return None

    def _begin(self, future: Future[Answer], frame: _Frame) -> None:
        """Put the frame of a call in, or raise if there is no room."""
        if self._add(frame._replace(calls={Call(future): ()})) is PENDING:
            raise FeedFullError(
                f"feed {self.name!r} is full: {self._channel.size} frames wait (its `size`); call again later"
            )
        self._waiting.add(future)

    def _has_ended_before(self) -> FeedClosedError:
        return FeedClosedError(f"feed {self.name!r}: the run has ended before the answer to a call")

    def _withdraw(self, future: Future[Answer]) -> None:
        """Forget a call that is over, and its frame, if that still waits."""
        self._waiting.discard(future)
        for place, frame in enumerate(self._channel.items):
            if any(call.future is future for call in frame.calls):
                del self._channel.items[place]
                return

    def _take(self) -> _Frame | None:
        """Take the next frame; None if that was withdrawn."""

        def take() -> _Frame | None:
            return self._channel.items.popleft() if self._channel.items else None

        frame: _Frame | None = self._channel.change(take)
        return frame

    def _end(self) -> None:
        """Note that the run has ended; drop what it did not take, and wake whoever waits for room."""
        for future in list(self._waiting):
            Call(future).fail(self._control.failure or self._has_ended_before())

        def drop() -> None:
            self.undelivered = len(self._channel.items)
            self._channel.items.clear()
            self._channel.is_closed = True

        self._channel.change(drop)


class _Frame(NamedTuple):
    """A frame in a feed, with the events of the work that makes it."""

    data: Any
    events: list[Any]
    metadata: dict[str, Any] | None
    acq_timestamp: int | None
    calls: Calls


def _frame(data: Any, metadata: dict[str, Any] | None, acq_timestamp: int | None, stream: Any) -> _Frame:
    events = [each.record() for each in caller_streams(stream)]
    return _Frame(data, events, None if metadata is None else dict(metadata), acq_timestamp, NO_CALLS)


class _HasFrame(Condition):
    """Lets the operator run while its feed has frames, and never again when it is closed and empty."""

    polled = False
    depends_on_ports = False
    feed: Feed

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return whether a frame waits."""
        channel = self.feed._channel
        # Read first: a frame may be put between two reads, but none after the feed was closed.
        is_closed = channel.is_closed
        if channel.items:
            return SchedulingStatusType.READY, None
        return (SchedulingStatusType.NEVER if is_closed else SchedulingStatusType.WAIT_EVENT), None
