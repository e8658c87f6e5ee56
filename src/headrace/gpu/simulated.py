"""Distinguishing simulated objects from real ones, without importing the simulation."""

from __future__ import annotations


def is_simulated(thing: object) -> bool:
    """Return whether a device, a stream or another object of a device is simulated."""
    return type(thing).__module__.startswith("headrace.gpu.sim.")
