"""CudaGreenContext: one partition of a CudaGreenContextPool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import gpu
from penstock.core.resource import Resource

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.resources.cuda_green_context_pool import CudaGreenContextPool

__all__ = ["CudaGreenContext"]


class CudaGreenContext(Resource):
    """A slice of a device, by its place in a pool.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    cuda_green_context_pool
        The pool.
    index
        Which of its partitions; the pool's default one unless given.
    """

    def __init__(
        self,
        fragment: Fragment | None = None,
        cuda_green_context_pool: CudaGreenContextPool | None = None,
        index: int = -1,
        *,
        name: str = "cuda_green_context",
    ) -> None:
        super().__init__(fragment, name=name)
        if cuda_green_context_pool is None:
            raise TypeError(f"{name!r} needs cuda_green_context_pool=, the pool it is a partition of")
        self.pool = cuda_green_context_pool
        self.index = None if index == -1 else index

    @property
    def dev_id(self) -> int:
        """The device."""
        return self.pool.dev_id

    @property
    def sm_count(self) -> int:
        """The SMs it really gets."""
        return self.pool.sm_counts[self.pool.default_context_index if self.index is None else self.index]

    def partition(self) -> gpu.Partition:
        """Give the partition it stands for."""
        return self.pool.partition(self.index)
