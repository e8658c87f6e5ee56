"""Faults: an operator whose errors do not stop the run (`Operator.on_error`).

Only the compute of an operator with such a policy is wrapped; the others cost nothing. The layers around it
(streams, the engine) see a compute that returned. So they keep the received messages alive for the device and
update their flags as after any other compute.

The messages of the failed compute are skipped. Messages that it received are lost. Messages that it had not
received yet, at inputs that it waits for, are discarded and counted: otherwise the operator would be ready at once
with half a frame, or fail forever at the same message. Messages that it emitted were sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.scheduling.notes import message_of, note, traceback_of
from headrace._runtime.scheduling.unreceived import has_more
from headrace.core.error_policy import ErrorPolicy
from headrace.core.notes import add_note

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.scheduling.node import Node


def faults_of(node: Node) -> Faults | None:
    """Return what handles the errors of a node's operator; None if they stop the run."""
    policy = ErrorPolicy.of(node.operator.on_error, node.name)
    return None if policy.action == "stop" else Faults(node, policy)


class Faults:
    """The errors of one operator in a run, and how they were handled."""

    def __init__(self, node: Node, policy: ErrorPolicy) -> None:
        self.node = node
        self.policy = policy
        self.skipped = 0
        self.restarts = 0
        self.last_error = ""
        self.discarded: dict[str, int] = {}
        self._compute: Callable[..., None] = node.operator.compute
        # The inputs from which this compute has received.
        self._received: set[str] = set()
        for port in node.input.ports:
            port.take = self._noting(port.name, port.take)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Compute, and apply the policy if that raises."""
        self._received.clear()
        try:
            self._compute(op_input, op_output, context)
        except Exception as error:
            self._handle(error)

    def _noting(self, name: str, take: Callable[[], Any]) -> Callable[[], Any]:
        received = self._received

        def take_and_note() -> Any:
            item = take()
            received.add(name)
            return item

        return take_and_note

    def _handle(self, error: Exception) -> None:
        self.last_error = f"{type(error).__name__}: {message_of(error)}"
        # A step that continues with an earlier message owns none of the waiting messages.
        went_on = has_more(self.node.operator)
        if self.policy.action == "restart":
            self._restart(error)
        else:
            self._skip(error)
        if not went_on:
            self._discard()

    def _skip(self, error: Exception) -> None:
        if self.skipped == self.policy.limit:
            add_note(error, f"raised after {self.skipped} errors of the operator had been skipped")
            raise error
        self.skipped += 1
        # At 1, 2, 4, 8: an operator that always fails must not flood the log.
        if not self.skipped & (self.skipped - 1):
            count = "" if self.skipped == 1 else f" ({self.skipped} errors skipped so far)"
            self._log(f"skipped an error in compute of operator {self.node.name!r}{count}", error)

    def _restart(self, error: Exception) -> None:
        operator = self.node.operator
        if self.node.engine.stopping:
            # The run will stop the operator anyway, and must stop it only once.
            self.skipped += 1
            return
        while True:
            if self.restarts == self.policy.limit:
                add_note(error, f"raised after {self.restarts} restarts of the operator")
                raise error
            self.restarts += 1
            self._log(f"restart {self.restarts} of operator {self.node.name!r} after an error", error)
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
                self.last_error = f"{type(second).__name__}: {message_of(second)}"
                error = second
                continue
            # An operator may choose its compute in start().
            self._compute = operator.compute
            return

    def _discard(self) -> None:
        """Discard the messages that the failed compute had not received."""
        node = self.node
        for port in node.input.ports:
            if port.name in self._received or port.is_optional:
                continue
            # If the operator waits for any of several inputs, a compute owns the message of only one of them.
            if self._received and not all(queue.min_size for queue in port.queues):
                continue
            spec = node.operator.spec.inputs[port.name]
            for queue in port.queues:
                for _ in range(len(queue) if spec.gives_tuple and not spec.is_receivers else 1):
                    try:
                        queue.discard()
                    except IndexError:
                        break
                    self.discarded[port.name] = self.discarded.get(port.name, 0) + 1

    def _log(self, text: str, error: BaseException) -> None:
        import logging

        logging.getLogger("headrace.errors").warning("%s\n%s", text, traceback_of(error))
