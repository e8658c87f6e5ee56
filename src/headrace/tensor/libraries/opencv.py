"""Conversion between tensors and OpenCV's GpuMat, which supports none of the array protocols.

**Lifetimes.** A tensor keeps its mat alive, as it does any array. A mat over the memory of a tensor does not keep
the tensor alive, and nothing can be attached to it: it has no attributes and no weak references, and an instance of
a subclass crashes the interpreter when it is freed (OpenCV 4.14 and 5.0). Mats and their tensors are therefore kept
in a list. Each call removes the mats that nothing else references. So only tensors that were in use at the last
call may be kept too long.

**Types.** `type()` encodes depth and channels in a way that changed with OpenCV 5. The numbers of the depths
and the names of the constants did not change.
"""

from __future__ import annotations

import threading
from sys import getrefcount
from typing import Any

from headrace import gpu
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE
from headrace.tensor.conversion import as_tensor
from headrace.tensor.device_arrays import ArrayAt
from headrace.tensor.tensor import Tensor
from headrace.tensor.types import DLDataType, TensorError, type_name

# Indexed by OpenCV's depth: its name in OpenCV and the element type. From 16BF on, OpenCV 5 only.
_DEPTHS = (
    ("8U", DLDataType(1, 8)),
    ("8S", DLDataType(0, 8)),
    ("16U", DLDataType(1, 16)),
    ("16S", DLDataType(0, 16)),
    ("32S", DLDataType(0, 32)),
    ("32F", DLDataType(2, 32)),
    ("64F", DLDataType(2, 64)),
    ("16F", DLDataType(2, 16)),
    ("16BF", DLDataType(4, 16)),
    ("Bool", DLDataType(6, 8)),
    ("64U", DLDataType(1, 64)),
    ("64S", DLDataType(0, 64)),
    ("32U", DLDataType(1, 32)),
)
_NAMES = {element: name for name, element in _DEPTHS}


def gpumat_to_tensor(mat: Any, *, stream: int | None = None) -> Tensor:
    """Describe a GpuMat as a tensor, without a copy.

    Parameters
    ----------
    mat : cv2.cuda.GpuMat
        With one channel it becomes a tensor of (rows, columns), with several a tensor of (rows, columns, channels).
        Rows may have padding between them. The tensor keeps the mat alive.
    stream
        The stream on which OpenCV computes the data, because a GpuMat does not record it; None if the data is
        complete.

    Raises
    ------
    TensorError
        If it is not a GpuMat, or has a type that a tensor cannot have.
    """
    if not hasattr(mat, "cudaPtr"):
        raise TensorError(f"{type_name(mat)} is not a GpuMat: it has no cudaPtr(); as_tensor takes arrays")
    name, element = _depth_of(mat)
    if element.typestr is None:
        raise TensorError(
            f"a GpuMat of CV_{name} cannot be a tensor: the CUDA array interface has no name for {element.name}; "
            "use convertTo(cv2.CV_32F) first"
        )
    columns, rows = mat.size()
    channels = mat.channels()
    shape: tuple[int, ...] = (rows, columns)
    strides: tuple[int, ...] = (mat.step, mat.elemSize())
    if channels != 1:
        shape += (channels,)
        strides += (mat.elemSize1(),)
    number = None if stream is None else int(stream) or LEGACY_DEFAULT_HANDLE
    tensor = as_tensor(ArrayAt(mat.cudaPtr(), shape, element.typestr, mat, strides, number))
    tensor.owner = mat
    return tensor


def tensor_to_gpumat(tensor: Any) -> Any:
    """Return a ``cv2.cuda.GpuMat`` over the memory of a tensor, without a copy.

    The mat keeps the memory alive; a mat that OpenCV creates from a part of it does not. Nothing is ordered,
    since a mat has no stream: call OpenCV with the tensor's stream, or with one that is ordered after it.

    Parameters
    ----------
    tensor
        A tensor, or an array of any library, on the GPU: (rows, columns) or (rows, columns, channels), of up to
        four channels. Rows may have padding between them; columns and channels may not.

    Raises
    ------
    TensorError
        If OpenCV cannot use the layout of the memory.
    DeviceUnavailable
        If OpenCV was built without CUDA, or finds no GPU.
    """
    import cv2

    tensor = as_tensor(tensor)
    try:
        rows, columns, channels = _size_of(tensor)
        step = _step_of(tensor, rows, columns, channels)
        kind = _type_of(cv2, tensor, channels)
    except TensorError as error:
        raise TensorError(f"{tensor._error_prefix()}{error}") from None
    if cv2.cuda.getCudaEnabledDeviceCount() < 1:
        raise gpu.DeviceUnavailable(
            f"OpenCV {cv2.__version__} was built without CUDA, or finds no GPU: a GpuMat needs an OpenCV built "
            "with its CUDA modules, which the packages on PyPI are not"
        )
    mat = cv2.cuda.createGpuMatFromCudaMemory(rows, columns, kind, tensor.data, step)
    _keep(mat, tensor)
    return mat


_mats: list[tuple[Any, Tensor]] = []
_mats_lock = threading.Lock()
# The reference count of a mat that only the list references, measured as below: interpreters count differently.
_ALONE = next(getrefcount(pair[0]) for pair in [(object(), None)])


def _keep(mat: Any, tensor: Tensor) -> None:
    """Keep a tensor until its mat is freed, and release those whose mat has been freed."""
    with _mats_lock:
        before = _mats[:]  # released after the lock: freeing may run any code
        _mats[:] = [pair for pair in _mats if getrefcount(pair[0]) > _ALONE]
        _mats.append((mat, tensor))
    del before


def _depth_of(mat: Any) -> tuple[str, DLDataType]:
    depth = mat.depth()
    if not 0 <= depth < len(_DEPTHS):
        raise TensorError(
            f"a GpuMat of depth {depth} cannot be a tensor: depths up to {len(_DEPTHS) - 1} are known"
        )
    return _DEPTHS[depth]


def _size_of(tensor: Tensor) -> tuple[int, int, int]:
    """Return the rows, columns and channels of a tensor; raise an error if a GpuMat cannot have them."""
    if not tensor.device.is_cuda:
        raise TensorError(f"a tensor on {tensor.device} cannot be a GpuMat: copy it to the GPU first")
    if tensor.ndim not in (2, 3):
        raise TensorError(
            f"a tensor of shape {tensor.shape} cannot be a GpuMat, which has (rows, columns) or "
            "(rows, columns, channels)"
        )
    rows, columns, channels = (*tensor.shape, 1)[:3]
    if not 1 <= channels <= 4:
        raise TensorError(
            f"a tensor of shape {tensor.shape} cannot be a GpuMat: it would have {channels} channels, and a "
            "GpuMat has one to four"
        )
    return rows, columns, channels


def _step_of(tensor: Tensor, rows: int, columns: int, channels: int) -> int:
    """Return the bytes from one row to the next."""
    step, between_columns, between_channels = (*tensor.strides, tensor.itemsize)[:3]
    pixel = channels * tensor.itemsize
    packed = (columns < 2 or between_columns == pixel) and (
        channels < 2 or between_channels == tensor.itemsize
    )
    if not packed and tensor.size:
        raise TensorError(
            f"a tensor with strides {tensor.strides} cannot be a GpuMat: its columns and channels must lie one "
            f"after another, {pixel} bytes a column; make it contiguous first"
        )
    if rows < 2 or not tensor.size:
        return columns * pixel
    if step < columns * pixel:
        raise TensorError(
            f"a tensor with strides {tensor.strides} cannot be a GpuMat: its rows, of {columns * pixel} bytes, run "
            "backwards or overlap; make it contiguous first"
        )
    return step


def _type_of(cv2: Any, tensor: Tensor, channels: int) -> int:
    """Return OpenCV's type number for a tensor."""
    name = _NAMES.get(tensor.dl_dtype)
    kind = getattr(cv2, f"CV_{name}C{channels}", None)
    if kind is None:  # for 16BF OpenCV has only the function
        make = getattr(cv2, f"CV_{name}C", None)
        kind = None if make is None else make(channels)
    if kind is None:
        known = ", ".join(element.name for name, element in _DEPTHS if hasattr(cv2, f"CV_{name}C1"))
        raise TensorError(
            f"a tensor of {tensor.dl_dtype.name} cannot be a GpuMat of OpenCV {cv2.__version__}, which has {known}"
        )
    return int(kind)
