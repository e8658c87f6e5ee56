"""Where the streams of an operator come from: the pool or the slice that it was given, or that of its fragment."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace._runtime.streams.stream_source import StreamSource
from headrace.gpu.backend import active

if TYPE_CHECKING:
    from headrace import gpu
    from headrace.core.operator import Operator


def source_of(operator: Operator) -> StreamSource | None:
    """Return the source of streams that an operator was given; of several, the one that builds on the others."""
    sources = sources_of(operator)
    return max(sources, key=lambda source: len(foundations(source)), default=None)


def streams_from(operator: Operator) -> StreamSource | None:
    """Return what an operator was given, or else the pool of its fragment; None for the default of the run."""
    return source_of(operator) or cast(
        "StreamSource | None", operator.fragment.get_default_green_context_pool()
    )


def slice_of(operator: Operator) -> gpu.Share | None:
    """Return the slice of a device that an operator's streams belong to, or None if they may use every SM."""
    source = streams_from(operator)
    if source is None or not active().has_devices:
        return None
    return source.slice


def sources_of(operator: Operator) -> list[StreamSource]:
    """Return the sources of streams that an operator was given, each once."""
    given = (*operator.resources.values(), getattr(operator, "cuda_stream_pool", None))
    return list(dict.fromkeys(resource for resource in given if isinstance(resource, StreamSource)))


def foundations(source: StreamSource) -> list[StreamSource]:
    """Return the sources that a source builds on, directly or indirectly."""
    found: list[StreamSource] = []
    below = source.stands_on
    while below is not None:
        found.append(below)
        below = below.stands_on
    return found
