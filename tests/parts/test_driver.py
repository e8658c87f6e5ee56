"""What a program does with its operators from the driver, while they compute in other processes."""

from __future__ import annotations

import json
import os
import selectors
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace import Application, Fragment
from headrace.link.channel import finish_all
from headrace.parts.calls import Calls
from headrace.parts.driver import Driver, DriverControl, open_driver
from headrace.parts.environment import Launch
from headrace.parts.hosting import Process
from headrace.parts.messages import Beat, RunOver
from tests.harness import PATIENCE, Step
from tests.harness.processes import run_python
from tests.parts.test_processes import environment, nothing_left

__all__ = ["environment", "nothing_left"]  # fixtures

LIVE = """
import json
import os
import signal
import sys
from urllib.error import HTTPError
from urllib.request import urlopen

from headrace import Application, Fragment, Operator, op
from headrace.core import GraphError, ParameterError
from headrace.parts import outcomes
from headrace.observe import MetricsServer


def check(value):
    if value == 4 and "HEADRACE_PART" in os.environ:
        raise ValueError("the part does not like four")


@op
def numbers():
    number = 0
    while True:
        yield number
        number += 1


class Scale(Operator):
    last = None

    def setup(self, spec):
        spec.input("in")
        spec.param("gain", 1, live=True, minimum=0, check=check)

    def compute(self, op_input, op_output, context):
        op_input.receive("in")
        context.knob("offset", "float32", 0)
        if self.last is not None:
            open("computed", "w").close()
        if self.gain != self.last:
            print("gain", self.gain, flush=True)
            self.last = self.gain
        if self.gain == 7 and not os.path.exists("struck"):
            open("struck", "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.gain == 9:
            self.fragment.application.stop_execution()


class Edge(Fragment):
    def compose(self):
        self.add_operator(numbers(self, name="numbers"))


class Server(Fragment):
    def compose(self):
        self.add_operator(Scale(self, self.from_config("scale"), name="scale"))


class Plant(Application):
    def compose(self):
        self.add_flow(Edge(self, "edge"), Server(self, "server", on_loss="restart"), {("numbers", "scale")})


def say(*words):
    # Print in one piece: the driver passes on the lines of the parts meanwhile.
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()


def refuse(setter, *given):
    try:
        setter(*given)
    except (GraphError, ParameterError, ValueError) as error:
        say(type(error).__name__, str(error), *(note.splitlines()[0] for note in getattr(error, "__notes__", ())))
    else:
        say("was not refused:", given)


def wait_for(file):
    while not os.path.exists(file):
        scale.set_knob("offset", 1)


def ask(path):
    try:
        return urlopen(server.url + path).read().decode()
    except HTTPError as error:
        return error.read().decode()


outcomes._PATIENCE = 3600.0  # however slow the parts are
app = Plant()
server = MetricsServer(app)
app.config("plant.yaml", reload=True)
future = app.run_async(processes=True)
app.wait_until_started()
scale = app.graph.find("server.scale")
scale.set_live("gain", 3)
refuse(scale.set_live, "gain", -1)
refuse(scale.set_live, "gain", 4)
refuse(scale.set_live, "gain", lambda: None)
wait_for("computed")
refuse(scale.set_knob, "offzet", 1)
while 'headrace_link_messages_total{application="Plant"' not in (figures := ask("/metrics")):
    scale.set_knob("offset", 2)
say(*(line.rpartition("}")[0] for line in figures.splitlines() if line.startswith("headrace_computes_total")))
app.pause()
say(app.wait_until_paused(), ask("/ready"))
before = app.progress()
refuse(app.step, 3)
say(app.progress().computes == before.computes, *before.computes)
refuse(scale.fragment.remove_flow, scale, scale)
app.resume()
say(ask("/ready"))
scale.set_live("gain", 7)
wait_for("struck")
scale.set_live("gain", 8)
open("plant.yaml", "w").write("scale: {gain: 9}")
os.kill(os.getpid(), signal.SIGHUP)
say(future.result().ended_by)
"""


def test_values_that_the_driver_sets_reach_the_part_and_are_answered() -> None:
    """A part that is restarted has the last value; a configuration that is read again sets it as well."""
    Path("live.py").write_text(LIVE)
    Path("plant.yaml").write_text("scale: {gain: 2}")
    done = run_python("live.py", timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    gains = [line for line in done.stdout.splitlines() if line.startswith("gain")]
    assert gains[0] in ("gain 2", "gain 3")
    after = gains[gains.index("gain 7") + 1 :]
    assert after[0] in ("gain 7", "gain 8", "gain 9"), gains
    assert after[-1] == "gain 9"
    rest = [line for line in done.stdout.splitlines() if not line.startswith("gain")]
    assert "must be at least 0, not -1" in rest[0]
    assert rest[1].endswith(
        "must not be 4: the part does not like four raised in the process of fragment 'server'"
    )
    assert "ParameterError" in rest[2]
    assert rest[3] == (
        "ParameterError operator 'server.scale' has no knob 'offzet'; it has 'offset' "
        "raised in the process of fragment 'server'"
    )
    assert rest[4] == (
        'headrace_computes_total{application="Plant",fragment="edge",operator="edge.numbers" '
        'headrace_computes_total{application="Plant",fragment="server",operator="server.scale"'
    )
    assert (rest[5][:4], json.loads(rest[5][4:])["applications"]["Plant"]["state"]) == ("True", "paused")
    assert rest[7].startswith("GraphError step() counts the computes of one process")
    assert rest[8] == "True edge.numbers server.scale"
    assert "of 'server', whose operators run in processes of their own" in rest[9]
    assert json.loads(rest[10])["status"] == "ok"
    assert rest[12:] == ["stopped"]


DRAINED = """
import os
import signal
import sys

from headrace import Application, Fragment, op


@op
def numbers():
    number = 0
    while True:
        yield number
        number += 1


@op
def show(number):
    if number == 20 and sys.argv[1] == "signal":
        for process in (os.getppid(), os.getpid())[: int(sys.argv[2])]:
            os.kill(process, signal.SIGTERM)
    print(number)
    return number


class Edge(Fragment):
    def compose(self):
        self.add_operator(numbers(self, name="numbers"))


class Server(Fragment):
    def compose(self):
        self.add_operator(show(self, name="show"))


class Plant(Application):
    stop_timeout = "3600s"

    def compose(self):
        self.add_flow(Edge(self, "edge"), Server(self, "server"), {("numbers", "show")}, size=8)


app = Plant()
future = None
try:
    if sys.argv[1] == "signal":
        app.run()
    elif sys.argv[1] == "block":
        with app.running():
            pass  # it begins with the run, whose source ends with it
    else:
        future = app.run_async()
        app.wait_until_started()
        app.pause()
        app.wait_until_paused()
        app.drain()
        future.result()
finally:
    outcome = app.outcome
    sent, shown = (outcome.operators[name].computes for name in ("edge.numbers", "server.show"))
    print(outcome.ended_by, outcome.undelivered, sent == shown)
"""


@pytest.mark.parametrize(
    ("how", "status", "ended_by"),
    [
        ("signal 1", 143, "interrupted"),
        ("signal 2", 143, "interrupted"),
        ("drain 0", 0, "finished"),
        ("block 0", 0, "finished"),
    ],
)
def test_a_run_in_processes_that_is_drained_computes_what_is_under_way(
    how: str, status: int, ended_by: str
) -> None:
    """SIGTERM may come to the driver alone or to all processes, as systemd sends it."""
    Path("drained.py").write_text(DRAINED)
    done = run_python(
        "-m", "headrace", "run", "drained.py", "--processes", "--", *how.split(), timeout=PATIENCE
    )
    assert done.returncode == status, done.stderr
    *shown, last = done.stdout.splitlines()
    assert shown == [str(number) for number in range(len(shown))]
    assert last == f"{ended_by} {{}} True"


PLAYED = """
from headrace import Application, Fragment, op


@op
def camera(*, frames: int = 3):
    for number in range(frames):
        print("made", number, flush=True)
        yield number


@op
def double(frame):
    return 2 * frame


@op
def show(frame):
    print("shown", frame, flush=True)


class Edge(Fragment):
    def compose(self):
        self.add_operator(camera(self, name="camera"))


class Middle(Fragment):
    def compose(self):
        self.add_operator(double(self, name="double"))


class Screen(Fragment):
    def compose(self):
        self.add_operator(show(self, name="show"))


class Plant(Application):
    def compose(self):
        edge, middle, screen = Edge(self, "edge"), Middle(self, "middle"), Screen(self, "screen")
        self.add_flow(edge, middle, {("camera.out", "double.frame")})
        self.add_flow(middle, screen, {("double.out", "show.frame")})


if __name__ == "__main__":
    outcome = Plant().run()
    print(outcome.ended_by)
"""


def test_each_process_plays_the_operators_of_its_fragment() -> None:
    """An operator that only feeds one that is played does not run, in whichever process."""
    pytest.importorskip("mcap")
    Path("played.py").write_text(PLAYED)
    run = ("-m", "headrace", "run", "played.py")
    shown = ["shown 0", "shown 2", "shown 4", "finished"]
    assert run_python(*run, "--record", "run.mcap", timeout=PATIENCE).returncode == 0
    for ports in ("", "edge.camera.out"):
        options = ("--processes", "--replay", "run.mcap")
        done = run_python(*run, *options, timeout=PATIENCE, HEADRACE_REPLAY_PORTS=ports)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == shown


def _driver() -> Driver:
    class Part(Fragment):
        def compose(self) -> None:
            self.add_operator(Step(self, name="op"))

    class Parts(Application):
        def compose(self) -> None:
            self.add_fragment(Part(self, "part"))

    app = Parts()
    app.compose_graph()
    driver = open_driver(app, DriverControl(), Launch("", "", (), False), ())
    driver._calls = Calls(lambda: None)
    return driver


def close(driver: Driver) -> None:
    """Let go of what a driver has opened."""
    for process in driver._processes.values():
        process.detach()
    driver._processes.clear()
    finish_all(driver._agents, RunOver())
    driver._reception.close()
    driver._hosting.close()
    driver._close()


def test_what_was_wrong_in_a_process_is_forgotten_with_it() -> None:
    """The process that takes its place says nothing as long as nothing is wrong."""
    driver = _driver()
    process = driver._processes["part"] = Process("part", 1, {})
    driver._handle(process, Beat(("operator 'slow' has computed for 3.0 s",)))
    assert driver.problems() == ["operator 'slow' has computed for 3.0 s"]
    driver._exit(process)
    assert driver.problems() == []
    close(driver)


def test_a_thread_that_wakes_the_driver_after_its_end_writes_to_no_other_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that asked for the progress, and was held up before it woke the driver."""
    driver = _driver()
    wakes: list[Any] = []
    written: list[Any] = []
    monkeypatch.setattr(driver, "_carry_out", lambda actions: wakes.append(driver._calls._wake))
    driver.run()
    monkeypatch.setattr(os, "eventfd_write", lambda *given: written.append(given))
    wakes[0]()
    assert not written  # the system may have given the number to another file


def test_a_file_that_another_one_of_the_same_moment_removes_is_not_served() -> None:
    """The exit of a process and its last words may be found at once, and the first closes what the other reads."""
    driver = _driver()
    served: list[int] = []
    pipes = [os.pipe() for _ in range(2)]

    def serve(own: int, other: int) -> None:
        served.append(own)
        driver._selector.unregister(other)

    for (reading, writing), (other, _) in zip(pipes, reversed(pipes), strict=True):
        os.write(writing, b"x")
        driver._selector.register(reading, selectors.EVENT_READ, partial(serve, reading, other))
    driver._step()
    assert len(served) == 1
    for descriptor in (*pipes[0], *pipes[1]):
        os.close(descriptor)
    close(driver)


def test_an_exception_without_a_text_ends_the_run_as_any_other() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("there are no words for it")

    driver = _driver()
    failure = Mute()
    driver.supervisor.fail("part", failure, 0.0, 1)
    driver._carry_out([])  # there are no processes
    (record,) = driver.outcome(failure).errors
    assert (record.kind, record.message) == ("Mute", "<its __str__ raised>")
    close(driver)
