"""The service: its unit file and its container file, run as far as a machine without systemd and containers can.

The unit is checked by ``systemd-analyze verify``, where there is one, with paths that exist here. Its start command
is run with its environment, its reload and stop commands are the signals that systemd would send. Of the container
file, the command is run in a folder with the copied files and with its environment; no image is built.
`test_supervised_service` has systemd and a container engine do all of this.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.harness import PATIENCE
from tests.harness.processes import EXAMPLES, forking

pytest.importorskip("prometheus_client")
SERVICE = EXAMPLES / "service"
HEADRACE = [sys.executable, "-m", "headrace"]


def unit() -> dict[str, list[str]]:
    """Return the settings of the unit file."""
    found: dict[str, list[str]] = {}
    for line in (SERVICE / "inspection.service").read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@contextmanager
def started(
    command: list[str], folder: Path, variables: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the service; give its process and the address that it serves."""
    assert Path(command[0]).name == "headrace"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HEADRACE_DEVICE": "none",
        **variables,
        "HEADRACE_METRICS": "127.0.0.1:0",  # any free port in place of the one that is named
    }
    process = forking()(
        [*HEADRACE, *command[1:]], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        address = process.stderr.readline().removeprefix("metrics: ").removesuffix("/metrics\n")
        yield process, address
    finally:
        process.kill()
        process.communicate()


def ready(address: str) -> dict[str, str]:
    """Ask until the service is ready; it may still be composing."""
    while True:
        try:
            with urlopen(f"{address}/ready", timeout=PATIENCE) as answer:
                found: dict[str, str] = json.load(answer)
                return found
        except HTTPError as error:
            error.close()


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    text = (SERVICE / "inspection.service").read_text()
    text = text.replace("/opt/inspection/venv/bin/headrace", sys.executable).replace(
        "User=inspection", "User=root"
    )
    file = tmp_path / "inspection.service"
    file.write_text(text.replace("=/opt/inspection\n", f"={tmp_path}\n"))
    done = subprocess.run([analyze, "verify", str(file)], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "inspection" in line]) == (0, [])


def test_the_unit_starts_reloads_and_stops_the_service(tmp_path: Path) -> None:
    settings = unit()
    config = tmp_path / "etc.yaml"
    shutil.copy(SERVICE / "inspection.yaml", config)
    variables = dict(each.split("=", 1) for each in settings["Environment"])
    assert variables["HEADRACE_CONFIG"] == "/etc/inspection.yaml"
    variables["HEADRACE_CONFIG"] = str(config)
    command = shlex.split(settings["ExecStart"][0])
    with started(command, SERVICE, variables) as (process, address):
        assert ready(address)["status"] == "ok"
        with urlopen(f"{address}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        for figure in (
            "headrace_computes_total",
            "headrace_skipped_errors_total",
            "headrace_goal_late_total",
        ):
            assert f"# TYPE {figure} counter" in text
        config.write_text(
            config.read_text().replace("threshold: 0.9", "threshold: 0.2").replace("100ms", "10ms")
        )
        assert settings["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        lines = [json.loads(process.stderr.readline()) for _ in range(2)]
        assert (
            lines[0]["message"] == "'Inspection' read its configuration again; set: inspect.threshold = 0.2"
        )
        assert lines[1]["message"] == "'Inspection' needs a restart for the new values of: belt.period"
        told = json.loads(process.stderr.readline())  # the new threshold has taken effect
        assert (told["logger"], told["operator"], told["fragment"]) == ("inspection", "report", "Inspection")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    assert settings["SuccessExitStatus"] == [str(process.returncode)]


def test_the_command_of_the_container_runs_on_the_copied_files(tmp_path: Path) -> None:
    steps: dict[str, str] = {}
    for line in (SERVICE / "Containerfile").read_text().splitlines():
        name, _, rest = line.partition(" ")
        steps[name] = rest
    *files, target = steps["COPY"].split()
    assert target.rstrip("/") == steps["WORKDIR"]
    for file in files:
        shutil.copy(SERVICE / file, tmp_path)
    variables = dict(each.split("=", 1) for each in steps["ENV"].split())
    assert variables["HEADRACE_METRICS"].endswith(f":{steps['EXPOSE']}")
    with started(json.loads(steps["CMD"]), tmp_path, variables) as (process, address):
        assert ready(address)["status"] == "ok"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
