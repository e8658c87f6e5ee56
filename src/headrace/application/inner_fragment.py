"""InnerFragment: what headrace keeps in a fragment, which may be a part of an application."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.application.runner import Runner
from headrace.core.composition import InnerComposition
from headrace.core.errors import GraphError, choices
from headrace.core.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.application.fragment import Fragment
    from headrace.core.composition import Composition
    from headrace.core.config import Config, Setting
    from headrace.core.scheduler import Scheduler
    from headrace.planner.plan import Plan
    from headrace.planner.watching import PlanWatch


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
        from headrace.planner.watching import PlanWatch

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
