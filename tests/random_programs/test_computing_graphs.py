"""Random graphs of operators that share streams, keep nothing for a while, and part: no number is wrong."""

from __future__ import annotations

from functools import partial

import pytest
from headrace._runtime.streams.in_order import InOrder, Step

from headrace._runtime.compiled import is_compiled
from headrace._runtime.streams import in_order, lifetimes
from headrace.gpu import allocation, sim
from headrace.tensor import register_library
from headrace.tensor.libraries import reused_in_order
from tests.harness import event_based, greedy
from tests.harness.libraries import fresh_registry
from tests.limits import examples
from tests.random_programs.computing_graphs import ArrayLibrary, RandomComputing

SCHEDULERS = [greedy, *[partial(event_based, workers=workers) for workers in (1, 2, 3, 5)]]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that share a stream keep nothing after a few computes, and look often."""
    monkeypatch.setitem(reused_in_order, sim.Buffer, lambda owner: True)
    for address in list(allocation.in_use):  # of an earlier test
        monkeypatch.delitem(allocation.in_use, address)
    if not is_compiled():  # compiled modules cannot be patched
        monkeypatch.setattr(lifetimes.InFlight, "is_quiet", property(lambda self: self._patience >= 6))
        monkeypatch.setattr(in_order, "_STEPS", (1, 1))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("seed", range(examples(40)))
def test_what_operators_on_shared_streams_compute_is_what_a_model_computes(
    seed: int, machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_registry(monkeypatch)
    register_library(ArrayLibrary())
    app = RandomComputing(seed, 120, SCHEDULERS[seed % len(SCHEDULERS)], machine)
    if seed % 3 == 0:
        app.track()
    app.run()
    assert app.work.mistakes == []
    assert app.work.compared


@pytest.mark.usefixtures("soon")
@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
def test_operators_of_random_programs_keep_nothing(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would show nothing of them."""
    fresh_registry(monkeypatch)
    register_library(ArrayLibrary())
    begun: set[object] = set()
    begin = InOrder.begin

    def begin_and_note(self: InOrder, step: Step, timestamp: int) -> None:
        begun.add(step)
        begin(self, step, timestamp)

    monkeypatch.setattr(InOrder, "begin", begin_and_note)
    for seed in range(6):
        RandomComputing(seed, 120, greedy, machine).run()
    assert len(begun) >= 6
