"""Every claim of docs/holoscan-differences.md holds: on the SDK, as recorded, through the layer, on headrace."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any

import pytest

from headrace_holoscan.core import operator
from packages.holoscan.tests.claims import CLAIMS, RECORDED, outcome
from tests.harness.processes import ROOT

PAGE = (ROOT / "docs" / "holoscan-differences.md").read_text()
OUTCOMES: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())


def section(title: str) -> list[str]:
    """Return the names of the programs in the tables of a section."""
    text = PAGE.partition(f"## {title}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\|.*\| ([^|]+) \|$", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


SECTIONS = {
    title: section(title)
    for title in ("The same everywhere", "Better", "Stricter", "Different", "Here and there")
}


def test_every_program_is_in_the_page_and_every_row_has_one() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(CLAIMS)
    assert list(OUTCOMES) == list(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("package", ["layer", "headrace"])
def test_a_program_does_what_was_recorded(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_numbers", count(1))
    assert outcome(name, package) == OUTCOMES[name][package]


@pytest.mark.parametrize(
    ("title", "name"), [(title, name) for title, names in SECTIONS.items() for name in names]
)
def test_a_row_is_in_the_right_table(title: str, name: str) -> None:
    sdk, layer, ours = (OUTCOMES[name][package] for package in ("holoscan", "layer", "headrace"))
    is_same = title in ("The same everywhere", "Here and there")
    assert (ours == sdk) == is_same
    assert layer == (ours if title == "Better" else sdk)


def test_the_page_shows_what_the_command_prints() -> None:
    found = OUTCOMES["unconnected_input"]
    for words, package in (("the SDK", "holoscan"), ("through the layer", "layer"), ("headrace", "headrace")):
        assert f"{words + ':':20}{found[package]}\n" in PAGE
