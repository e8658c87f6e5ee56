"""`make test` installs the extra `dev` alone: a test of another library is skipped where that is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NAMES = (
    *("av", "cupy", "jax", "ml_dtypes", "nbclient", "numba", "onnx", "onnxruntime", "opentelemetry"),
    *("playwright", "pyarrow", "ray", "rerun", "scipy", "torch", "viztracer", "zenoh"),
)
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
