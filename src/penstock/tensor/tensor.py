"""Tensor: memory that some library owns, described so that every other library takes it."""

import sys
from math import prod
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock.tensor import interface as interfaces
from penstock.tensor.description import Description
from penstock.tensor.errors import type_name
from penstock.tensor.export import read_only_capsule, request_capsule, request_elsewhere
from penstock.tensor.pending_work import LEGACY_DEFAULT, Ready, stream_of
from penstock.tensor.types import DLDataType, DLDevice

if TYPE_CHECKING:
    import numpy as np


class Tensor:
    """An array of any library, as all of them see it: where it is, how it is laid out, when it may be read.

    It owns nothing and copies nothing: it keeps the array it was made of, and the memory with it, and speaks
    DLPack, ``__cuda_array_interface__`` and ``__array_interface__`` for it, whichever the array itself speaks.
    Make one with :func:`penstock.as_tensor`.

    Attributes
    ----------
    data
        The address of the first element.
    shape, strides
        As NumPy has them; strides are in bytes.
    device
        Where the memory is.
    dl_dtype
        The element type in DLPack's words; `dtype` is NumPy's word for it.
    is_readonly
        Whether it must not be written to: its owner said so, or never changes, as JAX's arrays do.
    owner
        The array it was made of.
    """

    __slots__ = (
        "__weakref__",
        "_exporter",
        "_held",
        "_ready",
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
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: DLDevice
    dl_dtype: DLDataType
    is_readonly: bool
    owner: Any
    _exporter: Any
    _held: Any
    _ready: Ready | None
    # The operator, the output and the entry of the message that it was sent with; its errors name them.
    _sent_as: tuple[str, str, str] | None

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("a Tensor is made with penstock.as_tensor")

    @classmethod
    def _of(
        cls, description: Description, owner: Any, exporter: Any, ready: Ready | None, held: Any = None
    ) -> "Tensor":
        """Make one; `exporter` makes its capsules, `held` is what else must live."""
        self = cls.__new__(cls)
        self.data, self.shape, self.strides, self.dl_dtype, self.device, self.is_readonly = description
        self.owner = owner
        self._exporter = exporter
        self._ready = ready
        self._held = held
        self._sent_as = None
        return self

    def _after(self, ready: Ready | None) -> "Tensor":
        """Return the same tensor, to be read after other work."""
        description = (self.data, self.shape, self.strides, self.dl_dtype, self.device, self.is_readonly)
        other = Tensor._of(description, self.owner, self._exporter, ready, self._held)
        other._sent_as = self._sent_as
        return other

    def __copy__(self) -> "Tensor":
        return self._after(self._ready)

    def __reduce__(self) -> Any:
        # Its owner would be another then, somewhere else, and the address the old one.
        raise TypeError("a Tensor owns no memory, so it cannot be pickled or copied deeply; its owner may be")

    # What it is.

    @property
    def dtype(self) -> "np.dtype[Any]":
        """NumPy's dtype of the elements; those that only ml_dtypes has need that package."""
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
        """The bytes of one element."""
        return self.dl_dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.itemsize

    @property
    def stream(self) -> int | None:
        """The stream on which the data is being made, or None where nothing is left to wait for."""
        return None if self._ready is None else self._ready.stream

    def is_contiguous(self) -> bool:
        """Return whether its elements lie one after another in row-major order."""
        expected = self.dl_dtype.itemsize
        for extent, stride in zip(self.shape[::-1], self.strides[::-1], strict=True):
            if stride != expected and extent != 1:
                return 0 in self.shape
            expected *= extent
        return True

    def __repr__(self) -> str:
        text = f"Tensor(shape={self.shape}, dtype={self.dl_dtype.name}, device={self.device}"
        if not self.is_contiguous():
            text += f", strides={self.strides}"
        if self.is_readonly:
            text += ", read-only"
        if self.stream is not None:
            text += f", stream={int(self.stream):#x}"
        return f"{text}, of {type_name(self.owner)})"

    # What other libraries ask.

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
        """Return a capsule, after ordering the consumer's stream behind the work on the tensor.

        Parameters
        ----------
        stream
            Where the consumer works: a handle, 1 or None for the legacy default stream, 2 for the thread's own
            default stream; -1 to order nothing.
        max_version
            The newest form the consumer reads; without it a capsule of the old form is made.
        dl_device, copy
            Passed to the owner, which copies if it can.
        """
        exporter = self._exporter
        if exporter is None:
            raise self._not_exported(self._why_not())
        is_asked = False
        if dl_device is not None or copy is not None:
            is_asked = True
            if copy or not (dl_device is None or tuple(dl_device) == self.__dlpack_device__()):
                return self._copied(stream, max_version, dl_device, copy)
        strides = self.strides
        if strides and min(strides) < 0 and self._lies_backwards():
            library = "cupy" if self.device.is_cuda else "numpy"
            raise self._not_exported(
                "it lies backwards in memory, and there are libraries that end the process on that. Send "
                f"{library}.ascontiguousarray(array) or array.copy() instead; {library}.asarray takes it as it is"
            )
        if self.device.is_cuda:
            self._order(stream)
            stream = -1
        if self.is_readonly:
            stream = None if self.device.is_cuda else stream
            return read_only_capsule(self, stream, max_version, sys._getframe(1))
        try:
            if is_asked:
                return request_elsewhere(exporter, stream, max_version, dl_device, copy)
            return request_capsule(exporter, stream, max_version)
        except Exception as error:  # its owner's, which knows nothing of messages
            if self._sent_as is not None:
                error.add_note(f"raised while exporting {self._where()}{self!r}")
            raise

    def _lies_backwards(self) -> bool:
        """Return whether elements lie before the first, on which PyTorch ends the process (2.13)."""
        pairs = zip(self.shape, self.strides, strict=True)
        return self.size > 0 and any(extent > 1 and stride < 0 for extent, stride in pairs)

    def _not_exported(self, why: str) -> BufferError:
        """Return the error of an export."""
        return BufferError(f"{self._where()}{self!r} cannot be exported through DLPack: {why}")

    def _where(self) -> str:
        """Return how an error begins: with what the tensor was sent as, if it was."""
        if self._sent_as is None:
            return ""
        operator, port, entry = self._sent_as
        return f"operator {operator!r}, output {port!r}: {entry!r}: "

    def _order(self, stream: int | None) -> None:
        """Have a consumer's stream, as DLPack names it, wait for the work on the tensor."""
        if stream == 0:
            raise BufferError(
                "stream 0 names no stream in DLPack; 1 is the legacy default stream, 2 the thread's own"
            )
        if self._ready is not None and stream != -1:
            self._ready.order(LEGACY_DEFAULT if stream is None else stream)

    def _copied(
        self,
        stream: int | None,
        max_version: tuple[int, int] | None,
        dl_device: tuple[int, int] | None,
        copy: bool | None,
    ) -> Any:
        """Have the owner export a copy, made on the stream where the data is made."""
        if self.device.is_cuda:
            self._order(stream)
            if self.stream is not None:
                with gpu.use_stream(stream_of(self.stream)):
                    return request_elsewhere(self._exporter, stream, max_version, dl_device, copy)
        return request_elsewhere(self._exporter, stream, max_version, dl_device, copy)

    def _why_not(self) -> str:
        if self.dl_dtype.typestr is None:
            return (
                f"it was taken from a capsule, and the array interfaces have no name for {self.dl_dtype.name}"
            )
        if self.device.is_cuda:
            return "its owner has no DLPack, and cuda-core, which would export it, finds no GPU"
        return f"it was taken from a capsule, and nothing here exports memory on {self.device}"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.device.is_cuda:
            raise AttributeError(f"a tensor on {self.device} has no __cuda_array_interface__")
        interface = interfaces.write(self)
        interface["stream"] = self.stream
        strides = self.strides
        if strides and min(strides) < 0 and self._lies_backwards():
            # PyTorch would end the process; what is read-only it refuses. CuPy and Numba do not look at the flag.
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
        """Answer NumPy where there is no array interface: it would make an array of one object."""
        import numpy as np

        try:
            _ = self.__array_interface__
        except AttributeError as error:
            raise TypeError(f"{self._where()}NumPy cannot take it: {error}") from None
        return np.array(self, dtype=dtype) if copy else np.asarray(self, dtype=dtype)
