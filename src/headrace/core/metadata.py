"""Metadata: small facts that travel with a message and accumulate on its way.

The metadata of received messages is merged into the operator's ``metadata``, and emitted messages carry a copy of
it. It is cleared before the next `compute`. The policy decides what happens when a name is already set.

An operator without metadata must cost nothing, so the run does not look for metadata: the dictionary notifies the
run when an entry is set. Therefore every way of setting an entry goes through `MetadataDictionary.set`. A copy, a
union or an unpickled dictionary has the same policy, and belongs to no run.

Calls: the requests that a message answers, from the feed to the results (`Feed.call`).

A message carries its calls as it carries its timestamp: what a compute emits stems from everything that it has
received so far. A call that no message carries any more cannot be answered, whatever became of the messages: a
queue dropped them, an operator emitted nothing. Reference counts show that without a search, so the call ends then.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Self, TypeAlias, TypeVar

from headrace.core.errors import UnansweredError


class MetadataPolicy(enum.Enum):
    """What happens when a name that is already set is set again."""

    REJECT = 0
    INPLACE_UPDATE = 1
    UPDATE = 2
    RAISE = 3
    DEFAULT = 4
    BY_PORT = 5
    """The metadata of a received message is set under the name of its port: ``metadata["left"]["exposure"]``."""


_RAISING = (MetadataPolicy.RAISE, MetadataPolicy.DEFAULT, MetadataPolicy.BY_PORT)


class MetadataDictionary(dict[str, Any]):
    """A dict in which setting a name again follows a :class:`MetadataPolicy`.

    This holds for every way of setting a name: :meth:`set`, ``metadata[key] = value``, :meth:`update`, ``|=``.
    Removing names works as in any dict.
    """

    __slots__ = ("is_joined", "node", "owner", "policy")

    def __init__(self, policy: MetadataPolicy = MetadataPolicy.DEFAULT, owner: str = "") -> None:
        super().__init__()
        if not isinstance(policy, MetadataPolicy):
            raise TypeError(f"a MetadataDictionary begins empty, with a MetadataPolicy; not with {policy!r}")
        self.policy = policy
        self.owner = owner
        # The node of the run, which is notified that there is metadata to send and to clear after this compute.
        self.node: Any = None
        # Whether the operator joins its inputs: then BY_PORT is the default.
        self.is_joined = False

    @property
    def is_by_port(self) -> bool:
        """Whether the metadata of received messages is kept apart by port."""
        return self.policy is MetadataPolicy.BY_PORT or (
            self.is_joined and self.policy is MetadataPolicy.DEFAULT
        )

    def receive(self, port: str, entries: Mapping[str, Any]) -> None:
        """Set the metadata of a message received at a port."""
        if not self.is_by_port:
            self.update(entries)
        elif port not in self:
            self.set(port, dict(entries))
        else:
            self.receive_batch(port, [entries])

    def receive_batch(self, port: str, entries: Iterable[Mapping[str, Any] | None]) -> None:
        """Set the metadata of several messages received at a port; where it is kept by port, as a list."""
        if self.is_by_port:
            earlier = dict.get(self, port, [])
            before = earlier if isinstance(earlier, list) else [earlier]
            dict.pop(self, port, None)
            self.set(port, [*before, *(dict(each or {}) for each in entries)])
            return
        for each in entries:
            self.update(each or {})

    def set(self, key: str, value: Any) -> None:
        """Set `key` by the policy."""
        if key in self:
            if self.policy is MetadataPolicy.REJECT:
                return
            if self.policy in _RAISING:
                raise RuntimeError(
                    f"metadata key {key!r} of operator {self.owner!r} is already set (to {self[key]!r}), and "
                    "duplicate metadata keys are refused; choose operator.metadata_policy = MetadataPolicy.UPDATE "
                    "to replace it or MetadataPolicy.REJECT to keep the first"
                )
        dict.__setitem__(self, key, value)
        node = self.node
        if node is not None:
            node.has_extra_work = node.has_details = node.output.has_details = True

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Set `key` unless it is set, and return its value."""
        if key not in self:
            self.set(key, default)
        return self[key]

    def update(self, *others: Any, **named: Any) -> None:
        """Set every entry of `others`, each by the policy."""
        for other in (*others, named):
            for key, value in _entries(other):
                self.set(key, value)

    def __ior__(self, other: Any) -> Self:  # type: ignore[override]
        self.update(other)
        return self

    def __or__(self, other: Any) -> Self:  # type: ignore[override]
        """Return a copy with the entries of `other`, each set by the policy."""
        if not isinstance(other, Mapping):
            return NotImplemented
        union = self.copy()
        union.update(other)
        return union

    def __ror__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return a plain dict, which has no policy, of `other` and the entries of this one."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return {**other, **self}

    def copy(self) -> Self:
        """Return a dictionary with the same entries and policy, which belongs to no run."""
        return _rebuild(type(self), self.policy, self.owner, dict(self))

    @classmethod
    def fromkeys(cls, keys: Iterable[str], value: Any = None) -> Self:  # type: ignore[override]
        """Return a dictionary with one value for every key."""
        return _rebuild(cls, MetadataPolicy.DEFAULT, "", dict.fromkeys(keys, value))

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.policy, self.owner, dict(self))


M = TypeVar("M", bound=MetadataDictionary)


def _entries(other: Any) -> list[tuple[str, Any]]:
    """Return the entries of a mapping, an object with keys(), or pairs, as dict.update accepts them."""
    if hasattr(other, "keys"):
        return [(key, other[key]) for key in other.keys()]  # noqa: SIM118  (it may be no mapping)
    return [(key, value) for key, value in other]


def _rebuild(kind: type[M], policy: MetadataPolicy, owner: str, entries: dict[str, Any]) -> M:
    metadata = kind(policy, owner)
    dict.update(metadata, entries)
    return metadata


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
