"""Outside of `headrace.tensor.libraries`, nothing names CuPy or PyTorch in code: it asks the registry."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.sources import parse

PACKAGE = Path(__file__).parents[1] / "src" / "headrace"
LIBRARIES = "headrace.tensor.libraries"
NAMES = ("cupy", "cupyx", "torch")
# A source without one of these words names no library: reading all of them as trees would take seconds.
MENTION = re.compile(rf"\b({'|'.join(NAMES)})\b")

# Files and folders that may, and why.
ALLOWED = {
    "tensor/libraries": "the registry itself",
    "capture/refusal.py": "modules whose lines are not the program's own",
    "gpu/cuda/backend.py": "the module of arrays on a GPU",
    "gpu/stream_handle.py": "the documented methods of a handle, which ask the registry",
    "inference/model.py": "the name of that runtime, and of its files",
    "inference/running_model.py": "the name of the extra to install",
    "inference/torch_model.py": "the runtime that runs models of PyTorch",
    "operators/inference.py": "the name of that runtime",
    "cli/info.py": "it prints which packages are installed",
}


def named(source: str) -> Iterator[tuple[int, str]]:
    """Return the places in code, not in prose, at which a library is named, with their lines."""
    if not MENTION.search(source):
        return
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [] if (node.module or "").startswith(LIBRARIES) else [node.module or ""]
        elif isinstance(node, ast.Name):
            found = [node.id]
        elif isinstance(node, ast.Attribute):
            found = [node.attr]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            found = [node.value]
        else:
            continue
        yield from ((node.lineno, name) for name in found if set(name.split(".")) & set(NAMES))


def test_the_libraries_are_named_in_one_place() -> None:
    wrong, unused = [], set(ALLOWED)
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        if not any(path == allowed or path.startswith(f"{allowed}/") for allowed in ALLOWED):
            wrong += [f"{path}:{line} names {name}" for line, name in named(file.read_text())]
        else:
            unused -= {
                allowed for allowed in ALLOWED if path.startswith(allowed) and list(named(file.read_text()))
            }
    assert not unused
    assert not wrong, f"ask {LIBRARIES} instead:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "statement",
    [
        "import cupy",
        "import torch.cuda as cuda",
        "from torch import cuda",
        "import cupyx.scipy",
        "sys.modules['torch']",
        "import_module('cupy.cuda')",
        "def f():\n    return torch.cuda",
        "stream.cupy()",
    ],
)
def test_no_form_of_naming_goes_unseen(statement: str) -> None:
    assert list(named(statement))


def test_prose_and_the_registry_may_be_used() -> None:
    assert not list(
        named('"""As in torch, or in CuPy."""\nraise ValueError("send it with torch.from_dlpack")')
    )
    assert not list(named(f"from {LIBRARIES}.cupy import contiguous_copy"))
