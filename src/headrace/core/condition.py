"""Condition: what must hold before an operator runs.

A condition is in one of five states. The conditions of an operator are combined by AND: the operator runs when all
are READY. Otherwise its state is the first of NEVER, WAIT_EVENT, WAIT, WAIT_TIME that one of them is in.

A condition chooses in :meth:`Condition.attach` how it takes part in a run. The common conditions (a waiting
message, room downstream, a count) become counters in the node and are never checked again. The others are checked
with `check` after every event that may have changed their state.
"""

from __future__ import annotations

import enum
import math
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.core.construction import Inner
from headrace.core.parameters import declared
from headrace.core.ports import SchedulingStatusType
from headrace.core.resource import Component, InnerComponent
from headrace.core.values import finite_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.node import Node, Receiver, Transmitter
    from headrace.core.resource import Resource


class Ticks:
    """The clock of a condition that lets an operator run at certain times.

    Attributes
    ----------
    period
        The time between two ticks, in nanoseconds.
    due
        When the tick of this compute, or of the next one, is due; None before the first, which comes at once.
    skipped
        The number of ticks that were skipped in this run, because they were late.
    """

    __slots__ = ("due", "period", "skipped")

    def __init__(self) -> None:
        self.period = self.skipped = 0
        self.due: int | None = None


def ticks_of(conditions: Iterable[BareCondition]) -> Ticks | None:
    """Return the clock of an operator with these conditions: the one whose tick is due last; None without one."""
    clocks = [each for each in (condition._headrace.ticks for condition in conditions) if each is not None]
    return max(clocks, key=lambda ticks: ticks.due or 0) if clocks else None


class InnerCondition(InnerComponent):
    """The state of a condition in a run."""

    def __init__(self, condition: Component) -> None:
        self.node: Node | None = None
        # Whether it returned WAIT_EVENT and the scheduler has not been notified since. Set by the worker that
        # checks it, under the engine's lock; cleared by any thread.
        self.awaits_event = False
        # The thread that runs its `check` now, or 0.
        self.checked_on = 0
        # Whether a run created it for a port that was given no condition.
        self.is_default = False
        # Whether a part of it must be polled although the whole waits for a time or an event.
        self.is_polled_beside = False
        # Its clock, if it has one.
        self.ticks: Ticks | None = None

    def acting(self, condition: BareCondition) -> Condition:
        """Return what takes part in a run: the condition itself, or another that has the same state."""
        assert isinstance(condition, Condition)
        return condition


class BareCondition(Component):
    """What a program writes and calls in a condition; a `Condition` has besides what a run asks of it.

    A vocabulary whose conditions have no other names derives from it, and says what acts in a run for them
    (`InnerCondition.acting`).
    """

    _headrace = Inner(InnerCondition)

    # Methods that a user's condition overrides.

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return the current state and, with WAIT_TIME, the time at which to check again."""
        return SchedulingStatusType.READY, None

    def update_state(self, timestamp: int) -> None:
        """Update the state that `check` uses; called right before every `check`."""

    def on_execute(self, timestamp: int) -> None:
        """Handle that `compute` ran; `timestamp` is when it began."""

    # Methods that it may call.

    def notify_scheduler(self) -> bool:
        """Request another check after a change, from any thread; return whether a run is in progress.

        Inside the condition's own `check` it requests nothing, because the result of that check is about to be
        used.
        """
        self._headrace.awaits_event = False
        node = self._headrace.node
        if node is None:
            return False
        if self._headrace.checked_on != get_ident():
            node.announce()
        return True

    def receiver(self, port_name: str) -> Receiver:
        """Return a view of an input of the operator: its `size`, `capacity`, `peek`."""
        return _node_of(self).receiver(port_name)

    def transmitter(self, port_name: str) -> Transmitter:
        """Return a view of an output of the operator: the number of `free` places behind it."""
        return _node_of(self).transmitter(port_name)


class Condition(BareCondition):
    """The base of conditions; subclass it and write `check`.

    A user's condition is checked again when a message arrives at or leaves one of the operator's ports, after the
    operator ran, at the time it returned (WAIT_TIME), and when any thread calls :meth:`notify_scheduler`, be it in
    the `check` of another condition. While it returns WAIT, it is also polled: in every round of the scheduler, and
    every `check_recession_period_ms`. While it returns WAIT_EVENT, it is checked again only after
    :meth:`notify_scheduler`, and costs nothing until then.

    Parameters
    ----------
    fragment
        The fragment that the condition belongs to.
    name
        The name to find it by; the class's name in lower case unless given.
    **kwargs
        The values of the parameters that `setup` declares.
    """

    polled: bool = True
    """Whether it is polled while it returns WAIT. A condition that announces every change says False."""
    depends_on_ports: bool = True
    """Whether `check` may depend on the operator's messages or on room behind it. A subclass that writes `check` of
    its own is taken to, unless it says otherwise."""
    matters_while_blocked: ClassVar[bool] = True
    """Whether it is evaluated while the operator cannot run for another reason, such as a missing message. If not,
    it is evaluated when that reason has gone. It then never returns NEVER or WAIT_EVENT."""
    waits_for_streams: bool = False
    """Whether it reads which streams have finished the work of messages."""
    waits_for_memory: ClassVar[bool] = False
    """Whether it waits for memory of an allocator."""
    reserves: ClassVar[bool] = False
    """Whether it takes something before each compute that others might take as well (`reserve`)."""
    holds_end: ClassVar[bool] = False
    """Whether the operator's `end` waits for it, too."""
    port_role: ClassVar[str | None] = None
    """The argument that names the port or ports of the condition, if `setup` creates it for a port."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "depends_on_ports" not in vars(cls) and ("check" in vars(cls) or "update_state" in vars(cls)):
            cls.depends_on_ports = True

    # Methods that a run calls.

    def on_resume(self, timestamp: int) -> None:
        """Handle that a paused run goes on; a time that has passed since may be made to count once."""

    @property
    def port_names(self) -> tuple[str, ...]:
        """The ports that it names; it replaces their default conditions."""
        return ()

    def ports_of(self, node: Node) -> tuple[str, ...]:
        """Return its ports of `node`: the ports that it names or, if it names none, the only port."""
        return self.port_names

    @property
    def terms(self) -> tuple[Condition, ...]:
        """The conditions that it combines; they no longer count by themselves."""
        return ()

    def attach(self, node: Node) -> None:
        """Take part in the run of `node`; by default the condition is checked before each compute.

        Called again when the flows of the operator have changed.
        """
        self.join(node)
        node.evaluate(self)

    def join(self, node: Node) -> None:
        """Join `node`, and look up there what `check` needs; `initialize`, not this, begins a run.

        Called again when the flows of the operator have changed.
        """
        self._headrace.node = node
        self._headrace.awaits_event = False

    def evaluate(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return the current state from `check`, unless the condition waits for an event that has not occurred."""
        if self._headrace.awaits_event:
            return SchedulingStatusType.WAIT_EVENT, None
        # Set before `check`: an event during `check` clears it, and then the condition is checked again.
        self._headrace.awaits_event = True
        self._headrace.checked_on = get_ident()
        try:
            self.update_state(timestamp)
            answer = self.check(timestamp)
        finally:
            self._headrace.checked_on = 0
        try:
            status, until = answer
        except (TypeError, ValueError):
            raise _invalid(self, answer) from None
        if status is not SchedulingStatusType.WAIT_EVENT:
            if not isinstance(status, SchedulingStatusType):
                raise _invalid(self, answer)
            self._headrace.awaits_event = False
            if status is SchedulingStatusType.WAIT_TIME and type(until) is not int and until is not None:
                until = _time(self, until)
        return status, until

    def reserve(self) -> bool:
        """Take what `check` found, since the operator runs next on this thread; return whether it was still there.

        Called only where `reserves` is set, when every condition of the operator is READY. If it was not there any
        more, the conditions are evaluated again.
        """
        return True

    def cancel(self) -> None:
        """Release what `reserve` took: the operator does not run after all."""

    def end_run(self) -> None:
        """Count and release the messages that it holds, because no further compute will receive them."""

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources that it uses, which a run initializes and releases."""
        return ()

    @property
    def starving(self) -> str:
        """What the operator waits for, where a run that ends with it waiting has not finished; else empty."""
        return ""

    def detach(self) -> None:
        """Leave the run."""
        self._headrace.node = None


InnerCondition.base = Condition


def _node_of(condition: BareCondition) -> Node:
    if condition._headrace.node is None:
        raise RuntimeError(f"condition {condition.name!r} is not part of a running operator yet")
    return condition._headrace.node


def _time(condition: Condition, until: Any) -> int:
    """Return a time that is not an int, such as ``timestamp + 5e8``, as one."""
    number = finite_number(until)
    if number is None:
        raise TypeError(
            f"check of condition {condition.name!r} ({type(condition).__name__}) must return WAIT_TIME with a "
            f"time in nanoseconds, such as timestamp + 1_000_000, not {until!r}"
        )
    return math.ceil(number)


def _invalid(condition: Condition, answer: Any) -> TypeError:
    return TypeError(
        f"check of condition {condition.name!r} ({type(condition).__name__}) must return a SchedulingStatusType "
        f"and a time or None, as in (SchedulingStatusType.READY, None), not {answer!r}"
    )


class RecordedTimes(Condition):
    """The base of conditions whose times are those of a recording: their operator has no clock."""


class AsynchronousEventState(enum.Enum):
    """The state of the outside event."""

    READY = 0
    WAIT = 1
    EVENT_WAITING = 2
    EVENT_DONE = 3
    EVENT_NEVER = 4


_STATUS = {
    AsynchronousEventState.READY: SchedulingStatusType.READY,
    AsynchronousEventState.WAIT: SchedulingStatusType.WAIT,
    AsynchronousEventState.EVENT_WAITING: SchedulingStatusType.WAIT_EVENT,
    AsynchronousEventState.EVENT_DONE: SchedulingStatusType.READY,
    AsynchronousEventState.EVENT_NEVER: SchedulingStatusType.NEVER,
}


@declared(kw_only=False)
class AsynchronousCondition(Condition):
    """Lets an operator run unless it waits for an outside event; `event_state` may be set from any thread.

    While the state is ``EVENT_WAITING`` the run does not end, even if nothing else is ready.
    """

    polled = False
    depends_on_ports = False

    name = "async_condition"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._state = AsynchronousEventState.READY

    @property
    def event_state(self) -> AsynchronousEventState:
        """The state of the outside event."""
        return self._state

    @event_state.setter
    def event_state(self, state: AsynchronousEventState) -> None:
        given: object = state
        if not isinstance(given, AsynchronousEventState):
            names = ", ".join(AsynchronousEventState.__members__)
            raise TypeError(
                f"condition {self.name!r}: event_state must be an AsynchronousEventState ({names}), not {given!r}"
            )
        # Only a change is announced: another condition may set the state in every `check`, and each announcement
        # leads to another check.
        if self._state is not given:
            self._state = given
            self.notify_scheduler()

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return the status that corresponds to the state."""
        return _STATUS[self._state], None
