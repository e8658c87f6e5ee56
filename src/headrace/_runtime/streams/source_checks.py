"""Checks of the streams and slices of a graph before it runs.

The checks create nothing on a device. They only query what the device could provide; with ``HEADRACE_DEVICE=none``
they do not query it either.

**Two pools that divide one device.** The driver starts every split at the first SM. Two splits therefore get the
same SMs, and contexts on the same SMs share them without any error. So only one pool may divide a device in an
application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace import gpu
from headrace._runtime.streams.sources import foundations, source_of, sources_of
from headrace.core.errors import GraphError

if TYPE_CHECKING:
    from headrace._runtime.streams.stream_source import StreamSource
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator


def check_sources(fragment: Composition) -> None:
    """Raise for the first operator whose streams or slice of a device are not available."""
    dividing: dict[int, tuple[StreamSource, str]] = {}
    checked: set[StreamSource] = set()
    for operator in fragment.graph:
        _check_given(operator)
        default = cast("StreamSource | None", operator.fragment.get_default_green_context_pool())
        source = source_of(operator) or default
        if source is not None:
            used_by = f"operator {operator.name!r}"
            _check_division(source, used_by, dividing)
            _check_device(source, used_by, checked)


def _check_given(operator: Operator) -> None:
    """Raise if an operator was given two sources and neither builds on the other."""
    given = sources_of(operator)
    chosen = source_of(operator)
    if chosen is None:
        return
    for other in given:
        if other is not chosen and other not in foundations(chosen):
            first, second = sorted((chosen, other), key=given.index)
            raise GraphError(
                f"operator {operator.name!r} takes its streams from one source, but was given two: "
                f"{_called(first)} and {_called(second)}; pass one of them, or a CudaStreamPool with "
                "cuda_green_context= to use both a pool and a slice of the device"
            )


def _check_division(
    source: StreamSource, used_by: str, dividing: dict[int, tuple[StreamSource, str]]
) -> None:
    """Raise if two sources divide one device."""
    for part in (source, *foundations(source)):
        if not part.divides:
            continue
        other, also_used_by = dividing.setdefault(part.dev_id, (part, used_by))
        if other is not part:
            raise GraphError(
                f"{_called(other)} ({also_used_by}) and {_called(part)} ({used_by}) both divide device "
                f"{part.dev_id}, and would get the same SMs; create one pool with all the partitions "
                f"({other.joined_with(part)}) and a CudaGreenContext of it for each"
            )


def _check_device(source: StreamSource, used_by: str, checked: set[StreamSource]) -> None:
    """Raise if there is no such device, or it cannot meet the request."""
    for part in (source, *foundations(source)):
        if part not in checked:
            try:
                part.check()
            except (GraphError, gpu.PartitionError) as error:
                raise type(error)(f"{used_by}: {error}") from None
            checked.add(part)


def _called(source: StreamSource) -> str:
    return f"{type(source).__name__} {source.name!r}"
