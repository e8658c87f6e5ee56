"""Primitives: what the system under test gets in place of `threading` and `time` during a controlled run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from .controller import Abort, Controller, Task

__all__ = ["ControlledThreading", "ControlledTime"]


class ControlledTime:
    """Stands in for the module `time`: its clocks show the controller's time."""

    def __init__(self, control: Controller) -> None:
        self._control = control

    def monotonic_ns(self) -> int:
        return self._control.now

    perf_counter_ns = time_ns = monotonic_ns

    def monotonic(self) -> float:
        return self._control.now / 1e9

    perf_counter = time = monotonic

    def sleep(self, seconds: float) -> None:
        self._control.sleep(round(seconds * 1e9))


class ControlledThreading:
    """Stands in for the module `threading`; what is not replaced here comes from the real one."""

    def __init__(self, control: Controller) -> None:
        self._control = control

    def Lock(self) -> ControlledLock:
        return ControlledLock(self._control)

    def RLock(self) -> ControlledRLock:
        return ControlledRLock(self._control)

    def Condition(self, lock: Any = None) -> ControlledCondition:
        return ControlledCondition(self._control, lock)

    def Thread(self, **kwargs: Any) -> ControlledThread:
        return ControlledThread(self._control, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class ControlledLock:
    """A lock: a switch point before it is acquired and after it is released."""

    def __init__(self, control: Controller) -> None:
        self._control = control
        self.holder: Task | str | None = None

    def is_free(self) -> bool:
        return self.holder is None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        control = self._control
        task = control.current
        if task is None:
            assert self.holder is None, "nobody is left who could release this lock"
            self.holder = "nobody"
            return True
        if self.holder is None:  # else it blocks, which is a switch point, too
            control.point("takes a wake-up" if task.parker is not None else "acquires")
        if self.holder is not None:
            if control.aborting:
                if blocking:
                    raise Abort
                return False
            if not blocking:
                return False
            deadline = None if timeout < 0 else control.now + round(timeout * 1e9)
            task.steps.append(
                (control.steps, "parks" if task.parker is not None else f"waits for {self!r}", 0)
            )
            if not control.block(self, deadline):
                return False
        self.holder = task
        control._others = None
        return True

    def release(self) -> None:
        if self.holder is None:
            if self._control.aborting:
                return
            raise RuntimeError("release unlocked lock")
        self.holder = None
        self._control.point("releases")

    def locked(self) -> bool:
        return self.holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *details: object) -> None:
        self.release()

    def __repr__(self) -> str:
        holder = self.holder
        return f"a lock held by {holder.name if isinstance(holder, Task) else holder}"


class ControlledRLock(ControlledLock):
    """A lock that its holder may acquire again."""

    def __init__(self, control: Controller) -> None:
        super().__init__(control)
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self.holder is not None and self.holder is self._control.current:
            self._depth += 1
            return True
        taken = super().acquire(blocking, timeout)
        self._depth += taken
        return taken

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            super().release()


class ControlledCondition:
    """A condition variable."""

    def __init__(self, control: Controller, lock: Any = None) -> None:
        self._control = control
        self._lock = ControlledLock(control) if lock is None else lock
        self._waiters: list[ControlledLock] = []

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, *details: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        waiter = ControlledLock(self._control)
        waiter.acquire()
        self._waiters.append(waiter)
        self._lock.release()
        try:
            return waiter.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        while not (holds := predicate()):
            if not self.wait(timeout):
                return predicate()
        return holds

    def notify(self, count: int = 1) -> None:
        for waiter in self._waiters[:count]:
            self._waiters.remove(waiter)
            waiter.release()

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class ControlledThread:
    """A thread that is a task."""

    def __init__(
        self,
        control: Controller,
        target: Callable[..., object],
        name: str = "thread",
        args: Iterable[Any] = (),
        daemon: bool | None = None,
    ) -> None:
        self._control = control
        self.name = name
        self.daemon = daemon
        arguments = tuple(args)
        self._task = control.spawn(
            name.replace("headrace ", "").replace(" ", "-"), lambda: target(*arguments), external=False
        )
        self.ident: int | None = None

    def start(self) -> None:
        self._control.start(self._task)
        self.ident = self._task.number + 1
        self._control.point(f"starts {self._task.name}")

    def is_alive(self) -> bool:
        return self.ident is not None and not self._task.is_done

    def is_free(self) -> bool:
        return self._task.is_done

    def join(self, timeout: float | None = None) -> None:
        control = self._control
        if control.current is None:
            return
        control.point(f"joins {self._task.name}")
        control.block(self, None if timeout is None else control.now + round(timeout * 1e9))

    def __repr__(self) -> str:
        return f"the end of {self._task.name}"
