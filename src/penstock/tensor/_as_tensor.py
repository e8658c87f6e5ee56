"""as_tensor: from anything that speaks one of the protocols.

DLPack is asked first: it knows the most element types, and says on which device the memory is. The array
interfaces follow, for what has no DLPack.

**On which stream the data is made.** CuPy and PyTorch are asked: it is their current stream. Any other library
is told instead: through DLPack's handshake it orders a stream of ours behind its work, the one that is current
here or else the default stream. An array interface says it in its ``stream`` entry, which is believed unless
``PENSTOCK_ARRAY_INTERFACE_SYNC=0`` says that everything is ordered already.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from penstock import gpu
from penstock.tensor import _capsule, _interface
from penstock.tensor._errors import TensorError
from penstock.tensor._export import request_capsule
from penstock.tensor._ready import LEGACY_DEFAULT, OnStream, Ready
from penstock.tensor._tensor import Tensor
from penstock.tensor._types import CPU, CUDA_TYPES, DLDevice, DLDeviceType

_SYNC = os.environ.get("PENSTOCK_ARRAY_INTERFACE_SYNC", "1") != "0"


def as_tensor(obj: Any, *, stream: int | None = None) -> Tensor:
    """Describe an array of any library as a tensor, without a copy.

    Parameters
    ----------
    obj
        Anything with ``__dlpack__``, ``__cuda_array_interface__`` or ``__array_interface__``, or a DLPack capsule.
        It is kept for as long as the tensor lives.
    stream
        A stream to be ordered behind the work on the array, on the device; from then on the data counts as made
        on that stream. Without one, nothing waits: the tensor notes the stream its data is made on.

    Raises
    ------
    TensorError
        If it speaks none of the protocols, or what it says cannot be a tensor.
    """
    if type(obj) is Tensor:
        if stream is None or not obj.device.is_cuda:
            return obj
        if obj._ready is not None:
            obj._ready.order(stream)
        return obj._after(OnStream(stream))
    return _convert(obj, None if stream is None else OnStream(stream), True)


def as_ready(obj: Any, ready: Ready | None) -> Tensor:
    """Describe an array as a tensor behind which there is that work and no other; orders nothing."""
    if type(obj) is Tensor:
        return obj._after(ready) if obj.device.is_cuda else obj
    return _convert(obj, ready, False)


def is_array(obj: Any) -> bool:
    """Return whether an object speaks one of the protocols.

    A scalar of NumPy and the class of an array, which have the names, are no arrays.
    """
    try:
        if not any(hasattr(obj, name) for name, _ in _PROTOCOLS) or isinstance(obj, type):
            return False
    except Exception:  # it has one, and will not tell: what that is comes out when it is converted
        return True
    numpy = sys.modules.get("numpy")
    return numpy is None or not isinstance(obj, numpy.generic)


def _convert(obj: Any, ready: Ready | None, handshake: bool) -> Tensor:
    tried = []
    for name, read in _PROTOCOLS:
        try:
            if hasattr(obj, name):
                return read(obj, ready, handshake)
            tried.append(f"{name}: it has none")
        except Exception as error:  # whatever a library raises when it will not export
            tried.append(f"{name}: {str(error) or type(error).__name__}")
    kind = type(obj)
    if kind.__name__ == "PyCapsule":
        return _from_capsule(obj, ready)
    raise TensorError(f"{kind.__module__}.{kind.__qualname__} cannot be a tensor ({'; '.join(tried)})")


def _from_dlpack(obj: Any, ready: Ready | None, handshake: bool) -> Tensor:
    place, index = obj.__dlpack_device__()
    if place not in CUDA_TYPES:
        ready, named = None, None
    elif not handshake:
        named = -1
    elif ready is not None:
        named = ready.stream
    else:
        kind: type = type(obj)
        current = _current_stream_of(kind)
        if current is not None:
            ready, named = OnStream(current(index)), -1
        else:
            ready = OnStream(gpu.current_stream() or LEGACY_DEFAULT)
            named = ready.stream
    capsule = request_capsule(obj, named, _capsule.VERSION)
    # The capsule is kept too: should an owner export something else than it keeps, that lives on.
    return Tensor._of(_capsule.read(capsule), obj, obj, ready, capsule)


def _from_cuda_array_interface(obj: Any, ready: Ready | None, handshake: bool) -> Tensor:
    interface = obj.__cuda_array_interface__
    device, exporter = _place(obj, interface)
    description = _interface.read(interface, device)
    stream = interface.get("stream") if _SYNC else None
    if stream == 0:
        raise TensorError("its stream entry is 0, which names no stream: 1 is the legacy default stream")
    if handshake and stream is not None:
        if ready is None:
            ready = OnStream(stream)
        else:
            OnStream(stream).order(ready.stream or LEGACY_DEFAULT)
    return Tensor._of(description, obj, exporter, ready)


def _from_array_interface(obj: Any, ready: Ready | None, handshake: bool) -> Tensor:
    _interface.check(obj.__array_interface__)
    # What NumPy makes of it is described: of a scalar, the interface names memory that is gone with the answer.
    view = _numpy_view(obj)
    return Tensor._of(_interface.read(view.__array_interface__, CPU), obj, view, None)


_PROTOCOLS: tuple[tuple[str, Callable[[Any, Ready | None, bool], Tensor]], ...] = (
    ("__dlpack__", _from_dlpack),
    ("__cuda_array_interface__", _from_cuda_array_interface),
    ("__array_interface__", _from_array_interface),
)


def _from_capsule(capsule: Any, ready: Ready | None) -> Tensor:
    """Take over what a capsule holds."""
    taken = _capsule.Taken(capsule)
    bare = Tensor._of(taken.description, taken, None, None)
    if not bare.device.is_cuda:
        ready = None
    exporter = None
    if bare.dl_dtype.typestr is not None:
        if bare.device.is_host:
            exporter = _numpy_view(bare)
        elif bare.device.is_cuda and gpu.backend() == "cuda":
            exporter = _cuda_view(bare)
    return Tensor._of(taken.description, capsule, exporter, ready, bare)


def _place(obj: Any, interface: Any) -> tuple[DLDevice, Any]:
    """Return where the memory behind a CUDA array interface is, and what can export it through DLPack."""
    if gpu.backend() != "cuda":
        return DLDevice(DLDeviceType.CUDA, 0), None
    view = _cuda_view(obj)
    return DLDevice(*view.__dlpack_device__()), view


def _numpy_view(obj: Any) -> Any:
    import numpy as np

    return np.asarray(obj)


def _cuda_view(obj: Any) -> Any:
    from cuda.core.utils import StridedMemoryView

    return StridedMemoryView.from_cuda_array_interface(obj, -1)


@cache
def _current_stream_of(kind: type) -> Callable[[int], int] | None:
    """Return what gives the current stream of the library a type is of, where that can be asked."""
    for ancestor in kind.__mro__:
        library = ancestor.__module__.partition(".")[0]
        if library == "cupy":
            current = sys.modules["cupy"].cuda.get_current_stream
            return lambda index: current(index).ptr
        if library == "torch":
            current = sys.modules["torch"].cuda.current_stream
            return lambda index: current(index).cuda_stream
    return None
