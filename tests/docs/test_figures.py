"""The figures of the README and of the page of the benchmark are those that were measured and kept."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from headrace.installation import bundled
from tests.docs.snippets import DOCS, ROOT

sys.path.append(str(bundled("benchmarks").parent))

from benchmarks.sides import report

RESULTS = json.loads((ROOT / "benchmarks" / "results" / "bench.json").read_text())
SCENARIOS: dict[str, Any] = {each["name"]: each for each in RESULTS["scenarios"]}


def test_each_figure_of_the_readme_was_measured_by_the_command_beside_it() -> None:
    table = (ROOT / "README.md").read_text().partition("| measured | headrace |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\|.*?\| (.*) \| `headrace bench ([\w-]+)` \|$", table, re.MULTILINE)
    assert len(rows) >= 4
    for told, name in rows:
        ways = [way for way in SCENARIOS[name]["ways"] if not way["skipped"]]
        named = {number for way in ways for number in re.findall(r"\d+", way["name"])}
        for number in re.findall(r"\d+(?:\.\d+)?", told):
            digits = len(number.partition(".")[2])
            measured = {f"{way['figure']:.{digits}f}" for way in ways}
            assert number in measured | named, f"{number} of {name} is none of {sorted(measured)}"


def test_the_page_of_the_benchmark_is_made_of_the_results() -> None:
    pictures = [path.name for path in (DOCS / "bench").glob("*.svg")]
    assert (DOCS / "bench.md").read_text() == report.page(RESULTS, pictures)
