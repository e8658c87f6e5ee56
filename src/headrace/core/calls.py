"""Calls: the requests that a message answers, from the feed to the results (`Feed.call`).

A message carries its calls as it carries its timestamp: what a compute emits stems from everything that it has
received so far. A call that no message carries any more cannot be answered, whatever became of the messages: a
queue dropped them, an operator emitted nothing. Reference counts show that without a search, so the call ends then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeAlias

from headrace.core.errors import UnansweredError

Path: TypeAlias = tuple[tuple[int, int], ...]
"""Where in a message the answer is: a place of so many, in each batch, the outermost first."""

Calls: TypeAlias = "Mapping[Call, Path]"

NO_CALLS: Calls = {}


class Call:
    """A request on its way, which messages hold; the caller holds the future alone."""

    __slots__ = ("__weakref__", "future")

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def answer(self, result: Any) -> None:
        """Answer the request; the first answer counts."""
        with suppress(InvalidStateError):  # answered before, or the caller has gone
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Answer the request with an error, if it has no answer yet."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def __del__(self) -> None:
        if not self.future.done():
            self.fail(UnansweredError())


def in_batch(batch: Sequence[Calls]) -> Calls:
    """Return the calls of messages that were received together."""
    count = len(batch)
    return {
        call: ((place, count), *path) for place, calls in enumerate(batch) for call, path in calls.items()
    }


def of_part(calls: Calls, place: int, count: int) -> Calls:
    """Return the calls that one of `count` parts of a message answers; a part that is in no batch answers all."""
    found: dict[Call, Path] = {}
    for call, path in calls.items():
        if not path:
            found[call] = path
        elif path[0][1] != count:
            call.fail(_other_count(path[0][1], count))
        elif path[0][0] == place:
            found[call] = path[1:]
    return found


def part_at(data: Any, path: Path) -> Any:
    """Return the part of a result that answers a call."""
    for place, count in path:
        try:
            found = len(data)
        except TypeError:
            raise UnansweredError(
                f"the result of a batch of {count} requests is one {type(data).__name__}; it must hold one item for"
                " each of them"
            ) from None
        if found != count:
            raise _other_count(count, found)
        data = data[place]
    return data


def _other_count(expected: int, found: int) -> UnansweredError:
    return UnansweredError(
        f"the result of a batch of {expected} requests has {found} items, so nobody knows which belongs to which; "
        "it must hold one item for each of them"
    )
