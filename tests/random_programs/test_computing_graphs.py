"""Random graphs of operators on streams of their own and on shared ones: no number is wrong."""

from __future__ import annotations

from functools import partial

import pytest

from headrace.gpu import allocation, sim
from headrace.tensor import register_library
from tests.harness import event_based, greedy
from tests.harness.libraries import fresh_registry
from tests.limits import examples
from tests.random_programs.computing_graphs import SEGMENT_FRAMES, ArrayLibrary, RandomComputing

SCHEDULERS = [greedy, *[partial(event_based, workers=workers) for workers in (1, 2, 3, 5)]]


@pytest.mark.parametrize("seed", range(examples(120)))
def test_what_operators_compute_is_what_a_model_computes(
    seed: int, machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in list(allocation.in_use):  # of an earlier test
        monkeypatch.delitem(allocation.in_use, address)
    monkeypatch.setenv("HEADRACE_CHECK", "streams" if seed % 2 else "")
    fresh_registry(monkeypatch)
    register_library(ArrayLibrary())
    app = RandomComputing(seed, 120, SCHEDULERS[seed % len(SCHEDULERS)], machine)
    if seed % 3 == 0:
        app.track()
    app.run()
    assert app.work.mistakes == []
    assert app.work.compared
    if app.has_segment:
        assert app.sink.seen == [number + 3 for number in range(SEGMENT_FRAMES)]
