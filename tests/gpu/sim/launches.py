"""Launches that several tests of the simulator share."""

from __future__ import annotations

from headrace.gpu import sim

LONG = sim.Kernel("long", 3600.0)  # an hour
ONE_BLOCK = sim.LaunchConfig(grid=1, block=32)
