"""A simulated computer: its devices, its driver and its clock.

One machine is current in a process; ``Device(0)`` is that machine's first device. A test or a program that
wants another (two devices, an older driver, virtual time) makes one and enters it::

    with Machine("h200", driver=(13, 1), time="virtual"):
        device = Device(0)

Without that, the first use of a simulated device makes the machine that the environment describes:
``PENSTOCK_SIM_PROFILE`` (``h200``), ``PENSTOCK_SIM_DRIVER`` (``13.0``), ``PENSTOCK_SIM_DEVICES`` (``1``) and
``PENSTOCK_SIM_TIME`` (``paced``).

The state here is what the driver would hold; the objects a program sees (Device, Context, Stream, Event) are
views of it, as cuda.core's are of the driver's.
"""

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, cast

from penstock.gpu.backends import SIMULATED_TIME
from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.lanes import CopyEngine, Lane
from penstock.gpu.sim.memory import Pool
from penstock.gpu.sim.processors import Processors, SMs
from penstock.gpu.sim.profiles import PROFILES, Profile, profile
from penstock.gpu.sim.timeline import Timeline
from penstock.gpu.sim.wall_timeline import PacedTimeline, RealTimeline

if TYPE_CHECKING:
    from penstock.gpu.sim.context import Context
    from penstock.gpu.sim.device import Device

# The driver's rules that this simulation was checked against on a real device; 13.1's come from its manual.
DEFAULT_DRIVER = (13, 0)

Time = Literal["virtual", "paced", "real"]
TIMES: dict[str, type[Timeline]] = {kind.kind: kind for kind in (Timeline, PacedTimeline, RealTimeline)}

# The driver's handle of the default stream of whichever context is current (CU_STREAM_LEGACY).
DEFAULT_STREAM = 1
# A thread's own default stream (CU_STREAM_PER_THREAD), which here is the default stream too.
PER_THREAD_DEFAULT_STREAM = 2


class Machine:
    """A simulated computer.

    Parameters
    ----------
    device : str or Profile
        What its devices are like: the name of a profile, or one of your own.
    devices : int
        How many of them it has.
    driver : tuple of int
        The CUDA version of its driver. Green contexts came with 12.4; splitting SMs by group, and
        workqueues, with 13.1.
    time : {"virtual", "paced", "real"}
        Whether a kernel of a millisecond takes one by the wall clock, too: in virtual time not, in paced time
        at least one, in real time exactly, if the computer can keep up (see :mod:`penstock.gpu.sim.timeline`).
    """

    def __init__(
        self,
        device: str | Profile = "h200",
        *,
        devices: int = 1,
        driver: tuple[int, int] = DEFAULT_DRIVER,
        time: Time = "virtual",
    ) -> None:
        if devices < 1:
            raise ValueError(f"a simulated machine needs at least one device, got devices={devices}")
        if time not in TIMES:
            raise ValueError(f"time must be one of {', '.join(map(repr, TIMES))}, got {time!r}")
        self.driver = driver
        self.timeline = TIMES[time]()
        self.devices = tuple(DeviceState(self, index, profile(device)) for index in range(devices))
        self.lanes: weakref.WeakValueDictionary[int, Lane] = weakref.WeakValueDictionary()
        self._failure: CUDAError | None = None
        self._handles = itertools.count(0x5100_0000, 0x10)
        self._thread = threading.local()
        self._previous: list[Machine | None] = []

    def __enter__(self) -> "Machine":
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
        """Stop the machine; what was under way on it is abandoned."""
        self.timeline.close()

    # -- time, for the program -------------------------------------------------------------------------

    @property
    def time(self) -> str:
        """Which time its clock and its events are in: "virtual", "paced" or "real"."""
        return self.timeline.kind

    @property
    def now(self) -> float:
        """The host's time on this machine, in seconds since it was made."""
        with self.timeline.lock:
            return self.timeline.read() / 1e9

    def sleep(self, seconds: float) -> None:
        """Let that much of the machine's time pass."""
        self.timeline.sleep(round(seconds * 1e9))

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Block until ``ready()`` holds or that many seconds have passed; return whether it holds.

        ``ready`` is asked with the machine's lock held: it must only look at the program's own state and
        ask nothing of the machine or its devices. Whatever makes it hold calls :meth:`notify`.
        """
        return self.timeline.wait(ready, None if timeout is None else round(timeout * 1e9))

    def notify(self) -> None:
        """Have the threads blocked in :meth:`wait` look again."""
        self.timeline.notify()

    def attach(self) -> AbstractContextManager[None]:
        """Count this thread, for the length of a ``with``: virtual time stands still while it runs.

        In a program with several threads, those that submit work or wait should all be attached.
        """
        return self.timeline.attach()

    # -- for the simulated objects ---------------------------------------------------------------------

    def new_handle(self) -> int:
        """Return a number that no other object of this machine has."""
        return next(self._handles)

    @property
    def current_context(self) -> "ContextState | None":
        """The context that is current on this thread."""
        return getattr(self._thread, "context", None)

    @property
    def current_view(self) -> "Context | None":
        """The very object that the program made current, which it expects back."""
        return getattr(self._thread, "view", None)

    def make_current(self, context: "ContextState | None", view: "Context | None") -> None:
        """Make a context, or none, current on this thread."""
        self._thread.context = context
        self._thread.view = view

    def require_current(self) -> None:
        """Raise unless a context is current on this thread: without one the driver makes nothing."""
        if self.current_context is None:
            raise RuntimeError("no context is current on this thread; call Device.set_current() first")

    def fail(self, what: str, cause: BaseException) -> None:
        """Break the devices, as a kernel that faults does: every later call raises."""
        if self._failure is None:
            self._failure = CUDAError(f"CUDA_ERROR_LAUNCH_FAILED: {what} raised {cause!r}")
            self._failure.__cause__ = cause

    @property
    def failure(self) -> CUDAError | None:
        """Why the devices are broken, or None if they are not."""
        return self._failure

    def check(self) -> None:
        """Raise if a kernel has faulted."""
        if self._failure is not None:
            raise self._failure

    def require_driver(self, needed: tuple[int, int], what: str) -> None:
        """Raise unless the driver is new enough for something."""
        if self.driver < needed:
            raise RuntimeError(
                f"{what} requires CUDA driver {_dotted(needed)} or newer "
                f"(the simulated driver is {_dotted(self.driver)})"
            )


class DeviceState:
    """One device of a machine."""

    def __init__(self, machine: Machine, index: int, profile: Profile) -> None:
        self.machine = machine
        self.index = index
        self.profile = profile
        self.overhead = round(profile.launch_overhead * 1e9)
        self.processors = Processors(
            machine.timeline, profile.sm_count, profile.threads_per_sm, profile.blocks_per_sm
        )
        starts = itertools.accumulate(profile.clusters, initial=0)
        self.clusters = tuple(
            range(start, start + size) for start, size in zip(starts, profile.clusters, strict=False)
        )
        self.memory = Pool(profile.memory, machine.timeline.lock)
        self.to_device = CopyEngine(profile.copy_bandwidth)
        self.to_host = CopyEngine(profile.copy_bandwidth)
        self.within = CopyEngine(profile.memory_bandwidth)
        self.busy_lanes: set[Lane] = set()
        self.device: Device | None = None  # the one Device object that programs see
        self.primary = ContextState(self, self.processors.all_sms, handle=0x5000_0000 + 16 * index)

    def call(self, code: Callable[[], object]) -> None:
        """Run the program's code with this device current, and leave the thread's context as it was."""
        machine = self.machine
        context, view = machine.current_context, machine.current_view
        machine.make_current(self.primary, None)
        try:
            code()
        finally:
            machine.make_current(context, view)


class ContextState:
    """A primary context, or a green one: the SMs that its streams may use."""

    def __init__(
        self,
        device: DeviceState,
        sms: SMs,
        *,
        handle: int,
        is_green: bool = False,
        workqueue: tuple[str, int] | None = None,
    ) -> None:
        self.device = device
        self.sms = sms
        self.handle = handle
        self.is_green = is_green
        self.workqueue = workqueue  # its sharing scope and concurrency limit, where one was given
        self._lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
        self.default_lane = Lane(self, DEFAULT_STREAM, priority=0, nonblocking=False, is_default=True)

    def create_lane(self, *, priority: int, nonblocking: bool) -> Lane:
        """Make the queue of a new stream of this context."""
        machine = self.device.machine
        lane = Lane(self, machine.new_handle(), priority=priority, nonblocking=nonblocking)
        machine.lanes[lane.handle] = lane
        self._lanes.add(lane)
        return lane

    def blocking_lanes(self) -> list[Lane]:
        """Return the lanes that the default stream is ordered with, in the order they were made."""
        return sorted((lane for lane in self._lanes if not lane.nonblocking), key=lambda lane: lane.handle)


_current: Machine | None = None
_making = threading.Lock()


def current_machine() -> Machine:
    """Return the machine whose devices ``Device`` gives; the environment describes the first."""
    global _current
    if _current is None:
        with _making:
            if _current is None:
                _current = _from_environment()
    return _current


def _from_environment() -> Machine:
    read = os.environ.get
    time = read("PENSTOCK_SIM_TIME", SIMULATED_TIME)
    if time not in TIMES:
        raise ValueError(f"PENSTOCK_SIM_TIME must be one of {', '.join(TIMES)}, got {time!r}")
    devices = read("PENSTOCK_SIM_DEVICES", "1")
    if not devices.isdigit() or int(devices) < 1:
        raise ValueError(f"PENSTOCK_SIM_DEVICES must be a whole number from 1 on, got {devices!r}")
    driver = read("PENSTOCK_SIM_DRIVER", _dotted(DEFAULT_DRIVER))
    major, _, minor = driver.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise ValueError(f"PENSTOCK_SIM_DRIVER must be a version such as 13.0, got {driver!r}")
    name = read("PENSTOCK_SIM_PROFILE", "h200")
    if name not in PROFILES:
        raise ValueError(f"PENSTOCK_SIM_PROFILE must be one of {', '.join(PROFILES)}, got {name!r}")
    return Machine(name, devices=int(devices), driver=(int(major), int(minor)), time=cast(Time, time))


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
