"""OrConditionCombiner: run when any one of several conditions holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from headrace.core.condition import BareCondition, Condition
from headrace.core.parameters import Converted, converted, declared
from headrace.core.ports import SchedulingStatusType

if TYPE_CHECKING:
    from headrace.core.node import Node


def _acting(terms: object, what: str) -> tuple[Condition, ...]:
    if not isinstance(terms, Iterable):
        raise TypeError(f"{what} must be a list of conditions, not {terms!r}")
    given = tuple(terms)
    for term in given:
        if not isinstance(term, BareCondition):
            raise TypeError(f"{what} must be conditions, not {term!r}")
    if not given:
        raise ValueError(f"{what}: there are none; give terms=[condition, ...]")
    return tuple(term._headrace.acting(term) for term in given)


@declared(kw_only=False)
class OrConditionCombiner(Condition):
    """Lets an operator run when any of its `terms` allows it.

    Pass it to the operator; the terms may be passed too. It is NEVER only when all terms are, and waits for the
    earliest of their times. A user's term that returns WAIT is polled while another term waits for a time or an
    event.

    Parameters
    ----------
    terms
        The conditions.
    """

    # Whether it is NEVER as soon as one of its terms is.
    ends_with_first_term: ClassVar[bool] = False

    name = "or_combiner"
    _terms: Converted[Iterable[BareCondition], tuple[Condition, ...]] = converted(
        _acting, default=(), alias="terms"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.polled = any(term.polled for term in self._terms)
        self.depends_on_ports = any(term.depends_on_ports for term in self._terms)

    @property
    def terms(self) -> tuple[Condition, ...]:
        """The conditions that it combines."""
        return self._terms

    @property
    def port_names(self) -> tuple[str, ...]:
        """The ports that the terms name."""
        return tuple(name for term in self._terms for name in term.port_names)

    def join(self, node: Node) -> None:
        """Join the node, with the terms."""
        super().join(node)
        for term in self._terms:
            term.join(node)

    def detach(self) -> None:
        """Leave the run, with the terms."""
        super().detach()
        for term in self._terms:
            term.detach()

    def initialize(self) -> None:
        """Initialize the terms."""
        for term in self._terms:
            term.initialize()

    def evaluate(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Evaluate the terms; each term keeps track of whether it waits for an event."""
        return self._best(timestamp, only_check=False)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return the state of the term that is closest to READY."""
        return self._best(timestamp, only_check=True)

    def _best(self, timestamp: int, only_check: bool) -> tuple[SchedulingStatusType, int | None]:
        best = SchedulingStatusType.NEVER
        ready: tuple[SchedulingStatusType, int | None] | None = None
        earliest: int | None = None
        is_polled = False
        if not only_check:
            self._headrace.is_polled_beside = False
        for term in self._terms:
            status, target = term.check(timestamp) if only_check else term.evaluate(timestamp)
            if status is SchedulingStatusType.WAIT_TIME and target is not None and target <= timestamp:
                status = SchedulingStatusType.READY
            if status is SchedulingStatusType.READY:
                if not self.ends_with_first_term:
                    return status, target
                ready = ready or (status, target)
                continue
            if status is SchedulingStatusType.NEVER and self.ends_with_first_term:
                return status, None
            if term.polled and (status is SchedulingStatusType.WAIT or term._headrace.is_polled_beside):
                is_polled = True
            if status is SchedulingStatusType.WAIT_TIME and target is not None:
                earliest = target if earliest is None else min(earliest, target)
            if _RANK[status] > _RANK[best]:
                best = status
        if not only_check:
            self._headrace.is_polled_beside = is_polled
        return ready or (best, earliest)

    def on_execute(self, timestamp: int) -> None:
        """Pass the call on to the terms."""
        for term in self._terms:
            term.on_execute(timestamp)

    def on_resume(self, timestamp: int) -> None:
        """Pass the call on to the terms."""
        for term in self._terms:
            term.on_resume(timestamp)


_RANK = {
    SchedulingStatusType.NEVER: 0,
    SchedulingStatusType.WAIT: 1,
    SchedulingStatusType.WAIT_EVENT: 2,
    SchedulingStatusType.WAIT_TIME: 3,
}
