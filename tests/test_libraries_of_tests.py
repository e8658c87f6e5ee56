"""`make test` installs the extra `dev` alone: a test of another library is skipped where that is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import PATIENCE

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


COLLECT = """
import sys

import pytest

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
sys.exit(pytest.main(["tests/gpu", "--collect-only", "-qq", "-p", "no:cacheprovider", "-p", "no:xdist"]))
"""


@pytest.mark.parametrize("device", ["sim", "cuda"])
def test_the_tests_of_a_gpu_are_collected_without_any_extra(device: str) -> None:
    """Those in `tests/gpu/real` too, and on a machine without a GPU."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *NAMES, *OF_EXTRAS],
        cwd=TESTS.parent,
        env={**os.environ, "HEADRACE_DEVICE": device},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-3000:]
