"""What the process of a part tells the driver, whatever the driver says."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.control import TimeBase
from headrace.core.errors import GraphError, PeerAborted, PeerLost
from headrace.core.ports import IOSpec
from headrace.link.carrier import Received
from headrace.link.channel import Packed, pack, unpack
from headrace.link.handshake import make_token
from headrace.link.protocol import HEADER_SIZE, Kind, Terms
from headrace.parts import worker as worker_module
from headrace.parts.access import Access
from headrace.parts.cut_flow import CutFlow
from headrace.parts.environment import Launch
from headrace.parts.messages import (
    Ask,
    Assignment,
    Beat,
    Call,
    Composed,
    Connect,
    Ended,
    EndFlow,
    Leave,
    LinkLost,
    Lost,
    Stop,
)
from headrace.parts.supervision import Part, State, Supervisor
from headrace.parts.worker import BEAT, LinkPort, PartControl, Worker, terms_of
from tests.harness import PATIENCE, wait_until
from tests.parts.running import channel_and_socket


class _Channel:
    """What a process says to its driver."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.is_full = False

    def offer(self, packed: Packed) -> bool:
        said = Received(Kind.CONTROL, packed.message[HEADER_SIZE:], b"".join(packed.bulk))
        return not self.is_full and self.send(unpack(said))

    def send(self, message: Any) -> bool:
        assert not self.is_full, "the thread of the links would wait"
        self.sent.append(message)
        return True

    post = send


def _worker(channel: Any) -> Worker:
    port: Any = SimpleNamespace(address="here")
    assignment = Assignment("edge", Launch("plant.py", "", (), False), (), "run", TimeBase.of(0))
    return Worker(channel, assignment, port)


def test_a_frozen_process_is_lost_within_three_seconds_and_never_before_two_point_three() -> None:
    """Whenever it is frozen, and however late the links wake it up for its beats."""
    channel = _Channel()
    made = _worker(channel)
    supervisor = Supervisor({"edge": Part("edge", state=State.RUNNING)}, (), {})
    for phase in range(20):
        now = frozen = 100.0 * (1 + phase)
        while now <= frozen + 0.025 * phase:  # it lives
            channel.sent.clear()
            next_beat = made.tick(now)
            if channel.sent:
                supervisor.beat("edge", now)
            now += 0.025
        frozen += 0.025 * phase
        assert next_beat <= frozen + BEAT
        until = supervisor.next_time()
        assert until is not None
        assert 2.3 < until - frozen <= 3.0


def test_a_process_says_twice_a_second_that_it_lives() -> None:
    channel = _Channel()
    made = _worker(channel)
    for now in (10.0, 10.2, 11.0, 12.0):
        made.tick(now)
    assert channel.sent == [Beat()] * 3


def test_a_driver_is_told_when_something_is_wrong_and_when_it_is_not_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = _Channel()
    made: Any = _worker(channel)
    made.control = SimpleNamespace(engine=SimpleNamespace(watchdog=object()))
    made.cut = SimpleNamespace(
        application=None, idleness=SimpleNamespace(relieve=lambda: None, was_idle=False)
    )
    problems: list[str] = []
    monkeypatch.setattr(worker_module, "stuck_operators", lambda application: problems)
    made.tick(1.0)
    problems.append("operator 'slow' has computed for 3.0 s")
    channel.is_full = True
    made.tick(1.9)
    channel.is_full = False
    made.tick(2.8)
    problems.clear()
    made.tick(3.8)
    made.tick(4.8)
    assert channel.sent == [Beat(), Beat(("operator 'slow' has computed for 3.0 s",)), Beat(), Beat()]


def test_what_is_offered_to_a_driver_that_reads_nothing_is_not_sent() -> None:
    """The thread that serves the links must not wait for a driver that is frozen: its peers would be, too."""
    channel, theirs = channel_and_socket()
    theirs.setblocking(False)
    with channel._lock:  # by another thread, which sends it afterwards
        channel.offer(pack(Beat()))
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
    channel.flush()
    assert theirs.recv(1 << 16)
    while not channel.wants_write:
        channel.offer(pack(Beat(("x" * 1000,))))
    kept = len(channel._carrier._waiting)  # type: ignore[attr-defined]
    channel.offer(pack(Beat()))
    assert len(channel._carrier._waiting) == kept  # type: ignore[attr-defined]
    theirs.close()
    channel.close()


def test_the_memory_of_links_is_that_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = CutFlow("a.out -> b.in", "a", "b", ("a.out",), "b.in", 4, IOSpec.QueuePolicy.FAULT, True)
    monkeypatch.delenv("HEADRACE_LINK_MEMORY", raising=False)
    assert terms_of(flow) == Terms(flow.name, 4, silence=None)
    monkeypatch.setenv("HEADRACE_LINK_MEMORY", "4GB")
    assert terms_of(flow) == Terms(flow.name, 4, silence=None, max_bytes=4 << 30)
    monkeypatch.setenv("HEADRACE_LINK_MEMORY", "much")
    with pytest.raises(ValueError, match=r"^HEADRACE_LINK_MEMORY must be a size such as '16MB'"):
        terms_of(flow)


class _Heard:
    """A channel on which some messages come, and then what was given as the last."""

    def __init__(self, *messages: Any, last: BaseException | None = None) -> None:
        self._messages = list(messages)
        self._last = last

    def receive(self) -> list[Any] | None:
        if self._messages:
            return [self._messages.pop(0)]
        if self._last is not None:
            raise self._last
        return None


@pytest.mark.parametrize("last", [None, MemoryError(), SystemExit()], ids=["gone", "no memory", "exit"])
def test_a_process_that_does_not_hear_its_driver_any_more_ends(
    last: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop would go on to say that it lives, and nobody could stop it."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    _worker(_Heard(last=last)).listen()
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_what_cannot_be_done_for_the_driver_fails_the_run_and_the_driver_is_heard_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "kill", lambda *given: None)
    made = _worker(_Heard(Ask(1), Stop()))
    made.cut = SimpleNamespace(idleness=SimpleNamespace(ask=lambda: 1 / 0))
    made.control = PartControl(made)
    made.listen()
    assert [type(error) for error in made.control.errors] == [ZeroDivisionError]
    assert made.control.stop_wanted


FLOW = CutFlow("a.out -> b.in", "a", "b", ("a.out",), "b.in", 4, IOSpec.QueuePolicy.FAULT, True)


class _Awaiting:
    """A part of another host that waits for a link, with what happens at each look for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_look: Callable[[int], object]) -> None:
        self.linked: list[Any] = []
        self.looks = 0
        self.at_look = at_look
        port: Any = SimpleNamespace(address=("127.0.0.1", 1), arrival=lambda *given: Future())
        self.worker = _worker(_Channel())
        self.worker._port = port
        self.worker.control = PartControl(self.worker)
        cut = SimpleNamespace(part="b", application=None, outgoing=(), incoming=(FLOW,))
        cut.connect = lambda name, link: self.linked.append(link)
        self.worker.cut = cut
        monkeypatch.setattr(worker_module, "describe", lambda application: {})
        monkeypatch.setattr(worker_module.waits, "wait_for_futures", self._look)

    def join(self) -> None:
        self.tell(Connect(((FLOW.name, 0, ("127.0.0.1", 2)),)))
        self.worker._join(self.worker.cut)

    def _look(self, futures: list[Any], seconds: float) -> bool:
        assert seconds == 0.1
        self.looks += 1
        self.at_look(self.looks)
        return False

    def tell(self, message: Any) -> bool:
        self.worker._handle(message)
        return True


def test_a_part_does_not_wait_for_ever_for_the_link_of_one_that_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = _Awaiting(monkeypatch, lambda look: None)
    waiting.join()
    assert waiting.looks == 100
    assert "fragment 'a' could not be connected" in str(waiting.linked[0].failure)


@pytest.mark.parametrize("lost", ["a", "c"])
def test_a_part_waits_no_longer_for_the_link_of_one_that_the_driver_has_lost(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = _Awaiting(monkeypatch, lambda look: look == 3 and waiting.tell(Lost(lost)))
    waiting.join()
    assert waiting.looks == (3 if lost == "a" else 100)
    waiting.tell(Connect(((FLOW.name, 1, ("127.0.0.1", 3)),)))  # it was started again
    assert waiting.worker._lost == {lost} - {"a"}


def test_a_part_waits_no_longer_for_a_host_that_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """To which a connection may take ten seconds; one that comes too late is closed."""
    answers, closed = threading.Event(), threading.Event()

    def attempt(*given: Any, **options: Any) -> Any:
        assert answers.wait(PATIENCE)
        return SimpleNamespace(close=closed.set)

    access = Access(make_token())
    monkeypatch.setattr(Access, "connect", lambda *given: attempt())
    port = LinkPort("127.0.0.1", access)
    waiting = _Awaiting(monkeypatch, lambda look: look == 3 and waiting.tell(Lost("b")))
    waiting.worker._port = port
    waiting.worker.cut.part = "a"
    waiting.worker.cut.outgoing, waiting.worker.cut.incoming = (FLOW,), ()
    waiting.join()
    assert waiting.looks == 3
    assert "fragment 'b' could not be connected" in str(waiting.linked[0].failure)
    answers.set()
    assert closed.wait(PATIENCE)
    port._listener.close()


def test_a_part_gives_up_one_link_if_the_part_at_its_other_end_has_lost_it() -> None:
    made = _worker(_Channel())
    lost: list[tuple[str, str]] = []
    for name, epoch in (("one", 0), ("two", 0), ("three", 1)):
        link = SimpleNamespace(lose=lambda error, name=name: lost.append((name, str(error))))
        made._links[name], made._epochs[name] = ("a", link), epoch
    made._handle(Lost("a", "two", 0))
    made._handle(Lost("a", "three", 0))  # it was of a process that is gone
    made._handle(Lost("b", "one", 0))
    assert lost == [("two", "link 'two': fragment 'a' is lost")]
    assert made._lost == set()


class _Linked:
    """Fragment 'b', whose link with fragment 'a' fails."""

    def __init__(self, **policies: str) -> None:
        self.channel = _Channel()
        self.failed: list[BaseException] = []
        self.ended: list[str] = []
        self.worker = _worker(self.channel)
        self.worker._epochs = {FLOW.name: 3}
        fragments = [SimpleNamespace(name=name, on_loss=policy) for name, policy in policies.items()]
        application = SimpleNamespace(
            fragment_graph=SimpleNamespace(fragments=fragments), fail=self.failed.append
        )
        self.worker.cut = SimpleNamespace(part="b", application=application, end_flow=self.ended.append)

    def fail(self, error: BaseException) -> None:
        self.worker._on_failure(FLOW, error)


OTHER_POLICIES = {"stop": "go_on", "restart": "stop", "go_on": "stop"}


@pytest.mark.parametrize("policy", OTHER_POLICIES)
def test_a_lost_link_is_told_to_the_driver_and_follows_the_policy_of_the_other_part(policy: str) -> None:
    """The driver may hear both parts, and know nothing of it."""
    part = _Linked(a=policy, b=OTHER_POLICIES[policy])
    part.fail(PeerAborted("it failed", "a"))
    part.fail(lost := PeerLost("it is cut off"))
    assert part.channel.sent == [LinkLost(FLOW.name, 3)]
    assert [str(error) for error in part.failed] == ["it failed", "it is cut off"][: 1 + (policy == "stop")]
    assert part.ended == ([FLOW.name] if policy == "go_on" else [])
    assert lost.__notes__ == ["fragment 'a' is lost, in flow 'a.out -> b.in'"]


def test_a_flow_whose_link_was_lost_ends_if_the_driver_says_so() -> None:
    made, ended = _worker(_Channel()), []
    made._epochs = {FLOW.name: 3}
    made.cut = SimpleNamespace(end_flow=ended.append)
    made._handle(EndFlow(FLOW.name, 2))
    assert ended == []
    made._handle(EndFlow(FLOW.name, 3))
    assert ended == [FLOW.name]


def test_a_part_leaves_when_it_is_told_so_and_no_signal_is_for_it_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has reported: a signal that comes to all processes of a terminal is for those that compute."""
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    made = _worker(_Channel())
    made._handle(Leave())
    made.wait_to_leave()
    assert handlers == {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_IGN}


def test_a_part_that_waits_for_a_link_hears_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other part was started again meanwhile, and connects a link of another epoch."""
    another = Connect(((FLOW.name, 1, ("127.0.0.1", 3)),))
    waiting = _Awaiting(monkeypatch, lambda look: look == 3 and waiting.tell(another))
    waiting.join()
    wait_until(lambda: len(waiting.linked) == 2, "the other link")


def test_a_value_that_comes_while_earlier_ones_are_set_is_the_last() -> None:
    made = _worker(_Channel())
    gains: list[int] = []

    def set_live(name: str, value: int) -> None:
        if value == 1:
            made._handle(_gain(2))  # as the thread that listens to the driver would
        gains.append(value)

    operator = SimpleNamespace(name="scale", set_live=set_live)
    operator._headrace = SimpleNamespace(declared=operator)
    made.cut = SimpleNamespace(application=SimpleNamespace(graph=[operator]))
    made._handle(_gain(1))
    made.start()
    made._handle(_gain(3))
    assert gains == [1, 2, 3]


def _gain(value: int) -> Call:
    return Call(value, "set_value", ("scale", "set_live", "gain", pickle.dumps(value)))


@pytest.mark.parametrize("has_output", [True, False])
def test_a_process_that_is_interrupted_before_it_runs_the_program_tells_the_driver(
    has_output: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback would be for a reader who did nothing wrong; the driver knows whether it was its own doing."""
    ended: list[int] = []
    made = _worker(_Channel())

    def start(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "_exit", ended.append)  # in the process, nothing comes after it
    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(logging.getLogger("headrace.run"), "filters", [])
    loop = SimpleNamespace(add=lambda worker: None, stop=lambda: None)
    monkeypatch.setattr(worker_module, "default_loop", lambda: loop)
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: None)
    if not has_output:
        monkeypatch.setattr(sys, "stdout", None)
    worker_module._serve(made.channel, made.assignment, made._port, None)
    assert ended == [0]
    (said,) = made.channel.sent  # type: ignore[attr-defined]
    assert isinstance(said, Ended)
    assert said.failure is not None
    assert said.failure.is_interrupt


def test_a_process_that_is_interrupted_while_it_reports_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _worker(_Channel())
    reports: list[BaseException | None] = []

    def report(outcome: object, failure: BaseException | None) -> None:
        reports.append(failure)
        if len(reports) == 1:
            raise KeyboardInterrupt

    def execute(*_: object) -> None:
        made.is_over = True
        made.report(None, None)

    monkeypatch.setattr(made, "report", report)
    monkeypatch.setattr(worker_module.Program, "execute", execute)
    monkeypatch.setattr(worker_module.Fragment._headrace, "runner", None)
    made.run()
    assert [type(each) for each in reports] == [type(None), KeyboardInterrupt]


class _OnlyWrites:
    def write(self, text: str) -> None:
        pass


def _closed() -> Any:
    with open(os.devnull, "w") as made:
        return made


@pytest.mark.parametrize("stream", [None, _closed(), _OnlyWrites()], ids=["none", "closed", "only writes"])
def test_a_part_reports_whatever_its_program_has_put_in_the_place_of_the_output(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = _Channel()
    made = _worker(channel)
    monkeypatch.setattr(os, "dup2", lambda *numbers: None)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(worker_module, "describe", lambda application: {})
    made._is_linked.set()
    made._join(SimpleNamespace(application=None, outgoing=(), incoming=()))  # type: ignore[arg-type]
    made.report(None, None)
    assert channel.sent == [Composed({}, "here", os.getpid()), Ended(None)]


def test_a_part_whose_operators_have_opened_too_many_files_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = _Channel()
    made = _worker(channel)

    def no_file(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "dup2", lambda *numbers: None)
    monkeypatch.setattr(os, "open", no_file)
    made.report(None, ValueError("what happened"))
    (said,) = channel.sent
    assert said.failure.text == "what happened"


def test_an_operator_that_runs_an_application_is_an_error_and_not_the_end_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = _Channel()
    made = _worker(channel)
    application: Any = SimpleNamespace(
        scheduler=lambda: SimpleNamespace(stop_on_deadlock=False), _headrace=SimpleNamespace(watchers=[])
    )
    cut = SimpleNamespace(idleness=SimpleNamespace(), counts=dict)
    monkeypatch.setattr(worker_module, "Cut", lambda *given: cut)
    monkeypatch.setattr(os, "dup2", lambda *numbers: None)

    def compute(*_: object) -> None:
        try:
            made.run_part(None, None, None)  # type: ignore[arg-type]
        except BaseException as error:
            error.add_note("raised in compute of operator 'edge.nested'")
            raise

    runner: Any = SimpleNamespace(run_here=compute)
    with pytest.raises(worker_module.Over):  # the part leaves the program, as always
        made.run_part(application, runner, None)  # type: ignore[arg-type]
    (said,) = channel.sent
    error = said.failure.error("edge")
    assert isinstance(error, GraphError)
    assert "an operator of fragment 'edge' runs an application" in str(error)
    assert error.__notes__[0] == "raised in compute of operator 'edge.nested'"
