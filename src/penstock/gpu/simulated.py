"""Telling simulated objects from real ones, without importing the simulation just to look."""


def is_simulated(thing: object) -> bool:
    """Return whether a device, a stream or another object of a device is a simulated one."""
    return type(thing).__module__.startswith("penstock.gpu.sim.")
