"""JoinCondition: run when the messages of several inputs that belong together are there.

What belongs together is decided by `joiner`, apart from the run. The condition moves messages from the queues of
the inputs into the joiner whenever it is evaluated, and hands the sets out to `receive`. While a set is ready it
moves none, so a slow operator fills its queues as any other does, and their policies apply.

Where time matters, the queues record when each message arrives, and the joiner goes through arrivals and time
limits in the order of these times. So the sets are the same however busy the operator is. What a producer could not
send because the operator was busy and its queue full is not late: the joiner is told of that time (`Joiner.hold`).
A message that arrives exactly at the limit counts, so the condition asks to be evaluated a nanosecond later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from headrace._runtime import Batch, Envelope
from headrace.conditions.joiner import Entry, Joiner
from headrace.conditions.ports import PortCondition
from headrace.core.control import counts_since_1970
from headrace.core.errors import GraphError, JoinError
from headrace.core.joins import Aligned, AtRate, JoinRule, LatestWithin, ReuseLast, Substitute, Window
from headrace.core.parameters import declared, parameter
from headrace.core.ports import IOSpec, SchedulingStatusType
from headrace.core.values import finite_number

if TYPE_CHECKING:
    from headrace import _runtime
    from headrace.core.joins import Key
    from headrace.core.node import Node

HELD = 64
"""The number of messages of an input that may wait for others, unless the flow has a `size` of its own."""

_POP = IOSpec.QueuePolicy.POP
_READY = (SchedulingStatusType.READY, None)


@declared(kw_only=False)
class JoinCondition(PortCondition):
    """Lets an operator run when messages that belong together have come; ``spec.join`` creates it.

    Parameters
    ----------
    rule
        The rule of the inputs that have none of their own.
    rules
        The rules of the others, by name.
    """

    port_role = "receivers"
    reserves = True
    matters_while_blocked = False

    name = "join_condition"
    _rule: JoinRule | None = parameter(default=None, alias="rule")
    _given_rules: Mapping[str, JoinRule] | None = parameter(default=None, alias="rules")
    _receivers: Sequence[str] = parameter(default=(), alias="receivers")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rules = dict(self._given_rules or {})
        self._joiner: Joiner
        self._queue_of: dict[str, _runtime.Queue] = {}
        self._current: dict[str, Any] = {}
        # Since when a set is ready or computed, if one was when messages were moved last.
        self._busy_since: int | None = None
        self._where = ""
        self._key: Key | None = None
        self._has_keys = False
        # The input of the first timestamp, and whether that counts since 1970.
        self._first: tuple[str, bool] | None = None

    def ports_of(self, node: Node) -> tuple[str, ...]:
        """Return the inputs that were given no other condition."""
        inputs = node.operator.spec.every_input.values()
        return tuple(port.name for port in inputs if not port.conditions or port.name in self._rules)

    def join(self, node: Node) -> None:
        """Check the rules, and look up the queues."""
        super().join(node)
        names = self.ports_of(node)
        self._where = f"the join of operator {node.name!r}"
        self._check(node, names)
        begins = not self._queue_of  # else its flows have changed, and it keeps the messages that it holds
        self._queue_of = {queue.port: cast("_runtime.Queue", queue) for queue in self._queues}
        if begins:
            for queue in self._queue_of.values():
                queue.expect_join(self._most(queue))
            self._busy_since = self._first = None
            self._joiner = Joiner(names, self._rule, self._rules, self._report, self._fail)
        if self._joiner.is_timed:
            for queue in self._queue_of.values():
                queue.note_arrivals(node.engine.clock.timestamp)

    def _check(self, node: Node, names: tuple[str, ...]) -> None:
        """Raise GraphError if the rules do not say what to do with the inputs."""
        spec, rule, rules = node.operator.spec, self._rule, self._rules
        for name in names:
            port = spec.every_input[name]
            if port.gives_tuple:
                raise GraphError(
                    f"{self._where}: input {name!r} has size={port.size}, and a join takes one message at a time; "
                    "leave the size out, and use window(...) to receive several"
                )
        if any(condition.waits_for_streams for condition in node.operator._headrace.conditions):
            raise GraphError(
                f"{self._where} cannot be combined with a CudaStreamCondition: give that to an operator behind it"
            )
        plain = [name for name in names if name not in rules]
        windows = [name for name, each in rules.items() if isinstance(each, Window)]
        for name, each in rules.items():
            if not isinstance(each, LatestWithin | ReuseLast | Window):
                kind = type(each).__name__
                raise GraphError(
                    f"{self._where}: {name}={kind}(...) is a rule for all inputs; give it as the first argument"
                )
        if isinstance(rule, LatestWithin | ReuseLast):
            raise GraphError(
                f"{self._where}: {type(rule).__name__} is for one input; give it by name: input=..."
            )
        triggers = len(plain) + len(windows)
        listed = ", ".join(map(repr, (*plain, *windows)))
        if isinstance(rule, AtRate):
            if triggers:
                raise GraphError(
                    f"{self._where}: with at_rate, each input needs latest_within or reuse_last; not so {listed}"
                )
            if not any(isinstance(each, LatestWithin) for each in rules.values()):
                raise GraphError(
                    f"{self._where}: at_rate goes by keys, and reuse_last has none; use latest_within, or a "
                    "PeriodicCondition in place of at_rate"
                )
        elif isinstance(rule, Aligned):
            if windows or len(plain) < 2:
                raise GraphError(
                    f"{self._where}: aligned needs two or more inputs without a rule, not {listed}"
                )
            if rule.reference is not None and rule.reference not in plain:
                raise GraphError(f"{self._where}: the reference {rule.reference!r} is none of {listed}")
        elif triggers > 1:
            raise GraphError(
                f"{self._where}: it is not clear which of the inputs {listed} make the operator run; use "
                "aligned(...) to take them together, or give some of them latest_within or reuse_last"
            )
        elif triggers == 0:
            raise GraphError(
                f"{self._where}: nothing says when the operator runs; leave one input without a rule, or use "
                "at_rate(...); to run at a time of the clock with the newest messages, declare the inputs with the "
                "policy LATEST, without a join, and give the operator a PeriodicCondition"
            )
        given = [each.key for each in (rule, *rules.values()) if each is not None and each.key is not None]
        if any(key != given[0] for key in given):
            raise GraphError(f"{self._where}: its rules have different keys: {given[0]!r} and {given[1]!r}")
        self._key = given[0] if given else None
        self._has_keys = any(
            isinstance(each, Aligned | LatestWithin | AtRate)
            or (isinstance(each, Window) and (not each.is_counted or bool(each.lateness)))
            for each in (rule, *rules.values())
        )

    def initialize(self) -> None:
        """Let `receive` take the messages of the sets."""
        if self._headrace.node is None:
            return
        node = cast("_runtime.Node", self._headrace.node)
        for port in node.input.ports:
            if port.name in self._queue_of:
                port.take = partial(self._take, port)
                port.is_optional = True
                rule = self._rules.get(port.name, self._rule)
                if isinstance(rule, Window):
                    port.form = partial(_stack, f"{self._where}, input {port.name!r}") if rule.stack else list

    # The state.

    def update_state(self, timestamp: int) -> None:
        """Move messages from the queues into the joiner, unless a set is ready."""
        joiner = self._joiner
        if joiner.sets:
            return
        busy, self._busy_since = self._busy_since, None
        # Before the messages are moved: what has ended emits no more.
        ended = [queue for queue in self._queue_of.values() if _has_ended(queue)]
        while not joiner.sets and (arrived := self._absorb(timestamp, busy)):
            arrived.sort(key=lambda each: each[1].arrived)
            for name, entry in arrived:
                joiner.push(name, entry)
            joiner.advance(max(entry.arrived for _, entry in arrived))
        for queue in ended:
            if not queue:
                joiner.end(queue.port)
        joiner.advance(timestamp)
        if joiner.sets:
            self._busy_since = timestamp

    def _absorb(self, timestamp: int, busy: int | None) -> list[tuple[str, Entry]]:
        arrived: list[tuple[str, Entry]] = []
        if self._joiner.is_holding:
            waiting = [queue.arrival() for queue in self._queue_of.values()]
            self._joiner.forget_held(min((when for when in waiting if when is not None), default=timestamp))
        for name, queue in self._queue_of.items():
            buffer = self._joiner.buffers[name]
            most = self._most(queue)
            is_bounded = queue.policy is not _POP  # the queue refuses the newest, or its producer waits
            full = None if busy is None else self._full_since(queue)
            taken = queue.absorb(max(most - len(buffer.entries), 0) if is_bounded else most)
            if not taken:
                continue
            if full is not None:
                self._joiner.hold(name, max(full, busy or 0), timestamp)
            for _ in range(len(buffer.entries) + len(taken) - most):
                buffer.drop(1, "overflow")
            arrived += [
                (name, Entry(self._key_of(name, item), item, when, number)) for item, number, when in taken
            ]
            queue.state.update_producers()
            for producer in queue.feeders:
                producer.announce()  # to a worker of its own, perhaps
        return arrived

    def _full_since(self, queue: _runtime.Queue) -> int | None:
        """Return since when a producer finds no room for its next messages, or None if there is room."""
        requests = queue.state.requests
        if not requests or not self._joiner.is_timed:
            return None
        return queue.arrival(queue.limit - max(request.places for request in requests))

    def _key_of(self, name: str, item: Any) -> Any:
        if not self._has_keys or isinstance(self._rules.get(name), ReuseLast):
            return 0
        envelope = item if type(item) is Envelope else None
        key: Any
        if self._key is None:
            what, key = "acquisition timestamp", None if envelope is None else envelope.acq_timestamp
            hint = "emit it with acq_timestamp=..., or give the join a key="
        elif isinstance(self._key, str):
            metadata = None if envelope is None else envelope.metadata
            what, key = f"metadata entry {self._key!r}", None if metadata is None else metadata.get(self._key)
            hint = "set it in the operator that emits the message"
        else:
            what, hint = "key", "the function must return a number"
            key = self._key(item if envelope is None else envelope.data)
        number = finite_number(key)
        if number is None:
            found = "no" if key is None else f"{key!r} as its"
            raise JoinError(f"{self._where}: a message at input {name!r} has {found} {what}; {hint}")
        if self._key is None:
            self._check_clock(name, number)
        return number

    def _check_clock(self, name: str, timestamp: float) -> None:
        """Raise JoinError if some timestamps are of the run's clock and others count since 1970."""
        is_since_1970 = counts_since_1970(timestamp)
        if self._first is None:
            self._first = name, is_since_1970
        elif self._first[1] is not is_since_1970:
            inputs = (self._first[0], name) if is_since_1970 else (name, self._first[0])
            raise JoinError(
                f"{self._where}: acquisition timestamps at input {inputs[0]!r} are of the run's clock, and at "
                f"input {inputs[1]!r} they count since 1970, so none of them belong together; emit all of them "
                "by one clock, such as context.timestamp, or give the join a key="
            )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when a set is there, or when to look again."""
        if self._joiner.sets:
            return _READY
        if self._joiner.is_over():
            return SchedulingStatusType.NEVER, None
        deadline = self._joiner.deadline()
        if deadline is None:
            return SchedulingStatusType.WAIT, None
        # Not before now, which would mean READY.
        return SchedulingStatusType.WAIT_TIME, max(deadline, timestamp) + 1

    def reserve(self) -> bool:
        """Take the next set for the compute that follows."""
        joined = self._joiner.take_set()
        if joined is None:
            return False
        self._forget()
        self._current = joined.parts
        return True

    def _forget(self) -> None:
        """Count what the last compute did not receive."""
        for name, part in self._current.items():
            for entry in part if isinstance(part, list) else [part]:
                if isinstance(entry, Entry) and not entry.is_delivered:
                    entry.is_delivered = True
                    self._queue_of[name].drop("not received", entry.number)
        self._current = {}

    def _take(self, port: _runtime.InputPort) -> Any:
        """Return the message of the current set at an input; raise IndexError if it has none."""
        part = self._current.pop(port.name, None)
        if part is None:
            raise IndexError
        if isinstance(part, Substitute):
            if part.value is None:
                raise IndexError
            return part.value
        if isinstance(part, list):
            port.reader.count = len(part)
            return Batch([self._deliver(port.name, entry) for entry in part])
        port.reader.count = 1
        return self._deliver(port.name, part)

    def _deliver(self, name: str, entry: Entry) -> Any:
        if not entry.is_delivered:
            entry.is_delivered = True
            self._queue_of[name].deliver(entry.item, entry.number)
        return entry.item

    # What is in no set.

    def _report(self, name: str, reason: str, entry: Entry) -> None:
        rule = self._rules.get(name, self._rule)
        self._queue_of[name].drop(reason, entry.number)
        if reason in ("out of order", "late") and rule is not None and rule.late == "error":
            newest = self._joiner.buffers[name].newest
            raise JoinError(
                f"{self._where}: the message with key {entry.key} at input {name!r} came {reason}, after {newest}; "
                "allow it with lateness=..., or drop such messages with late='drop'"
            )

    def _fail(self, name: str, key: Any) -> NoReturn:
        newest = ", ".join(f"{each!r}: {buffer.newest}" for each, buffer in self._joiner.buffers.items())
        raise JoinError(
            f"{self._where}: no message for key {key} at input {name!r} (the newest keys: {newest}); widen the "
            "tolerance, or choose missing='drop' or substitute(...)"
        )

    def end_run(self) -> None:
        """Count what waits as dropped, and release it."""
        if self._queue_of:
            self._forget()
            self._joiner.give_up()

    def _most(self, queue: _runtime.Queue) -> int:
        """Return how many messages of an input may wait for others: at least a window of them."""
        rule = self._rules.get(queue.port, self._rule)
        window = rule.length if isinstance(rule, Window) and rule.is_counted else 0
        return max(queue.limit if queue.limit > 1 else HELD, window)

    def detach(self) -> None:
        """Leave the run."""
        super().detach()
        self._queue_of = {}
        self._current = {}


def _has_ended(queue: _runtime.Queue) -> bool:
    """Return whether nothing more comes into a queue: everything that sends to it has ended."""
    return bool(queue.feeders) and all(feeder.retired for feeder in queue.feeders)


def _stack(where: str, messages: tuple[Any, ...]) -> Any:
    """Return arrays of one library, stacked by it on the current stream."""
    first = messages[0]
    space = getattr(first, "__array_namespace__", None)
    library = space() if space is not None else sys.modules.get(type(first).__module__.partition(".")[0])
    stack: Callable[..., Any] | None = getattr(library, "stack", None)
    if stack is None:
        raise JoinError(
            f"{where}: cannot stack {type(first).__name__}; use window(..., stack=False) for a list"
        )
    return stack(messages)
