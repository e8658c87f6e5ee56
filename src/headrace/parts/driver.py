"""The driver: runs each fragment of an application in a process of its own, and supervises the processes.

It composes the program to know its parts, and computes nothing. `supervision` decides; this file has the processes,
their channels and pipes, and the signals. All of them are served by the thread that called `run`, in one loop. A
process that is killed is noticed by its descriptor (pidfd), without polling.

If the driver is killed, the system kills its processes (`worker`): a program in one process would be gone as well.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace._runtime import Interrupts
from headrace.core.checks import compose
from headrace.core.control import RUNNING, RunControl
from headrace.core.errors import GraphError, choices
from headrace.core.log_fields import fields_of
from headrace.core.log_output import configure_log
from headrace.core.notes import add_note, message_of, notes_of
from headrace.core.outcome import EndedBy, ErrorRecord, Outcome
from headrace.core.places import RESTART
from headrace.core.time_base import TimeBase
from headrace.observe.attachment import prepare_replay
from headrace.observe.environment import serve_metrics, watchers_from_environment
from headrace.observe.progress_line import is_wanted, shown_progress
from headrace.parts.control import (
    AskProgress,
    AskTime,
    Assignment,
    AtRisk,
    Beat,
    Channel,
    Composed,
    Connect,
    Ended,
    EndFlow,
    Idle,
    LinkLost,
    Paused,
    Request,
    Seen,
    Started,
    Step,
    TellProgress,
    TellTime,
    ValueSet,
)
from headrace.parts.cut import cut_flows
from headrace.parts.digest import describe
from headrace.parts.environment import (
    DASHBOARD,
    SPANNING,
    assign,
    environment_of,
    gpus_for,
)
from headrace.parts.launch import Launch
from headrace.parts.outcomes import merge
from headrace.parts.part_progress import ProgressOfParts
from headrace.parts.process import Process
from headrace.parts.stepping import Stepping
from headrace.parts.supervision import Interrupt, Join, Kill, Part, Spawn, State, Supervisor, Tell, Warn
from headrace.parts.values import Values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.parts.cut_flow import CutFlow, FlowCounts
    from headrace.parts.failures import Failure
    from headrace.parts.joined_run import JoinedRun
    from headrace.parts.lines import Lines
    from headrace.parts.supervision import Action

_log = logging.getLogger("headrace.parts")
_LONGEST = 1.0  # seconds after which the main thread looks for signals in any case
_AT_ONCE = 200  # links in one message


def drive(
    application: Any,
    control: DriverControl,
    program: tuple[str, str, tuple[str, ...]] | None,
    earlier: Sequence[Outcome | Failure | None] = (),
    make: Callable[..., Driver] | None = None,
) -> Outcome:
    """Run the fragments of an application in processes; return the outcome, or raise what ended the run.

    `program` is what ``headrace run`` executes: a file or a module, a class in it, and its arguments. `earlier` is
    what the runs of this program before returned or raised. `make` makes another driver than one of this host.
    """
    configure_log()
    serve_metrics(application)
    launch = Launch.of(program)
    driver: Driver | None = None
    interrupts = Interrupts(application.name, control.stop, lambda: _waits_for(driver))
    try:
        interrupts.install()
        application._headrace.claim(control)
        application._headrace.outcome = None
        try:
            interrupts.held = False
            declared: list[Any] = []
            compose(application, lambda: declared.extend(_declared(application)))
            driver = (make or Driver)(application, control, launch, earlier, *declared)
            application._headrace.progress_elsewhere = driver.progress.find
            application._headrace.watchers_elsewhere = driver.watchers
        finally:
            interrupts.held = True
        with shown_progress(application) if is_wanted() else nullcontext():
            try:
                driver.run()
            except BaseException:
                driver.end_watching(None)
                raise
            failure = interrupts.first or driver.supervisor.failure or driver.watch_failure
            application._headrace.outcome = driver.outcome(failure)
            failure = driver.end_watching(application._headrace.outcome) or failure
            _tell(application, application._headrace.outcome, failure)
    except BaseException as error:
        control.failure = error
        raise
    finally:
        application._headrace.release(control)
        interrupts.restore()
    if failure is not None:
        control.failure = failure
        raise failure
    outcome: Outcome = application._headrace.outcome
    return outcome


def _declared(application: Any) -> tuple[Sequence[CutFlow], dict[str, str]]:
    """Return the flows between parts and the description of the program, at the moment at which parts take them."""
    graph = getattr(application, "fragment_graph", None)  # a Fragment that runs by itself has none
    if graph is not None:
        prepare_replay(application)
    return (cut_flows(application), describe(application)) if graph is not None else ((), {})


def _waits_for(driver: Driver | None) -> str:
    return "compose" if driver is None else driver.waits_for()


def _tell(application: Any, outcome: Outcome, failure: BaseException | None) -> None:
    levels = {EndedBy.STARVED: logging.WARNING, EndedBy.FAILED: logging.ERROR}
    level = levels.get(outcome.ended_by, logging.INFO)
    raised = failure if outcome.ended_by is EndedBy.FAILED else None
    extra = fields_of(application)
    logging.getLogger("headrace.run").log(level, "%s", outcome, exc_info=raised, extra=extra)


class DriverControl(RunControl):
    """The control of a run in processes, whose pauses are passed on to them."""

    __slots__ = ("_is_paused", "_lock", "find_problems", "on_request")

    def __init__(self) -> None:
        super().__init__(RUNNING)
        self.on_request: Callable[[], None] | None = None
        self.find_problems: Callable[[], list[str]] = list
        self._is_paused = threading.Event()
        self._lock = threading.RLock()  # a signal handler may pause, too

    def problems(self) -> list[str]:
        """Return what is wrong in the parts."""
        return self.find_problems()

    def _request(self, request: tuple[str, int, str]) -> None:
        with self._lock:
            self._is_paused.clear()
            self.requests.append(request)
        if self.on_request is not None:
            self.on_request()

    def tell_paused(self, is_paused: bool) -> None:
        """Tell whoever waits for it that all parts are paused, unless something else was requested meanwhile."""
        with self._lock:
            if is_paused and not self.requests:
                self._is_paused.set()

    def wait_until_paused(self, timeout: float | None) -> bool:
        """Wait until every part is paused and nothing computes; return whether that is so."""
        waits.wait(self._is_paused, timeout)
        return self._is_paused.is_set() and self.pause_wanted

    def end(self) -> None:
        """End the waits for a run, because it is over or there will be none."""
        super().end()
        self.pause_wanted = False
        self._is_paused.set()


class Driver:
    """The processes of one run."""

    def __init__(
        self,
        application: Any,
        control: DriverControl,
        launch: Launch,
        earlier: Sequence[Outcome | Failure | None],
        flows: Sequence[CutFlow],
        description: dict[str, str],
    ) -> None:
        graph = getattr(application, "fragment_graph", None)
        parts: list[Any] = [] if graph is None else list(graph.fragments)
        if not parts:
            raise GraphError(
                f"{application.name!r} cannot run in processes, because it is not made of fragments: its compose() "
                "connects Fragments, each of which gets a process, as in add_flow(Edge(self, 'edge'), Server(self, "
                "'server'), {('camera.out', 'detector.frame')})"
            )
        _refuse_ends(application)
        self._application = application
        self._control = control
        self._launch = launch
        self._earlier = tuple(earlier)
        self._began = TimeBase.of(time.monotonic_ns())
        self._gpus, self._cpus = self._assign(parts)
        self._ports: dict[str, list[tuple[str, str]]] = {part.name: [] for part in parts}
        for operator in application.graph:
            names = (*operator.spec.inputs, *operator.spec.outputs)
            self._ports[operator.fragment.name] += [(operator.name, name) for name in names]
        self.supervisor = Supervisor(
            {part.name: Part(part.name, part.on_loss) for part in parts},
            flows,
            description,
        )
        self._joined: JoinedRun | None = None
        self.watch_failure: BaseException | None = None
        """Why a watcher could not begin, if that was so; the run may be over before it is stopped because of it."""
        watchers = [
            *(each for each in application._headrace.watchers if each.spans_parts),
            *watchers_from_environment((*SPANNING, DASHBOARD)),
        ]
        if watchers:
            from headrace.parts.joined_run import JoinedRun

            self._joined = JoinedRun(application, [part.name for part in parts], watchers, self._gpus)
        self._looked_at = monotonic()
        self._has_told_end = False
        self._stepping = Stepping()
        self.progress = ProgressOfParts(application, flows)
        # The computes that take longer than their deadlines, in words.
        self._stuck: dict[str, tuple[str, ...]] = {}
        self._processes: dict[str, Any] = {}
        self._leaving: list[Any] = []
        self._lost_links: list[tuple[Any, LinkLost]] = []  # with parts that are to be started again
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waking = threading.RLock()  # a signal handler may wake it while this thread does
        self._selector.register(self._wake, selectors.EVENT_READ, self._on_wake)

    def _assign(self, parts: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the GPUs and the cores of this host that each part gets."""
        return (
            assign("gpus", {part.name: part.gpus for part in parts}, gpus_for(part.gpus for part in parts)),
            assign("cpus", {part.name: part.cpus for part in parts}, sorted(os.sched_getaffinity(0))),
        )

    def run(self) -> None:
        """Start the processes, and return when all have ended."""
        control = self._control
        control.on_stop = control.on_request = self._wake_up
        self._values = Values(control.on_request)
        self.progress.begin(control.on_request)
        control.set_elsewhere = self._values.set
        control.find_problems = self.problems
        try:
            self._carry_out(self.supervisor.begin())
            while self._is_needed:
                self._step()
        finally:
            control.on_stop = control.on_request = control.set_elsewhere = None
            self._values.close()
            self.progress.end()
            left = [*self._processes.values(), *self._leaving]  # only after an error of this file
            for process in left:
                process.kill()
            for process in left:
                self._reap(process)
            self._selector.close()
            with self._waking:
                wake, self._wake = self._wake, -1
                os.close(wake)

    def _wake_up(self) -> None:
        """Wake the loop; from any thread, which may have been on its way here when the run ended."""
        with self._waking:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    @property
    def _is_needed(self) -> bool:
        return bool(self._processes or self._leaving)

    def problems(self) -> list[str]:
        """Return what is wrong in the parts, in words; from any thread."""
        parts = self.supervisor.parts.values() if self._control.has_started else ()
        absent = [part.name for part in parts if part.state < State.RUNNING]
        return [
            *(f"part {name!r} is started again" for name in absent),
            *(text for texts in list(self._stuck.values()) for text in texts),
        ]

    def watchers(self) -> Sequence[Any]:
        """Return the watchers of all parts that have begun; from any thread."""
        return () if self._joined is None else tuple(self._joined.begun)

    def waits_for(self) -> str:
        """Return what the run waits for, for the log."""
        return f"the processes of {', '.join(map(repr, self._processes)) or 'no part'}"

    def _step(self) -> None:
        control, now = self._control, monotonic()
        if now - self._looked_at > 1.5 * _LONGEST:
            self._forgive(now)  # Ctrl-Z stops all processes, and a busy machine delays all of them
        self._looked_at = now
        self._pass_on_requests()
        while control.errors:
            self._carry_out(self.supervisor.fail("", control.errors.popleft(), now))
        if control.stop_wanted and not self.supervisor.is_stopping:
            self.supervisor.ended_by = EndedBy.STOPPED
            self._carry_out(self.supervisor.stop(now))
        for part, process in self._processes.items():
            self.supervisor.beat(part, process.beat)
        # With the time from before: all may have been stopped since, which is noticed at the next look.
        self._carry_out(self.supervisor.tick(now))
        for channel in self._channels():
            if channel.wants_write:
                self._watch(channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
        until = self._next_time()
        left = _LONGEST if until is None else max(until - monotonic(), 0.0)
        if not self._is_needed:  # the last process was given up, and nothing more will happen
            left = 0.0
        for key, _ in self._selector.select(min(left, _LONGEST)):
            # It may be gone because of the one before, and its number may be that of another file.
            if self._selector.get_map().get(key.fd) is key:
                key.data()

    def _forgive(self, now: float) -> None:
        self.supervisor.forgive(now)

    def _next_time(self) -> float | None:
        return self.supervisor.next_time()

    def _pass_on_requests(self) -> None:
        requests, alive = self._control.requests, self._alive()
        while requests:
            kind, count, operator = requests[0]
            part = self._part_of(operator, count) if operator else ""
            if part and self.supervisor.parts[part].state < State.LINKED:
                self._stepping.is_paused = True  # and the step comes when the part is there
                break
            requests.popleft()
            self._send(self._stepping.request(kind, count, operator, part, alive))
        for number in self.progress.ask(alive):
            for part in alive:
                self._processes[part].channel.post(AskProgress(number))
        for wanted in self._values.take():  # other parts are sent it when they have their links
            if wanted.part in alive:
                self._processes[wanted.part].channel.post(wanted)
        parts = self.supervisor.parts.values()
        self._values.end([part.name for part in parts if part.state >= State.REPORTED])

    def _part_of(self, operator: str, count: int) -> str:
        """Return the part that has an operator; fail if there is none, as the run in one process does."""
        names: dict[str, str] = {each.name: each.fragment.name for each in self._application.graph}
        if operator not in names:
            known = choices(names, operator)
            text = f"step({count}, {operator!r}): there is no operator {operator!r}; there are {known}"
            self._control.fail(GraphError(text))
        return names.get(operator, "")

    def _send(self, messages: Iterable[tuple[str, Request]]) -> None:
        """Send requests, and tell whoever waits whether all parts are paused."""
        for part, message in messages:
            self._processes[part].channel.post(message)
        parts = self.supervisor.parts.values()
        is_there = all(part.state >= State.LINKED for part in parts)
        self._control.tell_paused(is_there and self._stepping.is_quiet(self._alive()))

    def _leave(self, part: str) -> None:
        """Expect no answers of a part that is gone, and forget what was wrong with its operators."""
        self._stuck.pop(part, None)
        report = self.supervisor.parts[part].report
        self.progress.leave(part, None if report is None else report.progress)
        self._send(self._stepping.leave(part))

    def _alive(self) -> set[str]:
        """Return the parts whose processes have their links."""
        parts = self.supervisor.parts.values()
        return {part.name for part in parts if part.state in (State.LINKED, State.RUNNING)}

    def _on_wake(self) -> None:
        os.eventfd_read(self._wake)

    # Actions.

    def _carry_out(self, actions: list[Action]) -> None:
        if self.supervisor.is_stopping and not self._has_told_end:
            self._has_told_end = True
            _log.info("all parts are stopped%s", _reason(self.supervisor), extra=fields_of(self._application))
        for action in actions:
            match action:
                case Spawn(part, _):
                    self._leave(part)
                    self._spawn(part)
                case Join(flows, parts):
                    self._join(flows, parts)
                case Tell(part, what):
                    if part in self._processes:
                        self._processes[part].channel.post(what)
                case Interrupt(part):
                    self._interrupt(self._processes[part])
                case Kill(part):
                    self._kill(self._processes[part])
                case Warn(text):
                    _log.warning("%s", text, extra=fields_of(self._application))

    def _interrupt(self, process: Any) -> None:
        process.interrupt()

    def _kill(self, process: Any) -> None:
        process.kill()

    def _spawn(self, part: str) -> None:
        former = self._processes.pop(part, None)
        if former is not None:
            self._leaving.append(former)
        restarts = self.supervisor.restarts.get(part, 0)
        environment = environment_of(part, os.environ, self._gpus[part], self._ports, restarts)
        process = self._processes[part] = Process(part, environment, self._control.fail)
        self.supervisor.beat(part, monotonic())
        process.channel.post(self._assignment(part))
        for source, serve in (
            (process.channel, self._on_message),
            (process.pidfd, self._on_exit),
            (process.stdout, self._on_output),
            (process.stderr, self._on_output),
        ):
            self._selector.register(source, selectors.EVENT_READ, _bound(serve, process, source))

    def _assignment(self, part: str) -> Assignment:
        cpus = tuple(self._cpus[part] or ())
        run_id, began = self._control.run_id, self._began
        assignment = Assignment(part, self._launch, self._earlier, os.getpid(), run_id, began, cpus)
        if self._joined is None:
            return assignment
        from headrace.parts.forwarding import Wishes

        return replace(assignment, wishes=Wishes.of(self._joined.watchers))

    def _join(self, flows: Sequence[CutFlow], parts: Sequence[str]) -> None:
        """Make links, and send their ends to the processes."""
        ends: dict[str, list[tuple[str, int, socket.socket]]] = {part: [] for part in parts}
        for flow in flows:
            epoch = self._epoch(flow)
            for part, end in zip((flow.source, flow.target), _connected(), strict=True):
                ends.setdefault(part, []).append((flow.name, epoch, end))
        self._bring_up_to_date(parts)
        for part, own in ends.items():
            self._connect(part, own)

    def _epoch(self, flow: CutFlow) -> int:
        """Return the epoch of the link of a flow now."""
        return sum(self.supervisor.parts[part].epoch for part in (flow.source, flow.target))

    def _bring_up_to_date(self, parts: Sequence[str]) -> None:
        """Tell parts what was requested and set before, first of all: a pause holds before the first compute."""
        for part in parts:
            for message in self._values.of(part):
                self._processes[part].channel.post(message)
            self._send(self._stepping.join(part))

    def _connect(self, part: str, ends: list[tuple[str, int, socket.socket]]) -> None:
        channel = self._processes[part].channel
        for first in range(0, max(len(ends), 1), _AT_ONCE):
            names, epochs, sockets = (
                zip(*ends[first : first + _AT_ONCE], strict=True) if ends else ((), (), ())
            )
            is_last = first + _AT_ONCE >= len(ends)
            channel.post(Connect(names, epochs, is_last=is_last), tuple(each.fileno() for each in sockets))
            for each in sockets:
                each.close()

    # What comes from the processes.

    def _channels(self) -> list[Channel]:
        """Return the channels that something may be left to be sent to."""
        return [each.channel for each in self._processes.values() if each.channel is not None]

    def _watch(self, channel: Channel, events: int) -> None:
        key = self._selector.get_map().get(channel)
        if key is not None and key.events != events:
            self._selector.modify(channel, events, key.data)

    def _take(self, channel: Channel) -> list[tuple[Any, list[int]]] | None:
        """Send what is left, and return what has arrived; None when the other end was closed."""
        if channel.wants_write:
            channel.flush()
        if not channel.wants_write:
            self._watch(channel, selectors.EVENT_READ)
        return channel.take()

    def _on_message(self, process: Any, _: Any) -> None:
        messages = self._take(process.channel)
        if messages is None:
            self._on_closed(process)
            return
        for message, _descriptors in messages:
            self._handle(process, message)

    def _on_closed(self, process: Any) -> None:
        self._selector.unregister(process.channel)

    def _handle(self, process: Any, message: Any) -> None:
        if self._processes.get(process.part) != process:
            return  # it was given up
        supervisor, part, now = self.supervisor, process.part, monotonic()
        match message:
            case Composed(description, address):
                process.composed(address)
                self._carry_out(supervisor.composed(part, description, now))
            case Started():
                self._carry_out(supervisor.started(part, now))
                if supervisor.has_started:
                    self._control.start()
            case Beat(problems):
                self._stuck[part] = problems
            case Idle(report, wave):
                self._carry_out(supervisor.idle(part, report, wave, now))
            case AtRisk(flow, count, holders):
                supervisor.at_risk(part, flow, count, holders)
            case Paused(number):
                self._stepping.note_paused(part, number)
                self._send(())
            case Step(what):
                self._send(self._stepping.tell(part, what, self._alive()))
            case TellProgress(number, progress):
                self.progress.answer(part, number, progress)
            case ValueSet(number, failure):
                self._values.answer(number, failure)
            case Ended():
                self._carry_out(supervisor.ended(part, message, now))
                self._leave(part)
            case LinkLost():
                self._on_link_lost(process, message)
            case Seen(content):
                self._see(part, content)
            case TellTime():
                self._compare_clocks(process, message)
            case AskTime(asked):
                process.channel.post(TellTime(asked, time.monotonic_ns(), self._began.clock))

    def _on_link_lost(self, process: Any, lost: LinkLost) -> None:
        """Do what is left to do if a part is lost to another one: the two have done what its policy says."""
        flow = next(each for each in self.supervisor.flows if each.name == lost.flow)
        part, peer = self.supervisor.parts[lost.part], self._processes.get(lost.part)
        if self._processes.get(process.part) != process or lost.epoch != self._epoch(flow):
            return  # it is known: another process has taken the place of one of them
        if part.report is not None and process.channel is not None:
            process.channel.post(EndFlow(lost.flow, lost.epoch))
        if peer is not None and peer.channel is not None and part.state <= State.RUNNING:
            self._lose(process, lost, part, peer)

    def _lose(self, process: Any, lost: LinkLost, part: Part, peer: Any) -> None:
        """End a process that is lost to another one, if it is to be started again; it may be gone already."""
        if part.on_loss != RESTART or self.supervisor.is_stopping:
            return
        is_known = any(each.part == lost.part for _, each in self._lost_links)
        self._lost_links.append((process, lost))
        if not (is_known or peer.has_ended):
            self._carry_out([Warn(f"part {part.name!r} is lost in flow {lost.flow!r}; its process is ended")])
            peer.kill()

    def _see(self, part: str, content: Any) -> None:
        """Show the watchers what was seen in a part."""
        assert self._joined is not None
        if isinstance(content, bytes):
            self._joined.add(part, content)
            return
        try:
            self._joined.describe(part, content)
        except Exception as error:  # of a watcher that cannot begin
            self.watch_failure = self.watch_failure or error
            self._control.fail(error)

    def _compare_clocks(self, process: Any, answer: TellTime) -> None:
        """Note what time it is elsewhere; processes of this host are not asked."""

    def _on_output(self, process: Process, lines: Lines) -> None:
        lines.read()
        if lines.is_closed:
            with suppress(KeyError):
                self._selector.unregister(lines)

    def _on_exit(self, process: Any, _: Any) -> None:
        while process.channel in _files(self._selector):  # its last words come first
            if not process.has_data():
                break
            self._on_message(process, None)
        self._reap(process)
        if process in self._leaving:
            self._leaving.remove(process)
            return
        del self._processes[process.part]
        self._exited(process, process.interrupt_of_exit())

    def _exited(self, process: Any, failure: BaseException | None = None) -> None:
        self._carry_out(self.supervisor.exited(process.part, process.how(), monotonic(), failure))
        self._leave(process.part)
        lost_links, self._lost_links = self._lost_links, []
        for each in lost_links:  # it may have ended its run, and is not started again then
            self._on_link_lost(*each)

    def _reap(self, process: Any) -> None:
        for source in process.sources:
            with suppress(KeyError, ValueError):
                self._selector.unregister(source)
        process.close()

    # The end.

    def end_watching(self, outcome: Outcome | None) -> BaseException | None:
        """End the watchers; return the error of one."""
        if self._joined is not None:
            try:
                self._joined.end(outcome)
            except Exception as error:
                return error
        return None

    def outcome(self, failure: BaseException | None) -> Outcome:
        """Return the outcome of the run."""
        supervisor = self.supervisor
        ended_by = supervisor.ended_by
        if isinstance(failure, (KeyboardInterrupt, SystemExit)):
            ended_by = EndedBy.INTERRUPTED
        elif failure is not None:
            ended_by = EndedBy.FAILED
        reports = {name: part.report for name, part in supervisor.parts.items() if part.report is not None}
        graph = self._application.graph
        restarts = {
            operator.name: supervisor.restarts.get(operator.fragment.name, 0)
            for operator in graph
            if supervisor.restarts.get(operator.fragment.name)
        }
        return merge(
            self._application.name,
            [operator.name for operator in graph],
            supervisor.outcomes.values(),
            [(flow, _ends_of(flow, reports)) for flow in supervisor.flows],
            ended_by,
            _records(supervisor),
            restarts,
            supervisor.lost,
        )


def _reason(supervisor: Supervisor) -> str:
    """Return why all parts are stopped, for the log; a signal says nothing of the part that it came to."""
    why = supervisor.failure
    if why is None:
        return ""
    part = next(name for name, error, _ in supervisor.failures if error is why)
    if part and isinstance(why, (KeyboardInterrupt, SystemExit)):
        return f": part {part!r} was interrupted"
    return f": {type(why).__name__}: {message_of(why)}"


def _connected() -> tuple[socket.socket, socket.socket]:
    """Return two sockets that are connected; ``HEADRACE_LINK=tcp`` tries what links between hosts use."""
    if os.environ.get("HEADRACE_LINK") != "tcp":
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, peer = server.accept()
    if peer != ours.getsockname():  # a stranger was faster
        raise ConnectionError("another program connected to a link of this one")
    return ours, theirs


def _bound(serve: Callable[[Process, Any], None], process: Process, source: Any) -> Callable[[], None]:
    return lambda: serve(process, source)


def _files(selector: selectors.BaseSelector) -> list[Any]:
    return [key.fileobj for key in selector.get_map().values()]


def _refuse_ends(application: Any) -> None:
    """Raise for operators through which the program exchanges frames with its own process."""
    for operator in application.graph:
        if type(operator).__name__ in ("FeedOp", "ResultsOp"):
            raise GraphError(
                f"operator {operator.name!r} exchanges frames with the program, which runs in the driver, while "
                "each fragment runs in a process of its own; leave out processes, or use a topic"
            )


def _ends_of(flow: CutFlow, reports: Mapping[str, Ended]) -> tuple[FlowCounts | None, FlowCounts | None]:
    sender, receiver = reports.get(flow.source), reports.get(flow.target)
    return (
        None if sender is None else sender.flows.get(flow.name),
        None if receiver is None else receiver.flows.get(flow.name),
    )


def _records(supervisor: Supervisor) -> list[ErrorRecord]:
    ranked = sorted(supervisor.failures, key=lambda failure: failure[2])
    causes = [each for each in ranked if each[2] < 3] or ranked[:1]
    first = causes[0][1] if causes else None
    found = []
    for name, error, _ in causes:
        where = next((note for note in notes_of(error) if note.startswith(("raised in ", "raised by "))), "")
        record = ErrorRecord(type(error).__name__, message_of(error), where.splitlines()[0] if where else "")
        found.append(record)
        if error is not first and first is not None:
            add_note(first, f"and in part {name!r}: {record.kind}: {record.message}")
    return found
