"""CudaGreenContext: one partition of a CudaGreenContextPool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._runtime import StreamSource
from headrace.resources.cuda_green_context_pool import CudaGreenContextPool

if TYPE_CHECKING:
    from headrace import gpu
    from headrace._runtime import ManagedStream
    from headrace.core.composition import Composition


class CudaGreenContext(StreamSource):
    """A slice of a device: one partition of a pool, by position or by name.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    cuda_green_context_pool
        The pool.
    index
        The partition, by position or by name; -1 means the pool's default one.
    """

    def __init__(
        self,
        fragment: Composition | None = None,
        cuda_green_context_pool: CudaGreenContextPool | None = None,
        index: int | str = -1,
        *,
        name: str = "cuda_green_context",
    ) -> None:
        super().__init__(fragment, name=name)
        if not isinstance(cuda_green_context_pool, CudaGreenContextPool):
            given = "" if cuda_green_context_pool is None else f", not {cuda_green_context_pool!r}"
            raise TypeError(
                f"{name!r} needs cuda_green_context_pool=, the CudaGreenContextPool it is a partition of{given}"
            )
        self.pool = cuda_green_context_pool
        self.index = None if index == -1 else index
        self.dev_id = cuda_green_context_pool.dev_id

    @property
    def stands_on(self) -> StreamSource:
        """The pool it is a partition of."""
        return self.pool

    @property
    def slice(self) -> gpu.Share:
        """The partition, with its SM count."""
        return self.pool.share(self.index)

    @property
    def sm_count(self) -> int:
        """The number of SMs it gets."""
        return self.pool.share(self.index).sm_count

    def check(self) -> None:
        """Raise if the pool has no such partition."""
        self.pool.check(self.index)

    def create_stream(self, priority: int) -> ManagedStream:
        """Create a stream whose work runs on this slice only; the caller closes it."""
        return self.pool.create_stream(priority, self.index)

    def _take(self) -> ManagedStream:
        return self.create_stream(0)
