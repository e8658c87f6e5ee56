"""Random graphs of operators that share streams and part: no frame is wrong."""

from __future__ import annotations

from functools import partial

import pytest

from headrace.tensor import register_library
from tests.harness import event_based, greedy
from tests.harness.libraries import fresh_registry
from tests.limits import examples
from tests.random_programs.plain_graphs import PlainLibrary, RandomGraph

SCHEDULERS = [greedy, *[partial(event_based, workers=workers) for workers in (1, 2, 3, 5)]]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("seed", range(examples(60)))
def test_operators_that_share_streams_and_part_read_no_wrong_frame(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_registry(monkeypatch)
    register_library(PlainLibrary())
    app = RandomGraph(seed, 120, SCHEDULERS[seed % len(SCHEDULERS)])
    app.run()
    assert app.frames.looked_at
    assert app.frames.mistakes == []
