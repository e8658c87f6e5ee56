"""Metadata: small facts that travel with a message and gather as it goes.

What `compute` receives is merged into the operator's ``metadata``; what it emits carries a copy of it;
it is empty again at the next `compute`. The policy says what happens when a name is already there.

An operator without metadata must cost nothing, so nobody looks whether there is any: the dictionary itself tells
the run when something is put in. So every way of putting something in goes through `MetadataDictionary.set`.
What is made from it (a copy, a union, what is unpickled) stands by itself: it has the policy, and belongs to no
run.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MetadataDictionary", "MetadataPolicy"]


class MetadataPolicy(enum.Enum):
    """What setting a name that is already there does."""

    REJECT = 0
    INPLACE_UPDATE = 1
    UPDATE = 2
    RAISE = 3
    DEFAULT = 4


class MetadataDictionary(dict[str, Any]):
    """A dict in which setting a name that is already there follows a :class:`MetadataPolicy`.

    This holds for every way of setting one: :meth:`set`, ``metadata[key] = value``, :meth:`update`, ``|=``. Taking
    names out works as in any dict.
    """

    __slots__ = ("node", "owner", "policy")

    def __init__(self, policy: MetadataPolicy = MetadataPolicy.DEFAULT, owner: str = "") -> None:
        super().__init__()
        self.policy = policy
        self.owner = owner
        # The node of the run, to be told that there is metadata to send along, and to clear after this compute.
        self.node: Any = None

    def set(self, key: str, value: Any, dtype: Any = None, cast_to_cpp: bool = False) -> None:
        """Set `key` under the policy; the last two arguments are taken for compatibility."""
        if key in self:
            if self.policy is MetadataPolicy.REJECT:
                return
            if self.policy is MetadataPolicy.RAISE or self.policy is MetadataPolicy.DEFAULT:
                raise RuntimeError(
                    f"metadata key {key!r} of operator {self.owner!r} is already set (to {self[key]!r}); "
                    "choose operator.metadata_policy = MetadataPolicy.UPDATE to replace it "
                    "or MetadataPolicy.REJECT to keep the first"
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
        """Set every entry of `others`, each under the policy."""
        for other in (*others, named):
            for key, value in _entries(other):
                self.set(key, value)

    merge = insert = update

    def __ior__(self, other: Any) -> MetadataDictionary:  # type: ignore[override]
        self.update(other)
        return self

    def __or__(self, other: Any) -> MetadataDictionary:  # type: ignore[override]
        """Return a copy of this one with the entries of `other`, each set under the policy."""
        if not isinstance(other, Mapping):
            return NotImplemented
        union = self.copy()
        union.update(other)
        return union

    def __ror__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return a plain dict: `other`, which has no policy, with the entries of this one."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return {**other, **self}

    def copy(self) -> MetadataDictionary:
        """Return the same entries and policy in a dictionary of their own."""
        return _rebuild(self.policy, self.owner, dict(self))

    @classmethod
    def fromkeys(cls, keys: Iterable[str], value: Any = None) -> MetadataDictionary:  # type: ignore[override]
        """Return a dictionary with one value for every key."""
        return _rebuild(MetadataPolicy.DEFAULT, "", dict.fromkeys(keys, value))

    def __reduce__(self) -> Any:
        return _rebuild, (self.policy, self.owner, dict(self))

    def has_key(self, key: str) -> bool:
        """Say whether `key` is set."""
        return key in self

    def erase(self, key: str) -> bool:
        """Take `key` out, and say whether it was there."""
        return dict.pop(self, key, self) is not self

    def size(self) -> int:
        """Give the number of entries."""
        return len(self)


def _entries(other: Any) -> list[tuple[str, Any]]:
    """Return the entries of whatever dict.update takes: a mapping, what has keys(), or pairs."""
    if hasattr(other, "keys"):
        return [(key, other[key]) for key in other.keys()]  # noqa: SIM118  (it may be no mapping)
    return [(key, value) for key, value in other]


def _rebuild(policy: MetadataPolicy, owner: str, entries: dict[str, Any]) -> MetadataDictionary:
    metadata = MetadataDictionary(policy, owner)
    dict.update(metadata, entries)
    return metadata
