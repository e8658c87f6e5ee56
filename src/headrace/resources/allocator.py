"""Allocator: the base of resources that provide memory.

A subclass says how its memory is divided: where it comes from, how much there may be of each kind, and the size of
the block that a request needs. All the rest is here: tensors, pointers, errors, waiting for memory, and the life
of the memory over the runs that use it.

Memory is made when it is first needed, or at the start of the first run that uses the allocator. It is released at
the end of the last of these runs; what is still in use then is released when it comes back. An allocator works
without a run, too, and then releases its memory when the allocator itself goes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from operator import index
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.core.errors import AllocationError, choices
from headrace.core.parameters import parameter
from headrace.core.resource import Resource
from headrace.core.values import size_text
from headrace.gpu.allocation import Allocation, kept_allocations
from headrace.gpu.backend import active
from headrace.gpu.current import current_stream
from headrace.resources.block_store import EVERYTHING, BlockStore, Exhausted
from headrace.resources.memory_block import StreamUse
from headrace.resources.memory_sources import (
    DeviceMemory,
    MemorySource,
    MemoryStorageType,
    StorageType,
    memory_left,
    memory_source,
)
from headrace.tensor import Tensor, TensorError
from headrace.tensor.description import compute_layout
from headrace.tensor.types import element_of

if TYPE_CHECKING:
    from headrace.conditions.memory_available import MemoryAvailableCondition
    from headrace.tensor.libraries.torch_allocator import TorchMemory
    from headrace.tensor.types import DLDataType

_STEP = 512  # bytes; sizes are rounded up to it
_REMEMBERED = 1024  # pointers that were freed
_REMEMBERED_USES = 16


@lru_cache(maxsize=256, typed=True)
def _layout(shape: tuple[int, ...], dtype: Any) -> tuple[DLDataType, tuple[int, ...], int]:
    """Return the element type, the strides and the bytes of a tensor: operators ask for the same in every frame."""
    element = element_of(dtype)
    strides, _, size = compute_layout(shape, None, 1, element.itemsize)
    return element, strides, size


class Allocator(Resource):
    """The base of allocators.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    dev_id
        The device that its memory is on, or that it is pinned for.
    name
        The name to find it by, which errors use too.

    Attributes
    ----------
    dev_id
        The device.
    """

    default_storage: MemoryStorageType = MemoryStorageType.DEVICE
    """The kind of memory that is allocated where none is named."""
    served: tuple[MemoryStorageType, ...] = tuple(MemoryStorageType)
    """The kinds of memory that it serves."""

    dev_id: int = parameter(default=0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lock = threading.Lock()
        self._stores: dict[MemoryStorageType, BlockStore] = {}
        self._private: dict[MemoryStorageType, BlockStore] = {}
        self._runs = 0
        self._by_pointer: dict[int, Allocation] = {}
        self._freed: deque[int] = deque(maxlen=_REMEMBERED)
        self._torch_memory: TorchMemory | None = None
        # The uses of the streams that were named last, by the identity of the handle.
        self._uses: dict[int, tuple[Any, StreamUse]] = {}
        # The conditions that wait for memory. Any thread adds, and finalizers read a copy.
        self._waiters: dict[MemoryAvailableCondition, None] = {}

    # What a subclass writes.

    def _make_source(self, storage: MemoryStorageType) -> MemorySource:
        """Return the source of a kind of memory that it serves; raise where this machine has none."""
        return memory_source(storage, self.dev_id, repr(self.name))

    def _limit(self, storage: MemoryStorageType) -> int:
        """Return the bytes of a kind of memory that there may be at once, in use and idle."""
        return EVERYTHING

    _keep: int | None = EVERYTHING
    """The bytes that may be idle; None for as many as have been in use at once."""

    def _block_for(self, size: int, storage: MemoryStorageType) -> int:
        """Return the size of the block that serves a request; similar requests share their blocks."""
        return max(-(-size // _STEP), 1) * _STEP

    def _why_never(self, size: int, storage: MemoryStorageType) -> str:
        """Return why a request can never be served, with the remedy; empty if it can."""
        return ""

    def _why_not_now(self, size: int, storage: MemoryStorageType) -> str:
        """Return what is left of memory that is all in use, and the remedy."""
        return f"{self.shortage(storage)}; {_WAIT}"

    def shortage(self, storage_type: StorageType | None = None) -> str:
        """Return how much memory is in use and left, for people to read."""
        store = self._store(self._storage(storage_type))
        used, blocks = store.in_use
        if store.is_unlimited:
            return f"{size_text(used)} in {blocks} blocks in use"
        return f"{size_text(max(store.left(), 0))} of {size_text(store.limit)} left"

    def _prepare(self) -> None:
        """Make what a run needs from the start."""

    # Memory as tensors.

    def allocate_tensor(
        self,
        shape: Sequence[int] | int,
        dtype: Any,
        storage_type: StorageType | None = None,
        *,
        stream: Any = None,
        operator: str = "",
    ) -> Tensor:
        """Allocate a C-contiguous tensor; its values are not set.

        The memory returns to the allocator when the tensor, its views and exports are gone. It is used again only
        after the work that the stream, and those who received the tensor in a pipeline, have submitted by then.

        Parameters
        ----------
        shape
            The shape, or the length of a tensor with one dimension.
        dtype
            A dtype of NumPy or ml_dtypes, or the name of one.
        storage_type
            The kind of memory, as a :class:`MemoryStorageType`, its name or its number; by default that of the
            allocator.
        stream
            The stream that works on the tensor, such as `receive_cuda_stream` returns. Without one, device memory
            counts as used on the current stream (:class:`headrace.gpu.use_stream`), or else on the default stream.
            Other memory counts as used by the host alone, and the host waits here where the device still works on
            it.
        operator
            The name of the operator, for errors.

        Raises
        ------
        AllocationError
            If there is too little memory left, or the request can never be served.
        """
        try:
            extents = (shape,) if isinstance(shape, int) else tuple(map(index, shape))
            element, strides, size = _layout(extents, dtype)
        except TypeError as error:  # TensorError is one
            raise TensorError(f"{self._who(operator)} cannot allocate such a tensor: {error}") from error
        storage = self._storage(storage_type, operator)
        allocation = self._allocate(size, storage, stream, operator)
        device = self._store(storage).open().device
        return Tensor._at((allocation.address, extents, strides, element, device, False), allocation)

    def record_stream(self, tensor: Tensor, stream: Any) -> None:
        """Note that one more stream of the program works on a tensor that was allocated here.

        That is needed for a tensor that its maker uses on a second stream. Those who receive it in a pipeline are
        known.
        """
        if not (isinstance(tensor, Tensor) and type(tensor.owner) is Allocation):
            raise TypeError(
                f"{self.name!r}: record_stream takes a tensor that allocate_tensor returned, not {tensor!r}"
            )
        tensor.owner.add_user(StreamUse.of(stream, self.dev_id))

    # Memory as pointers.

    def allocate(self, size: int, storage_type: StorageType | None = None) -> int:
        """Allocate memory and return its address; it stays until :meth:`free`.

        The host waits where the device still works on the memory. `allocate_tensor` frees by itself, and does not
        wait.
        """
        storage = self._storage(storage_type)
        wanted = index(size)
        if wanted < 1:
            raise ValueError(
                f"{self.name!r}: the size of an allocation must be at least 1 byte, not {wanted}"
            )
        allocation = self._allocate(wanted, storage, None, "", is_host=True)
        with self._lock:
            self._by_pointer[allocation.address] = allocation
        return allocation.address

    def free(self, pointer: int) -> None:
        """Free memory that :meth:`allocate` returned, after the work that was submitted to the default stream.

        Raises
        ------
        ValueError
            If the pointer is not one that `allocate` returned, or was freed before.
        """
        address = index(pointer)
        with self._lock:
            allocation = self._by_pointer.pop(address, None)
            if allocation is None:
                why = (
                    "it was freed before"
                    if address in self._freed
                    else f"it did not come from allocate() of {self.name!r}"
                )
                raise ValueError(f"{self.name!r} cannot free {address:#x}: {why}")
            self._freed.append(address)
        del allocation

    def is_available(self, size: int, storage_type: StorageType | None = None) -> bool:
        """Return whether so many bytes could be allocated now."""
        storage = self._storage(storage_type)
        if self._why_never(size, storage):
            return False
        return self._store(storage).can_reserve(self._block_for(size, storage))

    @property
    def block_size(self) -> int:
        """The size of the blocks that memory is allocated in: 1 where any size is served as it is."""
        return 1

    # Memory for other libraries.

    def cupy_allocator(self) -> Callable[[int], Any]:
        """Return a function for ``cupy.cuda.set_allocator``, which makes CuPy allocate its arrays here."""
        from headrace.tensor.libraries.cupy import make_allocator

        # Raises where the allocator does not serve device memory, before CuPy asks for some.
        storage = self._storage(MemoryStorageType.DEVICE)
        return make_allocator(lambda size, stream: self._allocate(size, storage, stream, ""), self.dev_id)

    def for_cupy(self) -> AbstractContextManager[Any]:
        """Return a context in which CuPy allocates its arrays here, on this thread."""
        from headrace.tensor.libraries.cupy import use_allocator

        return use_allocator(self.cupy_allocator())

    def for_torch(self) -> AbstractContextManager[Any]:
        """Return a context in which PyTorch allocates its tensors from this allocator's memory, on this thread.

        PyTorch divides what it gets itself, in steps of 2 MB and more, and keeps it until
        ``torch.cuda.empty_cache()``. So the allocator must serve any size. Its limit holds for PyTorch by itself:
        what PyTorch has and what the allocator hands out are not added up.

        The functions that PyTorch calls must be compiled, which takes a C compiler. Where there is none, make
        single tensors with ``torch.from_dlpack(allocator.allocate_tensor(...))`` and pass them as ``out=``.

        Raises
        ------
        NotImplementedError
            If that is not possible with this allocator or on this machine.
        """
        from headrace.tensor.libraries.torch_allocator import CompilerMissing, TorchMemory

        self._storage(MemoryStorageType.DEVICE)
        if not active().runs_cuda:
            raise self._no_torch("there is no GPU, which PyTorch would allocate on")
        store = self._store(MemoryStorageType.DEVICE)
        memory = store.open()
        if self.block_size != 1 or not isinstance(memory, DeviceMemory):
            raise self._no_torch(
                "PyTorch asks for sizes of its own, and this allocator has blocks of one size"
            )
        with self._lock:
            if self._torch_memory is None:
                try:
                    self._torch_memory = TorchMemory(memory, None if store.is_unlimited else store.limit)
                except CompilerMissing as error:
                    raise self._no_torch(f"PyTorch takes only compiled allocators, and {error}") from error
            return self._torch_memory.use(self.dev_id)

    def _no_torch(self, why: str) -> NotImplementedError:
        return NotImplementedError(
            f"{self.name!r}: {why}. Use an allocator without blocks, such as StreamOrderedAllocator, on a GPU of a "
            "machine with a C compiler, or make the tensors with torch.from_dlpack(allocator.allocate_tensor(...)) "
            "and pass them as out="
        )

    # What a run calls.

    def initialize(self) -> None:
        """Make the memory that is needed from the start; called once per run."""
        with self._lock:
            self._runs += 1
            is_first = self._runs == 1
        if is_first:
            try:
                self._prepare()
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Free the memory that nobody uses, if this was the last run that used the allocator."""
        with self._lock:
            self._runs = max(self._runs - 1, 0)
            stores = [] if self._runs else [*self._stores.values(), *self._private.values()]
            if not self._runs:
                self._uses.clear()  # the streams of the run end with it
        for store in stores:
            store.release()

    # What `MemoryAvailableCondition` uses.

    def demand(
        self, min_bytes: int | None, min_blocks: int | None, storage_type: StorageType | None, who: str
    ) -> tuple[BlockStore, int]:
        """Return the store and the bytes of it that a condition waits for; raise where they can never be there."""
        storage = self._storage(storage_type, who=who)
        if min_blocks is not None:
            if self.block_size == 1:
                raise ValueError(
                    f"{who}: {self.name!r} has no blocks of a fixed size; give min_bytes instead"
                )
            size = min_blocks * self.block_size
            store = self._store(storage)
            if size > store.limit:
                raise AllocationError(
                    f"{who} waits for {min_blocks} blocks, and {self.name!r} has {store.limit // self.block_size}; "
                    "raise num_blocks"
                )
            return store, size
        assert min_bytes is not None
        why = self._why_never(min_bytes, storage)
        if why:
            raise AllocationError(f"{who} waits for {size_text(min_bytes)} that cannot be there: {why}")
        return self._store(storage), self._block_for(min_bytes, storage)

    def add_waiter(self, waiter: MemoryAvailableCondition) -> None:
        """Tell a condition whenever memory comes back."""
        self._waiters[waiter] = None

    def discard_waiter(self, waiter: MemoryAvailableCondition) -> None:
        """Tell a condition no more."""
        self._waiters.pop(waiter, None)

    def announce(self) -> None:
        """Tell the conditions that wait that there may be memory; called from any thread, in finalizers too."""
        if self._waiters:
            for waiter in tuple(self._waiters):
                waiter.memory_returned()

    # Inside.

    def _allocate(
        self, size: int, storage: MemoryStorageType, stream: Any, operator: str, is_host: bool = False
    ) -> Allocation:
        why = self._why_never(size, storage)
        if why:
            raise AllocationError(
                f"{self._who(operator)} cannot allocate {size_text(size)} of {storage.name} memory: {why}"
            )
        store = self._store(storage)
        user: StreamUse | None = None
        if storage is not MemoryStorageType.SYSTEM and active().has_devices:
            if stream is None:
                stream = current_stream()
            if stream is None and storage is MemoryStorageType.DEVICE:
                stream = gpu.LEGACY_DEFAULT_STREAM
            if stream is not None:
                known = self._uses.get(id(stream))
                user = self._use_of(stream) if known is None else known[1]
        kept = kept_allocations()
        try:
            if kept is not None:
                store = self._private_store(storage)
                kept.append(store.take(self._block_for(size, storage), size, None))
                return kept[-1]
            return store.take(self._block_for(size, storage), size, user, is_host)
        except Exhausted:
            why = self._why_not_now(size, storage)
        except Exception as error:
            self._explain(error, f"{self._who(operator)}: {size_text(size)}", storage)
            raise
        raise AllocationError(
            f"{self._who(operator)} has too little {storage.name} memory for {size_text(size)}: {why}"
        )

    def _use_of(self, stream: Any) -> StreamUse:
        """Return the use of a stream, and remember it if the stream of a handle never changes."""
        use = StreamUse.of(stream, self.dev_id)
        if type(stream) is gpu.StreamHandle:
            if len(self._uses) >= _REMEMBERED_USES:
                self._uses.clear()
            self._uses[id(stream)] = (stream, use)  # which keeps the handle, and so its identity
        return use

    def _who(self, operator: str) -> str:
        return f"operator {operator!r}: {self.name!r}" if operator else repr(self.name)

    def _explain(self, error: BaseException, what: str, storage: MemoryStorageType) -> None:
        """Raise an AllocationError for an error that says that the machine has too little memory."""
        if isinstance(error, MemoryError) or "OUT_OF_MEMORY" in str(error):
            raise AllocationError(
                f"{what} is more {storage.name} memory than there is left on this machine, which is "
                f"{size_text(memory_left(storage, self.dev_id))} ({error}); {self.shortage(storage)}; make tensors "
                "smaller or keep fewer: a BlockMemoryPool with a MemoryAvailableCondition limits their number"
            ) from error

    def _store(self, storage: MemoryStorageType) -> BlockStore:
        store = self._stores.get(storage)
        if store is None:
            with self._lock:
                store = self._stores.get(storage)
                if store is None:
                    source = partial(self._make_source, storage)
                    store = self._stores[storage] = BlockStore(
                        source, self.dev_id, self.announce, self._limit(storage), self._keep
                    )
        return store

    def _private_store(self, storage: MemoryStorageType) -> BlockStore:
        """Return the store for work that is being captured; it has no limit, and nobody counts it."""
        source = self._store(storage).open
        with self._lock:
            if storage not in self._private:
                self._private[storage] = BlockStore(source, self.dev_id, self.announce, keep=0)
            return self._private[storage]

    def _storage(
        self, storage_type: StorageType | None, operator: str = "", who: str = ""
    ) -> MemoryStorageType:
        """Return the kind of memory that is meant; raise where it is not served."""
        if storage_type is None:
            return self.default_storage
        who = who or self._who(operator)
        storage = MemoryStorageType.of(storage_type, f"{who}: storage_type")
        if storage not in self.served:
            raise ValueError(
                f"{who} ({type(self).__name__}) serves {choices(kind.name for kind in self.served)} memory, not "
                f"{storage.name!r}"
            )
        return storage


_WAIT = (
    "give the operator a MemoryAvailableCondition of this allocator, which lets it wait until memory comes back, "
    "or more memory"
)
