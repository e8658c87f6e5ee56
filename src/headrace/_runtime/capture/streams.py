"""CapturedStreams: the streams of one recording.

Each operator is recorded on a stream of its own slice, made for the recording: a kernel stays on the SMs of the
stream that it was recorded on. The streams are ordered by events, which become the edges of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.core.errors import StreamError

if TYPE_CHECKING:
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace.core.operator import Operator

__all__ = ["CapturedStreams"]


class CapturedStreams:
    """The streams of one recording, all of which join the capture of the first.

    Parameters
    ----------
    run
        The streams of the run, which know the slice of each operator.
    first
        The operator whose slice the first stream belongs to.

    Attributes
    ----------
    origin
        The stream that begins and ends the capture.
    """

    def __init__(self, run: RunStreams, first: Operator) -> None:
        self._run = run
        self._made: list[Any] = []
        self.origin = self._make(first)
        self._of: dict[Operator, dict[str | None, gpu.StreamHandle]] = {}
        self._after: dict[Operator, list[gpu.StreamHandle]] = {}

    def begin(self, operator: Operator, after: list[gpu.StreamHandle]) -> gpu.StreamHandle:
        """Return the stream of an operator, which is ordered after others."""
        own = self._make(operator)
        self._of[operator] = {None: own}
        self._after[operator] = after
        for earlier in after:
            self.order(earlier, own)
        return own

    def own(self, operator: Operator) -> gpu.StreamHandle:
        """Return the operator's own stream."""
        return self._of[operator][None]

    def named(self, operator: Operator, name: str) -> gpu.StreamHandle:
        """Return the operator's stream of a name; it is ordered after what the operator received."""
        known = self._of[operator]
        if name not in known:
            known[name] = self._make(operator)
            for earlier in self._after[operator]:
                self.order(earlier, known[name])
        return known[name]

    def of(self, operator: Operator) -> list[gpu.StreamHandle]:
        """Return all streams of an operator."""
        return list(self._of[operator].values())

    def join(self) -> None:
        """Order the first stream after all others."""
        for streams in self._of.values():
            for stream in streams.values():
                self.order(stream, self.origin)

    def order(self, earlier: gpu.StreamHandle, later: gpu.StreamHandle) -> None:
        """Order a stream after another."""
        later.stream.wait(earlier.stream.record())

    def check(self, stream: Any, operator: Operator, caller: str) -> gpu.StreamHandle:
        """Return the stream of a handle; raise if it is not one of the operator's."""
        for streams in self._of.values():
            for known in streams.values():
                if stream == known:
                    return known
        raise StreamError(
            f"operator {operator.name!r}: {caller} takes a stream that headrace manages (from receive_cuda_stream, "
            f"receive_cuda_streams or allocate_cuda_stream), not {stream!r}"
        )

    def close(self) -> None:
        """Close the streams; the capture is over."""
        for stream in self._made:
            stream.close()
        self._made.clear()

    def _make(self, operator: Operator) -> gpu.StreamHandle:
        stream = self._run.make_stream(operator, is_captured=True)
        self._made.append(stream)
        return gpu.StreamHandle(stream)
