"""Where an operator's tensors are, and how it computes there: on the host, on a GPU, or on a simulated device.

An operator receives a frame, asks for a :class:`Workplace`, and computes by :class:`Routine`. A routine has two
implementations: CUDA C++, compiled once for a chip and launched on the operator's stream, and NumPy. The simulated
device runs the NumPy one as the effect of a simulated kernel, when the kernel ends, on the memory of that device.
So order and lifetimes are simulated truthfully. On the host a third one by OpenCV takes the place of NumPy's where
OpenCV is installed; ``_routines/with_opencv.py`` says what it gives.

The first two implementations of a routine compute the same numbers. Integers are computed with integers. Floats are
computed in single precision, in the same order, without fused multiply-add: CUDA's ``__fmul_rn`` and
``__fadd_rn`` are never fused. One formulation for CuPy and NumPy was decided against: a demosaicked frame takes
one launch this way and about forty with CuPy's functions, each of which reads and writes the whole frame.

The place of the work follows the data:

| the frame is in | with a GPU | otherwise |
| --- | --- | --- |
| device, pinned or managed memory | there, on the operator's stream | the same, simulated |
| host memory | copied to the GPU | on the host |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import gpu
from headrace.core.contexts import InputContext
from headrace.gpu import StreamHandle
from headrace.gpu.backend import active
from headrace.tensor import Tensor, as_tensor
from headrace.tensor.conversion import order_after
from headrace.tensor.copies import copy, simulated_memory, upload
from headrace.tensor.libraries import usual_module

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_BLOCK = 256
# How long a block runs on the simulated device: what a block of 256 pixels takes on an H200, roughly.
_BLOCK_SECONDS = 2e-6

_DEVICE, _SYSTEM = 1, 2  # of MemoryStorageType


class Routine:
    """One computation on tensors, for every kind of device.

    Parameters
    ----------
    name
        The kernel, in the file of that name, declared ``extern "C"``. It is launched with blocks
        of 256 threads in one dimension.
    numpy
        The same in NumPy: a function of the same arguments, with arrays in place of pointers.
    library
        The same by a library that may be there, for the host: a function of the same arguments that returns whether
        it did the work. NumPy does it otherwise.
    words
        The macros that the source needs, such as the types of elements: their names and texts.
    folder
        The folder of the file; ``_routines`` unless given.
    """

    __slots__ = ("kernel", "library", "numpy")

    def __init__(
        self,
        name: str,
        numpy: Callable[..., object],
        library: Callable[..., bool] | None = None,
        words: Mapping[str, str] = MappingProxyType({}),
        folder: Path | None = None,
    ) -> None:
        self.numpy = numpy
        self.library = library
        source = cuda_source(name, words, folder)
        self.kernel: gpu.kernel[...] = gpu.kernel(name, source=source, seconds=_BLOCK_SECONDS, effect=numpy)

    def host(self, *args: Any) -> None:
        """Compute on the host."""
        if self.library is None or not self.library(*args):
            self.numpy(*args)


def cuda_source(
    name: str, words: Mapping[str, str] = MappingProxyType({}), folder: Path | None = None
) -> str:
    """Return the CUDA C++ of a kernel in a folder, ``_routines`` unless given, with macros in front of it."""
    source = _read_source((folder or Path(__file__).with_name("_routines")) / f"{name}.cu")
    return "".join(f"#define {word} {text}\n" for word, text in words.items()) + source


@cache
def _read_source(file: Path) -> str:
    return file.read_text()


@dataclass(slots=True)
class Workplace:
    """Where one compute of an operator works: on a stream, or on the host.

    Attributes
    ----------
    operator
        The operator's name, for errors.
    pool
        The allocator of new tensors. On the host NumPy allocates them if it has only memory of a device.
    stream
        The stream, or None on the host.
    """

    operator: str
    pool: Any
    stream: StreamHandle | None

    def bring(self, tensor: Tensor) -> Tensor:
        """Return a tensor that is here: the given one, or a copy of one that is elsewhere."""
        if self.stream is None or tensor.device.is_cuda:
            return tensor
        copied = self.empty(tensor.shape, tensor.dtype)
        copy(copied, np.ascontiguousarray(tensor), self.stream)
        return copied

    def upload(self, array: np.ndarray[Any, Any]) -> Tensor:
        """Return a tensor here with the contents of an array, for tables that are kept over many frames."""
        return as_tensor(array) if self.stream is None else upload(array, self.stream)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Tensor:
        """Return a new tensor here, C-contiguous, with undefined contents."""
        if type(dtype) is not np.dtype:
            dtype = np.dtype(dtype)
        kind = _kind_of_memory(self.pool, self.stream is None)
        if kind is None:
            return as_tensor(np.empty(shape, dtype))
        if kind == _SYSTEM and self.stream is not None:
            raise ValueError(
                f"operator {self.operator!r} works on a device, and its pool {self.pool.name!r} has only system "
                "memory; give it a pool of device memory, or None"
            )
        tensor: Tensor = self.pool.allocate_tensor(
            shape, dtype, kind, stream=self.stream, operator=self.operator
        )
        return tensor

    def run(self, routine: Routine, threads: int, *args: Any) -> None:
        """Run a routine with so many threads; its first arguments are tensors of this place, the others numbers."""
        if threads == 0:
            return
        if self.stream is None:
            routine.host(*[np.asarray(arg) if type(arg) is Tensor else arg for arg in args])
            return
        launch(self.stream, routine.kernel.on(self.stream.device), -(-threads // _BLOCK), _BLOCK, args)


def launch(
    stream: StreamHandle,
    kernel: Any,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    args: Iterable[Any],
) -> None:
    """Launch a compiled kernel on a stream; tensors among its arguments are passed as pointers."""
    if stream.backend.runs_cuda:
        given = [arg.data if type(arg) is Tensor else arg for arg in args]
    else:
        given = [simulated_memory(arg) if type(arg) is Tensor else arg for arg in args]
    gpu.launch(stream.stream, _config(grid, block), kernel, *given)


@lru_cache(maxsize=256)
def _config(grid: int | tuple[int, ...], block: int | tuple[int, ...]) -> Any:
    return gpu.LaunchConfig(grid=grid, block=block)


def workplace(
    operator: Any,
    op_input: InputContext,
    port: str,
    *tensors: Tensor,
    pool: Any,
    may_move: bool = True,
) -> Workplace:
    """Return the place to work on tensors that were received at an input.

    Parameters
    ----------
    operator, op_input, port
        The operator, what it receives from, and the input.
    tensors
        The tensors.
    pool
        The allocator of new tensors.
    may_move
        Whether work on host memory moves to the GPU where there is one.
    """
    for tensor in tensors:
        if tensor.device.is_cuda:
            break
    else:
        if not (may_move and has_gpu()):
            return Workplace(operator.name, pool, None)
    stream = op_input.receive_cuda_stream(port)
    for tensor in tensors:
        order_after(tensor, stream)  # also after work that the message does not carry
    return Workplace(operator.name, pool, stream)


def has_gpu() -> bool:
    """Return whether there is a GPU that runs CUDA code, so that work on host memory moves there."""
    return active().runs_cuda


def check_contiguous(tensor: Tensor, where: str) -> None:
    """Raise if the elements of a tensor are not contiguous in row-major order."""
    if not tensor.is_contiguous():
        raise ValueError(
            f"{where}: the tensor must be C-contiguous; it has shape {tensor.shape} and strides "
            f"{tensor.strides} in bytes. Send {usual_module(tensor.device)}.ascontiguousarray(array)"
        )


def _kind_of_memory(pool: Any, is_host: bool) -> int | None:
    """Return the kind of memory to ask a pool for, or None if it is not to be asked.

    A pool for one kind of memory is asked for that kind, others for device or system memory. On the host, a
    pool that has only memory of a device is left alone: the same program then runs with a GPU and without.
    """
    only = getattr(pool, "storage_type", None)
    if only is not None:
        return None if is_host and int(only) == _DEVICE else int(only)
    if is_host and _SYSTEM not in map(int, getattr(pool, "served", (_SYSTEM,))):
        return None
    return _SYSTEM if is_host else _DEVICE
