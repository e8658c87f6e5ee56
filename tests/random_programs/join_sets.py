"""The sets that a join forms, by plain definitions over whole streams.

A stream is a list of the keys and the numbers of its messages, in the order of the keys.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right


def tightest(kept: dict[str, list[tuple[int, int]]], tolerance: int) -> list[dict[str, int]]:
    """Find the first message that completes a set within the tolerance, with older ones; take the smallest of all
    sets that it is in; of equals, the oldest. Go on after that set."""
    found = []
    begin = dict.fromkeys(kept, 0)
    for pivot in sorted(key for messages in kept.values() for key, _ in messages):
        near = {
            name: range(
                max(begin[name], bisect_left(messages, (pivot - tolerance,))),
                bisect_right(messages, (pivot + tolerance, math.inf)),
            )
            for name, messages in kept.items()
        }
        if not all(any(kept[name][at][0] <= pivot for at in near[name]) for name in kept):
            continue
        if not any(kept[name][at][0] == pivot for name in kept for at in near[name]):
            continue  # the message is in a set already
        best = min(
            (
                (max(keys) - min(keys), keys, positions)
                for positions in itertools.product(*near.values())
                if pivot in (keys := tuple(kept[n][at][0] for n, at in zip(kept, positions, strict=True)))
                and max(keys) - min(keys) <= tolerance
            ),
        )
        found.append({name: kept[name][at][1] for name, at in zip(kept, best[2], strict=True)})
        begin = {name: at + 1 for name, at in zip(kept, best[2], strict=True)}
    return found


def nearest(messages: list[tuple[int, int]], key: int, tolerance: int) -> int | None:
    within = [each for each in messages if abs(each[0] - key) <= tolerance]
    return min(within, key=lambda each: (abs(each[0] - key), each[0]))[1] if within else None


def latest(messages: list[tuple[int, int]], key: int, age: int) -> int | None:
    within = [each for each in messages if key - age <= each[0] <= key]
    return within[-1][1] if within else None
