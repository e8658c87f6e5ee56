"""The driver: runs each fragment of an application in a process of its own, and supervises the processes.

It composes the program to know its parts, and computes nothing. `supervision` decides, `hosting` starts the
processes, and each of them connects to the driver (`reception`). This file has their channels and the signals,
served by the thread that called `run`, in one loop.

How a process has ended is said by the agent that started it. The end of a connection alone does not say it, and may
not come: a child of the process may have inherited it, or the host may be cut off. The driver tells the others at
once that a part is lost.

If the driver is killed, the system kills the processes that its own agent has started (`worker`), and the others
end with their connection: a program in one process would be gone as well.
"""

from __future__ import annotations

import logging
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import count
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import waits
from headrace._runtime import Interrupts, stop_timeout_of
from headrace.core.checks import compose
from headrace.core.control import PAUSE, RUNNING, RunControl, TimeBase
from headrace.core.errors import GraphError, add_note, message_of, notes_of
from headrace.core.log import configure_log, fields_of
from headrace.core.outcome import EndedBy, ErrorRecord, Outcome
from headrace.core.values import RESTART
from headrace.link.channel import Channel, finish_all
from headrace.link.loop import WakeUp
from headrace.observe.attachment import prepare_replay
from headrace.observe.environment import serve_metrics, watchers_from_environment
from headrace.observe.progress_line import is_wanted, shown_progress
from headrace.parts import messages
from headrace.parts.access import AGENT
from headrace.parts.calls import Calls
from headrace.parts.cut import cut_flows
from headrace.parts.digest import describe
from headrace.parts.environment import DASHBOARD, SPANNING, Launch, environment_of
from headrace.parts.hosting import open_here
from headrace.parts.lines import print_lines
from headrace.parts.messages import WORKER_ADDRESS
from headrace.parts.outcomes import ProgressOfParts, merge
from headrace.parts.supervision import (
    GRACE,
    SILENCE,
    Join,
    Kill,
    Part,
    Spawn,
    State,
    Supervisor,
    Tell,
    Warn,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from headrace.core.errors import Failure
    from headrace.link.handshake import Purpose
    from headrace.observe.events.clock_offsets import ClockOffset
    from headrace.parts.cut_flow import CutFlow, FlowCounts
    from headrace.parts.hosting import Hosting, Process, Reception
    from headrace.parts.joined_run import JoinedRun
    from headrace.parts.messages import Address
    from headrace.parts.supervision import Action

_log = logging.getLogger("headrace.parts")
_LONGEST = 1.0  # seconds after which the main thread looks for signals in any case
_SOON = 0.3  # seconds from the end of one thing of a process to that of the others, such as its links
_WORD = 2.0  # seconds from the end of a connection to the word of whoever started the process
_INHERITED = ("HEADRACE_", "HOLOSCAN_")
_OF_THE_HOST = frozenset(
    (
        "HEADRACE_ADDRESS",
        "HEADRACE_CLUSTER",
        "HEADRACE_DRIVER",
        "HEADRACE_FRAGMENTS",
        "HEADRACE_TLS",
        "HEADRACE_TOKEN",
        "HEADRACE_WORKER",
        WORKER_ADDRESS,
    )
)


def drive(
    application: Any,
    control: DriverControl,
    program: tuple[str, str, tuple[str, ...]] | None,
    earlier: Sequence[Outcome | Failure | None] = (),
    open_to: Callable[..., tuple[Reception, Hosting]] | None = None,
) -> Outcome:
    """Run the fragments of an application in processes; return the outcome, or raise what ended the run.

    `program` is what ``headrace run`` executes: a file or a module, a class in it, and its arguments. `earlier` is
    what the runs of this program before returned or raised. `open_to` says where processes connect, and who starts
    them; those of this host unless it is given.
    """
    configure_log()
    serve_metrics(application)
    launch = Launch.of(program)
    driver: Driver | None = None
    interrupts = Interrupts(application.name, control.stop, lambda: _waits_for(driver))
    try:
        interrupts.install()
        seconds = stop_timeout_of(application)
        interrupts.drain = None if seconds is None else partial(control.drain_within, seconds / 2)
        application._headrace.claim(control)
        application._headrace.outcome = None
        try:
            interrupts.held = False
            declared: list[Any] = []
            compose(application, lambda: declared.extend(_declared(application)))
            driver = open_driver(application, control, launch, earlier, open_to or open_here, *declared)
            application._headrace.progress_elsewhere = driver.progress.find
            application._headrace.watchers_elsewhere = driver.watchers
            application._headrace.processes_elsewhere = driver.process_numbers
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


def open_driver(
    application: Any,
    control: DriverControl,
    launch: Launch,
    earlier: Sequence[Outcome | Failure | None],
    open_to: Callable[..., tuple[Reception, Hosting]] = open_here,
    flows: Sequence[CutFlow] = (),
    description: Mapping[str, str] = MappingProxyType({}),
) -> Driver:
    """Return the driver of a composed application, to which its processes can connect."""
    graph = getattr(application, "fragment_graph", None)
    parts: list[Any] = [] if graph is None else list(graph.fragments)
    if not parts:
        raise GraphError(
            f"{application.name!r} cannot run in processes, because it is not made of fragments: its compose() "
            "connects Fragments, each of which gets a process, as in add_flow(Edge(self, 'edge'), Server(self, "
            "'server'), {('camera.out', 'detector.frame')})"
        )
    _refuse_ends(application)
    reception, hosting = open_to(parts, control, launch)
    try:
        return Driver(application, control, launch, earlier, flows, dict(description), reception, hosting)
    except BaseException:
        reception.close()
        hosting.close()
        raise


class DriverControl(RunControl):
    """The control of a run in processes, whose pauses are passed on to them."""

    __slots__ = ("_is_paused", "_lock", "drained_until", "find_problems", "on_request")

    def __init__(self) -> None:
        super().__init__(RUNNING)
        self.on_request: Callable[[], None] | None = None
        self.find_problems: Callable[[], list[str]] = list
        self.drained_until = float("inf")
        """When the parts are stopped that are being drained."""
        self._is_paused = threading.Event()
        self._lock = threading.RLock()  # a signal handler may pause, too

    def problems(self) -> list[str]:
        """Return what is wrong in the parts."""
        return self.find_problems()

    def start(self) -> None:
        """Record that every part has started: none of their operators is in this process."""
        super().start()
        self._has_begun.set()

    def drain_elsewhere(self) -> bool:
        """End the sources of all parts, and go on if they are paused; return whether the run has begun."""
        if self.has_started:
            self.drain_wanted = True
            self.resume()
        return self.has_started

    def drain_within(self, seconds: float) -> None:
        """End the sources, and stop the run after so many seconds; also from a signal handler."""
        self.drained_until = monotonic() + seconds
        if not self.drain_elsewhere():
            self.stop()

    def step(self, count: int, op_name: str = "") -> None:
        """Refuse: which operator of several processes is ready first is nobody's to say."""
        raise GraphError(
            "step() counts the computes of one process, and this run has one for each fragment: pause() and "
            "resume() hold for all of them; to step, run the program in one process"
        )

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


class _LostLink(NamedTuple):
    """A link that a process has lost with a part that is started again, unless it ends by itself until then."""

    process: Process
    lost: messages.LinkLost
    peer: Process
    until: float


class Driver:
    """The processes of one run.

    Parameters
    ----------
    application
        The application, which is composed.
    control
        The control of the run.
    launch, earlier
        How processes run the program, and what its runs before returned or raised.
    flows, description
        The flows between parts, and the description of the program.
    reception, hosting
        Where the processes connect, and who starts them.
    """

    def __init__(
        self,
        application: Any,
        control: DriverControl,
        launch: Launch,
        earlier: Sequence[Outcome | Failure | None],
        flows: Sequence[CutFlow],
        description: dict[str, str],
        reception: Reception,
        hosting: Hosting,
    ) -> None:
        self._application = application
        self._control = control
        self._launch = launch
        self._earlier = tuple(earlier)
        self._reception = reception
        self._hosting = hosting
        self._parts = {part.name: part for part in application.fragment_graph.fragments}
        self._ports: dict[str, list[tuple[str, str]]] = {part: [] for part in self._parts}
        self._began = TimeBase.of(time.monotonic_ns())
        for operator in application.graph:
            names = (*operator.spec.inputs, *operator.spec.outputs)
            self._ports[operator.fragment.name] += [(operator.name, name) for name in names]
        self.supervisor = Supervisor(
            {part.name: Part(part.name, part.on_loss) for part in self._parts.values()}, flows, description
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

            self._joined = JoinedRun(application, list(self._parts), watchers, hosting.gpus)
        self._ran_at = monotonic()
        self._tell_at = monotonic() + hosting.patience
        self._has_told_end = False
        self._is_paused = False
        self._pausing: list[Future[None]] = []  # the answers to the last pause
        self.progress = ProgressOfParts(application, flows, self._alive)
        # The computes that take longer than their deadlines, in words.
        self._stuck: dict[str, tuple[str, ...]] = {}
        self._numbers = count(1)
        self._processes: dict[str, Process] = {}
        self._agents: list[Channel] = []
        # Processes of which something has ended, and until when the rest has.
        self._ending: dict[Process, float] = {}
        self._unreached: list[_LostLink] = []
        self._selector = selectors.DefaultSelector()
        self._wake = WakeUp()
        self._selector.register(self._wake, selectors.EVENT_READ, self._wake.clear)
        self._selector.register(reception, selectors.EVENT_READ, self._on_arrival)

    def run(self) -> None:
        """Start the processes, and return when all have ended."""
        control = self._control
        control.on_stop = control.on_request = self._wake.set
        self._calls = self.progress.calls = Calls(self._wake.set)
        control.set_elsewhere = self._calls.set_value
        control.find_problems = self.problems
        if sys.stdout is not None:
            sys.stdout.flush()  # before what the processes write
        with ExitStack() as stack:
            stack.callback(self._close)
            stack.callback(self._hosting.close)
            stack.callback(self._reception.close)
            stack.callback(finish_all, self._agents, messages.RunOver())
            self._carry_out(self.supervisor.begin())
            while self._processes:
                self._step()

    def _close(self) -> None:
        control = self._control
        control.on_stop = control.on_request = control.set_elsewhere = None
        self.progress.calls = None
        self._calls.close()
        for process in self._processes.values():  # only after an error of this file
            self._reap(process)
        self._selector.close()
        self._wake.close()

    def problems(self) -> list[str]:
        """Return what is wrong in the parts, in words; from any thread."""
        parts = self.supervisor.parts.values() if self._control.has_started else ()
        absent = [part.name for part in parts if part.state < State.RUNNING]
        return [
            *(f"fragment {name!r} is started again" for name in absent),
            *(text for texts in list(self._stuck.values()) for text in texts),
        ]

    def watchers(self) -> Sequence[Any]:
        """Return the watchers of all parts that have begun; from any thread."""
        return () if self._joined is None else tuple(self._joined.group.begun)

    def process_numbers(self) -> dict[str, int | None]:
        """Return the number of the process of each part on its host, None while there is none; from any thread."""
        return {part: each.pid for part, each in list(self._processes.items())}

    def waits_for(self) -> str:
        """Return what the run waits for, for the log."""
        return f"the processes of {', '.join(map(repr, self._processes)) or 'no fragment'}"

    # The loop.

    def _step(self) -> None:
        control, now = self._control, monotonic()
        if (
            now - self._ran_at > 1.5 * _LONGEST
        ):  # Ctrl-Z stops all processes, a busy machine delays all of them
            self.supervisor.forgive(now)
            self._hosting.forgive(now)
        self._ran_at = now
        self._tell_absent(now)
        self._pass_on_requests()
        while control.errors:
            self._carry_out(self.supervisor.fail("", control.errors.popleft(), now))
        if control.drain_wanted and not self.supervisor.is_draining:
            self.supervisor.is_draining = True
            self._tell_all("drain")
        if now >= control.drained_until:
            control.drained_until = float("inf")
            control.stop()
        if control.stop_wanted and not self.supervisor.is_stopping:
            self.supervisor.ended_by = EndedBy.STOPPED
            self._carry_out(self.supervisor.stop(now))
        for part, process in self._processes.items():
            self.supervisor.beat(part, process.beat)
        # With the time from before: all may have been stopped since, which is noticed at the next check.
        self._carry_out(self.supervisor.tick(now))
        for channel in self._channels():
            if channel.wants_write:
                self._watch(channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
        left = max(self._next_time() - monotonic(), 0.0)
        if not self._processes:  # the last process was given up, and nothing more will happen
            left = 0.0
        for key, _ in self._selector.select(min(left, _LONGEST)):
            # It may be gone because of the one before, and its number may be that of another file.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        # After what has arrived was read: an answer may have waited for this process.
        self._give_up_agents(now)
        self._end_waits(monotonic())

    def _next_time(self) -> float:
        known = self.supervisor.next_time()
        times = [self._control.drained_until] if known is None else [self._control.drained_until, known]
        times += [asked + SILENCE for asked in self._hosting.unanswered.values()]
        times += [*self._ending.values(), *(each.until for each in self._unreached)]
        return min(times, default=float("inf"))

    def _tell_absent(self, now: float) -> None:
        """Warn of parts that nobody runs, if they wait for long."""
        absent = [part for part, process in self._processes.items() if not process.was_attached]
        for part in self._hosting.look(absent):
            if self.supervisor.parts[part].heard_at is None:
                self.supervisor.beat(part, now)
        if now >= self._tell_at:
            self._tell_at = float("inf")
            text = self._hosting.waits_for(absent) if absent else ""
            if text:
                _log.warning("%s", text, extra=fields_of(self._application))

    def _end_waits(self, now: float) -> None:
        """Do without what has not come in time."""
        for process in [each for each, until in self._ending.items() if now >= until]:
            self._exit(process)
        for each in [each for each in self._unreached if now >= each.until]:
            self._unreached.remove(each)
            self._replace(each)

    def _give_up_agents(self, now: float) -> None:
        """Do without agents that do not answer, because they are frozen."""
        for channel in [each for each, asked in self._hosting.unanswered.items() if now >= asked + SILENCE]:
            self._lose_agent(channel, f"has said nothing for {SILENCE:g} s, and is frozen")

    def _pass_on_requests(self) -> None:
        requests = self._control.requests
        while requests:
            kind, _, _ = requests.popleft()
            self._is_paused = kind == PAUSE
            self._pausing = self._tell_all("pause", self._is_paused)
        self._control.tell_paused(self._is_paused and all(answer.done() for answer in self._pausing))
        for part, call in self._calls.take(self._alive()):
            self._post(part, call)

    def _tell_all(self, method: str, *arguments: Any) -> list[Future[Any]]:
        """Let all parts do something, also those that have yet to be linked; return their answers."""
        parts = self.supervisor.parts.values()
        there = [part.name for part in parts if part.state <= State.RUNNING]
        return [self._calls.call(part, method, *arguments) for part in there]

    def _leave(self, part: str) -> None:
        """Expect no answers of a part that is gone, and forget what was wrong with its operators."""
        self._stuck.pop(part, None)
        known = self.supervisor.parts[part]
        self._calls.leave(part, known.state >= State.REPORTED)
        self.progress.leave(part, None if known.report is None else known.report.progress)

    def _alive(self) -> set[str]:
        """Return the parts whose processes have their links."""
        parts = self.supervisor.parts.values()
        return {part.name for part in parts if part.state in (State.LINKED, State.RUNNING)}

    # Actions.

    def _carry_out(self, actions: list[Action]) -> None:
        if self.supervisor.is_stopping and not self._has_told_end:
            self._has_told_end = True
            _log.info(
                "all fragments are stopped%s", _reason(self.supervisor), extra=fields_of(self._application)
            )
        for action in actions:
            match action:
                case Spawn(part):
                    self._leave(part)
                    self._spawn(part)
                case Join(flows, parts):
                    self._join(flows, parts)
                case Tell(part, what):
                    if isinstance(what, messages.Cancel) and self._processes[part].channel is None:
                        self._exit(self._processes[part])  # it ends with whoever was to start it
                    else:
                        self._post(part, what)
                case Kill(part):
                    self._kill(self._processes[part])
                case Warn(text):
                    _log.warning("%s", text, extra=fields_of(self._application))

    def _post(self, part: str, message: Any) -> None:
        """Tell the process of a part something, if it is there."""
        process = self._processes.get(part)
        if process is not None and process.channel is not None:
            process.channel.post(message)

    def _kill(self, process: Process) -> None:
        self._hosting.end(process.part)
        self._tell_lost(process)
        if self.supervisor.parts[process.part].is_killed:
            self._exit(process)
        else:  # another one takes its place
            self._reap(process)
            del self._processes[process.part]

    def _spawn(self, part: str) -> None:
        number, environment = next(self._numbers), self._environment(part)
        self._processes[part] = self._hosting.start(part, number, environment)

    def _environment(self, part: str) -> dict[str, str]:
        """Return the variables of headrace for the process of a part."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_INHERITED) and name not in _OF_THE_HOST and name not in SPANNING
        }
        if not self._hosting.is_here:
            inherited[DASHBOARD] = ""  # its address would be that of the driver's page
        return environment_of(part, inherited, self._ports, self.supervisor.restarts.get(part, 0))

    def _assignment(self, process: Process) -> messages.Assignment:
        interests = None
        if self._joined is not None:
            from headrace.parts.forwarding import interests_of

            interests = interests_of(self._joined.watchers)
        return messages.Assignment(
            process.part,
            self._launch,
            self._earlier,
            self._control.run_id,
            self._began,
            interests,
        )

    def _join(self, flows: Sequence[CutFlow], parts: Sequence[str]) -> None:
        """Tell the processes where to connect links, and what was requested and set before, first of all."""
        ends: dict[str, list[tuple[str, int, Address]]] = {part: [] for part in parts}
        for flow in flows:
            for part in (flow.source, flow.target):
                address = self._processes[flow.target].address
                ends.setdefault(part, []).append((flow.name, self._epoch(flow), address))
        for part in parts:  # a pause holds before the first compute
            for call in self._calls.values_of(part):
                self._post(part, call)
        for part, own in ends.items():
            self._post(part, messages.Connect(tuple(own)))

    def _epoch(self, flow: CutFlow) -> int:
        """Return the epoch of the link of a flow now."""
        return sum(self.supervisor.parts[part].epoch for part in (flow.source, flow.target))

    # What arrives.

    def _on_arrival(self) -> None:
        for what in self._reception.take():
            match what:
                case messages.Gone():
                    self._on_gone(what)
                case purpose, channel:
                    if purpose.kind == AGENT:
                        self._add_agent(purpose.name, channel)
                    else:
                        self._add_process(purpose, channel)

    def _add_process(self, purpose: Purpose, channel: Channel) -> None:
        process = self._processes.get(purpose.name)
        if process is None or process.number != purpose.epoch or process.was_attached:
            channel.close()  # it was given up
            return
        process.attach(channel)
        self.supervisor.beat(process.part, monotonic())
        channel.post(self._assignment(process))
        self._selector.register(channel, selectors.EVENT_READ, partial(self._on_message, process))

    def _channels(self) -> list[Channel]:
        """Return the channels that something may be left to be sent to."""
        processes = self._processes.values()
        return [*(each.channel for each in processes if each.channel is not None), *self._agents]

    def _watch(self, channel: Channel, events: int) -> None:
        key = self._selector.get_map().get(channel)
        if key is not None and key.events != events:
            self._selector.modify(channel, events, key.data)

    def _take(self, channel: Channel) -> list[Any] | None:
        """Send what is left, and return what has arrived; None when the other end was closed."""
        if channel.wants_write:
            channel.flush()
        if not channel.wants_write:
            self._watch(channel, selectors.EVENT_READ)
        return channel.take()

    def _on_message(self, process: Process) -> None:
        assert process.channel is not None
        arrived = self._take(process.channel)
        if arrived is None:
            self._on_closed(process)
            return
        for message in arrived:
            self._handle(process, message)

    def _handle(self, process: Process, message: Any) -> None:
        if self._processes.get(process.part) is not process:
            return  # it was given up
        supervisor, part, now = self.supervisor, process.part, monotonic()
        match message:
            case messages.Composed(description, address, number):
                process.composed(address, number)
                self._carry_out(supervisor.composed(part, description, now))
            case messages.Started():
                self._carry_out(supervisor.started(part, now))
                if supervisor.has_started:
                    self._control.start()
            case messages.Beat(problems):
                self._stuck[part] = problems
            case messages.Idle(report, wave):
                self._carry_out(supervisor.idle(part, report, wave, now))
            case messages.AtRisk(flow, count, holders):
                supervisor.at_risk(part, flow, count, holders)
            case messages.Reply():
                self._calls.answer(message)
            case messages.Ended():
                self._carry_out(supervisor.ended(part, message, now))
                self._leave(part)
            case messages.LinkLost():
                self._on_link_lost(process, message)
            case messages.Seen(content, clock):
                self._see(part, content, clock)
            case messages.AskTime(asked):
                self._post(part, messages.TellTime(asked, time.monotonic_ns()))

    def _see(self, part: str, content: bytes, clock: ClockOffset) -> None:
        """Show the watchers what was seen in a part."""
        assert self._joined is not None
        try:
            self._joined.add(part, content, clock)
        except Exception as error:  # of a watcher that cannot begin
            self.watch_failure = self.watch_failure or error
            self._control.fail(error)

    # Lost links.

    def _on_link_lost(self, process: Process, lost: messages.LinkLost) -> None:
        """Do what is left to do if a part is lost to another one: the two have done what its policy says.

        If that part was killed, it is known soon. If not, only the network between the two has failed. Then the one
        that reports it fails, goes on alone, or needs a new process at the other end.
        """
        flow = next(each for each in self.supervisor.flows if each.name == lost.flow)
        name = flow.target if flow.source == process.part else flow.source
        part, peer = self.supervisor.parts[name], self._processes.get(name)
        if self._processes.get(process.part) is not process or lost.epoch != self._epoch(flow):
            return  # it is known: another process has taken the place of one of them
        if part.report is not None:
            self._post(process.part, messages.EndFlow(lost.flow, lost.epoch))
        if (
            peer is None
            or part.state > State.RUNNING
            or any(each.peer is process for each in self._unreached)
        ):
            return  # or another one said so first
        self._post(peer.part, messages.Lost(process.part, lost.flow, lost.epoch))
        if part.on_loss == RESTART and not self.supervisor.is_stopping:
            self._unreached.append(_LostLink(process, lost, peer, monotonic() + _SOON))

    def _replace(self, found: _LostLink) -> None:
        """Start a part again which another one cannot reach, if it has not ended meanwhile."""
        part, peer = found.peer.part, found.peer
        if self._processes.get(part) is peer and self.supervisor.parts[part].state <= State.RUNNING:
            self._carry_out(
                [Warn(f"fragment {part!r} is lost in flow {found.lost.flow!r}; its process is ended")]
            )
            self._hosting.end(part)
            self._exit(peer)
        else:
            self._on_link_lost(found.process, found.lost)

    # Agents.

    def _add_agent(self, fragments: str, channel: Channel) -> None:
        try:
            taken = self._hosting.add_agent(fragments, channel, self._has_begun)
        except GraphError as error:
            # It reads that when it can, and the others are not kept waiting.
            refuse = partial(finish_all, [channel], messages.Refused(str(error)))
            threading.Thread(target=refuse, name="headrace refusal", daemon=True).start()
            return
        self._agents.append(channel)
        self._selector.register(channel, selectors.EVENT_READ, partial(self._on_agent, channel))
        for part in taken:  # by this one, which was named for it
            self._reap(self._processes[part])
            self.supervisor.parts[part].begin_again()
            self._spawn(part)

    def _has_begun(self, part: str) -> bool:
        return self.supervisor.has_begun or self.supervisor.parts[part].epoch > 0

    def _on_agent(self, channel: Channel) -> None:
        arrived = self._take(channel)
        if arrived is None:
            self._lose_agent(channel, "is gone")
            return
        for message in arrived:
            if isinstance(message, messages.Gone):
                self._on_gone(message)
            elif isinstance(message, messages.Starting):
                self._hosting.note_answer(channel)
                self._on_starting(message)
            elif isinstance(message, messages.Printed):
                self._print(message)

    def _print(self, printed: messages.Printed) -> None:
        try:
            print_lines(printed.stream, printed.data)
        except (OSError, ValueError) as error:  # nobody reads it any more
            self._control.fail(error)

    def _lose_agent(self, channel: Channel, how: str) -> None:
        """Do without an agent: its processes end with it, and others may start those that had not come."""
        self._forget(channel)
        self._agents.remove(channel)
        channel.close()
        for part in self._hosting.remove_agent(channel, how):
            process = self._processes.get(part)
            if process is None:
                continue
            if not process.was_attached:
                self.supervisor.parts[part].heard_at = None
                self._hosting.start_elsewhere(process)
            else:  # what it has said may be on its way, or its host is cut off and its connection does not end
                self._ending[process] = monotonic() + _SOON
        self._tell_at = monotonic() + self._hosting.patience

    def _on_starting(self, starting: messages.Starting) -> None:
        """Let the time of a process pass: it was started."""
        process = self._processes.get(starting.part)
        if process is not None and process.number == starting.number:
            self.supervisor.beat(starting.part, monotonic())

    # The end of processes.

    def _on_gone(self, gone: messages.Gone) -> None:
        """Handle what whoever started a process says of its end; its last words may come after that."""
        process = self._processes.get(gone.part)
        if process is None or gone.number != process.number:
            return
        process.note_end(gone)
        while process.channel is not None and process.channel.has_data():
            self._on_message(process)
        if self._processes.get(process.part) is not process:
            return
        if process.channel is None:
            self._exit(process)
        else:
            self._ending[process] = monotonic() + _SOON

    def _on_closed(self, process: Process) -> None:
        """Handle the end of a connection: whoever started the process says how it has ended, if that is known."""
        state = self.supervisor.parts[process.part].state
        self._forget(process.channel)
        process.detach()
        if process.is_gone:
            self._exit(process)
        elif state > State.SPAWNED:  # what it has printed comes before the word of its agent
            self._ending[process] = monotonic() + (GRACE if state >= State.REPORTED else _WORD)

    def _exit(self, process: Process) -> None:
        """Do without a process, which is gone, and let the others wait no longer for what it has not said."""
        self._reap(process)
        if self._processes.get(process.part) is not process:
            return
        del self._processes[process.part]
        part = self.supervisor.parts[process.part]
        if part.state < State.REPORTED:
            self._tell_lost(process)
        failure = process.interrupt_of_exit()
        self._carry_out(self.supervisor.exited(process.part, process.how, monotonic(), failure))
        self._leave(process.part)

    def _tell_lost(self, lost: Process) -> None:
        """Tell the others that a process is lost: their links may not end, or notice later that it says nothing."""
        for part in self._processes:
            if part != lost.part:
                self._post(part, messages.Lost(lost.part))

    def _reap(self, process: Process) -> None:
        self._ending.pop(process, None)
        self._forget(process.channel)
        process.detach()

    def _forget(self, source: Any) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(source)

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
            [
                (flow, (self._counts(flow.source, flow), self._counts(flow.target, flow)))
                for flow in supervisor.flows
            ],
            ended_by,
            _records(supervisor),
            restarts,
            supervisor.lost,
        )

    def _counts(self, part: str, flow: CutFlow) -> FlowCounts | None:
        """Return what an end of a flow has seen; None if its process was lost."""
        report = self.supervisor.parts[part].report
        return None if report is None or report.progress is None else report.progress.flows.get(flow.name)


def _reason(supervisor: Supervisor) -> str:
    """Return why all fragments are stopped, for the log; a signal says nothing of the part that it came to."""
    why = supervisor.failure
    if why is None:
        return ""
    part = next(name for name, error, _ in supervisor.failures if error is why)
    if part and isinstance(why, (KeyboardInterrupt, SystemExit)):
        return f": fragment {part!r} was interrupted"
    return f": {type(why).__name__}: {message_of(why)}"


def _refuse_ends(application: Any) -> None:
    """Raise for operators through which the program exchanges frames with its own process."""
    from headrace.operators import FeedOp, ResultsOp

    for operator in application.graph:
        if isinstance(operator, (FeedOp, ResultsOp)):
            raise GraphError(
                f"operator {operator.name!r} exchanges frames with the program, which runs in the driver, while "
                "each fragment runs in a process of its own; leave out processes, or use a topic"
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
            add_note(first, f"and in fragment {name!r}: {record.kind}: {record.message}")
    return found
