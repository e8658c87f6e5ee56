"""The catalogue of resources: clocks and thread pools."""

from penstock.conditions.either import OrConditionCombiner
from penstock.core.clock import Clock
from penstock.resources.manual_clock import ManualClock
from penstock.resources.realtime_clock import RealtimeClock
from penstock.resources.synthetic_clock import SyntheticClock
from penstock.resources.thread_pool import ThreadPool

__all__ = [
    "Clock",
    "ManualClock",
    "OrConditionCombiner",
    "RealtimeClock",
    "SyntheticClock",
    "ThreadPool",
]
