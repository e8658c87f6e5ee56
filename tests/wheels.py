"""The suite of the public interface, apart from the checkout: what runs against an installed wheel."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What tests of the public interface read besides themselves. The package itself stays behind.
READ = (
    *("conftest.py", "pyproject.toml", "README.md", "examples", "docs", "benchmarks"),
    *("packages/__init__.py", "packages/holoscan/__init__.py", "packages/holoscan/pyproject.toml"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md"),
)
SUITES = ("tests", "packages/holoscan/tests")
MAY_BE_PRIVATE = re.compile(r"headrace[\w.]*\._|from headrace[\w.]* import (\([^)]*|.*)\b_")


def copy_suite(folder: Path) -> list[Path]:
    """Copy the suite into a folder, and return the files that stayed behind: tests of what is inside."""
    for name in (*READ, *SUITES):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, folder / name)
    behind = [path for suite in SUITES for path in (ROOT / suite).rglob("test_*.py") if not is_public(path)]
    for path in behind:
        (folder / path.relative_to(ROOT)).unlink()
    return behind


def is_public(path: Path) -> bool:
    """Return whether a file of tests uses public modules alone, and nothing of the checkout."""
    if path.parent == ROOT / "tests":  # these are about the repository
        return False
    text = path.read_text()
    if "mypyc" in text or '"src"' in text or '"Makefile"' in text or '"CONTRIBUTING.md"' in text:
        return False
    if not MAY_BE_PRIVATE.search(text):  # to parse the others takes most of the time
        return True
    return not any(_is_private(module) for module in _modules(ast.parse(text)))


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def _is_private(module: str) -> bool:
    package, *rest = module.split(".")
    return package.startswith("headrace") and any(
        part.startswith("_") and part != "__version__" for part in rest
    )
