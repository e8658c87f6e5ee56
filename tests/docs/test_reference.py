"""The reference shows every public name, and no other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

API = Path(__file__).parents[2] / "docs" / "api"
MODULES = {
    "application": "headrace.application",
    "core": "headrace.core",
    "conditions": "headrace.conditions",
    "resources": "headrace.resources",
    "schedulers": "headrace.schedulers",
    "operators": "headrace.operators",
    "operators-bases": "headrace.operators.bases",
    "capture": "headrace.capture",
    "planner": "headrace.planner",
    "topics": "headrace.topics",
    "inference": "headrace.inference",
    "drawing": "headrace.drawing",
    "observe": "headrace.observe",
    "tensor": "headrace.tensor",
    "gpu": "headrace.gpu",
    "sim": "headrace.gpu.sim",
    "testing": "headrace.testing",
    "video": "headrace.video",
    "viewer": "headrace.viewer",
    "vocabulary": "headrace.vocabulary",
}
OF_HOLOSCAN = {
    "poses": "headrace_holoscan.poses",
    "ready": "headrace_holoscan.ready",
    "recordings": "headrace_holoscan.recordings",
}
# Shown on the page of another module, which the page says.
ELSEWHERE = {
    "headrace.core": {"Application", "Fragment"},
    "headrace.resources": {"Clock", "OrConditionCombiner"},
    "headrace.schedulers": {"Scheduler"},
}


def described(page: str) -> set[str]:
    """Return the names that a page describes."""
    text = (API / f"{page}.md").read_text()
    blocks = re.findall(r"^```\{names\} (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    listed = {f"{module}.{name}" for module, names in blocks for name in names.split()}
    return listed | set(re.findall(r"^\.\. (?:auto|py:)\w+:: ([\w.]+)", text, re.MULTILINE))


@pytest.mark.parametrize("page", [*MODULES, *OF_HOLOSCAN])
def test_a_page_of_the_reference_describes_what_its_module_exports(page: str) -> None:
    module = importlib.import_module((MODULES | OF_HOLOSCAN)[page])
    exported = set(module.__all__) - ELSEWHERE.get(module.__name__, set())
    if module.__name__ == "headrace.gpu.sim":
        exported -= set(
            importlib.import_module("headrace.gpu").__all__
        )  # the page says that it has those too
    assert described(page) == {f"{module.__name__}.{name}" for name in exported}


def test_the_first_page_of_the_reference_lists_what_the_package_exports() -> None:
    page = (API / "headrace.md").read_text()
    names = {
        name
        for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert names == set(importlib.import_module("headrace").__all__)


def test_every_module_that_exports_names_has_a_page() -> None:
    source = Path(importlib.import_module("headrace").__file__ or "").parent
    files = [file.parent for file in source.rglob("__init__.py") if "__all__" in file.read_text()]
    files += [file.with_suffix("") for file in source.glob("*.py") if "\n__all__ = [" in file.read_text()]
    modules = {
        "headrace." + ".".join(file.relative_to(source).parts)
        for file in files
        if file != source and not file.name.startswith("_")
    }
    assert modules == set(MODULES.values())
