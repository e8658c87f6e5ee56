"""Faults: an operator whose errors do not stop the run (`Operator.on_error`).

Only the compute of an operator with such a policy is wrapped; the others cost nothing. The layers around it
(streams, the engine) see a compute that returned. So they keep the received messages alive for the device and
update their flags as after any other compute.

**Messages that are given up.** Messages that the failed compute received are lost, or sent to the output for them.
Messages that it had not received yet, at inputs that it waits for, are discarded and counted: otherwise the
operator would be ready at once with half a frame, or fail forever at the same message. What it emitted was sent.

**Messages that are tried again.** What the failed compute took from its inputs is kept here, as it was in the
queues: with fences, metadata and timestamps. The next compute takes it from here first, by the usual way of
`receive`, so that streams are ordered and lifetimes begin as for any message. Putting it back into the queues would
not do: a producer may have filled the place meanwhile, and a queue may drop its oldest message. The node needs no
message in its queues until then (`resume`), and waits for a time if there is a backoff (`Backoff`).

What an attempt emits is collected, and sent when the attempt has succeeded. Otherwise a receiver would see the
first results of a message several times.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from headrace._runtime.messages.envelope import Envelope
from headrace._runtime.messages.ports import parts_of
from headrace._runtime.messages.queue import Batch, Collector, Queue
from headrace._runtime.scheduling.notes import note, traceback_of
from headrace._runtime.scheduling.routing import compute_of
from headrace._runtime.scheduling.watchdog import has_more
from headrace.core.condition import Condition
from headrace.core.error_policy import ErrorPolicy
from headrace.core.errors import add_note, message_of
from headrace.core.function import FunctionOperator
from headrace.core.ports import INPUT_EXEC, SchedulingStatusType

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.resume import Resume


def faults_of(node: Node) -> Faults | None:
    """Return what handles the errors of a node's operator; None if they stop the run."""
    policy = node.operator._headrace.error_policy
    return None if policy.action == "stop" and not policy.retries else Faults(node, policy)


class Faults:
    """The errors of one operator in a run, and how they were handled."""

    def __init__(self, node: Node, policy: ErrorPolicy) -> None:
        self.node = node
        self.policy = policy
        self.counts = node.counts
        self.discarded: dict[str, int] = {}
        self._compute: Callable[..., None] = compute_of(node)
        # What this compute received at each input; without the messages if nobody needs them after an error.
        self._received: dict[str, list[Any]] = {}
        # Whether that is of an earlier compute, with whose messages a generator goes on.
        self._is_earlier = False
        # What the next attempt receives before anything else.
        self._again: dict[str, deque[Any]] = {}
        # The errors in a row, and how often the action was taken: in all, or when.
        self._errors_in_a_row = 0
        self._is_to_retry = False
        self._taken = 0
        self._times: deque[int] = deque()
        self._backoff: Backoff | None = None
        if policy.backoff:
            self._backoff = Backoff(policy.backoff)
            self._backoff.attach(node)
            node.joined.append(self._backoff)
        self._resume: Resume | None = None
        self._emitted: list[tuple[Queue, Any]] = []
        if policy.retries and policy.same_message:
            own = node.resume if _yields(node) else None
            self._resume = own or node.make_resume()
        for input_port in node.input.ports:
            input_port.take = self._noting(input_port.name, input_port.take)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Compute, and apply the policy if that raises."""
        node = self.node
        if self._is_to_retry:
            self._is_to_retry = False
            self.counts.retries += 1
        self._is_earlier = has_more(node.operator)
        if not self._is_earlier:
            self._received.clear()
        try:
            if self._resume is None:
                self._compute(op_input, op_output, context)
            else:
                self._attempt(self._resume, op_input, op_output, context)
        except Exception as error:
            self._handle(error)
        else:
            # A generator has not succeeded before it has ended for its messages.
            if not node.inputs or not has_more(node.operator):
                self._errors_in_a_row = 0
        # Nothing here may keep messages alive, unless they are needed again.
        if not has_more(node.operator):
            self._received.clear()

    def _attempt(self, resume: Resume, op_input: Any, op_output: Any, context: Any) -> None:
        """Compute, and send what that emitted if it succeeded."""
        if resume.is_retried:
            resume.retry(False)
        outputs = [(port, port.queues) for port in dict.fromkeys(self.node.output.ports.values())]
        for port, queues in outputs:
            port.connect(tuple([Collector(queue, self._emitted) for queue in queues]))
        try:
            self._compute(op_input, op_output, context)
        except BaseException:
            self._emitted.clear()
            raise
        finally:
            for port, queues in outputs:
                port.connect(queues)
        self._receive_taken()
        for name, items in self._again.items():
            if items:  # an earlier attempt received more than this one
                self.discarded[name] = self.discarded.get(name, 0) + len(items)
        self._again.clear()
        emitted, self._emitted[:] = self._emitted[:], []
        for queue, item in emitted:
            if len(queue) < queue.capacity:
                queue.append(item)
            else:
                queue.offer(item)

    def _receive_taken(self) -> None:
        """Note that this attempt, the last one, receives the messages of all."""
        if self._resume is not None:
            for queue in self.node.inputs:
                queue.receive_taken()

    def _noting(self, name: str, take: Callable[[], Any]) -> Callable[[], Any]:
        received, again, keeps = self._received, self._again, self.policy.keeps_messages

        def take_and_note() -> Any:
            waiting = again.get(name)
            item = waiting.popleft() if waiting else take()
            if self._is_earlier:  # a generator has ended, and begins with the next messages
                self._is_earlier = False
                self._errors_in_a_row = 0
                received.clear()
            received.setdefault(name, []).append(item if keeps else None)
            return item

        return take_and_note

    # What becomes of an error.

    def _handle(self, error: Exception) -> None:
        counts, policy = self.counts, self.policy
        counts.last_error = f"{type(error).__name__}: {message_of(error)}"
        # A step that continues with an earlier message owns none of the waiting messages.
        went_on = has_more(self.node.operator)
        if self.node.engine.stopping and (policy.retries or policy.action == "restart"):
            self._receive_taken()
            # No compute will follow, and the run stops the operator anyway, and must stop it only once.
            self._give_up()
            if policy.same_message and self._errors_in_a_row < policy.retries:
                counts.cut_off += 1
            else:
                counts.skipped += 1
            return
        if self._errors_in_a_row < policy.retries:
            self._retry(error, went_on)
            return
        for call in self.node.output.calls:
            call.fail(error)
        self._receive_taken()
        if policy.retries:
            add_note(error, f"raised after {policy.retries} retries in a row")
            self._errors_in_a_row = 0
        if policy.action == "stop":
            self._give_up()
            raise error
        if policy.action == "restart":
            self._restart(error)
        else:
            self._skip(error)
        if policy.dead_letter:
            self._send(error, went_on)
        elif not went_on:
            self._discard()
        self._give_up()

    def _retry(self, error: Exception, went_on: bool) -> None:
        node, policy, counts = self.node, self.policy, self.counts
        self._errors_in_a_row += 1
        self._is_to_retry = True
        self._log_seldom(counts.retries + 1, f"retry of operator {node.name!r} after an error", error)
        if self._backoff is not None:
            self._backoff.begin(node.clock.timestamp(), self._errors_in_a_row)
        if policy.same_message:
            for name, items in self._received.items():
                self._again[name] = deque([*items, *self._again.get(name, ())])
            self._received.clear()
        else:
            counts.skipped += 1
            if not went_on:
                self._discard()
        if _yields(node):
            # A generator that raised is finished. A function has no start and stop of the program.
            node.operator.stop()
            node.operator.start()
            self._compute = compute_of(node)
        if self._resume is not None:
            self._resume.retry(True)

    def _give_up(self) -> None:
        """Release the messages of the failed compute, and those that the last attempt did not receive again."""
        self._again.clear()
        self._received.clear()

    def _may_act(self) -> bool:
        """Return whether the action may be taken once more, and count it."""
        limit, per = self.policy.limit, self.policy.per
        if limit is not None and per is not None:
            now = self.node.clock.timestamp()
            while self._times and self._times[0] <= now - per:
                self._times.popleft()
            if len(self._times) >= limit:
                return False
            self._times.append(now)
        elif limit is not None and self._taken >= limit:
            return False
        self._taken += 1
        return True

    def _within(self) -> str:
        return "" if self.policy.per is None else f" within {self.policy.per / 1e9:g} s"

    def _skip(self, error: Exception) -> None:
        if not self._may_act():
            add_note(
                error,
                f"raised after {self.policy.limit} errors of the operator had been skipped{self._within()}",
            )
            raise error
        self.counts.skipped += 1
        self._log_seldom(
            self.counts.skipped,
            f"skipped an error in compute of operator {self.node.name!r}",
            error,
            "errors skipped so far",
        )

    def skip_end(self, error: Exception) -> None:
        """Apply the policy to an error of `end`; there is nothing to start again for."""
        self.counts.last_error = f"{type(error).__name__}: {message_of(error)}"
        note(error, "end", self.node.operator)
        if self.policy.action == "skip":
            self._skip(error)
            return
        self.counts.skipped += 1
        self._log(f"skipped an error in end of operator {self.node.name!r}", error)

    def _restart(self, error: Exception) -> None:
        operator, counts = self.node.operator, self.counts
        while True:
            if not self._may_act():
                add_note(error, f"raised after {self.policy.limit} restarts of the operator{self._within()}")
                raise error
            counts.restarts += 1
            self._log(f"restart {counts.restarts} of operator {self.node.name!r} after an error", error)
            # Its kernels may still use memory that stop() releases.
            self.node.streams.synchronize()
            try:
                operator.stop()
            except Exception as second:
                note(second, "stop", operator)
                self._log(f"stop() of operator {self.node.name!r} raised before a restart", second)
            try:
                operator.start()
            except Exception as second:
                note(second, "start", operator)
                counts.last_error = f"{type(second).__name__}: {message_of(second)}"
                error = second
                continue
            # An operator may choose its compute in start().
            self._compute = compute_of(self.node)
            return

    # What becomes of the messages of a compute that has failed for good.

    def _unreceived(self) -> list[Any]:
        """Return the inputs whose next messages belonged to the failed compute, which had not received them."""
        owned = {*self._received, *(name for name, items in self._again.items() if items)}
        found = []
        for port in self.node.input.ports:
            if port.name in owned or port.is_optional:
                continue
            # If the operator waits for any of several inputs, a compute owns the message of only one of them.
            if owned and not all(queue.min_size for queue in port.queues):
                continue
            found.append(port)
        return found

    def _discard(self) -> None:
        """Discard the messages that the failed compute had not received."""
        for port in self._unreceived():
            spec = self.node.operator.spec.every_input[port.name]
            for queue in port.queues:
                for _ in range(len(queue) if spec.gives_tuple and not spec.is_receivers else 1):
                    try:
                        queue.discard()
                    except IndexError:
                        break
                    self.discarded[port.name] = self.discarded.get(port.name, 0) + 1

    def _send(self, error: Exception, went_on: bool) -> None:
        """Send the messages of the failed compute to the output for them."""
        node, port = self.node, self.policy.dead_letter
        missing = [] if went_on else [port.name for port in self._unreceived()]
        for name in dict.fromkeys((*(name for name, items in self._again.items() if items), *missing)):
            # It has the message even if this raises, since metadata of two messages may not go together.
            with suppress(Exception):
                node.input.receive(name)
        found = {name: _data_of(items) for name, items in self._received.items() if name != INPUT_EXEC}
        if not found:
            return
        metadata = node.operator.metadata
        metadata.pop("error", None)  # of an operator before
        metadata.set(
            "error",
            {
                "operator": node.name,
                "type": type(error).__name__,
                "message": message_of(error),
                "traceback": traceback_of(error),
                "inputs": list(found),
            },
        )
        node.output.emit(next(iter(found.values())) if len(found) == 1 else found, port)
        self.counts.dead_letters += 1

    def end_run(self) -> None:
        """Count an error whose messages were to be tried again, and release them."""
        if self._is_to_retry and self.policy.same_message:
            self.counts.cut_off += 1
        self._give_up()

    # The log.

    def _log_seldom(self, number: int, text: str, error: BaseException, so_far: str = "so far") -> None:
        # At 1, 2, 4, 8: an operator that always fails must not flood the log.
        if not number & (number - 1):
            self._log(text if number == 1 else f"{text} ({number} {so_far})", error)

    def _log(self, text: str, error: BaseException) -> None:
        """Log an error; a handler that keeps the record keeps its text, and no frames with the data in them."""
        import logging

        from headrace.core.log import fields_of

        logger = logging.getLogger("headrace.errors")
        if not logger.isEnabledFor(logging.WARNING):
            return
        fields = fields_of(self.node.operator.fragment, self.node.name)
        raised = (type(error), error, error.__traceback__)
        record = logger.makeRecord(
            logger.name, logging.WARNING, __file__, 0, "%s", (text,), raised, "_log", fields
        )
        logger.handle(record)
        record.exc_text = record.exc_text or traceback_of(error)
        record.exc_info = (type(error), error, None)
        error.with_traceback(None)


def _yields(node: Node) -> bool:
    return isinstance(node.operator, FunctionOperator) and node.operator.yields


def _data_of(items: list[Any]) -> Any:
    """Return what was received at one input, as the operator received it."""
    found = [
        tuple([_content(part) for part in parts_of(item)]) if type(item) is Batch else _content(item)
        for item in items
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _content(item: Any) -> Any:
    return item.data if type(item) is Envelope else item


_LONGEST = 60_000_000_000
_READY = SchedulingStatusType.READY
_WAIT_TIME = SchedulingStatusType.WAIT_TIME


class Backoff(Condition):
    """Waits for `first` nanoseconds after the first error in a row, and twice as long after each further one.

    The compute that failed calls `begin`. No wait is longer than a minute, unless `first` is.
    """

    polled = False
    depends_on_ports = False
    matters_while_blocked: ClassVar[bool] = False

    def __init__(self, first: int) -> None:
        super().__init__(name="backoff")
        self._first = first
        self._until: int | None = None

    def begin(self, now: int, errors: int) -> None:
        """Wait from `now` on, after so many errors in a row."""
        # A shift by a large number would make an enormous int.
        self._until = now + min(self._first << min(errors - 1, 40), max(_LONGEST, self._first))

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return the end of the wait, if there is one."""
        until = self._until
        if until is None or timestamp >= until:
            return _READY, None
        return _WAIT_TIME, until
