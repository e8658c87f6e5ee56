"""holoscan.schedulers."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace import schedulers as headrace
from headrace.resources import MachineClock
from headrace.vocabulary import Inner
from headrace_holoscan.core.clock import GXFClock as GXFClock
from headrace_holoscan.core.components import GXFComponent, InnerScheduler, Scheduler
from headrace_holoscan.resources import PacedClock, RealtimeClock
from headrace_holoscan.signatures import taking

__all__ = ["EventBasedScheduler", "GreedyScheduler", "MultiThreadScheduler"]


def _known_in_run(name: str) -> Any:
    """Return a property that has no value for the program before the first run."""

    def read(self: Any) -> Any:
        is_made = self._headrace.is_made and self.fragment is not None
        if is_made and not self.fragment._headrace.whole._headrace.was_run:
            raise RuntimeError(f"the scheduler has no {name} before the run")
        return vars(self)[name]

    def assign(self: Any, value: Any) -> None:
        vars(self)[name] = value

    return property(read, assign)


def _hide(*names: str) -> Any:
    """Add properties to a class that have no value for the program before the first run."""

    def decorate(cls: Any) -> Any:
        for name in names:
            setattr(cls, name, _known_in_run(name))
        return cls

    return decorate


class _InnerGXFScheduler(InnerScheduler):
    clock_type: ClassVar[Any] = RealtimeClock
    clock: Any = None
    is_made = False
    pin_cores: tuple[int, ...] = ()


@_hide("check_recession_period_ms", "stop_on_deadlock", "stop_on_deadlock_timeout")
class GXFScheduler(Scheduler, GXFComponent):
    """The base of the ready schedulers, whose clock is one of this package's, and is there from the run on."""

    _headrace = Inner(_InnerGXFScheduler)

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        self._headrace.is_made = True

    @property
    def clock(self) -> Any:
        """The clock of the run; None before the first run, and while the graph is composed."""
        is_made = self._headrace.is_made and self.fragment is not None
        whole: Any = self.fragment._headrace.whole if is_made else None
        return (
            None
            if whole is not None and (not whole._headrace.run_id or whole._headrace.made is not None)
            else self._headrace.clock
        )

    @clock.setter
    def clock(self, clock: Any) -> None:
        if type(clock) is MachineClock:
            clock.__class__ = PacedClock
        self._headrace.clock = clock


@taking(
    "fragment, *, clock=None, stop_on_deadlock=True, max_duration_ms=-1, check_recession_period_ms=0.0, "
    "stop_on_deadlock_timeout=0, network_connection_timeout=5000, name='greedy_scheduler'"
)
class GreedyScheduler(GXFScheduler, headrace.GreedyScheduler):
    """All operators on one thread."""


@taking(
    "fragment, *, clock=None, worker_thread_number=1, stop_on_deadlock=True, check_recession_period_ms=5.0, "
    "max_duration_ms=-1, stop_on_deadlock_timeout=0, network_connection_timeout=5000, "
    "strict_job_thread_pinning=False, name='multithread_scheduler'"
)
@_hide("worker_thread_number")
class MultiThreadScheduler(GXFScheduler, headrace.MultiThreadScheduler):
    """Operators on several threads."""


@taking(
    "fragment, *, clock=None, worker_thread_number=1, stop_on_deadlock=True, max_duration_ms=-1, "
    "stop_on_deadlock_timeout=0, network_connection_timeout=5000, pin_cores=None, enable_queue_stealing=False, "
    "steal_scan_limit=0, enable_worker_postcheck_fastpath=False, postcheck_fallback_notify_interval=256, "
    "postcheck_fallback_notify_min_workers=8, postcheck_fallback_notify_min_period_ns=100000, "
    "internal_event_shard_count=0, dispatcher_internal_pop_batch_size=32, wait_state_shard_count=1, "
    "log_perf_stats=False, name='event_based_scheduler'"
)
@_hide(
    *("worker_thread_number", "enable_queue_stealing", "steal_scan_limit", "log_perf_stats"),
    *("enable_worker_postcheck_fastpath", "postcheck_fallback_notify_interval", "wait_state_shard_count"),
    *("postcheck_fallback_notify_min_workers", "postcheck_fallback_notify_min_period_ns"),
    *("internal_event_shard_count", "dispatcher_internal_pop_batch_size"),
)
class EventBasedScheduler(GXFScheduler, headrace.EventBasedScheduler):
    """Operators on several threads."""

    @property
    def pin_cores(self) -> Any:
        """The cores of its threads."""
        return list(self._headrace.pin_cores)

    @pin_cores.setter
    def pin_cores(self, cores: Any) -> None:
        self._headrace.pin_cores = tuple(cores or ())
