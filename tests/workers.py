"""How the processes of pytest-xdist share a run.

Each of them would collect all tests, and run those of the files that it is given. That takes longer than any file
of tests, and the first run in a checkout compiles all of them as well, with their assertions rewritten. So it only
looks for files, each of which is one item for pytest-xdist, and collects the tests of those that it is given. But
if tests are asked for by name, keyword or marker, every process collects.

A process that began a long file last would be left with it alone. So the long ones come first.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

LONG = (
    *("docs/test_snippets.py", "examples/test_array_examples.py", "examples/test_endoscope.py"),
    *("gpu/sim/arrays/test_standard.py", "holoscan/tests/test_compare.py", "interleavings/test_plants.py"),
    *("interleavings/test_scenarios.py", "observe/dashboard/test_dashboard_large.py"),
    *(
        "observe/dashboard/test_dashboard_page.py",
        "operators/test_holoviz_page.py",
        "parts/test_processes.py",
    ),
    *("planner/test_planning.py", "random_programs/test_graph_figures.py"),
    *(
        "random_programs/test_programs.py",
        "replicas/test_processes.py",
        "type_checking/test_type_checking.py",
    ),
)
"""The files that take more than three seconds, by the ends of their paths."""

WITH_PYTORCH = (
    *("_runtime/streams/test_owners.py", "core/test_knob_types.py", "holoscan/tests/test_torch_formats.py"),
    *("inference/test_torch_model.py", "link/test_codec.py", "resources/test_allocators.py"),
    *("resources/test_blocks_in_pipelines.py", "resources/test_memory_for_libraries.py"),
    *("tensor/test_array_operators.py", "tensor/test_device_arrays.py", "tensor/test_leaks.py"),
    *("tensor/test_libraries.py", "tensor/test_read_only.py", "tensor/test_tensor.py"),
)
"""The files that import PyTorch or JAX, which takes seconds: one process runs all of them."""


def put_long_files_first(items: list[pytest.Item]) -> None:
    """Order tests by their files, otherwise as they are."""
    is_long = {path: path.as_posix().endswith(LONG) for path in {item.path for item in items}}
    items.sort(key=lambda item: not is_long[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return twice as many as there are cores: a test often waits, for processes, a browser or a clock."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Have the progress that is shown count files, as pytest-xdist does."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and is_by_file(config):
        reporter._progress_nodeids_reported = _Reported()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist whether its items are files."""
    node.workerinput["by_file"] = is_by_file(node.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if not is_by_file(config):
        return None
    from xdist.scheduler import LoadFileScheduling

    class _Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            """Return what one process runs: a file, or those that share what they import."""
            file = super()._split_scope(nodeid)
            return "with PyTorch" if file.endswith(WITH_PYTORCH) else file

        def remove_node(self, node: Any) -> str | None:
            """Leave out the file in which a process died: another would die of it as well."""
            given = self.assigned_work[node]
            running = [(unit, item) for unit in given for item, is_done in given[unit].items() if not is_done]
            if running:
                unit, item = running[0]
                del given[unit][item]
                if all(given[unit].values()):
                    del given[unit]
            super().remove_node(node)
            return running[0][1].partition("::")[0] if running else None

        def _reschedule(self, node: Any) -> None:
            """Give a process that took the place of one a second file, without which it would not begin."""
            super()._reschedule(node)
            if self._pending_of(self.assigned_work[node]) == 1:
                super()._reschedule(node)

    return _Files(config, log)


def is_by_file(config: pytest.Config) -> bool:
    """Return whether processes are given whole files, and all tests in these are asked for."""
    option = config.option
    is_chosen = option.keyword or option.markexpr or any("::" in argument for argument in config.args)
    return option.dist == "loadfile" and not is_chosen


class _Reported(set[str]):
    """The files of which tests were reported."""

    def add(self, test: object) -> None:
        super().add(str(test).partition("::")[0])


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Make a file of tests one item."""
    if not getattr(parent.config, "workerinput", {}).get("by_file"):
        return None
    return _File.from_parent(parent, path=module_path)


@pytest.hookimpl(specname="pytest_runtest_protocol", tryfirst=True)
def pytest_runtest_file(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a file of tests."""
    if not isinstance(item, TestsOfFile):
        return None
    item.run(nextitem)
    return True


class _File(pytest.File):
    """A file of tests that may be for another process."""

    def collect(self) -> list[pytest.Item]:
        return [TestsOfFile.from_parent(self, name="tests")]


class TestsOfFile(pytest.Item):
    """The tests of a file, which are collected when they run."""

    def runtest(self) -> None:
        raise NotImplementedError("its tests run in its place")

    def collect(self) -> list[pytest.Item]:
        assert self.parent is not None
        module = pytest.Module.from_parent(self.parent.parent, path=self.path)
        tests = list(self.session.genitems(module))
        self.config.hook.pytest_collection_modifyitems(session=self.session, config=self.config, items=tests)
        return tests

    def run(self, after: pytest.Item | None) -> None:
        """Run the tests. Each is the item of the session meanwhile: pytest-xdist looks whose reports it gets."""
        session, place = self.session, self.session.items.index(self)
        tests = self.collect()
        if (
            not tests
        ):  # the file is skipped as a whole: no test of it ends what the one before has left for it
            session._setupstate.teardown_exact(after)
        for test, following in itertools.pairwise([*tests, after]):
            if session.shouldfail or session.shouldstop:
                break
            assert test is not None
            session.items[place] = test
            self.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        session.items[place] = self
