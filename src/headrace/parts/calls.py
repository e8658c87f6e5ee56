"""Calls: what the parts are asked and told to do, from any thread of the driver, and their answers.

The driver has composed the same operators, which check a value before it leaves. The part checks it again and
answers. So `set_live` returns when the next compute there sees the value, or raises what the part raised. A part
that is started again is told once more what holds: the last value that was accepted, a pause, the end of the
sources, and all that it has not answered.
"""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Container
from concurrent.futures import Future
from itertools import count
from typing import Any

from headrace import waits
from headrace.core.errors import ParameterError
from headrace.parts.messages import Call, Reply

SET_VALUE = "set_value"
_PROGRESS = "progress"  # is asked, and nothing holds because of it


class Calls:
    """The calls of one run.

    Parameters
    ----------
    wake
        Lets the driver's loop, which this thread runs, take what is new.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._loop = threading.get_ident()
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._new: deque[tuple[str, Call]] = deque()
        self._waiting: dict[int, tuple[str, Call, Future[Any]]] = {}
        # What holds in each part: by operator, method and name for values.
        self._accepted: defaultdict[str, dict[tuple[Any, ...], Call]] = defaultdict(dict)
        self._is_closed = False

    # From any thread.

    def call(self, part: str, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the process of a part; the result is None if the part ends before it answers."""
        answer: Future[Any] = Future()
        with self._lock:
            if self._is_closed:  # the run is over, and its operators with it
                answer.set_result(None)
                return answer
            call = Call(next(self._numbers), method, arguments)
            self._waiting[call.number] = part, call, answer
            self._new.append((part, call))
        self._wake()
        return answer

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the driver's loop, which brings the answers and so waits for none."""
        return threading.get_ident() == self._loop

    def set_value(self, operator: Any, method: str, name: str, value: Any) -> None:
        """Set a live parameter or a knob, and wait until the part has it; the driver's own loop does not wait."""
        try:
            content = pickle.dumps(value)
        except Exception as error:
            raise ParameterError(
                f"{method}({name!r}, ...) of operator {operator.name!r}: the value cannot be sent to the process "
                f"of its fragment: {error}"
            ) from error
        part = operator.fragment.name
        answer = self.call(part, SET_VALUE, operator.name, method, name, content)
        if self.is_here:
            return
        waits.wait_for_futures([answer])
        if (failure := answer.result()) is not None:
            raise failure.error(f"fragment {part!r}")

    # From the driver's loop.

    def take(self, alive: Container[str]) -> list[tuple[str, Call]]:
        """Return what is new, and where it goes; values for parts without links are sent when they have them."""
        found = [self._new.popleft() for _ in range(len(self._new))]
        for part, call in found:
            if part not in alive and call.method == _PROGRESS:
                self.answer(Reply(call.number))
        return [(part, call) for part, call in found if part in alive]

    def values_of(self, part: str) -> list[Call]:
        """Return what a part is told when it has its links, perhaps in the place of a lost one."""
        new = [call for _, call in self._new]  # which are sent next
        waiting = [call for of, call, _ in list(self._waiting.values()) if of == part and call not in new]
        held = [*self._accepted[part].values(), *(each for each in waiting if each.method != _PROGRESS)]
        return sorted(held, key=lambda call: call.number)

    def answer(self, reply: Reply) -> None:
        """Tell whoever waits what a call has returned."""
        with self._lock:
            part, call, answer = self._waiting.pop(reply.number, ("", None, None))
        if call is None or answer is None:  # a value that was sent once more
            return
        if call.method != _PROGRESS and reply.result is None:
            accepted, what = self._accepted[part], (call.method, *call.arguments[:-1])
            if what not in accepted or accepted[what].number < call.number:  # a pause may be answered late
                accepted[what] = call
        answer.set_result(reply.result)

    def leave(self, part: str, is_over: bool) -> None:
        """Wait for no answers of a process that is gone, and for none at all of a part that has ended."""
        for number, (of, call, _) in list(self._waiting.items()):
            if of == part and (is_over or call.method == _PROGRESS):
                self.answer(Reply(number))

    def close(self) -> None:
        """Let nobody wait any more: the run is over."""
        with self._lock:
            self._is_closed = True
        for number in list(self._waiting):
            self.answer(Reply(number))
