"""Composition: the operators and flows that `compose` declares, and the settings that they share.

It is the part of a fragment that operators, the runtime and watchers know. It declares and does not run:
`headrace.application` derives `Fragment` and `Application` from it.
"""

from __future__ import annotations

import inspect
from itertools import pairwise
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakSet

from headrace.core.config import Config, environment_parameters, setting_name
from headrace.core.construction import Inner
from headrace.core.control import RunControl
from headrace.core.errors import ConfigError, GraphError, absent, choices
from headrace.core.execution import DynamicFlows
from headrace.core.graph import Graph, PortPairs, check_member
from headrace.core.metadata import MetadataPolicy
from headrace.core.ports import INPUT_EXEC, OUTPUT_EXEC
from headrace.core.resource import Resource
from headrace.core.values import boolean
from headrace.core.wiring import are_ends, ends_of, name_of, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.core.condition import Condition
    from headrace.core.config import Setting, Settings
    from headrace.core.graph import Flow
    from headrace.core.operator import Operator
    from headrace.core.outcome import Outcome
    from headrace.core.ports import ConditionType, IOSpec
    from headrace.core.values import Duration
    from headrace.core.wiring import End, Ends


S = TypeVar("S")


class Services:
    """The services that were registered, by type and id."""

    def __init__(self) -> None:
        # Each with what it is found by besides its type.
        self._entries: dict[tuple[type, str], tuple[object, tuple[str, str]]] = {}

    def add(self, service: object, id: str, name: str = "") -> None:  # noqa: A002 (the SDK's name)
        """Add a service; one of the same type and id is replaced. It is found by its name, too, if it has one."""
        if isinstance(service, type) or service is None:
            raise TypeError(f"register_service takes an object, which is found by its type, not {service!r}")
        if not isinstance(id, str):
            raise TypeError(f"the id of a service must be a str, not {id!r}")
        self._entries[type(service), id or name] = service, (id, name or id)

    def find(self, kind: type[S], id: str) -> S | None:  # noqa: A002
        """Return the service of a type, or else the last one of a type derived from it; None without one."""
        if not isinstance(kind, type):
            raise TypeError(f"a service is found by its type, not by {kind!r}")
        entries = list(self._entries.values())
        found = [service for service, ids in entries if id in ids and isinstance(service, kind)]
        found.sort(key=lambda service: type(service) is kind)
        return found[-1] if found else None

    def all(self) -> list[object]:
        """Return all services."""
        return [service for service, _ in self._entries.values()]


RUNNING: WeakSet[Composition] = WeakSet()
"""The compositions whose runs are in progress, or that are being composed."""


class InnerComposition:
    """The state of a composition, and what subclasses of headrace's own change about it."""

    graph_type: ClassVar[type[Graph]] = Graph
    condition_types: ClassVar[Mapping[ConditionType, type[Condition]]] = {}
    """The classes of the conditions of ports, where they are not headrace's own."""

    def __init__(self, composition: Composition) -> None:
        self.composition = composition
        self.config: Config | None = None
        self.metadata_enabled = True
        # The operators that compose has created; None while compose is not running. And the thread that composes.
        self.made: list[Operator] | None = None
        self.composing_on = 0
        # The control of its current use, under "run". A dict, because its setdefault is atomic.
        self.controls: dict[str, RunControl] = {}
        # Return the progress of the last run, its watchers and the numbers of its processes by part, if its
        # operators computed in other processes.
        self.progress_elsewhere: Callable[[], Any] | None = None
        # What keeps one part of it, if that part runs in a process of its own (`headrace.parts.cut`).
        self.cut: Any = None
        self.watchers_elsewhere: Callable[[], Sequence[Any]] = tuple
        self.processes_elsewhere: Callable[[], dict[str, int | None]] = dict
        self.last_run_id = ""
        self.outcome: Outcome | None = None
        # Those who watch its runs, the loggers of its data, and the recording that it plays (`headrace.observe`).
        self.watchers: list[Any] = []
        self.data_loggers: list[Any] = []
        self.replay: Any = None
        self.services = Services()
        # The event loop of its async operators, in a run (`headrace.core.async_function`).
        self.loop: Any = None
        # Live parameters that were changed outside of a run, by operator and parameter.
        self.live_values: dict[tuple[str, str], Any] = {}
        # The same for knobs.
        self.knob_values: dict[tuple[str, str], Any] = {}

    def make_default_stream_source(self) -> Any:
        """Create the source of streams for operators that were given none; the layers above supply it."""
        raise NotImplementedError

    def begin_graph(self) -> None:
        """Begin with what compose declares."""
        self.graph = self.graph_type()
        # The graph of the application that it is a part of, once that has its operators.
        self.graph_of_whole: Graph | None = None
        self.names: dict[str, int] = {}
        # Of the class ThreadPool, whose module imports this one.
        self.thread_pools: list[Any] = []
        self.green_contexts: Any = None
        # The segments that compose declared, and the options of those to be found (`headrace.capture`).
        self.segments: list[Any] = []
        self.chain_options: dict[str, Any] | None = None
        # The settings of the environment, for a program without a configuration, and those that operators took.
        self.environment_settings = environment_parameters()
        self.taken_settings: set[str] = set()
        # The parameters of conditions and resources, by their names, if anything is set.
        self.settable: dict[str, list[str]] = {}
        self.composed_data_loggers: list[Any] = []
        self.composed_services = Services()
        self.start_operator: Operator | None = None
        self.stream_shares: list[tuple[Operator, ...]] = []

    def check_place(self, end: End) -> None:
        """Raise if an operator or a subgraph was not created in this fragment or subgraph."""
        owner = owner_of(end)
        check_member(self.root, owner, or_subgraph=True)
        place = owner._headrace.place
        if place is not self.composition:
            what = f"{owner._headrace.noun} {owner.name!r}"
            inside = f"{place.name!r}" if place is place._headrace.root else f"subgraph {place.name!r}"
            root = self.root._headrace
            if root.made is None and root.engine is not None:
                raise GraphError(
                    f"{what} was created in {inside} and cannot be connected in {self.composition.name!r}: a "
                    "subgraph does not change in a run; connect a port that it has, as in subgraph['port'] >> "
                    "operator"
                )
            raise GraphError(
                f"{what} was created in {inside} and cannot be connected in {self.composition.name!r}: a flow into "
                "a subgraph or out of it goes through a port of the subgraph, which its compose declares by "
                "add_input('name', operator['port']) or add_output('name', operator['port'])"
            )

    def undeclared_flow(self, source: Operator, output: str, target: Any, input_: str) -> Flow:
        """Return a dynamic flow that `add_flow` did not declare, or raise."""
        where = f"operator {source.name!r}: add_dynamic_flow"
        if self.composition.allows_undeclared_flows:
            ports = {(output, input_)} if output or input_ else None
            if not input_ and not target.spec.inputs:
                ports = {(output or OUTPUT_EXEC, INPUT_EXEC)}
            return self.composition.graph.flows_between(source, target, ports, None, None)[0]
        declared = ", ".join(map(str, source._headrace.outgoing)) or "none"
        wanted = f"{source.name}.{output} -> " if output else ""
        raise GraphError(
            f"{where}: there is no flow {wanted or 'to '}{getattr(target, 'name', target)!r}"
            f"{f' input {input_!r}' if input_ else ''}; compose declares the flows that may be chosen, by "
            f"add_flow or then; there are {declared}"
        )

    def all_services(self) -> list[object]:
        """Return every service of a run."""
        return [*self.services.all(), *self.composed_services.all()]

    # What a program may set, or ask for, under the same name.

    @property
    def stop_timeout(self) -> Any:
        """How long a run may take to stop."""
        return self.composition.stop_timeout

    @property
    def stream_per(self) -> str:
        """Which operators share a stream."""
        return self.composition.stream_per

    @property
    def max_in_flight(self) -> int:
        """The maximum number of unfinished computes of an operator that does not set its own."""
        return self.composition.max_in_flight

    @property
    def run_id(self) -> str:
        """The name of the run in progress, or else of the last run."""
        return self.last_run_id

    @property
    def every_data_logger(self) -> list[Any]:
        """The loggers that were added."""
        return [*self.data_loggers, *self.composed_data_loggers]

    @property
    def parameter_settings(self) -> dict[str, Setting]:
        """The values that options and the environment set for parameters of operators and subgraphs."""
        return self.environment_settings if self.config is None else self.config.parameters

    def set_parameters(self, owner: Any, noun: str, component: str = "") -> dict[str, Any]:
        """Return the values that were set for parameters of an operator or a subgraph, which takes them now.

        Or for those of a condition or a resource, whose name in the whole fragment is `component`.
        """
        settings = self.parameter_settings
        found: dict[str, Any] = {}
        if not settings:
            return found
        spec, name = owner.spec, component or owner.name
        spec.expect_types(owner)
        if component:
            self.settable.setdefault(name, []).extend(spec.params)
        for parameter in spec.params.values():
            key = setting_name(f"{name}.{parameter.name}")
            if key not in settings:
                continue
            setting = settings[key]
            if component and key in self.taken_settings:
                raise ConfigError(
                    f"{setting.origin}: several are called {name!r}; give each a name of its own: name=..."
                )
            try:
                parameter.checked(setting.value, f"{noun} {owner.name!r}")
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{setting.origin}: {error}") from None
            found[parameter.name] = setting.value
            self.taken_settings.add(key)
        return found

    def origins_of(self, name: str, parameters: Iterable[str]) -> str:
        """Return what set parameters of a condition or a resource."""
        keys = (setting_name(f"{name}.{each}") for each in parameters)
        return ", ".join(self.parameter_settings[key].origin for key in keys)

    def check_settings(self, made: list[Operator]) -> None:
        """Raise ConfigError if something was set that exists neither in the configuration nor in the program."""
        for key, setting in self.parameter_settings.items():
            if key in self.taken_settings:
                continue
            named, _, parameter = setting.key.rpartition(".")
            operators = {operator.name: operator for operator in made}
            if named in operators:
                why = absent(f"operator {named!r}", "parameter", parameter, operators[named].spec.params)
            elif named in self.composition.graph.subgraphs:
                inside = self.composition.graph.subgraphs[named]
                why = absent(f"subgraph {named!r}", "parameter", parameter, inside._headrace.spec.params)
            elif named in self.settable:
                why = absent(repr(named), "parameter", parameter, self.settable[named])
            else:
                why = f"there is no operator {named!r}; there are {choices(operators, named)}"
            raise ConfigError(
                f"{setting.origin}: {why}" + (f" ({setting.missing})" if setting.missing else "")
            )

    def configuration(self) -> Config:
        """Return the configuration; raise if there is none."""
        if self.config is None:
            if not Config.is_named_outside():
                raise RuntimeError(
                    f"{self.composition.name!r} has no configuration: call config('file.yaml') first, or "
                    "config({'section': {'key': value}})"
                )
            self.config = Config(None)
        return self.config

    def compose_graph(self) -> list[Operator]:
        """Call `compose` for a new graph, and return the operators that it created."""
        self.begin_graph()
        made: list[Operator] = []
        self.made, self.composing_on = made, get_ident()
        try:
            self.composition.compose()
            made += self.compose_more()
            self.check_settings(made)
            for operator in made:
                operator._headrace.recall_values()
        finally:
            self.made, self.composing_on = None, 0
        return made

    def compose_more(self) -> list[Operator]:
        """Compose and declare what the layers above know besides; return the operators of fragments in this one."""
        return []

    def complete_graph(self, check_resources: Callable[[], None]) -> None:
        """Complete a graph that was checked; the layers above leave out, replace and find operators in it."""
        check_resources()

    def report_mistake(self, error: Exception) -> None:
        """Raise an error of the program that a run could go on with; a subclass may let it pass."""
        raise error from None

    def report(self, mistake: str) -> None:
        """Report a mistake in the graph."""
        self.report_mistake(GraphError(mistake))

    def order_of_stops(
        self, started: list[Operator], ended: list[Operator], errors: list[BaseException]
    ) -> list[Operator]:
        """Return the operators that a run started in the order in which it stops them: the last one first.

        `ended` are those that ended by themselves, in the order of their ends, and `errors` those of the run.
        """
        return started[::-1]

    def check_composing(self, call: str) -> None:
        """Raise if compose is not running: every run composes its graph anew, and does not change it then."""
        if self.made is not None:
            return
        if self.run_control.set_elsewhere is not None:
            raise GraphError(
                f"{call} of {self.composition.name!r}, whose operators run in processes of their own: the graph of "
                "a fragment is changed in its process, by one of its operators"
            )
        if self.engine is not None:
            raise GraphError(
                f"{call} of {self.composition.name!r}, which is running: call it in compose(), which every run "
                "calls to make its graph; a run takes only new operators of the application itself and flows "
                "between these (a >> b, add_flow, add_operator)"
            )
        raise GraphError(
            f"{call} of {self.composition.name!r}, which is not being composed: call it in compose(), which every "
            "run calls to make its graph; a graph that is there is not changed"
        )

    def changes_of_run(self, call: str) -> Any:
        """Return what changes the graph of the run in progress; None while composing; raise without either."""
        if self.made is None and self.run_control.changes is not None:
            return self.run_control.changes
        self.check_composing(call)
        return None

    @property
    def is_composing_here(self) -> bool:
        """Whether this is the thread that runs compose now."""
        return self.composing_on == get_ident()

    @property
    def run_control(self) -> RunControl:
        """The control of the run in progress; without one, a control that has no effect."""
        return self.controls.get("run") or RunControl.of_no_run()

    @property
    def engine(self) -> Any:
        """The engine of the run in progress, or None."""
        return self.run_control.engine

    def find_operator(self, name: str) -> Operator:
        """Return the operator that its operators mean by a name."""
        return self.composition.graph.find(name)

    def claim(self, control: RunControl) -> None:
        """Use this fragment for what `control` controls alone, or raise if it is in use."""
        holder = self.controls.setdefault("run", control)
        if holder is not control:
            raise RuntimeError(
                f"{self.composition.name!r} {holder.doing} already: one run at a time. Wait for its end, or "
                "end it by stop_execution(), from outside of its compose and its operators; for two runs side "
                "by side make two applications"
            )
        if control.is_run:
            self.last_run_id = control.run_id
        RUNNING.add(self.composition)

    def release(self, control: RunControl) -> None:
        """End the use of this fragment that `control` controls, if that is the current use."""
        if self.controls.get("run") is control:
            del self.controls["run"]
            RUNNING.discard(self.composition)
            control.end()

    @property
    def root(self) -> Composition:
        """The fragment; another one than this object if this is a subgraph."""
        return self.composition

    @property
    def whole(self) -> Composition:
        """What runs: this fragment, or the application that it is a part of."""
        return self.composition

    def qualified(self, name: str) -> str:
        """Return the name that an operator of this name has in the whole fragment."""
        return name

    def unused_name(self, base: str) -> str:
        """Return a name that no operator has yet."""
        number = self.names[base] = self.names.get(base, 0) + 1
        return base if number == 1 else f"{base}_{number}"


def _keywords_of(kind: type) -> list[str]:
    """Return the keywords of a class, with those that it passes on to its bases."""
    found: list[str] = []
    for init in (vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)):
        _, *taken = inspect.signature(init).parameters.values()
        found += [each.name for each in taken if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        if not any(each.kind is each.VAR_KEYWORD for each in taken):
            break
    return list(dict.fromkeys(found))


class Composition:
    """The operators of a fragment, the flows between them, and their settings."""

    stop_timeout: Duration | None = None
    """How long a run may take to stop, in real time: ``"10s"``, seconds (float) or a timedelta. If it takes longer,
    `run` raises :class:`StuckError`, and leaves what still runs alone. None waits for ever. It is read when a run
    begins; ``HEADRACE_STOP_TIMEOUT`` takes precedence."""

    max_in_flight: int = 8
    """The maximum number of unfinished computes of one operator, unless the operator sets its own."""
    stream_per: str = "operator"
    """Which operators share a stream: none (``"operator"``), those of a chain (``"branch"``: every fork and
    every join begins another), or all that take their streams from the same pool or slice (``"program"``)."""
    count_messages: bool = False
    """Whether a run counts the messages of every port for its outcome; this slows down every `emit`."""

    passes_acquisition_times_on: ClassVar[bool] = True
    """Whether what an operator emits carries the oldest acquisition time of what it received."""

    _headrace = Inner(InnerComposition)

    def __init__(self, name: str = "", *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            known = choices(_keywords_of(type(self)), next(iter(kwargs), ""))
            raise TypeError(
                f"{type(self).__name__} does not take {', '.join([*map(repr, args), *map(repr, kwargs)])} (an "
                f"__init__ of its own, which calls super().__init__(), can take more); it takes {known}"
            )
        self.name = name or type(self).__name__
        self._headrace.begin_graph()
        self.metadata_policy = MetadataPolicy.DEFAULT
        """The policy of operators that do not set their own."""

    # Methods that a subclass overrides.

    def compose(self) -> None:
        """Create the operators and connect them; every run calls it."""

    @property
    def graph(self) -> Graph:
        """The operators and flows of the last `compose`, and of what was changed in its run."""
        whole = self._headrace.graph_of_whole
        return self._headrace.graph if whole is None else whole.part(self)

    # Methods that compose calls.

    def share_stream(self, *operators: Operator) -> None:
        """Let operators work on one stream, whatever `stream_per` says.

        Their work never overlaps. What they send each other needs neither an event nor a wait. They take
        their streams from the same pool or slice.
        """
        from headrace.core.operator import Operator

        for operator in operators:
            if not isinstance(operator, Operator):
                raise GraphError(f"share_stream takes operators, not {operator!r:.80}")
            if operator.fragment is not self._headrace.root:
                raise GraphError(
                    f"share_stream: operator {operator.name!r} belongs to {operator.fragment.name!r}, not to "
                    f"{self.name!r}"
                )
            if operator._headrace.node is not None:
                raise GraphError(
                    f"share_stream: operator {operator.name!r} runs already, and keeps its stream; share a stream "
                    "in compose, or among operators before they join the run"
                )
            for share in self._headrace.root._headrace.stream_shares:
                if operator in share:
                    others = choices(each.name for each in share if each is not operator)
                    raise GraphError(
                        f"share_stream: operator {operator.name!r} shares a stream already, with {others}; name "
                        "all of them in one call"
                    )
        if len(set(operators)) < 2:
            raise GraphError("share_stream takes two operators or more, each once")
        self._headrace.root._headrace.stream_shares.append(tuple(operators))

    def add_operator(self, op: Operator) -> None:
        """Add an operator that is not connected; `add_flow` adds the operators that it connects.

        While the fragment runs, it starts the operator.
        """
        check_member(self._headrace.root, op)
        self._headrace.check_place(op)
        changes = self._headrace.changes_of_run(f"add_operator({op.name!r})")
        if changes is None:
            self.graph.add(op)
        else:
            changes.add_operator(op)

    def add_flow(
        self,
        upstream_op: Ends,
        downstream_op: Ends,
        port_pairs: PortPairs | Ends | None = None,
        *more: Ends,
        size: int | None = None,
        policy: IOSpec.QueuePolicy | None = None,
    ) -> None:
        """Connect outputs of one operator to inputs of another, or several operators in a chain.

        ``a >> b >> c`` is short for ``add_flow(a, b, c)``. Instead of an operator there may be a subgraph, a port
        of either (``a["out"]``), and a tuple of these: ``add_flow(a, (b, c))`` sends every message to both.

        It is called in compose, or while the fragment runs. In a run it may be called from any thread and from
        computes. It starts the operators that are new, returns, and takes effect before the next compute of any
        operator (`wait_until_changed`).

        Parameters
        ----------
        upstream_op, downstream_op
            The operators.
        port_pairs
            A set of ``(output, input)`` pairs or a dict ``{output: input}`` or ``{output: {input, ...}}``;
            not needed where there is one output and one input. An input with ``ConditionType.NONE`` is optional
            and does not count. Or the third operator of a chain, after which more may follow.
        size
            The number of messages that may wait at the input, if it is more than the input's own ``size``. It
            changes neither what `receive` returns nor when the operator runs.
        policy
            What the queue does when it is full, unless the input declares it: ``POP`` drops the oldest message,
            ``REJECT`` the new one, ``FAULT`` raises an error. ``LATEST`` keeps the newest message, to be received
            any number of times. The producer does not wait for room in a queue that drops.
        """
        chain: list[Any] = [upstream_op, downstream_op]
        pairs: Any = port_pairs
        if more or are_ends(pairs):
            chain += [pairs, *more]
            pairs = None
        for end in (end for ends in chain for end in ends_of(ends)):
            self._headrace.check_place(end)
        call = f"add_flow({', '.join(map(name_of, chain))})"
        changes = self._headrace.changes_of_run(call)
        links = [
            (source, target)
            for sources, targets in pairwise(chain)
            for source in ends_of(sources)
            for target in ends_of(targets)
        ]
        if changes is None:
            for source, target in links:
                self.graph.connect(source, target, pairs, size, policy)
        else:
            found = [self.graph.flows_between(*link, pairs, size, policy) for link in links]
            changes.add_flows(call, [flow for flows in found for flow in flows])

    def remove_flow(
        self, upstream_op: Operator, downstream_op: Operator, port_pairs: PortPairs | None = None
    ) -> None:
        """Disconnect two operators while they run, at all ports or at those of `port_pairs`; from any thread.

        It returns at once, and takes effect before the next compute of any operator. Messages that were sent
        before are still received. In compose, it removes what `add_flow` connected.
        """
        check_member(self._headrace.root, upstream_op)
        check_member(self._headrace.root, downstream_op)
        changes = self._headrace.changes_of_run(f"remove_flow({upstream_op.name!r}, {downstream_op.name!r})")
        if changes is None:
            self.graph.disconnect(upstream_op, downstream_op, port_pairs)
        else:
            changes.remove_flow(upstream_op, downstream_op, port_pairs)

    def set_dynamic_flows(self, op: Operator, dynamic_flow_func: Callable[[Any], object]) -> None:
        """Let a function choose after each compute of an operator where the messages of that compute go.

        Parameters
        ----------
        op
            The operator.
        dynamic_flow_func
            Called with the operator after each of its computes; calls :meth:`Operator.add_dynamic_flow` for each
            flow to be used. What the compute emitted goes along these flows only. Without any, it is dropped and
            counted.
        """
        check_member(self._headrace.root, op)
        self._headrace.check_composing(f"set_dynamic_flows({op.name!r}, ...)")
        if not callable(dynamic_flow_func):
            raise TypeError(
                f"set_dynamic_flows({op.name!r}, ...) takes a function of the operator, not {dynamic_flow_func!r}"
            )
        op._headrace.dynamic_flows = DynamicFlows(op, dynamic_flow_func)
        if self._headrace.root.allows_undeclared_flows:
            op.spec.add_execution_port(OUTPUT_EXEC)

    allows_undeclared_flows: ClassVar[bool] = False
    """Whether a dynamic flow may lead along ports that `add_flow` did not connect."""

    def wait_until_changed(self, timeout: float | None = None) -> bool:
        """Wait until the run has made all changes of its graph so far; not from inside an operator.

        Returns False if that is not so after `timeout` seconds, or if the run ends before.
        """
        changes = self._headrace.run_control.changes
        return changes is not None and bool(changes.wait(timeout))

    # Services.

    def register_service(self, service: object, id: str = "") -> None:  # noqa: A002 (the SDK's name)
        """Let the operators find an object by its type (`service`); in compose, or before `run`.

        A service that compose registers is found in that run alone. A :class:`Resource` among them is initialized
        and released with the resources of the operators.

        Parameters
        ----------
        service
            The object. One of the same type and id that was registered before is replaced.
        id
            Tells services of one type apart. A resource is found by its name, too.
        """
        root = self._headrace.root
        if root._headrace.engine is not None and isinstance(service, Resource):
            raise GraphError(
                f"register_service({service!r}) of {root.name!r}, which is running: a resource is initialized with "
                "the run; register it in compose(), or before run()"
            )
        in_run = root._headrace.controls.get("run") is not None
        services = root._headrace.composed_services if in_run else root._headrace.services
        services.add(service, id, service.name if isinstance(service, Resource) else "")

    def service(self, service_type: type[S], id: str = "") -> S | None:  # noqa: A002
        """Return the service of a type, or None if none was registered; may be called from any thread.

        Parameters
        ----------
        service_type
            The type of the service, or one that it derives from.
        id
            The id that it was registered with, or the name of a resource.
        """
        root = self._headrace.root
        found = root._headrace.composed_services.find(service_type, id)
        return root._headrace.services.find(service_type, id) if found is None else found

    @property
    def segments(self) -> list[Any]:
        """The segments of the last `compose`."""
        return self._headrace.segments

    # What the layers above supply.

    def scheduler(self) -> Any:
        """Return the scheduler of its runs."""
        raise NotImplementedError

    def get_default_green_context_pool(self) -> Any:
        """Return the pool that `Fragment.add_default_green_context_pool` created, or None."""
        return self._headrace.green_contexts

    @property
    def data_loggers(self) -> list[Any]:
        """The loggers that were added."""
        return self._headrace.every_data_logger

    # The configuration.

    def config(self, config_file: Settings | None = None) -> Config | None:
        """Read the settings of a YAML file or a dict, if one is given, and return the configuration in use.

        The environment may name another file (``HEADRACE_CONFIG=file.yaml``) and set single values
        (``HEADRACE_SET_camera__fps=30``).
        """
        if config_file is not None:
            self._headrace.config = Config(config_file)
        return self._headrace.config

    def config_keys(self) -> set[str]:
        """Return every key of the configuration."""
        return self._headrace.configuration().keys()

    def from_config(self, key: str) -> Any:
        """Return a section of the configuration as an :class:`ArgList`, or a single value as itself."""
        return self._headrace.configuration().arguments(key)

    def kwargs(self, key: str) -> dict[str, Any]:
        """Return a section of the configuration as keyword arguments."""
        return self._headrace.configuration().keywords(key)

    # Metadata.

    @property
    def is_metadata_enabled(self) -> bool:
        """Whether metadata travels with messages."""
        return self._headrace.metadata_enabled

    @is_metadata_enabled.setter
    def is_metadata_enabled(self, enabled: bool) -> None:
        self._headrace.metadata_enabled = boolean(enabled, f"{self.name!r}: whether metadata is enabled")

    def enable_metadata(self, enabled: bool) -> None:
        """Turn metadata on or off for every operator that does not set it itself."""
        self.is_metadata_enabled = enabled

    # Composing.

    @property
    def run_id(self) -> str:
        """The name of the run in progress, or else of the last run: no other run has it. Empty before the first."""
        return self._headrace.run_id

    @property
    def outcome(self) -> Outcome | None:
        """How the last run ended, even if it raised; None before the first run, and if `compose` raised."""
        return self._headrace.outcome

    def stop_execution(self, op_name: str = "") -> None:
        """Stop one operator, or the whole run; may be called from any thread.

        A stop during composing or starting takes effect before the first operator runs.
        """
        if op_name:
            self._headrace.find_operator(op_name).stop_execution()
        else:
            self._headrace.run_control.stop()

    def fail(self, error: BaseException) -> None:
        """End the run with an error that comes from outside of its operators; may be called from any thread.

        `run` stops every operator and raises `error` itself, and the outcome says ``failed``. Without a run it
        does nothing. An error of an operator that ended the run before comes first.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"{self.name!r}: fail takes an exception, not {error!r}")
        self._headrace.run_control.fail(error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
