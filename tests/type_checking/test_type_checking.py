"""A type checker takes the examples and the first programs of the documentation, and finds a user's mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import gpu
from headrace.gpu import sim
from tests.docs.snippets import blocks

pytest.importorskip("mypy")
pytestmark = pytest.mark.timeout(1800)  # mypy computes for half a minute, and for minutes on a busy machine

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = sorted(file for file in (ROOT / "examples").glob("*.py") if file.stem != "__init__")
# The pages whose first program a reader copies.
PAGES = ["README.md", "docs/first-pipeline.md"]


# headrace.gpu.

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

NAMES = {module.__name__.rpartition(".")[2]: module for module in (gpu, sim)}
PROGRAMS_OF_GPU = {
    "gpu_mistakes": BEGINNING + "\n".join(MISTAKES) + "\n",
    **{
        f"gpu_names_of_{name}": "".join(f"from {module.__name__} import {each}\n" for each in module.__all__)
        for name, module in NAMES.items()
    },
    **{
        f"gpu_star_of_{name}": f"from {module.__name__} import *\nprint({', '.join(module.__all__)})\n"
        for name, module in NAMES.items()
    },
}


@dataclass(frozen=True, order=True)
class Error:
    """What mypy reports of a line."""

    file: str
    line: int
    code: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text} [{self.code}]"


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[Error]:
    """Run mypy once on everything; that takes a few seconds, nearly all of them for what the files import."""
    folder = tmp_path_factory.mktemp("mypy")
    programs = []
    for page in PAGES:
        program = folder / f"{module_of(page)}.py"
        program.write_text(first_program((ROOT / page).read_text()))
        programs.append(program)
    for name, text in PROGRAMS_OF_GPU.items():
        program = folder / f"{name}.py"
        program.write_text(text)
        programs.append(program)
    files = [*EXAMPLES, *(HERE / f"{name}.py" for name in ("program", "mistakes", "gpu_program")), *programs]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            HERE / "mypy.ini",
            "--cache-dir",
            ROOT / "build" / "mypy" / "type_checking",  # which the next run finds again
            *files,
        ],
        env={
            **os.environ,
            "MYPYPATH": os.pathsep.join(map(str, [ROOT / "src", ROOT / "examples", HERE, folder])),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr
    found = re.findall(r"^(.+?):(\d+): error: (.*?)  \[([\w-]+)\]$", result.stdout, re.MULTILINE)
    return [Error(Path(file).name, int(line), code, text) for file, line, text, code in found]


def first_program(text: str) -> str:
    """Return the blocks of a page up to the first that runs an application."""
    code = ""
    for block in blocks(text):
        code += block.code
        if ".run()" in block.code:
            return code
    raise AssertionError("the page runs no application")


def module_of(page: str) -> str:
    """Return the name of the module with the first program of a page."""
    return "first_program_of_" + re.sub(r"\W", "_", page)


def of(errors: list[Error], name: str) -> list[Error]:
    return [error for error in errors if error.file == name]


@pytest.mark.parametrize("example", [file.name for file in EXAMPLES])
def test_an_example_has_no_type_errors(example: str, errors: list[Error]) -> None:
    assert not of(errors, example), "\n".join(map(str, of(errors, example)))


@pytest.mark.parametrize("page", PAGES)
def test_the_first_program_of_a_page_has_no_type_errors(page: str, errors: list[Error]) -> None:
    found = of(errors, f"{module_of(page)}.py")
    assert not found, "\n".join(map(str, found))


def test_what_users_annotate_and_call_has_the_types_it_should_have(errors: list[Error]) -> None:
    assert not of(errors, "program.py"), "\n".join(map(str, of(errors, "program.py")))


def test_a_type_checker_finds_each_mistake_on_its_line(errors: list[Error]) -> None:
    text = (HERE / "mistakes.py").read_text()
    expected = {
        (number, code)
        for number, line in enumerate(text.splitlines(), 1)
        for code in re.findall(r"# expect: ([\w-]+)", line)
    }
    found = {(error.line, error.code) for error in of(errors, "mistakes.py")}
    assert found == expected
    assert len(expected) > 15


# headrace.gpu.


def test_a_program_of_the_device_has_no_type_errors(errors: list[Error]) -> None:
    assert of(errors, "gpu_program.py") == []


def test_each_mistake_with_the_device_is_reported_where_it_is(errors: list[Error]) -> None:
    first = BEGINNING.count("\n") + 1
    reported: dict[int, str] = {}
    for error in of(errors, "gpu_mistakes.py"):
        reported.setdefault(error.line, error.text)
    assert reported.keys() == {first + index for index in range(len(MISTAKES))}
    for index, message in enumerate(MISTAKES.values()):
        assert message in reported[first + index]


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_of_the_device_is_visible(module: str, errors: list[Error]) -> None:
    assert of(errors, f"gpu_names_of_{module}.py") == []
    assert of(errors, f"gpu_star_of_{module}.py") == []
