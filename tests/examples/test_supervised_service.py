"""The service under a real systemd, and in a real container. Both need root, and are skipped unless asked for.

``HEADRACE_SERVICE_ROOT`` names a folder with Debian. ``systemd-nspawn`` boots it, and changes nothing there::

    debootstrap --variant=minbase --include=python3-venv,systemd-sysv,dbus,curl bookworm ROOT
    chroot ROOT useradd --system inspection
    chroot ROOT python3 -m venv /opt/inspection/venv
    chroot ROOT /opt/inspection/venv/bin/pip install 'headrace[view]'

``HEADRACE_CONTAINERS`` is the command of a container engine, as ``podman`` or ``docker``. ``HEADRACE_WHEELS`` is
the folder with the wheel (`make wheel`) that the container file copies.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import PATIENCE
from tests.harness.processes import EXAMPLES
from tests.harness.threads import wait_until

SERVICE = EXAMPLES / "service"
SYSTEM = os.environ.get("HEADRACE_SERVICE_ROOT")
CONTAINERS = os.environ.get("HEADRACE_CONTAINERS")
WHEELS = os.environ.get("HEADRACE_WHEELS")
Command = Callable[..., str]


def said(*command: object, check: bool = True) -> str:
    """Run a command and return what it wrote."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def records(log: str) -> list[dict[str, Any]]:
    """Return the records of a log in JSON; engines and systemd have lines of their own."""
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def lower_the_threshold(config: Path) -> None:
    config.write_text(config.read_text().replace("threshold: 0.9", "threshold: 0.2"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the file with the settings."""
    return Path(shutil.copy(SERVICE / "inspection.yaml", tmp_path))


@pytest.fixture
def machine(tmp_path: Path, config: Path) -> Iterator[Command]:
    """Boot a machine that has the service; give what runs a command in it."""
    files = {
        SERVICE / "inspection.service": "/etc/systemd/system/inspection.service",
        SERVICE / "inspection.py": "/opt/inspection/inspection.py",
        config: "/etc/inspection.yaml",
    }
    binds = [f"--bind-ro={source}:{target}" for source, target in files.items()]
    arguments = ["--boot", "--volatile=overlay", "--register=no", "--keep-unit", "--private-network"]
    name = f"--machine=inspection-{os.getpid()}"
    with (tmp_path / "console").open("w") as console:
        process = subprocess.Popen(
            ["systemd-nspawn", "--quiet", f"--directory={SYSTEM}", *arguments, name, *binds],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
        )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def names() -> dict[str, str]:  # before the machine's own, there is a process that prepares it
        return {Path(f"/proc/{each}/comm").read_text(): each for each in children.read_text().split()}

    wait_until(lambda: process.poll() is not None or "systemd\n" in names(), "the start of the machine")
    init = names()["systemd\n"]

    def inside(*command: object, check: bool = True) -> str:
        return said("nsenter", f"--target={init}", "--all", "--wdns=/", "--", *command, check=check)

    try:
        wait_until(
            lambda: "running" in inside("systemctl", "is-system-running", check=False),
            "the boot of the machine",
        )
        yield inside
    finally:
        process.terminate()  # an orderly shutdown
        process.wait(PATIENCE)


@pytest.mark.skipif(not SYSTEM, reason="HEADRACE_SERVICE_ROOT names no Debian system to boot")
def test_systemd_starts_reloads_restarts_and_stops_the_service(machine: Command, config: Path) -> None:
    def state(*names: str) -> dict[str, str]:
        told = machine("systemctl", "show", "inspection", f"--property={','.join(names)}")
        return dict(line.split("=", 1) for line in told.splitlines())

    def answers(path: str) -> bool:
        return '"status": "ok"' in machine("curl", "-sf", f"http://127.0.0.1:9100/{path}", check=False)

    def log() -> list[dict[str, Any]]:
        return records(machine("journalctl", "--unit=inspection", "--output=cat"))

    machine("systemctl", "enable", "--now", "inspection")
    wait_until(lambda: answers("ready"), "readiness")
    assert answers("health")
    first = state("MainPID")["MainPID"]
    assert machine("ps", "-o", "user=", "-p", first).startswith("inspect")

    lower_the_threshold(config)
    machine("systemctl", "reload", "inspection")
    wait_until(
        lambda: [each for each in log() if "threshold = 0.2" in each["message"]], "a reload in the journal"
    )
    wait_until(lambda: [each for each in log() if each.get("operator") == "report"], "the new threshold")

    machine("systemctl", "kill", "--signal=KILL", "--kill-who=main", "inspection")  # a crash
    wait_until(lambda: state("NRestarts")["NRestarts"] == "1" and answers("ready"), "a restart")
    assert state("MainPID")["MainPID"] not in (first, "0")

    machine("systemctl", "stop", "inspection")
    assert state("Result", "ActiveState", "ExecMainStatus") == {
        "Result": "success",
        "ActiveState": "inactive",
        "ExecMainStatus": "143",
    }
    assert "interrupted" in log()[-2]["message"]


@pytest.mark.skipif(
    not (CONTAINERS and WHEELS), reason="HEADRACE_CONTAINERS and HEADRACE_WHEELS name no engine and no wheel"
)
def test_a_container_runs_the_service_without_rights_on_a_read_only_root(tmp_path: Path) -> None:
    assert CONTAINERS is not None
    assert WHEELS is not None
    engine = CONTAINERS.split()
    for file in (*SERVICE.iterdir(), *Path(WHEELS).glob("headrace-*none-any.whl")):
        shutil.copy(file, tmp_path)
    tmp_path.chmod(0o755)  # the user of the container reads its settings there
    image = container = f"headrace-inspection-{os.getpid()}"
    said(*engine, "build", "--tag", image, "--file", tmp_path / "Containerfile", tmp_path)
    rights = ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"]
    settings = ["--volume", f"{tmp_path}:/settings:ro", "--env", "HEADRACE_CONFIG=/settings/inspection.yaml"]

    def log() -> list[dict[str, Any]]:
        return records(said(*engine, "logs", container))

    def answers(path: str) -> bool:
        code = f"from urllib.request import urlopen; print(urlopen('http://127.0.0.1:9100/{path}').status)"
        return said(*engine, "exec", container, "python", "-c", code, check=False).strip() == "200"

    try:
        said(*engine, "run", "--detach", "--name", container, "--network=none", *rights, *settings, image)
        wait_until(lambda: answers("ready"), "readiness")
        assert answers("health")
        assert said(*engine, "exec", container, "id", "-u").strip() == "65534"
        lower_the_threshold(tmp_path / "inspection.yaml")
        said(*engine, "kill", "--signal=HUP", container)
        wait_until(
            lambda: [each for each in log() if "threshold = 0.2" in each["message"]], "a reload in the log"
        )
        said(*engine, "stop", "--time=30", container)
        assert said(*engine, "inspect", "--format={{.State.ExitCode}}", container).strip() == "143"
        assert "interrupted" in log()[-2]["message"]
    finally:
        said(*engine, "rm", "--force", container, check=False)
        said(*engine, "rmi", "--force", image, check=False)
