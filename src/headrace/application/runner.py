"""Runner: how the runs of all fragments take place.

The runtime imports neither the catalogues nor the observation. So a run is given its scheduler, its conditions and
its observer here. ``headrace run`` replaces the runner to know what a program runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.application.listed_runs import listed
from headrace.conditions.ending import BooleanCondition, CountCondition
from headrace.conditions.join import JoinCondition
from headrace.conditions.or_combiner import OrConditionCombiner
from headrace.conditions.periodic import PeriodicCondition
from headrace.conditions.ports import (
    DownstreamMessageAffordableCondition,
    ExpiringMessageAvailableCondition,
    MessageAvailableCondition,
    MultiMessageAvailableCondition,
    MultiMessageAvailableTimeoutCondition,
)
from headrace.core.condition import AsynchronousCondition, Condition
from headrace.core.control import RUNNING, RunControl
from headrace.core.graph import is_source
from headrace.core.ports import ConditionType
from headrace.core.run_options import read_run_options

if TYPE_CHECKING:
    from concurrent.futures import Future

    from headrace._runtime import GroupPlan, Supplies
    from headrace.application.fragment import Fragment
    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.core.run_options import RunOptions
    from headrace.core.scheduler import Scheduler


class Runner:
    """Runs fragments."""

    _MOST_KEPT = 1000  # runs

    def __init__(self) -> None:
        # What the runs so far returned or raised, None while one is in progress. The processes of a program repeat
        # the program up to the run that they take part in, and do not repeat the runs before it.
        self._results: list[Any] = []
        self.program: tuple[str, str, tuple[str, ...]] | None = None
        """The program that the command executes: a file or a module, a class in it, and its arguments."""

    def run(self, fragment: Fragment, limits: RunOptions) -> Outcome:
        """Run a fragment to its end, or to the limits of this run."""
        run_it, _ = self._prepare(fragment, limits)
        return run_it()

    def run_async(self, fragment: Fragment, limits: RunOptions) -> Future[Outcome]:
        """Run a fragment on its own thread."""
        from headrace._runtime import run_async

        run_it, control = self._prepare(fragment, limits)
        return run_async(fragment, control, run_it)

    def run_here(self, fragment: Fragment, control: RunControl, limits: RunOptions) -> Outcome:
        """Run a fragment in this process."""
        from headrace._runtime import run

        _serve(fragment)
        fragment._headrace.progress_elsewhere, fragment._headrace.watchers_elsewhere = None, tuple
        fragment._headrace.processes_elsewhere = dict
        with listed(fragment.name, control.run_id):
            return run(fragment, control, supplies_of(limits))

    def _prepare(self, fragment: Fragment, limits: RunOptions) -> tuple[Callable[[], Outcome], RunControl]:
        """Return what runs a fragment, in this process or in others, and the control of that run."""
        number = len(self._results)
        self._results.append(None)
        options = {**os.environ, **fragment._headrace.host_options}
        if options.get("HEADRACE_WORKER") and not options.get("HEADRACE_DRIVER"):
            run_it = partial(_work, options, self.program, fragment)
            return partial(self._run_numbered, number, run_it), RunControl(RUNNING)
        open_to = _hosts_elsewhere(options)
        if open_to is not None or read_run_options().over(limits).processes:
            from headrace.parts.driver import DriverControl, drive

            driver_control, earlier = DriverControl(), self._results[:number]

            def drive_it() -> Outcome:
                with listed(fragment.name, driver_control.run_id):
                    return drive(fragment, driver_control, self.program, earlier, open_to)

            return partial(self._run_numbered, number, drive_it), driver_control
        control = RunControl(RUNNING)
        run_here = partial(self.run_here, fragment, control, limits)
        return partial(self._run_numbered, number, run_here), control

    def _run_numbered(self, number: int, run_it: Callable[[], Outcome]) -> Outcome:
        try:
            result = run_it()
        except BaseException as error:
            from headrace.core.errors import Failure

            self._keep(number, Failure.of(error))
            raise
        self._keep(number, result)
        return result

    def _keep(self, number: int, result: Any) -> None:
        if number < self._MOST_KEPT:
            self._results[number] = result


def _hosts_elsewhere(options: Mapping[str, str]) -> Callable[..., Any] | None:
    """Return what starts processes on other hosts, if the options ask for that."""
    if options.get("HEADRACE_CLUSTER"):
        from headrace.cluster.ray_hosting import open_to_ray

        return partial(open_to_ray, options)
    if options.get("HEADRACE_DRIVER"):
        from headrace.parts.hosting import open_to_workers

        return partial(open_to_workers, options)
    return None


def _work(options: Mapping[str, str], program: Any, fragment: Fragment) -> Outcome:
    """Run parts of the program for its driver, and nothing here."""
    from headrace.core.outcome import EndedBy, Outcome
    from headrace.parts.agent import serve_from_options
    from headrace.parts.environment import Launch

    serve_from_options(options, Launch.of(program).name)
    fragment._headrace.outcome = Outcome(fragment.name, EndedBy.FINISHED, 0.0)
    return fragment._headrace.outcome


def _serve(fragment: Fragment) -> None:
    """Serve figures, health and readiness from before the fragment is composed, if the environment asks for it."""
    if os.environ.get("HEADRACE_METRICS"):
        from headrace.observe.environment import serve_metrics

        serve_metrics(fragment)


def supplies_of(limits: RunOptions) -> Supplies:
    """Return what a run is given, with its limits."""
    from headrace._runtime import Supplies
    from headrace.observe.attachment import observer_of

    return Supplies(
        scheduler=_scheduler_of,
        observer=observer_of,
        groups=_groups_of,
        progress=_progress_of,
        conditions=CONDITIONS,
        limits=limits,
        drain=drain,
        any_of=OrConditionCombiner,
    )


def _scheduler_of(fragment: Composition, options: RunOptions) -> Scheduler:
    """Return the scheduler of a run of a composed fragment: its own, with what the environment changes."""
    from headrace.resources.clocks import machine_clock

    scheduler: Scheduler = fragment.scheduler()
    if not scheduler._headrace.clock_was_given:
        scheduler.clock = machine_clock(fragment) or scheduler.clock
    scheduler.prepare(fragment)
    if not options.changes_scheduler:
        return scheduler
    from headrace.schedulers import chosen_scheduler

    return chosen_scheduler(scheduler, options)


def _groups_of(fragment: Composition) -> list[GroupPlan]:
    """Return the groups of operators that a run schedules as one: the captured segments."""
    if not fragment._headrace.segments:
        return []
    from headrace.capture.declaration import plan_groups

    return plan_groups(fragment)


def _progress_of(fragment: Composition) -> AbstractContextManager[None]:
    """Return the context in which the progress of a run is shown, if the environment asks for it."""
    if not os.environ.get("HEADRACE_PROGRESS"):
        return nullcontext()
    from headrace.observe.progress_line import is_wanted, shown_progress

    return shown_progress(fragment) if is_wanted() else nullcontext()


def drain(fragment: Composition, *, closes_results: bool = False) -> None:
    """End the sources of a run that has begun; feeds end after the frames that wait in them."""
    from headrace.operators import FeedOp, ResultsOp

    for operator in list(fragment.graph):
        if isinstance(operator, FeedOp):
            operator.feed.close()
        elif isinstance(operator, ResultsOp):
            if closes_results:
                operator.results.close()
        elif is_source(operator):
            operator.stop_execution()
    fragment._headrace.run_control.resume()


CONDITIONS: Mapping[ConditionType, type[Condition]] = {
    ConditionType.MESSAGE_AVAILABLE: MessageAvailableCondition,
    ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE: DownstreamMessageAffordableCondition,
    ConditionType.COUNT: CountCondition,
    ConditionType.BOOLEAN: BooleanCondition,
    ConditionType.PERIODIC: PeriodicCondition,
    ConditionType.ASYNCHRONOUS: AsynchronousCondition,
    ConditionType.EXPIRING_MESSAGE_AVAILABLE: ExpiringMessageAvailableCondition,
    ConditionType.MULTI_MESSAGE_AVAILABLE: MultiMessageAvailableCondition,
    ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT: MultiMessageAvailableTimeoutCondition,
    ConditionType.JOIN: JoinCondition,
}
