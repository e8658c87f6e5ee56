"""What headrace asks of Ray and makes of its answers, with a Ray that has no processes."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from headrace.cluster import ray_hosting, ray_start
from headrace.core.errors import GraphError, LinkError, PeerLost
from headrace.parts.access import Access
from headrace.parts.hosting import Process
from headrace.parts.messages import Gone, StartPart
from tests.harness import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def nothing_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No folder of Ray."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


class FakeRay:
    def __init__(self, *, is_initialized: bool = False) -> None:
        self._is_initialized = is_initialized
        self.was_shut_down = False
        self.starts = 0

    def is_initialized(self) -> bool:
        return self._is_initialized

    def init(self, **_: object) -> None:
        self.starts += 1
        raise OSError("no room for Ray")

    def shutdown(self) -> None:
        self.was_shut_down = True


class FakeCluster(FakeRay):
    """Notes which actors are created and killed; their calls never end by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.actors: list[SimpleNamespace] = []
        self.killed: list[SimpleNamespace] = []
        self.options: list[dict[str, int]] = []
        self.ports: dict[str, int] = {}
        """Those of the actors that have a process, by part."""
        self._private = SimpleNamespace(
            state=SimpleNamespace(actors=lambda part: {"Address": {"Port": self.ports.get(part, 0)}})
        )
        self.accesses: list[Access] = []

    def init(self, **_: object) -> None:
        pass

    def remote(self, **options: int) -> Callable[[type], SimpleNamespace]:
        self.options.append(options)
        return lambda kind: SimpleNamespace(remote=self._create)

    def _create(self, part: str) -> SimpleNamespace:
        end: Future[None] = Future()

        def run(_: object, access: Access, path: str) -> SimpleNamespace:
            self.accesses.append(access)
            return SimpleNamespace(future=lambda: end)

        call = SimpleNamespace(remote=run)
        actor = SimpleNamespace(part=part, end=end, run=call)
        actor._actor_id = SimpleNamespace(hex=lambda: part)
        self.actors.append(actor)
        return actor

    def kill(self, actor: SimpleNamespace, *, no_restart: bool) -> None:
        assert no_restart
        self.killed.append(actor)


def test_an_actor_takes_the_place_of_a_lost_one_and_the_driver_is_told_which_one_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = FakeCluster()
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: ray)
    part = SimpleNamespace(name="a", gpus=None, cpus=2, on_loss="restart")
    posted: list[Gone] = []
    hosting = ray_hosting.RayHosting("auto", [part], ACCESS, ".")
    hosting.reception = SimpleNamespace(  # type: ignore[assignment]
        address=("127.0.0.1", 1), post=posted.append
    )
    hosting.start("a", 1, {})
    channel: Any = Mock(sent=[], where="there")
    channel.post = channel.sent.append
    hosting.add_agent("a", channel, lambda part: False)
    assert channel.sent == [StartPart("a", 1, may_return=True)]
    hosting.start("a", 2, {})
    first, second = ray.actors
    assert ray.killed == [first]
    assert ray.options == [{"num_cpus": 2, "num_gpus": 0}] * 2
    other: Any = Mock(sent=[], where="there")
    other.post = other.sent.append
    hosting.add_agent(
        "a", other, lambda part: False
    )  # also before the end of the connection of the first is known
    assert channel.sent == [StartPart("a", 1, may_return=True)]
    assert other.sent == [StartPart("a", 2, may_return=True)]
    assert hosting.remove_agent(channel, "is gone") == []
    first.end.set_exception(RuntimeError("killed"))
    assert posted == []  # nobody waits for it
    second.end.set_exception(RuntimeError("no memory"))
    assert posted == [Gone("a", 2, "its actor has failed (no memory)")]
    hosting.start("a", 3, {})
    ray.actors[-1].end.set_result(None)
    assert len(posted) == 1  # its agent says how the process has ended
    hosting.close()
    assert ray.killed == [first, second, ray.actors[-1]]
    assert ray.was_shut_down


def test_ray_says_which_gpus_are_visible_but_not_to_simulated_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: FakeCluster())
    part = SimpleNamespace(name="a", gpus=2, cpus=1, on_loss="stop")
    monkeypatch.setattr(ray_hosting, "gpus_for", lambda _: [0, 1])
    hosting = ray_hosting.RayHosting("auto", [part], ACCESS, ".")
    found = hosting._start_of(Process("a", 1, {"HEADRACE_LOG": "x"}))
    assert found == StartPart("a", 1, environment={"HEADRACE_LOG": "x", "HEADRACE_SIM_DEVICES": "2"})
    hosting.close()


@pytest.mark.parametrize("is_known", [True, False])
def test_an_actor_has_its_time_from_when_it_has_a_process_until_it_is_ready(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeCluster()
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: ray)
    hosting = ray_hosting.RayHosting("auto", [PART], ACCESS, ".")
    hosting.reception = SimpleNamespace(address=("127.0.0.1", 1))  # type: ignore[assignment]
    hosting.start("a", 1, {})
    now = 100.0
    monkeypatch.setattr(ray_hosting, "monotonic", lambda: now)
    assert hosting.look(["a"]) == []  # it may wait for resources for ever
    ray.ports["a"] = 1234
    if not is_known:  # by a version of Ray that has no such table
        del ray._private
    now = 103.0
    assert hosting.look(["a"]) == ()
    now = 105.0
    assert hosting.look(["a"]) == ["a"] * is_known
    hosting.close()


@pytest.mark.parametrize("encrypted", [True, False])
def test_the_driver_says_how_processes_connect_whoever_started_ray(
    encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeCluster()
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: ray)
    hosting = ray_hosting.RayHosting("auto", [PART], Access(b"token", encrypted), ".")
    hosting.reception = SimpleNamespace(address=("127.0.0.1", 1))  # type: ignore[assignment]
    hosting.start("a", 1, {})
    hosting.close()
    assert ray.accesses == [Access(b"token", encrypted)]


@pytest.fixture
def address() -> Iterator[str]:
    """An address at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


ACCESS = Access(b"token")
PART = SimpleNamespace(name="a", gpus=None, cpus=2, on_loss="stop")


def test_what_began_is_ended_if_ray_cannot_be_joined(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: ray)
    with pytest.raises(OSError, match="no room for Ray"):
        ray_hosting.RayHosting(address, [PART], ACCESS, ".")
    assert ray.was_shut_down


def test_an_address_that_nobody_listens_at_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: ray)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            PeerLost, match=f"--cluster {address}: no cluster of Ray listens there: .*refused"
        ):
            ray_hosting.RayHosting(address, [PART], ACCESS, ".")
    assert ray.starts == 0


class SlowRay(FakeRay):
    """Starts at the last attempt, if at all."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures = failures
        self.folders: list[str] = []

    def init(self, *, _temp_dir: str, **_: object) -> None:
        self.starts += 1
        self.folders.append(_temp_dir)
        if self.starts <= self._failures:
            raise Exception("the current node timed out during startup")


def test_a_slow_ray_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ray = SlowRay(ray_start.ATTEMPTS - 1)
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: ray)
    hosting = ray_hosting.RayHosting("auto", [PART], ACCESS, ".")
    assert "Ray did not start (the current node timed out during startup); attempt 2 of 3" in caplog.text
    assert [os.path.exists(folder) for folder in ray.folders] == [False, False, True]
    hosting.close()
    assert ray.was_shut_down
    assert not os.path.exists(ray.folders[-1])


def test_a_ray_that_never_starts_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = SlowRay(99)
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: ray)
    before = dict(os.environ)
    with pytest.raises(
        LinkError, match="--cluster auto: Ray did not start on this machine in 3 attempts: the cur"
    ):
        ray_hosting.RayHosting("auto", [PART], ACCESS, ".")
    assert (ray.starts, ray.was_shut_down) == (3, True)
    assert dict(os.environ) == before


def test_a_program_that_uses_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_hosting, "import_or_explain", lambda *_: FakeRay(is_initialized=True))
    with pytest.raises(GraphError, match="this program uses Ray already"):
        ray_hosting.RayHosting("auto", [], ACCESS, ".")


def test_processes_that_ray_left_behind_are_ended(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.touch()
    with ray_start.no_orphans(str(tmp_path)):
        printed = subprocess.run(
            ["sh", "-c", f"tail -f {file} >/dev/null 2>&1 & echo $!"],
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
        orphan = int(printed.stdout)
        wait_until(lambda: str(file) in Path(f"/proc/{orphan}/cmdline").read_text(), "the start of tail")
    assert not Path(f"/proc/{orphan}").exists()
