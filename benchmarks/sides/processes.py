"""Arrays from one process to another: the link of headrace, and what carries them by hand."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np

from benchmarks.link import paced, run_bare, run_link

SIZE, RATE = 4 << 20, 200.0


def of_headrace(*, share: float) -> tuple[float, int]:
    """Return the median microseconds on the way, and how many arrived."""
    return _middle(run_link(SIZE, RATE, _frames(share))[0])


def by_hand(*, share: float) -> tuple[float, int]:
    """Return the same for slots of shared memory whose numbers travel over a socket."""
    return _middle(run_bare(SIZE, RATE, _frames(share))[0])


def by_pipe(*, share: float) -> tuple[float, int]:
    """Return the same for arrays that are pickled into a pipe."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    frames = _frames(share)
    process = context.Process(target=_receive, args=(theirs, frames))
    process.start()
    ours.recv()
    frame = np.ones(SIZE, np.uint8)
    for _ in paced(frames, RATE):
        ours.send((time.perf_counter_ns(), frame))
    taken = ours.recv()
    process.join()
    return _middle(np.array(taken))


def _receive(connection: Any, frames: int) -> None:
    connection.send(None)
    taken = []
    for _ in range(frames):
        sent, _ = connection.recv()
        taken.append((time.perf_counter_ns() - sent) / 1e3)
    connection.send(taken)


def _frames(share: float) -> int:
    return max(int(600 * share), 50)


def _middle(taken: np.ndarray) -> tuple[float, int]:
    return float(np.median(taken)), len(taken)
