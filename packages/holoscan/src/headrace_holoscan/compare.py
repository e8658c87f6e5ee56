"""``python -m headrace_holoscan.compare EXAMPLES TESTS``: what the SDK's own examples and tests do with headrace.

EXAMPLES and TESTS are folders of a checkout of the SDK, such as ``examples`` and ``python/tests``; ``-`` leaves one
out. Each example runs as a program of its own, and ends well if its exit status is 0. Each file of tests runs under
pytest, with ``import holoscan`` giving headrace. With ``--sdk PYTHON``, an interpreter that has the SDK and pytest,
the same runs there, and the figures count what ends well or passes on it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

_PROGRAM = re.compile(r"^\s*(from|import) holoscan\b.*^if __name__ ==", re.MULTILINE | re.DOTALL)
_THROUGH_THE_LAYER = (
    "import sys; from headrace_holoscan.alias import install; install(); import pytest; "
    "sys.exit(pytest.main(sys.argv[1:]))"
)
_ENDED_LATE = "it did not end in time"


@dataclass(frozen=True)
class System:
    """What runs the programs: headrace, or the SDK that an interpreter has.

    Attributes
    ----------
    python
        The interpreter of the SDK; empty for headrace, which this one has.
    seconds
        How long a program may take.
    """

    python: str
    seconds: float

    def run(self, arguments: Sequence[object], folder: Path) -> tuple[int | None, str]:
        """Run Python; return the exit status, None if it did not end in time, and its last line on stderr."""
        variables = {"HEADRACE_PROGRESS": "0", "HEADRACE_VIEW": "none"} | os.environ
        if self.python:
            variables.pop("PYTHONPATH", None)
        else:
            # The program runs in a folder of its own, and finds what this process does.
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
        command = [self.python or sys.executable, *map(str, arguments)]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, _ENDED_LATE
        told = done.stderr.decode(errors="replace").splitlines()
        # Not the hint in parentheses that follows an error.
        said = [line.strip() for line in told if line.strip() and not line.startswith("(")]
        return done.returncode, said[-1] if said else ""

    def end_of(self, example: Path) -> str:
        """Run an example; return why it did not end well, or an empty text."""
        how = [example] if self.python else ["-m", "headrace_holoscan", example]
        status, told = self.run(how, example.parent)
        return "" if status == 0 else told or f"exit status {status}"

    def results_of(self, tests: Path) -> dict[tuple[str, int], str]:
        """Run a file of tests; return for each whether it passed, failed or was skipped.

        The keys are the name of the test without its parameters, which are written differently on the two systems,
        and a number.
        """
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            how = ["-m", "pytest"] if self.python else ["-c", _THROUGH_THE_LAYER]
            options = [tests.name, "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
            _, told = self.run([*how, *options], tests.parent)
            if not report.exists():
                return {(f"{tests.name}: {told}", 0): "failed"}
            return _read(report)


def _read(report: Path) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    count: Counter[str] = Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        test = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}".partition("[")[0]
        ends = {child.tag for child in case}
        result = "skipped" if "skipped" in ends else "failed" if ends & {"failure", "error"} else "passed"
        found[test, count[test]] = result
        count[test] += 1
    return found


def examples_in(folder: Path) -> list[Path]:
    """Return the programs of the SDK in a folder and in those below it."""
    files = sorted(folder.rglob("*.py"))
    return [file for file in files if _PROGRAM.search(file.read_text(errors="replace"))]


def compare_examples(folder: Path, here: System, there: System | None, jobs: int) -> Iterator[str]:
    """Run the examples, and yield the lines of a table."""
    files = examples_in(folder)
    with ThreadPoolExecutor(jobs) as threads:
        ours = list(threads.map(here.end_of, files))
        theirs = list(threads.map(there.end_of, files)) if there is not None else []
    yield "| example | with headrace |" + (" on the SDK |" if theirs else "")
    yield "| --- | --- |" + (" --- |" if theirs else "")
    for place, file in enumerate(files):
        row = [str(file.relative_to(folder)), ours[place] or "ends well"]
        yield f"| {' | '.join(row + [each or 'ends well' for each in theirs[place : place + 1]])} |"
    yield ""
    yield f"{ours.count('')} of {len(files)} examples end well."
    if theirs:
        both = sum(not (one or other) for one, other in zip(ours, theirs, strict=True))
        yield f"{both} of the {theirs.count('')} that end well on the SDK do."


def compare_tests(folder: Path, here: System, there: System | None, jobs: int) -> Iterator[str]:
    """Run the files of tests, and yield the lines of a table."""
    files = sorted(folder.rglob("test_*.py"))
    with ThreadPoolExecutor(jobs) as threads:
        ours = list(threads.map(here.results_of, files))
        theirs = list(threads.map(there.results_of, files)) if there is not None else []
    columns = ["file", "tests", "pass", "are skipped"] + ["pass on the SDK", "of these, pass"] * bool(theirs)
    yield f"| {' | '.join(columns)} |"
    yield f"| --- {'| ---: ' * (len(columns) - 1)}|"
    sums: Counter[str] = Counter()
    for place, file in enumerate(files):
        found = Counter(ours[place].values())
        figures = {"tests": found.total(), "pass": found["passed"], "skipped": found["skipped"]}
        for results in theirs[place : place + 1]:
            good = {test for test, result in results.items() if result == "passed"}
            figures |= {
                "sdk": len(good),
                "both": sum(ours[place].get(test) == "passed" for test in good),
            }
        sums.update(figures)
        yield f"| {file.relative_to(folder)} | {' | '.join(map(str, figures.values()))} |"
    yield ""
    yield f"{sums['pass']} of {sums['tests']} tests pass, and {sums['skipped']} are skipped."
    if theirs:
        yield f"{sums['both']} of the {sums['sdk']} that pass on the SDK do."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace_holoscan.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("examples", metavar="EXAMPLES", help="the folder of the examples, or -")
    parser.add_argument("tests", metavar="TESTS", nargs="?", default="-", help="that of the tests, or -")
    parser.add_argument("--sdk", metavar="PYTHON", help="an interpreter that has the SDK and pytest")
    parser.add_argument("--seconds", type=float, default=120, help="how long one file may take (120)")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at a time (1)")
    options = parser.parse_args(arguments)
    here = System("", options.seconds)
    there = None if options.sdk is None else System(options.sdk, options.seconds)
    for what, name, compare in (
        ("examples", options.examples, compare_examples),
        ("tests", options.tests, compare_tests),
    ):
        if name == "-":
            continue
        if not Path(name).is_dir():
            parser.error(f"there is no folder {name!r} of {what}")
        lines = partial(compare, Path(name).absolute(), here, there, options.jobs)
        print(*lines(), "", sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
