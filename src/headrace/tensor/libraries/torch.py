"""PyTorch: a tensor is computed on the current stream, and its memory is a storage, whose users PyTorch counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

import torch

from headrace.tensor.device_arrays import ArrayAt, DeviceLibrary, Layout, Unsupported
from headrace.tensor.libraries import hidden_users

if TYPE_CHECKING:
    from headrace.gpu import StreamHandle
    from headrace.tensor.tensor import Tensor

_current_stream = torch.cuda.current_stream
# Builds without CUDA lack them, and have no streams.
_read_parts: Any = getattr(torch._C, "_cuda_getCurrentStream", None)
_read_handle: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_set_parts: Any = getattr(torch._C, "_cuda_setStream", None)
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)


class PyTorch(DeviceLibrary):
    """PyTorch's tensors."""

    name = "PyTorch"
    types = ("torch.Tensor", "torch.UntypedStorage")
    ignores_read_only = True

    @staticmethod
    def current_stream(device_id: int) -> int:
        """Return the handle of PyTorch's current stream."""
        return _current_stream(device_id).cuda_stream  # type: ignore[no-any-return]

    @staticmethod
    def memory_of(array: Any) -> Any:
        """Return the storage: ``tensor.data = other`` exchanges it under a capsule, which keeps only the tensor."""
        return array.untyped_storage()

    def from_tensor(self, tensor: Tensor) -> Any:
        """Return a PyTorch tensor on the memory of a tensor."""
        return torch.from_dlpack(tensor)

    owner = staticmethod(methodcaller("untyped_storage"))  # type: ignore[assignment]
    """Return the storage; sparse tensors and some backends have none, and raise."""

    def begin(self, array: Any) -> int:
        """Return the address of the storage."""
        return array.untyped_storage().data_ptr()  # type: ignore[no-any-return]

    # Streams.

    @cached_property
    def _has_cuda(self) -> bool:
        return bool(torch.cuda.is_available())

    def is_in_use(self) -> bool:
        """Return whether PyTorch was built with CUDA and finds a GPU."""
        return self._has_cuda

    def stream(self, handle: StreamHandle) -> Any:
        """Return PyTorch's object for a stream."""
        # Without a device PyTorch would assume that the stream belongs to the current one.
        if handle.is_default:
            device_id = handle.device_id
            return torch.cuda.default_stream(*() if device_id is None else (device_id,))
        device_id = getattr(getattr(handle.stream, "device", None), "device_id", None)
        return torch.cuda.ExternalStream(handle, **({} if device_id is None else {"device": device_id}))

    # PyTorch's own calls take 0.14 and 0.5 µs. `torch.cuda.current_stream` takes 5 and `torch.cuda.set_stream` 0.8,
    # because they make objects and ask for the device.

    @staticmethod
    def read_stream() -> Any:
        """Return the current stream of the current device, in the parts that PyTorch keeps it in."""
        return _read_parts(_current_device())

    @staticmethod
    def set_stream(state: Any) -> None:
        """Make a stream current."""
        _set_parts(*state)

    def stream_setter(self, state: Any) -> Callable[[], object]:
        """Return a function that makes a stream current, unless it is."""
        stream_id, device_index, device_type = state
        set_parts = partial(_set_parts, stream_id, device_index, device_type)
        if torch.cuda.device_count() > 1:
            return set_parts  # which also makes its device current

        def make_current() -> None:
            # The number of a stream of others is its handle, and that of PyTorch's own ones is no handle.
            if _read_handle(device_index) != stream_id:
                set_parts()

        return make_current

    def stream_state(self, handle: StreamHandle) -> Any:
        """Return the parts of a stream."""
        stream = handle.of_library("torch")
        return (stream.stream_id, stream.device_index, stream.device_type)

    # Memory.

    def private_memory(self, device_id: int) -> Callable[[], AbstractContextManager[Any]]:
        """Return a function whose contexts make PyTorch allocate from a new pool."""
        pool = torch.cuda.MemPool()
        return lambda: torch.cuda.use_mem_pool(pool, device_id)

    def layout(self, array: Any) -> Layout:
        """Return the layout of a tensor without gradients in device memory."""
        if array.device.type != "cuda":
            raise Unsupported(
                f"a PyTorch tensor on {array.device}, and a captured segment reads device memory"
            )
        if array.requires_grad:
            raise Unsupported("a PyTorch tensor that records gradients; use torch.no_grad() or detach()")
        if array.layout is not torch.strided:
            raise Unsupported(f"a PyTorch tensor of the layout {array.layout}")
        itemsize = array.element_size()
        strides = tuple([stride * itemsize for stride in array.stride()])
        return Layout(self, tuple(array.shape), strides, array.dtype, array.device.index)

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        return array.data_ptr()  # type: ignore[no-any-return]

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return a tensor at an address."""
        # As bytes first, since the interface has no name for some of PyTorch's types.
        memory = ArrayAt(address, (self.extent(layout).size,), "|u1", owner)
        data = torch.as_tensor(memory, device=torch.device("cuda", layout.device_id)).view(layout.dtype)
        return data.as_strided(layout.shape, self._steps(layout))

    def new(self, layout: Layout, stream: StreamHandle) -> Any:
        """Return a new tensor."""
        device = torch.device("cuda", layout.device_id)
        return torch.empty_strided(layout.shape, self._steps(layout), dtype=layout.dtype, device=device)

    @staticmethod
    def _steps(layout: Layout) -> list[int]:
        """Return the strides in elements."""
        return [stride // layout.dtype.itemsize for stride in layout.strides]

    def numpy_dtype(self, layout: Layout) -> Any:
        """Return NumPy's dtype; None for bfloat16 and smaller floats."""
        try:
            return torch.empty(0, dtype=layout.dtype).numpy().dtype
        except TypeError:
            return None


_count_users: Any = getattr(torch._C, "_storage_Use_Count", None)
_address = attrgetter("_cdata")


def _most_users(storages: Sequence[Any]) -> int:
    """Return how many tensors share a storage, for that with the most."""
    return max(map(_count_users, map(_address, storages)))  # type: ignore[no-any-return]


hidden_users[torch.UntypedStorage] = _most_users
LIBRARIES = {"torch": PyTorch()}
