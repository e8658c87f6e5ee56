"""Options of a copy between buffers, as in ``cuda.core.utils``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.gpu.sim.graph_builder import GraphBuilder
    from headrace.gpu.sim.stream import Stream

# The driver whose copies have attributes.
_DRIVER = (13, 2)


class MemcpySrcAccessOrder(StrEnum):
    """When the source of a copy may be read."""

    STREAM = "stream"
    DURING_API_CALL = "during_api_call"
    ANY = "any"


class MemcpyOverlapMode(StrEnum):
    """Whether a copy should overlap with kernels."""

    DEFAULT = "default"
    PREFER_OVERLAP_WITH_COMPUTE = "prefer_overlap_with_compute"


@dataclass(frozen=True)
class CopyOptions:
    """Hints for a copy.

    A simulated copy follows the order of its source only; the locations and the overlap have no effect.

    Parameters
    ----------
    src_access_order
        When the source may be read: in stream order, before the call returns, or at any time until the copy is
        complete (simulated in stream order).
    src_location_hint, dst_location_hint
        The devices that managed memory is expected on.
    overlap_mode
        Whether the copy should overlap with kernels.
    """

    src_access_order: MemcpySrcAccessOrder | str = "stream"
    src_location_hint: Any = None
    dst_location_hint: Any = None
    overlap_mode: MemcpyOverlapMode | str = "default"

    def __post_init__(self) -> None:
        for name, kind in (("src_access_order", MemcpySrcAccessOrder), ("overlap_mode", MemcpyOverlapMode)):
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, kind(given))
            except ValueError:
                raise ValueError(f"invalid {name}: {given!r}; it is one of {', '.join(kind)}") from None


def reads_at_once(options: CopyOptions | None, stream: Stream | GraphBuilder) -> bool:
    """Return whether a copy with these options has read its source when the call returns.

    Raises
    ------
    TypeError
        If a copy on this stream takes no options.
    RuntimeError
        If the driver cannot promise what they ask for.
    """
    if options is None:
        return False
    if not isinstance(options, CopyOptions):
        raise TypeError(f"options must be CopyOptions or None, got {type(options).__name__}")
    queue = stream._queue
    if queue.is_default:
        raise TypeError("copy options are not accepted with LEGACY_DEFAULT_STREAM; copy on another stream")
    if queue.capture is not None:
        raise TypeError("copy options are not accepted on a capturing stream: a graph cannot represent them")
    if options.src_access_order is not MemcpySrcAccessOrder.DURING_API_CALL:
        return False
    queue.context.device.machine.require_driver(_DRIVER, "src_access_order=DURING_API_CALL")
    return True
