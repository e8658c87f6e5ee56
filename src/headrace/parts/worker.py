"""The process of a part: runs the program up to the driver's call of `run`, and there runs one fragment.

It connects to the driver, and executes the same file with the same arguments, as ``__main__``. Runs that came
before return what they returned in the driver. At the run in question it composes the program, sends its
description, connects its links, keeps its own part of the graph and runs it like any other. Then it reports the
outcome and raises `SystemExit` where the program called `run`: the rest of the program is the driver's, but
``with`` and ``finally`` clean up here.

A thread listens to the driver. The thread that serves the links gives a sign of life twice a second, when it wakes
up for them anyway. The process ends with whoever started it: the system kills it (PR_SET_PDEATHSIG). It ends itself
with its connection to the driver.

Decided against: to fork the processes from the driver, which may have threads and a GPU context; and to pickle the
fragments, since compose() may use what cannot be pickled.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from headrace import waits
from headrace.application import Fragment
from headrace.application.runner import Runner, drain
from headrace.cli.program import Program, ProgramError
from headrace.core.control import RUNNING, RunControl, TimeBase, clock_name
from headrace.core.errors import Failure, GraphError, LinkError, PeerLost, add_note, notes_of
from headrace.core.outcome import Outcome, Progress, stuck_operators
from headrace.core.values import GO_ON, RESTART, STOP, byte_size
from headrace.link.carrier import Carrier
from headrace.link.channel import Channel, pack
from headrace.link.handshake import Purpose
from headrace.link.loop import default_loop
from headrace.link.protocol import Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.observe.events.clock_offsets import Answer, ClockOffset, OffsetMeasurement
from headrace.parts import lines, messages
from headrace.parts.access import LINK, PART, Access
from headrace.parts.cut import Cut
from headrace.parts.digest import describe
from headrace.parts.environment import SPANNING
from headrace.parts.messages import TOKEN, WORKER_ADDRESS
from headrace.parts.outcomes import PartProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.core.run_options import RunOptions
    from headrace.link.listener import Taker
    from headrace.parts.cut_flow import CutFlow
    from headrace.parts.idleness import IdleReport
    from headrace.parts.messages import Address

_log = logging.getLogger("headrace.parts")
_PR_SET_PDEATHSIG = 1
_QUIET_BEAT = pack(messages.Beat())
BEAT = 0.5  # seconds, when the links wake the process up anyway
_CHECKS = 10  # in a second
_CONNECTING = 10  # seconds within which another part connects a link, as `link.connect`
LINK_MEMORY = "HEADRACE_LINK_MEMORY"
"""The variable with the most memory of a link between two parts."""


def join(address: Address, part: str, number: int, parent: int, cpus: tuple[int, ...], program: str) -> None:
    """Run a part of a program for a driver that listens, on this host or another, and end with the parent."""
    # What was put there to find headrace, and the folder that `python -c` adds.
    del sys.path[: 1 if sys.flags.safe_path else 2]
    _end_with(parent)
    _open_streams()
    if cpus:
        os.sched_setaffinity(0, cpus)
    access = Access()
    if not isinstance(address, str):
        access = Access(os.environ.pop(TOKEN).encode(), bool(os.environ.get("HEADRACE_TLS")))
    listens_at = os.environ.pop(WORKER_ADDRESS, "")
    try:
        channel = Channel(access.connect(address, Purpose(PART, part, number)))
    except LinkError as error:
        sys.exit(f"fragment {part!r}: {error}")
    with _told_of_interrupts(channel):
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        assignment: messages.Assignment | None = channel.receive_one()
        if assignment is None:
            return
        launch = assignment.program
        name = program or launch.name
        if name.endswith(".py") and not os.path.exists(name):  # it was sent to where this host keeps it
            name = os.path.basename(name)
        is_module = launch.is_module and not program
        launch = replace(launch, name=name, is_module=is_module)
        began, measured = _began_here(channel, assignment)
        assignment = replace(assignment, program=launch, began=began)
        port = LinkPort(listens_at or channel.host, access)
        _serve(channel, assignment, port, measured)


@contextmanager
def _told_of_interrupts(channel: Channel) -> Iterator[None]:
    """Tell the driver of Ctrl-C that comes before, or after, the program can say so."""
    try:
        yield
    except KeyboardInterrupt as error:
        channel.send(messages.Ended(None, Failure.of(error)))


def _began_here(
    channel: Channel, assignment: messages.Assignment
) -> tuple[TimeBase, OffsetMeasurement | None]:
    """Return when the clock of the run began, by the clock of this process, and how that was measured.

    The driver is asked for its time, unless both have the same clock.
    """
    began, name = assignment.began, clock_name()
    if name and name == began.clock:
        return began, None
    measured = OffsetMeasurement()
    while not measured.is_sure:
        channel.send(messages.AskTime(time.monotonic_ns()))
        answer = channel.receive_one(messages.TellTime)
        if answer is None:  # the driver is gone, which the worker notices
            return began, None
        measured.add(Answer(answer.asked, answer.answered, time.monotonic_ns()))
    offset = measured.offset
    _log.info("fragment %r: the clock of the driver is that of this host, and %s", assignment.part, offset)
    return began._replace(clock=name, zero=began.zero + offset.offset), measured


def _serve(
    channel: Channel, assignment: messages.Assignment, port: LinkPort, measured: OffsetMeasurement | None
) -> None:
    """Run a part, and leave the process."""
    try:
        with _told_of_interrupts(channel):
            for name in SPANNING:  # the driver watches
                os.environ.pop(name, None)
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
            logging.getLogger("headrace.run").addFilter(_is_not_the_outcome)
            worker = Worker(channel, assignment, port, measured)
            default_loop().add(worker)
            # From here on the driver may cancel the run.
            threading.Thread(target=worker.listen, name="headrace driver", daemon=True).start()
            worker.run()
            worker.wait_to_leave()
        default_loop().stop()  # all parts have reported: nobody reads what is left
        atexit._run_exitfuncs()
    finally:
        # Everything was stopped and reported. To take the interpreter apart would keep the driver waiting.
        os._exit(0)


def _end_with(driver: int) -> None:
    """Let the system kill this process when the driver ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != driver:  # it ended before
        os._exit(1)


def terms_of(flow: CutFlow) -> Terms:
    """Return the terms of the link of a flow, the same at both ends."""
    # The driver hears both processes, and tells each of the loss of the other one.
    terms = Terms(flow.name, flow.size, flow.policy, silence=None)
    wanted = os.environ.get(LINK_MEMORY)
    return replace(terms, max_bytes=byte_size(wanted, LINK_MEMORY, 1)) if wanted else terms


def _open_streams() -> None:
    """Let no socket have the number of a stream that is closed: `report` leads the streams elsewhere."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _flush(stream: Any) -> None:
    """Write what was printed; the program may have put None, a closed file or anything in its place."""
    with suppress(Exception):
        stream.flush()


def _is_not_the_outcome(record: logging.LogRecord) -> bool:
    """Leave to the driver the outcome, which is that of the whole program, and the errors of other parts."""
    if record.exc_info and isinstance(record.exc_info[1], LinkError):
        return False
    return not (isinstance(record.args, tuple) and record.args and isinstance(record.args[0], Outcome))


class Over(SystemExit):
    """The part has ended, and with it what this process has to do of the program."""


class Worker:
    """A part in its process. The loop that serves its links lets it beat.

    `measured` compares the clock of the driver with the one here, if that is another one.
    """

    def __init__(
        self,
        channel: Channel,
        assignment: messages.Assignment,
        port: LinkPort,
        measured: OffsetMeasurement | None = None,
    ) -> None:
        self.channel = channel
        self._measured = measured
        self._next_beat = 0.0
        self._beating = os.eventfd(0, os.EFD_CLOEXEC)  # nothing happens at it
        self._port = port
        self._may_leave = threading.Event()
        self.assignment = assignment
        self.cut: Any = None  # the Cut, once there is one
        self.control: PartControl | None = None
        self.is_over = False
        self._has_reported = False
        # From now on: operators may open as many files as the system allows.
        self._nowhere = os.open(os.devnull, os.O_WRONLY)
        # By flow: the part at the other end, and the link, also if it was closed and its peer reads the rest.
        self._links: dict[str, tuple[str, Any]] = {}
        self._epochs: dict[str, int] = {}  # of the links, by flow
        self._lost: set[str] = set()  # parts, until there is an end of a new link with them
        self._is_linked = threading.Event()
        self._has_ends = False  # whether the driver has said where links are connected
        self._connecting = threading.Lock()  # those of a former process come first
        self._has_started = False
        self._early: list[messages.Call] = []  # before the operators have started
        self._wave = 0
        self._lock = threading.Lock()

    # The program.

    def run(self) -> None:
        """Execute the program."""
        launch = self.assignment.program
        Fragment._headrace.runner = PartRunner(self)
        try:
            program = Program(launch.name, launch.class_name, launch.is_module)
            program.execute(list(launch.arguments), lambda kind: kind().run(), lambda: self.is_over)
            if not self.is_over:
                raise ProgramError(
                    "the program ended without the run that the driver is in: it did something else here"
                )
        except Over:
            pass
        except BaseException as error:
            if not self._has_reported:
                self.report(None, error)

    def run_part(self, application: Any, runner: PartRunner, limits: RunOptions) -> NoReturn:
        """Run the part, report how that ended, and leave the program."""
        if self.is_over:
            raise Over(0)
        self.is_over = True  # whatever comes, this was the run
        failure: BaseException | None = None
        try:
            control = self.control = PartControl(self)
            control.run_id, control.began = self.assignment.run_id, self.assignment.began
            self.cut = Cut(application, self.assignment.part, self._join)
            self.cut.on_failure = self._on_failure
            self.cut.idleness.on_risk = lambda *what: self.channel.post(messages.AtRisk(*what))
            if application.scheduler().stop_on_deadlock:
                self.cut.idleness.on_idle = self._on_idle
                self.cut.idleness.waits_to_be_asked = True
            self._forward(application)
            runner.run_here(application, control, limits)
        # By `run` in an operator. It would end the program of the driver without a word.
        except Over as error:
            failure = GraphError(
                f"an operator of fragment {self.assignment.part!r} runs an application, which it cannot do in the "
                "process of a fragment: run that application in the program, before this run or after it"
            )
            for note in notes_of(error):
                add_note(failure, note)
        except BaseException as error:
            failure = error
        self.report(getattr(application, "outcome", None), failure)
        raise Over(0)

    def _forward(self, application: Any) -> None:
        """Let the driver watch in the place of the watchers that span parts, which have nothing to see here."""
        application._headrace.watchers = [
            each for each in application._headrace.watchers if not each.spans_parts
        ]
        interests = self.assignment.interests
        if interests is not None:
            from headrace.parts.forwarding import Forwarder

            application._headrace.watchers.append(Forwarder(self._show, interests))

    def _show(self, content: bytes) -> None:
        here = ClockOffset() if self._measured is None else self._measured.offset
        self.channel.send(messages.Seen(content, replace(here, offset=-here.offset)))

    def report(self, outcome: Outcome | None, failure: BaseException | None) -> None:
        """Tell the driver how the run ended; write nothing after that, as the rest is the driver's."""
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            _flush(stream)
            os.dup2(self._nowhere, descriptor)
        progress = None if outcome is None else PartProgress.of(self.cut)
        self._has_reported = True
        reason = None if failure is None else Failure.of(failure)
        self.channel.send(messages.Ended(outcome, reason, progress))

    def wait_to_leave(self) -> None:
        """Wait until the runs of all parts are over; this part has reported, and no signal is for it any more."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        waits.wait(self._may_leave)

    # The links.

    def _join(self, cut: Cut) -> None:
        """Compare the composed program with that of the driver, and connect the part with the others."""
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)
        lines.begin()
        self.channel.send(messages.Composed(describe(cut.application), self._port.address, os.getpid()))
        waits.wait(self._is_linked)

    def _connect_all(self, ends: Iterable[tuple[str, int, Address]], is_first: bool) -> None:
        """Connect links: all that there are, or later those with parts that were started again.

        The driver is heard meanwhile: a peer may be lost.
        """
        cut, control = self.cut, self.control
        assert control is not None  # it was there when the part had composed the program
        flows = {flow.name: flow for flow in self._flows}
        # Those that leave first: the others wait for those that leave elsewhere.
        ends = sorted(ends, key=lambda end: flows[end[0]] not in cut.outgoing)
        try:
            with self._connecting:
                for name, epoch, address in ends:
                    flow = flows.pop(name)
                    self._epochs[name] = epoch
                    try:
                        link = self._connect(flow, address, epoch)
                        self._links[name] = self._peer(flow), link
                    except LinkError as error:  # or it has ended, if the run is to end as well
                        link = self._without_peer(flow, None if control.stop_wanted else error)
                    cut.connect(name, link)
            # If this process takes the place of a lost one, other parts may be gone.
            for flow in flows.values() if is_first else ():
                peer = self._peer(flow)
                is_lost = self._on_loss(peer) == GO_ON
                failure = PeerLost(f"link {flow.name!r}: fragment {peer!r} is gone") if is_lost else None
                cut.connect(flow.name, self._without_peer(flow, failure))
        except Exception as error:
            control.fail(error)
        finally:
            self._is_linked.set()

    def _connect(self, flow: CutFlow, address: Address, epoch: int) -> Any:
        port, terms = self._port, terms_of(flow)
        if flow.source == self.cut.part:
            return Sender(self._await(port.send_to(address, flow.name, epoch), flow), terms, lambda: None)
        return Receiver(self._await(port.arrival(flow.name, epoch), flow), terms, lambda: None)

    def _without_peer(self, flow: CutFlow, error: LinkError | None) -> Any:
        """Return a link whose peer has ended, or is lost with an error."""
        terms, carriers = terms_of(flow), [Carrier(each) for each in socket.socketpair()]
        sender: Any = Sender(carriers[0], terms, lambda: None)
        receiver: Any = Receiver(carriers[1], terms, lambda: None)
        here, there = (sender, receiver) if flow.source == self.cut.part else (receiver, sender)
        if error is not None:
            here.lose(error)
        elif there is sender:
            sender.end()
        there.close()
        return here

    def _await(self, coming: Future[Any], flow: CutFlow) -> Any:
        """Wait for a link and return its carrier; fail if it does not come, or if its part is lost.

        Its time is that of an attempt to connect, or a second if the run is to end. It is counted in checks: a
        process that was stopped meanwhile has not had it.
        """
        peer, checks = self._peer(flow), 0
        while not waits.wait_for_futures([coming], 1.0 / _CHECKS):
            checks += 1
            if peer in self._lost or checks >= (_CHECKS if self._is_stopped else _CONNECTING * _CHECKS):
                coming.cancel()
                raise PeerLost(f"link {flow.name!r}: fragment {peer!r} could not be connected")
        return coming.result()

    @property
    def _flows(self) -> tuple[CutFlow, ...]:
        return (*self.cut.outgoing, *self.cut.incoming)

    def _peer(self, flow: CutFlow) -> str:
        """Return the part at the other end of a flow."""
        return flow.target if flow.source == self.cut.part else flow.source

    def _lose(self, lost: messages.Lost) -> None:
        """Abandon the links with a part that is lost, or one of them, as the driver says."""
        part = lost.part
        if not lost.flow:
            self._lost.add(part)
        for name, (peer, link) in list(self._links.items()):
            if peer == part and (not lost.flow or (name, self._epochs[name]) == (lost.flow, lost.epoch)):
                link.lose(PeerLost(f"link {name!r}: fragment {part!r} is lost"))

    @property
    def _is_stopped(self) -> bool:
        return self.control is not None and self.control.stop_wanted

    def _on_loss(self, part: str) -> str:
        """Return what becomes of the run if a part is lost."""
        parts: list[Any] = self.cut.application.fragment_graph.fragments
        return next(str(each.on_loss) for each in parts if each.name == part)

    def _on_failure(self, flow: CutFlow, error: BaseException) -> None:
        """Handle that a link has failed, by the policy of the part that is lost: the one at its other end."""
        _log.info("%s", error)  # when it was noticed
        cut: Cut = self.cut
        policy = STOP
        if isinstance(error, PeerLost):
            lost = self._peer(flow)
            add_note(error, f"fragment {lost!r} is lost, in flow {flow.name!r}")
            self._tell_lost(flow.name)
            policy = self._on_loss(lost)
        if policy == GO_ON:
            cut.end_flow(flow.name)
        elif policy != RESTART:
            cut.application.fail(error)

    def _tell_lost(self, flow: str) -> None:
        """Tell the driver that the link of a flow is lost: it may hear both parts, and know nothing of it."""
        if flow in self._epochs:  # otherwise there was no link: the driver has said that the part is gone
            self.channel.post(messages.LinkLost(flow, self._epochs[flow]))

    # The driver.

    def listen(self) -> None:
        """Do what the driver says, until it is gone; on a thread of its own.

        A process that does not hear its driver any more ends: it would go on, and say that it lives, for ever.
        """
        try:
            while (arrived := self.channel.receive()) is not None:
                for message in arrived:
                    self._handle_or_fail(message)
            _log.info("fragment %r: its driver is gone", self.assignment.part)
        except BaseException:
            _log.exception("fragment %r: its driver is unheard", self.assignment.part)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    def _handle_or_fail(self, message: Any) -> None:
        """Do what the driver says; if that is not possible, the run of the part fails."""
        try:
            self._handle(message)
        except Exception as error:
            if self.control is None:  # there is no run yet
                raise
            self.control.fail(error)

    # What the loop calls.

    def fileno(self) -> int:
        """Return a descriptor at which nothing happens."""
        return self._beating

    def serve(self, readable: bool, writable: bool) -> None:
        """Do nothing."""

    def tick(self, now: float, was_stopped: bool = False) -> float:
        """Tell the driver that this process lives, if it is time, and look whether it is idle."""
        if now >= self._next_beat - BEAT / 2:  # when a link is due, so that the process wakes up once
            self._next_beat = now + BEAT
            self._beat()
        return self._next_beat

    def _beat(self) -> None:
        engine: Any = None if self.control is None else self.control.engine
        # Without deadlines nobody is stuck; to look for them took a seventh of what an idle process costs.
        has_deadlines = engine is not None and engine.watchdog is not None
        problems = tuple(stuck_operators(self.cut.application)) if has_deadlines else ()
        # Offered, since this thread must not wait for a driver that does not read: the links would wait with it. A
        # beat that finds no room is not missed: the driver hears what is in its way.
        # Most beats are the same: to pack one costs a process more than all else while nothing happens.
        self.channel.offer(pack(messages.Beat(problems)) if problems else _QUIET_BEAT)
        if self._measured is not None and self.assignment.interests is not None:
            self.channel.offer(pack(messages.AskTime(time.monotonic_ns())))
        if self.cut is not None:
            self.cut.idleness.relieve()
            if self.cut.idleness.was_idle:
                self.cut.idleness.ask()

    def _handle(self, message: Any) -> None:
        match message:
            case messages.Connect(ends):
                flows = {name for name, _, _ in ends}
                self._lost -= {self._peer(each) for each in self._flows if each.name in flows}
                is_first, self._has_ends = not self._has_ends, True
                threading.Thread(target=self._connect_all, args=(ends, is_first), daemon=True).start()
            case messages.TellTime(asked, answered):
                assert self._measured is not None
                self._measured.add(Answer(asked, answered, time.monotonic_ns()))
            case messages.Cancel():
                os.kill(os.getpid(), signal.SIGINT)
            case messages.Lost():
                self._lose(message)
            case messages.EndFlow(flow, epoch):
                if epoch == self._epochs[flow]:
                    self.cut.end_flow(flow)
            case messages.Leave():
                self._may_leave.set()
            case messages.Stop():
                if self.control is not None:
                    self.control.stop()
            case messages.Call(number, "progress"):
                nothing = PartProgress(Progress(self.cut.application.name, True))
                found = PartProgress.of(self.cut) if self._has_started else nothing
                self.channel.post(messages.Reply(number, found))
            case messages.Call(number, "pause", (is_paused,)):
                self._pause(number, is_paused)
            case messages.Call():
                with self._lock:
                    if not self._has_started:
                        self._early.append(message)
                        return
                self._answer(message)
            case messages.Ask(wave):
                self._wave = wave
                self.cut.idleness.ask()
            case messages.EndIdle():
                self.cut.idleness.end(message)

    def start(self) -> None:
        """Take on what the driver has set, before the first compute; tell it that all operators have started."""
        while not self._has_started:
            with self._lock:  # those that come while earlier ones are set stay behind them
                early, self._early = self._early, []
                self._has_started = not early
            for call in early:
                self._answer(call)
        self.channel.post(messages.Started())

    def _answer(self, call: messages.Call) -> None:
        """End the sources of the part, or set a value, and answer with the error if it was refused."""
        failure = None
        try:
            if call.method == "drain":
                assert self.control is not None
                self.control.drain_wanted = True
                drain(self.cut.application)
            else:
                self._set(*call.arguments)
        except Exception as error:
            failure = Failure.of(error)
        self.channel.post(messages.Reply(call.number, failure))

    def _set(self, wanted: str, method: str, name: str, value: bytes) -> None:
        operators = (each._headrace.declared for each in self.cut.application.graph)
        operator = next(each for each in operators if each.name == wanted)
        getattr(operator, method)(name, pickle.loads(value))

    def _pause(self, number: int, is_paused: bool) -> None:
        """Pause, and tell the driver when nothing computes any more; or go on."""
        control = self.control
        assert control is not None  # it was there when the part had composed the program

        def tell() -> None:
            control.wait_until_paused(None)
            self.channel.post(messages.Reply(number))

        if is_paused:
            control.pause()
            threading.Thread(target=tell, name="headrace pause", daemon=True).start()
        else:
            control.resume()
            self.channel.post(messages.Reply(number))

    # Whether anything can run in the part.

    def _on_idle(self, report: IdleReport) -> None:
        """Tell the driver that the part is idle, after it was asked by the driver or at a beat."""
        wave, self._wave = self._wave, 0
        self.channel.post(messages.Idle(report, wave))


class PartControl(RunControl):
    """The control of the run of a part, which tells the driver when the operators have started."""

    __slots__ = ("_worker",)

    def __init__(self, worker: Worker) -> None:
        super().__init__(RUNNING)
        self._worker = worker

    def start(self) -> None:
        """Record that every operator has started."""
        super().start()
        self._worker.start()


class PartRunner(Runner):
    """Runs the part in the place of the run that the driver is in."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker
        self._runs = 0

    def run(self, fragment: Fragment, limits: RunOptions) -> Outcome:
        """Return what an earlier run returned in the driver, or run the part."""
        earlier = self._worker.assignment.earlier
        number, self._runs = self._runs, self._runs + 1
        if number >= len(earlier):
            self._worker.run_part(fragment, self, limits)
        known = earlier[number]
        if known is None:
            raise GraphError(
                f"run {number + 1} of the program has no outcome in the driver, because it is in progress there, "
                "or because there were very many; such runs cannot be followed by one in processes"
            )
        if isinstance(known, Failure):
            with suppress(Exception):  # it may be what the run raised
                fragment.compose_graph()
            raise known.error("")
        fragment.compose_graph()  # for what the program does with its operators before the next run
        fragment._headrace.outcome = known
        return known

    def run_async(self, fragment: Fragment, limits: RunOptions) -> Future[Outcome]:
        """Do the same for a run beside the program."""
        future: Future[Outcome] = Future()
        try:
            future.set_result(self.run(fragment, limits))
        except Exception as error:
            future.set_exception(error)
        return future


class LinkPort:
    """Where the links of a part with the others arrive.

    The process of the receiver listens, and that of the sender connects. The driver tells both at the same time, so
    a link may arrive before it is expected here: it is kept until then.

    Parameters
    ----------
    host
        The address of this host in the network of the others; empty if all of them are on this one.
    access
        Who may connect.
    """

    def __init__(self, host: str, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._links: dict[Purpose, Future[Carrier]] = {}
        self._listener = access.listen((host, 0) if host else "", self._find_taker, is_for_links=True)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    def send_to(self, address: Address, flow: str, epoch: int) -> Future[Carrier]:
        """Connect a flow with the process of its receiver; return a future of the link.

        A host that is cut off keeps the thread of an attempt waiting, and nobody else.
        """
        coming: Future[Carrier] = Future()

        def attempt() -> None:
            try:
                _bring(coming, self._access.connect(address, Purpose(LINK, flow, epoch)))
            except BaseException as error:
                if coming.set_running_or_notify_cancel():
                    coming.set_exception(error)

        threading.Thread(target=attempt, name="headrace link", daemon=True).start()
        return coming

    def arrival(self, flow: str, epoch: int) -> Future[Carrier]:
        """Return a future of the link of a flow into this part."""
        return self._link(Purpose(LINK, flow, epoch))

    def _link(self, purpose: Purpose) -> Future[Carrier]:
        with self._lock:
            return self._links.setdefault(purpose, Future())

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        if purpose.kind != LINK or self._link(purpose).done():
            return None
        return partial(_bring, self._link(purpose))


def _bring(coming: Future[Carrier], carrier: Carrier) -> None:
    """Hand over a link, unless nobody wants it any more."""
    if coming.set_running_or_notify_cancel():
        coming.set_result(carrier)
    else:
        carrier.close()
