"""What a fragment declares for a process of its own: the GPUs and cores it may use, and what its loss means."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.whole_numbers import whole_number

STOP, RESTART, GO_ON = "stop", "restart", "go_on"
ON_LOSS = (STOP, RESTART, GO_ON)


def places(given: object, what: str) -> int | tuple[int, ...] | None:
    """Return a number of GPUs or cores, or which ones; raise for anything else."""
    if given is None:
        return None
    if isinstance(given, Sequence) and not isinstance(given, str):
        found = tuple(whole_number(each, what, 0) for each in given)
        if len(set(found)) < len(found) or not found:
            raise ValueError(f"{what} must name each one once, as in [0, 1], not {list(given)}")
        return found
    return whole_number(given, what, 0)
