"""Composition: the operators and flows that `compose` declares, and the settings that they share.

It is the part of a fragment that operators, the runtime and watchers know. It declares and does not run:
`headrace.application` derives `Fragment` and `Application` from it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.core.booleans import boolean
from headrace.core.config import Config
from headrace.core.construction import known_keywords
from headrace.core.errors import GraphError, choices
from headrace.core.execution import DynamicFlows
from headrace.core.graph import PortPairs, check_member
from headrace.core.inner import Inner
from headrace.core.inner_composition import InnerComposition
from headrace.core.metadata import MetadataPolicy
from headrace.core.ports import OUTPUT_EXEC
from headrace.core.resource import Resource
from headrace.core.wiring import are_ends, ends_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.config import Settings
    from headrace.core.durations import Duration
    from headrace.core.graph import Graph
    from headrace.core.operator import Operator
    from headrace.core.outcome import Outcome
    from headrace.core.ports import IOSpec
    from headrace.core.wiring import Ends

S = TypeVar("S")


class Composition:
    """The operators of a fragment, the flows between them, and their settings."""

    stop_timeout: Duration | None = None
    """How long a run may take to stop, in real time: ``"10s"``, seconds (float) or a timedelta. If it takes longer,
    `run` raises :class:`StuckError`, and leaves what still runs alone. None waits for ever. It is read when a run
    begins; ``HEADRACE_STOP_TIMEOUT`` takes precedence."""

    max_in_flight: int = 8
    """The maximum number of unfinished computes of one operator, unless the operator sets its own."""
    stream_per: str = "auto"
    """Whether plain code has a stream for each operator (``"operator"``), for each chain of operators
    (``"branch"``), or for all connected operators until the device falls behind the host (``"auto"``)."""
    count_messages: bool = False
    """Whether a run counts the messages of every port for its outcome; this slows down every `emit`."""

    passes_acquisition_times_on: ClassVar[bool] = True
    """Whether what an operator emits carries the oldest acquisition time of what it received."""

    graph: Graph
    """The operators and flows of the last `compose`."""
    _headrace = Inner(InnerComposition)

    def __init__(self, name: str = "", *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            known = choices(known_keywords(type(self)), next(iter(kwargs), ""))
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

    # Methods that compose calls.

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
            not needed where there is one output and one input. An input with ``ConditionType.NONE`` is optional and
            does not count. Or the third operator of a chain, after which more may follow.
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

    def make_default_stream_source(self) -> Any:
        """Create the runtime's source of streams for operators that were given none."""
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

        `run` stops every operator and raises `error` itself, and the outcome says ``failed``. Without a run it does
        nothing. An error of an operator that ended the run before comes first.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"{self.name!r}: fail takes an exception, not {error!r}")
        self._headrace.run_control.fail(error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
