"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "headrace"
PACKAGES = (
    "_runtime",
    "core",
    "gpu",
    "gpu.sim",
    "observe",
    "operators",
    "resources",
    "testing",
    "video",
    "viewer",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_its_public_names_before_they_are_imported(package: str) -> None:
    module = importlib.import_module(f"headrace.{package}")
    assert dir(module) == sorted(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_itself_when_it_has_no_such_name(package: str) -> None:
    module = importlib.import_module(f"headrace.{package}")
    with pytest.raises(AttributeError, match=f"module 'headrace.{package}' has no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.parametrize("stub", sorted(PACKAGE.rglob("__init__.pyi")), ids=lambda stub: stub.parent.name)
def test_a_stub_lists_names_that_exist_and_are_no_modules(stub: Path) -> None:
    name = ".".join(stub.parent.relative_to(PACKAGE.parent).parts)
    module = importlib.import_module(name)
    text = stub.read_text()
    if "headrace.gpu.sim.cuda_core import *" in text:
        text += (PACKAGE / "gpu" / "sim" / "cuda_core.pyi").read_text()
    assert len(module.__all__) == text.count(" as ")
    for public in module.__all__:
        if (stub.parent / f"{public}.py").exists():
            importlib.import_module(f"{name}.{public}")
        assert not isinstance(getattr(module, public), ModuleType)
