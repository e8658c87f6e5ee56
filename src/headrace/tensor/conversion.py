"""Conversion to tensors, from any object that supports one of the array protocols.

DLPack is tried first: it supports the most element types and names the device of the memory. The array
interfaces follow, for objects without DLPack.

:mod:`headrace.tensor.libraries` explains how the stream of the data is found. An array interface has an entry for
it, which is used unless ``HEADRACE_ARRAY_INTERFACE_SYNC=0`` declares that everything is already ordered. The
variable is read only when an interface names a stream, which costs half a microsecond.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from headrace import gpu
from headrace.gpu.backend import active
from headrace.gpu.current import current_stream
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE
from headrace.tensor import capsule as capsules
from headrace.tensor import interface as interfaces
from headrace.tensor.capsule import MemoryExporter, exporter_of, request_capsule
from headrace.tensor.description import Description, PendingWork, StreamWork
from headrace.tensor.libraries import Library, library_of
from headrace.tensor.tensor import Tensor
from headrace.tensor.types import (
    CPU,
    CUDA_TYPES,
    HOST_TYPES,
    DLDataType,
    DLDevice,
    DLDeviceType,
    TensorError,
    element_from_dtype,
    error_text,
    is_of_ml_dtypes,
    type_name,
)

_SOME_GPU = DLDevice(DLDeviceType.CUDA, 0)

# An array may ask for a tensor of the array that it wraps, but not without end.
_MOST_NESTED = 8


# The objects that a thread is asking for their memory, in `converting`.
_thread = threading.local()


def as_tensor(obj: Any, *, stream: int | None = None) -> Tensor:
    """Describe an array of any library as a tensor, without a copy.

    Parameters
    ----------
    obj
        An object with ``__dlpack__``, ``__cuda_array_interface__`` or ``__array_interface__``, or a DLPack capsule.
        The tensor keeps it alive.
    stream
        A stream to order after the work on the array; the tensor then belongs to that stream. By default nothing
        waits: the tensor records the stream on which its data is computed.

    Raises
    ------
    TensorError
        If the object supports none of the protocols, or its description is not a valid tensor.
    """
    if type(obj) is Tensor:
        return obj if stream is None else _behind(obj, stream, StreamWork(stream))
    return _convert(obj, None if stream is None else StreamWork(stream), False)


def as_pending_tensor(obj: Any, pending_work: PendingWork) -> Tensor:
    """Describe an array as a tensor whose data is produced by the given work, on one of our streams.

    Arrays of CuPy and PyTorch are assumed to be computed on that stream. The stream is ordered after the work
    of any other library, and after the work of a tensor.
    """
    if type(obj) is not Tensor:
        return _convert(obj, pending_work, True)
    return _behind(obj, pending_work.stream_handle, pending_work)


def _behind(tensor: Tensor, stream: int, work: PendingWork) -> Tensor:
    """Return a tensor as the result of work on a stream, which is ordered after the work on the tensor."""
    if not tensor.device.is_cuda:
        return tensor
    if tensor._pending_work is not None:
        tensor._pending_work.order(stream)
    return tensor._with_pending_work(work)


def order_after(tensor: Tensor, stream: gpu.StreamHandle) -> None:
    """Order the stream of an operator after the work on a tensor; the stream's device must be current.

    A stream that CUDA orders with the default stream needs no event for work on that one. Such an event would cost
    more than a launch: it joins all streams of the device.
    """
    work = tensor._pending_work
    if work is None or not tensor.device.is_cuda:
        return
    if type(work) is StreamWork and work.stream_handle == LEGACY_DEFAULT_HANDLE and stream.follows_default:
        return
    work.order(stream)


def is_array(obj: Any) -> bool:
    """Return whether an object is an array: whether it supports one of the protocols.

    NumPy scalars and array classes have the protocols' attributes but are not arrays.
    """
    if type(obj) is Tensor:
        return True
    try:
        # Those of `_PROTOCOLS`, without a loop: every emitted dict is asked.
        has_protocol = (
            hasattr(obj, "__dlpack__")
            or hasattr(obj, "__cuda_array_interface__")
            or hasattr(obj, "__array_interface__")
        )
        if not has_protocol or isinstance(obj, type):
            return False
    except Exception:  # an attribute that raises an error; converting the object reports it
        return True
    return not _is_scalar(obj)


def _convert(obj: Any, pending_work: PendingWork | None, is_on_stream: bool) -> Tensor:
    """Describe an array as the result of the given work, or of the work that its library names if None.

    With `is_on_stream`, the array of a library with a current stream is already ordered with that work.
    """
    if isinstance(obj, Tensor):  # of a class of its own, which another vocabulary gives to programs
        plain = obj.__copy__()
        return plain if pending_work is None else _behind(plain, pending_work.stream_handle, pending_work)
    converting: list[Any] = vars(_thread).setdefault("converting", [])
    if converting and (len(converting) >= _MOST_NESTED or any(one is obj for one in converting)):
        raise TensorError(
            f"{type_name(obj)} cannot be a tensor: it asks as_tensor for itself, directly or through others"
        )
    depth = len(converting)
    tried: list[str] = []
    try:
        converting.append(obj)
        library = library_of(type(obj))
        if library.refusal is not None:
            raise TensorError(f"{type_name(obj)} cannot be a tensor: {library.refusal}")
        for name, read in _PROTOCOLS:
            try:
                if hasattr(obj, name):
                    tensor = read(obj, library, pending_work, is_on_stream)
                    if library.is_immutable:
                        tensor.is_readonly = True
                    return tensor
                tried.append(f"{name}: it has none")
            except Exception as error:  # a library may raise any error when it cannot export
                tried.append(f"{name}: {error_text(error)}")
        if type(obj).__name__ == "PyCapsule":
            return _from_capsule(obj, pending_work)
    except TensorError:
        raise
    except Exception as error:
        raise TensorError(f"{type_name(obj)} cannot be a tensor: {error_text(error)}") from error
    finally:
        del converting[depth:]  # right even where a signal handler raised before the append
    raise TensorError(f"{type_name(obj)} cannot be a tensor ({'; '.join(tried)})")


def _from_dlpack(obj: Any, library: Library, pending_work: PendingWork | None, is_on_stream: bool) -> Tensor:
    if library.view is not None:
        view = library.view(obj)
        capsule = request_capsule(view, None, capsules.VERSION, library)
        return Tensor._create(capsules.read(capsule), obj, view, None)
    device = obj.__dlpack_device__()
    named = None
    if device[0] not in CUDA_TYPES:
        pending_work = None
    else:
        current, describe = library.current_stream, library.describe
        if current is not None and pending_work is None:
            pending_work = StreamWork(current(device[1]))
            is_on_stream = True
        if describe is not None and (is_on_stream or current is None):
            return Tensor._create(describe(obj, device), obj, obj, pending_work)
        if current is not None and is_on_stream:
            named = -1
        else:
            if pending_work is None:
                pending_work = StreamWork(current_stream() or LEGACY_DEFAULT_HANDLE)
            named = pending_work.stream_handle
    # The memory of the capsule is kept too: an owner may export memory that it does not keep alive itself.
    held = capsules.ConsumedCapsule(request_capsule(obj, named, capsules.VERSION, library))
    description = held.description
    _check_device(device, description[4])
    # Only the array itself can order the streams of other kinds of devices.
    is_ours = device[0] in CUDA_TYPES or device[0] in HOST_TYPES
    memory = None if library.memory_of is None else library.memory_of(obj)
    exporter = MemoryExporter(description, (obj, held, memory), obj) if is_ours else obj
    return Tensor._create(description, obj, exporter, pending_work, held)


def _check_device(named: Any, found: DLDevice) -> None:
    """Raise an error if the memory of a capsule is not on the device that its array names."""
    if named[0] == found[0]:
        # All of the host's memory is one device, by whatever number.
        if found[0] in HOST_TYPES or named[1] == found[1]:
            return
    # PyTorch's name for pinned memory; its capsules call it memory of the CPU.
    elif named[0] == DLDeviceType.CUDA_HOST and found[0] == DLDeviceType.CPU:
        return
    raise TensorError(
        f"its __dlpack_device__ names {DLDevice(*named)}, but the memory in its capsule is on {found}"
    )


def _from_cuda_array_interface(
    obj: Any, library: Library, pending_work: PendingWork | None, is_on_stream: bool
) -> Tensor:
    interface = obj.__cuda_array_interface__
    description, exporter = _locate(interfaces.read(interface, _SOME_GPU), obj)
    stream = interface.get("stream")
    if stream is not None and _interface_streams_count():
        named_work = StreamWork(_check_stream_entry(stream))
        if pending_work is None:
            pending_work = named_work
        else:
            named_work.order(pending_work.stream_handle)
    elif pending_work is None and library.current_stream is not None:
        pending_work = StreamWork(library.current_stream(description[4].device_id))
    return Tensor._create(description, obj, exporter, pending_work)


def _interface_streams_count() -> bool:
    """Return whether to wait for the streams that array interfaces name."""
    setting = os.environ.get("HEADRACE_ARRAY_INTERFACE_SYNC") or "1"
    if setting not in ("0", "1"):
        raise TensorError(f"HEADRACE_ARRAY_INTERFACE_SYNC={setting!r}: must be one of 0, 1")
    return setting == "1"


def _check_stream_entry(entry: Any) -> int:
    """Return the stream entry of an array interface; raise an error if it is invalid."""
    if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
        raise TensorError(
            f"its stream entry is {entry!r:.100}; it should be a stream handle (an int) or None"
        )
    if entry == 0:
        raise TensorError("its stream entry is 0, which names no stream: 1 is the legacy default stream")
    return entry


def _from_array_interface(
    obj: Any, library: Library, pending_work: PendingWork | None, is_on_stream: bool
) -> Tensor:
    held = None
    if _is_scalar(obj):
        held = _numpy_view(obj)  # the memory that a scalar's interface names is freed with the interface
        interface = held.__array_interface__
    else:
        interface = obj.__array_interface__
    element = _element_of_ml_dtypes(obj)
    if element is not None:
        description = interfaces.read(interface, CPU, element)
        return Tensor._create(description, obj, MemoryExporter(description, (obj, held)), None, held)
    if isinstance(interface, Mapping) and not isinstance(interface.get("data"), tuple):
        # The memory belongs to a buffer, or to the object itself.
        buffer = interface.get("data")
        description, held = interfaces.read_buffer(interface, obj if buffer is None else buffer, CPU)
    else:
        description = interfaces.read(interface, CPU)
    return Tensor._create(
        description, obj, _numpy_view(Tensor._create(description, obj, None, None, held)), None
    )


def _element_of_ml_dtypes(obj: Any) -> DLDataType | None:
    """Return the element type of a NumPy array if ml_dtypes defines it, or None."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(obj, numpy.ndarray | numpy.generic):
        return None
    return element_from_dtype(obj.dtype) if is_of_ml_dtypes(obj.dtype) else None


def _is_scalar(obj: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.generic)


_PROTOCOLS: tuple[tuple[str, Callable[[Any, Library, PendingWork | None, bool], Tensor]], ...] = (
    ("__dlpack__", _from_dlpack),
    ("__cuda_array_interface__", _from_cuda_array_interface),
    ("__array_interface__", _from_array_interface),
)


def _from_capsule(capsule: Any, pending_work: PendingWork | None) -> Tensor:
    """Consume a capsule that the program passed itself."""
    consumed = capsules.ConsumedCapsule(capsule)
    bare = Tensor._create(consumed.description, consumed, None, None)
    if not bare.device.is_cuda:
        pending_work = None
    exporter = exporter_of(consumed.description, bare) if bare.device.is_cuda or bare.device.is_host else None
    return Tensor._create(consumed.description, capsule, exporter, pending_work, bare)


def _locate(description: Description, obj: Any) -> tuple[Description, Any]:
    """Return the description with the device that the driver reports, and the object that exports the memory."""
    if not active().runs_cuda:
        return description, None
    # Viewed through a tensor, which writes version 3: cuda.core reads no other, and RMM and DALI write older ones.
    try:
        view = _cuda_view(Tensor._create(description, obj, None, None))
    except Exception as error:
        raise TensorError(f"the pointer {description[0]:#x} belongs to no CUDA device ({error})") from error
    device = DLDevice(*view.__dlpack_device__())
    return (*description[:4], device, description[5]), view


def _numpy_view(obj: Any) -> Any:
    import numpy as np

    return np.asarray(obj)


def _cuda_view(obj: Any) -> Any:
    from cuda.core.utils import StridedMemoryView

    return StridedMemoryView.from_cuda_array_interface(obj, -1)
