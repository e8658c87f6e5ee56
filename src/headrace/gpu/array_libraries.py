"""What this package asks about array libraries; `headrace.tensor.libraries`, which knows them, sets the functions.

Until it is imported, there are no libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headrace.gpu.stream_handle import StreamHandle


class StreamLibrary(Protocol):
    """A library that has a current stream for every thread."""

    current_stream: Callable[[int], int] | None

    def read_stream(self) -> Any:
        """Return what is current on this thread, as `set_stream` takes it."""

    def set_stream(self, state: Any) -> None:
        """Make current on this thread what `read_stream` or `stream_state` has returned."""

    def stream_state(self, handle: StreamHandle) -> Any:
        """Return what `read_stream` returns while a stream is current."""

    def stream_setter(self, state: Any) -> Callable[[], object]:
        """Return `set_stream` for one state."""


def _none(runs_cuda: bool) -> Sequence[StreamLibrary]:
    return ()


def _unknown(name: str, handle: StreamHandle) -> Any:
    raise ImportError(f"there is no array library {name!r}")


def _never(notice: Callable[[], None]) -> Callable[[], None]:
    return lambda: None


with_streams: Callable[[bool], Sequence[StreamLibrary]] = _none
"""Return the libraries in use that have a current stream and work on streams of CUDA, or on others."""

make_stream: Callable[[str, StreamHandle], Any] = _unknown
"""Return the object of a library, given by name, for a stream."""

use_library: Callable[[str], object] = str
"""Note that a library of headrace's own, given by name, is in use on streams of a simulated device."""

when_imported: Callable[[Callable[[], None]], Callable[[], None]] = _never
"""Call a function whenever a library with a current stream begins to be imported; return what ends this."""

is_being_imported: Callable[[], bool] = bool
"""Return whether the import of such a library has begun and is not known to be over."""
