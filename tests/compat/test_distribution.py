"""The small distribution `packages/holoscan`: ``import holoscan`` works where it is on the path."""

from __future__ import annotations

import tomllib

from tests.harness.processes import ROOT, environment_of_programs, output_of

FOLDER = ROOT / "packages" / "holoscan"

FORMS = {
    "import holoscan": "holoscan.core.Application",
    "import holoscan as hs": "hs.core.Application",
    "import holoscan.core": "holoscan.core.Application",
    "import holoscan.core as core": "core.Application",
    "from holoscan import core": "core.Application",
    "from holoscan.core import Application": "Application",
    "from holoscan.core import *": "Application",
}


def path() -> str:
    return f"{FOLDER}:{environment_of_programs()['PYTHONPATH']}"


def test_every_form_of_import_gives_the_layer() -> None:
    lines = [
        "import importlib, subprocess, sys",
        f"for form, name in {FORMS!r}.items():",
        "    names = {}",
        "    exec(form, names)",
        "    print(eval(name, names).__module__.startswith('headrace.'), names.get('holoscan', sys).__name__)",
        "    import headrace.compat.holoscan.core as ours",
        "    assert eval(name, names) is ours.Application, form",
        "assert importlib.import_module('holoscan.operators') is sys.modules['holoscan'].operators",
    ]
    printed = output_of("-c", "\n".join(lines), PYTHONPATH=path()).splitlines()
    assert {line.split()[0] for line in printed} == {"True"}
    assert len(printed) == len(FORMS)


def test_the_first_import_may_be_of_any_module() -> None:
    program = (
        "import holoscan.operators, sys; print(sys.modules['holoscan'].__name__, holoscan.operators.__name__)"
    )
    printed = output_of("-c", program, PYTHONPATH=path())
    assert printed.split() == ["headrace.compat.holoscan", "headrace.compat.holoscan.operators"]


def test_its_version_is_the_sdks_and_says_whose_it_is() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert project["version"] == "4.6.0+headrace"
    assert project["dependencies"] == ["headrace"]
    from headrace.compat.holoscan import __version__

    assert project["version"] == f"{__version__}+headrace"
