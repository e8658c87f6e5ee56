"""Functions that await, as operators: coroutines and async generators, on the event loop of the run.

No worker waits while they await. One compute receives the messages and begins a call on the loop; when the call has
ended, another compute emits its result, with the metadata and timestamp of these messages, or raises its exception.
A source begins its next call ahead, so that each compute emits one value.

Each step of a call, from one await to the next, runs with the operator's own stream current. So array code in it is
ordered like that of other operators. Tasks that the function creates itself run wherever the loop runs them.

Decided against: awaiting in `compute`, which would hold a worker, and a loop for each operator, since what a
program shares between its functions (a client session, a lock) belongs to one loop.

All async operators of a run share one loop, on a thread of its own. The first that starts creates it, and the last
that stops ends it: tasks that are left are cancelled, and the thread is joined.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import traceback
import types
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from headrace import gpu, waits
from headrace.core.composition import Composition
from headrace.core.condition import Condition
from headrace.core.construction import Inner
from headrace.core.function import FunctionOperator, InnerFunctionOperator
from headrace.core.log import CALLING
from headrace.core.ports import SchedulingStatusType
from headrace.gpu.current import entered_stream

if TYPE_CHECKING:
    from headrace.core.clock import Clock
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.spec import OperatorSpec


_sharing = threading.Lock()


class LoopThread:
    """An event loop on a thread."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.users = 0
        self._ended: asyncio.Event | None = None
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        waits.wait(self._has_begun)

    @property
    def thread_id(self) -> int:
        """The identity of the thread, as `threading` counts them."""
        assert self._thread.ident is not None  # it has begun
        return self._thread.ident

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        self._ended = asyncio.Event()
        self._has_begun.set()
        await self._ended.wait()

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop, wait for it, and return its result."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        waits.wait_for_futures((future,))
        return future.result()

    def close(self) -> None:
        """End the loop and its thread."""
        assert self._ended is not None
        self.loop.call_soon_threadsafe(self._ended.set)
        waits.join(self._thread)


def acquire_loop(fragment: Composition) -> LoopThread:
    """Return the event loop of a fragment's run, for one more operator."""
    with _sharing:
        if fragment._headrace.loop is None:
            fragment._headrace.loop = LoopThread(f"{fragment.name} event loop")
        loop: LoopThread = fragment._headrace.loop
        loop.users += 1
        return loop


def release_loop(fragment: Composition) -> None:
    """Return the event loop of one operator; end it if that was the last."""
    with _sharing:
        loop: LoopThread = fragment._headrace.loop
        loop.users -= 1
        if loop.users:
            return
        fragment._headrace.loop = None
    loop.close()


_ENDED = object()  # the value of a generator that has no more


class InnerAsyncFunctionOperator(InnerFunctionOperator):
    """The state of the operator of an async function."""

    operator: AsyncFunctionOperator
    awaits = True

    @property
    def computes_in_use(self) -> int:
        """How many of the last computes received what the operator still works on, between two computes."""
        return self.operator.computes_since_oldest_call

    def limit_calls(self, count: int) -> bool:
        """Begin at most `count` calls: a call takes two computes, or more."""
        self.calls_left = count if self.calls_left is None else min(count, self.calls_left)
        return count > 0 and bool(self.operator.declared.inputs)  # each compute of a source emits one value


class AsyncFunctionOperator(FunctionOperator):
    """The operator of a decorated function that is async."""

    _headrace = Inner(InnerAsyncFunctionOperator)
    _calls: deque[_Call]
    _computes: int
    # What watches calls that have a deadline.
    _watch_call: Callable[[Callable[[], str]], Callable[[], None]] | None
    _emits_for: _Call | None
    _loop: LoopThread | None
    _answered: _Answered
    _call_function: Callable[..., Any]

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the function's ports and parameters, and wait for the ends of calls."""
        super().setup(spec)
        # The calls that have begun and whose results were not emitted yet, oldest first.
        self._calls = deque()
        self._emits_for = None
        self._computes = 0
        self._watch_call = None
        self._loop = None
        self._answered = _Answered(self._headrace.place, self)
        self.add_arg(self._answered)

    @property
    def yields(self) -> bool:
        """Whether the function yields values instead of returning one."""
        return inspect.isasyncgenfunction(self.declared.function)

    @property
    def has_more(self) -> bool:
        """Whether calls have begun whose results were not emitted, or one is being emitted."""
        return bool(self._calls) or self._emits_for is not None

    @property
    def goes_on(self) -> bool:
        """Whether a compute may go on with messages that an earlier one received."""
        return bool(self.declared.inputs)

    @property
    def computes_since_oldest_call(self) -> int:
        """The number of computes since the one that began the oldest call, with that one; 0 if there is none."""
        for call in tuple(self._calls):
            return self._computes - call.began
        return 0

    def base_of(self, number: int, base: int) -> int:
        """Return the compute that began the oldest call, whose result is emitted next."""
        return number - self.computes_since_oldest_call

    def watch_calls(self, watch: Callable[[Callable[[], str]], Callable[[], None]]) -> None:
        """Let the calls be watched, from now on and those that have begun."""
        self._watch_call = watch
        for call in self._calls:
            call.watch()

    def _loop_stack(self) -> str:
        """Return the stack of the event loop's thread; "" without one."""
        loop = self._loop
        frame = None if loop is None else sys._current_frames().get(loop.thread_id)
        return "" if frame is None else "".join(traceback.format_stack(frame))

    def start(self) -> None:
        """Join the event loop of the run; a source begins its first call."""
        super().start()
        self._loop = acquire_loop(self.fragment)
        if not self.declared.inputs:
            self._begin(_Call(self))

    def _choose_compute(self, call: Callable[..., Any]) -> Callable[[Any, Any, Any], None]:
        self._call_function = call
        if not self.declared.inputs:
            return self._compute_source
        self._receive_arguments = self._arguments()
        return self._compute_messages

    def stop(self) -> None:
        """Cancel the calls that have not ended, and wait until they have."""
        super().stop()
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.call(self._cancel_calls())
        finally:
            self._calls.clear()
            release_loop(self.fragment)

    async def _cancel_calls(self) -> None:
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*(call.ended.wait() for call in calls))
        for call in calls:
            if call.generator is not None:
                await call.generator.aclose()
        for call in calls:
            if (
                call.error is not None
                and not isinstance(call.error, asyncio.CancelledError)
                and call.was_cancelled
            ):
                raise call.error

    # Computes.

    def _compute_source(self, op_input: Any, op_output: OutputContext, context: ExecutionContext) -> None:
        call = self._calls.popleft()
        value = _ENDED
        try:
            value = call.result()
        finally:
            if call.generator is None:
                call = _Call(self)
            if value is not _ENDED or call.error is not None or call.generator is None:
                self._begin(call)
        if value is _ENDED:
            self.stop_execution()
        else:
            self._emit(op_output, value)

    def _compute_messages(
        self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext
    ) -> None:
        resume = self._resume
        self._emits_for = None
        self._computes += 1
        try:
            if self._calls and self._calls[0].is_done:
                self._emit_first(op_output)
                self._emits_for = None  # not after an error: the waiting messages are not those of this step
            else:
                resume.received = False
                arguments = self._receive_arguments(op_input)
                resume.note()
                call = _Call(self, arguments)
                call.began = self._computes - 1
                call.note = resume.noted
                call.keywords = self._supplied_copies()
                self._begin(call)
        finally:
            if self._calls:
                resume.go_on()
            else:
                resume.end()

    def _emit_first(self, op_output: OutputContext) -> None:
        """Emit the result of the oldest call, with what came with its messages."""
        resume = self._resume
        call = self._emits_for = self._calls.popleft()
        resume.noted = call.note
        resume.begin_step()
        try:
            value = call.result()
            if value is not _ENDED and call.generator is not None:
                self._calls.appendleft(call)
                call.begin()
        finally:
            if not self._calls and self._headrace.calls_left == 0:
                self.stop_execution()
        if value is _ENDED:
            return
        metadata = call.keywords.get("metadata")
        if metadata is not None:
            self.metadata.clear()
            self.metadata.update(metadata)
        self._emit(op_output, value)

    def _supplied_copies(self) -> dict[str, Any]:
        """Return the metadata of the messages for a function that takes it: a copy, since others follow."""
        return {"metadata": dict(self.metadata)} if "metadata" in self.declared.supplied else {}

    def _begin(self, call: _Call) -> None:
        """Begin a call, unless there is none left."""
        left = self._headrace.calls_left
        if left is not None:
            if not left:
                return
            self._headrace.calls_left = left - 1
        self._calls.append(call)
        call.begin()

    @property
    def _status(self) -> SchedulingStatusType:
        calls = self._calls
        if not calls or calls[0].is_done:
            return SchedulingStatusType.READY
        node = self._headrace.node
        if (
            node is not None
            and len(calls) < self.declared.concurrency
            and self._headrace.calls_left != 0
            and node.resume is not None
            and node.resume.messages_wait()
        ):
            return SchedulingStatusType.READY
        return SchedulingStatusType.WAIT_EVENT


class _Call:
    """One call of a function on the event loop.

    Attributes
    ----------
    is_done
        Whether there is a value or an exception to be emitted.
    ended
        The same, for the tasks of the loop.
    generator
        The async generator that the call runs, if the function yields.
    note
        What came with the messages.
    began
        The number of the compute that began it.
    """

    def __init__(self, operator: AsyncFunctionOperator, arguments: list[Any] | None = None) -> None:
        self._operator = operator
        self._arguments = arguments or []
        self._stream = entered_stream()
        self._value: Any = None
        self._task: asyncio.Task[None] | None = None
        self.keywords: dict[str, Any] = {}
        self.note: Any = None
        self.error: BaseException | None = None
        self.generator: AsyncGenerator[Any, None] | None = None
        self.began = 0
        self.is_done = False
        self.was_cancelled = False
        self.ended = asyncio.Event()
        self._ends: list[Callable[[], None]] = []  # what ends its watch
        self._awaited: Awaitable[Any] | None = None
        self._clock: Clock

    def watch(self) -> None:
        """Let it be watched until it is done, if its operator has a deadline."""
        if self._operator._watch_call is not None:
            self._ends.append(self._operator._watch_call(self._stack))
            if self.is_done:  # it has ended before, or meanwhile
                self._end_watch()

    def _end_watch(self) -> None:
        try:
            end = self._ends.pop()
        except IndexError:  # it is not watched, or another thread ends that
            return
        end()

    def _stack(self) -> str:
        """Return where the function awaits: its own frames, and those of the coroutines that it awaits.

        A call that has not begun, or not the step to its next value, waits for the event loop: then it is where
        the loop's thread is.
        """
        frames = []
        each: Any = self._awaited
        if each is None:
            return self._operator._loop_stack()
        if self.generator is not None:
            each = self.generator
        while each is not None:
            kind = "ag" if inspect.isasyncgen(each) else "cr"
            frame = getattr(each, f"{kind}_frame", None)
            if frame is not None:
                frames.append((frame, frame.f_lineno))
            each = getattr(each, f"{kind}_await", None)
        return "".join(traceback.StackSummary.extract(iter(frames)).format())

    def begin(self) -> None:
        """Run the function on the loop, to its end or to the next value."""
        self.is_done = False
        self.error = None
        self._awaited = None
        self.ended.clear()
        self.watch()
        loop, node = self._operator._loop, self._operator._headrace.node
        assert loop is not None
        assert node is not None
        self._clock = node.engine.clock
        self._clock.hold()  # virtual time stands still as in a compute
        loop.loop.call_soon_threadsafe(self._create_task)

    def cancel(self) -> None:
        """Cancel the call; on the loop."""
        if self._task is not None and not self.is_done:
            self.was_cancelled = True
            self._task.cancel()

    def result(self) -> Any:
        """Return the value, or raise the exception of the function."""
        error = self.error
        if error is None:
            return self._value
        if isinstance(error, asyncio.CancelledError):
            raise RuntimeError(
                f"operator {self._operator.name!r}: its function was cancelled by its own code; something that it "
                "awaited was cancelled"
            ) from error
        raise error

    def _create_task(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        CALLING.set(self._operator)
        try:
            self._awaited = self._next()
            self._value = await _on_stream(self._stream, self._awaited)
        except BaseException as error:
            self.error = error
        finally:
            self.is_done = True
            self._end_watch()
            self._clock.release()
            self.ended.set()
            self._operator._answered.notify_scheduler()

    def _next(self) -> Awaitable[Any]:
        """Return what is to be awaited: the function, or the next value of its generator."""
        operator = self._operator
        if not operator.yields:
            returned: Awaitable[Any] = operator._call_function(*self._arguments, **self.keywords)
            return returned
        if self.generator is None:
            self.generator = operator._call_function(*self._arguments, **self.keywords)
        return _value_of(self.generator)


async def _value_of(generator: AsyncGenerator[Any, None]) -> Any:
    try:
        return await generator.__anext__()
    except StopAsyncIteration:
        return _ENDED


@types.coroutine
def _on_stream(stream: Any, awaitable: Any) -> Generator[Any, Any, Any]:
    """Await a coroutine; a stream is current in each of its steps, and not while other tasks run."""
    if stream is None:
        return (yield from awaitable.__await__())
    use = gpu.use_stream(stream)
    resume, argument = awaitable.send, None
    while True:
        try:
            with gpu.on_device(stream.device.device_id), use:
                awaited = resume(argument)
        except StopIteration as end:
            return end.value
        try:
            argument = yield awaited
            resume = awaitable.send
        except BaseException as error:
            argument, resume = error, awaitable.throw


class _Answered(Condition):
    """Lets an operator run when its oldest call has ended, or when it may begin another."""

    polled = False
    depends_on_ports = True

    def __init__(self, fragment: Composition, operator: AsyncFunctionOperator) -> None:
        super().__init__(fragment, name="answered")
        self._operator = operator

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return whether the operator has something to emit or to begin."""
        return self._operator._status, None

    def evaluate(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Check each time: a message that arrives counts while the operator waits for the end of a call."""
        return self.check(timestamp)
