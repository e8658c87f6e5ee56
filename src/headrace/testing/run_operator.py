"""run_operator: one operator in a pipeline of its own, from given inputs to what it emits.

The operator runs as in any application: its conditions apply, its queues have their declared lengths, and its
exceptions are raised unchanged. A feeder is connected to each input and a collector to each output. Time is
virtual: a test of a ten-minute timeout takes a millisecond. Calling `compute` with mock contexts would be simpler,
but would not run the operator as a pipeline does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.application import Application
from headrace.core.checks import has_nothing_to_wait_for, waits_for_ever
from headrace.core.errors import GraphError, PortError, absent
from headrace.core.operator import Operator
from headrace.core.scheduler import Scheduler
from headrace.gpu.backend import active
from headrace.resources.machine_clock import machine_clock
from headrace.resources.manual_clock import ManualClock
from headrace.schedulers.greedy import GreedyScheduler
from headrace.testing.harness import UNBOUNDED, Collector, Feeder, StepCounter
from headrace.testing.result import OperatorResult

# A run with more steps than this, plus this many for each message, is considered endless.
_MAX_STEPS = 10_000
_MAX_STEPS_PER_MESSAGE = 1_000


def run_operator(
    operator: Callable[..., Any],
    /,
    *,
    inputs: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
    steps: int | None = None,
    scheduler: Callable[[Application], Scheduler] | None = None,
    **parameters: Any,
) -> OperatorResult:
    """Run one operator by itself, in virtual time, and return what it emitted.

    Parameters
    ----------
    operator
        An operator class, a function with ``@op``, or any function that takes an application and creates an
        operator, such as ``lambda app: Blur(app, CountCondition(app, 3), sigma=2)``.
    inputs
        The messages for each input, ``{"frame": [a, b]}``; a plain list if there is one input. For an input with
        any number of connections, a list for each connection. A :class:`Message` instead of a value adds metadata,
        a timestamp and the time at which it is sent.
    steps
        The maximum number of computes; no limit unless given.
    scheduler
        A function that creates the scheduler; greedy unless given.
    **parameters
        The operator's parameters.

    Returns
    -------
    OperatorResult
        The values that each output emitted, as in ``result["out"]``, and the operator.
    """
    app = _SingleOperator(operator, inputs, steps, scheduler, parameters)
    with active().in_virtual_time():  # a test should not have to wait for real time
        app.run()
    if steps is None and app.counter.has_ended_it:
        raise RuntimeError(
            f"operator {app.operator.name!r} was still running after {app.counter.steps} steps; pass steps=... "
            "for an operator that does not end by itself, and check that it receives its messages"
        )
    return OperatorResult(
        app.operator,
        {name: collector.collected for name, collector in app.collectors.items()},
        app.counter.steps,
        app.not_received(),
    )


class _SingleOperator(Application):
    """An application of one operator, its feeders and its collectors."""

    def __init__(
        self,
        make: Callable[..., Any],
        inputs: Mapping[str, Iterable[Any]] | Iterable[Any] | None,
        steps: int | None,
        make_scheduler: Callable[[Application], Scheduler] | None,
        parameters: dict[str, Any],
    ) -> None:
        super().__init__([], name="run_operator")
        self._make = make
        self._inputs = inputs
        self._steps = steps
        self._make_scheduler = make_scheduler
        self._parameters = parameters
        self.operator: Operator
        self.counter: StepCounter
        self.collectors: dict[str, Collector] = {}
        self._feeders: list[tuple[str, Feeder]] = []

    def compose(self) -> None:
        """Create the operator, and connect a feeder to each input and a collector to each output."""
        if self._make_scheduler is not None:
            self.scheduler(self._make_scheduler(self))
        else:
            # Use the simulated machine's clock if there is one, so that the device and the pipeline share it.
            self.scheduler(GreedyScheduler(self, clock=machine_clock(self) or ManualClock(self)))
        self.operator = operator = self._make_operator()
        fed = self._connections(operator)
        self.counter = StepCounter(self, self._limit(fed))
        operator.add_arg(self.counter)
        self.add_operator(operator)
        for number, (name, messages) in enumerate(fed):
            feeder = Feeder(self, messages, f"feeder_{number}_of_{name}")
            self._feeders.append((name, feeder))
            self.add_flow(feeder, operator, {("out", name)})
        for name in operator.spec.outputs:
            self.collectors[name] = Collector(self, f"collector_of_{name}")
            self.add_flow(operator, self.collectors[name], {(name, "in")}, size=UNBOUNDED)

    def _make_operator(self) -> Operator:
        make = self._make
        if isinstance(make, Operator):
            raise TypeError(
                f"run_operator takes the class, and the parameters by keyword: "
                f"run_operator({type(make).__name__}, ...), not an operator that belongs to an application"
            )
        if not callable(make):
            raise TypeError(f"run_operator takes an Operator class or a function with @op, not {make!r}")
        made = make(self, **self._parameters)
        if not isinstance(made, Operator):
            raise TypeError(
                f"run_operator takes an Operator class, a function with @op, or a function that creates an "
                f"operator in an application; {make!r} returned {made!r}"
            )
        return made

    def _connections(self, operator: Operator) -> list[tuple[str, list[Any]]]:
        """Return the messages of each connection, with its input."""
        ports = operator.spec.inputs
        given = {} if self._inputs is None else self._inputs
        if not isinstance(given, Mapping):
            messages = list(given)
            if len(ports) != 1:
                example = "{" + ", ".join(f"{name!r}: [...]" for name in ports) + "}"
                raise GraphError(
                    f"operator {operator.name!r} has {len(ports) or 'no'} inputs"
                    + (f": give a list for each, inputs={example}" if ports else ", and inputs were given")
                )
            given = {next(iter(ports)): messages}
        for name in given:
            if name not in ports:
                raise PortError(absent(f"operator {operator.name!r}", "input", name, ports))
        fed: list[tuple[str, list[Any]]] = []
        for name, port in ports.items():
            if name not in given:
                continue
            if port.is_receivers:
                fed += [(name, list(messages)) for messages in given[name]]
            else:
                fed.append((name, list(given[name])))
        connected = {name for name, _ in fed}
        waits_for = waits_for_ever(operator, connected)
        if waits_for is not None:
            raise GraphError(
                f"operator {operator.name!r} would wait for its input {waits_for!r} forever: give it messages, "
                f"inputs={{{waits_for!r}: [...]}}"
            )
        if self._steps is None and has_nothing_to_wait_for(operator, connected):
            name = next(iter(ports))
            raise GraphError(
                f"operator {operator.name!r} would run without messages forever: give it a list for each "
                f"connection, inputs={{{name!r}: [[...], [...]]}}, or steps=..."
            )
        return fed

    def _limit(self, fed: list[tuple[str, list[Any]]]) -> int:
        if self._steps is not None:
            return self._steps
        return _MAX_STEPS + _MAX_STEPS_PER_MESSAGE * sum(len(messages) for _, messages in fed)

    def not_received(self) -> dict[str, int]:
        """Return the number of messages that the operator never received, by input."""
        counts: dict[str, int] = {}
        for name, feeder in self._feeders:
            counts[name] = counts.get(name, 0) + len(feeder.left)
        assert self.operator._node is not None
        for name, queues in self.operator._node.input_queues.items():
            counts[name] = counts.get(name, 0) + sum(queue.undelivered for queue in queues)
        return {name: count for name, count in counts.items() if count}
