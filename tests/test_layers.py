"""Imports point one way: core declares, runtime runs what core declares, the catalogues build on both."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "penstock"
MAY_IMPORT = {
    "gpu": {"gpu"},
    "tensor": {"tensor"},
    "core": {"core"},
    "_runtime": {"core", "_runtime", "tensor"},
    "conditions": {"core", "_runtime", "conditions"},
    "resources": {"core", "_runtime", "conditions", "resources"},
    "schedulers": {"core", "_runtime", "schedulers"},
    "testing": {"core", "_runtime", "conditions", "resources", "schedulers", "testing"},
}


def imported(file: Path) -> Iterator[str]:
    """Yield the subpackages of penstock that a module imports at run time, outside functions."""
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("penstock."):
            yield (statement.module or "").split(".")[1]
        elif isinstance(statement, ast.Import):
            yield from (
                name.name.split(".")[1] for name in statement.names if name.name.startswith("penstock.")
            )


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_only_what_it_stands_on(layer: str) -> None:
    for file in (PACKAGE / layer).rglob("*.py"):
        assert set(imported(file)) <= MAY_IMPORT[layer], file.name
