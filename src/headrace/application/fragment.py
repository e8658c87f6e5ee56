"""Fragment: a composition that can be run, paused, stepped and watched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.application.runner import Runner, drain
from headrace.brief import brief
from headrace.core.checks import compose
from headrace.core.composition import Composition, InnerComposition
from headrace.core.construction import Inner
from headrace.core.control import RunControl
from headrace.core.errors import GraphError, choices
from headrace.core.operator import Operator
from headrace.core.outcome import count_by_port, progress_of
from headrace.core.ports import IOSpec
from headrace.core.run_options import limits_of_run
from headrace.core.scheduler import Scheduler
from headrace.core.thread_pool import ThreadPool
from headrace.core.values import ON_LOSS, places, whole_number
from headrace.schedulers import DefaultScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from datetime import timedelta

    from headrace.application.reload import Reloaded
    from headrace.application.running import Running
    from headrace.capture import Segment
    from headrace.core.config import Config, Setting
    from headrace.core.graph import Graph
    from headrace.core.outcome import Outcome, Progress
    from headrace.core.values import Duration
    from headrace.core.wiring import End, Ends
    from headrace.observe import DataLogger, Goal, Miss, Tracker
    from headrace.operators.feed import Feed
    from headrace.operators.results import Results
    from headrace.planner.observing import PlanWatch
    from headrace.planner.plan import Plan
    from headrace.resources import CudaGreenContextPool
    from headrace.topics import Publication, Subscription


E = TypeVar("E", bound="Operator")


class StartOperator(Operator):
    """Computes once, and does nothing; others come after it."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Do nothing."""


class InnerFragment(InnerComposition):
    """The state of a fragment."""

    runner: ClassVar[Runner] = Runner()
    """Runs all fragments."""
    start_type: ClassVar[type[Operator]] = StartOperator
    start_name: ClassVar[str] = "start"

    def __init__(self, fragment: Fragment) -> None:
        super().__init__(fragment)
        self.fragment = fragment
        self.scheduler: Scheduler | None = None
        # The application that it is a part of.
        self.application: Fragment | None = None
        # The fragments that were made for this one, if it is an application.
        self.made_parts: list[Fragment] = []
        # What it declares of its parts' operators, if it is an application: called when the part has been composed.
        self.part_topics: list[tuple[Fragment, Callable[[], None]]] = []
        # What `use_plan` was given.
        self.plan: Plan | str | None = None
        self.plan_watch: PlanWatch | None = None

    @property
    def host_options(self) -> Mapping[str, str]:
        """Options of the command that the program gives itself: on which hosts it runs."""
        return {}

    @property
    def whole(self) -> Composition:
        """What runs: this fragment, or the application that it is a part of."""
        return self.fragment if self.application is None else self.application._headrace.whole

    def make_default_stream_source(self) -> Any:
        """Create the source of streams for operators that were given none.

        It is the default pool of green contexts if the fragment has one. Otherwise it is a pool of any number of
        streams that may use every SM.
        """
        from headrace.resources import CudaStreamPool

        return self.green_contexts or CudaStreamPool(
            self.fragment, reserved_size=0, name="default_stream_pool"
        )

    def begin_graph(self) -> None:
        """Begin with what compose declares."""
        whole = self.application
        services = None if whole is None else self.composed_services
        super().begin_graph()
        self.made_parts = []
        self.part_topics = []
        if whole is not None and services is not None:
            # The application may have registered some already, and composes a part once.
            self.composed_services = services
            self.thread_pools = whole._headrace.thread_pools
            self.segments = whole._headrace.segments
            self.taken_settings = whole._headrace.taken_settings
            self.composed_data_loggers = whole._headrace.composed_data_loggers

    def compose_more(self) -> list[Operator]:
        """Declare the topics of a part that its application knows, and what a plan says, if one was given."""
        whole = self.application
        for part, declare in () if whole is None else whole._headrace.part_topics:
            if part is self.fragment:
                declare()
        given = self.plan or os.environ.get("HEADRACE_PLAN")
        if self.plan_watch in self.watchers:
            self.watchers.remove(self.plan_watch)
        if given and whole is None:
            from headrace.planner.plan import apply_plan, read_plan

            plan = read_plan(given) if isinstance(given, str) else given
            apply_plan(plan, self.fragment, f"plan {given!r}" if isinstance(given, str) else "the plan")
            self.watch_plan(plan)
        return []

    def watch_plan(self, plan: Plan) -> None:
        """Let a tracked run say where it is not as planned."""
        from headrace.observe.environment import asked_for
        from headrace.planner.observing import PlanWatch

        if (plan.goals or plan.expected) and (self.watchers or asked_for()):
            self.plan_watch = PlanWatch(plan)
            self.watchers.append(self.plan_watch)

    def all_services(self) -> list[object]:
        """Return every service of a run."""
        return [
            *super().all_services(),
            *(each for part in self.made_parts for each in part._headrace.all_services()),
        ]

    def qualified(self, name: str) -> str:
        """Return the name that an operator of this name has in the whole fragment."""
        return name if self.application is None else f"{self.fragment.name}.{name}"

    def find_operator(self, name: str) -> Operator:
        """Return the operator that its operators mean by a name."""
        if self.application is None:
            return super().find_operator(name)
        own = self.fragment.graph.names
        return (
            own.get(f"{self.fragment.name}.{name}")
            or own.get(name)
            or self.application._headrace.find_operator(name)
        )

    def check_settings(self, made: list[Operator]) -> None:
        """Raise ConfigError if something was set that exists neither in the configuration nor in the program."""
        if self.application is None:  # otherwise the application does it, for all parts
            super().check_settings(made)

    @property
    def parameter_settings(self) -> dict[str, Setting]:
        """The values that options and the environment set for parameters of operators."""
        whole = self.application
        return (
            super().parameter_settings if self.config or whole is None else whole._headrace.parameter_settings
        )

    def configuration(self) -> Config:
        """Return the configuration; raise if there is none."""
        whole = self.application
        return super().configuration() if self.config or whole is None else whole._headrace.configuration()

    @property
    def run_id(self) -> str:
        """The name of the run in progress, or else of the last run."""
        return self.last_run_id if self.application is None else self.application._headrace.run_id

    def check_whole(self, call: str) -> None:
        """Raise for a call that only the application may get."""
        if self.application is not None:
            raise GraphError(
                f"{call} of {self.fragment.name!r}, which is a part of {self.application.name!r} and runs with it: "
                f"call {call} of the application"
            )

    def end_of(self, call: str, name: str, kind: type[E]) -> E:
        """Return an operator through which the program exchanges frames with the run in progress."""
        if self.is_composing_here:
            raise GraphError(
                f"{call}({name!r}) of {self.fragment.name!r} in compose(): call it while the application runs"
            )
        self.run_control.wait_until_begun()
        found = [operator for operator in self.fragment.graph if isinstance(operator, kind)]
        for operator in found:
            if operator.name == name:
                return operator
        if not len(self.fragment.graph):
            raise GraphError(
                f"{call}({name!r}): {self.fragment.name!r} is not running; call it in a block `with app.running():`"
            )
        known = choices([operator.name for operator in found], name)
        raise GraphError(f"{self.fragment.name!r} has no {kind.__name__} {name!r}; it has {known}")

    def complete_graph(self, check_resources: Callable[[], None]) -> None:
        """Let replicas and segments stand for their operators; raise if some cannot have the streams they want."""
        from headrace._runtime import check_layout

        check_resources()
        if any(operator._headrace.replication.options is not None for operator in self.fragment.graph):
            from headrace.application.child import run_child
            from headrace.replicas.expansion import expand

            expand(self.fragment, run_child)
        # Most programs have no segments, and need not import what makes them.
        if self.segments or self.chain_options is not None or os.environ.get("HEADRACE_CAPTURE"):
            from headrace.capture.declaration import find_segments

            find_segments(self.fragment)
        check_layout(self.fragment)


S = TypeVar("S")


class Fragment(Composition):
    """A graph of operators; subclass it (or :class:`Application`) and write `compose`.

    It runs by itself, or as a part of an application that is made of several (:meth:`Application.add_fragment`).

    Parameters
    ----------
    application
        The application that it is a part of; none if it runs by itself.
    name
        Its name, with which the names of its operators begin in an application; the class's name unless given.
    gpus, cpus
        The GPUs and the cores that its process may use, where each fragment has a process of its own
        (``run(processes=True)``): how many, which no other fragment gets, or which ones, as in ``[0, 1]``. All
        unless given.
    on_loss
        What happens if that process is killed, crashes or freezes: ``"stop"`` ends the run, ``"restart"`` starts
        the process again, ``"go_on"`` runs on without it.
    """

    gpus: Any = None
    cpus: Any = None
    on_loss: Any = "stop"
    _headrace = Inner(InnerFragment)

    def __init__(
        self,
        application: Fragment | None = None,
        /,
        name: str = "",
        *args: Any,
        gpus: int | Sequence[int] | None = None,
        cpus: int | Sequence[int] | None = None,
        on_loss: str = "stop",
        **kwargs: Any,
    ) -> None:
        kind = type(self).__name__
        given: Any = application
        if given is not None and not isinstance(given, Fragment):
            hint = f"; a name is given by keyword: {kind}(name={application!r})"
            raise TypeError(
                f"{kind}: the first argument is the application that it is a part of, not {application!r}"
                + (hint if isinstance(application, str) else "")
            )
        super().__init__(name, *args, **kwargs)
        if on_loss not in ON_LOSS:
            raise ValueError(
                f"{kind} {self.name!r}: on_loss must be one of {choices(ON_LOSS)}, not {on_loss!r}"
            )
        # What is as by default is not set: a program of another vocabulary may use the names.
        if gpus is not None:
            self.gpus = places(gpus, f"{kind} {self.name!r}: gpus")
        if cpus is not None:
            self.cpus = places(cpus, f"{kind} {self.name!r}: cpus")
        if on_loss != "stop":
            self.on_loss = on_loss
        if application is None:
            return
        if "." in self.name:
            raise TypeError(f"the name of a {kind} in an application has no '.', not {self.name!r}")
        self._headrace.application = application
        # A part is run by its application, and remembers with it what was set outside of a run.
        self._headrace.controls = application._headrace.controls
        self._headrace.live_values = application._headrace.live_values
        self._headrace.knob_values = application._headrace.knob_values
        # What it does not set for itself is as in the application.
        self._headrace.metadata_enabled = application._headrace.metadata_enabled
        self.metadata_policy = application.metadata_policy
        if application._headrace.max_in_flight != self._headrace.max_in_flight:
            self.max_in_flight = application._headrace.max_in_flight
        if application._headrace.stream_per != self._headrace.stream_per:
            self.stream_per = application._headrace.stream_per
        application._headrace.made_parts.append(self)

    @property
    def application(self) -> Fragment | None:
        """The application that it is a part of; an application itself; None for a fragment that runs by itself."""
        return self._headrace.application

    # A fragment that is a part of an application.

    def service(self, service_type: type[S], id: str = "") -> S | None:  # noqa: A002
        """Return the service of a type, or None; a part of an application finds those of the application, too."""
        found = super().service(service_type, id)
        whole = self._headrace.application
        return found if found is not None or whole is None else whole.service(service_type, id)

    def stop_execution(self, op_name: str = "") -> None:
        """Stop one operator, or the whole run; of a part of an application, its operators. From any thread.

        A stop during composing or starting takes effect before the first operator runs.
        """
        if self._headrace.application is None or op_name:
            super().stop_execution(op_name)
        else:
            for operator in self.graph:
                operator.stop_execution()

    # Methods that a program calls before a run, or in compose.

    def scheduler(self, scheduler: Scheduler | None = None) -> Scheduler:
        """Set the scheduler, if one is given, and return the one in use (a `DefaultScheduler` unless set).

        A part of an application runs with the scheduler of the application, whatever is set here.
        """
        if scheduler is not None:
            _check_scheduler(scheduler)
            self._headrace.scheduler = scheduler
        if self._headrace.application is not None:
            return self._headrace.application.scheduler()
        if self._headrace.scheduler is None:
            self._headrace.scheduler = DefaultScheduler(self)
        return self._headrace.scheduler

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
    ) -> CudaGreenContextPool:
        """Divide a device for this fragment; operators without a stream pool use its default partition.

        It takes the parameters of :class:`headrace.resources.CudaGreenContextPool` and returns one.
        """
        from headrace.resources import CudaGreenContextPool

        if self._headrace.green_contexts is not None:
            raise GraphError(f"{self.name!r} has a default green context pool already")
        pool = self._headrace.green_contexts = CudaGreenContextPool(
            self,
            dev_id,
            num_partitions=num_partitions,
            sms_per_partition=sms_per_partition,
            default_context_index=default_context_index,
            min_sm_size=min_sm_size,
            name="default_green_context_pool",
        )
        return pool

    def get_default_green_context_pool(self) -> CudaGreenContextPool | None:
        """Return the pool that `add_default_green_context_pool` created, or None; else that of the application."""
        pool: CudaGreenContextPool | None = self._headrace.green_contexts
        if pool is None and self._headrace.application is not None:
            return self._headrace.application.get_default_green_context_pool()
        return pool

    def compose_graph(self) -> Graph:
        """Compose and check the graph without running it."""
        control = RunControl("is being composed")
        try:
            self._headrace.claim(control)
            return compose(self)
        finally:
            self._headrace.release(control)

    # Topics.

    def export_topic(
        self,
        topic: str,
        source: End,
        port: str = "",
        *,
        policy: IOSpec.QueuePolicy = IOSpec.QueuePolicy.POP,
        size: int = 1,
        keep_last: bool = True,
    ) -> None:
        """Publish what an output emits, for other programs; in compose, or while it runs.

        The programs of this user on this host find the topic by its name. They come and go, and never stop this
        program.

        Parameters
        ----------
        topic
            The name, such as ``"plant/boxes"``.
        source, port
            The operator or subgraph, and its output, which may be left out where there is one.
        policy
            What becomes of messages that a subscriber is too slow for: ``POP`` drops the oldest, ``REJECT`` the
            newest, and ``FAULT`` lets the producer wait for the subscriber.
        size
            The number of messages that may wait for each subscriber.
        keep_last
            Whether the last message is kept for those who join later. It is the message itself and not a copy, so
            its memory is in use until the next one.
        """
        from headrace.topics.declaration import export_topic

        export_topic(self, topic, source, port, size=size, policy=policy, keep_last=keep_last)

    def import_topic(
        self,
        topic: str,
        target: Ends,
        port: str = "",
        *,
        policy: IOSpec.QueuePolicy = IOSpec.QueuePolicy.POP,
        size: int = 1,
        last: bool = True,
        count: int | None = None,
        ends_with_topic: bool = False,
    ) -> None:
        """Receive what another program publishes; in compose, or while it runs.

        The run waits for a publisher, follows the newest if there are several, and waits for the next one when it
        is gone.

        Parameters
        ----------
        topic
            The name, such as ``"plant/boxes"``.
        target, port
            The operator or subgraph, or a tuple of them, and the input, which may be left out where there is one.
        policy, size
            The queue at the input, unless the input declares its policy: ``POP`` keeps the newest messages, and
            ``FAULT`` takes each one, so that messages wait at the publisher.
        last
            Whether to get the last message that was published before, if the publisher keeps it.
        count
            The number of messages after which it ends. Unless it is given, it waits for more.
        ends_with_topic
            Whether it ends when the program that publishes the topic says that it has ended.
        """
        from headrace.topics.declaration import import_topic

        import_topic(
            self,
            topic,
            target,
            port,
            size=size,
            policy=policy,
            last=last,
            count=count,
            ends_with_topic=ends_with_topic,
        )

    def topics(self) -> dict[str, Publication | Subscription]:
        """Return the topics of the run in progress, or else of the last run, which count their messages.

        The keys are the names of the operators: ``"export plant/boxes"``, ``"import plant/boxes"``.
        """
        from headrace.topics.declaration import topics_of

        return topics_of(self.graph)

    # Running.

    def run(
        self,
        *,
        duration: str | float | timedelta | None = None,
        max_messages: int | None = None,
        processes: bool | None = None,
    ) -> Outcome:
        """Compose the graph, run it to its end, stop every operator, and return how the run ended.

        An exception raised by an operator is raised here unchanged, with a note that names the operator. A fragment
        has one run at a time; a second one raises an error.

        Parameters
        ----------
        duration
            The time of the run's clock after which this run ends: ``"5s"``, a float of seconds or a timedelta. It
            comes before the scheduler's ``max_duration_ms``, and ``HEADRACE_DURATION`` before it.
        max_messages
            The number of computes after which each source ends; the run then finishes with what they sent.
            ``HEADRACE_COUNT`` comes before it.
        processes
            Whether each fragment of an application runs in a process of its own; ``HEADRACE_PROCESSES`` comes
            before it. Each process executes the program anew up to this call.
        """
        self._headrace.check_whole("run()")
        return Fragment._headrace.runner.run(self, limits_of_run(duration, max_messages, processes))

    def run_async(
        self,
        *,
        duration: str | float | timedelta | None = None,
        max_messages: int | None = None,
        processes: bool | None = None,
    ) -> Future[Outcome]:
        """Start `run` on its own thread and return a future for its outcome.

        That thread receives no signals: Ctrl-C raises where the program waits for the future, and the run continues
        until `stop_execution` is called.
        """
        self._headrace.check_whole("run_async()")
        return Fragment._headrace.runner.run_async(self, limits_of_run(duration, max_messages, processes))

    def running(self) -> Running:
        """Run beside the program for the duration of a ``with`` or ``async with`` block.

        The block begins when the operators are there, and is given the future of `run_async`. Its end closes the
        feeds, ends the other sources and closes the results; it waits until everything that is under way has been
        computed, and raises the exception of a run that failed. If the block raises, the run is stopped at once.
        """
        from headrace.application.running import Running

        return Running(self)

    def feed(self, name: str) -> Feed:
        """Return the feed of a :class:`headrace.operators.FeedOp`, into which the program puts frames."""
        from headrace.operators import FeedOp

        return self._headrace.end_of("feed", name, FeedOp).feed

    async def call(self, feed: str, data: Any, *, timeout: Duration | None = None, **options: Any) -> Any:
        """Put a frame into a feed, and await the result that stems from it: :meth:`headrace.operators.Feed.call`.

        Any number of tasks may call side by side. Each gets its own answer, whatever the order of the results.
        """
        return await self.feed(feed).call(data, timeout=timeout, **options)

    def results(self, name: str) -> Results:
        """Return the results of a :class:`headrace.operators.ResultsOp`, from which the program takes frames."""
        from headrace.operators import ResultsOp

        return self._headrace.end_of("results", name, ResultsOp).results

    def drain(self) -> None:
        """End the sources of the run: it ends when what is under way has been computed.

        May be called from any thread, and returns at once. Feeds end after the frames that wait in them; a paused
        run goes on. A run that has not begun is stopped.
        """
        control = self._headrace.run_control
        if control.engine is not None:
            control.drain_wanted = True
            drain(self)
        elif not control.drain_elsewhere():
            self.stop_execution()

    def pause(self) -> None:
        """Let no new compute begin in this run; may be called from any thread, and returns at once.

        Without a run it does nothing, as `resume` and `step`.
        Computes that have begun go on to their end (`wait_until_paused` waits for it), and so does the work on the
        device. Virtual time stands still. A paused run does not end by itself, but it can be stopped and
        interrupted. A pause during composing or starting takes effect before the first operator runs.
        """
        self._headrace.run_control.pause()

    def resume(self) -> None:
        """Let computes begin again; may be called from any thread.

        Ticks that a `PeriodicCondition` missed in the pause count as one, and a source with frames of its own goes
        on with the next one: nothing is made up for. The time in the pause does not count towards the duration of
        the run.
        """
        self._headrace.run_control.resume()

    def step(self, n: int = 1, op_name: str = "") -> None:
        """Let `n` computes begin, of any operator or of the one named, and pause again; returns at once.

        May be called from any thread; a run that is not paused is paused first. In the step, virtual time goes on
        to the next compute. The step of a named operator waits until that operator can run: it needs its messages,
        and nothing else runs. A step during composing or starting takes place when the run begins.
        """
        whole_number(n, f"{self.name!r}: the number of computes of a step", 1)
        control = self._headrace.run_control
        if op_name and (not control.doing or control.has_begun):
            self.graph.find(op_name)  # raises if there is none; before there is an engine, the run does so
        control.step(n, op_name)

    @property
    def is_paused(self) -> bool:
        """Whether the run is paused, or was asked to be."""
        return self._headrace.run_control.pause_wanted

    def wait_until_paused(self, timeout: float | None = None) -> bool:
        """Wait until the run is paused, its steps are done and no operator computes; not from inside an operator.

        Returns False if that is not so after `timeout` seconds, or if the run ends before.
        """
        return self._headrace.run_control.wait_until_paused(timeout)

    def wait_until_started(self, timeout: float | None = None) -> bool:
        """Wait until every operator of the run in progress has started; not from inside an operator.

        After `run_async`, this is when the operators that `compose` creates can be used. Returns False if that is
        not so after `timeout` seconds, if the run ends before, or if there is no run.
        """
        return self._headrace.run_control.wait_until_started(timeout)

    def progress(self) -> Progress:
        """Return what the run in progress, or else the last run, has done so far.

        Any thread may call it at any time. It takes no lock, so a run is not slowed down by it. The result is plain
        data.
        """
        return progress_of(self)

    def reload_config(self) -> Reloaded:
        """Read the configuration file again, and set the live parameters whose values changed there.

        May be called from any thread. A parameter follows the configuration if its operator was given the section,
        or if the section has the name of the operator. Other changes take effect in the next run. If the file, or
        one of the values, is wrong, nothing is changed, and an error is raised.
        """
        from headrace.application.reload import reload_config

        return reload_config(self)

    def dropped(self) -> dict[str, int]:
        """Return the number of messages that each port dropped in the last run, by ``"operator.port"``.

        An input drops messages by the policy of its queue; an unconnected output drops everything that is emitted
        there.
        """
        return count_by_port(self.graph, lambda queue: queue.dropped)

    def undelivered(self) -> dict[str, int]:
        """Return the number of messages that still waited at each input when the last run ended."""
        return count_by_port(self.graph, lambda queue: queue.undelivered)

    # Short forms of what other packages do with a fragment.

    def capture(
        self,
        *operators: Operator,
        name: str = "",
        warmup: int = 1,
        check_every: float | None = 1.0,
        shapes: int = 4,
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
            After how many seconds of the run's clock a replay of a graph is compared with a compute of the same
            frame; 0 compares all, None none.
        shapes
            The number of graphs that are kept, one for each shape and type of what enters.
        strict
            Whether a refusal is an error.
        """
        from headrace.capture.declaration import capture

        return capture(
            self,
            operators,
            name,
            warmup=warmup,
            check_every=check_every,
            shapes=shapes,
            strict=strict,
        )

    def capture_chains(self, **options: Any) -> None:
        """Capture every chain of operators that say ``capturable = True``; it takes the options of `capture`."""
        self._headrace.check_composing("capture_chains()")
        self._headrace.chain_options = options

    def use_plan(self, plan: str | os.PathLike[str] | Plan | None) -> None:
        """Declare what a plan says of slices, shared streams and segments, in every later run.

        ``headrace plan`` writes plans; ``HEADRACE_PLAN`` and ``headrace run --plan`` do the same for one run. The
        plan is checked when the graph is composed: it is for one device, and for one graph.

        Parameters
        ----------
        plan
            The file, or a plan that was read from one; None to use none.
        """
        from headrace.planner.plan import Plan

        self._headrace.check_whole("use_plan()")
        self._headrace.plan = plan if isinstance(plan, Plan) or plan is None else os.fspath(plan)

    def draw(self, style: str = "text", *, unfold: bool = False) -> str:
        """Return the graph drawn in a style, composed first if necessary.

        A subgraph is one box, unless `unfold` is true: then its operators are drawn.

        The styles are ``"text"``, a list; ``"svg"``, a picture with ports, queue sizes and slices of the GPU;
        ``"mermaid"`` and ``"dot"``. Captured segments are groups in it, with their names and, after a run, their
        states.
        """
        from headrace.drawing import draw

        if not len(self.graph):
            self.compose_graph()
        return draw(self.graph, style, self._headrace.segments, unfold=unfold)

    def _repr_html_(self) -> str:
        from headrace import notebook

        return notebook.picture(self.draw("svg").encode(), "image/svg+xml", self.draw())

    def start_op(self) -> Operator:
        """Return the operator that computes once, when the run begins: ``self.start_op().then(first)``.

        Every call in one compose returns the same operator.
        """
        self._headrace.check_composing("start_op()")
        if self._headrace.start_operator is None:
            from headrace.conditions import CountCondition

            self._headrace.start_operator = self._headrace.start_type(
                self, CountCondition(self, 1), name=self._headrace.start_name
            )
        return self._headrace.start_operator

    def add_data_logger(self, logger: DataLogger) -> None:
        """Show every message that an operator emits or receives to a logger; in compose, or before `run`.

        A logger is a :class:`headrace.observe.DataLogger`. One that compose adds is used in that run alone.
        """
        from headrace.observe.loggers.data_loggers import check_data_logger

        check_data_logger(self, logger)
        (
            self._headrace.composed_data_loggers
            if self._headrace.is_composing_here
            else self._headrace.data_loggers
        ).append(logger)

    def track(self, *, kernels: bool = False) -> Tracker:
        """Track the messages of every later run, and return the tracker; in a ``with`` block, of the block's runs.

        It takes the parameters of :class:`headrace.observe.Tracker` and returns one. A fragment has one tracker:
        calling this again replaces it.
        """
        from headrace.observe import Tracker

        tracker = Tracker(kernels=kernels)
        tracker.attach(self)
        return tracker

    def data_flow_tracker(self) -> Tracker | None:
        """Return the tracker that `track` made, or None."""
        from headrace.observe.figures.tracker import tracker_of

        return tracker_of(self)

    def expect(
        self,
        path: str,
        *,
        mean: Duration | None = None,
        p50: Duration | None = None,
        p95: Duration | None = None,
        p99: Duration | None = None,
        max: Duration | None = None,  # noqa: A002 (the name of the figure)
        period: Duration | None = None,
        jitter: Duration | None = None,
        on_miss: Callable[[Miss], object] | None = None,
    ) -> Goal:
        """Set a goal for how long messages take on a path, or for a period of an operator, in every later run.

        Goals for the same path do not replace each other.

        Parameters
        ----------
        path
            Two or more operators with ``->`` between them, as in ``"camera->display"``; those in between may be
            left out. Time begins with the acquisition, the time at which the first was due by its
            `PeriodicCondition`, or its emission, and ends when the work of the last is complete on the device. For
            a period, one operator that has a `PeriodicCondition`.
        mean, p50, p95, p99, max
            The most that each figure may be; at least one.
        period, jitter
            The period of the operator, and how much later than due its ticks may begin.
        on_miss
            Called with each :class:`headrace.observe.Miss`, on a thread of its own, shortly after the message.

        Returns
        -------
        headrace.observe.Goal
            Counts the messages and the misses, and tells where the time of recent misses went.
        """
        from headrace.observe.figures.goals import expect

        bounds = {"mean": mean, "p50": p50, "p95": p95, "p99": p99, "max": max, "jitter": jitter}
        return expect(self, path, on_miss, bounds, period)


def _check_scheduler(given: Any) -> None:
    """Raise if `given` is not a scheduler."""
    if not isinstance(given, Scheduler):
        is_class = isinstance(given, type) and issubclass(given, Scheduler)
        hint = f"; create one first: {given.__name__}(self)" if is_class else ""
        raise TypeError(f"scheduler() takes a Scheduler, not {brief(given)}{hint}")
