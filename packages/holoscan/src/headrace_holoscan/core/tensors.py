"""Tensors as the SDK's programs know them: objects, not arrays, whose element type is DLPack's.

Messages have headrace's tensors, which operators of both vocabularies share. So the `compute` of a program gets
views of its contexts (`in_their_terms`): what it receives is shown as tensors of the class below, on the same
memory, and what it emits is headrace's again.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
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
        return shown(_tensor.as_tensor(obj))
    except _tensor.TensorError as error:
        raise RuntimeError(str(error)) from error


class _AnyTensor(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _tensor.Tensor)


class Tensor(_tensor.Tensor, metaclass=_AnyTensor):
    """An array of any library, which is true, and equal to itself alone; so are all of headrace's."""

    __slots__ = ()

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return True

    # Those of headrace's class, without their setters.
    data, device, shape, strides = (
        property(vars(_tensor.Tensor)[name].__get__) for name in ("data", "device", "shape", "strides")
    )

    @property
    def dtype(self) -> Any:
        """The element type, as DLPack describes it: `code`, `bits` and `lanes`."""
        return self.dl_dtype

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


def shown(data: Any) -> Any:
    """Return what a program receives, with the tensors in it as it knows them; a map is the receiver's own."""
    kind = type(data)
    if kind is _tensor.Tensor:
        tensor = data.__copy__()
        tensor.__class__ = Tensor
        return tensor
    if kind is dict or kind is _tensor.TensorMap:
        for name, value in data.items():
            if type(value) is _tensor.Tensor:
                dict.__setitem__(data, name, shown(value))
    elif kind is tuple:  # of messages
        return tuple([shown(each) for each in data])
    return data


def plain(data: Any) -> Any:
    """Return what a program emits, with headrace's tensors in it."""
    if type(data) is Tensor:
        return _tensor.as_tensor(data)
    if type(data) is dict and any(type(value) is Tensor for value in data.values()):
        return {name: plain(value) if type(value) is Tensor else value for name, value in data.items()}
    return data


# The types of messages in which a tensor may be; others pass as they are.
_RECEIVED = frozenset((_tensor.Tensor, _tensor.TensorMap, dict, tuple))
_EMITTED = frozenset((Tensor, dict))


class _View:
    """A context, of which some answers differ."""

    __slots__ = ("_context", "_do")

    def __init__(self, context: Any, method: str) -> None:
        self._context = context
        self._do = getattr(context, method)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class InputView(_View):
    """What a program receives from."""

    __slots__ = ()

    def receive(self, name: str = "", kind: str = "") -> Any:
        """Take the waiting message or messages from an input, and return them."""
        data = self._do(name, kind) if kind else self._do(name)
        return shown(data) if type(data) in _RECEIVED else data


class OutputView(_View):
    """What a program emits to."""

    __slots__ = ()

    def emit(self, data: Any, name: str = "", *more: Any, **options: Any) -> None:
        """Send a message."""
        if type(data) in _EMITTED:
            data = plain(data)
        if more or options:
            self._do(data, name, *more, **options)
        else:
            self._do(data, name)


def in_their_terms(compute: Callable[..., None]) -> Callable[..., None]:
    """Return the `compute` of a program, which is called with views of its contexts."""

    @functools.wraps(compute)
    def called(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        if type(op_input) is not InputView:  # not by the compute of a derived class
            views = self._headrace.views
            if views is None or views[0]._context is not op_input or views[1]._context is not op_output:
                views = InputView(op_input, "receive"), OutputView(op_output, "emit")
                self._headrace.views = views
            op_input, op_output = views
        compute(self, op_input, op_output, context)

    return called
