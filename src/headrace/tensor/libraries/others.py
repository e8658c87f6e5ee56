"""The libraries that differ from others in little.

cuda.core's buffers, real or simulated, are bytes without a shape. The owner of the memory of one of headrace's
tensors is that of the array it was made from, and NumPy's is the last `base` of an array. Numba's arrays are
described by the CUDA array interface. CV-CUDA's streams are objects of its own. JAX's arrays are immutable, and it
works on streams of its own. PyArrow's are immutable, which the capsules of older versions cannot express.
TensorFlow's are immutable, and DLPack exports only complete data.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import gpu
from headrace.gpu.backend import backend_of_type
from headrace.tensor.device_arrays import ArrayAt, DeviceLibrary, Layout, Unsupported
from headrace.tensor.libraries.library import Library
from headrace.tensor.types import DLDataType, DLDevice, DLDeviceType

if TYPE_CHECKING:
    from headrace.gpu import StreamHandle
    from headrace.tensor.description import Description
    from headrace.tensor.tensor import Tensor


class CVCUDA(Library):
    """CV-CUDA's tensors."""

    name = "CV-CUDA"
    types = ("cvcuda.Tensor",)

    def stream(self, handle: StreamHandle) -> Any:
        """Return CV-CUDA's object for a stream."""
        import cvcuda

        return cvcuda.Stream.default if handle.is_default else cvcuda.as_stream(int(handle))


class JAX(Library):
    """JAX's arrays."""

    name = "JAX"
    types = ("jax", "jaxlib")
    unordered = None
    is_immutable = True
    uncapturable = (
        "an array of JAX, which works on streams of its own, so that nothing of it would be captured"
    )

    def from_tensor(self, tensor: Tensor) -> Any:
        """Return an array of JAX with the contents of a tensor."""
        from jax.dlpack import from_dlpack

        return from_dlpack(tensor)


class PyArrow(Library):
    """PyArrow's arrays."""

    name = "PyArrow"
    types = ("pyarrow",)
    is_immutable = True


class TensorFlow(Library):
    """TensorFlow's tensors."""

    name = "TensorFlow"
    types = ("tensorflow",)
    takes_stream = False
    is_immutable = True


class NumPy(Library):
    """Arrays of NumPy, whose subclasses may export something else than the array."""

    name = "NumPy"
    types = ("numpy.ndarray",)
    holds_objects = True
    uncapturable = (
        "an array in memory of the host, whose contents would stay what they were when the segment was captured; "
        "copy it to the device before the segment"
    )

    def for_type(self, kind: type) -> Library:
        """Return the library of arrays, of their subclasses, or of masked arrays."""
        if kind is np.ndarray:
            return _EXACT
        return _MASKED if any(base.__module__.startswith("numpy.ma") for base in kind.__mro__) else self

    def owner(self, array: Any) -> Any:
        """Return the last base."""
        base = array.base
        while base is not None:
            array = base
            # An object that lends its memory to an array may also have a `base`, with another meaning.
            base = array.base if isinstance(array, np.ndarray) else None
        return array

    def begin(self, array: Any) -> int:
        """Return the address of the outermost array."""
        while isinstance(array.base, np.ndarray):
            array = array.base
        return int(array.__array_interface__["data"][0])


class _Exact(NumPy):
    view = staticmethod(np.ndarray.view)


class _Masked(NumPy):
    refusal = (
        "it is a masked array, and a tensor has no mask: use array.filled(value), or array.data and "
        "numpy.ma.getmaskarray(array) as two arrays"
    )


_EXACT = _Exact()
_MASKED = _Masked()


class Numba(DeviceLibrary):
    """Numba's device arrays."""

    name = "Numba"
    types = ("numba.DeviceNDArray", "numba_cuda.DeviceNDArray")

    def stream(self, handle: StreamHandle) -> Any:
        """Return Numba's object for a stream."""
        from numba import cuda

        return cuda.default_stream() if handle.is_default else cuda.external_stream(int(handle))

    def layout(self, array: Any) -> Layout:
        """Return the layout of an array."""
        return Layout(self, tuple(array.shape), tuple(array.strides), array.dtype, 0)

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        return int(array.__cuda_array_interface__["data"][0])

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return an array at an address."""
        from numba import cuda

        memory = ArrayAt(address, layout.shape, layout.dtype.str, owner, layout.strides)
        return cuda.as_cuda_array(memory, sync=False)


class _Dtype(NamedTuple):
    """The element type of a tensor, and whether the tensor is read-only."""

    element: DLDataType
    is_readonly: bool
    itemsize: int


class Tensors(DeviceLibrary):
    """Tensors."""

    name = "headrace"
    types = ("headrace.Tensor",)

    def layout(self, array: Any) -> Layout:
        """Return the layout of a tensor in device memory."""
        device = array.device
        if not device.is_cuda or device.is_host:
            raise Unsupported(
                f"a tensor in memory of the host ({device}), and a captured segment reads device memory"
            )
        element = array.dl_dtype
        dtype = _Dtype(element, array.is_readonly, element.itemsize)
        return Layout(self, array.shape, array.strides, dtype, device.device_id)

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        return array.data  # type: ignore[no-any-return]

    def numpy_dtype(self, layout: Layout) -> Any:
        """Return NumPy's dtype, or None for one that needs another package."""
        try:
            return layout.dtype.element.numpy()
        except Exception:
            return None

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return a tensor at an address."""
        from headrace.tensor.tensor import Tensor

        element, is_readonly, _ = layout.dtype
        where = DLDevice(DLDeviceType.CUDA, layout.device_id)
        described = (address, layout.shape, layout.strides, element, where, is_readonly)
        return Tensor._at(described, owner)


_device = cache(DLDevice)


class _Byte(NamedTuple):
    itemsize: int


_BYTE = _Byte(1)


class Buffers(DeviceLibrary):
    """Buffers of cuda.core."""

    name = "cuda.core"
    types = ("cuda.Buffer", "headrace.Buffer")
    has_views = False

    def for_type(self, kind: type) -> Library:
        """Return the library of buffers of a GPU, or of a device whose memory only the host can describe."""
        return self if backend_of_type(kind).runs_cuda else _OF_HOST

    def owner(self, array: Any) -> Any:
        """Return the buffer."""
        return array

    def begin(self, array: Any) -> int:
        """Return the address."""
        return int(array.handle)

    def layout(self, array: Any) -> Layout:
        """Return the layout of a buffer in device memory."""
        if not array.is_device_accessible or array.is_host_accessible:
            raise Unsupported("a buffer in memory of the host, and a captured segment reads device memory")
        return Layout(self, (array.size,), (1,), _BYTE, array.device_id)

    def address(self, array: Any) -> int:
        """Return the address."""
        return int(array.handle)

    def numpy_dtype(self, layout: Layout) -> Any:
        """Return None: nobody says what the bytes are."""
        return None

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return a buffer at an address."""
        return gpu.Buffer.from_handle(address, layout.shape[0], owner=owner)

    def new(self, layout: Layout, stream: gpu.StreamHandle) -> Any:
        """Return a new buffer."""
        return stream.device.allocate(layout.shape[0], stream=stream.stream)


class _OfHost(Buffers):
    @staticmethod
    def describe(array: Any, device: tuple[int, int]) -> Description:
        return (array.handle, (array.size,), (1,), DLDataType(0, 8), _device(*device), False)


_OF_HOST = _OfHost()

LIBRARIES: dict[str, Library] = {
    "cuda_core": Buffers(),
    "cvcuda": CVCUDA(),
    "headrace": Tensors(),
    "jax": JAX(),
    "numba": Numba(),
    "numpy": NumPy(),
    "pyarrow": PyArrow(),
    "tensorflow": TensorFlow(),
}
