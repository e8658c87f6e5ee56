"""Fragment: a graph of operators that one scheduler runs."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace.core.booleans import boolean
from headrace.core.checks import check, check_member, check_resources, check_scheduler
from headrace.core.claim import Claim
from headrace.core.config import Config
from headrace.core.construction import known_keywords
from headrace.core.drawing import draw
from headrace.core.errors import GraphError, choices
from headrace.core.graph import Graph, PortPairs
from headrace.core.metadata import MetadataPolicy
from headrace.core.port_counts import count_by_port
from headrace.core.registry import registry
from headrace.core.thread_pool import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from headrace.core.clock import Duration
    from headrace.core.config import Settings
    from headrace.core.operator import Operator
    from headrace.core.outcome import Outcome
    from headrace.core.ports import IOSpec
    from headrace.core.progress import Progress
    from headrace.core.protocols import Engine, GreenContextPool, Segment
    from headrace.core.scheduler import Scheduler

__all__ = ["Fragment"]


class Fragment:
    """A graph of operators; subclass it (or :class:`Application`) and write `compose`."""

    def __init__(self, name: str = "", *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            known = choices(known_keywords(type(self)), next(iter(kwargs), ""))
            raise TypeError(
                f"{type(self).__name__} does not take {', '.join([*map(repr, args), *map(repr, kwargs)])} (an "
                f"__init__ of its own, which calls super().__init__(), can take more); it takes {known}"
            )
        self.name = name or type(self).__name__
        self._graph = Graph()
        self._scheduler: Scheduler | None = None
        self._config: Config | None = None
        self._metadata_enabled = True
        self._metadata_policy = MetadataPolicy.DEFAULT
        self._thread_pools: list[ThreadPool] = []
        self._green_contexts: GreenContextPool | None = None
        self._segments: list[Any] = []
        self._chain_options: dict[str, Any] | None = None
        self.max_in_flight = 8
        """The maximum number of unfinished computes of one operator, unless the operator sets its own."""
        self._names: dict[str, int] = {}
        self.count_messages = False
        """Whether a run counts the messages of every port for its outcome; this slows down every `emit`."""
        # The operators that compose has created; None while compose is not running. And the thread that composes.
        self._made: list[Operator] | None = None
        self._composing_on = 0
        # The current use of the fragment, under "run". A dict, because its setdefault is atomic.
        self._claims: dict[str, Claim] = {}
        self._outcome: Outcome | None = None
        # Those who watch its runs, the loggers of its data, and the recording that it plays (`headrace.observe`).
        self._watchers: list[Any] = []
        self._data_loggers: list[Any] = []
        self._composed_data_loggers: list[Any] = []
        self._replay: Any = None
        # Live parameters that were changed outside of a run, by operator and parameter.
        self._live_values: dict[tuple[str, str], Any] = {}
        # The same for knobs.
        self._knob_values: dict[tuple[str, str], Any] = {}

    # Methods that a subclass overrides.

    def compose(self) -> None:
        """Create the operators and connect them; every run calls it."""

    # Methods that compose calls.

    def add_operator(self, op: Operator) -> None:
        """Add an operator that is not connected; `add_flow` adds the operators that it connects."""
        check_member(self, op)
        self._check_composing(f"add_operator({op.name!r})")
        self._graph.add(op)

    def add_flow(
        self,
        upstream_op: Operator,
        downstream_op: Operator,
        port_pairs: PortPairs | None = None,
        *,
        size: int | None = None,
        policy: IOSpec.QueuePolicy | None = None,
    ) -> None:
        """Connect outputs of one operator to inputs of another.

        Parameters
        ----------
        upstream_op, downstream_op
            The operators.
        port_pairs
            A set of ``(output, input)`` pairs or a dict ``{output: input}`` or ``{output: {input, ...}}``;
            not needed where there is one output and one input.
        size
            The number of messages that may wait at the input, if it is more than the input's own ``size``. It
            changes neither what `receive` returns nor when the operator runs.
        policy
            What the queue does when it is full, unless the input declares it: ``POP`` drops the oldest message,
            ``REJECT`` the new one, ``FAULT`` raises an error. The producer does not wait for room in a queue that
            drops.
        """
        check_member(self, upstream_op)
        check_member(self, downstream_op)
        self._check_composing(f"add_flow({upstream_op.name!r}, {downstream_op.name!r})")
        self._graph.connect(upstream_op, downstream_op, port_pairs, size, policy)

    def capture(
        self,
        *operators: Operator,
        name: str = "",
        warmup: int = 1,
        check_every: float | None = 1.0,
        shapes: int = 4,
        outputs: str = "copy",
        slots: int = 4,
        strict: bool = False,
    ) -> Segment:
        """Replay connected operators as one CUDA graph, which is recorded once.

        Each of them says ``capturable = True`` (:attr:`Operator.capturable`). To the scheduler they are one
        operator, which waits for a message at each input from outside. If they cannot be captured they run as
        without capture, with one :class:`headrace.capture.CaptureRefused` warning that says why.
        ``HEADRACE_CAPTURE`` changes this without changing the program: ``off`` captures nothing, ``verify``
        compares every frame, ``strict`` makes a refusal an error, ``auto`` captures every chain, as
        `capture_chains` does.

        Parameters
        ----------
        *operators
            The operators.
        name
            The name of the segment.
        warmup
            The number of frames of each kind that run as without capture before one is recorded: libraries load
            kernels and make handles then.
        check_every
            After how many seconds of the run's clock a replay is compared with a compute of the same frame; 0
            compares all, None none.
        shapes
            The number of graphs that are kept, one for each shape and type of what enters.
        outputs
            ``"copy"`` to copy what leaves to new memory of its library. ``"ring"`` to send the memory of the graph
            itself: there are several, and the segment waits while all are in use.
        slots
            The number of graphs in the ring.
        strict
            Whether a refusal is an error.
        """
        return registry.capture(
            self,
            operators,
            name,
            warmup=warmup,
            check_every=check_every,
            shapes=shapes,
            outputs=outputs,
            slots=slots,
            strict=strict,
        )

    def capture_chains(self, **options: Any) -> None:
        """Capture every chain of operators that say ``capturable = True``; it takes the options of `capture`."""
        self._check_composing("capture_chains()")
        self._chain_options = options

    @property
    def segments(self) -> list[Any]:
        """The segments of the last `compose`."""
        return self._segments

    def make_thread_pool(self, name: str, initialize_size: int = 1) -> ThreadPool:
        """Create a pool of worker threads that operators can be assigned to."""
        return ThreadPool(self, initialize_size, name=name)

    def add_default_green_context_pool(
        self,
        dev_id: int = 0,
        sms_per_partition: Sequence[int] | Mapping[str, int] = (),
        default_context_index: int | str = -1,
        min_sm_size: int = 2,
        num_partitions: int = 0,
    ) -> GreenContextPool:
        """Divide a device for this fragment; operators without a stream pool use its default partition.

        It takes the parameters of :class:`headrace.resources.CudaGreenContextPool` and returns one.
        """
        if self._green_contexts is not None:
            raise GraphError(f"{self.name!r} has a default green context pool already")
        self._green_contexts = registry.green_context_pool(
            self,
            dev_id,
            num_partitions=num_partitions,
            sms_per_partition=sms_per_partition,
            default_context_index=default_context_index,
            min_sm_size=min_sm_size,
            name="default_green_context_pool",
        )
        return self._green_contexts

    def make_default_stream_source(self) -> Any:
        """Create the runtime's source of streams for operators that were given none.

        It is the default pool of green contexts if the fragment has one. Otherwise it is a pool of any number of
        streams that may use every SM.
        """
        if self._green_contexts is not None:
            return self._green_contexts
        return registry.default_streams(self)

    def get_default_green_context_pool(self) -> GreenContextPool | None:
        """Return the pool that `add_default_green_context_pool` created, or None."""
        return self._green_contexts

    def add_data_logger(self, logger: Any) -> None:
        """Show every message that an operator emits or receives to a logger; in compose, or before `run`.

        A logger is a :class:`headrace.observe.DataLogger`. One that compose adds is used in that run alone.
        """
        registry.check_data_logger(self, logger)
        (self._composed_data_loggers if self._is_composing_here else self._data_loggers).append(logger)

    @property
    def data_loggers(self) -> list[Any]:
        """The loggers that were added."""
        return [*self._data_loggers, *self._composed_data_loggers]

    def scheduler(self, scheduler: Scheduler | None = None) -> Scheduler:
        """Set the scheduler, if one is given, and return the one in use (a `DefaultScheduler` unless set)."""
        if scheduler is not None:
            check_scheduler(scheduler)
            self._scheduler = scheduler
        if self._scheduler is None:
            self._scheduler = registry.default_scheduler(self)
        return self._scheduler

    def config(self, config_file: Settings | None = None) -> Config | None:
        """Read the settings of a YAML file or a dict, if one is given, and return the configuration in use.

        The environment may name another file (``HEADRACE_CONFIG=file.yaml``) and set single values
        (``HEADRACE_SET_camera__fps=30``).
        """
        if config_file is not None:
            self._config = Config(config_file)
        return self._config

    def config_keys(self) -> set[str]:
        """Return every key of the configuration."""
        return self._configuration().keys()

    def from_config(self, key: str) -> Any:
        """Return a section of the configuration as an :class:`ArgList`, or a single value as itself."""
        return self._configuration().arguments(key)

    def kwargs(self, key: str) -> dict[str, Any]:
        """Return a section of the configuration as keyword arguments."""
        return self._configuration().keywords(key)

    def _configuration(self) -> Config:
        if self._config is None:
            if not Config.is_named_outside():
                raise RuntimeError(
                    f"{self.name!r} has no configuration: call config('file.yaml') first, or "
                    "config({'section': {'key': value}})"
                )
            self._config = Config(None)
        return self._config

    # Metadata.

    @property
    def is_metadata_enabled(self) -> bool:
        """Whether metadata travels with messages."""
        return self._metadata_enabled

    @is_metadata_enabled.setter
    def is_metadata_enabled(self, enabled: bool) -> None:
        self._metadata_enabled = boolean(enabled, f"{self.name!r}: whether metadata is enabled")

    def enable_metadata(self, enabled: bool) -> None:
        """Turn metadata on or off for every operator that does not set it itself."""
        self.is_metadata_enabled = enabled

    @property
    def metadata_policy(self) -> MetadataPolicy:
        """The policy of operators that do not set their own."""
        return self._metadata_policy

    @metadata_policy.setter
    def metadata_policy(self, policy: MetadataPolicy) -> None:
        self._metadata_policy = policy

    # Running.

    @property
    def graph(self) -> Graph:
        """The operators and flows of the last `compose`."""
        return self._graph

    def compose_graph(self) -> Graph:
        """Compose and check the graph without running it."""
        claim = Claim("is being composed")
        try:
            self._claim(claim)
            return self._compose_graph()
        finally:
            self._release(claim)

    def _compose_graph(self) -> Graph:
        self._graph = Graph()
        self._names = {}
        self._thread_pools = []
        self._green_contexts = None
        self._segments = []
        self._chain_options = None
        self._composed_data_loggers = []
        made: list[Operator] = []
        self._made, self._composing_on = made, get_ident()
        try:
            self.compose()
            self._recall_values(made)
        finally:
            self._made, self._composing_on = None, 0
        check(self._graph, made)
        check_resources(self)
        registry.find_segments(self)
        return self._graph

    def _recall_values(self, made: list[Operator]) -> None:
        """Pass operators the live parameters and knobs that were set outside of a run.

        As a part of composing: what a setter of the program sets meanwhile was not set from outside.
        """
        if self._live_values:
            for operator in made:
                if operator._live is not None:
                    operator._live.recall()
        if self._knob_values:
            for operator in made:
                operator._knobs.recall()

    def _check_composing(self, call: str) -> None:
        """Raise if compose is not running: every run composes its graph anew, and does not change it then."""
        if self._made is not None:
            return
        why = "which is running" if self._engine is not None else "which is not being composed"
        raise GraphError(
            f"{call} of {self.name!r}, {why}: call it in compose(), which every run calls to make its graph; "
            "a graph that is there is not changed"
        )

    @property
    def _is_composing_here(self) -> bool:
        """Whether this is the thread that runs compose now."""
        return self._composing_on == get_ident()

    def draw(self, style: str = "text") -> str:
        """Return the graph drawn in a style, composed first if necessary.

        The styles are ``"text"``, a list; ``"boxes"``, boxes and lines for a terminal; ``"svg"``, a picture with
        ports, queue sizes and slices of the GPU; ``"mermaid"`` and ``"dot"``. Captured segments are groups in it,
        with their names and, after a run, their states.
        """
        if not len(self._graph):
            self.compose_graph()
        return draw(self._graph, style, self._segments)

    def run(self) -> Outcome:
        """Compose the graph, run it to its end, stop every operator, and return how the run ended.

        An exception raised by an operator is raised here unchanged, with a note that names the operator. A fragment
        has one run at a time; a second one raises an error.
        """
        return registry.run(self, Claim("is running"))

    def run_async(self) -> Future[Outcome]:
        """Start `run` on its own thread and return a future for its outcome.

        That thread receives no signals: Ctrl-C raises where the program waits for the future, and the run continues
        until `stop_execution` is called.
        """
        return registry.run_async(self, Claim("is running"))

    # Watching.

    def track(
        self,
        num_start_messages_to_skip: int = 10,
        num_last_messages_to_discard: int = 10,
        latency_threshold: float = 0,
        is_limited_tracking: bool = False,
    ) -> Any:
        """Track the messages of every later run, and return the tracker; in a ``with`` block, of the block's runs.

        It takes the parameters of :class:`headrace.observe.DataFlowTracker` and returns one. A fragment has one
        tracker: calling this again replaces it.
        """
        return registry.track(
            self,
            num_start_messages_to_skip=num_start_messages_to_skip,
            num_last_messages_to_discard=num_last_messages_to_discard,
            latency_threshold=latency_threshold,
            is_limited_tracking=is_limited_tracking,
        )

    def data_flow_tracker(self) -> Any:
        """Return the tracker that `track` made, or None."""
        return registry.tracker_of(self)

    def expect(
        self,
        path: str,
        *,
        mean: Duration | None = None,
        p50: Duration | None = None,
        p95: Duration | None = None,
        p99: Duration | None = None,
        max: Duration | None = None,  # noqa: A002 (the name of the figure)
        on_miss: Callable[[Any], object] | None = None,
    ) -> Any:
        """Set a goal for how long messages take on a path, in every later run.

        Parameters
        ----------
        path
            Two or more operators with ``->`` between them, as in ``"camera->display"``. Operators in between may be
            left out. Time begins with the acquisition or the emission of the first, and ends when the work of the
            last is complete on the device.
        mean, p50, p95, p99, max
            The most that each figure may be; at least one.
        on_miss
            Called with each :class:`headrace.observe.Miss`, on a thread of its own, shortly after the message.

        Returns
        -------
        headrace.observe.Goal
            Counts the messages and the misses, and tells where the time of recent misses went.
        """
        bounds = {"mean": mean, "p50": p50, "p95": p95, "p99": p99, "max": max}
        return registry.expect(self, path, on_miss, bounds)

    @property
    def outcome(self) -> Outcome | None:
        """How the last run ended, even if it raised; None before the first run, and if `compose` raised."""
        return self._outcome

    def stop_execution(self, op_name: str = "") -> None:
        """Stop one operator, or the whole run; may be called from any thread.

        A stop during composing or starting takes effect before the first operator runs.
        """
        if op_name:
            self._graph.find(op_name).stop_execution()
            return
        claim = self._claims.get("run")
        if claim is not None:
            claim.stop()

    def pause(self) -> None:
        """Let no new compute begin in this run; may be called from any thread, and returns at once.

        Without a run it does nothing, as `resume` and `step`.
        Computes that have begun go on to their end (`wait_until_paused` waits for it), and so does the work on the
        device. Virtual time stands still. A paused run does not end by itself, but it can be stopped and
        interrupted. A pause during composing or starting takes effect before the first operator runs.
        """
        claim = self._claims.get("run")
        if claim is not None:
            claim.pause()

    def resume(self) -> None:
        """Let computes begin again; may be called from any thread.

        Ticks that a `PeriodicCondition` missed in the pause count as one, and a source with frames of its own goes
        on with the next one: nothing is made up for. The time in the pause does not count towards the duration of
        the run.
        """
        claim = self._claims.get("run")
        if claim is not None:
            claim.resume()

    def step(self, n: int = 1, op_name: str = "") -> None:
        """Let `n` computes begin, of any operator or of the one named, and pause again; returns at once.

        May be called from any thread; a run that is not paused is paused first. In the step, virtual time goes on
        to the next compute. The step of a named operator waits until that operator can run: it needs its messages,
        and nothing else runs. A step during composing or starting takes place when the run begins.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"{self.name!r}: step takes a number of computes of 1 or more, not {n!r}")
        claim = self._claims.get("run")
        if op_name and (claim is None or claim.engine is not None):
            self._graph.find(op_name)  # raises if there is none; before there is an engine, the run does so
        if claim is not None:
            claim.step(n, op_name)

    @property
    def is_paused(self) -> bool:
        """Whether the run is paused, or was asked to be."""
        claim = self._claims.get("run")
        return claim is not None and claim.pause_wanted

    def wait_until_paused(self, timeout: float | None = None) -> bool:
        """Wait until the run is paused, its steps are done and no operator computes; not from inside an operator.

        Returns False if that is not so after `timeout` seconds, or if the run ends before.
        """
        claim = self._claims.get("run")
        return claim is not None and claim.wait_until_paused(timeout)

    @property
    def _engine(self) -> Engine | None:
        claim = self._claims.get("run")
        return None if claim is None else claim.engine

    def _claim(self, claim: Claim) -> None:
        """Record `claim` as the only use of this fragment, or raise if there is another."""
        holder = self._claims.setdefault("run", claim)
        if holder is not claim:
            raise RuntimeError(
                f"{self.name!r} {holder.doing} already: one run at a time. Wait for its end, or end it by "
                "stop_execution(), from outside of its compose and its operators; for two runs side by side make "
                "two applications"
            )

    def _release(self, claim: Claim) -> None:
        """End the use of this fragment by `claim`, if `claim` is the current use."""
        if self._claims.get("run") is claim:
            del self._claims["run"]
            claim.end()

    def progress(self) -> Progress:
        """Return what the run in progress, or else the last run, has done so far.

        Any thread may call it at any time. It takes no lock, so a run is not slowed down by it. The result is plain
        data.
        """
        from headrace.core.progress import progress_of

        return progress_of(self._graph, self.name, self._engine is not None)

    def dropped(self) -> dict[str, int]:
        """Return the number of messages that each port dropped in the last run, by ``"operator.port"``.

        An input drops messages by the policy of its queue; an unconnected output drops everything that is emitted
        there.
        """
        return count_by_port(self._graph, lambda queue: queue.dropped)

    def undelivered(self) -> dict[str, int]:
        """Return the number of messages that still waited at each input when the last run ended."""
        return count_by_port(self._graph, lambda queue: queue.undelivered)

    def _unused_name(self, base: str) -> str:
        number = self._names[base] = self._names.get(base, 0) + 1
        return base if number == 1 else f"{base}_{number}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
