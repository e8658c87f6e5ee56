"""Tensor: memory that one library owns, described so that every other library accepts it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE
from headrace.tensor import interface as interfaces
from headrace.tensor.array_operators import ArrayOperators
from headrace.tensor.capsule import (
    exporter_of,
    make_read_only_capsule,
    request_capsule,
    request_copy,
    view_as_numpy,
)
from headrace.tensor.description import Description, PendingWork, StreamWork, stream_of
from headrace.tensor.libraries import usual_module
from headrace.tensor.types import DLDataType, DLDevice, TensorError, type_name

if TYPE_CHECKING:
    import numpy as np


_new = object.__new__


class Described:
    """An array that is described by its shape, its strides in bytes and its element type, as in DLPack."""

    __slots__ = ()

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dl_dtype: DLDataType

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the elements; types that only ml_dtypes defines need that package."""
        return self.dl_dtype.numpy()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dl_dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.size * self.itemsize

    def is_contiguous(self) -> bool:
        """Return whether the elements are contiguous in row-major order."""
        expected = self.dl_dtype.itemsize
        for extent, stride in zip(self.shape[::-1], self.strides[::-1], strict=True):
            if stride != expected and extent != 1:
                return 0 in self.shape
            expected *= extent
        return True


class Tensor(ArrayOperators, Described):
    """An array of any library: where its memory is, how it is laid out, and when it may be read.

    A tensor owns and copies nothing. It keeps the original array alive, and with it the memory. It supports DLPack,
    ``__cuda_array_interface__`` and ``__array_interface__``, whichever of them the array itself supports.
    Create one with :func:`headrace.as_tensor`.

    In expressions it behaves as an array: indexing, iteration, arithmetic, comparison and ``len``. The result is an
    array of the library that computes on its memory (see the page about tensors in the documentation).

    Attributes
    ----------
    data
        The address of the first element.
    shape, strides
        As in NumPy; strides are in bytes.
    device
        The device that the memory is on.
    dl_dtype
        The element type as DLPack describes it; `dtype` is NumPy's.
    is_readonly
        Whether the memory must not be written to, because its owner is read-only or immutable like JAX's arrays.
    owner
        The original array.
    """

    __slots__ = (
        "__weakref__",
        "_exporter",
        "_held",
        "_pending_work",
        "_sent_as",
        "data",
        "device",
        "dl_dtype",
        "is_readonly",
        "owner",
        "shape",
        "strides",
    )

    data: int
    device: DLDevice
    is_readonly: bool
    owner: Any
    _exporter: Any
    _held: Any
    _pending_work: PendingWork | None
    # The operator, the output and the entry of the message that it was sent in, for its errors.
    _sent_as: tuple[str, str, object] | None

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("create a Tensor with headrace.as_tensor")

    @classmethod
    def _create(
        cls,
        description: Description,
        owner: Any,
        exporter: Any,
        pending_work: PendingWork | None,
        held: Any = None,
    ) -> Tensor:
        """Create a tensor; `exporter` creates its capsules, `held` is another object to keep alive."""
        self = _new(cls)
        self.data, self.shape, self.strides, self.dl_dtype, self.device, self.is_readonly = description
        self.owner = owner
        self._exporter = exporter
        self._pending_work = pending_work
        self._held = held
        self._sent_as = None
        return self

    @classmethod
    def _at(cls, description: Description, owner: Any) -> Tensor:
        """Create a tensor on complete memory that belongs to `owner`."""
        return cls._create(description, owner, exporter_of(description, owner), None)

    def _with_pending_work(self, pending_work: PendingWork | None) -> Tensor:
        """Return a copy of this tensor whose data is produced by other work."""
        other = Tensor._create(self._description, self.owner, self._exporter, pending_work, self._held)
        other._sent_as = self._sent_as
        return other

    @property
    def _description(self) -> Description:
        return (self.data, self.shape, self.strides, self.dl_dtype, self.device, self.is_readonly)

    def __copy__(self) -> Tensor:
        return self._with_pending_work(self._pending_work)

    def __reduce__(self) -> Any:
        # By value: a copy of the owner would have the old address.
        if not self.device.is_host:
            raise TypeError(
                "a Tensor in the memory of a device cannot be pickled or deep-copied; copy it to the host first"
            )
        import numpy as np

        from headrace.tensor.conversion import as_tensor

        return as_tensor, (np.array(self),)

    @property
    def stream(self) -> int | None:
        """The stream that the data is being computed on, or None if there is nothing to wait for."""
        work = self._pending_work
        return work.stream_handle if isinstance(work, StreamWork) else None

    def __repr__(self) -> str:
        text = f"Tensor(shape={self.shape}, dtype={self.dl_dtype.name}, device={self.device}"
        if not self.is_contiguous():
            text += f", strides={self.strides}"
        if self.is_readonly:
            text += ", read-only"
        if self.stream is not None:
            text += f", stream={int(self.stream):#x}"
        return f"{text}, of {type_name(self.owner)})"

    def _repr_html_(self) -> str:
        from headrace.tensor.shown import tensor_html

        return tensor_html(self)

    def __simulated_memory__(self) -> Any:
        """Return the bytes of a contiguous tensor in simulated memory, for a simulated kernel that is given it."""
        if not self.is_contiguous():
            raise ValueError(
                f"{self._error_prefix()}a simulated kernel takes contiguous tensors, not {self!r}"
            )
        memory = self.owner.__simulated_memory__()
        offset = self.data - int(memory.ctypes.data)
        return memory[offset : offset + self.nbytes]

    # The protocols that other libraries use.

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device.device_type, self.device.device_id)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule, after ordering the consumer's stream after the work on the tensor.

        Parameters
        ----------
        stream
            The consumer's stream: a handle, 1 or None for the legacy default stream, 2 for the per-thread default
            stream; -1 to order nothing.
        max_version
            The newest version that the consumer supports; by default the capsule has the old form.
        dl_device, copy
            Passed to the owner, which copies if it supports that.
        """
        exporter = self._exporter
        if exporter is None:
            why = f"it was taken from a capsule, and no library exports memory on {self.device}"
            if self.device.is_cuda:
                why = "its owner does not support DLPack, and cuda-core, which would export it, finds no GPU"
            raise self._export_error(why)
        if copy or not (dl_device is None or tuple(dl_device) == self.__dlpack_device__()):
            return self._export_copy(stream, max_version, dl_device, copy)
        if self._has_negative_stride():
            library = usual_module(self.device)
            raise self._export_error(
                "it has a negative stride, and some libraries abort the process on one. Send "
                f"{library}.ascontiguousarray(array) or array.copy() instead; {library}.asarray accepts it as it is"
            )
        if self.device.is_cuda:
            self._order(stream)
            stream = -1
        elif stream is not None and self.device.is_host:
            raise self._export_error(f"memory of the host has no streams, and stream {stream} was requested")
        if self.is_readonly:
            return make_read_only_capsule(self, max_version, sys._getframe(1))
        try:
            return request_capsule(exporter, stream, max_version)
        except Exception as error:  # an error of its owner, which does not name the message
            if self._sent_as is not None:
                error.add_note(f"raised while exporting {self._error_prefix()}{self!r}")
            raise

    def _has_negative_stride(self) -> bool:
        """Return whether elements lie before the first one; PyTorch aborts the process on such a tensor (2.13)."""
        if not self.strides or min(self.strides) >= 0:
            return False
        pairs = zip(self.shape, self.strides, strict=True)
        return self.size > 0 and any(extent > 1 and stride < 0 for extent, stride in pairs)

    def _export_error(self, why: str) -> BufferError:
        """Return the error for an export that is not possible."""
        return BufferError(f"{self._error_prefix()}{self!r} cannot be exported through DLPack: {why}")

    def _error_prefix(self) -> str:
        """Return the beginning of an error: the message entry that the tensor was sent as, if any."""
        if self._sent_as is None:
            return ""
        operator, port, entry = self._sent_as
        return f"operator {operator!r}, output {port!r}: {entry!r}: "

    def _order(self, stream: int | None) -> None:
        """Order a consumer's stream, as DLPack names it, after the work on the tensor."""
        if stream == 0:
            raise BufferError(
                "stream 0 is not valid in DLPack; 1 is the legacy default stream, 2 the per-thread default stream"
            )
        if self._pending_work is not None and stream != -1:
            self._pending_work.order(LEGACY_DEFAULT_HANDLE if stream is None else stream)

    def _export_copy(
        self,
        stream: int | None,
        max_version: tuple[int, int] | None,
        dl_device: tuple[int, int] | None,
        copy: bool | None,
    ) -> Any:
        """Return a capsule of a copy, made by the owner on the stream that the data is computed on."""
        own: AbstractContextManager[object] = nullcontext()
        if self.device.is_cuda:
            self._order(stream)
            if self.stream is not None:
                if self.device.is_host:
                    stream_of(self.stream).sync()  # it is the host that copies
                own = gpu.use_stream(stream_of(self.stream))
        with own:
            return request_copy(self._exporter, stream, max_version, dl_device, copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.device.is_cuda:
            raise AttributeError(f"a tensor on {self.device} has no __cuda_array_interface__")
        interface = interfaces.write(self)
        interface["stream"] = self.stream
        if self._has_negative_stride():
            # PyTorch would abort the process, but it rejects read-only memory. CuPy and Numba ignore the flag.
            interface["data"] = (self.data, True)
        return interface

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self.device.is_host:
            raise AttributeError(
                f"a tensor on {self.device} has no __array_interface__: the host cannot read it"
            )
        return interfaces.write(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a NumPy array, or raise an error instead of letting NumPy create an array of one object."""
        import numpy as np

        array: Any = self
        try:
            if self.device.is_host and self.dl_dtype.typestr is None:  # a type of ml_dtypes
                array = view_as_numpy(self._description, self, self.is_readonly).view(self.dtype)
            else:
                _ = self.__array_interface__
        except (AttributeError, BufferError, TensorError) as error:
            raise TypeError(f"{self._error_prefix()}NumPy cannot take it: {error}") from None
        return np.array(array, dtype=dtype) if copy else np.asarray(array, dtype=dtype)
