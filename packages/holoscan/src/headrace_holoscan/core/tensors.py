"""Tensors: the constructors that the SDK's class has, and the names of DLPack's devices."""

from __future__ import annotations

import enum
from typing import Any

from headrace import tensor as _tensor
from headrace.tensor import DLDevice as DLDevice


class DLDeviceType(enum.IntEnum):
    """Where memory is."""

    DLCPU = 1
    DLCUDA = 2
    DLCUDAHOST = 3
    DLCUDAMANAGED = 13


def as_tensor(obj: Any) -> Any:
    """Return the array of any library as a tensor."""
    if isinstance(obj, (list, tuple, str, bytes, int, float, memoryview)):
        raise RuntimeError(
            f"a {type(obj).__name__} is no array of a library: convert it first, with numpy.asarray"
        )
    flags = getattr(obj, "flags", None)
    if getattr(flags, "c_contiguous", False) and getattr(flags, "f_contiguous", False):
        obj = obj.ravel().reshape(obj.shape)  # of the strides that it may have, those of C
    try:
        return _tensor.as_tensor(obj)
    except _tensor.TensorError as error:
        raise RuntimeError(str(error)) from error


class _AnyTensor(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _tensor.Tensor)


class Tensor(_tensor.Tensor, metaclass=_AnyTensor):
    """An array of any library. Its instances are headrace's tensors."""

    __slots__ = ()

    as_tensor = staticmethod(as_tensor)

    @staticmethod
    def from_dlpack(obj: Any, device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """Return an array that supports DLPack as a tensor; it stays on its device, and is copied if asked for."""
        if not hasattr(obj, "__dlpack__"):
            raise RuntimeError(f"a {type(obj).__name__} does not support DLPack")
        if device is not None and tuple(map(int, device)) != tuple(map(int, obj.__dlpack_device__())):
            raise BufferError(
                f"the array is on device {obj.__dlpack_device__()}, and stays there; not on {device}"
            )
        if copy:
            import copy as copies

            obj = obj.copy() if hasattr(obj, "copy") else copies.deepcopy(obj)
        return as_tensor(obj)
