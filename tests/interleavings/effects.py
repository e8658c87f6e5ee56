"""Effects: which preemptions can make a difference, so that the others need not be run.

To preempt a thread before a line that the others take no notice of comes to the same as to preempt it after
that line. A line concerns the others if it writes what one of them uses, or reads what one of them writes; a
line that is run under the engine's lock concerns only those who go without it, since the others cannot run
meanwhile.

What a line reads and writes is taken from its bytecode, by name. A name stands for everything that has it, so
that too much is run rather than too little: ``.current`` is an attribute, ``queue`` is the content of what is
called so. What is run with the lock and what without it is learned from the runs. A preemption that was put off
is taken up again when a run shows that it matters.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import cache
from types import CodeType

from . import bindings
from .controller import Line

__all__ = ["Effects"]

_Schedule = tuple[tuple[int, str], ...]

_MUTATORS = frozenset(
    (
        *("add", "append", "appendleft", "clear", "discard", "extend", "insert"),
        *("pop", "popitem", "popleft", "remove", "setdefault", "update"),
    )
)


class Effects:
    """What is read and written, with the lock and without it, and the preemptions that were put off."""

    def __init__(self) -> None:
        self._lines: set[tuple[Line, bool]] = set()
        # By whether the lock is held. Time moves while others run.
        self._reads: dict[bool, set[str]] = {False: set(), True: set()}
        self._writes: dict[bool, set[str]] = {False: {".monotonic_ns", "perf_counter_ns"}, True: set()}
        self._put_off: dict[tuple[Line, bool], list[tuple[_Schedule, int]]] = {}
        # What is known of a line, as long as nothing new was learned.
        self._known: dict[tuple[Line, bool], bool] = {}

    def learn(self, lines: set[tuple[Line, bool]]) -> Iterator[tuple[_Schedule, int]]:
        """Learn from the lines that were run; yield what was put off and matters now."""
        new = lines - self._lines
        if not new:
            return
        self._lines |= new
        self._known.clear()
        for line, is_guarded in new:
            reads, writes = _effects_of(line)
            self._reads[is_guarded] |= reads
            self._writes[is_guarded] |= writes
        for here in [here for here in self._put_off if self._concerns(*here)]:
            yield from self._put_off.pop(here)

    def matters(self, here: tuple[Line, bool] | None, schedule: _Schedule, cost: int) -> bool:
        """Say whether it matters that a thread is preempted before a line; if not, put the schedule off."""
        if here is None:
            return True
        known = self._known.get(here)
        if known is None:
            known = self._known[here] = self._concerns(*here)
        if known:
            return True
        self._put_off.setdefault(here, []).append((schedule, cost))
        return False

    def _concerns(self, line: Line, is_guarded: bool) -> bool:
        reads, writes = _effects_of(line)
        for other in (False,) if is_guarded else (False, True):
            if reads & self._writes[other] or writes & self._reads[other] or writes & self._writes[other]:
                return True
        return False


def _effects_of(line: Line) -> tuple[frozenset[str], frozenset[str]]:
    code, number = line
    return _effects_in(code).get(number, (frozenset(), frozenset()))


@cache
def _effects_in(code: CodeType) -> dict[int, tuple[frozenset[str], frozenset[str]]]:
    """Return what each line of a function reads and writes, by name."""
    if code.co_name == "__init__":  # nobody else knows what is made there
        return {}
    found: dict[int, tuple[set[str], set[str]]] = {}
    line = code.co_firstlineno
    owner = code.co_qualname.rpartition(".")[0].rpartition(".")[2].lower()
    # What was loaded last: what an attribute or a method would be taken from.
    held = ""
    for instruction in dis.get_instructions(code):
        started = instruction.starts_line
        if started:
            line = started if type(started) is int else instruction.line_number  # type: ignore[attr-defined]
        reads, writes = found.setdefault(line, (set(), set()))
        kind, name = instruction.opname, instruction.argval
        is_attribute = kind in ("LOAD_ATTR", "LOAD_METHOD")
        if held and not is_attribute and kind not in ("STORE_ATTR", "DELETE_ATTR"):
            reads.add(held)  # it is used for what is in it
        if is_attribute and name in _MUTATORS:
            writes.add(held)
            held = ""
        elif is_attribute:
            reads.add(f".{name}")
            held = name
        elif kind in ("STORE_ATTR", "DELETE_ATTR"):
            writes.add(f".{name}")
            held = ""
        elif kind in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            writes |= {name for name in reads if not name.startswith(".")}
            held = ""
        else:
            held = name if kind.startswith(("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")) else ""
            if held == "self":
                held = owner  # a queue that changes itself is what others call `queue`
            if held in bindings.HIDDEN_WRITES:
                writes.add(bindings.HIDDEN_WRITES[held])
    return {line: (frozenset(reads), frozenset(writes)) for line, (reads, writes) in found.items()}
