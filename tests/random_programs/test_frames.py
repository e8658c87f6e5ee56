"""Random programs that hold, change, batch, drop, pass on and send again what they receive: no frame is wrong."""

from __future__ import annotations

import pytest

from tests.harness import SCHEDULERS
from tests.limits import examples
from tests.random_programs.frames import RandomFrames
from tests.random_programs.simulated_frames import SimulatedFrames


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("seed", range(examples(60)))
def test_whatever_a_program_does_with_frames_every_one_is_right(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every other program runs under the checker, which has nothing to say: its warnings are errors here.
    monkeypatch.setenv("HEADRACE_CHECK", "streams" if seed % 2 else "")
    library = SimulatedFrames(seed)
    scheduler = SCHEDULERS[seed % len(SCHEDULERS)]
    app = RandomFrames(seed, 40, library, scheduler)
    app.run()
    assert library.looked_at == library.asked
    assert library.mistakes == [], app.plan
