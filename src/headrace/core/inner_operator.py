"""InnerOperator: what headrace keeps in an operator, and the steps by which it is made and found in a run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.core.asynchronous import AsynchronousCondition
from headrace.core.condition import Condition
from headrace.core.condition_types import OperatorStatus
from headrace.core.construction import Arg, snake_case
from headrace.core.deadline import check_on_stuck
from headrace.core.error_policy import ErrorPolicy
from headrace.core.errors import GraphError, ParameterError, choices
from headrace.core.live_values import KnobValues, LiveValues
from headrace.core.metadata import MetadataDictionary
from headrace.core.notes import noting
from headrace.core.parameter import check_parameter_name
from headrace.core.replicas import Replicas
from headrace.core.resource import Resource
from headrace.core.spec import OperatorSpec
from headrace.core.wiring import InnerConnectable

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.execution import DynamicFlows
    from headrace.core.graph import Flow
    from headrace.core.node import Node
    from headrace.core.operator import NamedPart, Operator, Part
    from headrace.core.parameter import Parameter, ParameterVersion


class InnerOperator(InnerConnectable):
    """The state of an operator, and what subclasses of headrace's own change about it."""

    spec_type: ClassVar[type[OperatorSpec]] = OperatorSpec
    """The class of the spec that `setup` fills in."""
    methods: ClassVar[dict[str, tuple[str, ...]]] = {
        "setup": ("spec",),
        "initialize": (),
        "start": (),
        "compute": ("op_input", "op_output", "context"),
        "end": ("op_input", "op_output", "context"),
        "stop": (),
    }
    """The methods that a run calls, and their arguments."""
    awaits: ClassVar[bool] = False
    """Whether it is an async function, which computes nothing while it awaits."""
    resume: Any = None
    """What keeps its node ready while its function has more to yield, if it is a function that yields."""
    is_link: ClassVar[bool] = False
    """Whether it stands for a flow from or to another process (`headrace.parts`), and is no source of its own."""

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        self.operator = operator
        # The arguments that created it, and create each replica.
        self.creation: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.begin()

    def begin(self) -> None:
        """Begin with an operator that is in no graph: also if `__init__` is called again."""
        # The parameters given by keyword, with their values; they take precedence over named values.
        self.explicit: dict[str, Any] = {}
        self.outgoing: list[Flow] = []
        self.incoming: list[Flow] = []
        self.node: Node | None = None
        self.stop_wanted = False
        # What it does, as far as the run does not compute it; and its asynchronous condition, if it was asked for.
        self.run_phase = OperatorStatus.NOT_STARTED
        self.hold_condition: AsynchronousCondition | None = None
        self.metadata_enabled: bool | None = None
        # The ends of the flows by which what it sends comes back through other processes.
        self.leads_to: tuple[Operator, ...] = ()
        # The queues of its process in which what it sends waits for room, through other processes.
        self.full_behind: tuple[Any, ...] = ()
        self.live_state: LiveValues | None = None
        self.knobs = KnobValues(self.operator)
        # Raised when a parameter is set, if somebody wants to know: the segment that it is part of.
        self.parameter_version: ParameterVersion | None = None
        # How it is replicated, if it is, and the replicas of a run.
        self.replicas: Replicas | None = None
        self.replica_copies: tuple[Operator, ...] = ()
        # What chooses its flows, if anything does.
        self.dynamic_flows: DynamicFlows | None = None
        # The operators that have its inputs and its name, and its outputs, in the graph, if it has replicas.
        self.stand_in: Operator | None = None
        self.result_collector: Operator | None = None
        # The declared operator in whose place it is in the graph, if it is a replica, or hands them their messages.
        self.stands_for: Operator | None = None

    def construct(
        self, fragment: Composition, args: tuple[Part, ...], name: str, keywords: dict[str, Any]
    ) -> None:
        """Do the work of ``__init__``, with the keywords as a dict, in which any word may be a name."""
        from headrace.core.operator import Operator

        if not isinstance(name, str):
            raise TypeError(f"the name of a {type(self.operator).__name__} must be a str, not {name!r}")
        self.begin()
        self.place = fragment
        operator = self.operator
        operator.fragment = fragment = fragment._headrace.root
        operator.name = self.place._headrace.qualified(
            name or self.place._headrace.unused_name(snake_case(type(operator).__name__))
        )
        operator.conditions = {}
        operator.resources = {}
        operator.args = []
        operator.metadata = MetadataDictionary(fragment.metadata_policy, operator.name)
        # The parameters of a function may have any name.
        check = (
            None
            if operator.is_function
            else partial(check_parameter_name, kind=type(operator), base=Operator)
        )
        operator.spec = self.spec_type(fragment, operator.name, check)
        with noting(f"raised in setup of operator {operator.name!r} ({type(operator).__name__})"):
            operator.setup(operator.spec)
        live = {name: parameter for name, parameter in operator.spec.params.items() if parameter.is_live}
        self.live_state = LiveValues(operator, live) if live else None
        self.take_policies(keywords)
        self.replicas = Replicas.take(operator.name, keywords, operator.spec.params)
        parts = {key: value for key, value in keywords.items() if self.is_part(key, value)}
        values = {key: value for key, value in keywords.items() if key not in parts}
        if fragment._headrace.parameter_settings:  # what users set wins over what the program gives
            operator.spec.expect_types(operator)
            values |= fragment._headrace.set_parameters(operator)
        operator.spec.apply(operator, values)
        self.explicit.update(values)
        operator.add_arg(*args, **parts)
        if fragment._headrace.made is not None:
            fragment._headrace.made.append(operator)

    def take_policies(self, given: dict[str, Any]) -> None:
        """Remove and take on the keywords that every operator has: `on_error`, `deadline` and `on_stuck`."""
        if "on_error" in given:
            self.operator.on_error = given.pop("on_error")
        port = self.error_policy.dead_letter
        if port != self.operator.spec.dead_letter:
            if port not in self.operator.spec.outputs:
                self.operator.spec.output(port)
            self.operator.spec.dead_letter = port
        # A parameter of the program may have the other names.
        if "deadline" in given and "deadline" not in self.operator.spec.params:
            self.operator.spec.deadline(given.pop("deadline"))
        if "on_stuck" in given and "on_stuck" not in self.operator.spec.params:
            self.operator.spec.on_stuck = check_on_stuck(given.pop("on_stuck"), self.operator.name)

    @property
    def error_policy(self) -> ErrorPolicy:
        """What happens when `compute` raises."""
        return ErrorPolicy.of(self.operator.on_error, self.operator.name)

    def is_part(self, key: str, value: Any) -> bool:
        """Return whether a named value is a condition or a resource."""
        return key not in self.operator.spec.params and isinstance(value, (Condition, Resource))

    def limit_calls(self, count: int) -> bool:
        """Compute at most `count` times, and return True, if it counts its computes by itself."""
        return False

    @property
    def has_end(self) -> bool:
        """Whether it has an `end` of its own."""
        from headrace.core.operator import Operator

        return type(self.operator).end is not Operator.end or "end" in vars(self.operator)

    @property
    def max_in_flight(self) -> int | None:
        """The maximum number of its unfinished computes on the device; the fragment's unless set."""
        return self.operator.max_in_flight

    @property
    def never_emits(self) -> bool:
        """Whether it certainly never emits."""
        return self.operator.never_emits

    @property
    def live_parameters(self) -> dict[str, Parameter]:
        """The parameters that may be changed while the operator runs, by name."""
        return {} if self.live_state is None else self.live_state.parameters

    def add_named_part(self, key: str, part: NamedPart) -> None:
        """Add a condition or a resource that was given by keyword."""
        self.operator.add_arg(part)

    def refuse(self, arg: object) -> None:
        """Raise for a positional argument that an operator does not take."""
        hint = ""
        if isinstance(arg, type) and issubclass(arg, (Condition, Resource)):
            hint = f"; create one first: {arg.__name__}(self, ...)"
        elif isinstance(arg, str):
            hint = f", and so is a name: name={arg!r}"
        raise ParameterError(
            f"operator {self.operator.name!r} takes conditions, resources and Arg values as positional arguments, "
            f"not {arg!r}; parameters ({choices(self.operator.spec.params)}) are given by keyword{hint}"
        )

    def set_parameter(self, name: str, value: Any, origin: str = "") -> None:
        """Set a parameter, or what else every operator takes by name."""
        if name == "on_error" or (name in ("deadline", "on_stuck") and name not in self.operator.spec.params):
            self.take_policies({name: value})
        else:
            self.operator.spec.give(self.operator, f"operator {self.operator.name!r}", name, value)
        self.operator.args.append(Arg(name, value, origin))

    def add_part(self, parts: dict[str, Any], part: Any, kind: str) -> None:
        """Add a condition or a resource under its name."""
        # Two unnamed conditions of one class have the same name, so number the second. Adding the same object twice
        # is a mistake in the program.
        if any(part is known for known in parts.values()):
            raise GraphError(f"operator {self.operator.name!r} was given the {kind} {part.name!r} twice")
        name, number = part.name, 2
        while name in parts:
            name, number = f"{part.name}_{number}", number + 1
        parts[name] = part

    def in_progress(self, call: str) -> Node:
        """Return the node of the run in progress; raise if there is none."""
        node = self.receiver._headrace.node
        if node is None or self.operator.fragment._headrace.engine is not node.engine:
            raise RuntimeError(
                f"{call} of operator {self.operator.name!r}, which is not running: call it in a run"
            )
        return node

    def make_hold_condition(self) -> AsynchronousCondition:
        """Return the condition that `async_condition` asked for."""
        return AsynchronousCondition(self.operator.fragment, name="async_condition")

    @property
    def receiver(self) -> Operator:
        """The operator of the graph that has its inputs."""
        return self.stand_in or self.operator

    @property
    def sender(self) -> Operator:
        """The operator of the graph that has its outputs."""
        return self.result_collector or self.operator

    def in_run(self) -> tuple[Operator, ...]:
        """Return the operators that compute in place of this one: its replicas in a run, or itself."""
        return (
            self.replica_copies
            if self.replica_copies and self.operator.fragment._headrace.run_control.engine is not None
            else (self.operator,)
        )

    def recall_values(self) -> None:
        """Take on the live parameters and the knobs that were set before the run.

        As a part of composing: what a setter of the program sets meanwhile was not set from outside.
        """
        if self.live_state is not None:
            self.live_state.recall()
        self.knobs.recall()
