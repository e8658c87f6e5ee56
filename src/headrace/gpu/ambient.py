"""The current stream: the stream of array code that names none.

CuPy and PyTorch each have a current stream for every thread. :class:`use_stream` sets both, and that of every
other library that has one, so that code that never mentions streams runs on the given stream, and on the SMs it
belongs to. On exit all are restored. A library that has not been imported is left alone: nothing is imported to
check.

A run uses :class:`LastingStream`. One compute makes its stream current, and the stream stays current until the
thread computes on another one, or leaves the run: then what was current before the run is restored. So a compute
reads nothing and restores nothing. It always sets its stream: the program may have set another one, and reading
the current stream takes as long.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace.gpu import array_libraries
from headrace.gpu.array_libraries import StreamLibrary
from headrace.gpu.stream_handle import StreamHandle, SupportsStream


class Current:
    """What is current on a thread.

    Attributes
    ----------
    innermost
        What set the current stream last; None if nothing of headrace did.
    before
        What was current before the first lasting stream, in each library and in headrace; None outside of a run.
    remembered
        The libraries that `before` is complete for.
    """

    __slots__ = ("before", "innermost", "remembered")

    def __init__(self) -> None:
        self.innermost: use_stream | LastingStream | None = None
        self.before: tuple[dict[StreamLibrary, Any], use_stream | LastingStream | None] | None = None
        self.remembered: Sequence[StreamLibrary] | None = None


class _Thread(threading.local):
    """Holds what is current on each thread."""

    def __init__(self) -> None:
        self.current = Current()


thread = _Thread()
_modules = sys.modules


class use_stream:
    """Make a stream current for CuPy, PyTorch and others on this thread, for the duration of a ``with`` block.

    An instance can be entered any number of times, so one that is used often is created once.

    Examples
    --------
    >>> with gpu.use_stream(parts["control"].create_stream()):
    ...     total = cupy.arange(1000).sum()
    """

    __slots__ = ("_entered", "_previous", "_runs_cuda", "handle")

    def __init__(self, stream: SupportsStream) -> None:
        self.handle = stream if isinstance(stream, StreamHandle) else StreamHandle(stream)
        self._runs_cuda = self.handle.backend.runs_cuda
        self._previous: list[Any] = []
        # The libraries that are on this stream, and what restores each.
        self._entered: list[tuple[StreamLibrary, Any]] = []

    def __enter__(self) -> StreamHandle:
        here = thread.current
        self._previous.append((here.innermost, self._entered))
        here.innermost = self
        self._entered = entered = []
        try:
            for library, state in _states_of(self.handle, array_libraries.with_streams(self._runs_cuda)):
                previous = library.read_stream()
                library.set_stream(state)
                entered.append((library, previous))
        except BaseException:
            self.__exit__()  # an error of one library must not leave the others on this stream
            raise
        return self.handle

    def __exit__(self, *_: object) -> None:
        for library, previous in self._entered:
            library.set_stream(previous)
        here = thread.current
        # In this order, so that after an interrupt `remember_stream` can call this once more.
        here.innermost, self._entered = self._previous[-1]
        self._previous.pop()


class LastingStream:
    """Make a stream current for one compute after the other; it stays current until another one is, or `leave`.

    One instance serves all threads.

    Attributes
    ----------
    libraries
        The libraries in use.
    make_current
        Makes the stream current in these libraries, and does nothing else of what `enter` does.
    is_read
        Whether a program has asked which stream is current, and may have kept it.
    modules
        The number of imported modules when the libraries in use were last found.
    """

    __slots__ = ("_runs_cuda", "handle", "is_read", "libraries", "make_current", "modules")

    def __init__(self, stream: SupportsStream) -> None:
        self.handle = stream if isinstance(stream, StreamHandle) else StreamHandle(stream)
        self._runs_cuda = self.handle.backend.runs_cuda
        self.is_read = False
        self.libraries: Sequence[StreamLibrary] = ()
        self.make_current: Callable[[], object] = _nothing
        self.modules = -1

    def enter(self, here: Current) -> None:
        """Make the stream current on this thread."""
        if len(_modules) != self.modules:
            self._find_libraries()
        if here.remembered is not self.libraries:
            _remember(here, self.libraries)
        here.innermost = self
        self.make_current()

    def _find_libraries(self) -> None:
        libraries = array_libraries.with_streams(self._runs_cuda)
        states = _states_of(self.handle, libraries)
        self.make_current = _all_of([library.stream_setter(state) for library, state in states])
        self.libraries = libraries
        self.modules = len(_modules)


def _nothing() -> None:
    pass


def _all_of(setters: list[Callable[[], object]]) -> Callable[[], object]:
    """Return a function that calls all of the functions: the only one itself, usually."""
    if len(setters) == 1:
        return setters[0]
    if len(setters) == 2:
        first, second = setters

        def set_both() -> None:
            first()
            second()

        return set_both

    def set_all() -> None:
        for make_current in setters:
            make_current()

    return set_all


def _remember(here: Current, libraries: Sequence[StreamLibrary]) -> None:
    """Remember what is current on this thread before the first lasting stream."""
    known, innermost = here.before or ({}, here.innermost)
    for library in libraries:
        if library not in known:
            known[library] = library.read_stream()
    here.before = (known, innermost)
    here.remembered = libraries


def leave() -> None:
    """Restore what was current on this thread before the first lasting stream."""
    here = thread.current
    if here.before is not None:
        known, here.innermost = here.before
        here.before = here.remembered = None
        for library, state in known.items():
            library.set_stream(state)


def _states_of(handle: StreamHandle, libraries: Sequence[StreamLibrary]) -> list[tuple[StreamLibrary, Any]]:
    """Return what makes a stream current in each library."""
    return [(library, library.stream_state(handle)) for library in libraries]


def library_is_in_use() -> bool:
    """Return whether a library that has a current stream on a GPU, such as CuPy, has been imported."""
    return bool(array_libraries.with_streams(True))


def current_stream() -> StreamHandle | None:
    """Return the stream that :class:`use_stream` or the running operator made current on this thread, or None."""
    innermost = thread.current.innermost
    if isinstance(innermost, LastingStream):
        innermost.is_read = True
    return stream_here()


def stream_here() -> StreamHandle | None:
    """Return the same, for one use: the operator may have another stream in its next compute."""
    innermost = thread.current.innermost
    return None if innermost is None else innermost.handle


def remember_stream() -> Callable[[], None]:
    """Return a function that restores this thread's current stream, if a run or an interrupt has left it changed.

    Python calls ``__exit__`` after the last line of a ``with`` block. An interrupt between the two skips the call.
    """
    here = thread.current
    before = here.innermost
    # A run in a compute of another run: what that compute had as current.
    known = None if here.before is None else {library: library.read_stream() for library in here.before[0]}

    def restore() -> None:
        while (innermost := here.innermost) is not before and isinstance(innermost, use_stream):
            innermost.__exit__()
        if known is None:
            leave()
        elif here.innermost is not before:
            here.innermost = before
            for library, state in known.items():
                library.set_stream(state)

    return restore
