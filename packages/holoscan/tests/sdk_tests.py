"""Write docs/holoscan-tests.md: how many of the Holoscan SDK's own tests pass on it and through the layer.

    python -m packages.holoscan.tests.sdk_tests REPORTS REASONS...

The tests are the SDK's and not in this repository. REPORTS is a folder of JUnit reports, two for each file of
tests: ``PART-FILE.sdk.xml`` of a run on the SDK and ``PART-FILE.layer.xml`` of a run with `alias.install()`.
REASONS are files of lines ``FILE::TEST<TAB>REASON``, with wildcards, for tests that pass on the SDK alone.
"""

from __future__ import annotations

import fnmatch
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).parents[2] / "docs" / "holoscan-tests.md"
_HEAD = """# Tests of the Holoscan SDK

The Holoscan SDK 4.6.0 has tests of its own. Here they run on the SDK and through `headrace_holoscan`, on a
machine without a GPU. A test that does not pass on the SDK there, or is skipped, says nothing about the layer. The
table counts the others.

The tests are not a part of this project. `python -m packages.holoscan.tests.sdk_tests` makes the table from the reports of
the two runs.
"""


def passed(report: Path) -> dict[tuple[str, int], tuple[str, bool]]:
    """Return the name of each test of a report and whether it passed; a skipped test did not.

    The keys are the test without its parameters, which are written differently on the two systems, and a number.
    """
    found: dict[tuple[str, int], tuple[str, bool]] = {}
    count: Counter[str] = Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase") if report.exists() else ():
        name = f"{case.get('classname', '').rpartition('test_')[2]}.{case.get('name')}"
        test = name.partition("[")[0]
        is_good = not any(child.tag in ("failure", "error", "skipped") for child in case)
        found[test, count[test]] = name, is_good
        count[test] += 1
    return found


def reasons_of(files: list[Path]) -> list[tuple[str, str]]:
    """Return the patterns of tests with their reasons."""
    lines = [line for file in files for line in file.read_text().splitlines() if "\t" in line]
    return [
        (line.split("\t")[0].replace("::", ".").removeprefix("test_"), line.split("\t")[1]) for line in lines
    ]


def page(reports: Path, reasons: list[tuple[str, str]]) -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_tables(reports, reasons), ""])


def _tables(reports: Path, reasons: list[tuple[str, str]]) -> Iterator[str]:
    yield "| file | tests | pass on the SDK | of these, pass through the layer |\n| --- | ---: | ---: | ---: |"
    sums: Counter[str] = Counter()
    why: Counter[str] = Counter()
    for report in sorted(reports.glob("*.sdk.xml")):
        theirs = passed(report)
        ours = passed(report.with_name(report.name.replace(".sdk.", ".layer.")))
        good = {key: name for key, (name, is_good) in theirs.items() if is_good}
        both = [key for key in good if ours.get(key, ("", False))[1]]
        figures = {"tests": len(theirs), "sdk": len(good), "layer": len(both)}
        sums.update(figures)
        why.update(_reason(name, reasons) for key, name in good.items() if key not in both)
        file = report.name.partition("-")[2].partition(".")[0]
        yield f"| `{file}` | {' | '.join(map(str, figures.values()))} |"
    yield f"| all | {sums['tests']} | {sums['sdk']} | {sums['layer']} |"
    yield "\nWhy the others do not pass:\n\n| reason | tests |\n| --- | ---: |"
    yield from (f"| {reason} | {count} |" for reason, count in why.most_common())


def _reason(name: str, reasons: list[tuple[str, str]]) -> str:
    for pattern, reason in reasons:
        # Brackets are the parameters of a test.
        if fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")):
            return reason
    print("no reason is given for", name, file=sys.stderr)
    return "not looked at yet"


if __name__ == "__main__":
    PAGE.write_text(page(Path(sys.argv[1]), reasons_of([Path(name) for name in sys.argv[2:]])))
