"""Nobody asks which device it is: everything that differs is a call on the seam, `headrace.gpu.backend.Backend`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import gpu
from headrace.gpu.backend import backend_of, find_backend, register_device
from tests.harness.sources import parse

PACKAGE = Path(gpu.__file__).parents[1]
BACKENDS = (PACKAGE / "gpu" / "cuda", PACKAGE / "gpu" / "sim")
# The seam itself finds its backends by name, and the command that explains the choice follows the same rule.
# The libraries of arrays have one file each; that of the simulated device names it as CuPy's names CuPy.
# The planner tries plans on the simulated device, in a process of its own, whatever the program's device is.
FINDS_BY_NAME = (
    PACKAGE / "gpu" / "backend.py",
    PACKAGE / "cli" / "info.py",
    PACKAGE / "tensor" / "libraries" / "simulated.py",
    PACKAGE / "cli" / "plan_simulation.py",
)
# A source without these has no such question: reading all of them as trees would take seconds.
MENTION = re.compile(r"is_simulated|backend|active\(\)|gpu(\.| import).*(sim|cuda)")


def questions(source: str) -> Iterator[int]:
    """Return the lines that ask which device it is, or that reach behind the seam."""
    tree = parse(source)
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            asks = any(map(is_name_of_backend, [node.left, *node.comparators]))
        elif isinstance(node, ast.Attribute):
            asks = node.attr == "is_simulated"
        elif isinstance(node, ast.Call):
            asks = isinstance(node.func, ast.Name) and node.func.id in ("is_simulated", "find_backend")
        elif isinstance(node, ast.Constant):
            asks = isinstance(node.value, str) and node.value.startswith(
                ("headrace.gpu.sim", "headrace.gpu.cuda")
            )
        elif isinstance(node, ast.ImportFrom) and node not in for_types:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            asks = any(name.startswith(("headrace.gpu.sim", "headrace.gpu.cuda")) for name in names)
        else:
            continue
        if asks:
            yield node.lineno


def is_name_of_backend(node: ast.AST) -> bool:
    """Return whether an expression is ``backend()``, ``gpu.backend()``, ``active().name`` or ``x.backend.name``."""
    if isinstance(node, ast.Attribute) and node.attr == "name":
        node = node.value
        return ast.unparse(node).endswith(("active()", "backend", "backend_of()"))
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("backend", "gpu.backend")


def test_nobody_outside_the_backends_asks_which_device_it_is() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{line}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if file not in FINDS_BY_NAME and not any(folder in file.parents for folder in BACKENDS)
        if "_bundled" not in file.parts  # the benchmarks of a wheel, which are programs
        if MENTION.search(text := file.read_text())
        for line in questions(text)
    ]
    assert not found, f"call a method of headrace.gpu.backend.Backend instead: {', '.join(found)}"


@pytest.mark.parametrize(
    "source",
    [
        'gpu.backend() == "sim"',
        '"none" != backend()',
        'gpu.backend() in ("cuda", "sim")',
        'active().name == "cuda"',
        'stream.backend.name == "cuda"',
        "stream.is_simulated",
        "is_simulated(device)",
        "from headrace.gpu import sim",
        "from headrace.gpu.sim import Machine",
        "def f():\n    from headrace.gpu.cuda import Device",
        'sys.modules.get("headrace.gpu.sim.machine")',
        'find_backend("sim")',
    ],
)
def test_every_form_of_the_question_is_seen(source: str) -> None:
    assert MENTION.search(source)
    assert list(questions(source))


def test_types_may_come_from_the_simulated_device() -> None:
    assert not list(questions("if TYPE_CHECKING:\n    from headrace.gpu import sim"))


def test_an_object_knows_its_backend_whatever_the_process_uses() -> None:
    from headrace.gpu import sim

    class OfAnotherLibrary:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 7)

    with sim.Machine():
        sim.Device(0).set_current()
        stream = sim.Device(0).create_stream()
        for thing in (sim.Device(0), stream, gpu.StreamHandle(stream), stream.create_graph_builder()):
            assert backend_of(thing).name == "sim"
    assert backend_of(OfAnotherLibrary()).name == "cuda"
    assert gpu.StreamHandle(OfAnotherLibrary()).backend is find_backend("cuda")


def test_a_name_is_registered_once() -> None:
    for name in ("auto", "sim"):
        with pytest.raises(
            ValueError, match=f"there is a device '{name}' already; the names are auto, cuda, sim"
        ):
            register_device(name, lambda: find_backend("none"))


def test_a_registered_device_is_made_when_it_is_used_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seam = sys.modules["headrace.gpu.backend"]
    monkeypatch.setattr(seam, "_factories", dict(seam._factories))
    made = []
    register_device("of mine", lambda: made.append(find_backend("none")) or made[-1])
    assert not made
    assert find_backend("of mine") is find_backend("of mine") is made[0]
    assert len(made) == 1
    monkeypatch.delitem(seam._backends, "of mine")
    with pytest.raises(ValueError, match="there is no device 'typo'; the names are cuda, sim, none, of mine"):
        find_backend("typo")


def test_what_a_device_lacks_is_said_by_name() -> None:
    class Bare(gpu.Backend):
        name = "bare"
        description = "a bare device"

    with pytest.raises(NotImplementedError, match="the device 'bare' has no graphs"):
        Bare().captured_nodes(None)
    assert not Bare().is_capturing(None)
    with pytest.raises(gpu.DeviceUnavailable, match="HEADRACE_DEVICE=none disables devices"):
        find_backend("none").copy(None, 0, 0, 1)
