"""Running: a run beside the program, for the duration of a block."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from headrace import waits
from headrace._runtime import Interrupts
from headrace.application.runner import drain
from headrace.core.errors import add_note, message_of

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

    from headrace._runtime import OutcomeFuture
    from headrace.application.fragment import Fragment
    from headrace.core.outcome import Outcome


class Running:
    """A run of a fragment beside the program, in a ``with`` or ``async with`` block."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._future: OutcomeFuture | None = None

    def __enter__(self) -> Future[Outcome]:
        interrupts = self._interrupts()
        try:
            interrupts.install()  # one that comes before the run is known here would leave it alone
            try:
                future = self._start()
            finally:
                interrupts.restore()
            if interrupts.first is not None:
                raise interrupts.first
            self._wait_until_begun()
        except BaseException as error:
            if self._future is not None:
                self._wait_until_over(error)
            raise
        return future

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        interrupt = self._wait_until_over(error)
        self._conclude(error or interrupt)
        if error is None and interrupt is not None:
            raise interrupt

    async def __aenter__(self) -> Future[Outcome]:
        future = self._start()
        try:
            await asyncio.to_thread(self._wait_until_begun)
        except BaseException as error:
            await self._end(error)
            raise
        return future

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        interrupt = await self._end(error)
        self._conclude(error or interrupt)
        # A cancellation comes out in any case: who cancelled the task waits for it.
        if interrupt is not None and (error is None or isinstance(interrupt, asyncio.CancelledError)):
            raise interrupt

    def _start(self) -> OutcomeFuture:
        self._future = cast("OutcomeFuture", self._fragment.run_async())
        self._control = self._fragment._headrace.run_control
        return self._future

    def _wait_until_begun(self) -> None:
        """Wait until the operators are there, so that the block finds them; raise what `compose` raised."""
        assert self._future is not None
        self._control.wait_until_begun()
        if not self._control.has_begun:  # the run ended before, or so quickly that it is over
            self._future.result()

    def _wait_until_over(self, error: BaseException | None) -> BaseException | None:
        """Let the run end, and wait until everything is stopped; return the first interrupt that came meanwhile."""
        assert self._future is not None
        interrupts = self._interrupts()
        interrupts.install()
        try:
            self._let_end(error)
            self._future.wait()
        finally:
            interrupts.restore()
        return interrupts.first

    def _waits_for(self) -> str:
        """Return what the run is doing, for the log."""
        computing = self._fragment.progress().computing
        return f"compute of {', '.join(map(repr, computing))}" if computing else "its thread"

    def _let_end(self, error: BaseException | None) -> None:
        """End the sources, so that what is under way flows to its end; after an exception, stop at once."""
        if error is None and self._control.engine is not None:
            drain(self._fragment, closes_results=True)
        elif error is not None or not self._control.drain_elsewhere():
            self._fragment.stop_execution()

    async def _end(self, error: BaseException | None) -> BaseException | None:
        """Await the end of the run, even if this task is cancelled or interrupted; return what came meanwhile.

        The handler of asyncio cancels the task at the first Ctrl-C, and raises at the next one, out of the event
        loop, on which nothing would end the run then.
        """
        assert self._future is not None
        interrupts = self._interrupts()
        interrupts.install()
        cancelled = None
        try:
            self._let_end(error)
            ended: asyncio.Future[Any] = asyncio.wrap_future(self._future)
            ended.add_done_callback(lambda future: future.cancelled() or future.exception())
            while not self._future.done():
                try:
                    await asyncio.wait([ended])
                except asyncio.CancelledError as cancellation:
                    self._fragment.stop_execution()
                    cancelled = cancellation
        finally:
            interrupts.restore()
        return cancelled or interrupts.first

    def _interrupts(self) -> Interrupts:
        """Return what holds interrupts back while the run ends, and stops it at the first."""
        return Interrupts(self._fragment.name, self._fragment.stop_execution, self._waits_for)

    def _conclude(self, error: BaseException | None) -> None:
        """Leave no thread behind, and raise what the run raised; an error of the block shows it instead."""
        assert self._future is not None
        if self._future.thread is not None:
            waits.join(self._future.thread)
        if error is None:
            self._future.result()
        elif (raised := self._future.exception()) is not None:
            _show_both(error, raised, self._fragment.name)


def _show_both(error: BaseException, raised: BaseException, name: str) -> None:
    """Show the error of a run at the error of its block, which hides it."""
    shown, behind = _chain(error), _chain(raised)
    if any(each is raised for each in shown):
        return
    add_note(error, f"and the run of {name!r} failed: {type(raised).__name__}: {message_of(raised)}")
    if not any(each is shown[-1] for each in behind):  # otherwise the chain would be a ring
        shown[-1].__context__ = raised


def _chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and the errors behind it, as a traceback shows them."""
    found: list[BaseException] = []
    while error is not None and not any(error is each for each in found):
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
