"""RunOptions: what the environment changes in a run, without a change to the program.

    ==========================================  ===================================================================
    ``HEADRACE_SCHEDULER=event:4``              another scheduler: ``greedy`` (one thread for all operators),
                                                ``multithread[:N]``, ``event[:N]``
    ``HEADRACE_DURATION=10s``                   end the run after that time of its clock
    ``HEADRACE_COUNT=100``                      end each source after that many computes
    ``HEADRACE_STOP_TIMEOUT=10s``               how long the run may take to stop (`Composition.stop_timeout`)
    ``HEADRACE_PROCESSES=1``                    run each fragment in a process of its own
    ==========================================  ===================================================================

An empty variable counts as absent. A wrong value is an error that names the variable: a run that silently ignored
it would look like one that obeyed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import timedelta
from typing import TypeVar

from headrace.core.values import boolean, flag, in_milliseconds, nanoseconds, whole_number

T = TypeVar("T")

MOST_WORKERS = 1024
"""The most worker threads of a scheduler: many times the cores of any machine."""

_SCHEDULERS = ("greedy", "multithread", "event")
_SCHEDULER_FORMS = (
    "greedy, multithread, event, or one of the last two with its number of workers, as in event:4"
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the environment changes in a run; a field that is None changes nothing."""

    scheduler: tuple[str, int | None] | None = None
    """Its kind, ``"greedy"``, ``"multithread"`` or ``"event"``, and the number of its workers, if that is given."""
    max_duration_ms: float | None = None
    """The milliseconds after which the run ends."""
    count: int | None = None
    """The number of computes of each source."""
    stop_on_deadlock: bool | None = None
    """Whether the run ends when nothing can run any more."""
    stop_on_deadlock_timeout: int | None = None
    """The milliseconds to wait before that."""
    check_recession_period_ms: float | None = None
    """The period at which conditions are polled."""
    stop_timeout_ms: float | None = None
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
        return replace(self, count=None, stop_timeout_ms=None, processes=None) != RunOptions()


def limits_of_run(
    duration: str | float | timedelta | None, max_messages: int | None, processes: bool | None = None
) -> RunOptions:
    """Return the options that the arguments of `Fragment.run` ask for."""
    return RunOptions(
        max_duration_ms=None if duration is None else _duration_argument(duration),
        count=None if max_messages is None else whole_number(max_messages, "run(max_messages=...)", 1),
        processes=None if processes is None else boolean(processes, "run(processes=...)"),
    )


def _duration_argument(duration: str | float | timedelta) -> float:
    what = "run(duration=...)"
    if isinstance(duration, str):
        try:
            return parse_duration(duration)
        except ValueError as error:
            raise ValueError(f"{what} {error}, not {duration!r}") from None
    if isinstance(duration, int):
        raise TypeError(f"{what} must have a unit, as in '{duration}s', not {duration!r}")
    found = in_milliseconds(nanoseconds(duration, what))
    if not 0 < found <= _LONGEST:
        raise ValueError(f"{what} must be more than 0 and less than 100 years, not {duration!r}")
    return found


READERS: list[Callable[[Mapping[str, str]], RunOptions]] = []
"""What reads the variables of another vocabulary, whose options apply where headrace's say nothing."""


def read_run_options(environment: Mapping[str, str] | None = None) -> RunOptions:
    """Return what the environment changes in a run; raise ValueError for a value that makes no sense."""
    variables = os.environ if environment is None else environment
    found = RunOptions(
        scheduler=value_of(variables, parse_scheduler, "HEADRACE_SCHEDULER"),
        max_duration_ms=value_of(variables, parse_duration, "HEADRACE_DURATION"),
        count=value_of(variables, parse_count, "HEADRACE_COUNT"),
        stop_timeout_ms=value_of(variables, parse_duration, "HEADRACE_STOP_TIMEOUT"),
        processes=value_of(variables, flag, "HEADRACE_PROCESSES"),
    )
    for read in READERS:
        found = found.over(read(variables))
    return found


def value_of(variables: Mapping[str, str], parse: Callable[[str], T], name: str) -> T | None:
    """Return the value of a variable; None if it is not set; raise ValueError, which names it, if it is wrong."""
    text = variables.get(name, "").strip()
    try:
        return parse(text) if text else None
    except ValueError as error:
        raise ValueError(f"{name}={text}: {error}") from None


def parse_scheduler(text: str) -> tuple[str, int | None]:
    """Return the kind of scheduler and its number of workers, if there is one: ``event:4``."""
    name, colon, workers = text.strip().partition(":")
    kind = name.strip().lower()
    if kind not in _SCHEDULERS:
        raise ValueError(f"must be {_SCHEDULER_FORMS}")
    if not colon:
        return kind, None
    if kind == "greedy":
        raise ValueError("the greedy scheduler has no workers; write greedy, or event:4 for four workers")
    try:
        return kind, parse_workers(workers)
    except ValueError as error:
        raise ValueError(f"{workers!r} workers: {error}; write {name}:4 for four workers") from None


def parse_duration(text: str) -> float:
    """Return a duration with a unit, such as ``10s``, in milliseconds."""
    # A bare number is refused: it is nanoseconds in one place of headrace and milliseconds in another.
    number = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,2})?"
    if re.fullmatch(rf"{number}\s*(?:ns|us|µs|μs|ms|s|min|h)", text.strip()) is None:
        raise ValueError("must be a number with a unit, as in 500ms, 10s, 2min or 1h")
    try:
        duration = in_milliseconds(nanoseconds(text))
    except ValueError:  # its form is right, so it is too long for a clock
        duration = _LONGEST + 1
    if duration <= 0:
        raise ValueError("must be more than 0, as in 500ms, 10s, 2min or 1h")
    if duration > _LONGEST:
        raise ValueError("must be less than 100 years, as in 500ms, 10s, 2min or 1h")
    return duration


_LONGEST = 100 * 365 * 86_400_000  # milliseconds; the operating system cannot wait for several hundred years


def parse_count(text: str) -> int:
    """Return a whole number of at least 1."""
    return _whole(text, 10**18 - 1, "must be a whole number of at least 1 and at most 18 digits")


def parse_workers(text: str) -> int:
    """Return a number of worker threads."""
    return _whole(text, MOST_WORKERS, f"must be a whole number from 1 to {MOST_WORKERS}")


def _whole(text: str, most: int, rule: str) -> int:
    """Return a whole number from 1 on; raise ValueError with the rule for anything else."""
    # Few digits: Python refuses to read very long numbers, in words of its own.
    if re.fullmatch(r"\s*[0-9]{1,18}\s*", text) and 1 <= int(text) <= most:
        return int(text)
    raise ValueError(rule)
