"""Library: what headrace has to know about the arrays of one library.

The array protocols (DLPack, the array interfaces) cover most of it. The rest is here, with defaults that suit any
library: a file of this package overrides them for each library that differs, and a program can register a library
of its own (:func:`headrace.tensor.register_library`).

**The stream of an array.** CuPy and PyTorch compute an array on their current stream, so that stream is used. For
every other library, DLPack's handshake passes one of headrace's streams, and the library orders that stream after
its own work.

**Requesting no ordering.** The standard uses -1. JAX takes every number for a handle and uses None instead.
TensorFlow accepts no stream and exports only complete data.

**Read-only memory.** The arrays of JAX and TensorFlow are immutable, but both export DLPack's old form, which
cannot express that. So do older versions of PyArrow. Their arrays are treated as read-only here.

**The layout of an array.** A capsule describes it, for every library. CuPy's arrays have attributes that
provide the same in half the time, and they are converted in every frame. A buffer of a simulated device has no
capsule, since only that device could read it.

**Asking again.** An array may export other memory the next time that it is asked, so a tensor takes the first
capsule over and exports that memory itself. NumPy and CuPy export an array's own memory. CuPy's arrays are
asked again. A NumPy array may be reshaped in place, so a view is asked, which only the tensor has.

**Lifetimes.** The runtime keeps the owner of an array's memory until the device has read it. Views and exports
share that object, so its reference count shows whether the program still holds the memory in any form.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from headrace.gpu import StreamHandle
    from headrace.tensor.description import Description
    from headrace.tensor.tensor import Tensor


class Library:
    """How headrace works with the arrays of one library; subclass it and override what differs.

    Attributes
    ----------
    name
        The name, for messages.
    types
        The array types: classes, or the first part of a class's module and the name of the class, such as
        ``"cupy.ndarray"``, or that part of the module alone, for all types of a library. Subclasses count, too.
    unordered
        The stream argument of ``__dlpack__`` that requests no ordering.
    takes_stream
        Whether ``__dlpack__`` accepts a stream argument.
    is_immutable
        Whether arrays are read-only, whatever their capsules say.
    ignores_read_only
        Whether it writes to memory that a capsule marks as read-only.
    refusal
        Why arrays cannot be tensors, and what to do instead.
    uncapturable
        Why a captured segment cannot be given such arrays, and what to do instead.
    holds_objects
        Whether elements may be Python objects: ``array.dtype.hasobject`` tells, and ``array.flat`` has them.
    works_on_cuda_streams, works_on_simulated_streams
        Whether `set_stream` takes streams of CUDA, or streams of a simulated device.
    current_stream
        Returns the handle of the current stream of a device; None if the library has no current stream.
    describe
        Returns the description of an array, whose DLPack device is given; None if a capsule has to be read.
    view
        Returns another array on the same memory, of which each capsule is a new one; None if that is slow.
    memory_of
        Returns what keeps an array's memory alive, if the array may get other memory; None if it may not.
    """

    name: ClassVar[str] = ""
    types: ClassVar[tuple[type | str, ...]] = ()

    # Conversion.
    unordered: ClassVar[int | None] = -1
    takes_stream: ClassVar[bool] = True
    is_immutable: ClassVar[bool] = False
    ignores_read_only: ClassVar[bool] = False
    refusal: ClassVar[str | None] = None
    uncapturable: ClassVar[str | None] = None
    holds_objects: ClassVar[bool] = False
    works_on_cuda_streams: ClassVar[bool] = True
    works_on_simulated_streams: ClassVar[bool] = False
    current_stream: Callable[[int], int] | None = None
    describe: Callable[[Any, tuple[int, int]], Description] | None = None
    view: Callable[[Any], Any] | None = None
    memory_of: Callable[[Any], Any] | None = None

    @property
    def module(self) -> str:
        """The module of the library: the first part of that of its types."""
        first = self.types[0]
        return (first if isinstance(first, str) else first.__module__).partition(".")[0]

    def for_type(self, kind: type) -> Library:
        """Return the library for one array type, where types of it differ."""
        return self

    def stream_argument(self, stream: int | None) -> int | None:
        """Return the argument that passes a stream to ``__dlpack__``; -1 requests no ordering."""
        if not self.takes_stream:
            return None
        return self.unordered if stream == -1 else stream

    def from_tensor(self, tensor: Tensor) -> Any:
        """Return an array of this library on the memory of a tensor; raise ImportError if it is not installed."""
        return tensor

    # Lifetimes.

    def owner(self, array: Any) -> Any:
        """Return the object that owns the memory of an array, which views and exports of the array share."""
        return array

    def begin(self, array: Any) -> int:
        """Return the address at which the memory of an array's owner begins; 0 if it is unknown."""
        return 0

    # Streams.

    def stream(self, handle: StreamHandle) -> Any:
        """Return this library's object for a stream."""
        raise NotImplementedError(f"{self.name} has no objects for streams")

    def is_in_use(self) -> bool:
        """Return whether the library, which has been imported, can work on streams."""
        return True

    def read_stream(self) -> Any:
        """Return what is current on this thread, as `set_stream` takes it; every compute may ask."""
        raise NotImplementedError(f"{self.name} has no current stream")

    def set_stream(self, state: Any) -> None:
        """Make current on this thread what `read_stream` or `stream_state` has returned."""
        raise NotImplementedError(f"{self.name} has no current stream")

    def stream_state(self, handle: StreamHandle) -> Any:
        """Return what `read_stream` returns while a stream is current."""
        return handle.of_library(self.module)

    def stream_setter(self, state: Any) -> Callable[[], object]:
        """Return `set_stream` for one state, where a faster call does the same."""
        return partial(self.set_stream, state)

    # Memory.

    def private_memory(self, device_id: int) -> Callable[[], AbstractContextManager[Any]] | None:
        """Return a function whose contexts make this thread allocate from a new pool; None if there are no pools.

        Work that is captured uses the same addresses at every launch, so its memory must not go to anybody else.
        """
        return None
