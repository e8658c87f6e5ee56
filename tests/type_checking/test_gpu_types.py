"""Type checkers see every name of headrace.gpu and check the programs that use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import gpu
from headrace.gpu import sim

pytest.importorskip("mypy")

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"

BEGINNING = """
from headrace import gpu
def scale_seconds(data: gpu.Buffer, count: int) -> float: return count * 1e-9
spin = gpu.kernel("spin", source="...", seconds=lambda ns: ns * 1e-9)
scale = gpu.kernel("scale", source="...", seconds=scale_seconds)
device = gpu.Device(0)
stream = device.create_stream()
buffer = device.allocate(8, stream=stream)
config = gpu.LaunchConfig(grid=1, block=32)
"""

MISTAKES = {
    "gpu.launch(stream, config, spin.on(device))": 'Missing positional argument "ns" in call to "launch"',
    "gpu.launch(stream, config, spin.on(device), 1, 2)": 'Too many arguments for "launch"',
    "gpu.launch(stream, config, scale.on(device), buffer)": (
        'Missing positional argument "count" in call to "launch"'
    ),
    "gpu.launch(stream, config, scale.on(device), 3, 256)": (
        'Argument 4 to "launch" has incompatible type "int"; expected "Buffer"'
    ),
    "gpu.launch(stream, config, scale, buffer, 256)": (
        'Argument 3 to "launch" has incompatible type "kernel[[Buffer, int]]"'
    ),
    "gpu.launch(7, config, spin.on(device), 1)": 'Argument 1 to "launch" has incompatible type "int"',
    "spin.on(stream)": 'Argument 1 to "on" of "kernel" has incompatible type "Stream"; expected "Device"',
    "device.create_straem()": '"Device" has no attribute "create_straem"; maybe "create_stream"?',
    "gpu.Devcie(0)": 'Module has no attribute "Devcie"; maybe "Device"?',
    "gpu.Machine()": 'Module has no attribute "Machine"',
    "device.create_stream(options=gpu.EventOptions())": 'has incompatible type "EventOptions"',
    "stream.wait(3)": 'Argument 1 to "wait" of "Stream" has incompatible type "int"',
    "gpu.partition(device, 16)": 'No overload variant of "partition" matches argument types "Device", "int"',
}


def check(path: Path, cache: Path) -> list[str]:
    """Return the errors that mypy reports in a program, as a user of the package would see them."""
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "--no-error-summary"]
    # Array libraries count as untyped, as in mypy.ini: reading all of PyTorch takes a minute.
    settings = (HERE / "mypy.ini").read_text()
    config = cache / "mypy.ini"
    config.write_text("[mypy]\n" + settings[settings.index("[mypy-") :])
    command += ["--config-file", str(config), "--no-pretty", "--hide-error-codes", "--cache-dir", str(cache)]
    environment = os.environ | {"MYPYPATH": str(SOURCE), "NO_COLOR": "1"}
    result = subprocess.run(
        [*command, str(path)], env=environment, cwd=path.parent, capture_output=True, text=True
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr
    return [line for line in result.stdout.splitlines() if line.startswith(path.name) and " error: " in line]


@pytest.fixture(scope="module")
def cache() -> Path:
    """A folder that the next run of the tests finds again."""
    folder = HERE.parents[1] / "build" / "mypy" / "gpu_types"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_program_without_mistakes_has_no_errors(cache: Path) -> None:
    assert check(HERE / "gpu_program.py", cache) == []


def test_each_mistake_is_reported_where_it_is(cache: Path, tmp_path: Path) -> None:
    program = tmp_path / "mistakes.py"
    program.write_text(BEGINNING + "\n".join(MISTAKES) + "\n")
    first = BEGINNING.count("\n") + 1
    reported: dict[int, str] = {}
    for line in check(program, cache):
        _, number, text = line.split(":", 2)
        reported.setdefault(int(number), text)
    assert reported.keys() == {first + index for index in range(len(MISTAKES))}
    for index, message in enumerate(MISTAKES.values()):
        assert message in reported[first + index]


@pytest.mark.parametrize("module", [gpu, sim], ids=["gpu", "sim"])
def test_every_public_name_is_visible(module: object, cache: Path, tmp_path: Path) -> None:
    name = module.__name__  # type: ignore[attr-defined]
    names = module.__all__  # type: ignore[attr-defined]
    program = tmp_path / "names.py"
    lines = [f"from {name} import {public}" for public in names]
    starred = tmp_path / "star.py"
    starred.write_text(f"from {name} import *\nprint({', '.join(names)})\n")
    program.write_text("\n".join(lines) + "\n")
    assert check(program, cache) == []
    assert check(starred, cache) == []
