"""Rates: how many of something there are in a second, by the time that they really cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.observe.figures.distribution import Occurrences


def per_second(count: float, nanoseconds: float) -> float:
    """Return how many there are in a second of what came so often in a time; 0 if there was no time."""
    return max(count, 0) * 1e9 / nanoseconds if nanoseconds > 0 else 0.0


def rate_between(events: Occurrences) -> float:
    """Return the rate from the first event to the last: n events have n - 1 intervals, and one has none."""
    return per_second(events.count - 1, events.last - events.first_ended)


def rate_until(events: Occurrences, since: int, until: int, least: int) -> float:
    """Return the rate of what happened in a window, which decreases when the next event is overdue.

    Until that is due, it is the rate between the first event and the last. After that, it is the number of events
    in the time since the first one. The two are the same when it is due, and the lesser of them holds.

    Parameters
    ----------
    since, until
        Where the window begins and ends.
    least
        The shortest time, so that two events in a row are no rate of thousands.
    """
    if events.count < 2:
        return per_second(events.count, max(until - since, least))
    overdue = per_second(events.count, max(until - events.first_ended, least))
    between = rate_between(events)
    return min(between, overdue) if between else overdue
