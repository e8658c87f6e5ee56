"""How the processes of pytest-xdist share a run.

Each of them collects all tests, and runs those of the files that it is given.

The first run in a checkout compiles hundreds of files of tests, with their assertions rewritten: more work than any
file of tests is. So each process begins with other files, and then finds the rest compiled.

A process that began a long file last would be left with it alone. So the long ones come first.

pytest-xdist looks for a test in the list of all tests, and after each test it counts those of all files that a
process was ever given. With twelve thousand tests that was 3 of 8 seconds of the process that reports. `_Files`
looks in a dict, and forgets the files that are done.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

LONG = (
    *("cli/test_bench.py", "docs/test_snippets.py", "examples/test_array_examples.py"),
    *("examples/test_endoscope.py", "gpu/sim/arrays/test_standard.py", "holoscan/tests/test_compare.py"),
    *("interleavings/test_plants.py", "interleavings/test_scenarios.py", "parts/test_processes.py"),
    *("observe/dashboard/test_dashboard_large.py", "observe/dashboard/test_dashboard_page.py"),
    *("planner/test_planning.py", "random_programs/test_graph_figures.py", "random_programs/test_plants.py"),
    *(
        "random_programs/test_programs.py",
        "replicas/test_processes.py",
        "type_checking/test_type_checking.py",
    ),
)
"""The files that take more than four seconds, by the ends of their paths."""


def put_long_files_first(items: list[pytest.Item]) -> None:
    """Order tests by their files, otherwise as they are."""
    is_long = {path: path.as_posix().endswith(LONG) for path in {item.path for item in items}}
    items.sort(key=lambda item: not is_long[item.path])


def import_some(config: pytest.Config) -> None:
    """Import the files of tests that this process begins with, if it is one of several that collect all tests.

    What goes wrong here goes wrong again when the file is collected.
    """
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not number or config.args != config.getini("testpaths"):
        return
    folder, count = Path(__file__).parent, int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for file in sorted(folder.rglob("test_*.py"))[int(number) % count :: count]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(file.relative_to(folder.parent).with_suffix("").parts))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one more than there are cores: tests of several processes often wait for these."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class _Files(LoadFileScheduling):
        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            super().add_node_collection(node, collection)
            if node in self.registered_collections:
                self.registered_collections[node] = _Tests(collection)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            files = self.assigned_work[node]
            for file in [file for file, tests in files.items() if all(tests.values())]:
                del files[file]

    return _Files(config, log)


class _Tests(list[str]):
    """A list of different tests that knows where each of them is."""

    def __init__(self, tests: Sequence[str]) -> None:
        super().__init__(tests)
        self._places = {test: place for place, test in enumerate(tests)}

    def index(self, test: str, *_: Any) -> int:
        return self._places[test]
