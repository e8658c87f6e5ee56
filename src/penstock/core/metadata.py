"""Metadata: small facts that travel with a message and gather as it goes.

What `compute` receives is merged into the operator's ``metadata``; what it emits carries a copy of it;
it is empty again at the next `compute`. The policy says what happens when a name is already there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
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
    """A dict whose :meth:`set` and :meth:`update` follow a :class:`MetadataPolicy`.

    Plain ``metadata[key] = value`` follows the policy as well.
    """

    __slots__ = ("node", "owner", "policy")

    def __init__(self, policy: MetadataPolicy = MetadataPolicy.DEFAULT, owner: str = "") -> None:
        super().__init__()
        self.policy = policy
        self.owner = owner
        # The node of the run, to be told that there is metadata to clear after this compute.
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
        if self.node is not None:
            self.node.special = self.node.gathered = True

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def update(self, *others: Any, **named: Any) -> None:
        """Set every entry of `others`, each under the policy."""
        for other in (*others, named):
            items = other.items() if isinstance(other, Mapping) else other
            for key, value in items:
                self.set(key, value)

    merge = insert = update

    def has_key(self, key: str) -> bool:
        """Say whether `key` is set."""
        return key in self

    def erase(self, key: str) -> bool:
        """Take `key` out, and say whether it was there."""
        return dict.pop(self, key, self) is not self

    def size(self) -> int:
        """Give the number of entries."""
        return len(self)
