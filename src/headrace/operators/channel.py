"""Channel: a bounded buffer between a run and a program, and the base of the two operators that have one.

Whoever must wait registers a future under the lock, and every change completes all of them. A thread waits for
its future through `waits`, so that Ctrl-C ends the wait; a task awaits it. Whoever wakes up attempts again, so a
wait that is cancelled or times out has taken nothing and lost nothing.

Array code of a thread runs on the stream that is current there for its library (`CallerStream`). A frame that is
put comes after the work on those streams; before a frame is taken out, those streams are ordered after the work
behind it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from headrace import gpu, waits
from headrace._runtime import ManagedStream, create_event, default_stream_of, is_default
from headrace.core.composition import Composition
from headrace.core.condition import Condition
from headrace.core.construction import needs_fragment
from headrace.core.operator import Operator
from headrace.core.parameters import declared
from headrace.core.values import whole_number
from headrace.gpu import array_libraries
from headrace.gpu.backend import active, aside, is_chosen
from headrace.gpu.current import entered_stream


class CallerStream:
    """A stream of the program.

    Attributes
    ----------
    handle
        Its handle.
    """

    __slots__ = ("_managed", "_state", "handle")

    def __init__(self, stream: Any, state: Any = None) -> None:
        self._state = state  # keeps the library's object alive while the run may insert events on its stream
        self.handle: Any = stream if isinstance(stream, int) else gpu.StreamHandle(stream)
        if is_default(self.handle):
            self._managed = default_stream_of(gpu.Device().device_id)
            self.handle = self._managed.handle
        else:
            handle: Any = self.handle
            found = handle.stream if isinstance(handle, gpu.StreamHandle) else gpu.Stream.from_handle(handle)
            device_id = found.device.device_id
            self._managed = ManagedStream(found, device_id, partial(create_event, device_id))

    def record(self) -> Any:
        """Return an event after the work that has been submitted so far."""
        return self._managed.now()

    def wait(self, event: Any) -> None:
        """Order later work on the stream after an event."""
        self._managed.wait(event)

    def synchronize(self) -> None:
        """Wait until the stream has finished all submitted work."""
        with gpu.on_device(self._managed.device_id):
            self._managed.stream.sync()


def caller_streams(given: Any = None) -> list[CallerStream]:
    """Return the stream that the program named or, if none, the streams that are current on this thread."""
    if given is not None:
        return [CallerStream(given)]
    found: dict[int, CallerStream] = {}
    here = entered_stream()
    if here is not None:
        found[int(here)] = CallerStream(here)
    # Nothing is imported, and no device is chosen, to look.
    libraries = array_libraries.with_streams(not is_chosen() or active().runs_cuda)
    if libraries and active().has_devices:
        device_id = gpu.Device().device_id
        for library in libraries:
            if library.current_stream is not None:
                handle = library.current_stream(device_id)
                if handle not in found:
                    found[handle] = CallerStream(handle, library.read_stream())
    return list(found.values())


T = TypeVar("T")

PENDING: Final = object()
"""What an attempt returns that has to wait."""


class Channel(Generic[T]):
    """A bounded buffer; `attempt` functions run under its lock and return PENDING to wait for a change."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: deque[T] = deque()
        self.is_closed = False
        self._lock = threading.Lock()
        self._waiting: list[Future[None]] = []

    @property
    def is_full(self) -> bool:
        """Whether there is no room."""
        return len(self.items) >= self.size

    def change(self, action: Callable[[], Any]) -> Any:
        """Call a function under the lock, wake everyone who waits, and return its result."""
        with self._lock:
            result = action()
            waiting, self._waiting = self._waiting, []
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(None)
        return result

    def wait(self, attempt: Callable[[], Any], timeout: float | None = None) -> Any:
        """Attempt until the result is not PENDING, and return it; raise TimeoutError after `timeout` seconds."""
        until = None if timeout is None else monotonic() + timeout
        while True:
            result, changed = self._attempt(attempt)
            if changed is None:
                return result
            try:
                with aside():
                    in_time = waits.wait_for_futures(
                        (changed,), None if until is None else until - monotonic()
                    )
            finally:
                self._forget(changed)
            if not in_time:
                raise TimeoutError

    async def wait_async(self, attempt: Callable[[], Any]) -> Any:
        """Attempt until the result is not PENDING, and return it; a task of asyncio awaits the changes."""
        from asyncio import wrap_future

        while True:
            result, changed = self._attempt(attempt)
            if changed is None:
                return result
            try:
                await wrap_future(changed)
            finally:
                self._forget(changed)

    def _attempt(self, attempt: Callable[[], Any]) -> tuple[Any, Future[None] | None]:
        with self._lock:
            result = attempt()
            if result is not PENDING:
                return result, None
            changed: Future[None] = Future()
            self._waiting.append(changed)
            return None, changed

    def _forget(self, changed: Future[None]) -> None:
        with self._lock:
            if changed in self._waiting:
                self._waiting.remove(changed)


class ChannelEnd(Generic[T]):
    """The end of a channel that a program uses.

    Attributes
    ----------
    name
        The name of the operator.
    """

    def __init__(self, operator: ChannelOperator, condition: Condition) -> None:
        self.name = operator.name
        self._operator = operator
        self._condition = condition
        self._channel: Channel[T] = Channel(operator.size)
        self._control = operator.fragment._headrace.run_control

    def close(self) -> None:
        """Use the channel no more."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of frames that wait."""
        return len(self._channel.items)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        state = "closed" if self._channel.is_closed else f"{len(self)} of {self._channel.size} frames"
        return f"<{type(self).__name__} {self.name!r}: {state}>"

    def _announce(self) -> None:
        self._condition.notify_scheduler()


@declared
class ChannelOperator(Operator):
    """The base of the operators whose frames a program puts in or takes out; `size` of them may wait."""

    size: int = 4

    if not TYPE_CHECKING:  # a type checker has the size as an argument (`declared`)

        @needs_fragment
        def __init__(self, fragment: Composition, *args: Any, name: str = "", **kwargs: Any) -> None:
            super().__init__(fragment, *args, name=name, **kwargs)
            whole_number(self.size, f"operator {self.name!r}: size", 1)
            self.add_arg(self._open(fragment))

    def _open(self, fragment: Composition) -> Condition:
        """Make the end that the program uses, and return the condition that follows it."""
        raise NotImplementedError
