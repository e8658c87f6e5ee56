"""Tests that hang do not hold up the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.processes import run_forked

HANGING = """
import threading
import pytest
from tests import limits

def test_that_waits_for_ever():
    threading.Event().wait()

@pytest.mark.timeout(0)
def test_that_is_well():
    pass

@pytest.mark.timeout(0)
def test_that_nothing_can_interrupt():
    assert limits._last_limit._until, "it has a limit"
    limits._last_limit.end()
    limits.LAST_LIMIT = 0.5  # from here on: the machine may be slow to come here
    limits._last_limit.begin(0.0)
    sum(range(10**15))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints that runs tests which hang, with other limits."""
    pytest.importorskip("pytest_timeout")
    pytest.importorskip("xdist")
    folder = tmp_path_factory.mktemp("hanging")
    (folder / "test_hanging.py").write_text(HANGING)
    arguments = [
        "-m",
        "pytest",
        *("-p", "xdist", "-p", "timeout"),  # and no others, which take longer to import
        "-p",
        "tests.limits",
        "-p",
        "no:cacheprovider",
        "-n",
        "1",
        "-o",
        "timeout_func_only=true",  # the machine may be slow to come to the test
        "--rootdir",
        folder,
    ]
    limits = {"HEADRACE_TEST_LIMIT": "0.5", "HEADRACE_TEST_LAST_LIMIT": "3600"}
    done = run_forked(*arguments, folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **limits)
    return done.stdout + done.stderr


def test_a_test_that_hangs_fails_with_all_stacks_and_the_suite_goes_on(printed: str) -> None:
    assert "2 failed, 1 passed" in printed
    assert "Timeout (>0.5s)" in printed
    assert "in _thread_receiver" in printed  # another thread's stack


def test_the_process_of_a_test_that_nothing_can_interrupt_ends_and_the_test_fails(printed: str) -> None:
    assert "crashed while running 'test_hanging.py::test_that_nothing_can_interrupt'" in printed
    assert "in test_that_nothing_can_interrupt" in printed
    assert "2 failed, 1 passed" in printed


VARIANTS = """
import pytest

@pytest.fixture(params=["greedy", "events"])
def scheduler(request):
    return request.param

@pytest.mark.parametrize("number", range(9))
def test_turns(scheduler, number): pass

@pytest.mark.turns()
def test_all(scheduler): pass

@pytest.mark.turns("mode")
@pytest.mark.parametrize("mode", ["", "verify"])
def test_modes(mode, scheduler): pass

@pytest.mark.parametrize(("scheduler", "size"), [("greedy", 1), ("events", 1)])
def test_pairs(scheduler, size): pass

@pytest.mark.thorough
def test_dear(): pass
"""


def test_variants_take_turns_but_in_a_thorough_run_and_where_they_are_named(tmp_path: Path) -> None:
    file = tmp_path / "test_variants.py"
    file.write_text(VARIANTS)

    def ran(*arguments: object, **environment: str) -> set[str]:
        plain = [
            "-q",
            "-p",
            "tests.limits",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            "--collect-only",
        ]
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        printed = run_forked("-m", "pytest", *plain, *arguments, **environment).stdout
        return {line.partition("::")[2] for line in printed.splitlines() if "::" in line}

    ordinary = ran(file)
    numbered = {name for name in ordinary if name.startswith("test_turns")}
    assert {name.partition("-")[2] for name in numbered} == {f"{number}]" for number in range(9)}
    assert {name.partition("-")[0] for name in numbered} == {"test_turns[greedy", "test_turns[events"}
    assert len(numbered) == 9
    both = {"test_all[greedy]", "test_all[events]", "test_pairs[greedy-1]", "test_pairs[events-1]"}
    assert both < ordinary
    assert len({name for name in ordinary if name.startswith("test_modes")}) == 2
    assert "test_dear" not in ordinary
    every = ran(file, HEADRACE_TESTS="thorough")
    assert ordinary < every
    assert len(every) == 18 + 2 + 4 + 2 + 1
    assert ran(f"{file}::test_dear") == {"test_dear"}
