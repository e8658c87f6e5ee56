"""Fragments as actors of Ray. Each test starts Ray, which takes many seconds; without Ray they are skipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.harness import PATIENCE, wait_until
from tests.harness.processes import ROOT, environment_of_programs, run_python
from tests.limits import THOROUGH
from tests.parts.test_processes import ENDLESS, PLANT, SHOWN

if find_spec("ray") is None:  # importing it takes a second in every worker, and changes how everybody logs
    pytest.skip("Ray is not installed", allow_module_level=True)

# Starting Ray on a loaded machine.
LONG = PATIENCE
PROGRAMS = 2


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process of the run, and no folder of Ray."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("TEST_OF_RAY", mark)
    # Of its own, since other tests start Ray, too; with a short name, since it begins those of Ray's sockets.
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield
        wait_until(lambda: not marked(mark), "the end of all processes")
        assert not [name for name in os.listdir(folder) if name.startswith("headrace-ray-")]


def marked(mark: str) -> set[str]:
    """Return the processes whose environment has a mark."""
    found = set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = environment.read_bytes()
        except OSError:
            continue
        if mark.encode() in content:
            found.add(environment.parent.name)
    return found


@pytest.mark.parametrize(
    ("options", "action", "reason"),
    [
        (("--tls",), "once", "was ended by SIGKILL while it ran; it is started again"),
        (
            (),
            "freeze",
            "(it is frozen, or a call holds the interpreter lock) while it ran; it is started",
        ),
    ],
)
def test_actors_print_what_one_process_prints_and_one_that_is_lost_or_frozen_is_replaced(
    tmp_path: Path, options: tuple[str, ...], action: str, reason: str
) -> None:
    if "--tls" in options:
        pytest.importorskip("cryptography")
    struck = tmp_path / "struck"
    done = run_python(
        *(
            "-m",
            "headrace",
            "run",
            PLANT,
            "--cluster",
            "auto",
            *options,
            "--",
            f"{action}@run",
            str(struck),
        ),
        cwd=tmp_path,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    out = done.stdout.splitlines()
    assert struck.exists()
    assert reason in done.stderr
    assert all(" headrace.parts: " in line for line in done.stderr.splitlines())  # and no line of Ray
    assert out[0] == "begins"
    assert set(out[1:-1]) <= set(SHOWN)  # the same
    assert out[-3:-1] == SHOWN[-2:]
    assert out[-1].startswith("finished ")
    assert out[-1].split()[2:] == ["2", "{}", "{}"]


def test_ctrl_c_ends_all(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    text = ENDLESS.replace("run(processes=True)", "run()").replace(
        "print(os.getppid(), os.getpid(), flush=True)", f"open({str(begun)!r}, 'x').close()"
    )
    (tmp_path / "endless.py").write_text(text)
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", "endless.py", "--cluster", "auto"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment_of_programs(),
    ) as process:
        wait_until(lambda: begun.exists() or process.poll() is not None, "the first frame")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONG)
    assert process.returncode == 130, err


@pytest.mark.parametrize(("what", "status"), [("term@import", 143), ("int@import", 130), ("int@run", 130)])
def test_a_signal_to_a_process_ends_all(what: str, status: int, tmp_path: Path) -> None:
    command = ("-m", "headrace", "run", PLANT, "--cluster", "auto", "--", what)
    done = run_python(*command, cwd=tmp_path, timeout=LONG)
    assert done.returncode == status, done.stderr


FROZEN = """
import os
import signal
import time

from headrace import Application, Fragment, op
from headrace.cluster import ray_hosting
from headrace.parts import supervision

supervision.START = 1.0


class Frozen(ray_hosting.PartHost):
    def __init__(self, part):
        super().__init__(part)
        os.kill(os.getpid(), signal.SIGSTOP)


ray_hosting.PartHost = Frozen


@op
def numbers():
    yield 1


class Part(Fragment):
    def compose(self):
        self.add_operator(numbers(self, name="numbers"))


class Program(Application):
    def compose(self):
        self.add_fragment(Part(self, "only"))


Program().run()
"""


def test_an_actor_that_is_frozen_before_it_is_ready_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "frozen.py").write_text(FROZEN)
    command = ("-m", "headrace", "run", "frozen.py", "--cluster", "auto")
    done = run_python(*command, cwd=tmp_path, timeout=LONG)
    assert done.returncode == 1
    assert (
        "PartLost: fragment 'only': its process has said nothing for 3.85 s (it is frozen, or a call"
        in done.stderr
    )


@pytest.mark.skipif(
    not THOROUGH, reason="frames pass by TCP as in tests/parts, which has random programs, too"
)
def test_random_programs_do_as_actors_what_they_do_in_one_process() -> None:
    """The same frames, order and outcomes, also in processes over sockets; Ray is started once.

    ``python -m benchmarks.parts_soak --ways ray --programs 100 --first SEED`` runs more.
    """
    options = ("--programs", PROGRAMS, "--kinds", "orderly", "--ways", "unix,tcp,ray")
    done = run_python("-m", "benchmarks.parts_soak", *options, cwd=ROOT, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| orderly | ray | {PROGRAMS} |" in done.stdout
