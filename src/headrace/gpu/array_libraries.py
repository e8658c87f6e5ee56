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

    def use_stream(self, handle: StreamHandle) -> Any:
        """Make a stream current on this thread, and return what `restore_stream` needs to undo that."""

    def restore_stream(self, previous: Any) -> None:
        """Undo a call of `use_stream`, whose result is given."""


def _none(runs_cuda: bool) -> Sequence[StreamLibrary]:
    return ()


def _unknown(name: str, handle: StreamHandle) -> Any:
    raise ImportError(f"there is no array library {name!r}")


with_streams: Callable[[bool], Sequence[StreamLibrary]] = _none
"""Return the libraries in use that have a current stream and work on streams of CUDA, or on others."""

make_stream: Callable[[str, StreamHandle], Any] = _unknown
"""Return the object of a library, given by name, for a stream."""
