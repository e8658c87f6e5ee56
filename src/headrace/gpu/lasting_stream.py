"""LastingStream: the current stream of one compute after the other.

One compute makes its stream current, and the stream stays current until the thread computes on another one, or
leaves the run: then what was current before the run is restored (`current.leave`). So a compute restores nothing.
Each library makes sure that its stream is current, in the way that costs it least, since the program may have set
another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.gpu import array_libraries
from headrace.gpu.array_libraries import StreamLibrary
from headrace.gpu.stream_handle import StreamHandle, SupportsStream

_modules: Final = sys.modules


class Current:
    """What is current on a thread.

    Attributes
    ----------
    innermost
        What set the current stream last, a `use_stream` or a `LastingStream`; None if nothing of headrace did.
    before
        What was current before the first lasting stream, in each library and in headrace; None outside of a run.
    remembered
        The libraries that `before` is complete for.
    ask
        Makes the stream of the running operator current, if the program has not used a device yet.
    """

    __slots__ = ("ask", "before", "innermost", "remembered")

    def __init__(self) -> None:
        self.innermost: Any = None
        self.before: tuple[dict[StreamLibrary, Any], Any] | None = None
        self.remembered: Sequence[StreamLibrary] | None = None
        self.ask: Callable[[], object] | None = None


class LastingStream:
    """Make a stream current for one compute after the other; it stays current until another one is, or `leave`.

    One instance serves all threads.

    Attributes
    ----------
    libraries
        The libraries in use.
    make_current
        Makes the stream current in these libraries if it is not, and does nothing else of what `enter` does.
    modules
        The number of imported modules when the libraries in use were last found.
    """

    __slots__ = ("_runs_cuda", "handle", "libraries", "make_current", "modules")

    def __init__(self, stream: SupportsStream) -> None:
        self.handle = stream if isinstance(stream, StreamHandle) else StreamHandle(stream)
        self._runs_cuda = self.handle.backend.runs_cuda
        self.libraries: Sequence[StreamLibrary] = ()
        self.make_current: Callable[[], object] = _nothing
        self.modules = -1

    def enter(self, here: Current) -> None:
        """Make the stream current on this thread."""
        if len(_modules) != self.modules:  # something was imported since they were found
            self._find_libraries()
        if here.remembered is not self.libraries:
            _remember(here, self.libraries)
        here.innermost = self
        self.make_current()

    def _find_libraries(self) -> None:
        libraries = array_libraries.with_streams(self._runs_cuda)
        states = states_of(self.handle, libraries)
        self.make_current = _all_of([library.stream_setter(state) for library, state in states])
        self.libraries = libraries
        self.modules = len(_modules)


def _nothing() -> None:
    pass


def _all_of(setters: list[Callable[[], object]]) -> Callable[[], object]:
    """Return a function that calls all of the functions: the only one itself, usually."""
    if len(setters) == 1:
        return setters[0]

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


def states_of(handle: StreamHandle, libraries: Sequence[StreamLibrary]) -> list[tuple[StreamLibrary, Any]]:
    """Return what makes a stream current in each library."""
    return [(library, library.stream_state(handle)) for library in libraries]
