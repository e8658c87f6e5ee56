"""What users install: each wheel in an empty environment. `make wheels` builds the wheels and runs this."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WHEELS = sorted(Path(os.environ.get("HEADRACE_WHEELS", "/nowhere")).glob("headrace-*.whl"))

pytestmark = pytest.mark.skipif(
    "HEADRACE_WHEELS" not in os.environ, reason="`make wheels` builds and tests wheels"
)


@pytest.fixture(params=WHEELS, ids=lambda wheel: "pure" if "none-any" in wheel.name else "compiled")
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bool]:
    """Return the folder of an environment that has one wheel and what it needs, and whether it is compiled."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    binaries = tmp_path / "venv" / "bin"
    subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", request.param], check=True)
    return binaries, "none-any" not in request.param.name


def run(command: list[object], folder: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_first_example_runs_from_a_wheel(installed: tuple[Path, bool], tmp_path: Path) -> None:
    binaries, is_compiled = installed
    example = tmp_path / "first_pipeline.py"
    example.write_bytes((ROOT / "examples" / "first_pipeline.py").read_bytes())
    assert run([binaries / "python", example], tmp_path).count("\n") == 20
    assert f"Hot path   {'compiled' if is_compiled else 'pure Python'}" in run(
        [binaries / "headrace", "info"], tmp_path
    )


def test_a_program_of_holoscan_runs_with_its_wheel(installed: tuple[Path, bool], tmp_path: Path) -> None:
    binaries, _ = installed
    (layer,) = WHEELS[0].parent.glob("headrace_holoscan-*.whl")
    subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", layer], check=True)
    program = tmp_path / "app.py"
    program.write_bytes((ROOT / "packages/holoscan/tests/applications/programs/ping_simple.py").read_bytes())
    assert "Rx message value: 10" in run([binaries / "python", program], tmp_path)


def test_both_kinds_of_wheel_are_there() -> None:
    assert len([wheel for wheel in WHEELS if "none-any" in wheel.name]) == 1
    assert len([wheel for wheel in WHEELS if "none-any" not in wheel.name]) == 1
