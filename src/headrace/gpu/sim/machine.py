"""A simulated computer: its devices, its driver and its clock.

One machine is current in a process; ``Device(0)`` is that machine's first device. A test or a program that needs
another one (two devices, an older driver, virtual time) creates and enters it::

    with Machine("h200", driver=(13, 1), time="virtual"):
        device = Device(0)

Otherwise the first use of a simulated device creates the machine that these environment variables describe:
``HEADRACE_SIM_PROFILE`` (default ``h200``), ``HEADRACE_SIM_DRIVER`` (``13.0``), ``HEADRACE_SIM_DEVICES``
(``1``) and ``HEADRACE_SIM_TIME`` (``paced``).
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from headrace.gpu.backend import clocks_in_use
from headrace.gpu.sim.memory_pool import MemoryPool
from headrace.gpu.sim.objects import CUDAError
from headrace.gpu.sim.operations import CopyEngine, StreamQueue
from headrace.gpu.sim.paced_timeline import PacedTimeline
from headrace.gpu.sim.processors import Processors, SMs
from headrace.gpu.sim.profiles import PROFILES, Profile, find_profile
from headrace.gpu.sim.timeline import Timeline
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE

if TYPE_CHECKING:
    from headrace.gpu.sim.capture import Capture
    from headrace.gpu.sim.device import Context, Device

# The driver version that the simulation was compared with on a real device; the rules of 13.1 come from its manual.
DEFAULT_DRIVER = (13, 0)
DEFAULT_TIME = "paced"
PEER_BANDWIDTH = 450e9  # bytes per second between two devices that access each other, by NVLink

Time = Literal["virtual", "paced"]
TIMES: dict[str, type[Timeline]] = {"virtual": Timeline, "paced": PacedTimeline}


class Machine:
    """A simulated computer.

    Parameters
    ----------
    device : str or Profile
        The kind of its devices: the name of a profile, or a profile of your own.
    devices : int
        The number of devices.
    driver : tuple of int
        The CUDA version of its driver. Green contexts need 12.4; splitting SMs by group, and workqueues, need
        13.1.
    time : {"virtual", "paced"}
        How simulated time relates to the wall clock. By the wall clock, a kernel of one millisecond takes no
        time in virtual time, and at least a millisecond in paced time (see :mod:`headrace.gpu.sim.timeline`).
    peer_access : bool
        Whether its devices can access the memory of each other, as by NVLink.
    """

    def __init__(
        self,
        device: str | Profile = "h200",
        *,
        devices: int = 1,
        driver: tuple[int, int] = DEFAULT_DRIVER,
        time: Time = "virtual",
        peer_access: bool = True,
    ) -> None:
        if devices < 1:
            raise ValueError(f"devices must be at least 1, got {devices}")
        if time not in TIMES:
            raise ValueError(f"time must be one of {', '.join(map(repr, TIMES))}, got {time!r}")
        self.driver = driver
        self.peer_access = peer_access
        self.timeline = TIMES[time]()
        self.devices = tuple(DeviceState(self, index, find_profile(device)) for index in range(devices))
        self.stream_queues: weakref.WeakValueDictionary[int, StreamQueue] = weakref.WeakValueDictionary()
        self.captures: set[Capture] = set()  # in progress, or ended by a finalizer
        self._failure: tuple[str, BaseException] | None = None
        self._handles = itertools.count(0x5100_0000, 0x10)
        self._thread = threading.local()
        self._previous: list[Machine | None] = []

    def __enter__(self) -> Machine:
        global _current
        self._previous.append(_current)
        _current = self
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = self._previous.pop()
        self.close()

    def __repr__(self) -> str:
        names = f"{len(self.devices)} × {self.devices[0].profile.name}"
        return f"<Machine {names}, driver {_dotted(self.driver)}, {self.time} time>"

    def close(self) -> None:
        """Stop the machine and abandon the work that is still running on it."""
        self.timeline.close()

    # -- time ------------------------------------------------------------------------------------------

    @property
    def time(self) -> str:
        """The kind of time: "virtual" or "paced"."""
        return self.timeline.kind

    @property
    def is_virtual(self) -> bool:
        """Whether its time is virtual: it passes only while every attached thread waits."""
        return self.time == "virtual"

    @property
    def now(self) -> float:
        """The host's time on this machine, in seconds since the machine was created."""
        return self.read() / 1e9

    def read(self) -> int:
        """Return the host's time on this machine, in nanoseconds since the machine was created."""
        with self.timeline.lock:
            return self.timeline.read()

    def sleep(self, seconds: float) -> None:
        """Block until that many seconds of the machine's time have passed."""
        self.timeline.sleep(round(seconds * 1e9))

    def wait(
        self,
        ready: Callable[[], bool],
        timeout: float | None = None,
        outside: bool = False,
        patience: float | None = None,
    ) -> bool:
        """Block until ``ready()`` is true or that many seconds have passed; return whether it is true.

        ``ready`` is called with the machine's lock held: it must only read the program's own state and must not use
        the machine or its devices. The code that makes it true calls :meth:`notify`. With ``outside``, that may be
        a thread that is not attached; then it is no error if nothing else can happen before. After `patience`
        seconds of real time the wait ends in any case.
        """
        return self.timeline.wait(ready, None if timeout is None else round(timeout * 1e9), outside, patience)

    def notify(self) -> None:
        """Wake the threads blocked in :meth:`wait` so that they check again."""
        self.timeline.notify()

    def attach(self) -> AbstractContextManager[None]:
        """Attach this thread for the duration of a ``with`` block: virtual time stands still while it runs.

        In a program with several threads, attach every thread that submits work or waits.
        """
        return self.timeline.attach()

    def aside(self) -> AbstractContextManager[None]:
        """Let time pass while this thread, which may be attached, waits for other threads in a ``with`` block."""
        return self.timeline.aside()

    # -- used by the simulated objects -----------------------------------------------------------------

    def new_handle(self) -> int:
        """Return a handle that no other object of this machine has."""
        return next(self._handles)

    @property
    def current_context(self) -> ContextState | None:
        """The context that is current on this thread."""
        return getattr(self._thread, "context", None)

    @property
    def current_view(self) -> Context | None:
        """The Context object that the program made current, so that it gets the same object back."""
        return getattr(self._thread, "view", None)

    def make_current(self, context: ContextState | None, view: Context | None) -> None:
        """Make a context current on this thread, or none."""
        self._thread.context = context
        self._thread.view = view

    def require_current(self) -> None:
        """Raise an error unless a context is current on this thread: without one the driver creates nothing."""
        if self.current_context is None:
            raise RuntimeError("no context is current on this thread; call Device.set_current() first")

    def fail(self, what: str, cause: BaseException) -> None:
        """Put the devices into the error state, as a faulting kernel does: every later call raises an error."""
        if self._failure is None:
            self._failure = (f"CUDA_ERROR_LAUNCH_FAILED: {what} raised {cause!r}", cause)

    @property
    def failure(self) -> CUDAError | None:
        """The error of the kernel that faulted, or None.

        It is a new object each time: an error that is raised again and again would collect the traceback, and with
        it the variables, of every call that raised it.
        """
        if self._failure is None:
            return None
        text, cause = self._failure
        error = CUDAError(text)
        error.__cause__ = cause
        return error

    def check(self) -> None:
        """Raise an error if a kernel has faulted."""
        error = self.failure
        if error is not None:
            raise error

    def require_driver(self, needed: tuple[int, int], what: str) -> None:
        """Raise an error unless the driver has at least that version; ``what`` names the feature."""
        if self.driver < needed:
            raise RuntimeError(
                f"{what} requires CUDA driver {_dotted(needed)} or newer "
                f"(the simulated driver is {_dotted(self.driver)})"
            )


class DeviceState:
    """The driver's state of one device. The objects that a program uses are views of it, as cuda.core's are."""

    def __init__(self, machine: Machine, index: int, profile: Profile) -> None:
        self.machine = machine
        self.index = index
        self.profile = profile
        self.launch_overhead = round(profile.launch_overhead * 1e9)  # nanoseconds
        self.graph_launch_overhead = round(profile.graph_launch_overhead * 1e9)
        self.graph_node_overhead = round(profile.graph_node_overhead * 1e9)
        self.processors = Processors(
            machine.timeline, profile.sm_count, profile.threads_per_sm, profile.blocks_per_sm
        )
        ends = itertools.accumulate(profile.clusters)
        self.clusters = tuple(
            range(end - size, end) for end, size in zip(ends, profile.clusters, strict=True)
        )
        self.memory = MemoryPool(profile.memory, machine.timeline.lock)
        # Pools that are shared with other processes, its own and those of others.
        self.shared_pools: weakref.WeakSet[MemoryPool] = weakref.WeakSet()
        self.to_device = CopyEngine(self, profile.copy_bandwidth)
        self.to_host = CopyEngine(self, profile.copy_bandwidth)
        self.within_device = CopyEngine(self, profile.memory_bandwidth)
        # Without access to each other, the driver copies through the host: there and back.
        between = PEER_BANDWIDTH if machine.peer_access else profile.copy_bandwidth / 2
        self.from_peer = CopyEngine(self, between)
        self.busy_queues: set[StreamQueue] = set()
        self.device: Device | None = None  # the only Device object that programs see
        self.primary_context = ContextState(self, self.processors.all_sms, 0x5000_0000 + 16 * index)

    @property
    def pools(self) -> tuple[MemoryPool, ...]:
        """All pools of its memory."""
        return (self.memory, *self.shared_pools)

    def run_user_code(self, code: Callable[[], object], then: Callable[[], None]) -> None:
        """Schedule a function of the program, to run with this device current; ``then`` follows, with the lock."""
        self.machine.timeline.run_user_code(partial(self.call, code), then)

    def call(self, code: Callable[[], object]) -> None:
        """Call a function of the program with this device current, then restore the thread's context."""
        machine = self.machine
        context, view = machine.current_context, machine.current_view
        machine.make_current(self.primary_context, None)
        try:
            code()
        finally:
            machine.make_current(context, view)


@dataclass(eq=False)
class ContextState:
    """A primary or a green context: the SMs that its streams may use."""

    device: DeviceState
    sms: SMs
    handle: int
    is_green: bool = False
    workqueue: tuple[str, int] | None = None  # sharing scope and concurrency limit, if the program chose them
    default_queue: StreamQueue = field(init=False)
    _queues: weakref.WeakSet[StreamQueue] = field(default_factory=weakref.WeakSet)

    def __post_init__(self) -> None:
        self.default_queue = StreamQueue(self, LEGACY_DEFAULT_HANDLE, 0, nonblocking=False, is_default=True)

    def create_queue(self, *, priority: int, nonblocking: bool) -> StreamQueue:
        """Create the queue of a new stream of this context."""
        machine = self.device.machine
        queue = StreamQueue(self, machine.new_handle(), priority, nonblocking)
        machine.stream_queues[queue.handle] = queue
        self._queues.add(queue)
        return queue

    def blocking_queues(self) -> list[StreamQueue]:
        """Return the queues that the default stream is ordered with, oldest first."""
        return sorted(
            (queue for queue in self._queues if not queue.nonblocking), key=lambda queue: queue.handle
        )


_current: Machine | None = None
_creating = threading.Lock()


def current_machine() -> Machine:
    """Return the machine whose devices ``Device`` returns; created from the environment if there is none yet."""
    global _current
    if _current is None:
        with _creating:
            if _current is None:
                _current = _from_environment()
    return _current


def existing_machine() -> Machine | None:
    """Return the machine that is current, or None if there is none yet."""
    return _current


clocks_in_use.append(existing_machine)


def _from_environment() -> Machine:
    def read(name: str, otherwise: str) -> str:
        return os.environ.get(name) or otherwise

    time = read("HEADRACE_SIM_TIME", DEFAULT_TIME)
    if time not in TIMES:
        raise ValueError(f"HEADRACE_SIM_TIME must be one of {', '.join(TIMES)}, got {time!r}")
    devices = read("HEADRACE_SIM_DEVICES", "1")
    if not devices.isdigit() or int(devices) < 1:
        raise ValueError(f"HEADRACE_SIM_DEVICES must be an integer of at least 1, got {devices!r}")
    driver = read("HEADRACE_SIM_DRIVER", _dotted(DEFAULT_DRIVER))
    major, _, minor = driver.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise ValueError(f"HEADRACE_SIM_DRIVER must be a version such as 13.0, got {driver!r}")
    name = read("HEADRACE_SIM_PROFILE", "h200")
    if name not in PROFILES:
        raise ValueError(f"HEADRACE_SIM_PROFILE must be one of {', '.join(PROFILES)}, got {name!r}")
    return Machine(name, devices=int(devices), driver=(int(major), int(minor)), time=cast(Time, time))


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
