"""The distribution: ``import holoscan`` works where it is installed, and it stands on public names alone."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib import import_module

import headrace
from tests.docs.test_reference import MODULES
from tests.harness.processes import ROOT, output_of

FOLDER = ROOT / "packages" / "holoscan"
PUBLIC = set(MODULES.values()) | {"headrace"}
# What `headrace` in a shell calls.
THE_COMMAND = ("headrace.cli", "main")

FORMS = {
    "import holoscan": "holoscan.core.Application",
    "import holoscan as hs": "hs.core.Application",
    "import holoscan.core": "holoscan.core.Application",
    "import holoscan.core as core": "core.Application",
    "from holoscan import core": "core.Application",
    "from holoscan.core import Application": "Application",
    "from holoscan.core import *": "Application",
}


def test_every_form_of_import_gives_the_layer() -> None:
    lines = [
        "import importlib, sys",
        f"for form, name in {FORMS!r}.items():",
        "    names = {}",
        "    exec(form, names)",
        "    print(eval(name, names).__module__.startswith('headrace_holoscan.'))",
        "    import headrace_holoscan.core as ours",
        "    assert eval(name, names) is ours.Application, form",
        "assert importlib.import_module('holoscan.operators') is sys.modules['holoscan'].operators",
    ]
    printed = output_of("-c", "\n".join(lines)).splitlines()
    assert printed == ["True"] * len(FORMS)


def test_the_first_import_may_be_of_any_module() -> None:
    program = (
        "import holoscan.operators, sys; print(sys.modules['holoscan'].__name__, holoscan.operators.__name__)"
    )
    printed = output_of("-c", program)
    assert printed.split() == ["headrace_holoscan", "headrace_holoscan.operators"]


def test_it_is_released_with_headrace() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert project["version"] == headrace.__version__
    assert f"headrace=={headrace.__version__}" in project["dependencies"]


def test_it_depends_on_public_names_of_headrace_alone() -> None:
    wrong = [
        f"{file.relative_to(FOLDER)}:{line} imports {name}"
        for file in sorted((FOLDER / "src").rglob("*.py"))
        for line, name in private_imports(file.read_text())
    ]
    assert wrong == []


def private_imports(source: str) -> Iterator[tuple[int, str]]:
    """Yield what a source imports of headrace that no page of the reference describes, with the line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            is_known = is_public(module, name) or (module, name) == THE_COMMAND
            if module.partition(".")[0] == "headrace" and not is_known:
                yield node.lineno, f"{module}.{name}"


def is_public(module: str, name: str) -> bool:
    if f"{module}.{name}".rstrip(".") in PUBLIC:
        return True
    return module in PUBLIC and name in import_module(module).__all__
