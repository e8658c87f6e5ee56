"""Networks that fail: the cable between two hosts, the packets of a link, and some packets of all."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from headrace.link.carrier import Carrier
from headrace.link.protocol import Sample, Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.parts.agent import DEFAULT_PORT
from tests.harness import PATIENCE, wait_until
from tests.harness.networks import Host, connected, two_hosts, why_not
from tests.harness.processes import environment_of_programs
from tests.link.connections import descriptors, wait_for_descriptors

PROGRAM = """
from headrace import Application, Fragment, op
from headrace.conditions import PeriodicCondition

class Edge(Fragment):
    def compose(self):
        @op
        def camera():
            return 7
        self.add_operator(camera(self, PeriodicCondition(self, 10_000_000), name="camera"))

class Server(Fragment):
    def compose(self):
        @op(outputs=())
        def detector(frame):
            print("frame", frame)
        self.add_operator(detector(self, name="detector"))

class Plant(Application):
    def compose(self):
        edge, server = Edge(self, "edge"), Server(self, "server")
        self.add_flow(edge, server, {("camera.out", "detector.frame")}, size=4)

if __name__ == "__main__":
    Plant().run()
"""
LINK = "edge.camera.out -> server.detector.frame"


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    if reason := why_not():
        pytest.skip(reason)
    with two_hosts() as both:
        yield both


class Run:
    """A driver that runs `server` on one host and a worker that runs `edge` on the other, once frames pass."""

    def __init__(self, hosts: tuple[Host, Host], folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack, self._hosts = folder, stack, hosts
        Path(folder, "plant.py").write_text(PROGRAM)
        one, other = hosts
        self.driver = self._start(one, "--driver", "--worker", "--fragments", "server")
        self.worker = self._start(other, "--worker", "--fragments", "edge")
        assert self.driver.stdout is not None
        assert self.driver.stdout.readline() == "frame 7\n"

    def _start(self, host: Host, *options: str) -> subprocess.Popen[str]:
        words = ("-m", "headrace", "run", "plant.py", "--address", self._hosts[0].address, *options)
        process = subprocess.Popen(
            host.command(sys.executable, *words),
            cwd=self._folder,
            env=environment_of_programs(HEADRACE_TOKEN="0" * 64, HEADRACE_LOG_LEVEL="info"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)  # its processes end with it
        return process

    def finish(self) -> tuple[str, str]:
        """Wait until both commands have failed, and nothing is left of them; return what they say."""
        said = tuple(each.communicate(timeout=PATIENCE)[1] for each in (self.driver, self.worker))
        wait_until(lambda: not any(host.processes() for host in self._hosts), "the end of all processes")
        return said


@pytest.fixture
def run(hosts: tuple[Host, Host], tmp_path: Path) -> Iterator[Run]:
    with ExitStack() as stack:
        yield Run(hosts, tmp_path, stack)


def test_a_pulled_cable_ends_the_run_on_both_hosts(run: Run, hosts: tuple[Host, Host]) -> None:
    hosts[1].pull_the_cable()
    driver, worker = run.finish()
    assert run.driver.returncode == 1
    assert (
        "PartLost: fragment 'edge': its process at 10.77.0.2:" in driver
        or f"PeerLost: link '{LINK}'" in driver
    )
    assert run.worker.returncode == 1
    assert "PeerLost: the driver at 10.77.0.1:8765 is gone" in worker


def test_a_network_that_fails_between_two_parts_only_ends_the_run(run: Run, hosts: tuple[Host, Host]) -> None:
    """The driver reaches both of them, and says which link was lost."""
    hosts[1].drop("input", f"tcp sport != {DEFAULT_PORT}")
    driver, worker = run.finish()
    assert run.driver.returncode == 1
    assert f"headrace run: PeerLost: link '{LINK}': " in driver
    assert "PartLost" not in driver
    assert f"[edge] headrace.parts: link '{LINK}': the host of the peer has not answered for 2.5 s" in worker
    assert run.worker.returncode == 0  # it was told that the run is over


def test_all_frames_arrive_in_order_over_a_network_that_loses_packets(hosts: tuple[Host, Host]) -> None:
    before = descriptors()
    near, far = connected(*hosts)
    for host in hosts:
        host.drop("input", "numgen inc mod 20 0")  # every twentieth
    terms = Terms(LINK, 4)
    room, news = threading.Event(), threading.Event()
    sender, receiver = Sender(Carrier(near), terms, room.set), Receiver(Carrier(far), terms, news.set)
    frames = [np.full(size, number, np.uint8) for number, size in enumerate([10, 30_000, 70_000] * 30)]

    def send() -> None:
        for frame in frames:
            while not sender.send(Sample(frame)):
                assert room.wait(PATIENCE)
                room.clear()
        sender.end()

    sending = threading.Thread(target=send)
    sending.start()
    taken = []
    while not receiver.has_ended:
        assert receiver.failure is None
        if (sample := receiver.take()) is None:
            assert news.wait(PATIENCE)
            news.clear()
        else:
            taken.append(sample)
            receiver.give_credits(1)
    sending.join(PATIENCE)
    assert all(host.dropped("input") for host in hosts)
    assert [sample.number for sample in taken] == list(range(len(frames)))
    assert all(np.array_equal(sample.data, frame) for sample, frame in zip(taken, frames, strict=True))
    sender.close()
    receiver.close()
    wait_for_descriptors(before)
