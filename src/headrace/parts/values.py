"""Values: live parameters and knobs that are set in the driver, on their way to the part that has the operator.

The driver has composed the same operators, which check a value before it leaves. The part checks it again and
answers. So `set_live` returns when the next compute there sees the value, or raises what the part raised. A part
that is started again is sent the last value that was accepted, and those that it has not answered.
"""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from itertools import count
from typing import Any

from headrace import waits
from headrace.core.errors import Failure, ParameterError
from headrace.parts.control import SetValue


class Values:
    """The values of one run.

    Parameters
    ----------
    wake
        Lets the driver's loop take what is new.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._loop = threading.get_ident()
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._new: deque[SetValue] = deque()
        self._answers: dict[int, tuple[SetValue, Future[Failure | None]]] = {}
        # By part, in their order: those without an answer, and of the accepted ones the last of each name.
        self._kept: defaultdict[str, dict[int, SetValue]] = defaultdict(dict)
        self._is_closed = False

    # From any thread.

    def set(self, operator: Any, method: str, name: str, value: Any) -> None:
        """Set a value, and wait until the part has it; the driver's own loop does not wait."""
        try:
            content = pickle.dumps(value)
        except Exception as error:
            raise ParameterError(
                f"{method}({name!r}, ...) of operator {operator.name!r}: the value cannot be sent to the process "
                f"of its fragment: {error}"
            ) from error
        answer: Future[Failure | None] = Future()
        with self._lock:
            if self._is_closed:  # the run is over, and its operators with it
                return
            number = next(self._numbers)
            wanted = SetValue(number, operator.fragment.name, operator.name, method, name, content)
            self._answers[wanted.number] = wanted, answer
            self._new.append(wanted)
            self._wake()
        if threading.get_ident() == self._loop:
            return
        waits.wait_for_futures([answer])
        failure = answer.result()
        if failure is not None:
            raise failure.error(f"fragment {wanted.part!r}")

    # From the driver's loop.

    def take(self) -> list[SetValue]:
        """Return what is new, and remember it for parts that are started later."""
        found = []
        while self._new:
            wanted = self._new.popleft()
            self._kept[wanted.part][wanted.number] = wanted
            found.append(wanted)
        return found

    def of(self, part: str) -> Iterable[SetValue]:
        """Return the values that a part is sent which takes the place of a lost one."""
        return self._kept[part].values()

    def answer(self, number: int, failure: Failure | None = None) -> None:
        """Tell whoever waits that a value was set, or refused."""
        with self._lock:
            wanted, answer = self._answers.pop(number, (None, None))
            if wanted is None or answer is None:
                return
        kept = self._kept[wanted.part]
        if failure is not None:
            kept.pop(number, None)
        else:  # answers come in order, so those before it have had theirs
            for earlier in [
                each for each, other in kept.items() if each < number and _is_same(other, wanted)
            ]:
                del kept[earlier]
        answer.set_result(failure)

    def end(self, parts: Iterable[str]) -> None:
        """Let nobody wait for parts that have ended, whose operators will not compute again."""
        for number, (wanted, _) in list(self._answers.items()):
            if wanted.part in parts:
                self.answer(number)

    def close(self) -> None:
        """Let nobody wait any more: the run is over."""
        with self._lock:
            self._is_closed = True
        for number in list(self._answers):
            self.answer(number)


def _is_same(one: SetValue, other: SetValue) -> bool:
    """Return whether two values are of the same parameter or knob."""
    return (one.operator, one.method, one.name) == (other.operator, other.method, other.name)
