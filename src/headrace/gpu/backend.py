"""The seam between headrace and a device: what a backend provides, and which one a process uses.

A backend is one kind of device behind cuda.core's names: `headrace.gpu.cuda`, `headrace.gpu.sim`, none
(:class:`NoBackend`), or one that a program registers (:func:`register_device`; CONTRIBUTING has a page about it).
Everything else calls the methods of :class:`Backend` and never asks which backend it is: a test checks that.

``HEADRACE_DEVICE`` chooses by name: ``cuda``, ``sim``, ``none``, a registered name, or ``auto`` (the default),
which is CUDA if a device is found and a simulated device otherwise. The choice is made once for the process, when a
device is first needed. No CUDA library is imported before that.

A process may still hold objects of two devices: a program that runs on a GPU can ask a simulated one what a
partition would do. So functions that are given a stream or a device use the backend of that object
(:func:`backend_of`). The classes of a backend name it in ``__headrace_device__``. Objects without that name are
CUDA's, whichever library made them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Protocol, TypeAlias

from headrace.gpu import array_libraries
from headrace.lazy import stub_names

# The names of cuda.core that headrace.gpu provides, whichever kind of device a process uses. The stub lists them,
# with the simulated classes. It is read, because no device may be imported before one is used.
DEVICE_NAMES = frozenset(stub_names(os.path.join(os.path.dirname(__file__), "sim", "cuda_core.pyi")))

# Objects of cuda.core, or of another device. Naming their classes here would make a circle of all backends.
Device: TypeAlias = Any
Event: TypeAlias = Any
Graph: TypeAlias = Any
GraphBuilder: TypeAlias = Any
WorkReports: TypeAlias = Any

Callback = Callable[[Exception | None], object]


class DeviceUnavailable(RuntimeError):
    """No device of the requested kind is available; the text states what was found and what is needed."""


class SupportsStream(Protocol):
    """An object of any library that supports the CUDA stream protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the stream's handle."""


class DeviceClock(Protocol):
    """The clock of a device that keeps a time of its own."""

    @property
    def is_virtual(self) -> bool:
        """Whether its time passes only while every attached thread waits."""

    def read(self) -> int:
        """Return the time in nanoseconds."""

    def sleep(self, seconds: float) -> None:
        """Block until that much of its time has passed."""

    def wait(
        self,
        ready: Callable[[], bool],
        timeout: float | None = None,
        outside: bool = False,
        patience: float | None = None,
    ) -> bool:
        """Block until ``ready()`` is true or that many seconds have passed; return whether it is true.

        With ``outside``, what makes it true may come from outside of the device and of the attached threads. After
        `patience` seconds of real time the wait ends in any case.
        """

    def notify(self) -> None:
        """Wake the threads that are blocked in :meth:`wait`, so that they check again."""

    def attach(self) -> AbstractContextManager[None]:
        """Count this thread as working for the duration of a ``with`` block."""

    def aside(self) -> AbstractContextManager[None]:
        """Count this thread as waiting for the duration of a ``with`` block, in which it does nothing else."""


class RecordedAddresses(Protocol):
    """The addresses of copies in a recorded graph: the device's part of `headrace.gpu.executables.AddressTable`."""

    number: int

    def begin(self, stream: SupportsStream) -> None:
        """Record the node that takes the addresses of its launch."""

    def copy(self, stream: SupportsStream, place: int, inside: int, size: int, enters: bool) -> None:
        """Record a copy between a fixed address and the one at a place of the row."""

    def open(self, count: int, rows: int, stream: SupportsStream) -> Any:
        """Return the memory for the addresses of that many launches."""

    def close(self) -> None:
        """Free the memory; the device has finished."""


class Backend(Protocol):
    """One kind of device. A backend derives from this class and overrides what its device can do.

    Attributes
    ----------
    name : str
        The name that ``HEADRACE_DEVICE`` chooses it by.
    description : str
        What a program runs on, for a sentence.
    has_devices : bool
        Whether there is a device at all.
    runs_cuda : bool
        Whether its streams and memory are CUDA's, so that compiled kernels and CUDA's libraries work on them. Where
        it is false, kernels are Python functions, and the host sees the memory that they work on.
    models_time : bool
        Whether its times come from a model, not from a measurement. Its events then tell when they were reached
        (``reached_at``, ``reached_at_wall``).
    """

    name: str
    description: str
    has_devices: ClassVar[bool] = True
    runs_cuda: ClassVar[bool] = False
    models_time: ClassVar[bool] = False

    def why_not(self) -> str | None:
        """Return the reason why it cannot be used on this machine, or None if it can."""
        return None

    # -- devices ---------------------------------------------------------------------------------------

    @property
    def names(self) -> Any:
        """The module with its Device, Stream, Event and the other names of `DEVICE_NAMES`."""
        raise self.lacks("devices")

    @property
    def driver_version(self) -> tuple[int, int] | None:
        """The CUDA version whose rules it follows, if any."""
        return None

    def remember_current(self) -> Callable[[], None]:
        """Return a function that makes the device current again that is current on this thread now."""
        return do_nothing

    # -- streams ---------------------------------------------------------------------------------------

    def when_done(self, stream: SupportsStream, callback: Callback, event: Event | None) -> None:
        """Call a function when a stream has reached an event; by default, the end of its work so far."""
        raise self.lacks("callbacks")

    def launch_host(self, stream: SupportsStream, function: Callable[[], object]) -> None:
        """Call a function on the host between two pieces of a stream's work, which is not being captured."""
        raise self.lacks("host functions")

    def may_submit(self) -> bool:
        """Return whether a finalizer may submit work at this moment, without waiting for a lock.

        It may not when the interpreter ends. Daemon threads are killed then, also while they hold a lock.
        """
        return not sys.is_finalizing()

    # -- memory and kernels ----------------------------------------------------------------------------

    def copy(self, stream: SupportsStream, target: Any, source: Any, size: int) -> None:
        """Copy bytes in the order of a stream.

        Memory that the device knows (its own, pinned, managed) is given by its address. Plain memory of the host is
        given as a C-contiguous NumPy array, and has been read when the call returns.
        """
        raise self.lacks("copies")

    def copy_from_peer(
        self, stream: SupportsStream, target: int, device_id: int, source: int, peer_id: int, size: int
    ) -> None:
        """Copy bytes of another device to one, in the order of a stream; both are given by address and number."""
        self.copy(stream, target, source, size)

    def write_words(self, stream: SupportsStream, words: Iterable[tuple[int, int]]) -> None:
        """Write words of four bytes to device memory in the order of a stream, each at an address.

        The device need not read them from the host: they may go when the call returns.
        """
        raise self.lacks("memory")

    def memory_pool(self, device_id: int, keep: int) -> Any:
        """Return a memory resource with a pool of its own, which keeps that many freed bytes."""
        return self.names.DeviceMemoryResource(device_id)

    def managed_memory(self) -> Any:
        """Return a memory resource of memory that both the host and devices can access."""
        raise self.lacks("managed memory")

    def pin(self, memory: Any) -> bool:
        """Make plain memory of the host, given as an array, known to the devices; return whether that was done.

        Copies then give it by its address and do not wait. It stays so until `unpin`.
        """
        return False

    def unpin(self, memory: Any) -> None:
        """End what `pin` did, before the memory goes."""

    def is_pinned(self, memory: Any) -> bool:
        """Return whether an array lies in memory of the host that the devices know."""
        return False

    def buffer_descriptor(self, payload: bytes, size: int) -> Any:
        """Return the descriptor of a buffer of another process, made of the bytes that it sent."""
        raise self.lacks("memory of other processes")

    def memory_left(self, device_id: int) -> int:
        """Return the bytes of device memory that are left."""
        raise self.lacks("memory")

    def compile(self, kernel: Any, device: Device) -> Any:
        """Return a declared kernel in the form that ``launch`` takes for a device."""
        raise self.lacks("kernels")

    def array_module(self) -> Any:
        """Return the module whose arrays live in the memory of its devices: see :func:`headrace.gpu.arrays`."""
        raise self.lacks("arrays")

    # -- capture ---------------------------------------------------------------------------------------

    def is_capturing(self, stream: SupportsStream) -> bool:
        """Return whether a stream captures its work for a graph."""
        return False

    def graph_builder(self, stream: Any) -> GraphBuilder:
        """Return what captures the work of a stream."""
        return stream.create_graph_builder()

    def captured_nodes(self, stream: SupportsStream) -> int:
        """Return the number of nodes that a capture has recorded so far."""
        raise self.lacks("graphs")

    def captured_frontier(self, stream: SupportsStream) -> dict[int, Any]:
        """Return the nodes that the next work of a capturing stream will depend on, by their handles."""
        raise self.lacks("graphs")

    def instantiate_with_records(
        self, definition: Any, records: Iterable[tuple[Mapping[int, Any], Event]], options: Any
    ) -> Graph:
        """Return an executable graph that also records events, each after the nodes given with it."""
        raise self.lacks("graphs")

    def record_copy(self, stream: SupportsStream, target: int, source: int, size: int) -> None:
        """Record a copy in a capture."""
        raise self.lacks("graphs")

    def record_addresses(self, stream: SupportsStream) -> RecordedAddresses:
        """Return what records copies whose addresses are other ones in each launch, before the capture begins."""
        raise self.lacks("graphs")

    def prepare_copies(self, device: Device) -> None:
        """Compile what recorded copies need, which would otherwise delay the first of them."""
        return

    # -- time ------------------------------------------------------------------------------------------

    def clock(self) -> DeviceClock | None:
        """Return the clock of a device that keeps a time of its own, or None if it has the host's time."""
        return None

    def work_reports(self) -> WorkReports | None:
        """Return where the device reports each kernel and copy by itself, or None if it does not."""
        return None

    def in_virtual_time(self) -> AbstractContextManager[Any]:
        """Return a context in which nobody waits for the device's time to pass, if the device can do that."""
        return nullcontext()

    def lacks(self, what: str) -> Exception:
        """Return the error for something that the device does not have."""
        return NotImplementedError(f"the device {self.name!r} has no {what}")


def do_nothing() -> None:
    """Restore nothing."""


class NoBackend(Backend):
    """No device: programs that work on the host alone, and tests of what they do without a device."""

    name = "none"
    description = "no device"
    has_devices = False

    def lacks(self, what: str) -> Exception:
        """Return the error for everything: there is no device."""
        return DeviceUnavailable(
            "this program needs a device, but HEADRACE_DEVICE=none disables devices; set it to cuda, sim or auto"
        )


def _built_in(module: str, name: str) -> Backend:
    made: Backend = getattr(import_module(module), name)()
    return made


_factories: dict[str, Callable[[], Backend]] = {
    "cuda": partial(_built_in, "headrace.gpu.cuda.backend", "CudaBackend"),
    "sim": partial(_built_in, "headrace.gpu.sim.backend", "SimBackend"),
    "none": NoBackend,
}
_backends: dict[str, Backend] = {}
_choosing = threading.RLock()
_active: Backend | None = None

clocks_in_use: list[Callable[[], DeviceClock | None]] = []
"""Functions that return the clock of a device that a program already uses. A module of devices that keep a time of
their own appends one when it is imported."""


def register_device(name: str, factory: Callable[[], Backend]) -> None:
    """Make a kind of device known, so that ``HEADRACE_DEVICE`` can choose it.

    Call it before the program uses a device.

    Parameters
    ----------
    name : str
        The name for ``HEADRACE_DEVICE``.
    factory : callable
        Called once, when the device is first used; returns its :class:`Backend`.
    """
    if name == "auto" or name in _factories:
        raise ValueError(f"there is a device {name!r} already; the names are {', '.join(device_choices())}")
    _factories[name] = factory


def device_choices() -> tuple[str, ...]:
    """Return the values that ``HEADRACE_DEVICE`` may have."""
    return ("auto", *_factories)


def backend() -> str:
    """Return the name of the kind of device that this process uses; the first call makes the choice."""
    return active().name


def active() -> Backend:
    """Return the backend that this process uses; the first call makes the choice."""
    global _active
    if _active is None:
        with _choosing:  # two threads must not both announce the simulation
            if _active is None:
                _active = _choose()
        array_libraries.tell()  # runs in progress make their streams
    return _active


def expected() -> Backend:
    """Return the backend that `active` returns or would return, without a choice: who only looks uses no device."""
    return _active or _candidate()[0]


def is_in_use() -> bool:
    """Return whether the program uses a device, by headrace or by cuda.core."""
    return _active is not None or "cuda.core" in sys.modules


def is_chosen() -> bool:
    """Return whether the process has chosen its backend."""
    return _active is not None


def find_backend(name: str) -> Backend:
    """Return the backend of that name, whether or not the process uses it."""
    if name not in _backends:
        if name not in _factories:
            raise ValueError(f"there is no device {name!r}; the names are {', '.join(_factories)}")
        with _choosing:
            _backends.setdefault(name, _factories[name]())
    return _backends[name]


def backend_of(thing: object) -> Backend:
    """Return the backend of a device, a stream, a graph or a StreamHandle."""
    owner = getattr(thing, "stream", None) or thing  # the stream of a StreamHandle
    return backend_of_type(type(owner))


def backend_of_type(kind: type) -> Backend:
    """Return the backend of the objects of a class."""
    return find_backend(getattr(kind, "__headrace_device__", "cuda"))


def clock_in_use() -> DeviceClock | None:
    """Return the clock of a device that keeps a time of its own and that the program already uses, or None."""
    return next((clock for find in clocks_in_use if (clock := find()) is not None), None)


def aside() -> AbstractContextManager[None]:
    """Return a block for a wait for other threads, which may need the time of a device to pass."""
    clock = clock_in_use()
    return nullcontext() if clock is None else clock.aside()


def _choose() -> Backend:
    chosen, reason = _candidate()
    if reason is not None:
        print(f"headrace: {reason}; running on {chosen.description}", file=sys.stderr)
    return chosen


def _candidate() -> tuple[Backend, str | None]:
    """Return the backend that the setting names, and why it is the simulated one if nobody asked for that."""
    setting = os.environ.get("HEADRACE_DEVICE") or "auto"
    if setting not in device_choices():
        raise ValueError(f"HEADRACE_DEVICE={setting!r}: must be one of {', '.join(device_choices())}")
    chosen = find_backend("cuda" if setting == "auto" else setting)
    reason = chosen.why_not()
    if reason is None:
        return chosen, None
    if setting != "auto":
        raise DeviceUnavailable(f"HEADRACE_DEVICE={setting}, but {reason}")
    return find_backend("sim"), reason
