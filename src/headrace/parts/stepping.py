"""Stepping: pauses and steps of a program in parts, without processes and sockets.

A pause means all parts. A step of a named operator is sent to its part, and the others are paused. A step of any
operator is taken by the part in which an operator can begin first, so it is offered to all of them. A part whose
operator could begin asks for a step. It is granted one at a time, and says whether it was taken: an operator that
was ready may not be any more. When all steps are taken, all parts are paused again.

Every method returns what is to be sent to which part. Requests are numbered, because a part may say that it is
paused after it was asked for something else.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field

from headrace._runtime import TAKEN, WANTED
from headrace.core.control import OFFER, PAUSE, RESUME, STEP
from headrace.parts.control import Request

Messages = list[tuple[str, Request]]


@dataclass(slots=True)
class Stepping:
    """The pauses and steps of one run."""

    is_paused: bool = False
    """Whether the last request was to pause or to step."""
    _number: int = 0
    # The steps of any operator that no part was granted, the granted ones, and the parts that want one.
    _left: int = 0
    _granted: Counter[str] = field(default_factory=Counter)
    _asking: deque[str] = field(default_factory=deque)
    # The numbers of the last request to each part, and of the last one that each has carried out.
    _sent: dict[str, int] = field(default_factory=dict)
    _done: dict[str, int] = field(default_factory=dict)

    def request(self, kind: str, count: int, operator: str, part: str, alive: Collection[str]) -> Messages:
        """Pause, step or resume; `part` has the operator of a step."""
        if kind == RESUME:
            self.is_paused = False
            self._forget_steps()
            return self._send(alive, kind)
        self.is_paused = True
        if kind == STEP and not operator:
            self._left += count
            return self._send(alive, OFFER)
        others = [] if self._is_offering else [each for each in alive if each != part]
        step = self._send([part], kind, count, operator) if part in alive else []
        return [*step, *self._send(others, PAUSE)]

    def tell(self, part: str, what: str, alive: Collection[str]) -> Messages:
        """Handle that a part wants a step, or what has become of one."""
        if what == WANTED:
            if part not in self._asking and self._is_offering:
                self._asking.append(part)
        elif self._granted[part]:
            self._granted[part] -= 1
            self._left += what != TAKEN
            if not self._is_offering:
                self._forget_steps()
                return self._send(alive, PAUSE)
        return self._grant()

    def leave(self, part: str) -> Messages:
        """Handle that a part is gone; a step that it did not take is left for others."""
        self._left += self._granted.pop(part, 0)
        self._asking = deque(each for each in self._asking if each != part)
        self._sent.pop(part, None)
        return self._grant()

    def join(self, part: str) -> Messages:
        """Bring a part up to date that begins."""
        if not self.is_paused:
            return []
        return self._send([part], OFFER if self._is_offering else PAUSE)

    def note_paused(self, part: str, number: int) -> None:
        """Handle that a part has carried out a request: nothing computes there. Two of them may change places."""
        self._done[part] = max(number, self._done.get(part, 0))

    def is_quiet(self, alive: Collection[str]) -> bool:
        """Return whether all parts are paused, all steps are done, and nothing computes."""
        has_done = (self._done.get(part) == self._sent.get(part, 0) for part in alive)
        return self.is_paused and not self._is_offering and all(has_done)

    @property
    def _is_offering(self) -> bool:
        return self._left > 0 or self._granted.total() > 0

    def _forget_steps(self) -> None:
        self._left = 0
        self._granted.clear()
        self._asking.clear()

    def _grant(self) -> Messages:
        found: Messages = []
        while self._left and self._asking:
            part = self._asking.popleft()
            self._left -= 1
            self._granted[part] += 1
            found.append((part, Request(STEP, 1, "", self._sent.get(part, 0))))
        return found

    def _send(self, parts: Collection[str], kind: str, count: int = 0, operator: str = "") -> Messages:
        self._number += 1
        self._sent.update(dict.fromkeys(parts, self._number))
        return [(part, Request(kind, count, operator, self._number)) for part in parts]
