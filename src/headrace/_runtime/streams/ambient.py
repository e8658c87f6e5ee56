"""AmbientStream: makes an operator's stream the current stream of every library while it computes.

Plain code of CuPy, PyTorch and others then runs on the operator's stream without naming it. Operators made from
functions work this way, and operators that request it in `setup`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime.messages.managed_stream import is_default
from headrace._runtime.streams.default_stream import default_handle

if TYPE_CHECKING:
    from headrace._runtime.streams.node_streams import NodeStreams


class AmbientStream:
    """Makes an operator's stream current around each compute.

    Its fields are changed only in the operator's computes.
    """

    __slots__ = ("_current", "_streams")

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams
        self._current: gpu.use_stream | None = None

    @property
    def is_open(self) -> bool:
        """Whether the operator's stream is already current in its computes."""
        return self._current is not None

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute during which the operator's stream is current."""
        streams = self._streams
        allocation = streams.allocation

        def compute_on_stream(op_input: Any, op_output: Any, context: Any) -> None:
            current = self._current
            if current is None:
                if not streams.is_gpu_available:
                    compute(op_input, op_output, context)
                    return
                current = self._open()
            assert allocation.own is not None
            allocation.make_current(allocation.own.device_id)
            with current:
                compute(op_input, op_output, context)

        return compute_on_stream

    def _open(self) -> gpu.use_stream:
        """Take the operator's stream; if the pool has none left, plain code runs on the default stream."""
        own = self._streams.allocation.open_or_default()
        handle: Any = default_handle(own.device_id) if is_default(own.handle) else own.handle
        current = self._current = gpu.use_stream(handle)
        self._streams.work_on(own)
        return current
