"""ResultsOp: a sink whose frames the program takes out, through `app.results(name)`.

Lifetimes. A frame that was taken out is read on streams that the run does not know. They are made known to the
operator's node, which then keeps the frame until they have passed the point where the program let go of it
(`NodeStreams.hand_out`). Only a compute can do that. So a frame that was taken out stays in `_lent` until the
next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headrace.core.composition import Composition
from headrace.core.condition import Condition
from headrace.core.contexts import ExecutionContext, InputContext
from headrace.core.errors import GraphError, ParameterError
from headrace.core.graph import queues_of
from headrace.core.metadata import Path, part_at
from headrace.core.ports import ConditionType, SchedulingStatusType
from headrace.operators.channel import PENDING, CallerStream, ChannelEnd, ChannelOperator, caller_streams

if TYPE_CHECKING:
    from headrace._runtime import Node
    from headrace.core.spec import OperatorSpec


class ResultsOp(ChannelOperator):
    """Holds what it receives until the program takes it out, in order; answers to calls go to their callers.

    ``app.results("its name")`` returns the :class:`Results`. While they are full, the operator receives nothing, so
    that the operators before it wait, too.

    Parameters
    ----------
    size
        The number of frames that may wait to be taken out, 4 unless given.
    """

    results: Results
    """The end that the program uses."""

    def _open(self, fragment: Composition) -> Condition:
        if self._headrace.replication.options is not None:
            raise ParameterError(
                f"operator {self.name!r} has workers=, and a program takes results from one operator; replicate "
                "the operators before it"
            )
        condition = _HasRoom(fragment, name="has_room")
        self.results = condition.results = Results(self, condition)
        return condition

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the input."""
        spec.input("in")

    def initialize(self) -> None:
        """Check that it waits for messages; otherwise it would hold the same one again and again."""
        if any(queue.least == 0 for queue in queues_of(self, self.spec.inputs["in"])) or any(
            wanted.kind is ConditionType.NONE for wanted in self.spec.inputs["in"].conditions
        ):
            raise GraphError(
                f"operator {self.name!r}: its input waits for no message, so the same result would come again and "
                "again; to keep the newest only, use the policy POP"
            )

    def compute(self, op_input: InputContext, op_output: Any, context: ExecutionContext) -> None:
        """Hold a frame for the program, with an event after the work that makes it."""
        data = op_input.receive("in")
        node = cast("Node", self._headrace.node)
        event = node.streams.hand_out(node.input.ports[0], self.results._return_lent())
        if node.output.calls:
            for call, path in node.output.calls.items():
                call.answer(Answer(self.results, data, event, path))
            return
        timestamp = op_input.get_acquisition_timestamp("in")
        self.results._add(_Result(data, event, dict(self.metadata), timestamp))


class Results(ChannelEnd["_Result"]):
    """The end of a :class:`ResultsOp` that the program takes frames out of, by ``for`` or ``async for``.

    The iteration ends when the run has ended and all frames have been taken. If the run failed, it then raises the
    run's exception. A loop that is left early takes no more; another loop goes on with the next frame.

    A frame is safe to use on the streams that are current on the thread that takes it, or on `stream`.
    """

    def __init__(self, operator: ResultsOp, condition: Condition) -> None:
        super().__init__(operator, condition)
        self.stream: Any = None
        """The stream on which the program uses the frames; unless set, those that are current on its thread."""
        self.metadata: dict[str, Any] = {}
        """The metadata of the frame that was taken last."""
        self.acq_timestamp: int | None = None
        """When the frame that was taken last was acquired, in nanoseconds; None if that is not known."""
        self.dropped = 0
        """The number of frames that were dropped because the results were closed."""
        # The frames that were taken out since the last compute, and the streams on which the program uses them.
        self._lent: list[tuple[Any, list[CallerStream]]] = []
        self._control.call_at_end(lambda: self._channel.change(lambda: None))

    def close(self) -> None:
        """Take no more: the frames that wait, and those that still arrive, are dropped and counted.

        The run goes on, for its other operators. May be called repeatedly.
        """

        def drop() -> None:
            self._channel.is_closed = True
            self.dropped += len(self._channel.items)
            self._channel.items.clear()

        self._channel.change(drop)
        self._finish()
        self._announce()

    def __iter__(self) -> Results:
        return self

    def __next__(self) -> Any:
        result = self._channel.wait(self._next)
        if result is None:
            self._finish()
            raise StopIteration
        return self._hand_out(*result)

    def __aiter__(self) -> Results:
        return self

    async def __anext__(self) -> Any:
        result = await self._channel.wait_async(self._next)
        if result is None:
            self._finish()
            raise StopAsyncIteration
        return self._hand_out(*result)

    def _next(self) -> Any:
        """Return the next result and the streams on which it is used, None at the end, or PENDING."""
        channel, control = self._channel, self._control
        # Read first: a run that has ended adds nothing.
        has_ended = control.has_ended
        if channel.items:
            streams = []
            if channel.items[0].event is not None:
                # Under the lock, so that a compute finds either the result or what was lent.
                streams = caller_streams(self.stream) or [CallerStream(0)]
                self._lent.append((channel.items[0].data, streams))
            return channel.items.popleft(), streams
        if has_ended and control.failure is not None:
            raise control.failure
        return None if has_ended or channel.is_closed else PENDING

    def _hand_out(self, result: _Result, streams: list[CallerStream]) -> Any:
        """Order the streams of the program after the work behind a frame, and return the frame."""
        for stream in streams:
            stream.wait(result.event)
        self.metadata, self.acq_timestamp = result.metadata, result.acq_timestamp
        self._announce()
        return result.data

    def _add(self, result: _Result) -> None:
        def add() -> None:
            if self._channel.is_closed:
                self.dropped += 1
            else:
                self._channel.items.append(result)

        self._channel.change(add)

    def _lend(self, data: Any, streams: list[CallerStream]) -> None:
        """Note that the program uses a frame on these streams."""
        self._channel.change(lambda: self._lent.append((data, streams)))

    def _return_lent(self) -> list[Any]:
        """Forget the frames that were taken out, and return the handles of the streams that may read them."""

        def forget() -> list[Any]:
            lent, self._lent = self._lent, []
            return [stream.handle for _, streams in lent for stream in streams]

        handles: list[Any] = self._channel.change(forget)
        return handles

    def _finish(self) -> None:
        """Wait, when the run has ended, for the program's work on the frames that no compute has returned."""
        if self._control.has_ended:
            lent, self._lent = self._lent, []
            for _, streams in lent:
                for stream in streams:
                    stream.synchronize()


class Answer(NamedTuple):
    """The result that answers a call, with the event of the work that makes it, if there is any."""

    results: Results
    data: Any
    event: Any
    path: Path

    def take(self, stream: Any) -> Any:
        """Return the answer, in order after the work behind it; raise it if it is an error."""
        if self.event is not None:
            streams = caller_streams(stream) or [CallerStream(0)]
            self.results._lend(self.data, streams)
            for each in streams:
                each.wait(self.event)
        answer = part_at(self.data, self.path)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class _Result(NamedTuple):
    """A frame to be taken out, with the event of the work that makes it, if there is any."""

    data: Any
    event: Any
    metadata: dict[str, Any]
    acq_timestamp: int | None


class _HasRoom(Condition):
    """Lets the operator receive while its results have room, or are closed."""

    polled = False
    results: Results

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return whether there is room; without a message there is nothing to wait for, and the run may end."""
        channel = self.results._channel
        if channel.is_closed or not channel.is_full or not self.receiver("in").size:
            return SchedulingStatusType.READY, None
        return SchedulingStatusType.WAIT_EVENT, None
