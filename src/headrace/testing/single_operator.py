"""run_operator: one operator in a pipeline of its own, from given inputs to what it emits.

The operator runs as in any application: its conditions apply, its queues have their declared lengths, and its
exceptions are raised unchanged. A feeder is connected to each input and a collector to each output. Time is
virtual: a test of a ten-minute timeout takes a millisecond. Calling `compute` with mock contexts would be simpler,
but would not run the operator as a pipeline does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from headrace._runtime import Envelope
from headrace.application import Application
from headrace.conditions import CountCondition
from headrace.core.checks import has_nothing_to_wait_for, waits_for_ever
from headrace.core.composition import Composition
from headrace.core.condition import Condition
from headrace.core.errors import GraphError, PortError, absent
from headrace.core.node import Node
from headrace.core.operator import Operator
from headrace.core.outcome import Outcome
from headrace.core.ports import SchedulingStatusType
from headrace.core.scheduler import Scheduler
from headrace.core.spec import OperatorSpec
from headrace.core.values import Duration, nanoseconds
from headrace.gpu.backend import active
from headrace.resources.clocks import ManualClock, machine_clock
from headrace.schedulers import GreedyScheduler

# A run with more steps than this, plus this many for each message, is considered endless.
_MAX_STEPS = 10_000
_MAX_STEPS_PER_MESSAGE = 1_000
# The length of a collector's queue: more than any test emits in one step. An empty queue takes no memory.
_UNBOUNDED = 1 << 20

Op = TypeVar("Op", bound=Operator)


def run_operator(
    operator: Callable[..., Op],
    /,
    *,
    inputs: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
    steps: int | None = None,
    scheduler: Callable[[Application], Scheduler] | None = None,
    **parameters: Any,
) -> OperatorResult[Op]:
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
        The maximum number of computes, as a :class:`CountCondition` counts them; no limit unless given.
    scheduler
        A function that creates the scheduler; greedy unless given.
    **parameters
        The operator's parameters.

    Returns
    -------
    OperatorResult
        The values that each output emitted, as in ``result["out"]``, and the operator.
    """
    app = _FedOperator(operator, inputs, steps, scheduler, parameters)
    computes = app.run_in_virtual_time().operators[app.operator.name].computes
    if computes == app.limit:
        raise RuntimeError(
            f"operator {app.operator.name!r} was still running after {computes} steps; pass steps=... for an "
            "operator that does not end by itself, and check that it receives its messages"
        )
    messages = {name: app.collected(name) for name in app.operator.spec.outputs}
    return OperatorResult(cast("Op", app.operator), messages, computes, app.not_received())


@dataclass(frozen=True, slots=True)
class Message:
    """A value with its metadata and its times.

    Parameters
    ----------
    data
        The value.
    metadata
        The metadata that travels with it.
    acq_timestamp
        When the value was acquired, in nanoseconds; None if unknown.
    at
        When it is sent, counted from the start of the run: a duration such as ``"40ms"``, or None to send it as
        soon as there is room. For an emitted message, when it was emitted, in nanoseconds.
    """

    data: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    acq_timestamp: int | None = None
    at: Duration | None = None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OperatorResult(Mapping[str, list[Any]], Generic[Op]):
    """What an operator emitted: a list of values for each output, as in ``result["out"]``."""

    operator: Op
    """The operator, as its last compute and `stop` left it; with ``workers=`` its replicas compute."""
    messages: dict[str, list[Message]]
    """The emitted messages, by output, with metadata and times."""
    steps: int
    """The number of its computes."""
    not_received: dict[str, int]
    """The number of messages that it never received, by input; empty if it received all."""

    def __getitem__(self, output: str) -> list[Any]:
        if output not in self.messages:
            raise PortError(absent(f"operator {self.operator.name!r}", "output", output, self.messages))
        return [message.data for message in self.messages[output]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return f"<OperatorResult of {self.operator.name!r} after {self.steps} steps: {dict(self)!r}>"


class SingleOperator(Application):
    """An application of one operator; a subclass writes `connect`."""

    operator: Operator

    def __init__(self, what: str, make: Callable[..., Any], parameters: dict[str, Any]) -> None:
        super().__init__([], name=what)
        self._make = make
        self._parameters = parameters

    def run_in_virtual_time(self) -> Outcome:
        """Run the application; a test should not have to wait for real time."""
        with active().in_virtual_time():
            return self.run()

    def compose(self) -> None:
        """Create the operator, and connect its ports."""
        # Use the simulated machine's clock if there is one, so that the device and the pipeline share it.
        self.scheduler(GreedyScheduler(self, clock=machine_clock(self) or ManualClock(self)))
        self.operator = self._make_operator()
        self.add_operator(self.operator)
        self.connect(self.operator)

    def connect(self, operator: Operator) -> None:
        """Connect the ports of the operator."""
        raise NotImplementedError

    def _make_operator(self) -> Operator:
        make = self._make
        if isinstance(make, Operator):
            raise TypeError(
                f"{self.name} takes the class, and the parameters by keyword: {self.name}({type(make).__name__}, "
                "...), not an operator that belongs to an application"
            )
        if not callable(make):
            raise TypeError(f"{self.name} takes an Operator class or a function with @op, not {make!r}")
        made = make(self, **self._parameters)
        if not isinstance(made, Operator):
            raise TypeError(
                f"{self.name} takes an Operator class, a function with @op, or a function that creates an operator "
                f"in an application; {make!r} returned {made!r}"
            )
        return made


class _FedOperator(SingleOperator):
    """An operator with a feeder for each input and a collector for each output."""

    limit: int

    def __init__(
        self,
        make: Callable[..., Any],
        inputs: Mapping[str, Iterable[Any]] | Iterable[Any] | None,
        steps: int | None,
        make_scheduler: Callable[[Application], Scheduler] | None,
        parameters: dict[str, Any],
    ) -> None:
        super().__init__("run_operator", make, parameters)
        self._inputs = inputs
        self._steps = steps
        self._make_scheduler = make_scheduler
        self.collectors: dict[str, _Collector] = {}
        self._feeders: list[tuple[str, _Feeder]] = []

    def connect(self, operator: Operator) -> None:
        """Connect a feeder to each input and a collector to each output."""
        if self._make_scheduler is not None:
            self.scheduler(self._make_scheduler(self))
        fed = self._connections(operator)
        messages = sum(len(messages) for _, messages in fed)
        self.limit = _MAX_STEPS + _MAX_STEPS_PER_MESSAGE * (messages + (self._steps or 0))
        operator.add_arg(_Limit(self, self.limit, name="limit of all steps"))
        if self._steps is not None:
            operator.add_arg(CountCondition(self, self._steps, name="limit of steps"))
        for number, (name, given) in enumerate(fed):
            feeder = _Feeder(self, given, f"feeder_{number}_of_{name}")
            self._feeders.append((name, feeder))
            self.add_flow(feeder, operator, {("out", name)})
        for name in operator.spec.outputs:
            if operator._headrace.never_emits and name != operator.spec.dead_letter:
                continue  # a function without a return: a sink
            self.collectors[name] = _Collector(self, f"collector_of_{name}")
            self.add_flow(operator, self.collectors[name], {(name, "in")}, size=_UNBOUNDED)

    def _connections(self, operator: Operator) -> list[tuple[str, list[Any]]]:
        """Return the messages of each connection, with its input."""
        ports = operator.spec.inputs
        given = {} if self._inputs is None else self._inputs
        if not isinstance(given, Mapping):
            messages = list(given)
            if len(ports) != 1:
                example = f"{{{', '.join(f'{name!r}: [...]' for name in ports)}}}"
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

    def collected(self, output: str) -> list[Message]:
        """Return the messages that an output emitted."""
        return self.collectors[output].collected if output in self.collectors else []

    def not_received(self) -> dict[str, int]:
        """Return the number of messages that the operator never received, by input."""
        counts: dict[str, int] = {}
        for name, feeder in self._feeders:
            counts[name] = counts.get(name, 0) + len(feeder.left)
        node = self.operator._headrace.receiver._headrace.node
        assert node is not None
        for name, queues in node.input_queues.items():
            counts[name] = counts.get(name, 0) + sum(queue.undelivered for queue in queues)
        return {name: count for name, count in counts.items() if count}


class _Limit(CountCondition):
    """Ends an operator that never ends by itself: all of its computes count."""

    def attach(self, node: Node) -> None:
        """Limit the computes of the node."""
        self.join(node)
        node.limit_count(self.count)


class _Feeder(Operator):
    """Sends messages to one input, each at its time or as soon as there is room."""

    def __init__(self, fragment: Composition, messages: Iterable[Any], name: str) -> None:
        self.left = [item if isinstance(item, Message) else Message(item) for item in messages][::-1]
        super().__init__(fragment, _Due(fragment, self.left), name=name)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Send one message."""
        message = self.left.pop()
        self.metadata.update(message.metadata)
        timestamp = -1 if message.acq_timestamp is None else message.acq_timestamp
        op_output.emit(message.data, "out", acq_timestamp=timestamp)


class _Due(Condition):
    """Lets a feeder run from the time of its next message on."""

    polled = False

    def __init__(self, fragment: Composition, left: list[Message]) -> None:
        super().__init__(fragment, name="due")
        self.left = left
        self.began: int | None = None

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY from the time of the next message on, and NEVER when none is left."""
        if self.began is None:
            self.began = timestamp
        if not self.left:
            return SchedulingStatusType.NEVER, None
        at = self.left[-1].at
        if at is None:
            return SchedulingStatusType.READY, None
        due = self.began + nanoseconds(at, "the time of a message")
        return (SchedulingStatusType.READY if timestamp >= due else SchedulingStatusType.WAIT_TIME), due


class _Collector(Operator):
    """Collects everything that one output emits; connected by a flow of size `_UNBOUNDED`."""

    def __init__(self, fragment: Composition, name: str) -> None:
        self.collected: list[Message] = []
        super().__init__(fragment, name=name)
        # It looks at the metadata of each message by itself: merged, two messages may contradict each other.
        self.enable_metadata(False)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare an input that gives one message at a time."""
        spec.input("in")

    def start(self) -> None:
        """Record when the run begins."""
        self.began = self.fragment.scheduler().clock.timestamp()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Receive the waiting messages, with metadata and times."""
        assert self._headrace.node is not None
        waiting = self._headrace.node.receiver("in")
        at = context.timestamp - self.began
        # One by one: on another thread, the operator may emit further messages meanwhile.
        for _ in range(waiting.size):
            item = waiting.peek(0)
            data = op_input.receive("in")
            is_message = type(item) is Envelope
            metadata = dict(item.metadata or {}) if is_message else {}
            timestamp = item.acq_timestamp if is_message else None
            self.collected.append(Message(data, metadata, timestamp, at))
