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
from typing import TYPE_CHECKING, Literal, cast

from headrace.gpu.backend import clocks_in_use
from headrace.gpu.sim.device_state import ContextState, DeviceState
from headrace.gpu.sim.errors import CUDAError
from headrace.gpu.sim.profiles import PROFILES, Profile, find_profile
from headrace.gpu.sim.stream_queues import StreamQueue
from headrace.gpu.sim.timeline import Timeline
from headrace.gpu.sim.wall_timeline import PacedTimeline, RealTimeline

if TYPE_CHECKING:
    from headrace.gpu.sim.capture import Capture
    from headrace.gpu.sim.context import Context

# The driver version that the simulation was compared with on a real device; the rules of 13.1 come from its manual.
DEFAULT_DRIVER = (13, 0)
DEFAULT_TIME = "paced"

Time = Literal["virtual", "paced", "real"]
TIMES: dict[str, type[Timeline]] = {
    timeline.kind: timeline for timeline in (Timeline, PacedTimeline, RealTimeline)
}


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
    time : {"virtual", "paced", "real"}
        How simulated time relates to the wall clock. By the wall clock, a kernel of one millisecond takes no
        time in virtual time, at least a millisecond in paced time, and a millisecond in real time if the
        computer keeps up (see :mod:`headrace.gpu.sim.timeline`).
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
            raise ValueError(f"devices must be at least 1, got {devices}")
        if time not in TIMES:
            raise ValueError(f"time must be one of {', '.join(map(repr, TIMES))}, got {time!r}")
        self.driver = driver
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
        """The kind of time: "virtual", "paced" or "real"."""
        return self.timeline.kind

    @property
    def is_virtual(self) -> bool:
        """Whether its time is virtual: it passes only while every attached thread waits."""
        return self.time == "virtual"

    @property
    def is_wall(self) -> bool:
        """Whether its clock is the wall clock, so that the program's own clocks agree with it."""
        return self.timeline.is_wall

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

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Block until ``ready()`` is true or that many seconds have passed; return whether it is true.

        ``ready`` is called with the machine's lock held: it must only read the program's own state and must not use
        the machine or its devices. The code that makes it true calls :meth:`notify`.
        """
        return self.timeline.wait(ready, None if timeout is None else round(timeout * 1e9))

    def notify(self) -> None:
        """Wake the threads blocked in :meth:`wait` so that they check again."""
        self.timeline.notify()

    def attach(self) -> AbstractContextManager[None]:
        """Attach this thread for the duration of a ``with`` block: virtual time stands still while it runs.

        In a program with several threads, attach every thread that submits work or waits.
        """
        return self.timeline.attach()

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
    read = os.environ.get
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
