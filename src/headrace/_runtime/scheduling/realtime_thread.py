"""Schedule the calling thread in real time.

Python's ``os`` has SCHED_FIFO and SCHED_RR. SCHED_DEADLINE needs the system call sched_setattr, which Python does
not offer and the C library has only since glibc 2.41; so it is called by its number, with ctypes.

Threads and processes that the operator starts are scheduled normally: libraries start threads on their first call,
and Linux lets a SCHED_DEADLINE thread start one only in this way.
"""

from __future__ import annotations

import ctypes
import logging
import os
from typing import TYPE_CHECKING

from headrace.core.thread_pool import SchedulingPolicy

if TYPE_CHECKING:
    from headrace.core.thread_pool import RealtimeScheduling

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_RESET_ON_FORK = 1


class _Attributes(ctypes.Structure):
    """``struct sched_attr`` of the kernel."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def schedule_realtime(wanted: RealtimeScheduling, operator: str) -> None:
    """Schedule this thread as its operator asked for; warn if that is not allowed."""
    try:
        if wanted.policy is SchedulingPolicy.SCHED_DEADLINE:
            _set_deadline(wanted)
        else:
            policy = int(wanted.policy) | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(0, policy, os.sched_param(wanted.priority))
    except (OSError, AttributeError) as error:  # a system other than Linux has no such function
        remedy = "give the process CAP_SYS_NICE (docker run --cap-add SYS_NICE)"
        if wanted.policy is SchedulingPolicy.SCHED_DEADLINE:
            remedy += ", all cores, and a runtime that leaves time for other threads"
        else:
            remedy += " or a limit of real-time priority (ulimit -r 99)"
        logging.getLogger("headrace.threads").warning(
            "operator %r runs at normal priority, since %s was refused (%s); %s",
            operator,
            wanted.policy.name,
            error,
            remedy,
        )


def _set_deadline(wanted: RealtimeScheduling) -> None:
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None:
        raise OSError(f"headrace does not know the system call on {os.uname().machine}")
    attributes = _Attributes(
        size=ctypes.sizeof(_Attributes),
        policy=int(wanted.policy),
        flags=_RESET_ON_FORK,
        runtime=wanted.runtime,
        deadline=wanted.deadline,
        period=wanted.period,
    )
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(number), ctypes.c_int(0), ctypes.byref(attributes), ctypes.c_uint(0)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
