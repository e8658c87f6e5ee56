"""Fragments in processes of their own: real processes, which end as one process would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.application.listed_runs import listed_runs
from headrace.cli import main
from headrace.link.loop import default_loop
from headrace.observe import progress_line
from headrace.parts.supervision import State, Supervisor
from headrace_holoscan.recordings import EntityReader
from tests.harness import PATIENCE, wait_until
from tests.harness.files import open_files
from tests.harness.logs import logging_of_a_program
from tests.harness.processes import environment_of_programs, forking, is_fork_server, run_python
from tests.limits import THOROUGH
from tests.observe.test_progress_line import Terminal

PLANT = str(Path(__file__).with_name("plant.py"))
SHOWN = [f"shown: {10 * number}" for number in range(5)]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own, and logging as a program finds it. Processes start with what they would import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", forking())
    monkeypatch.setenv("HEADRACE_DEVICE", "sim")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    with logging_of_a_program():
        yield


def children() -> set[str]:
    found: set[str] = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError):  # a thread of another test has ended meanwhile
            found.update(Path(f"/proc/self/task/{task}/children").read_text().split())
    return {pid for pid in found if not is_fork_server(pid)}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    default_loop()  # the descriptors of the links' thread are the process's
    before, files = children(), open_files()
    yield
    assert not children() - before
    # A thread that saw a process end may still be closing what led to it.
    wait_until(lambda: not open_files() - files, "the closing of what was opened")


def run(*arguments: str, options: tuple[str, ...] = ()) -> int:
    """Run the program in processes; return the exit status of the command."""
    return main(["run", PLANT, "--processes", *options, "--", *arguments])


def lines(capfd: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    captured = capfd.readouterr()
    return captured.out.splitlines(), captured.err


@pytest.mark.parametrize("link", ["unix", "tcp"])
def test_the_program_prints_the_same_in_one_process_and_in_several(
    link: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LINK", link)
    assert main(["run", PLANT]) == 0
    alone = lines(capfd)
    assert alone[0] == ["begins", *SHOWN, "finished 16 0 {} {}"]
    assert run() == 0
    assert lines(capfd) == alone
    assert os.listdir(".") == []


def test_one_address_of_a_dashboard_is_printed_for_all_processes(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("aiohttp")
    assert run(options=("--dashboard",)) == 0
    assert [line[:18] for line in lines(capfd)[1].splitlines()] == ["dashboard: http://"]


# Before the driver knows the part, while the part gets ready, and while it ends; and moments like these.
@pytest.mark.parametrize("moment", ["import", "run", "stop", *(["compose", "start"] if THOROUGH else [])])
def test_a_killed_process_ends_the_run(moment: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(f"kill@{moment}") == 1
    out, err = lines(capfd)
    assert "PartLost: fragment 'b': its process " in err
    assert " was ended by SIGKILL " in err
    assert out == ["begins", *(SHOWN[:2] if moment == "run" else SHOWN if moment == "stop" else [])]


def test_a_machine_that_stands_still_while_the_driver_looks_loses_no_part(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stood_still = [0.0]
    note_beat = Supervisor.beat

    def beat(supervisor: Supervisor, part: str, at: float) -> None:
        note_beat(supervisor, part, at)
        if not stood_still[0] and supervisor.parts[part].state is State.LINKED:
            stood_still[0] = 3600.0

    monkeypatch.setattr(Supervisor, "beat", beat)
    for module in ("parts.driver", "link.channel"):
        monkeypatch.setattr(f"headrace.{module}.monotonic", lambda: time.monotonic() + stood_still[0])
    assert run() == 0
    assert stood_still[0]
    assert lines(capfd)[0][-1] == "finished 16 0 {} {}"


def test_an_error_comes_out_as_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("raise@run") == 1
    err = lines(capfd)[1]
    assert err.startswith(
        "headrace run: LookupError: no such part number; raised in compute of operator 'b.mid"
    )
    assert "raised in the process of fragment 'b'; " in err
    assert run("odd@import") == 1
    err = lines(capfd)[1]
    assert err.startswith("headrace run: PartError: Odd: left right; raised in the process of fragment 'b'; ")
    assert os.listdir(".") == []


@pytest.mark.parametrize(("what", "status"), [("int@run", 130), ("term@import", 143)])
def test_a_signal_to_a_process_ends_all_with_the_status_of_one(what: str, status: int) -> None:
    assert run(what) == status


def test_a_part_that_stops_the_run_stops_all(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("stop") == 0
    assert lines(capfd)[0][-1].startswith("stopped ")


def test_processes_that_compose_something_else_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("differ") == 1
    err = lines(capfd)[1]
    assert "DigestError: fragment '" in err
    assert f"parameter 'seed' of operator 'a.numbers' is {os.getpid()} in the driver and " in err


def test_others_go_on_without_a_part_that_may_be_lost(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("kill@run", "go_on") == 0
    out, err = lines(capfd)
    assert "was ended by SIGKILL while it ran; the other fragments go on" in err
    # Of what it took, some may not have been acknowledged.
    assert out[-1] in [f"finished 6 0 {{'b.middle.in': {lost}}} {{}}" for lost in (3, 4, 5)]


def test_a_part_that_is_restarted_receives_what_it_had_not_taken(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("once@run", "struck") == 0
    out, err = lines(capfd)
    assert "was ended by SIGKILL while it ran; it is started again" in err
    assert out[1:-1][-2:] == SHOWN[-2:]
    assert out[-1].startswith("finished ")
    assert out[-1].split()[2:] == ["2", "{}", "{}"]
    os.remove("struck")


@pytest.mark.parametrize(
    ("moment", "doing"),
    [("import", "before it had composed the program"), ("start", "while its operators started")],
)
def test_a_part_that_is_killed_while_it_is_started_again_ends_the_run(
    moment: str, doing: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(f"again@{moment}", "struck") == 1
    err = lines(capfd)[1]
    assert "was ended by SIGKILL while it ran; it is started again" in err
    assert re.search(
        rf"headrace run: PartLost: fragment 'b': its process \d+ was ended by SIGKILL {doing}", err
    )
    os.remove("struck")


def test_all_processes_may_be_killed_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("all@run") == 1
    out, err = lines(capfd)
    assert re.search(
        r"headrace run: PartLost: fragment '[ab]': its process \d+ was ended by SIGKILL while it ran", err
    )
    assert out == ["begins", *SHOWN[:2]]


JOINED = """
import os
from headrace import Application, Fragment, Operator, PeriodicCondition, aligned, op

class Camera(Operator):
    def __init__(self, *given, is_struck):
        super().__init__(*given, name="camera")
        self.is_struck, self.life, self.frames = is_struck, 1 + os.path.exists("struck"), 0

    def setup(self, spec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        self.frames += 1
        if self.is_struck and self.life == 1 and self.frames == 20:
            open("struck", "a").close()
            os.kill(os.getpid(), 9)
        op_output.emit(self.life, "out", acq_timestamp=context.timestamp)

class View(Fragment):
    def compose(self):
        every = PeriodicCondition(self, "5ms")
        self.add_operator(Camera(self, every, is_struck=self.name == "left"))

class Pair(Operator):
    lives = ()

    def setup(self, spec):
        spec.input("left")
        spec.input("right")
        spec.join(aligned("5ms"))

    def compute(self, op_input, op_output, context):
        op_input.receive("right")
        self.lives = *self.lives, op_input.receive("left")
        if self.lives.count(2) == 5:
            print("pairs of both lives:", 1 in self.lives)
            self.fragment.stop_execution()

class Server(Fragment):
    def compose(self):
        self.add_operator(Pair(self, name="pair"))

class Stereo(Application):
    def compose(self):
        server = Server(self, "server")
        for name in "left", "right":
            view = View(self, name, on_loss="restart")
            self.add_flow(view, server, {("camera.out", f"pair.{name}")})

Stereo().run(processes=True)
"""


def test_a_join_goes_on_with_the_frames_of_a_part_that_was_started_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """All parts read one clock, which does not begin again with a part."""
    Path("stereo.py").write_text(JOINED)
    assert main(["run", "stereo.py"]) == 0
    assert "pairs of both lives: True" in lines(capfd)[0]


# The driver.

ENDLESS = """
import os, sys
from headrace import Application, Fragment, op

@op
def numbers():
    number = 0
    while True:
        yield (number := number + 1)

@op
def show(value):
    if value == 1:
        print(os.getppid(), os.getpid(), flush=True)

class A(Fragment):
    def compose(self):
        self.add_operator(numbers(self, name="numbers"))

class B(Fragment):
    def compose(self):
        self.add_operator(show(self, name="show"))

class Endless(Application):
    def compose(self):
        self.add_flow(A(self, "a"), B(self, "b"), {("numbers.out", "show.value")})

Endless().run(processes=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_driver_ends_all(number: signal.Signals) -> None:
    """Ctrl-C comes from the terminal, to all processes at once."""
    Path("endless.py").write_text(ENDLESS)
    with subprocess.Popen(
        [sys.executable, "endless.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_of_programs(),
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        driver, part = map(int, process.stdout.readline().split())
        assert driver == process.pid
        pids = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
        assert str(part) in pids
        if number is signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    status = {signal.SIGINT: -signal.SIGINT, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
    assert process.returncode == status[number]
    for pid in pids:
        wait_until(lambda pid=pid: has_ended(pid), f"the end of process {pid}")  # type: ignore[misc]


@pytest.mark.parametrize("moment", ["import", "start", "stop", *(["compose", "run"] if THOROUGH else [])])
def test_a_driver_that_is_killed_leaves_nothing(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its parts are known, while they get ready, and while they end."""
    os.mkdir("runtime", mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.path.abspath("runtime"))
    command = "import sys; from headrace.cli import main; sys.exit(main())"
    done = run_python(
        "-c",
        command,
        *("run", PLANT, "--processes", "--", f"parent@{moment}"),
    )
    assert done.returncode == -signal.SIGKILL
    wait_until(lambda: not processes_in(os.getcwd()), "the end of the parts")
    # The kernel lets go of the locks of a process after its folder; listing removes files of what has ended.
    wait_until(lambda: not listed_runs(), "the end of the list")
    assert [str(path) for path in Path("runtime").rglob("*") if not path.is_dir()] == []


def processes_in(folder: str) -> list[str]:
    """Return the other processes that run in a folder, except for fork servers."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if (
                os.readlink(f"/proc/{pid}/cwd") == folder
                and int(pid) != os.getpid()
                and not is_fork_server(pid)
            ):
                found.append(pid)
    return found


PAUSED = (
    ENDLESS.rpartition("\n\n")[0]
    + """

import signal
from pathlib import Path
from headrace.core.errors import PartLost

app = Endless()
run = app.run_async(processes=True)
app.pause()
assert app.wait_until_paused()
children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
children = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() != "fork server"]
assert len(children) == 2
for pid in children[: int(sys.argv[1])]:
    os.kill(int(pid), signal.SIGKILL)
try:
    run.result()
except PartLost as error:
    print(error, app.outcome.ended_by)
"""
)


@pytest.mark.parametrize("killed", [1, 2])
def test_a_part_that_is_killed_in_a_pause_ends_the_run(killed: int) -> None:
    Path("paused.py").write_text(PAUSED)
    done = run_python("paused.py", killed)
    assert re.fullmatch(
        r"fragment '[ab]': its process \d+ was ended by SIGKILL while it ran failed\n", done.stdout
    ), done


def has_ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


WATCHED = """\
import os
import sys

from headrace import Application, Fragment, PeriodicCondition, op


@op
def numbers():
    number = 0
    while not os.path.exists("seen"):
        yield number
        number += 1
    print("hello", file=sys.stderr)


@op
def show(value):
    pass


class Edge(Fragment):
    def compose(self):
        self.add_operator(numbers(self, PeriodicCondition(self, "2ms"), name="numbers"))


class Server(Fragment):
    def compose(self):
        self.add_operator(show(self, name="show"))


class Plant(Application):
    def compose(self):
        self.add_flow(Edge(self, "edge"), Server(self, "server"), {("numbers", "show")})
"""


class SeenTerminal(Terminal):
    """A terminal that lets the program end when the line has been seen with the computes of both parts."""

    def __init__(self, latency: str) -> None:
        super().__init__()
        self._seen = re.compile(r"[1-9][\d,.]* computes/s  edge\.numbers [1-9][\d,.]*/s" + latency)

    def write(self, text: str) -> int:
        if self._seen.search(text):
            Path("seen").touch()
        return super().write(text)


@pytest.mark.parametrize("is_tracked", [False, True])
def test_one_line_of_progress_is_shown_for_all_processes(
    is_tracked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the run is tracked, it has the latency from a source in one part to a sink in another."""
    Path("watched.py").write_text(WATCHED)
    latency = r"  latency [\d.]+ ms" if is_tracked else ""
    terminal = SeenTerminal(latency)
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "WARNING")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(progress_line, "PERIOD", 0.01)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["run", "watched.py", "--processes", "--progress", *(["--track"] if is_tracked else [])]) == 0
    assert sys.stderr is terminal
    written = terminal.getvalue()
    assert "\r\x1b[Khello\n" in written  # of a part: on a line of its own
    line = re.compile(
        r"\d:\d\d:\d\d  Plant  [\d,.]+ computes/s(  edge\.numbers [\d,.]+/s)?(" + latency + ")?"
    )
    shown = [each for each in written.split("\r\x1b[K") if "computes/s" in each]
    assert [
        each for each in shown if not line.fullmatch(each)
    ] == []  # the source is shown when its part has answered
    assert re.search(r"(\n|\x1b\[K)'Plant' finished after [\d.]+ s: \d+ computes\n$", written)


RECORDS = """\
import os
import signal

import numpy as np

from headrace import Application, Fragment, op
from headrace_holoscan.ready import VideoStreamRecorderOp


@op
def frames():
    for number in range(12):
        yield np.full((2, 2), number, np.int32)


class Recorder(VideoStreamRecorderOp):
    def write_frame(self, arrays, details):
        super().write_frame(arrays, details)
        if self.frames_recorded == 5 and not os.path.exists("struck"):
            open("struck", "x").close()
            os.kill(os.getpid(), signal.SIGKILL)


class Camera(Fragment):
    def compose(self):
        self.add_operator(frames(self, name="frames"))


class Disk(Fragment):
    def compose(self):
        self.add_operator(Recorder(self, directory=".", basename="clip", name="recorder"))


class Plant(Application):
    def compose(self):
        self.add_flow(Camera(self, "camera"), Disk(self, "disk", on_loss="restart"), {("frames", "recorder")})


Plant().run()
"""


def test_a_recorder_whose_process_is_killed_goes_on_in_another_file() -> None:
    Path("records.py").write_text(RECORDS)
    assert main(["run", "records.py", "--processes"]) == 0
    numbers = []
    for name in ("clip", "clip-2"):
        with EntityReader(".", name) as reader:
            numbers.append([int(entity.tensors[""][0, 0]) for entity in reader])
    assert numbers[0] == [0, 1, 2, 3, 4]
    assert sorted({*numbers[0], *numbers[1]}) == list(range(12)), "nothing is lost"


FORKS = """\
import os
import signal

from headrace import Application, Fragment, op


@op
def numbers():
    yield from range(300)


@op
def fork(value):
    if value == 3:
        child = os.fork()
        if not child:
            signal.pause()
        open("child", "w").write(str(child))
        os.kill(os.getpid(), signal.SIGKILL)


class A(Fragment):
    def compose(self):
        self.add_operator(numbers(self, name="numbers"))


class B(Fragment):
    def compose(self):
        self.add_operator(fork(self, name="fork"))


class Plant(Application):
    def compose(self):
        self.add_flow(A(self, "a"), B(self, "b", on_loss="go_on"), {("numbers", "fork")}, size=4)


if __name__ == "__main__":
    outcome = Plant().run()
    print(outcome.ended_by, outcome.operators["a.numbers"].computes, sum(outcome.lost.values()))
"""


@pytest.mark.parametrize("options", [("--processes",), ("--driver", "--worker", "--fragments", "all")])
def test_the_others_go_on_without_a_killed_process_whose_child_holds_its_connections(
    options: tuple[str, ...], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not end, so the driver says that the part is gone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.getcwd())
    monkeypatch.setenv("HEADRACE_ADDRESS", f"127.1.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}")
    Path("forks.py").write_text(FORKS)
    try:
        assert main(["run", "forks.py", *options]) == 0
    finally:
        os.kill(int(Path("child").read_text()), signal.SIGKILL)
    # Of what the part took, some was not acknowledged.
    assert re.fullmatch("finished 301 (29[6789]|300)", lines(capfd)[0][-1])
