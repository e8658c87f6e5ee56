"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib

import pytest

PACKAGES = ("_runtime", "core", "observe", "operators", "resources", "testing", "video", "viewer")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_its_public_names_before_they_are_imported(package: str) -> None:
    module = importlib.import_module(f"headrace.{package}")
    assert dir(module) == sorted(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_itself_when_it_has_no_such_name(package: str) -> None:
    module = importlib.import_module(f"headrace.{package}")
    with pytest.raises(AttributeError, match=f"module 'headrace.{package}' has no attribute 'Nothing'"):
        _ = module.Nothing
