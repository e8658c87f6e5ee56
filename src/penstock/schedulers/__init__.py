"""The catalogue of schedulers: on which threads operators run."""

from __future__ import annotations

from penstock.core.registry import registry
from penstock.schedulers.event_based import EventBasedScheduler
from penstock.schedulers.greedy import GreedyScheduler
from penstock.schedulers.multi_thread import MultiThreadScheduler

__all__ = ["EventBasedScheduler", "GreedyScheduler", "MultiThreadScheduler"]

registry.default_scheduler = GreedyScheduler
