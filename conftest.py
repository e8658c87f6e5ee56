"""Tests run on the simulated device unless they ask for another, and each has a limit."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.entropy import deterministic_PRNG

from headrace.gpu import sim
from tests.harness import SCHEDULERS, MakeScheduler
from tests.harness.libraries import fresh_registry
from tests.limits import (  # noqa: F401
    THOROUGH,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_report_to_serializable,
    pytest_runtest_protocol,
)
from tests.workers import (  # noqa: F401
    pytest_configure_node,
    pytest_pycollect_makemodule,
    pytest_runtest_file,
    pytest_xdist_auto_num_workers,
    pytest_xdist_setupnodes,
)

os.environ.setdefault("HEADRACE_DEVICE", "sim")

# Many tests start programs beside other tests. These keep their bytecode, and the idle threads of NumPy's and
# PyTorch's libraries sleep instead of spinning for a tenth of a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# How long an example takes, and how long it takes to make one, depends on the machine. Every run has the same ones.
settings.register_profile(
    "any machine",
    deadline=None,
    derandomize=True,
    max_examples=200 if THOROUGH else 40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")
# Hypothesis also tries constants from the files of all modules that are imported by then: what a test tries would
# depend on the tests before it, and reading the files takes seconds.
providers._get_local_constants = lambda: providers._local_constants
# Hypothesis warns if it cannot see who holds its random numbers: make them before `small_heap` hides their holder,
# which it does since Python 3.14.
with deterministic_PRNG():
    pass

# The garbage collector looks for cycles seven times less often than by itself: it takes a twentieth of the time of
# the tests, and those that are about it call it.
gc.set_threshold(5_000, 10, 10)

# A shell that runs the tests in the background has them ignore Ctrl-C. The tests of Ctrl-C need the usual handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    """Say which build is tested."""
    from headrace._runtime.scheduling.engine import is_compiled

    return f"headrace: {'compiled' if is_compiled() else 'pure Python'}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[object]:
    """Collect tests without the garbage collector, which would find nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Hide modules and the like from the garbage collector: many tests have it collect."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def machine() -> Iterator[sim.Machine]:
    """A simulated H200 in virtual time, its device current on this thread; pipelines take its clock."""
    with sim.Machine("h200") as machine:
        sim.Device(0).set_current()
        yield machine


@pytest.fixture
def no_device_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has not used a device: operators get their streams when one does."""
    fresh_registry(monkeypatch)
    monkeypatch.setattr(sys.modules["headrace.gpu.backend"], "_active", None)


@pytest.fixture(params=SCHEDULERS)
def scheduler(request: pytest.FixtureRequest) -> MakeScheduler:
    """Run a test under each scheduler."""
    return request.param
