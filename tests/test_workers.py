"""Processes of pytest-xdist collect the tests of the files that they are given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import workers
from tests.harness.processes import ROOT, run_forked

FILES = {
    "test_fatal.py": """
import os, sys

def test_before(): assert "test_second" not in sys.modules, "another process may get it"
def test_that_ends_the_process(): os._exit(1)
def test_after(): pass
""",
    "test_first.py": """
def test_that_passes(): pass
def test_that_fails(): assert not "failed"
""",
    "test_none.py": "import no_such_module",
    "test_second.py": """
import pytest

@pytest.fixture(params=["greedy", "events"])
def scheduler(request):
    return request.param

def test_turns(scheduler): pass
""",
}
PLUGINS = ("xdist", "timeout", "tests.limits", "tests.workers", "no:cacheprovider")


def test_a_process_collects_a_file_when_it_runs_its_tests(tmp_path: Path) -> None:
    pytest.importorskip("pytest_timeout")
    pytest.importorskip("xdist")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = ["-m", "pytest", *(word for name in PLUGINS for word in ("-p", name))]
    command += ["-n", "1", "--dist", "loadfile", "--no-loadscope-reorder", "--rootdir", str(tmp_path)]
    printed = run_forked(*command, cwd=tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1").stdout
    assert "[4 items]" in printed  # the files
    assert "FAILED test_first.py::test_that_fails" in printed
    assert "ERROR test_none.py" in printed
    assert "crashed while running 'test_fatal.py'" in printed
    assert printed.count("replacing crashed worker") == 1
    assert "2 failed, 3 passed" in printed  # under one of the schedulers
    assert "1 error" in printed
    assert "[ 75%]" in printed  # of the files; one has no tests


def test_tests_that_are_asked_for_are_not_looked_for_file_by_file() -> None:
    def is_by_file(*arguments: str, dist: str = "loadfile", keyword: str = "", markexpr: str = "") -> bool:
        option = SimpleNamespace(dist=dist, keyword=keyword, markexpr=markexpr)
        config: Any = SimpleNamespace(option=option, args=arguments)
        return workers.is_by_file(config)

    assert is_by_file("tests", "packages")
    assert is_by_file("tests/test_workers.py")
    assert not is_by_file("tests/test_workers.py::test_a", "tests")
    assert not is_by_file("tests", keyword="a")
    assert not is_by_file("tests", markexpr="a")
    assert not is_by_file("tests", dist="load")


def test_long_files_come_first_and_are_there() -> None:
    paths = [
        ROOT / name for name in ("tests/a.py", "tests/docs/test_snippets.py", "tests/b.py", "tests/a.py")
    ]
    items: list[Any] = [SimpleNamespace(path=path) for path in paths]
    workers.put_long_files_first(items)
    assert [item.path.name for item in items] == ["test_snippets.py", "a.py", "b.py", "a.py"]
    places = (ROOT / "tests", ROOT / "packages")
    listed = (*workers.LONG, *workers.WITH_PYTORCH)
    assert all(any((place / name).is_file() for place in places) for name in listed)
