"""The catalogue of schedulers: on which threads operators run."""

from penstock.schedulers.event_based import EventBasedScheduler
from penstock.schedulers.greedy import GreedyScheduler
from penstock.schedulers.multi_thread import MultiThreadScheduler

__all__ = ["EventBasedScheduler", "GreedyScheduler", "MultiThreadScheduler"]
