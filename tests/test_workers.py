"""The processes of pytest-xdist get the tests that they would get without our scheduler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import workers
from tests.harness.processes import ROOT

TESTS = [f"test_{file}.py::test_{number}" for file in "abcdef" for number in range(4)]


class Worker:
    """A process of pytest-xdist that notes what it is told to run."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.told: list[int] = []
        self.done = 0

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def make_scheduler(dist: str = "loadfile") -> Any:
    values = {"dist": dist, "tx": ["2*popen"]}
    option = SimpleNamespace(loadscopereorder=False)
    remote = pytest.importorskip("xdist.remote")
    config: Any = SimpleNamespace(getvalue=values.get, option=option)
    return workers.pytest_xdist_make_scheduler(config, remote.Producer("scheduler", enabled=False))


def started() -> tuple[Any, Worker, Worker]:
    scheduler, first, second = make_scheduler(), Worker(), Worker()
    for worker in (first, second):
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, TESTS)
    scheduler.schedule()
    return scheduler, first, second


def test_a_file_is_given_as_a_whole_and_the_next_one_when_it_is_nearly_done() -> None:
    scheduler, first, second = started()
    assert (first.told, second.told) == ([0, 1, 2, 3], [4, 5, 6, 7])
    scheduler.mark_test_complete(first, 0)
    assert len(first.told) == 4
    scheduler.mark_test_complete(first, 1)
    assert first.told[4:] == [8, 9, 10, 11]
    for worker in (first, second) * len(TESTS):
        if worker.done < len(worker.told):
            scheduler.mark_test_complete(worker, worker.told[worker.done])
            worker.done += 1
    assert sorted(first.told + second.told) == list(range(len(TESTS)))
    assert not scheduler.has_pending


def test_what_a_process_did_not_run_before_it_died_is_given_to_another() -> None:
    scheduler, first, second = started()
    scheduler.mark_test_complete(first, 0)
    assert scheduler.remove_node(first) == TESTS[1]
    for test in range(4, 24):
        scheduler.mark_test_complete(second, test)
    assert second.told == [*range(4, 24), 1, 2, 3]


def test_long_files_come_first_and_are_there() -> None:
    paths = [
        ROOT / name for name in ("tests/a.py", "tests/docs/test_snippets.py", "tests/b.py", "tests/a.py")
    ]
    items: list[Any] = [SimpleNamespace(path=path) for path in paths]
    workers.put_long_files_first(items)
    assert [item.path.name for item in items] == ["test_snippets.py", "a.py", "b.py", "a.py"]
    places = (ROOT / "tests", ROOT / "packages")
    assert all(any((place / name).is_file() for place in places) for name in workers.LONG)
