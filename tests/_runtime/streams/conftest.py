from __future__ import annotations

import pytest

from headrace.gpu import sim


@pytest.fixture(autouse=True)
def _on_a_simulated_device(machine: sim.Machine) -> None:
    """Every pipeline here runs on a simulated device in virtual time."""
