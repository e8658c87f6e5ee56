"""Computes that tests make themselves, and what stands for the node of their operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from headrace.core import FaultCounts
from headrace.observe import Computes, OperatorInfo
from headrace.observe.events.records import NO_TIMESTAMP, GpuWork, StreamInfo


def idle_node() -> Any:
    """Return a node without conditions, faults and frames."""
    operator = SimpleNamespace(conditions={}, _headrace=SimpleNamespace(conditions=()))
    return SimpleNamespace(counts=FaultCounts(), operator=operator, lifetimes=None)


def computes_of(operator: OperatorInfo, started: Any, length: int, **details: Any) -> Computes:
    """Return computes without messages and work, of which nothing is told but the details."""
    began = np.asarray(started, np.int64)
    zeros, unknown = np.zeros(len(began), np.int64), np.full(len(began), NO_TIMESTAMP)
    no = np.zeros(len(began), np.bool_)
    settings: dict[str, Any] = {
        "threads": zeros,
        "is_timed": ~no,
        "arrivals": [],
        "gpu": [],
        "emissions": [],
        "discards": [],
        "is_replayed": no,
        "is_failed": no,
        "due": unknown,
        "skipped": zeros,
        "cpu_time": unknown,
        "others_cpu_time": unknown,
        **details,
    }
    return Computes(operator, 0, began, began + length, **settings)


def exact_work(stream: StreamInfo, compute: Any, started: Any, ended: Any) -> GpuWork:
    """Return work on a device that began when it could."""
    return GpuWork(stream, compute, started, ended, np.ones(len(compute), np.bool_), started)
