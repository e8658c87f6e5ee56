"""Metadata: small facts that travel with a message and accumulate on its way.

The metadata of received messages is merged into the operator's ``metadata``, and emitted messages carry a copy of
it. It is cleared before the next `compute`. The policy decides what happens when a name is already set.

An operator without metadata must cost nothing, so the run does not look for metadata: the dictionary notifies the
run when an entry is set. Therefore every way of setting an entry goes through `MetadataDictionary.set`. A copy, a
union or an unpickled dictionary has the same policy, and belongs to no run.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any


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

    def set(self, key: str, value: Any, dtype: Any = None, cast_to_cpp: bool = False) -> None:
        """Set `key` by the policy; the last two arguments are accepted for compatibility."""
        if key in self:
            if self.policy is MetadataPolicy.REJECT:
                return
            if self.policy in _RAISING:
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
        """Set every entry of `others`, each by the policy."""
        for other in (*others, named):
            for key, value in _entries(other):
                self.set(key, value)

    merge = insert = update

    def __ior__(self, other: Any) -> MetadataDictionary:  # type: ignore[override]
        self.update(other)
        return self

    def __or__(self, other: Any) -> MetadataDictionary:  # type: ignore[override]
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

    def copy(self) -> MetadataDictionary:
        """Return a dictionary with the same entries and policy, which belongs to no run."""
        return _rebuild(self.policy, self.owner, dict(self))

    @classmethod
    def fromkeys(cls, keys: Iterable[str], value: Any = None) -> MetadataDictionary:  # type: ignore[override]
        """Return a dictionary with one value for every key."""
        return _rebuild(MetadataPolicy.DEFAULT, "", dict.fromkeys(keys, value))

    def __reduce__(self) -> Any:
        return _rebuild, (self.policy, self.owner, dict(self))

    def has_key(self, key: str) -> bool:
        """Return whether `key` is set."""
        return key in self

    def erase(self, key: str) -> bool:
        """Remove `key`, and return whether it was set."""
        return dict.pop(self, key, self) is not self

    def size(self) -> int:
        """Return the number of entries."""
        return len(self)


def _entries(other: Any) -> list[tuple[str, Any]]:
    """Return the entries of a mapping, an object with keys(), or pairs, as dict.update accepts them."""
    if hasattr(other, "keys"):
        return [(key, other[key]) for key in other.keys()]  # noqa: SIM118  (it may be no mapping)
    return [(key, value) for key, value in other]


def _rebuild(policy: MetadataPolicy, owner: str, entries: dict[str, Any]) -> MetadataDictionary:
    metadata = MetadataDictionary(policy, owner)
    dict.update(metadata, entries)
    return metadata
