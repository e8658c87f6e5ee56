"""Threads that are late on purpose: their profile functions sleep now and then.

Python calls a profile function at each call and each return of a function, in Python or in C. So a thread can be
late between any two steps that others can tell apart: before and after it takes or releases a lock, sends a
message, or starts a process. The code needs no change for it, and nothing is replaced in it.

Decided against: to replace the waits, locks and threads of `threading`, `asyncio` and `subprocess`. Tests replace
some of these themselves, and a thread may be late in code that calls none of them.

This module imports little: it is in every program that a test starts, and some tests look at what is imported.
"""

from __future__ import annotations

import _random
import os
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

VARIABLE = "LATE"  # for programs that tests start: some look for all variables that begin with HEADRACE
MODES = ("all", "main", "others", "some")
LONGEST = 0.03  # seconds
MOST = 0.4  # seconds that a thread is late in all, so that a test of many calls ends

# Our code; and Python's code by which threads, processes and event loops meet.
_OURS = ("/headrace/", "/tests/", "/examples/", "<string>")
_MEETINGS = (
    "/threading.py",
    "/asyncio/",
    "/concurrent/futures/",
    "/queue.py",
    "/subprocess.py",
    "/selectors.py",
)
_NEITHER = ("/tests/jitter/", "/tests/interleavings/")
# What they call to wait for each other, and to tell each other something.
_CALLS = frozenset(
    (
        *(
            "acquire",
            "release",
            "poll",
            "select",
            "recv",
            "recv_into",
            "recvmsg",
            "send",
            "sendall",
            "sendmsg",
        ),
        *(
            "accept",
            "connect",
            "read",
            "write",
            "put",
            "get",
            "wait",
            "start_new_thread",
            "fork",
            "fork_exec",
        ),
        *("waitpid", "kill"),
    )
)


class Lateness:
    """Which threads are late in a test or a program, and how often.

    Parameters
    ----------
    seed
        A number for the choices. A seed repeats them roughly, since the threads take the numbers as they come.
    mode
        "all" threads are late, the "main" one, the "others", or "some"; None to choose.
    """

    def __init__(self, seed: int, mode: str | None = None) -> None:
        self._random = _random.Random(seed).random
        self.mode = MODES[int(self._random() * len(MODES))] if mode is None else mode
        # From one call in 20 to one in 2,000: the first hits short tests, the last all of a long one.
        self._at_call = 0.05 * 0.01 ** self._random()
        self._at_meeting = min(10 * self._at_call, 0.2)
        self._files: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"late: {self.mode}, at one call in {1 / self._at_call:.0f}"

    def begin(self) -> None:
        """Make this thread late, which is the main one, and those that are started from now on."""
        self._profile = profile = self._make_profile()
        threading.setprofile(profile)
        sys.setprofile(profile)

    def end(self) -> None:
        """Let this thread be punctual, and those that are started from now on."""
        threading.setprofile(None)  # type: ignore[arg-type]
        sys.setprofile(None)

    def _begin_thread(self) -> float:
        """Choose whether a thread is late, let it begin late, and return for how many seconds it may be late."""
        is_main = threading.current_thread() is threading.main_thread()
        is_late = self.mode in ("all", "main" if is_main else "others")
        if not is_late and (self.mode != "some" or self._random() < 0.6):
            return 0.0
        if not is_main and self._random() < 0.5:
            _sleep(2 * LONGEST * self._random())
        return MOST

    def _make_profile(self) -> Callable[[FrameType, str, Any], None]:
        """Return the profile function. It does not replace itself, which can crash Python 3.11."""
        random, files, at_call, at_meeting = self._random, self._files, self._at_call, self._at_meeting
        thread, begin_thread, sleep, kind_of, calls = _Thread(), self._begin_thread, _sleep, _kind_of, _CALLS

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            left = thread.left
            if left is None:
                thread.left = begin_thread()
                return
            if left <= 0.0:
                return
            file = frame.f_code.co_filename
            kind = files.get(file)
            if kind is None:
                kind = files[file] = kind_of(file)
            if not kind:
                return
            is_meeting = kind == 2 if event in ("call", "return") else argument.__name__ in calls
            if random() < (at_meeting if is_meeting else at_call if kind == 1 else 0.0):
                seconds = LONGEST * random() ** 3
                thread.left = left - seconds
                sleep(seconds)

        return profile


class _Thread(threading.local):
    """For how many seconds a thread may still be late; None before it is known."""

    left: float | None = None


def _kind_of(file: str) -> int:
    """Return 1 for our code, 2 for Python's code by which threads meet, and else 0."""
    # What is installed is known by its own path: headrace may be, and others may be below a folder of ours.
    _, installed, path = file.rpartition("/site-packages")
    if installed:
        return 1 if path.startswith("/headrace/") else 0
    if any(part in file for part in _NEITHER):
        return 0
    if any(part in file for part in _OURS):
        return 1
    return 2 if any(part in file for part in _MEETINGS) else 0


def read_setting() -> tuple[int, str | None] | None:
    """Return the seed and the mode that the environment names, as "7" or "7:main"; None if it names none."""
    text = os.environ.get("HEADRACE_JITTER") or os.environ.get(VARIABLE)
    if not text:
        return None
    seed, _, mode = text.partition(":")
    if mode not in ("", *MODES):
        raise ValueError(f"HEADRACE_JITTER={text}: the mode must be one of {', '.join(MODES)}")
    return int(seed), mode or None


def begin_process() -> None:
    """Make this process late as it begins, by its id."""
    setting = read_setting()
    if setting is not None:
        seed, mode = setting
        lateness = Lateness((seed << 32) + os.getpid(), mode)
        _sleep(2 * LONGEST * lateness._random())
        lateness.begin()


_sleep = time.sleep  # tests may replace it
