"""Operator: one stage of a pipeline. `setup` declares it, `compute` does its work."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

from headrace.brief import brief
from headrace.core.condition import AsynchronousCondition, BareCondition, Condition
from headrace.core.construction import Arg, Inner, check_name, named_values, needs_fragment, snake_case
from headrace.core.error_policy import ErrorPolicy, check_on_stuck
from headrace.core.errors import GraphError, ParameterError, PortError, absent, choices, noting
from headrace.core.live_values import KnobValues, LiveValues
from headrace.core.metadata import MetadataDictionary, MetadataPolicy
from headrace.core.parameters import check_parameter_name, set_up
from headrace.core.ports import INPUT_EXEC, OUTPUT_EXEC, IOSpec, OperatorStatus
from headrace.core.resource import Resource
from headrace.core.spec import OperatorSpec
from headrace.core.values import boolean, whole_number
from headrace.core.wiring import Connectable, InnerConnectable

if TYPE_CHECKING:
    import logging
    from dataclasses import InitVar
    from typing import Literal

    from headrace.core.composition import Composition
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.error_policy import OnError, OnStuck
    from headrace.core.execution import DynamicFlows
    from headrace.core.graph import Beyond, Flow
    from headrace.core.joins import JoinRule
    from headrace.core.node import Node, Receiver, Transmitter
    from headrace.core.parameters import Parameter, argument, declared, required
    from headrace.core.values import Duration


MOST_REPLICAS = 256
"""More than this is a mistake."""

# The attributes in which an operator has what a run needs, beside its fragment and its name.
_NEEDED = {
    "args": list,
    "conditions": dict,
    "metadata": MetadataDictionary,
    "resources": dict,
    "spec": OperatorSpec,
}

_PLACES = ("threads", "processes")


@dataclass(frozen=True, slots=True)
class Replicas:
    """How an operator is replicated.

    Attributes
    ----------
    workers
        The number of replicas.
    ordered
        Whether results leave in the order in which their messages came.
    on
        ``"threads"`` or ``"processes"``: where the replicas compute.
    """

    workers: int
    ordered: bool
    on: str

    @classmethod
    def take(cls, operator: str, keywords: dict[str, Any], parameters: Container[str]) -> Replicas | None:
        """Remove the options from the keywords of an operator, and return them; None if there are none.

        A parameter that the operator declares under one of these names keeps its meaning.
        """
        names = [name for name in ("workers", "ordered", "on") if name not in parameters]
        given = {name: keywords.pop(name) for name in names if name in keywords}
        where = f"operator {operator!r}: "
        if given and "workers" not in given:
            raise ParameterError(
                f"{where}{next(iter(given))}= says how several replicas work; give their number too: workers=4"
            )
        if not given:
            return None
        workers = whole_number(given["workers"], f"{where}workers", 1, MOST_REPLICAS)
        place = given.get("on", "threads")
        if place not in _PLACES:
            raise ParameterError(f"{where}on must be 'threads' or 'processes', not {place!r}")
        ordered = boolean(given.get("ordered", True), f"{where}ordered")
        if workers == 1 and place == "threads":
            return None
        return cls(workers, ordered, place)


@dataclass(slots=True)
class Replication:
    """What an operator has to do with replicas: nothing, mostly.

    Attributes
    ----------
    creation
        The arguments that created the operator, and create each replica.
    options
        How it is replicated, if it is.
    copies
        The replicas of a run, for the declared operator and for each of them.
    distributor, collector
        For the declared operator: what has its inputs and its name in the graph, and what has its outputs.
    declared
        For a replica and a distributor: the operator in whose place it is in the graph.
    """

    creation: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    options: Replicas | None = None
    copies: tuple[Operator, ...] = ()
    distributor: Operator | None = None
    collector: Operator | None = None
    declared: Operator | None = None


S = TypeVar("S")
Part: TypeAlias = BareCondition | Resource | Arg | list[Arg]
"""The positional arguments of an operator, after its fragment."""
NamedPart: TypeAlias = BareCondition | Resource
"""The keyword arguments of an operator that are no parameters."""


_ASKING = threading.Lock()


class InnerOperator(InnerConnectable):
    """The state of an operator, and what subclasses of headrace's own change about it."""

    spec_type: ClassVar[type[OperatorSpec]] = OperatorSpec
    """The class of the spec that `setup` fills in."""
    metadata_type: ClassVar[type[MetadataDictionary]] = MetadataDictionary
    """The class of its metadata."""
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
    beyond: Beyond | None = None
    """What is behind it in other processes, if it stands for a flow from or to one (`headrace.parts`)."""
    moves_messages: ClassVar[bool] = False
    """Whether it moves messages as they come from a queue, with the work behind them."""

    emits_order: ClassVar[bool] = True
    """Whether each compute lets the operators go on that run after it; otherwise it emits so itself."""

    @property
    def spec(self) -> OperatorSpec:
        """Its parameters and ports."""
        return self.operator.spec

    @property
    def conditions(self) -> list[Condition]:
        """What takes part in a run for the conditions that it was given."""
        return [each._headrace.acting(each) for each in self.operator.conditions.values()]

    @property
    def computes_in_use(self) -> int:
        """How many of the last computes received what the operator still works on, between two computes."""
        return 0

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        self.operator = operator
        self.replication = Replication()
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
        self.live_state: LiveValues | None = None
        self.knobs = KnobValues(self.operator)
        # Its replicas, if it has any or is one.
        self.replication = Replication(self.replication.creation)
        # What chooses its flows, if anything does.
        self.dynamic_flows: DynamicFlows | None = None

    def construct(
        self, fragment: Composition, args: tuple[Part, ...], name: str, keywords: dict[str, Any]
    ) -> None:
        """Do the work of ``__init__``, with the keywords as a dict, in which any word may be a name."""
        check_name(type(self.operator), name)
        self.check_attributes()
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
        operator.metadata = self.metadata_type(fragment.metadata_policy, operator.name)
        # The parameters of a function may have any name.
        check = (
            None
            if operator.is_function
            else partial(check_parameter_name, kind=type(operator), base=Operator)
        )
        operator.spec = self.spec_type(fragment, operator.name, check)
        with noting(f"raised in setup of operator {operator.name!r} ({type(operator).__name__})"):
            set_up(operator, operator.spec)
        live = {name: parameter for name, parameter in operator.spec.params.items() if parameter.live}
        self.live_state = LiveValues(operator, live) if live else None
        self.take_policies(keywords)
        self.replication.options = Replicas.take(operator.name, keywords, operator.spec.params)
        parts = {key: value for key, value in keywords.items() if self.is_part(key, value)}
        values = {key: value for key, value in keywords.items() if key not in parts}
        # What users set wins over what the program gives.
        values |= fragment._headrace.set_parameters(operator, "operator")
        operator.spec.apply(operator, values)
        boolean(self.parallel, f"operator {operator.name!r}: parallel")
        self.explicit.update(values)
        operator.add_arg(*args, **parts)
        if fragment._headrace.made is not None:
            fragment._headrace.made.append(operator)

    def check_attributes(self) -> None:
        """Raise if the program has put something of its own where a run needs something else."""
        for name, kind in _NEEDED.items():
            value = vars(self.operator).get(name)
            if value is not None and not isinstance(value, kind):
                raise ParameterError(
                    f"{type(self.operator).__name__} sets its {name} to {brief(value)}, but every operator has an "
                    "attribute of that name, which the run needs; give yours another name"
                )

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
        return key not in self.operator.spec.params and isinstance(value, (BareCondition, Resource))

    def limit_calls(self, count: int) -> bool:
        """Compute at most `count` times, and return True, if it counts its computes by itself."""
        return False

    @property
    def has_end(self) -> bool:
        """Whether it has an `end` of its own."""

        return type(self.operator).end is not Operator.end or "end" in vars(self.operator)

    @property
    def parallel(self) -> bool:
        """Whether its `compute` waits, or works outside the interpreter."""
        return self.operator.parallel

    @property
    def max_in_flight(self) -> int | None:
        """The maximum number of its unfinished computes on the device; the fragment's unless set."""
        return self.operator.max_in_flight

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
        if isinstance(arg, type) and issubclass(arg, (BareCondition, Resource)):
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
        return self.replication.distributor or self.operator

    @property
    def sender(self) -> Operator:
        """The operator of the graph that has its outputs."""
        return self.replication.collector or self.operator

    @property
    def declared(self) -> Operator:
        """The operator that the program declared, in whose place this one is in the graph: itself, mostly."""
        return self.replication.declared or self.operator

    def in_run(self) -> tuple[Operator, ...]:
        """Return the operators that compute in place of this one: its replicas in a run, or itself."""
        copies = self.replication.copies
        is_run = bool(copies) and self.operator.fragment._headrace.run_control.engine is not None
        return copies if is_run else (self.operator,)

    def recall_values(self) -> None:
        """Take on the live parameters and the knobs that were set before the run.

        As a part of composing: what a setter of the program sets meanwhile was not set from outside.
        """
        if self.live_state is not None:
            self.live_state.recall()
        self.knobs.recall()


if TYPE_CHECKING:

    @declared
    class _Arguments(Connectable):
        """The arguments that every operator takes, for the constructors of classes with `declared`."""

        fragment: Composition = required(kw_only=False)
        _1: InitVar[Part] = argument(kw_only=False, default=...)
        _2: InitVar[Part] = argument(kw_only=False, default=...)
        _3: InitVar[Part] = argument(kw_only=False, default=...)
        _4: InitVar[Part] = argument(kw_only=False, default=...)
        _5: InitVar[Part] = argument(kw_only=False, default=...)
        _6: InitVar[Part] = argument(kw_only=False, default=...)
        name: str = argument(default="")
        on_error: OnError = argument(default="stop")
        deadline: InitVar[Duration] = argument(default=...)
        on_stuck: InitVar[OnStuck] = argument(default=...)
        workers: InitVar[int] = argument(default=1)
        on: InitVar[Literal["threads", "processes"]] = argument(default="threads")
        ordered: InitVar[bool] = argument(default=True)

else:
    _Arguments = Connectable


class Operator(_Arguments):
    """The base of operators; subclass it and write `setup` and `compute`.

    Its parameters are fields of the class, as those of a dataclass: a value of another type is rejected when the
    operator is created, and type checkers know the attributes and the arguments of the constructor.

    ::

        @declared
        class Scale(Operator):
            factor: float = 1.0
            mode: str = parameter(default="fast", choices=("fast", "exact"))

    What is known only when an operator is created is declared in `setup`, by ``spec.param``.

    Parameters
    ----------
    fragment
        The application, fragment or subgraph that the operator belongs to.
    *args
        Conditions, resources, and named values (an :class:`Arg` or what ``from_config`` returns).
    name
        The operator's unique name, which errors use too; by default the class's name, made unique.
    **kwargs
        The parameters. A condition, a resource, `on_error`, `deadline` and `on_stuck` may be
        given by keyword too. ``workers=4`` runs four replicas of the operator at once; ``on="processes"`` runs them
        in processes of their own, and ``ordered=False`` lets their results leave as they come.
    """

    fragment: Composition
    """The fragment that it belongs to."""
    name: str
    """Its unique name; in a subgraph ``left``, the name ``camera`` becomes ``left.camera``."""
    spec: OperatorSpec
    """What `setup` declared."""
    conditions: dict[str, BareCondition]
    """The conditions that it was given, by name."""
    resources: dict[str, Resource]
    """The resources that it was given, by name."""
    args: list[Arg]
    """The named values that `add_arg` was given."""
    metadata: MetadataDictionary
    """The metadata of the messages of one compute."""
    max_in_flight: int | None = None
    """The maximum number of its unfinished computes on the device; the fragment's unless set."""

    INPUT_EXEC_PORT_NAME: ClassVar[str] = INPUT_EXEC
    """The name of the input at which it is told that an operator before it has computed (`then`)."""
    OUTPUT_EXEC_PORT_NAME: ClassVar[str] = OUTPUT_EXEC
    """The name of the output at which it tells others that it has computed (`then`)."""

    on_error: OnError = "stop"
    """What happens when `compute` raises: ``"stop"`` ends the run; ``"skip"`` skips the messages of that compute,
    ``{"skip": 100}`` at most 100 times; ``{"restart": 3}`` also calls `stop` and `start`, at most 3 times. The
    functions `retry`, `skip`, `restart` and `dead_letter`, joined by ``|``, say more."""

    capturable: bool | str = False
    """Whether a segment may replay its `compute` as a CUDA graph (:meth:`Fragment.capture`).

    True says: its result depends on its messages, its declared parameters, its knobs, and arrays on the device that
    it declares as state (`spec.state`) or assigns in `start`; and its `compute` has no effect on the host. A
    subclass that has a `compute` of its own says so itself. A text says why it may not be captured."""

    parallel: bool = False
    """Whether its `compute` waits, or works outside the interpreter: for a device, a file, or a socket, or in a
    library that releases Python's interpreter lock for long.

    With several workers, one operator computes at a time, and those that say True compute beside it at once."""

    _headrace = Inner(InnerOperator)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for method, form in cls._headrace.methods.items():
            check_method(cls, method, form)
        said, computes = (
            next(place for place, base in enumerate(cls.__mro__) if name in vars(base))
            for name in ("capturable", "compute")
        )
        if said > computes and isinstance(cls.capturable, bool | str):
            cls.capturable = False  # what its base class says is about another compute
        if cls.capturable is True or cls.is_function:
            _raise_versions(cls)

    def __new__(cls, /, *args: Any, **kwargs: Any) -> Self:
        """Create an operator, and keep the arguments for its replicas."""
        made = super().__new__(cls)
        made._headrace.replication.creation = args, kwargs
        return made

    @needs_fragment
    def __init__(self, fragment: Composition, *args: Part, name: str = "", **kwargs: Any) -> None:
        self._headrace.construct(fragment, args, name, kwargs)

    # Methods that a subclass overrides.

    def setup(self, spec: OperatorSpec) -> None:
        """Declare ports, parameters and conditions."""

    def initialize(self) -> None:
        """Prepare for a run; called once per run, after all operators are connected."""

    def start(self) -> None:
        """Start; called once per run, before the first `compute` of any operator."""

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Do the work of one step: receive, compute, emit."""

    def end(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> Any:
        """Emit what is left; called once, after the last `compute`, when the operator will not compute again.

        That is so when everything that sends to an input has ended and no compute is possible with the messages
        that are left there, or when the operator itself has ended: by its conditions, or by `stop_execution`. It
        may receive messages that are left. It runs when there is room behind the outputs; if it yields, it goes on
        when there is room again. It is not called if the run is stopped, interrupted or fails.
        """

    def stop(self) -> None:
        """Stop; called once per run for every operator that was started, even after an error."""

    def convert_dict(self, data: dict[Any, Any]) -> Any:
        """Return what is sent for an emitted dict: a copy of it, unless this is overridden.

        Tensors in a dict that is returned are ordered after the operator's work.
        """
        return data.copy()

    # Methods that a program calls.

    def add_arg(self, /, *args: Part, **kwargs: Any) -> None:
        """Add a condition, a resource or named values after construction.

        A parameter that was given by keyword, here or at construction, is not changed by named values.
        """
        for arg in args:
            if isinstance(arg, BareCondition):
                self._headrace.add_part(self.conditions, arg, "condition")
            elif isinstance(arg, Resource):
                self._headrace.add_part(self.resources, arg, "resource")
            elif isinstance(arg, Arg) or (
                isinstance(arg, list) and all(isinstance(item, Arg) for item in arg)
            ):
                for named in named_values((arg,)):
                    if named.name not in self._headrace.explicit:
                        self._headrace.set_parameter(named.name, named.value, named.origin)
            else:
                self._headrace.refuse(arg)
        for key, value in kwargs.items():
            if self._headrace.is_part(key, value):
                self._headrace.add_named_part(key, value)
            else:
                self._headrace.set_parameter(key, value)
                self._headrace.explicit[key] = value

    # Not a plain property: a program may assign a logger of its own, and a parameter may have this name.
    @cached_property
    def logger(self) -> logging.Logger:
        """The logger of this operator, ``headrace.operator.<name>``, created when it is first used."""
        import logging

        return logging.getLogger(f"headrace.operator.{self.name}")

    def resource(self, name: str) -> Resource | None:
        """Return the resource with the given name, or None."""
        return self.resources.get(name)

    def service(self, service_type: type[S], id: str = "") -> S | None:  # noqa: A002 (the SDK's name)
        """Return a service of the fragment, or None (:meth:`Composition.service`); in `initialize` and later."""
        return self.fragment.service(service_type, id)

    def queue_policy(
        self, port_name: str, port_type: IOSpec.IOType | None = None, policy: IOSpec.QueuePolicy | None = None
    ) -> None:
        """Set what a full queue of a port does."""
        outputs = port_type is IOSpec.IOType.OUTPUT
        ports = self.spec.every_output if outputs else self.spec.every_input
        if port_name not in ports:
            kind = "output" if outputs else "input"
            raise PortError(absent(f"operator {self.name!r}", kind, port_name, ports))
        ports[port_name].policy = policy or IOSpec.QueuePolicy.FAULT

    def receiver(self, port_name: str) -> Receiver:
        """Return a view of an input in the run in progress: its `size`, `capacity`, `peek`."""
        return self._headrace.in_progress(f"receiver({port_name!r})").receiver(port_name)

    def transmitter(self, port_name: str) -> Transmitter:
        """Return a view of the room behind an output in the run in progress: its `size`, `capacity`, `free`."""
        return self._headrace.in_progress(f"transmitter({port_name!r})").transmitter(port_name)

    @property
    def execution_context(self) -> ExecutionContext | None:
        """The context that `compute` gets, from `initialize` to `stop`; None outside of a run."""
        node = self._headrace.node
        return None if node is None or self.fragment._headrace.engine is not node.engine else node.context

    @property
    def async_condition(self) -> AsynchronousCondition:
        """A condition of this operator alone, by which any thread may hold it back, let it go on, or end it.

        Its ``event_state`` is READY. While it is ``EVENT_WAITING``, the operator does not compute and the run does
        not end; ``EVENT_DONE`` lets the operator go on, and ``EVENT_NEVER`` ends it. With ``WAIT`` it does not
        compute either, but the run ends if nothing else can run. A change takes effect before the next compute. An
        operator whose condition nobody asks for has none.
        """
        known = self._headrace.hold_condition
        if known is None:
            with _ASKING:
                known = self._headrace.hold_condition
                if known is None:
                    known = self._headrace.make_hold_condition()
                    self._headrace.hold_condition = known
                    # Set before the node is read, as in `stop_execution`; a run takes it on once.
                    if self._headrace.node is not None:
                        self._headrace.node.join_condition(known)
        return known

    def join(self, rule: JoinRule | None = None, /, **inputs: JoinRule) -> None:
        """Choose which messages of the inputs are received together: see :meth:`OperatorSpec.join`."""
        self.spec.join(rule, **inputs)

    @property
    def live_parameters(self) -> dict[str, Parameter]:
        """The parameters that may be changed while the operator runs, by name."""
        return self._headrace.live_parameters

    def set_live(self, name: str, value: Any) -> None:
        """Change a parameter that `setup` declares as live; may be called from any thread.

        The value is checked here: a wrong one raises :class:`ParameterError` and changes nothing. In a run it takes
        effect, as the attribute of that name, when the next compute of this operator begins, and never in the
        middle of one; of several changes the last one counts. Outside of a run it takes effect at once, and stays
        for the operator of this name in later runs of the fragment.
        """
        for operator in self._headrace.in_run():
            (operator._headrace.live_state or LiveValues(operator, {})).set(name, value)

    def set_knob(self, name: str, value: Any) -> None:
        """Set a knob, a scalar on the device that `compute` asks for; may be called from any thread.

        It takes effect when the next compute of this operator begins, or the next frame of its segment, and never
        in the middle of one; of several values the last one counts. A wrong name or value raises
        :class:`ParameterError` and changes nothing. Before the first compute, when it is not known what the knobs
        are, the error is raised in the operator's compute.

        A knob that has the name of a live parameter follows it, so that this call is that of :meth:`set_live`.
        Outside of a run the value stays for the operator of this name in later runs of the fragment.

        Parameters
        ----------
        name
            The knob: what `compute` calls it in :meth:`ExecutionContext.knob`.
        value
            A number on the host: of Python or NumPy.
        """
        for operator in self._headrace.in_run():
            operator._headrace.knobs.set(name, value)

    # Dynamic flows.

    @property
    def next_flows(self) -> list[Any]:
        """The flows that lead from it to others, as compose declared them."""
        return (
            list(self._headrace.outgoing)
            if self._headrace.dynamic_flows is None
            else self._headrace.dynamic_flows.flows
        )

    def add_dynamic_flow(self, *flow: Any) -> None:
        """Send what this compute emitted along a flow: in the function that `set_dynamic_flows` was given.

        Parameters
        ----------
        flow
            The operator that the flow leads to, or a port of it; before it the name of the output and after it the
            name of the input, where there are several flows: ``("out", operator, "in")``. Or a flow of
            `next_flows`, or a list of flows or operators.
        """
        if self._headrace.dynamic_flows is None:
            raise GraphError(
                f"operator {self.name!r}: add_dynamic_flow is for an operator whose flows are chosen; compose says "
                "so by set_dynamic_flows(operator, function)"
            )
        self._headrace.dynamic_flows.add(flow)

    def stop_execution(self) -> None:
        """Never run this operator again in this run; may be called from any thread."""
        receiver = self._headrace.receiver
        if receiver is not self:
            receiver.stop_execution()
            return
        # For a run that has not been assembled yet; set before the node is read, as in `RunControl.stop`.
        self._headrace.stop_wanted = True
        if self._headrace.node is not None:
            self._headrace.node.request_stop()

    def dropped(self, port_name: str | None = None) -> int:
        """Return the number of messages that an input, or all inputs, dropped in the last run.

        Those of replicas count for the operator that was declared.
        """
        if port_name is not None and port_name not in self.spec.every_input:
            raise PortError(absent(f"operator {self.name!r}", "input", port_name, self.spec.every_input))
        replication = self._headrace.replication
        parts: tuple[Operator, ...] = (self,)
        if replication.distributor is not None:
            parts = (replication.distributor, *replication.copies)
        nodes = [part._headrace.node for part in parts]
        return sum(
            queue.dropped
            for node in nodes
            if node is not None
            for name, queues in node.counted_queues.items()
            if port_name in (None, name)
            for queue in queues
        )

    # Metadata.

    @property
    def metadata_policy(self) -> MetadataPolicy:
        """What happens when a metadata name that is already set is set again."""
        return self.metadata.policy

    @metadata_policy.setter
    def metadata_policy(self, policy: MetadataPolicy) -> None:
        self.metadata.policy = policy

    @property
    def is_metadata_enabled(self) -> bool:
        """Whether metadata travels with the messages of this operator."""
        enabled = self._headrace.metadata_enabled
        return self.fragment.is_metadata_enabled if enabled is None else enabled

    def enable_metadata(self, enable: bool) -> None:
        """Turn metadata on or off for this operator, whatever the fragment's setting."""
        self._headrace.metadata_enabled = boolean(enable, f"operator {self.name!r}: enable_metadata(...)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def check_method(cls: type, name: str, form: tuple[str, ...]) -> None:
    """Raise if a class defines a method that a run cannot call, or that does nothing when called."""
    method = vars(cls).get(name)
    if not inspect.isfunction(method):
        return
    what = f"{cls.__name__}.{name}"
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise TypeError(
            f"{what} is async, and an operator has no event loop to await it: make it a plain method, with "
            "asyncio.run(...) inside it for a coroutine that ends, or an AsynchronousCondition for work that "
            "continues outside"
        )
    if inspect.isgeneratorfunction(method) and name != "end":
        raise TypeError(
            f"{what} yields, so calling it does nothing: emit each value with op_output.emit, or write it as "
            "a function with @op, where yield emits"
        )
    try:
        inspect.signature(method).bind(None, *form)
    except TypeError:
        wanted = ", ".join(["self", *form])
        raise TypeError(
            f"{what} must be def {name}({wanted}), not def {name}{inspect.signature(method)}"
        ) from None


def _raise_versions(cls: type[Operator]) -> None:
    """Let assignments to the parameters of a class raise the version that its segment compares."""
    assign = cls.__setattr__
    if getattr(assign, "raises_versions", False):
        return

    def __setattr__(self: Operator, name: str, value: Any) -> None:
        assign(self, name, value)
        version = self._headrace.knobs.version
        if version is None:
            return
        if name in self._headrace.knobs.types:
            self._headrace.knobs.announce()
        elif name in self.spec.params:
            version.number += 1

    __setattr__.raises_versions = True  # type: ignore[attr-defined]
    cls.__setattr__ = __setattr__  # type: ignore[method-assign, assignment]
