"""What users install: each wheel in an empty environment. `make wheels` builds; `make wheel-test` runs this."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.wheels import ROOT, copy_suite, is_public

DIST = Path(os.environ.get("HEADRACE_WHEELS", "/nowhere")).resolve()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OURS = f"cp{sys.version_info.major}{sys.version_info.minor}-"


def fits(wheel: Path) -> bool:
    return "none-any" in wheel.name or (OURS in wheel.name and platform.machine() in wheel.name)


WHEELS = [wheel for wheel in sorted(DIST.glob("headrace-*.whl")) if fits(wheel)]
of_wheels = pytest.mark.skipif(
    "HEADRACE_WHEELS" not in os.environ,
    reason="`make wheels` builds wheels, and `make wheel-test` tests them",
)
each_wheel = pytest.mark.parametrize(
    "wheel", WHEELS, ids=lambda wheel: "pure" if "none-any" in wheel.name else "compiled"
)
# What an extra is for, where that needs no GPU: tests that run with it by itself, and what these need besides.
TESTS_OF = {
    "torch": ["tests/tensor/test_as_tensor.py", "tests/inference/test_torch_model.py"],
    "video": ["tests/video", "tests/operators/test_video_files.py"],
    "inference": ["tests/inference", "tests/operators/test_inference_parameters.py"],
    "view": ["tests/viewer", "tests/observe/dashboard", "tests/observe/test_service.py"],
    "operators": ["tests/operators"],
    "rerun": ["tests/viewer/test_rerun_outlet.py"],
    "record": ["tests/observe/recordings", "tests/cli/test_record_and_replay.py"],
    "nvtx": ["tests/observe/traces/test_nvtx_ranges.py"],
    "otel": ["tests/observe/traces/test_otel_spans.py"],
    "completion": ["tests/cli/test_completion.py"],
    "zenoh": ["tests/topics/test_zenoh.py"],
    "tls": ["tests/link/test_between_hosts.py"],
    "cluster": ["tests/cluster"],
    "demo": ["tests/examples/test_endoscope.py"],
}
TOOLS = ["pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100"]
TOOLS_OF = {
    "inference": ["onnx>=1.16"],
    "otel": ["opentelemetry-sdk>=1.20"],
    "view": ["mcap>=1.2"],
    "cluster": ["cryptography>=42"],
}
USES = {"docs": "import sphinx, myst_parser, furo"}


def run(command: list[object], folder: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    # Nothing of the checkout or its settings, such as the variable that names the wheels.
    ours = ("PYTHONPATH", "HEADRACE_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    environment["HEADRACE_DEVICE"] = "sim"
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert not check or not done.returncode, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def install(folder: Path, *wanted: object) -> Path:
    """Return the binaries of a new environment with what is wanted; skip where an index has it not."""
    run([sys.executable, "-m", "venv", folder / "venv"], folder)
    binaries = folder / "venv" / "bin"
    done = run([binaries / "python", "-m", "pip", "install", "--quiet", *wanted], folder, check=False)
    missing = re.search(r"No matching distribution found for (\S+)", done.stderr)
    if missing:
        pytest.skip(f"the package index has no {missing[1]}")
    assert not done.returncode, done.stderr
    return binaries


def run_suite(binaries: Path, folder: Path, *words: str) -> int:
    """Run tests of the public interface against what is installed, and return how many passed."""
    copy_suite(folder / "suite")
    command = [binaries / "python", "-c", "import headrace; print(headrace.__file__)"]
    assert run(command, folder / "suite").stdout.startswith(str(binaries.parent))
    # The end of the report is shown: the tracebacks, and not what was skipped.
    asked = [binaries / "python", "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *words]
    done = run(asked, folder / "suite", check=False)
    assert not done.returncode, done.stdout[-8000:]
    return int(re.findall(r"(\d+) passed", done.stdout)[-1])


@of_wheels
@each_wheel
def test_a_wheel_runs_its_examples_and_tells_how_to_add_an_extra(wheel: Path, tmp_path: Path) -> None:
    binaries = install(tmp_path, wheel)
    assert run([binaries / "headrace", "demo", "first_pipeline"], tmp_path).stdout.count("\n") == 20
    build = "pure Python" if "none-any" in wheel.name else "compiled"
    assert f"Hot path   {build}" in run([binaries / "headrace", "info"], tmp_path).stdout
    lacking = run([binaries / "headrace", "completion", "bash"], tmp_path, check=False)
    advice = lacking.stderr.partition("needs shtab; ")[2].strip()
    assert advice == "pip install 'headrace[completion]'"
    run([binaries / "python", "-m", *advice.replace("'", "").split()], tmp_path)
    assert "headrace" in run([binaries / "headrace", "completion", "bash"], tmp_path).stdout


@of_wheels
@each_wheel
@pytest.mark.timeout(3600)
def test_the_suite_of_the_public_interface_passes_against_a_wheel(wheel: Path, tmp_path: Path) -> None:
    (layer,) = DIST.glob("headrace_holoscan-*.whl")
    binaries = install(tmp_path, f"{wheel}[dev]", layer)
    processes = os.environ.get("HEADRACE_WHEEL_PROCESSES", "auto")
    words = os.environ.get("TESTS", "").split()
    passed = run_suite(binaries, tmp_path, "-n", processes, "--dist", "loadfile", *words)
    assert passed > (0 if words else 5000)


@of_wheels
@each_wheel
def test_a_program_of_holoscan_runs_with_its_wheel(wheel: Path, tmp_path: Path) -> None:
    (layer,) = DIST.glob("headrace_holoscan-*.whl")
    binaries = install(tmp_path, wheel, layer)
    program = ROOT / "packages/holoscan/tests/applications/programs/ping_simple.py"
    assert "Rx message value: 10" in run([binaries / "python", program], tmp_path).stdout


@of_wheels
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_it_is_for(extra: str, tmp_path: Path) -> None:
    (layer,) = DIST.glob("headrace_holoscan-*.whl")
    # Tests of operators compare with those of the other distribution.
    tools = [layer, *TOOLS, *TOOLS_OF.get(extra, [])] if extra in TESTS_OF else []
    binaries = install(tmp_path, f"{WHEELS[0]}[{extra}]", *tools)  # the one that pip takes here
    told = run([binaries / "headrace", "info"], tmp_path).stdout
    assert f"(headrace[{extra}])" not in told
    run([binaries / "python", "-c", USES.get(extra, "import headrace")], tmp_path)
    if extra in TESTS_OF:
        assert run_suite(binaries, tmp_path, *TESTS_OF[extra]) > 0


@of_wheels
def test_a_pure_wheel_and_one_for_this_machine_are_there() -> None:
    assert sorted("none-any" in wheel.name for wheel in WHEELS) == [False, True]
    for wheel in WHEELS:
        files = zipfile.ZipFile(wheel).namelist()
        assert "headrace/_bundled/examples/endoscope.py" in files
        assert not [name for name in files if "__pycache__" in name]


def test_tests_of_the_inside_stay_behind(tmp_path: Path) -> None:
    behind = copy_suite(tmp_path)
    assert ROOT / "tests" / "test_layers.py" in behind
    assert not is_public(ROOT / "tests/_runtime/messages/test_queue.py")
    assert is_public(ROOT / "tests/conditions/test_count.py")
    assert (tmp_path / "tests/conditions/test_count.py").is_file()
    assert not (tmp_path / "src").exists()
    tests = list(tmp_path.rglob("test_*.py"))
    assert len(tests) > 5 * len(behind)
