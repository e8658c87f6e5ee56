"""Fragment: composes and runs as the SDK's, and lets pass what the SDK lets pass."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

from headrace.application import Fragment as _Fragment
from headrace.core import GraphError, OperatorStatus
from headrace.vocabulary import Inner, are_ends, is_optional
from headrace_holoscan import logger, variables  # noqa: F401 (it reads the variables of a run)
from headrace_holoscan.core import data_flow_tracker
from headrace_holoscan.core.composing import ComposedFragment, InnerComposedFragment, connect
from headrace_holoscan.core.configuration import Config
from headrace_holoscan.core.errors import as_runtime_error, fail, raises_runtime_errors
from headrace_holoscan.core.flows import ConnectorType, DeclaresFlows
from headrace_holoscan.core.hidden import Hidden
from headrace_holoscan.core.operator import Operator as _Operator
from headrace_holoscan.core.port_conditions import CONDITION_TYPES
from headrace_holoscan.core.services import ServiceHost
from headrace_holoscan.lenience import tell

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.core import Flow, Graph, Scheduler
    from headrace.core import Operator as AnyOperator
    from headrace.resources import ThreadPool
    from headrace_holoscan.core.data_flow_tracker import DataFlowTracker


class _Start(_Operator):
    """Computes once, and does nothing."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Do nothing."""


def text(name: str) -> Any:
    """Return a property whose value is a str."""

    def assign(self: Any, value: Any) -> None:
        if not isinstance(value, str):
            raise TypeError(f"the {name} of {self!r} is a str, not {value!r}")
        self._headrace.texts[name] = value

    return property(lambda self: self._headrace.texts.get(name, ""), assign)


class InnerFragment(InnerComposedFragment):
    """The state of a fragment, and what the SDK does otherwise."""

    condition_types = CONDITION_TYPES
    start_type = _Start
    start_name = "<|start|>"
    stop_timeout = None
    stream_per = "operator"
    max_in_flight = 8

    def __init__(self, fragment: Any) -> None:
        super().__init__(fragment)
        # The name, the description and the version, as far as the program has set them.
        self.texts: dict[str, str] = {}
        self.was_run = False
        # The operators that computed when the run was stopped.
        self.stopped_in: tuple[AnyOperator, ...] = ()
        self.chosen_file = ""
        self.network_context: Any = None
        # The operators of a graph that was composed, and has not run yet.
        self.composed: list[AnyOperator] | None = None
        self.keeps_graph = False
        # The operators and flows that were added outside of compose.
        self.outside: tuple[list[AnyOperator], list[Flow]] = ([], [])

    def take_names(self, name: str) -> None:
        """Be named as the program says: by the class, or not at all."""
        self.fragment.name = name or class_text(self.fragment, "name")

    def report_mistake(self, error: Exception) -> None:
        """Raise an error of the program that a run could go on with; a subclass may let it pass."""
        tell(f"{_brief(error)}; the program goes on", str(error))

    def order_of_stops(
        self, started: list[AnyOperator], ended: list[AnyOperator], errors: list[BaseException]
    ) -> list[AnyOperator]:
        """Return the operators that a run started in the order in which it stops them: the last one first."""
        # The SDK stops an operator as soon as it has ended or failed. Workers stop the others in the order of the
        # graph, and so does the greedy scheduler after an error. Without one, it begins at the end of the graph or,
        # if an operator stopped the run, behind that operator.
        failed = [operator for operator in started if _raised(operator, errors)]
        # It does not stop one whose start has raised.
        started = [each for each in started if each._headrace.run_phase is not OperatorStatus.START_PENDING]
        first = [operator for operator in (*ended, *failed) if operator in started]
        rest = [operator for operator in started if operator not in first]
        if errors or self.fragment.scheduler().workers:
            return first + rest
        place = next((rest.index(operator) for operator in self.stopped_in if operator in rest), None)
        return first + (rest[::-1] if place is None else rest[place + 1 :] + rest[: place + 1])

    def configuration(self) -> Config:
        """Return the configuration; raise if there is none."""
        if isinstance(self.config, Config):
            return self.config
        if self.is_part:
            found: Any = self.whole._headrace.configuration()
        else:
            found = self.config = Config("", "", self.chosen_file)
        return cast(Config, found)

    def begin_graph(self) -> None:
        """Begin with what compose declares."""
        logger.follow_environment()
        if not self.is_part:
            data_flow_tracker.follow_environment(self.fragment)
        super().begin_graph()
        self.fragment.graph.rebuild(*self.outside)

    def compose_graph(self) -> list[AnyOperator]:
        """Call `compose` for a new graph, and return the operators that it created."""
        made, self.composed = self.composed, None
        if made is None:
            made = super().compose_graph()
            self.fragment.graph.rebuild(_in_order(self.fragment.graph), self.fragment.graph.flows)
        if self.keeps_graph:
            self.composed = made
        return made

    def check_composing(self, call: str) -> None:
        """Raise if compose is not running: every run composes its graph anew, and does not change it then."""
        if self.made is not None or self.engine is not None:
            super().check_composing(call)

    def keep_outside(self) -> None:
        """Keep what was added outside of compose."""
        if self.made is None and self.engine is None:
            self.outside = list(self.fragment.graph.operators), list(self.fragment.graph.flows)


class Fragment(DeclaresFlows, ComposedFragment, ServiceHost, _Fragment):
    """A graph of operators; subclass it (or Application) and write `compose`.

    Parameters
    ----------
    app
        The application that it is a part of.
    name
        Its name.
    """

    passes_acquisition_times_on = False
    _headrace = Inner(InnerFragment)
    is_paused: Any = Hidden()

    name = text("name")

    def __init__(self, app: Any = None, name: str = "", *args: Any, **kwargs: Any) -> None:
        if isinstance(app, _Fragment) and app.application is not app:
            raise ValueError(
                f"the first argument of {type(self).__name__} must be the Application, not {app!r}"
            )
        if name == "all":
            tell(
                "Fragment name 'all' is reserved", "nothing: --fragments all means every fragment", error=True
            )
        super().__init__(app, name, *args, **kwargs)
        self._headrace.take_names(name)

    def track(self, *args: Any, **options: Any) -> DataFlowTracker:
        """Track the messages of every later run, and return the tracker."""
        from headrace_holoscan.core.tracking import FlowTracker

        tracker = FlowTracker(*args, **options)
        tracker.attach(self)
        return tracker

    def stop_execution(self, op_name: str = "") -> None:
        """Stop one operator, or the whole run; may be called from any thread."""
        engine = self._headrace.engine
        if not op_name and engine is not None:
            self._headrace.stopped_in = tuple(node.operator for node in engine.computing())
        super().stop_execution(op_name)

    def scheduler(self, scheduler: Scheduler | None = None) -> Scheduler:
        """Set the scheduler, if one is given, and return the one in use (a GreedyScheduler unless set)."""
        if scheduler is None and self._headrace.scheduler is None:
            from headrace_holoscan.schedulers import GreedyScheduler

            scheduler = GreedyScheduler(self)
        return super().scheduler(scheduler)

    @property
    def executor(self) -> Any:
        """What runs it."""
        from headrace_holoscan.executors import GXFExecutor

        return GXFExecutor(self)

    def make_thread_pool(self, name: str, initialize_size: int = 1) -> ThreadPool:
        """Create a pool of worker threads that operators can be assigned to."""
        from headrace_holoscan.resources import ThreadPool

        return ThreadPool(self, max(initialize_size, 1), name=name)

    @property
    def application(self) -> Any:
        """The application that it is a part of."""
        return self._headrace.application

    @application.setter
    def application(self, app: Any) -> None:
        self._headrace.application = app

    # The configuration.

    def config(self, config_file: str | Path | Config | None = None, prefix: str = "") -> Config | None:  # type: ignore[override]
        """Read a file of YAML, if one is given; without one, return the configuration in use."""
        if config_file is None:
            return cast(Config, self._headrace.configuration())
        if isinstance(config_file, Config):
            self._headrace.config = config_file
        elif hasattr(config_file, "__fspath__") or isinstance(config_file, str):
            self._headrace.config = Config(config_file, prefix, self._headrace.chosen_file)
        else:
            raise TypeError(f"config() takes the path of a file, not {config_file!r}")
        return None

    def network_context(self, context: Any = None) -> Any:
        """Set the network context, if one is given, which has no effect; return the one that was set."""
        if context is not None:
            self._headrace.network_context = context
            tell(
                "messages between fragments do not pass through a network context",
                "nothing: headrace connects fragments by itself",
            )
        return self._headrace.network_context

    # Composing.

    @raises_runtime_errors
    def compose_graph(self) -> Graph:
        """Compose and check the graph without running it; the next run has this graph."""
        self._headrace.keeps_graph = True
        try:
            return super().compose_graph()
        finally:
            self._headrace.keeps_graph = False

    @raises_runtime_errors
    def add_operator(self, op: Any) -> None:
        """Add an operator that is not connected."""
        _check_ends(op)
        if self.graph.names.get(getattr(op, "name", ""), op) is not op:
            fail(
                f"operator {op.name!r}: another operator has this name (duplicate name); give it another name=..."
            )
        super().add_operator(op)
        self._headrace.keep_outside()

    @raises_runtime_errors
    def add_flow(
        self, upstream_op: Any, downstream_op: Any, port_pairs: Any = None, *more: Any, **options: Any
    ) -> None:
        """Connect two operators; if it is not clear at which ports, they stay unconnected."""
        _check_ends(upstream_op, downstream_op)
        _check_pairs(upstream_op, port_pairs)
        try:
            connect(super().add_flow, upstream_op, downstream_op, port_pairs or None, *more, **options)
        except GraphError as error:
            if port_pairs or not (
                _is_unclear(upstream_op, "outputs") or _is_unclear(downstream_op, "inputs")
            ):
                raise
            tell(f"add_flow({upstream_op.name!r}, {downstream_op.name!r}) adds no flow", str(error))
        self._headrace.keep_outside()

    # Running.

    @raises_runtime_errors
    def run(self) -> None:  # type: ignore[override]
        """Compose the graph, run it to its end and stop every operator."""
        self._headrace.stopped_in = ()
        self._headrace.was_run = True
        super().run()

    def run_async(self) -> Future[None]:  # type: ignore[override]
        """Start `run` on its own thread."""
        self._headrace.was_run = True
        done: Future[None] = Future()
        running = super().run_async()

        def finish(future: Future[Any]) -> None:
            error = future.exception()
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(as_runtime_error(error) if isinstance(error, Exception) else error)

        done.set_running_or_notify_cancel()
        running.add_done_callback(finish)
        return done

    @classmethod
    def shutdown_async_executor(cls) -> None:
        """Do nothing: each asynchronous run has a thread of its own, which ends with it."""

    def __repr__(self) -> str:
        return f"<holoscan.Fragment: name:{self.name}>"


def _in_order(graph: Graph) -> list[AnyOperator]:
    """Return the operators as the SDK runs them: those without inputs first, then those that they send to."""
    waits = {
        operator: {flow.source for flow in operator._headrace.incoming} - {operator} for operator in graph
    }
    order = [operator for operator in waits if not waits[operator]]
    for operator in order:
        for flow in operator._headrace.outgoing:
            if operator in waits[flow.target]:
                waits[flow.target].discard(operator)
                if not waits[flow.target]:
                    order.append(flow.target)
    order += [operator for operator in waits if operator not in order]  # in a loop
    return order


def _check_ends(*ends: Any) -> None:
    for end in ends:
        if not (are_ends(end) or isinstance(end, _Fragment)):
            raise TypeError(f"{end!r} is not an operator")
        if isinstance(end, _Operator) and not hasattr(end, "spec"):
            raise TypeError(f"{type(end).__name__}.__init__ must call super().__init__(fragment, ...)")


def _check_pairs(source: Any, pairs: Any) -> None:
    """Raise for what is no set of names, for an empty one between fragments, and for an unknown output."""
    if pairs is None or isinstance(pairs, ConnectorType):
        return
    if not isinstance(pairs, (set, frozenset)):
        raise TypeError(f"add_flow() takes a set of port names, such as {{('out', 'in')}}, not {pairs!r}")
    if isinstance(source, _Fragment):
        if not pairs:
            fail(f"Unable to add fragment flow with empty port_pairs: {source.name!r} needs a name of a port")
    elif isinstance(source, _Operator):
        for output, _ in pairs:
            if output and output[:2] != "__" and output not in source.spec.every_output:
                fail(
                    f"operator {source.name!r} does not have an output port with label {output!r}; it has "
                    f"{', '.join(map(repr, source.spec.outputs)) or 'none'}"
                )


def class_text(fragment: Any, name: str, default: str = "") -> str:
    """Return what the class of a program says, or else a default."""
    found = getattr(type(fragment), name, default)
    return found if isinstance(found, str) else default


def _raised(operator: AnyOperator, errors: list[BaseException]) -> bool:
    where = f"raised in compute of operator {operator.name!r} "
    return any(note.startswith(where) for error in errors for note in getattr(error, "__notes__", ()))


def _brief(error: Exception) -> str:
    """Return the first part of an error."""
    return str(error).partition(";")[0].partition(", so ")[0]


def _is_unclear(operator: Any, side: str) -> bool:
    """Return whether a flow without port names could lead to several ports of an operator."""
    ports = getattr(getattr(operator._headrace, "spec", None), side, {})
    required = [port for port in ports.values() if side == "outputs" or not is_optional(port)]
    return len(ports) > 1 and len(required) != 1
