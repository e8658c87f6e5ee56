"""Tests that hang do not hold up the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.processes import run_python

TESTS = """
import threading

def test_that_waits_for_ever():
    threading.Event().wait()

def test_that_nothing_can_interrupt():
    sum(range(10**15))

def test_that_is_well():
    pass
"""


def test_a_test_that_hangs_fails_and_the_suite_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("pytest_timeout")
    pytest.importorskip("xdist")
    (tmp_path / "test_hanging.py").write_text(TESTS)
    arguments = [
        "-m",
        "pytest",
        "-p",
        "tests.limits",
        "-p",
        "no:cacheprovider",
        "-n",
        "1",
        "--rootdir",
        tmp_path,
    ]
    done = run_python(*arguments, tmp_path, HEADRACE_TEST_LIMIT="2")
    assert "2 failed, 1 passed" in done.stdout
    assert "Timeout (>2.0s)" in done.stdout
    assert "crashed while running 'test_hanging.py::test_that_nothing_can_interrupt'" in done.stdout
    assert "in test_that_nothing_can_interrupt" in done.stdout + done.stderr
