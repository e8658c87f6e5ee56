"""What a release is made of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import headrace

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_was_looked_at(workflow: Path) -> None:
    """A tag can be moved to other code; a hash cannot."""
    used = re.findall(r"uses: *(\S+)(.*)", workflow.read_text())
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v[\d.]+", comment), f"{action} does not say which version it is"


def test_only_tested_wheels_are_published_and_only_for_machines_with_tests() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == "test"
    assert jobs["test"]["needs"] == ["compiled", "pure"]
    assert jobs["test"]["steps"][-1]["run"].startswith("make wheel-test ")
    assert set(jobs["compiled"]["strategy"]["matrix"]["machine"]) == set(
        jobs["test"]["strategy"]["matrix"]["machine"]
    )
    pythons = {f"cp{version.replace('.', '')}-*" for version in jobs["test"]["strategy"]["matrix"]["python"]}
    assert set(PROJECT["tool"]["cibuildwheel"]["build"]) == pythons


def test_the_changelog_begins_with_this_version_and_its_date() -> None:
    newest = re.search(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert re.fullmatch(rf"{re.escape(headrace.__version__)} \(\d{{4}}-\d\d-\d\d\)", newest[1])


def test_both_distributions_name_the_same_places_and_the_index_page_leads_there() -> None:
    urls = PROJECT["project"]["urls"]
    layer = tomllib.loads((ROOT / "packages/holoscan/pyproject.toml").read_text())["project"]["urls"]
    assert layer["Repository"] == urls["Repository"]
    substitutions = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]
    text = (ROOT / "README.md").read_text()
    for substitution in substitutions:
        replacement = substitution["replacement"].replace("$HFPR_VERSION", headrace.__version__)
        text = re.sub(substitution["pattern"], replacement, text)
    assert "pip install headrace" in text
    assert "not on a package index" not in text
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 20
    assert all(target.startswith(("https://", "#")) for target in targets)
    place = urls["Repository"].removeprefix("https://github.com/")
    for target in targets:
        if place in target and "/issues" not in target:
            path = target.partition(f"/v{headrace.__version__}/")[2].partition("#")[0]
            assert (ROOT / path).exists(), target


def test_every_module_of_the_compiled_build_is_there() -> None:
    hook = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
    assert [name for name in hook["include"] if not (ROOT / name).is_file()] == []
