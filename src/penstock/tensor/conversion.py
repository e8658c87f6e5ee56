"""as_tensor: from anything that speaks one of the protocols.

DLPack is asked first: it knows the most element types, and says on which device the memory is. The array
interfaces follow, for what has no DLPack.

The stream on which the data is made is found as `_libraries` says; an array interface has an entry for it, which is
believed unless ``PENSTOCK_ARRAY_INTERFACE_SYNC=0`` says that everything is ordered already. The variable is read
when an interface names a stream, which costs half a microsecond there and nothing elsewhere.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from penstock import gpu
from penstock.tensor import capsule as capsules
from penstock.tensor import interface as interfaces
from penstock.tensor.description import Description
from penstock.tensor.errors import TensorError, text_of, type_name
from penstock.tensor.export import request_capsule
from penstock.tensor.libraries import Library, library_of
from penstock.tensor.pending_work import LEGACY_DEFAULT, OnStream, Ready
from penstock.tensor.tensor import Tensor
from penstock.tensor.types import CPU, CUDA_TYPES, DLDevice, DLDeviceType

_SOME_GPU = DLDevice(DLDeviceType.CUDA, 0)


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
    return _convert(obj, None if stream is None else OnStream(stream), False)


def as_ready(obj: Any, ready: Ready) -> Tensor:
    """Describe an array as a tensor that is made on a stream of ours, where `ready` says that it is done.

    What CuPy and PyTorch made is taken to be on that stream; the stream is ordered behind any other library's work,
    and behind the work of a tensor.
    """
    if type(obj) is not Tensor:
        return _convert(obj, ready, True)
    if not obj.device.is_cuda:
        return obj
    if obj._ready is not None:
        obj._ready.order(ready.place)
    return obj._after(ready)


def is_array(obj: Any) -> bool:
    """Return whether an object speaks one of the protocols.

    A scalar of NumPy and the class of an array, which have the names, are no arrays.
    """
    try:
        if not any(hasattr(obj, name) for name, _ in _PROTOCOLS) or isinstance(obj, type):
            return False
    except Exception:  # it has one, and will not tell: what that is comes out when it is converted
        return True
    return not _is_scalar(obj)


def _convert(obj: Any, ready: Ready | None, is_there: bool) -> Tensor:
    """Describe an array; its work is to be behind `ready`, and, if it is a current stream's, is there already."""
    tried = []
    try:
        library = library_of(type(obj))
        if library.refusal is not None:
            raise TensorError(f"{type_name(obj)} cannot be a tensor: {library.refusal}")
        for name, read in _PROTOCOLS:
            try:
                if hasattr(obj, name):
                    return read(obj, library, ready, is_there)
                tried.append(f"{name}: it has none")
            except Exception as error:  # whatever a library raises when it will not export
                tried.append(f"{name}: {text_of(error)}")
        if type(obj).__name__ == "PyCapsule":
            return _from_capsule(obj, ready)
    except TensorError:
        raise
    except Exception as error:
        raise TensorError(f"{type_name(obj)} cannot be a tensor: {text_of(error)}") from error
    raise TensorError(f"{type_name(obj)} cannot be a tensor ({'; '.join(tried)})")


def _from_dlpack(obj: Any, library: Library, ready: Ready | None, is_there: bool) -> Tensor:
    place = obj.__dlpack_device__()
    named = None
    if place[0] not in CUDA_TYPES:
        ready = None
    else:
        current, describe = library.current_stream, library.describe
        if current is not None and ready is None:
            ready = OnStream(current(place[1]))
            is_there = True
        if describe is not None and (is_there or current is None):
            return Tensor._of(describe(obj, place), obj, obj, ready)
        if current is not None and is_there:
            named = -1
        else:
            if ready is None:
                ready = OnStream(gpu.current_stream() or LEGACY_DEFAULT)
            named = ready.place
    capsule = request_capsule(obj, named, capsules.VERSION, library)
    description = capsules.read(capsule)
    if library.is_immutable:
        description = (*description[:5], True)
    # The capsule is kept too: should an owner export something else than it keeps, that lives on.
    return Tensor._of(description, obj, obj, ready, capsule)


def _from_cuda_array_interface(obj: Any, library: Library, ready: Ready | None, is_there: bool) -> Tensor:
    interface = obj.__cuda_array_interface__
    description, exporter = _place(interfaces.read(interface, _SOME_GPU), obj)
    stream = interface.get("stream")
    if stream is not None and _counts():
        made = OnStream(_stream_in(stream))
        if ready is None:
            ready = made
        else:
            made.order(ready.place)
    return Tensor._of(description, obj, exporter, ready)


def _counts() -> bool:
    """Return whether the streams that array interfaces name are to be waited for."""
    asked = os.environ.get("PENSTOCK_ARRAY_INTERFACE_SYNC", "1")
    if asked not in ("0", "1"):
        raise TensorError(f"PENSTOCK_ARRAY_INTERFACE_SYNC={asked!r}: must be one of 0, 1")
    return asked == "1"


def _stream_in(entry: Any) -> int:
    """Return the stream that an array interface names."""
    if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
        raise TensorError(
            f"its stream entry is {entry!r:.100}; it should be the handle of a stream, an int, or None"
        )
    if entry == 0:
        raise TensorError("its stream entry is 0, which names no stream: 1 is the legacy default stream")
    return entry


def _from_array_interface(obj: Any, library: Library, ready: Ready | None, is_there: bool) -> Tensor:
    held = None
    if _is_scalar(obj):
        held = _numpy_view(obj)  # the interface of a scalar names memory that is gone with the answer
        interface = held.__array_interface__
    else:
        interface = obj.__array_interface__
    if isinstance(interface, Mapping) and not isinstance(interface.get("data"), tuple):
        # The memory is that of a buffer, or of the object itself.
        buffer = interface.get("data")
        description, held = interfaces.read_buffer(interface, obj if buffer is None else buffer, CPU)
    else:
        description = interfaces.read(interface, CPU)
    return Tensor._of(description, obj, _numpy_view(Tensor._of(description, obj, None, None, held)), None)


def _is_scalar(obj: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.generic)


_PROTOCOLS: tuple[tuple[str, Callable[[Any, Library, Ready | None, bool], Tensor]], ...] = (
    ("__dlpack__", _from_dlpack),
    ("__cuda_array_interface__", _from_cuda_array_interface),
    ("__array_interface__", _from_array_interface),
)


def _from_capsule(capsule: Any, ready: Ready | None) -> Tensor:
    """Take over what a capsule holds."""
    taken = capsules.Taken(capsule)
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


def _place(description: Description, obj: Any) -> tuple[Description, Any]:
    """Ask the driver where memory behind a CUDA array interface is; give also what exports it through DLPack."""
    if gpu.backend() != "cuda":
        return description, None
    # Viewed through a tensor, which says it all anew: cuda.core reads version 3 only, and RMM and DALI write older
    # ones.
    try:
        view = _cuda_view(Tensor._of(description, obj, None, None))
    except Exception as error:
        raise TensorError(f"no CUDA device knows the pointer {description[0]:#x} ({error})") from error
    device = DLDevice(*view.__dlpack_device__())
    return (*description[:4], device, description[5]), view


def _numpy_view(obj: Any) -> Any:
    import numpy as np

    return np.asarray(obj)


def _cuda_view(obj: Any) -> Any:
    from cuda.core.utils import StridedMemoryView

    return StridedMemoryView.from_cuda_array_interface(obj, -1)
