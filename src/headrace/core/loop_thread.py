"""LoopThread: the event loop of a run, on a thread of its own.

All async operators of a run share one. The first that starts creates it, and the last that stops ends it: tasks
that are left are cancelled, and the thread is joined.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headrace import waits

if TYPE_CHECKING:
    from headrace.core.composition import Composition

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
