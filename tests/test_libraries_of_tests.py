"""`make test` installs the extra `dev` alone: a test of another library is skipped where that is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.processes import run_forked

TESTS = Path(__file__).parent
NAMES = (
    *("av", "cupy", "jax", "ml_dtypes", "nbclient", "numba", "onnx", "onnxruntime", "opentelemetry"),
    *("playwright", "pyarrow", "ray", "rerun", "scipy", "torch", "viztracer", "zenoh"),
)
OF_EXTRAS = ("aiohttp", "cv2", "mcap", "nvtx", "PIL", "prometheus_client", "rich", "shtab")
IMPORT = re.compile(rf"^(?:import|from) (?:{'|'.join(NAMES)})\b.*", re.MULTILINE)


def unguarded(source: str) -> list[str]:
    """Return the imports of a file, not of its functions, that fail without a library."""
    return [found[0] for found in IMPORT.finditer(source) if "importorskip(" not in source[: found.start()]]


def test_no_file_of_tests_imports_a_library_that_may_be_missing() -> None:
    files = [*TESTS.rglob("test_*.py"), *TESTS.rglob("conftest.py")]
    assert not {str(file): wrong for file in files if (wrong := unguarded(file.read_text()))}


@pytest.mark.parametrize("line", ["import torch", "import jax.numpy as jnp", "from onnx import helper"])
def test_such_an_import_is_seen_unless_a_skip_comes_before_it(line: str) -> None:
    assert unguarded(f"import numpy as np\n{line}\n") == [line]
    assert unguarded(f'pytest.importorskip("torch")\n{line}\n') == []
    assert unguarded(f"def test() -> None:\n    {line}\n") == []


# Tests have arrays of the simulated device, `gpu.arrays()`, but for what these have not. Here is what stands in
# for CuPy or PyTorch, and why.
STAND_INS = {
    "_runtime/streams/test_current_stream.py": "a library that is imported in the middle of a run",
    "_runtime/streams/test_default_stream.py": "a stream as the object of each library",
    "gpu/test_ambient.py": "current streams of their own, which headrace sets and puts back",
    "harness/libraries.py": "a library with a current stream of its own, for whole runs",
    "resources/test_memory_for_libraries.py": "their calls of an allocator of ours",
    "tensor/test_as_tensor.py": "what is asked for their current streams",
    "tensor/test_device_arrays.py": "pools of their own while a segment is recorded",
    "tensor/test_lent_arrays.py": "an array of three objects, of which each may be kept",
}
STAND_IN = re.compile(
    r"def stand_in\(|^ +stand_in\(|= stand_in\(|\"cupy\.py\"|like those of CuPy|as CuPy has it", re.MULTILINE
)


def test_stand_ins_for_libraries_are_listed_with_their_reasons() -> None:
    files = {str(file.relative_to(TESTS)): file.read_text() for file in TESTS.rglob("*.py")}
    assert {name for name, text in files.items() if STAND_IN.search(text)} - {Path(__file__).name} == set(
        STAND_INS
    )


IMPORT_ALL = """
import importlib, sys
from pathlib import Path

import pytest

for name in sys.argv[1:]:
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]
    sys.modules[name] = None  # as if it were not installed
for file in sorted([*Path("tests/gpu").rglob("test_*.py"), *Path("tests/gpu").rglob("conftest.py")]):
    try:
        importlib.import_module(".".join(file.with_suffix("").parts))
    except pytest.skip.Exception:
        pass
"""


def test_the_tests_of_a_gpu_can_be_imported_without_any_extra() -> None:
    """Those in `tests/gpu/real` too, and on a machine without a GPU."""
    done = run_forked("-c", IMPORT_ALL, *NAMES, *OF_EXTRAS, cwd=TESTS.parent, HEADRACE_DEVICE="cuda")
    assert done.returncode == 0, done.stderr[-3000:]
