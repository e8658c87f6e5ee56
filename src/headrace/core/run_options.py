"""RunOptions: what the environment changes in a run, without a change to the program.

    ==========================================  ===================================================================
    ``HEADRACE_SCHEDULER=event:4``              another scheduler: ``greedy`` (one thread for all operators),
                                                ``multithread[:N]``, ``event[:N]``
    ``HEADRACE_DURATION=10s``                   end the run after that time of its clock
    ``HEADRACE_COUNT=100``                      end each source after that many computes
    ``HEADRACE_STOP_TIMEOUT=10s``               how long the run may take to stop (`Composition.stop_timeout`)
    ``HEADRACE_PROCESSES=1``                    run each fragment in a process of its own
    ==========================================  ===================================================================

The variables of the Holoscan SDK and of its benchmarks are read where they mean something here; a variable of
headrace wins over theirs:

    ==========================================  ===================================================================
    ``HOLOSCAN_SCHEDULER``                      ``greedy``, ``multithread`` or ``eventbased``
    ``HOLOSCAN_MULTITHREAD_WORKER_THREADS``     the workers of the first
    ``HOLOSCAN_EVENTBASED_WORKER_THREADS``      the workers of the second
    ``HOLOSCAN_NUM_SOURCE_MESSAGES``            as ``HEADRACE_COUNT``
    ``HOLOSCAN_MAX_DURATION_MS``                as ``HEADRACE_DURATION``, in milliseconds
    ``HOLOSCAN_STOP_ON_DEADLOCK``               the scheduler's parameter of that name, as the next two
    ``HOLOSCAN_STOP_ON_DEADLOCK_TIMEOUT``
    ``HOLOSCAN_CHECK_RECESSION_PERIOD_MS``
    ==========================================  ===================================================================

An empty variable counts as absent. A wrong value is an error that names the variable: a run that silently ignored
it would look like one that obeyed.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from datetime import timedelta
from typing import TypeVar

from headrace.core.values import boolean, flag, nanoseconds, whole_number

T = TypeVar("T")

MOST_WORKERS = 1024
"""The most worker threads of a scheduler: many times the cores of any machine."""

_SCHEDULERS = {
    "greedy": "greedy",
    "multithread": "multithread",
    "multi_thread": "multithread",
    "event": "event",
    "eventbased": "event",
    "event_based": "event",
}
_SCHEDULER_FORMS = (
    "greedy, multithread, event, or one of the last two with its number of workers, as in event:4"
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the environment changes in a run; a field that is None changes nothing."""

    scheduler: str | None = None
    """The kind of scheduler: ``"greedy"``, ``"multithread"`` or ``"event"``."""
    workers: int | None = None
    """The number of its workers, if the variable gives one."""
    max_duration_ms: int | None = None
    """The milliseconds after which the run ends."""
    count: int | None = None
    """The number of computes of each source."""
    stop_on_deadlock: bool | None = None
    """Whether the run ends when nothing can run any more."""
    stop_on_deadlock_timeout: int | None = None
    """The milliseconds to wait before that."""
    check_recession_period_ms: float | None = None
    """The period at which conditions are polled."""
    stop_timeout_ms: int | None = None
    """The milliseconds that the run may take to stop."""
    processes: bool | None = None
    """Whether each fragment runs in a process of its own."""

    def over(self, others: RunOptions) -> RunOptions:
        """Return these options, and those of `others` where they change nothing."""
        pairs = zip(astuple(self), astuple(others), strict=True)
        return RunOptions(*(theirs if own is None else own for own, theirs in pairs))

    @property
    def changes_scheduler(self) -> bool:
        """Whether the run needs another scheduler than the application's own."""
        return self != RunOptions(
            workers=self.workers,
            count=self.count,
            stop_timeout_ms=self.stop_timeout_ms,
            processes=self.processes,
        )


def limits_of_run(
    duration: str | float | timedelta | None, max_messages: int | None, processes: bool | None = None
) -> RunOptions:
    """Return the options that the arguments of `Fragment.run` ask for."""
    return RunOptions(
        max_duration_ms=None if duration is None else _duration_argument(duration),
        count=None if max_messages is None else whole_number(max_messages, "run(max_messages=...)", 1),
        processes=None if processes is None else boolean(processes, "run(processes=...)"),
    )


def _duration_argument(duration: str | float | timedelta) -> int:
    what = "run(duration=...)"
    if isinstance(duration, str):
        try:
            return parse_duration(duration)
        except ValueError as error:
            raise ValueError(f"{what} {error}, not {duration!r}") from None
    if isinstance(duration, int):
        raise TypeError(f"{what} must have a unit, as in '{duration}s', not {duration!r}")
    found = -(-nanoseconds(duration, what) // 1_000_000)
    if not 1 <= found <= _LONGEST:
        raise ValueError(f"{what} must be more than 0 and less than 100 years, not {duration!r}")
    return found


def read_run_options(environment: Mapping[str, str] | None = None) -> RunOptions:
    """Return what the environment changes in a run; raise ValueError for a value that makes no sense."""
    variables = os.environ if environment is None else environment

    def read(parse: Callable[[str], T], *names: str) -> T | None:
        """Return the value of the first variable that is set."""
        for name in names:
            if text := variables.get(name, "").strip():
                try:
                    return parse(text)
                except ValueError as error:
                    raise ValueError(f"{name}={text}: {error}") from None
        return None

    chosen = read(parse_scheduler, "HEADRACE_SCHEDULER")
    if chosen is None:
        chosen = read(_parse_their_scheduler, "HOLOSCAN_SCHEDULER")
        if chosen is not None and chosen[0] != "greedy":
            kind = "MULTITHREAD" if chosen[0] == "multithread" else "EVENTBASED"
            chosen = chosen[0], read(parse_workers, f"HOLOSCAN_{kind}_WORKER_THREADS") or 1
    duration = read(parse_duration, "HEADRACE_DURATION")
    if duration is None:
        duration = read(_parse_milliseconds, "HOLOSCAN_MAX_DURATION_MS")
        duration = None if duration is not None and duration < 0 else duration  # negative: no bound, as there
    scheduler, workers = chosen or (None, None)
    return RunOptions(
        scheduler,
        workers,
        max_duration_ms=duration,
        count=read(parse_count, "HEADRACE_COUNT", "HOLOSCAN_NUM_SOURCE_MESSAGES"),
        stop_on_deadlock=read(flag, "HOLOSCAN_STOP_ON_DEADLOCK"),
        stop_on_deadlock_timeout=read(_parse_milliseconds, "HOLOSCAN_STOP_ON_DEADLOCK_TIMEOUT"),
        check_recession_period_ms=read(_parse_period, "HOLOSCAN_CHECK_RECESSION_PERIOD_MS"),
        stop_timeout_ms=read(parse_duration, "HEADRACE_STOP_TIMEOUT"),
        processes=read(flag, "HEADRACE_PROCESSES"),
    )


def parse_scheduler(text: str) -> tuple[str, int | None]:
    """Return the kind of scheduler and its number of workers, if there is one: ``event:4``."""
    name, colon, workers = text.strip().partition(":")
    kind = _SCHEDULERS.get(name.strip().lower())
    if kind is None:
        raise ValueError(f"must be {_SCHEDULER_FORMS}")
    if not colon:
        return kind, None
    if kind == "greedy":
        raise ValueError("the greedy scheduler has no workers; write greedy, or event:4 for four workers")
    try:
        return kind, parse_workers(workers)
    except ValueError as error:
        raise ValueError(f"{workers!r} workers: {error}; write {name}:4 for four workers") from None


def parse_duration(text: str) -> int:
    """Return a duration with a unit, such as ``10s``, in whole milliseconds, rounded up."""
    # A bare number is refused: it is nanoseconds in one place of headrace and milliseconds in another.
    number = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,2})?"
    if re.fullmatch(rf"{number}\s*(?:ns|us|µs|μs|ms|s|min|h)", text.strip()) is None:
        raise ValueError("must be a number with a unit, as in 500ms, 10s, 2min or 1h")
    try:
        duration = -(-nanoseconds(text) // 1_000_000)
    except ValueError:  # its form is right, so it is too long for a clock
        duration = _LONGEST + 1
    if duration < 1:
        raise ValueError("must be more than 0, as in 500ms, 10s, 2min or 1h")
    if duration > _LONGEST:
        raise ValueError("must be less than 100 years, as in 500ms, 10s, 2min or 1h")
    return duration


_LONGEST = 100 * 365 * 86_400_000  # milliseconds; the operating system cannot wait for several hundred years


def parse_count(text: str) -> int:
    """Return a whole number of at least 1."""
    # Few digits: Python refuses to read very long numbers, in words of its own.
    if re.fullmatch(r"\s*[0-9]+\s*", text) and len(text.strip()) > 18:
        raise ValueError("must be a whole number of at least 1 and at most 18 digits")
    return _whole(text, 1, None, "must be a whole number of at least 1")


def parse_workers(text: str) -> int:
    """Return a number of worker threads."""
    return _whole(text, 1, MOST_WORKERS, f"must be a whole number from 1 to {MOST_WORKERS}")


def _whole(
    text: str, least: int | None, most: int | None, rule: str, form: str = r"\s*[0-9]{1,18}\s*"
) -> int:
    """Return a whole number; raise ValueError with the rule for anything else."""
    number = int(text) if re.fullmatch(form, text) else None
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        raise ValueError(rule)
    return number


def _parse_their_scheduler(text: str) -> tuple[str, int | None]:
    kind = _SCHEDULERS.get(text.lower())
    if kind is None:
        raise ValueError("must be greedy, multithread or eventbased")
    return kind, None


def _parse_milliseconds(text: str) -> int:
    return _whole(text, None, None, "must be a whole number of milliseconds", r"[-+]?[0-9]+")


def _parse_period(text: str) -> float:
    try:
        period = float(text)
    except ValueError:
        period = math.nan
    if not period >= 0 or math.isinf(period):
        raise ValueError("must be a number of milliseconds of 0 or more")
    return period
