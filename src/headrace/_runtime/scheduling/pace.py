"""Pace: which operators compute so shortly that one worker runs them one after the other.

Python threads take turns: one of them holds the interpreter lock. Computes of a few microseconds on several workers
only hand this lock back and forth, and each hand-over costs more than the compute. So other workers help only with
nodes that are *slow*: they take long, or block (a sleep, a socket, a device), so that others can run meanwhile.

Three clocks tell. The CPU time of the thread is the length of a compute; it does not grow if other threads or other
programs are in the way. What is left of the wall time is the time in which the thread did not run. If the CPU time
of the whole process does not fill it, the thread was blocked. If it does, other threads were running, and this one
may just have waited for the interpreter lock: that says nothing about the operator. Otherwise threads that compete
for the lock would make each other look slow, and compete for ever. A thread that was blocked has given up its core
by itself, which the system counts. If it has not, another program had the core: that says nothing, either.

Reading all that costs about 3 µs. So a short node is measured only when a worker on standby requests it, once in
a while (`waiting`). A slow node is always measured. It counts as slow until it was short several times in a row:
many operators do their work in every tenth compute only. An unknown node counts as slow, so that slow nodes run in
parallel from the first compute on.

One slow compute of a short node only makes it *suspected*: it is always measured, too, but not handed over. It is
slow if it is slow again among the next 16. The host may have been in the way the first time: it ran another program
on that core, or mapped memory. On two cores that other programs took a third of the time, for 3 ms each, chains of
computes of 11 and 21 µs were handed over 11 and 31 times in 1,000 computes when one slow compute was enough, 1.5
and 4 times when two were needed, and hardly ever since the waits of a thread count, too.

If a node that is handed over anyway is slow the first time that a worker runs it, that says nothing, either: it may
have compiled a kernel, or made CUDA ready for this thread. Otherwise, each worker could make a short node count as
slow 16 times over, and each hand-over costs more than its compute.
"""

from __future__ import annotations

import resource

UNKNOWN = 1
"""`Node.slow` before the first compute."""

SLOW = 16
"""`Node.slow` after a slow compute of a node that is not short."""

SUSPECTED = -16
"""`Node.slow` after a slow compute of a short node."""

_OF_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # which only Linux has

# Nanoseconds. Waking a worker takes tens of microseconds.
_LONG = 200_000
_BLOCKED = 100_000
# A hand-over wakes a worker and passes the interpreter lock twice, and a thread also waits for that lock after
# each call that releases it, as launches of kernels do. So if others computed meanwhile, less than this does not
# count as blocked: nodes that were slow once could stay slow because of their hand-overs. The limit is a guess.
_ALONE = 10_000
_BLOCKED_BESIDE_OTHERS = 500_000


def times_waited() -> int:
    """Return how often this thread has given up its core by itself; always 0 if the system does not count that."""
    return 0 if _OF_THREAD is None else resource.getrusage(_OF_THREAD).ru_nvcsw


def judge(slow: int, is_first: bool, wall: int, own: int, whole: int, has_waited: bool) -> int:
    """Return for how many more short computes a node counts as slow; as a negative number, as suspected.

    Parameters
    ----------
    slow
        The number before its last compute.
    is_first
        Whether that was its first compute on that worker.
    wall, own, whole
        The wall time of that compute, and the CPU time of its thread and of the process meanwhile, in nanoseconds.
    has_waited
        Whether its thread has given up its core by itself meanwhile, or that is not known.
    """
    limit = _BLOCKED if whole - own < _ALONE else _BLOCKED_BESIDE_OTHERS
    if own > _LONG or (has_waited and wall - whole > limit):
        return slow if is_first and slow else slower(slow)
    if wall - own > limit:
        return slow  # others computed meanwhile, perhaps with the interpreter lock, or another program did
    return slow - 1 if slow > 0 else min(slow + 1, 0)


def slower(slow: int) -> int:
    """Return the same after a slow compute."""
    return SLOW if slow else SUSPECTED
