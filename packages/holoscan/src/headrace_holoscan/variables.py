"""The variables of the SDK that change a run; a variable of headrace wins over them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from headrace.vocabulary import READERS, RunOptions, flag, parse_count, parse_workers, value_of

_SCHEDULERS = {
    "greedy": ("greedy", ""),
    "multithread": ("multithread", "MULTITHREAD"),
    "multi_thread": ("multithread", "MULTITHREAD"),
    "eventbased": ("event", "EVENTBASED"),
    "event_based": ("event", "EVENTBASED"),
}


def read(variables: Mapping[str, str]) -> RunOptions:
    """Return what the variables of the SDK change in a run."""
    scheduler: tuple[str, int | None] | None = None
    chosen = value_of(variables, _scheduler, "HOLOSCAN_SCHEDULER")
    if chosen is not None:
        kind, name = chosen
        workers = value_of(variables, parse_workers, f"HOLOSCAN_{name}_WORKER_THREADS") or 1
        scheduler = kind, workers if name else None
    duration = value_of(variables, _milliseconds, "HOLOSCAN_MAX_DURATION_MS")
    return RunOptions(
        scheduler,
        max_duration_ms=None if duration is None or duration < 0 else duration,  # negative: no bound
        count=value_of(variables, parse_count, "HOLOSCAN_NUM_SOURCE_MESSAGES"),
        stop_on_deadlock=value_of(variables, flag, "HOLOSCAN_STOP_ON_DEADLOCK"),
        stop_on_deadlock_timeout=value_of(variables, _milliseconds, "HOLOSCAN_STOP_ON_DEADLOCK_TIMEOUT"),
        check_recession_period_ms=value_of(variables, _period, "HOLOSCAN_CHECK_RECESSION_PERIOD_MS"),
    )


def _scheduler(text: str) -> tuple[str, str]:
    if text.lower() not in _SCHEDULERS:
        raise ValueError("must be greedy, multithread or eventbased")
    return _SCHEDULERS[text.lower()]


def _milliseconds(text: str) -> int:
    if not re.fullmatch(r"[-+]?[0-9]+", text):
        raise ValueError("must be a whole number of milliseconds")
    return int(text)


def _period(text: str) -> float:
    try:
        period = float(text)
    except ValueError:
        period = math.nan
    if not period >= 0 or math.isinf(period):
        raise ValueError("must be a number of milliseconds of 0 or more")
    return period


READERS.append(read)
