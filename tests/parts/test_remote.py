"""Fragments in processes that connect to the driver by TCP: --driver and --worker, on one host."""

from __future__ import annotations

import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EHOSTUNREACH
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli import main
from headrace.core.errors import AuthenticationError, Failure, GraphError, PartLost, PeerLost
from headrace.core.outcome import EndedBy
from headrace.link import channel
from headrace.link.channel import Channel, finish_all
from headrace.link.connect import carrier_of, connect
from headrace.link.handshake import Purpose, make_token
from headrace.parts import access as access_module
from headrace.parts import agent as agent_module
from headrace.parts import driver as driver_module
from headrace.parts.access import AGENT, PART, Access, token_for
from headrace.parts.agent import Agent, parse_address, serve, worker_host
from headrace.parts.driver import Driver
from headrace.parts.hosting import Hosting, Process, Reception
from headrace.parts.messages import (
    Ended,
    EndFlow,
    EndPart,
    Gone,
    LinkLost,
    Lost,
    Refused,
    RunOver,
    Starting,
    StartPart,
    Stop,
)
from headrace.parts.supervision import SILENCE, Part, State, Supervisor
from tests.harness import PATIENCE, wait_until
from tests.harness.processes import environment_of_programs
from tests.parts.running import channel_and_socket, channel_of
from tests.parts.test_processes import (  # noqa: F401
    ENDLESS,
    PLANT,
    SHOWN,
    environment,
    has_ended,
    lines,
    nothing_left,
)

# An address of the loopback interface for each process that runs tests at the same time.
HOST = f"127.{os.getpid() >> 16 & 127}.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
ADDRESS = (HOST, 8765)
ALL = ("--worker", "--fragments", "all")


@pytest.fixture(autouse=True)
def token(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("runtime")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not say which parts nobody runs yet: workers may take long to begin."""
    monkeypatch.setattr(Hosting, "patience", float("inf"))


def drive(*arguments: str, options: tuple[str, ...] = ALL) -> int:
    """Run the program with a driver in this process; return the exit status of the command."""
    return main(["run", PLANT, "--driver", "--address", HOST, *options, "--", *arguments])


def worker(*options: str) -> subprocess.Popen[str]:
    """Start a worker in a process of its own."""
    command = [sys.executable, "-m", "headrace", "run", PLANT, "--worker", "--address", HOST, *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_of_programs(),
    )


class OnLine(logging.Handler):
    """Calls a function when a line of the log has some text."""

    def __init__(self, text: str, call: Callable[[], object]) -> None:
        super().__init__()
        self._text = text
        self._call = call
        logging.getLogger("headrace.parts").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._call()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = list(logging.getLogger("headrace.parts").handlers)
    yield
    logging.getLogger("headrace.parts").handlers[:] = before


# Whole programs.


def test_a_driver_that_is_a_worker_too_prints_what_one_process_prints_with_tls(
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("cryptography")
    assert drive(options=(*ALL, "--tls")) == 0
    assert lines(capfd) == (["begins", *SHOWN, "finished 16 0 {} {}"], "")
    assert os.listdir(".") == []


def test_workers_run_the_fragments_that_they_name(capfd: pytest.CaptureFixture[str]) -> None:
    with worker("--fragments", "a") as one, worker("--fragments", "b") as other:
        assert drive(options=()) == 0
        assert one.communicate(timeout=PATIENCE)[0] == ""
        assert other.communicate(timeout=PATIENCE)[0].splitlines() == SHOWN
    assert (one.returncode, other.returncode) == (0, 0)
    assert lines(capfd)[0] == ["begins", "finished 16 0 {} {}"]


def test_workers_that_name_no_fragment_run_one_each(capfd: pytest.CaptureFixture[str]) -> None:
    with worker() as other:
        assert drive(options=("--worker",)) == 0
        printed = other.communicate(timeout=PATIENCE)[0].splitlines()
    out = lines(capfd)[0]
    assert (out[0], out[-1]) == ("begins", "finished 16 0 {} {}")
    assert sorted([out[1:-1], printed]) == [[], SHOWN]


def test_a_worker_listens_at_the_address_that_it_is_given(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[tuple[str, int]] = []
    composed = Process.composed

    def note(process: Process, address: tuple[str, int], *more: Any) -> None:
        addresses.append(address)
        composed(process, address, *more)

    monkeypatch.setattr(Process, "composed", note)
    assert drive(options=(*ALL, "--worker-address", "127.0.0.2")) == 0
    assert lines(capfd) == (["begins", *SHOWN, "finished 16 0 {} {}"], "")
    assert [host for host, _ in addresses] == ["127.0.0.2"] * 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("192.0.2.9", "LinkError: cannot listen on 192.0.2.9"),
        ("127.0.0.1:80", "it takes no port; each fragment"),
    ],
)
def test_a_worker_whose_address_cannot_be_says_so(
    capfd: pytest.CaptureFixture[str], given: str, expected: str
) -> None:
    assert main(["run", PLANT, "--worker", "--address", HOST, "--worker-address", given]) == 1
    assert expected in lines(capfd)[1]


@pytest.mark.parametrize(
    ("given", "host"), [("", ""), ("0.0.0.0", ""), ("[::]", ""), ("fe80::1", "fe80::1"), ("[::1]", "::1")]
)
def test_addresses_of_workers(given: str, host: str) -> None:
    assert worker_host({"HEADRACE_WORKER_ADDRESS": given}) == host


@pytest.mark.parametrize(
    ("what", "status", "told"),
    [
        ("term@import", 143, ""),
        ("term@compose", 143, ""),
        (
            "exit@import",
            1,
            "PartLost: fragment 'b': its process {} ended with status 7 before it had composed the",
        ),
    ],
)
def test_a_process_that_ends_before_it_has_composed_says_how(
    what: str, status: int, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert drive(what) == status
    assert re.search(told.format("[0-9]+"), lines(capfd)[1])


def test_a_killed_worker_takes_its_processes_along(capfd: pytest.CaptureFixture[str]) -> None:
    with worker("--fragments", "b") as other:
        assert drive("parent@run", options=("--worker", "--fragments", "a")) == 1
        other.communicate(timeout=PATIENCE)
    assert other.returncode == -signal.SIGKILL
    assert "PartLost: fragment 'b': the connection to its process at " in lines(capfd)[1]


@pytest.mark.parametrize(("what", "status"), [("worker@run", 130), ("termworker@run", 143)])
def test_a_signal_to_a_worker_ends_the_run(what: str, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    """It comes to the worker alone, which passes it on to its processes: they stop, and tell the driver."""
    with worker("--fragments", "b") as other:
        assert drive(what, options=("--worker", "--fragments", "a", "--log-level", "info")) == status
        _, err = other.communicate(timeout=PATIENCE)
    assert other.returncode == status
    assert "Traceback" not in err
    err = lines(capfd)[1]
    assert "Traceback" not in err
    # Part a may be the first to say so: part b has told it.
    assert re.search(
        "all fragments are stopped: (fragment 'b' was interrupted|PeerAborted: .*'b' failed)", err
    )


def test_a_killed_driver_takes_all_along() -> None:
    Path("endless.py").write_text(ENDLESS.replace("run(processes=True)", "run()"))
    command = [sys.executable, "-m", "headrace", "run", "endless.py", "--address", HOST]
    variables = environment_of_programs()
    with (
        subprocess.Popen([*command, "--driver", "--worker", "--fragments", "a"], env=variables) as driver,
        subprocess.Popen(
            [*command, "--worker", "--fragments", "b"],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as other,
    ):
        assert other.stdout is not None
        parent, part = map(int, other.stdout.readline().split())
        assert parent == other.pid
        here = {
            child
            for task in os.listdir(f"/proc/{driver.pid}/task")
            for child in Path(f"/proc/{driver.pid}/task/{task}/children").read_text().split()
        }
        driver.kill()
        _, err = other.communicate(timeout=PATIENCE)
        driver.wait(timeout=PATIENCE)
    assert other.returncode == 1
    assert f"PeerLost: the driver at {HOST}:8765 is gone: it was killed, or cannot be reached any more" in err
    for pid in (*here, str(part)):
        wait_until(lambda pid=pid: has_ended(pid), f"the end of process {pid}")  # type: ignore[misc]


# Waiting for each other.


def test_the_driver_says_which_fragments_nobody_runs_until_ctrl_c(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hosting, "patience", 0.0)
    OnLine("waits for workers", lambda: os.kill(os.getpid(), signal.SIGINT))
    assert drive(options=()) == 130
    err = lines(capfd)[1]
    assert f"the driver at {HOST}:8765 waits for workers that run 'a', 'b': headrace run PROGRAM" in err
    assert "--worker --fragments a,b --address HOST:8765" in err


def test_a_worker_waits_for_a_driver() -> None:
    waits = threading.Event()
    OnLine(f"no driver at {HOST}:8765 yet: ", waits.set)
    with ThreadPoolExecutor(1) as executor:
        token = make_token()
        future = executor.submit(serve, ADDRESS, Access(token), "a")
        assert waits.wait(PATIENCE)
        reception = Reception(ADDRESS, Access(token))
        ((purpose, driver),) = arrivals(reception)
        assert purpose == Purpose(AGENT, "a")
        finish_all([driver], RunOver())
        reception.close()
        future.result(PATIENCE)


def arrivals(reception: Reception) -> list[Any]:
    assert select.select([reception], [], [], PATIENCE)[0]
    return reception.take()


def test_a_worker_that_comes_when_the_run_is_over_is_told() -> None:
    access = Access(make_token())
    reception = Reception(ADDRESS, access)
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(serve, ADDRESS, access)
        assert select.select([reception], [], [], PATIENCE)[0]
        reception.close()
        with pytest.raises(GraphError, match="the driver refused this worker: its run is over"):
            future.result(PATIENCE)


def test_a_worker_without_the_token_is_refused() -> None:
    reception = Reception(ADDRESS, Access(make_token()))
    with pytest.raises(AuthenticationError):
        serve(ADDRESS, Access(make_token()), "a")
    assert not select.select([reception], [], [], 0)[0]
    reception.close()


def test_another_worker_takes_the_place_of_one_that_was_lost_before_its_processes_came(
    capfd: pytest.CaptureFixture[str],
) -> None:
    token = token_for(HOST)

    carriers: list[Any] = []

    def has_connected() -> bool:
        with suppress(PeerLost):
            carriers.append(connect(ADDRESS, Purpose(AGENT, "b"), token))
        return bool(carriers)

    def lose_one_and_serve() -> None:
        wait_until(has_connected, "a driver")
        channel = Channel(carriers[0])
        wanted = channel.receive_one()
        assert (type(wanted), wanted.part, wanted.number) == (StartPart, "b", 2)
        channel.close()
        gone.wait(PATIENCE)
        serve(ADDRESS, Access(token), "b", PLANT)

    gone = threading.Event()
    OnLine("is gone, which ran 'b'", gone.set)
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(lose_one_and_serve)
        assert drive(options=("--worker", "--fragments", "a")) == 0
        future.result(PATIENCE)
    assert lines(capfd)[0] == ["begins", *SHOWN, "finished 16 0 {} {}"]


def test_a_fragment_that_does_not_exist_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert drive(options=("--worker", "--fragments", "a,nosuch")) == 1
    err = lines(capfd)[1]
    assert "GraphError: the driver refused this worker: --fragments nosuch: the program has no such " in err
    assert "fragment; it has 'a', 'b'" in err


# The parts that have no processes.


def test_a_process_is_heard_of_by_whatever_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beats find no room while it sends a long message, which comes in pieces."""
    monkeypatch.setattr(channel, "monotonic", lambda: 12.5)
    process = Process("edge", 1, {})
    assert process.beat == 0.0
    process.channel, theirs = channel_and_socket()
    assert process.beat == 0.0
    theirs.send(b"a piece")
    assert process.channel.receive() == []
    assert process.beat == 12.5
    theirs.close()
    process.channel.close()


class FakeChannel:
    wants_write = False

    def __init__(self, where: str = "host one") -> None:
        self.where = where
        self.sent: list[Any] = []

    def post(self, message: Any) -> None:
        self.sent.append(message)

    def has_data(self) -> bool:
        return False

    def close(self) -> None:
        self.sent.append("closed")


def agents() -> Hosting:
    given: Any = {"cpus": None, "on_loss": "stop"}
    parts = [SimpleNamespace(name=name, gpus=gpus, **given) for name, gpus in (("a", None), ("b", 2))]
    return Hosting(parts, ADDRESS)


def add(hosting: Hosting, fragments: str, channel: FakeChannel, has_begun: bool = False) -> list[str]:
    """Let an agent connect that runs these fragments."""
    return hosting.add_agent(fragments, channel, lambda part: has_begun)  # type: ignore[arg-type]


def test_parts_wait_for_an_agent_that_runs_them_and_are_started_once() -> None:
    hosting, one, other = agents(), FakeChannel(), FakeChannel()
    hosting.start("a", 1, {})
    hosting.start("b", 2, {})
    add(hosting, "b", one)
    assert one.sent == [StartPart("b", 2, 2)]
    add(hosting, "all", other)
    assert other.sent == [StartPart("a", 1)]
    hosting.start("b", 3, {})  # it was lost: the agent that names it comes first
    assert one.sent[1:] == [StartPart("b", 3, 2)]
    assert hosting.remove_agent(one, "is gone") == ["b"]  # type: ignore[arg-type]
    hosting.start("b", 3, {})
    assert other.sent[1:] == [StartPart("b", 3, 2)]


def test_workers_that_name_no_fragment_wait_until_there_is_one_for_each() -> None:
    hosting, one, other, third = agents(), FakeChannel(), FakeChannel(), FakeChannel()
    hosting.start("a", 1, {})
    hosting.start("b", 2, {})
    add(hosting, "", one)
    assert one.sent == []
    assert "waits for workers that run 'a', 'b' (1 without --fragments came, for one each): " in (
        hosting.waits_for(["a", "b"])
    )
    add(hosting, "a", other)
    assert (one.sent, other.sent) == ([StartPart("b", 2, 2)], [StartPart("a", 1)])
    add(hosting, "", third)
    hosting.start("b", 3, {})
    assert one.sent[1:] == [StartPart("b", 3, 2)]
    assert hosting.remove_agent(one, "is gone") == ["b"]  # type: ignore[arg-type]
    hosting.start("b", 4, {})
    assert third.sent == [StartPart("b", 4, 2)]
    hosting.start("a", 5, {})
    assert (other.sent[1:], third.sent[1:]) == ([StartPart("a", 5)], [])


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_worker_that_was_named_takes_its_fragment_from_one_that_was_not_until_the_run_begins(
    has_begun: bool,
) -> None:
    """Whoever arrives first: those without a name came for any fragment."""
    hosting, one, other, named = agents(), FakeChannel(), FakeChannel(), FakeChannel()
    hosting.start("a", 1, {})
    hosting.start("b", 2, {})
    add(hosting, "", one)
    add(hosting, "", other)
    assert (one.sent, other.sent) == ([StartPart("a", 1)], [StartPart("b", 2, 2)])
    if has_begun:
        with pytest.raises(GraphError, match="the worker at host one runs it"):
            add(hosting, "a", named, has_begun=True)
        return
    assert add(hosting, "a", named) == ["a"]
    assert one.sent[1:] == [EndPart("a")]
    hosting.start("a", 3, {})
    assert named.sent == [StartPart("a", 3)]
    assert hosting.remove_agent(other, "is gone") == ["b"]  # type: ignore[arg-type]
    hosting.start("b", 4, {})
    assert one.sent[2:] == [StartPart("b", 4, 2)]  # it was left over


def test_the_process_of_a_worker_that_gives_up_its_fragment_is_not_let_in() -> None:
    hosting, one, named = agents(), FakeChannel(), FakeChannel()
    driver = _WithoutProcesses(hosting, one)
    add(hosting, "all", one)
    hosting.start("b", 7, {})
    driver._add_agent("b", named)  # type: ignore[arg-type]
    assert [(each.part, each.number) for each in named.sent] == [("b", 8)]
    near, far = channel_and_socket()
    driver._add_process(Purpose(PART, "b", 7), near)
    assert driver._processes["b"].channel is None
    assert far.recv(1) == b""
    far.close()


def cut_off(is_wanted: bool) -> Callable[[Agent], None]:
    """Return what an agent does that is cut off from its driver at once."""

    def run(server: Agent) -> None:
        server.is_wanted = is_wanted
        raise PeerLost("the driver is gone")

    return run


def test_a_worker_that_was_cut_off_comes_back_if_its_fragment_may_be_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the driver has noticed that it was gone, it is refused."""
    ends: list[Callable[[Agent], None]] = [cut_off(is_wanted=True), refuse, lambda server: None]
    served: list[str] = []

    def run(server: Agent) -> None:
        served.append(server.program)
        server.channel.close()
        server._selector.close()
        ends.pop(0)(server)

    def refuse_nothing(access: Access, address: Any, purpose: Purpose) -> Any:
        ours, theirs = socket.socketpair()
        theirs.close()
        return carrier_of(ours)

    monkeypatch.setattr(Agent, "run", run)
    monkeypatch.setattr(Access, "connect", refuse_nothing)
    serve(ADDRESS, Access(make_token()), "a", "mine.py")
    assert served == ["mine.py"] * 3
    ends.append(cut_off(is_wanted=False))
    with pytest.raises(PeerLost, match="the driver is gone"):
        serve(ADDRESS, Access(make_token()), "a", "mine.py")


def refuse(server: Agent) -> None:
    raise GraphError("the driver refused this worker: the worker at host one runs it")


def test_a_worker_that_was_cut_off_ends_if_the_driver_has_ended_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[Any] = [OSError(EHOSTUNREACH, "no route"), ConnectionRefusedError()]

    def connect_again(*_: Any) -> Any:
        error = PeerLost("cannot connect")
        raise error from answers.pop(0)

    monkeypatch.setattr(Access, "connect", connect_again)
    lost = PeerLost("the driver is gone")
    with pytest.raises(PeerLost) as caught:
        agent_module._connect(ADDRESS, Access(make_token()), "a", False, lost)
    assert caught.value is lost
    assert not answers


@pytest.mark.parametrize(("closed", "attempts"), [(2, 3), (9, 5)])
def test_a_connection_that_a_beset_listener_has_closed_is_tried_again(
    closed: int, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []
    pauses: list[float] = []

    def attempt(*given: Any, **options: Any) -> Any:
        tried.append(given)
        if len(tried) <= closed:
            raise PeerLost("closed the connection in the handshake")
        return "the carrier"

    monkeypatch.setattr(access_module, "connect", attempt)
    monkeypatch.setattr(access_module.waits, "wait", lambda event, seconds: pauses.append(seconds))
    if closed < attempts:
        assert Access(make_token()).connect(ADDRESS, Purpose(AGENT, "a")) == "the carrier"
        assert pauses == [0.1, 0.2]
    else:
        with pytest.raises(PeerLost, match="closed the connection"):
            Access(make_token()).connect(ADDRESS, Purpose(AGENT, "a"))
    assert len(tried) == attempts


class _WithoutProcesses(Driver):
    """A driver whose fragment 'b' was started and has not connected."""

    def __init__(self, hosting: Hosting, *channels: Any) -> None:
        self._hosting = hosting
        self._tell_at = float("inf")
        self._control: Any = SimpleNamespace(drained_until=float("inf"))
        self._ending = {}
        self._unreached = []
        self._agents = list(channels)
        self._selector: Any = SimpleNamespace(unregister=lambda source: None, register=lambda *given: None)
        self._processes = {"b": Process("b", 7, {})}
        self.supervisor = Supervisor({"b": Part("b")}, (), {})
        self._application: Any = SimpleNamespace(
            name="app", run_id="run", _headrace=SimpleNamespace(cut=None, run_id="run")
        )
        self._has_told_end = True
        self._joined = None
        self._numbers = count(8)
        self._ports = {"a": [], "b": [], "c": []}
        self._parts = {name: SimpleNamespace(gpus=None) for name in self._ports}
        self._leave = lambda part: None  # type: ignore[method-assign]
        self._watch = lambda *given: None  # type: ignore[method-assign]


def test_a_frozen_worker_is_given_up_when_it_does_not_start_a_process() -> None:
    hosting, frozen, other = agents(), FakeChannel(), FakeChannel()
    driver = _WithoutProcesses(hosting, frozen, other)
    add(hosting, "b", frozen)
    hosting.start("b", 7, {})
    add(hosting, "all", other)
    hosting.forgive(100.0)
    assert driver._next_time() == 100.0 + SILENCE
    driver._give_up_agents(99.9 + SILENCE)
    assert frozen.sent == [StartPart("b", 7, 2)]
    driver._give_up_agents(100.0 + SILENCE)
    assert frozen.sent[1:] == ["closed"]
    assert other.sent == [StartPart("b", 7, 2)]
    other.take = lambda: [Starting("b", 7)]  # type: ignore[attr-defined]
    driver._on_agent(other)  # type: ignore[arg-type]
    assert hosting.unanswered == {}
    assert driver.supervisor.parts["b"].heard_at is not None  # and from now on its time passes


@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (-signal.SIGINT, KeyboardInterrupt),
        (-signal.SIGTERM, SystemExit),
        (-signal.SIGKILL, PartLost),
        (1, PartLost),
    ],
)
def test_a_process_that_is_interrupted_before_it_connects_ends_the_run_as_ctrl_c_does(
    status: int, raised: type[BaseException]
) -> None:
    driver = _WithoutProcesses(agents())
    driver._on_gone(Gone("b", 7, "its process ended", int(status)))
    assert type(driver.supervisor.failure) is raised


def connected(driver: Driver) -> Process:
    """Return the process of a driver, which has connected, and whose connection has ended."""
    process: Process = driver._processes["b"]
    process.channel = FakeChannel()  # type: ignore[assignment]
    process.was_attached = True
    return process


@pytest.mark.parametrize("comes_first", ["the end of the connection", "the word of its worker"])
def test_a_process_that_sigterm_ends_before_it_has_composed_ends_the_run_as_sigterm(comes_first: str) -> None:
    driver, gone = _WithoutProcesses(agents()), Gone("b", 7, "its process ended", -signal.SIGTERM)
    process = connected(driver)
    if comes_first == "the word of its worker":
        driver._on_gone(gone)
        assert driver._processes == {"b": process}  # what it has said comes first
        driver._on_closed(process)
    else:
        driver._on_closed(process)
        assert driver._processes == {"b": process}
        driver._on_gone(gone)
    assert driver._processes == {}
    failure = driver.supervisor.failure
    assert isinstance(failure, SystemExit)
    assert failure.code == 143


@pytest.mark.parametrize(
    ("fragments", "problem"),
    [
        ("b", "the driver refused this worker: --fragments b: the worker at host one runs it"),
        (
            "a,c",
            "the driver refused this worker: --fragments c: the program has no such fragment; it has 'a', 'b'",
        ),
    ],
)
def test_a_second_worker_for_a_fragment_and_an_unknown_one_are_refused(fragments: str, problem: str) -> None:
    hosting, one, other = agents(), FakeChannel(), FakeChannel()
    hosting.start("b", 1, {})
    add(hosting, "b", one)
    with pytest.raises(GraphError, match=problem):
        add(hosting, fragments, other)
    with pytest.raises(GraphError, match=problem):
        add(hosting, fragments, other, has_begun=True)


@pytest.fixture
def served() -> Iterator[Callable[[object], Any]]:
    """A function that sends a message to an agent, and returns the answer or what the agent raised."""
    with ThreadPoolExecutor(1) as executor:

        def ask(message: object) -> Any:
            channel, theirs = channel_and_socket()
            future = executor.submit(Agent(channel_of(theirs), ADDRESS, Access(make_token())).run)
            channel.send(message)
            answer = channel.receive_one()
            if isinstance(message, StartPart):
                assert answer == Starting(message.part, message.number)
                answer = channel.receive_one()
            finish_all([channel], RunOver())
            future.result(PATIENCE)
            return answer

        yield ask


def test_an_agent_says_that_a_process_cannot_start_or_has_ended(
    served: Callable[[object], Any],
) -> None:
    answer = served(StartPart("a", 3, cpus=1000))
    assert (answer.part, answer.number) == ("a", 3)
    assert answer.how.startswith("its worker cannot start it: fragment 'a' asks for cpus=1000, and ")
    answer = served(StartPart("a", 4))  # nobody listens there
    assert answer == Gone("a", 4, answer.how, 1)
    where = re.escape(f" on {socket.gethostname()}")
    assert re.search(
        rf"{where} ended with status 1 \(its last words: fragment 'a': cannot connect", answer.how
    )


def test_an_agent_whose_driver_is_gone_ends() -> None:
    channel, theirs = channel_and_socket()
    theirs.close()
    with pytest.raises(
        PeerLost, match=f"the driver at {HOST}:8765 is gone: it was killed, or cannot be reached"
    ):
        Agent(channel, ADDRESS, Access(make_token())).run()


def test_the_others_are_told_of_a_process_that_is_frozen_or_cut_off() -> None:
    """Their links would wait for it."""
    driver = _WithoutProcesses(agents())
    process = connected(driver)
    driver.supervisor.parts["b"].state = State.RUNNING
    other = driver._processes["a"] = Process("a", 8, {})
    driver._processes["c"] = Process("c", 9, {})  # which has not connected
    driver.supervisor.parts["a"] = Part("a", state=State.RUNNING)
    other.channel = channel = FakeChannel()  # type: ignore[assignment]
    driver.supervisor.parts["b"].heard_at = 1.0
    driver._carry_out(driver.supervisor.tick(100.0))
    assert channel.sent == [Lost("b"), Stop()]
    assert process.channel is None


@pytest.mark.parametrize("comes_first", ["the end of its worker", "the word of its worker", "its own end"])
def test_a_process_is_lost_soon_after_something_of_it_has_ended(
    comes_first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection may not end: its host is not heard any more, or a child of the process has inherited it."""
    now = 10.0
    monkeypatch.setattr(driver_module, "monotonic", lambda: now)
    hosting, channel = agents(), FakeChannel()
    driver = _WithoutProcesses(hosting, channel)
    add(hosting, "b", channel)
    hosting.start("b", 7, {})
    process = connected(driver)
    driver.supervisor.parts["b"].state = State.RUNNING
    other = driver._processes["a"] = Process("a", 8, {})
    driver.supervisor.parts["a"] = Part("a", state=State.RUNNING)
    other.channel = told = FakeChannel()  # type: ignore[assignment]
    if comes_first == "the end of its worker":
        channel.take = lambda: None  # type: ignore[attr-defined]
        driver._on_agent(channel)  # type: ignore[arg-type]
    elif comes_first == "its own end":
        driver._on_closed(process)
    else:
        driver._on_gone(Gone("b", 7, "its process was killed", -9))
    soon = 12.0 if comes_first == "its own end" else 10.3
    assert driver._next_time() == pytest.approx(soon)
    driver._end_waits(soon - 0.1)
    assert driver.supervisor.failure is None
    assert told.sent == []
    driver._end_waits(soon + 0.01)
    assert list(driver._processes) == ["a"]
    assert isinstance(driver.supervisor.failure, PartLost)
    assert told.sent == [Lost("b"), Stop()]


class _WithLinks(_WithoutProcesses):
    """A driver whose parts 'a', 'b' and 'c' run, each linked with the next."""

    def __init__(self, **policies: str) -> None:
        super().__init__(agents())
        names = ("a", "b", "c")
        parts = {name: Part(name, policies.get(name, "stop"), State.RUNNING) for name in names}
        flows: Any = [
            SimpleNamespace(name=f"{one} -> {other}", source=one, target=other)
            for one, other in (("a", "b"), ("b", "c"))
        ]
        self.supervisor = Supervisor(parts, flows, {})
        self._processes = {name: Process(name, 1, {}) for name in names}
        for process in self._processes.values():
            process.channel = FakeChannel()  # type: ignore[assignment]
            process.was_attached = True
        self._warned: list[str] = []

    def said_to(self, part: str) -> list[Any]:
        channel: Any = self._processes[part].channel
        return list(channel.sent)

    def hear(self, part: str, message: Any) -> None:
        self._handle(self._processes[part], message)


def test_the_part_at_the_other_end_of_a_lost_link_is_told_of_it_at_once() -> None:
    """The network between the two has failed, and the driver reaches both: the run ends."""
    driver = _WithLinks()
    driver.hear("b", LinkLost("a -> b", 0))
    assert driver.said_to("a") == [Lost("b", "a -> b", 0)]
    assert driver.said_to("b") == driver.said_to("c") == []
    failure = Failure.of(PeerLost("link 'a -> b': it is cut off"))
    driver.hear("b", Ended(None, failure))
    assert driver.said_to("a")[1:] == driver.said_to("c") == [Stop()]
    driver.hear("a", LinkLost("a -> b", 0))  # which has ended
    assert driver.said_to("b") == []
    assert isinstance(driver.supervisor.failure, PeerLost)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_part_that_cannot_be_reached_by_another_is_started_again_if_its_policy_says_so(
    comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once: if it was killed, its own connection says so soon."""
    now = 10.0
    monkeypatch.setattr(driver_module, "monotonic", lambda: now)
    driver = _WithLinks(a="restart", b="restart")
    driver.hear("c", LinkLost("b -> c", 0))
    assert driver.said_to("b") == [Lost("c", "b -> c", 0)]
    driver.hear("b", LinkLost("a -> b", 0))
    assert driver.said_to("a") == []  # the part that is started again links itself with it
    first = driver._processes["b"]
    if comes_back:
        driver._on_closed(first)
    now = 10.31
    driver._end_waits(now)
    assert driver._processes["b"] is not first
    assert driver.supervisor.restarts == {"b": 1}
    assert first.channel is None
    driver.supervisor.parts["b"].state = State.RUNNING
    driver.hear("a", LinkLost("a -> b", 0))  # of the links with the former process
    now = 10.62
    driver._end_waits(now)
    assert driver.supervisor.restarts == {"b": 1}
    assert driver.supervisor.failure is None


@pytest.mark.parametrize("is_late", [True, False])
def test_a_flow_to_a_part_that_has_ended_meanwhile_ends_if_its_link_is_lost(
    is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part did without the other one, had nothing left to do, and is not started again."""
    now = 10.0
    monkeypatch.setattr(driver_module, "monotonic", lambda: now)
    driver = _WithLinks(b="go_on", c="restart")
    outcome: Any = SimpleNamespace(ended_by=EndedBy.FINISHED)
    messages = [("c", Ended(outcome)), ("b", LinkLost("b -> c", 0))]
    for part, message in reversed(messages) if is_late else messages:
        driver.hear(part, message)
    now = 10.31
    driver._end_waits(now)
    assert driver.said_to("b") == [EndFlow("b -> c", 0)]
    assert driver.supervisor.restarts == {}
    assert driver.supervisor.failure is None


def test_of_two_parts_that_lose_their_link_only_the_one_that_is_named_first_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10.0
    monkeypatch.setattr(driver_module, "monotonic", lambda: now)
    driver = _WithLinks(a="restart", b="restart")
    for part in ("a", "b"):
        driver.hear(part, LinkLost("a -> b", 0))
    assert driver.said_to("a") == []
    assert driver.said_to("b") == [Lost("a", "a -> b", 0)]
    now = 10.31
    driver._end_waits(now)
    assert driver.supervisor.restarts == {"b": 1}
    assert driver.supervisor.failure is None


def test_an_agent_that_is_refused_raises_the_reason(served: Callable[[object], Any]) -> None:
    with pytest.raises(GraphError, match="no such fragment"):
        served(Refused("no such fragment"))


def _silent() -> Any:
    reading, writing = os.pipe()
    os.close(writing)
    return os.fdopen(reading, "rb", 0)


class FakeProcess:
    """A process that was started, and what with."""

    started: list[FakeProcess]
    pid, returncode = os.getpid(), 0

    def __init__(self, command: list[str], env: dict[str, str], **_: object) -> None:
        self.command, self.env = command, env
        self.stdout, self.stderr = _silent(), _silent()
        self.started.append(self)

    def kill(self) -> None:
        pass

    wait = kill


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent whose processes do nothing."""
    monkeypatch.setattr(subprocess, "Popen", FakeProcess)
    monkeypatch.setattr(FakeProcess, "started", [], raising=False)
    channel, theirs = channel_and_socket()
    made = Agent(channel, ADDRESS, Access(make_token()), "mine.py")
    yield made
    theirs.close()
    with suppress(PeerLost):
        made.run()


def test_an_agent_assigns_the_gpus_and_cores_of_its_host(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.parts.agent.gpus_for", lambda _: [0, 1, 2])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    agent.start(StartPart("a", 1, 1, 1))
    agent.start(StartPart("b", 2, 2, (0,)))
    agent.start(StartPart("c", 3, (0,)))
    agent.start(StartPart("d", 4, 0))
    agent.start(StartPart("e", 5))
    agent.start(StartPart("a", 6, 1, 1))  # again: it gets its own
    started = FakeProcess.started
    shown = [(each.env.get("CUDA_VISIBLE_DEVICES"), each.env["HEADRACE_DEVICE"]) for each in started]
    assert shown == [("0", "sim"), ("1,2", "sim"), ("0", "sim"), ("", "none"), (None, "sim"), ("0", "sim")]
    assert [each.env.get("HEADRACE_SIM_DEVICES") for each in started] == ["1", "2", "1", "1", None, "1"]
    endings = [each.command[-1].rpartition(f"{os.getpid()}, ")[2] for each in started]
    assert endings[:3] == ["(0,), 'mine.py')", "(0,), 'mine.py')", "(), 'mine.py')"]
    with pytest.raises(GraphError, match="fragment 'f' asks for gpus=1, and 0 are left of 3"):
        agent.start(StartPart("f", 7, 1))
    assert all(agent.access.token.decode() not in " ".join(each.command) for each in started)


def test_a_process_has_the_variables_of_the_driver_before_it_imports_anything(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LOG", "of the agent")
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    agent.start(StartPart("a", 1, environment={"HEADRACE_LOG": "of the driver"}))
    agent.start(StartPart("b", 2, environment={"OPENBLAS_THREAD_TIMEOUT": "26"}))
    assert [each.env["HEADRACE_LOG"] for each in FakeProcess.started] == ["of the driver", "of the agent"]
    # The threads of OpenBLAS do not spin, unless the user says how long.
    assert [each.env["OPENBLAS_THREAD_TIMEOUT"] for each in FakeProcess.started] == ["16", "26"]


def test_a_process_hears_ctrl_c_also_if_whoever_starts_it_has_blocked_it(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray does in its processes."""
    masks: list[set[int]] = []
    monkeypatch.setattr("headrace.parts.worker.join", lambda *_: masks.append(_blocked()))
    monkeypatch.setattr(sys, "path", sys.path[:])
    agent.start(StartPart("a", 1))
    handler = signal.getsignal(signal.SIGINT)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        exec(FakeProcess.started[0].command[-1], {})
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert signal.SIGINT not in masks[0]


def _blocked() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ("127.0.0.1", 8765)),
        ("8000", ("127.0.0.1", 8000)),
        (":8000", ("127.0.0.1", 8000)),
        ("host", ("host", 8765)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("[::1]", ("::1", 8765)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["host:port", "host:-1", "host:70000"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="the port must be a number"):
        parse_address(text)


def test_other_hosts_need_a_token_and_an_address(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", PLANT, "--driver", "--address", "0.0.0.0"]) == 1
    assert "AuthenticationError: a driver at 0.0.0.0 can be reached by other hosts" in lines(capfd)[1]
    assert main(["run", PLANT, "--driver", "--worker", "--address", "0.0.0.0"]) == 1
    assert "so they need an address of it, such as 192.168.1.7" in lines(capfd)[1]


HOLOSCAN = """
from holoscan.conditions import CountCondition
from holoscan.core import Application, Fragment, Operator


class Source(Operator):
    def setup(self, spec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        op_output.emit(7, "out")


class Sink(Operator):
    def setup(self, spec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        print("got", op_input.receive("in"))


class A(Fragment):
    def compose(self):
        self.add_operator(Source(self, CountCondition(self, 2), name="source"))


class B(Fragment):
    def compose(self):
        self.add_operator(Sink(self, name="sink"))


class App(Application):
    def compose(self):
        self.add_flow(A(self, name="a"), B(self, name="b"), {("source", "sink")})


if __name__ == "__main__":
    app = App()
    app.run()
    print("after", app.argv[1:])
"""


def test_the_options_of_a_holoscan_program_mean_the_same() -> None:
    Path("app.py").write_text(HOLOSCAN)
    command = [sys.executable, "-m", "headrace_holoscan", "app.py", "--address", HOST]
    variables = environment_of_programs(HOLOSCAN_LOG_LEVEL="OFF")
    with subprocess.Popen([*command, "--worker"], env=variables, stdout=subprocess.PIPE, text=True) as other:
        done = subprocess.run(
            [*command, "--driver", "--worker", "--fragments", "a"],
            env=variables,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
        assert other.communicate(timeout=PATIENCE)[0].splitlines() == ["got 7", "got 7", "after []"]
    assert (done.returncode, other.returncode) == (0, 0)
    assert done.stdout.splitlines() == ["after []"]
