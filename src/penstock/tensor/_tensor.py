"""Tensor: memory that some library owns, described so that every other library takes it."""

from math import prod
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock.tensor import _interface
from penstock.tensor._description import Description
from penstock.tensor._export import request_capsule, request_elsewhere
from penstock.tensor._ready import LEGACY_DEFAULT, Ready, stream_of
from penstock.tensor._types import DLDataType, DLDevice

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
        Whether its owner said that it must not be written to.
    owner
        The array it was made of.
    """

    __slots__ = (
        "__weakref__",
        "_exporter",
        "_held",
        "_ready",
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
        return self

    def _after(self, ready: Ready | None) -> "Tensor":
        """Return the same tensor, to be read after other work."""
        description = (self.data, self.shape, self.strides, self.dl_dtype, self.device, self.is_readonly)
        return Tensor._of(description, self.owner, self._exporter, ready, self._held)

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
        kind = type(self.owner)
        return f"{text}, of {kind.__module__}.{kind.__qualname__})"

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
            raise BufferError(f"{self!r} cannot be exported through DLPack: {self._why_not()}")
        if dl_device is not None or copy is not None:
            return self._as_asked(stream, max_version, dl_device, copy)
        if not self.device.is_cuda:
            return request_capsule(exporter, stream, max_version)
        self._order(stream)
        return request_capsule(exporter, -1, max_version)

    def _order(self, stream: int | None) -> None:
        """Have a consumer's stream, as DLPack names it, wait for the work on the tensor."""
        if stream == 0:
            raise BufferError(
                "stream 0 names no stream in DLPack; 1 is the legacy default stream, 2 the thread's own"
            )
        if self._ready is not None and stream != -1:
            self._ready.order(LEGACY_DEFAULT if stream is None else stream)

    def _as_asked(
        self,
        stream: int | None,
        max_version: tuple[int, int] | None,
        dl_device: tuple[int, int] | None,
        copy: bool | None,
    ) -> Any:
        """Have the owner export with conditions; if it copies, on the stream where the data is made."""
        if not self.device.is_cuda:
            return request_elsewhere(self._exporter, stream, max_version, dl_device, copy)
        self._order(stream)
        stays = dl_device is None or tuple(dl_device) == self.__dlpack_device__()
        if stays and not copy:
            return request_elsewhere(self._exporter, -1, max_version, dl_device, copy)
        if self.stream is None:
            return request_elsewhere(self._exporter, stream, max_version, dl_device, copy)
        with gpu.use_stream(stream_of(self.stream)):
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
        interface = _interface.write(self)
        interface["stream"] = self.stream
        return interface

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self.device.is_host:
            raise AttributeError(
                f"a tensor on {self.device} has no __array_interface__: the host cannot read it"
            )
        return _interface.write(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Answer NumPy where there is no array interface: it would make an array of one object."""
        import numpy as np

        try:
            _ = self.__array_interface__
        except AttributeError as error:
            raise TypeError(f"NumPy cannot take it: {error}") from None
        return np.array(self, dtype=dtype) if copy else np.asarray(self, dtype=dtype)
