"""StreamSource: a resource that operators get streams from, as a run sees it."""

from __future__ import annotations

from typing import ClassVar

from penstock.core.resource import Resource
from penstock.runtime.managed_stream import ManagedStream

__all__ = ["StreamSource"]


class StreamSource(Resource):
    """The base of stream pools, and of slices of a device, which give streams of their own.

    A run opens each source once, takes streams from it as operators ask for them, and releases it at the end,
    after the sources that stand on it.
    """

    dev_id: int
    is_pool: ClassVar[bool] = False
    """Whether its streams are what it is for; a slice of a device gives some as well."""

    @property
    def stands_on(self) -> StreamSource | None:
        """The source it makes its streams in, which must outlive it."""
        return None

    def open(self) -> None:
        """Get ready, at the start of a run."""

    def take(self) -> ManagedStream | None:
        """Give a stream that nobody has yet, or None if there may be no more."""
        raise NotImplementedError
