"""Array: elements in simulated device memory, with the operators of the standard.

An array is a view of memory that a stream fills. Basic indexing gives another view at once; everything else queues
a kernel on the current stream. The host waits where it needs a value: ``float(array)``, ``bool(array)``, printing,
``get()``.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from headrace.gpu.dlpack import CPU, CUDA, relabel
from headrace.gpu.sim.arrays import work
from headrace.gpu.sim.arrays.compute import Stored, compute, elementwise
from headrace.gpu.sim.arrays.indexing import get_item, set_item
from headrace.gpu.sim.arrays.kernels import floor_divide, matmul, pow
from headrace.gpu.sim.arrays.work import Borrowed
from headrace.gpu.sim.device import Device
from headrace.gpu.sim.machine import current_machine
from headrace.gpu.sim.memory import find_memory
from headrace.gpu.sim.objects import CUDAError
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE

_SCALARS = (bool, int, float, complex, np.generic)

_Binary = Callable[[Any, Any], Any]


def _of_view(name: str, doc: str) -> Any:
    return property(lambda self: getattr(self._view, name), doc=doc)


def _unary(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda self: elementwise(function, self)


def _operators(function: Callable[..., Any]) -> tuple[_Binary, _Binary, _Binary]:
    """Return the operator of a function, the reflected one, and the one in place."""

    def forward(self: Any, other: Any) -> Any:
        return elementwise(function, self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        return elementwise(function, other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def assign(self: Any, other: Any) -> Any:
        return (
            elementwise(function, self, other, out=self) if isinstance(other, _OPERANDS) else NotImplemented
        )

    return forward, reflected, assign


_OPERANDS = (Stored, *_SCALARS)


class Array(Stored):
    """An array on a simulated device, by the Array API standard; created by the functions of the module.

    ``get()`` returns a NumPy array, as CuPy's arrays do.
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's arrays leave `array + other` to the other, which refuses
    __headrace_device__ = "sim"

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("create an array with asarray, zeros or another function of headrace.gpu.arrays()")

    # What it is.

    shape = _of_view("shape", "The extents of its dimensions.")
    strides = _of_view("strides", "The bytes from an element to the next one in each dimension.")
    dtype = _of_view("dtype", "The type of its elements.")
    ndim = _of_view("ndim", "The number of its dimensions.")
    size = _of_view("size", "The number of its elements.")
    nbytes = _of_view("nbytes", "The bytes of all elements.")
    itemsize = _of_view("itemsize", "The bytes of an element.")

    @property
    def device(self) -> Any:
        """The device that its memory is on."""
        return Device(self._device_id)

    @property
    def _device_id(self) -> int:
        return int(self._memory.device_id)

    @property
    def _address(self) -> int:
        return int(self._view.__array_interface__["data"][0])

    @property
    def T(self) -> Any:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ValueError(
                f"T is for arrays of two dimensions, this one has {self.ndim}: use permute_dims, or mT"
            )
        return self._on(self._view.T, self._memory)

    @property
    def mT(self) -> Any:
        """The transpose of each matrix in a stack of them."""
        if self.ndim < 2:
            raise ValueError(f"mT is for arrays of two or more dimensions, this one has {self.ndim}")
        return self._on(np.matrix_transpose(self._view), self._memory)

    # Its values on the host.

    def get(self) -> np.ndarray[Any, Any]:
        """Return a NumPy array with its values, when the current stream has copied them."""
        return work.to_host(self._view)

    def _item(self, what: str, error: type[Exception] = TypeError) -> Any:
        if self.size != 1:
            raise error(
                f"only an array of one element can be {what}, and this one has the shape {self.shape}"
            )
        return self.get().item()

    def __bool__(self) -> bool:
        return bool(self._item("true or false", ValueError))  # as NumPy

    def __int__(self) -> int:
        return int(self._item("an int"))

    def __float__(self) -> float:
        return float(self._item("a float"))

    def __complex__(self) -> complex:
        return complex(self._item("a complex number"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.ndim:
            raise TypeError(
                f"an index is an integer without dimensions, not {self.dtype} of shape {self.shape}"
            )
        return operator.index(self._item("an index"))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("an array without dimensions has no length")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("NumPy cannot read memory of a device: use array.get(), or asnumpy(array)")

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    # Indexing.

    def __getitem__(self, key: Any, /) -> Any:
        return get_item(self, key)

    def __setitem__(self, key: Any, value: Any, /) -> None:
        if not isinstance(value, _OPERANDS):
            value = self.__array_namespace__().asarray(value)
        set_item(self, key, value)

    # Exchange.

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        from headrace.gpu.sim import arrays  # a cycle: the module has the functions

        if api_version not in (None, "2021.12", "2022.12", "2023.12", arrays.__array_api_version__):
            raise ValueError(
                f"the version is {arrays.__array_api_version__}, and {api_version!r} was asked for"
            )
        return arrays

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """Return an array on a device, on a stream of it; itself if it is there."""
        device = work.device_of(device)
        if device.device_id == self._device_id:
            return self
        with work.on_device(device, stream):
            return compute(np.copy, self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self._device_id)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule of its memory, or of a copy on the host, which other libraries can read.

        A capsule of simulated memory says that it is a device's. Where there is a GPU, a library would take its
        address for one of the GPU, so there is none then.
        """
        own = self.__dlpack_device__()
        if dl_device is not None and dl_device[0] == CPU and copy is not False:
            return self.get().__dlpack__(max_version=max_version)
        if dl_device not in (None, own):
            raise BufferError(f"only a copy of the array can be on {dl_device}, and only on the host")
        if os.path.exists("/proc/driver/nvidia"):
            raise BufferError(
                "no library of the GPU can read the memory of a simulated device: ask for the host (device='cpu'), "
                "or use headrace.as_tensor(array), array.__cuda_array_interface__ or array.get()"
            )
        array = compute(np.copy, self) if copy else self
        if stream != -1:
            work.order(LEGACY_DEFAULT_HANDLE if stream is None else stream)
        return relabel(np.asarray(_Exported(array)).__dlpack__(max_version=max_version), own)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Its description, whose stream is the current one, as CuPy's."""
        found = self._view.__array_interface__
        return {
            "shape": self.shape,
            "typestr": found["typestr"],
            "data": (0 if not self.size else found["data"][0], not self._view.flags.writeable),
            "strides": self.strides,
            "stream": work.array_stream().handle,
            "version": 3,
        }

    def __simulated_memory__(self) -> Any:
        """Return the bytes, for a simulated kernel that is given the array."""
        if not self._view.flags.c_contiguous:
            raise ValueError(
                f"a simulated kernel takes contiguous arrays, not one with the strides {self.strides}"
            )
        return self._view.reshape(-1).view(np.uint8)

    # Operators.

    __hash__ = None  # type: ignore[assignment]
    __abs__, __neg__, __pos__ = _unary(np.abs), _unary(np.negative), _unary(np.positive)
    __invert__ = _unary(np.invert)
    __add__, __radd__, __iadd__ = _operators(np.add)
    __sub__, __rsub__, __isub__ = _operators(np.subtract)
    __mul__, __rmul__, __imul__ = _operators(np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _operators(np.true_divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(floor_divide)
    __mod__, __rmod__, __imod__ = _operators(np.remainder)
    __pow__, __rpow__, __ipow__ = _operators(pow)
    __and__, __rand__, __iand__ = _operators(np.bitwise_and)
    __or__, __ror__, __ior__ = _operators(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = _operators(np.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _operators(np.left_shift)
    __rshift__, __rrshift__, __irshift__ = _operators(np.right_shift)
    __lt__, __le__ = _operators(np.less)[0], _operators(np.less_equal)[0]
    __gt__, __ge__ = _operators(np.greater)[0], _operators(np.greater_equal)[0]
    __eq__, __ne__ = _operators(np.equal)[0], _operators(np.not_equal)[0]

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other) if isinstance(other, Stored) else NotImplemented

    def __imatmul__(self, other: Any) -> Any:
        return matmul(self, other, out=self) if isinstance(other, Stored) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return NotImplemented


class _Exported:
    """An array as NumPy sees it, which keeps its memory."""

    __slots__ = ("__array_interface__", "_memory")

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = array._view.__array_interface__
        self._memory = array._memory


def array_at(interface: dict[str, Any], owner: Any) -> Any:
    """Return an array on simulated memory that an object describes by its CUDA array interface, in order.

    Raises
    ------
    BufferError
        If it is not memory of the simulated machine.
    """
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    address, is_readonly = interface["data"]
    probe = np.lib.stride_tricks.as_strided(np.empty((), dtype), shape, interface.get("strides"))
    begin, end = np.lib.array_utils.byte_bounds(probe)
    before = int(probe.__array_interface__["data"][0]) - begin
    device, memory = None, np.empty(0, np.uint8)
    if 0 not in shape:
        try:
            device, memory, _ = find_memory(current_machine(), address - before, end - begin)
        except CUDAError as error:
            told = f"{owner!r} is not memory of the simulated device; a GPU needs HEADRACE_DEVICE=cuda"
            raise BufferError(told) from error
    view: Any = np.ndarray(shape, dtype, memory, 0 if 0 in shape else before, probe.strides)
    view.flags.writeable = not is_readonly
    if interface.get("stream") is not None:
        work.wait_for(interface["stream"])
    return Array._on(view, Borrowed(owner, address - before, 0 if device is None else device.index))
