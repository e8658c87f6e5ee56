"""Joiner: which messages of several inputs belong together; a state machine that knows nothing of runs.

It is given messages with their keys and the times at which they arrived (`push`), and the time (`advance`). It
forms sets in order (`sets`), and reports every message that is in no set, with the reason. What it decides depends
on the keys, and on times only where a rule has a `wait` or an age by arrival. So the order in which messages of
different inputs are pushed does not matter, and neither does how late they are pushed after they arrived.

An input has a *floor*: no message below it will come. A message is *settled* when its key is not above the floor,
because nothing can come before it any more. Without `lateness`, the floor is the newest key. When the input has
ended, it is infinite. Everything is decided as soon as the floors allow it.

A message that is waited for is late if it comes after a time (`Joiner.end_of_wait`), which is the only place that
says when waiting ends. A wait for an input that had no room, because the operator was busy (`hold`), begins again
when there is room.

A set begins with a *trigger*: a message, an aligned group, a window or a time of a grid. Then each input that only
follows chooses its message for the key of the trigger, which is that of its newest message.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from headrace.core.joins import Aligned, AtRate, JoinRule, LatestWithin, ReuseLast, Substitute, Window

INFINITE = math.inf
_key_of = attrgetter("key")


@dataclass(eq=False, slots=True)
class Entry:
    """A message in a joiner.

    Attributes
    ----------
    number
        Its number in its queue.
    uses
        The number of sets that it is in.
    is_late
        Whether it came after its set was given up.
    is_delivered
        Whether it was received.
    """

    key: Any
    item: Any
    arrived: int
    number: int = 0
    uses: int = 0
    is_late: bool = False
    is_delivered: bool = False


class Buffer:
    """The messages of one input that may still be used, in the order of their keys.

    Attributes
    ----------
    floor
        No message with a smaller key will come.
    newest
        The largest key so far.
    given_up
        The key up to which messages were waited for in vain; those that come after all are late.
    held
        The times between which nothing could arrive, because there was no room.
    """

    __slots__ = ("_report", "entries", "floor", "given_up", "held", "lateness", "name", "newest")

    def __init__(self, name: str, lateness: Any, report: Callable[[str, str, Entry], None]) -> None:
        self.name = name
        self.lateness = lateness
        self.entries: list[Entry] = []
        self.floor: Any = -INFINITE
        self.newest: Any = -INFINITE
        self.given_up: Any = -INFINITE
        self.held: deque[tuple[int, int]] = deque()
        self._report = report

    def add(self, entry: Entry) -> None:
        """Add a message, unless it is out of order."""
        if entry.key < self.floor:
            self._report(self.name, "out of order", entry)
            return
        self.newest = max(self.newest, entry.key)
        self.floor = max(self.floor, entry.key - self.lateness)
        if self.entries and entry.key < self.entries[-1].key:
            insort(self.entries, entry, key=_key_of)
        else:
            self.entries.append(entry)

    def has_settled(self, position: int = 0) -> bool:
        """Return whether there is a message at a position, and nothing can come before it."""
        return position < len(self.entries) and self.entries[position].key <= self.floor

    def bound(self, position: int = 0) -> Any:
        """Return a key that the message at a position, now or later, is not below."""
        if position < len(self.entries):
            return min(self.entries[position].key, self.floor)
        return self.floor

    def take(self, position: int = 0) -> Entry:
        """Take a message into a set; the messages before it are in none."""
        self.drop(position)
        entry = self.entries.pop(0)
        entry.uses += 1
        return entry

    def drop(self, count: int = 1, reason: str = "unmatched") -> None:
        """Remove the first messages, and report those that are in no set."""
        gone = self.entries[:count]
        del self.entries[:count]
        for entry in gone:
            if not entry.uses:
                self._report(self.name, "late" if entry.is_late else reason, entry)


class JoinedSet(NamedTuple):
    """What an operator receives in one compute.

    Attributes
    ----------
    key, arrived
        The newest key of the trigger, and when the last of its messages arrived, or the time of a grid was reached.
    parts
        By input: a message, a list of messages, or what stands for a missing one.
    """

    key: Any
    arrived: int
    parts: dict[str, Entry | list[Entry] | Substitute]


class Joiner:
    """Forms sets of messages.

    Parameters
    ----------
    inputs
        The names of all inputs.
    rule
        The rule of the inputs that have none of their own; None if each message of the only one makes a set.
    rules
        The rules of inputs by name.
    report
        Called with an input, a reason and a message for each message that is in no set.
    fail
        Called with an input, the key and the newest message if a message is missing and that is an error.

    Attributes
    ----------
    sets
        The sets that were formed; the caller takes them.
    is_timed
        Whether decisions depend on the times at which messages arrive.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        rule: JoinRule | None,
        rules: Mapping[str, JoinRule],
        report: Callable[[str, str, Entry], None],
        fail: Callable[[str, Any], None],
    ) -> None:
        self.sets: deque[JoinedSet] = deque()
        self._report, self._fail = report, fail
        self._rule = rule
        lateness = 0 if rule is None else rule.lateness
        self.buffers = {
            name: Buffer(name, rules[name].lateness if name in rules else lateness, self._dropped)
            for name in inputs
        }
        triggers = [name for name in inputs if name not in rules]
        self._followers: dict[str, Follower] = {}
        for name, each in rules.items():
            if isinstance(each, LatestWithin):
                self._followers[name] = Latest(self.buffers[name], each, each.age)
            elif isinstance(each, ReuseLast):
                age = INFINITE if each.max_age is None else each.max_age
                self._followers[name] = Last(self.buffers[name], each, age)
        windows = [name for name, each in rules.items() if isinstance(each, Window)]
        self._trigger: Trigger
        self._trigger_rule = rules[windows[0]] if windows else rule
        if windows or isinstance(rule, Window):
            name = (windows or triggers)[0]
            chosen = self._trigger_rule
            assert isinstance(chosen, Window)
            kind = CountedWindows if chosen.is_counted else TimedWindows
            self._trigger = kind(self.buffers[name], chosen)
        elif isinstance(rule, AtRate):
            self._trigger = Grid([self.buffers[name] for name in inputs], rule.period)
        elif isinstance(rule, Aligned) and rule.reference is None:
            self._trigger = Group([self.buffers[name] for name in triggers], rule)
        else:
            reference = rule.reference if isinstance(rule, Aligned) else None
            name = reference or triggers[0]
            self._trigger = Each(self.buffers[name])
            if isinstance(rule, Aligned):
                for other in triggers:
                    if other != name:
                        self._followers[other] = Nearest(self.buffers[other], rule, rule.tolerance)
        rules_of_followers = [follower.rule for follower in self._followers.values()]
        self.is_timed = any(
            isinstance(each, ReuseLast) or (each is not None and each.wait is not None)
            for each in (*rules_of_followers, self._trigger_rule)
        )
        self._pending: JoinedSet | None = None
        self._now = 0

    def hold(self, name: str, begin: int, end: int) -> None:
        """Note that nothing could arrive at an input for some time; before what arrived after it is pushed."""
        held = self.buffers[name].held
        if held:
            begin = max(begin, held[-1][1])
        if begin < end:
            held.append((begin, end))

    @property
    def is_holding(self) -> bool:
        """Whether there are times at which nothing could arrive that may still count."""
        return any(buffer.held for buffer in self.buffers.values())

    def forget_held(self, oldest: int) -> None:
        """Forget what was noted of times before everything that waits; `oldest` is when the next push arrived."""
        waiting = [entry.arrived for buffer in self.buffers.values() for entry in buffer.entries]
        if self._pending is not None:
            waiting.append(self._pending.arrived)
        oldest = min(oldest, *waiting) if waiting else oldest
        for buffer in self.buffers.values():
            while buffer.held and buffer.held[0][1] <= oldest:
                buffer.held.popleft()

    def end_of_wait(self, since: int, wait: int, names: Iterable[str]) -> int:
        """Return the last time at which a message of some inputs still counts that is waited for since a time.

        Where an input had no room at the end of it, the wait begins again: what arrives there next may be older.
        """
        ends = []
        for name in names:
            end = since + wait
            for begin, over in self.buffers[name].held:
                if begin <= end < over:
                    end = over + wait
            ends.append(end)
        return max(ends)

    def push(self, name: str, entry: Entry) -> None:
        """Add a message; those that arrived before it were pushed before it."""
        if entry.arrived > self._now:
            self._pass_time(entry.arrived)
        buffer = self.buffers[name]
        entry.is_late = entry.key <= buffer.given_up
        buffer.add(entry)

    def advance(self, now: int) -> None:
        """Decide everything that what was pushed decides, and what waits that ended before `now` decide."""
        self._pass_time(max(now, self._now))
        self._settle()

    def is_over(self) -> bool:
        """Return whether no set can be formed any more, because all inputs have ended."""
        return not self.sets and all(
            buffer.floor == INFINITE and all(entry.uses for entry in buffer.entries)
            for buffer in self.buffers.values()
        )

    def take_set(self) -> JoinedSet | None:
        """Take the next set, or None if there is none."""
        return self.sets.popleft() if self.sets else None

    def end(self, name: str) -> None:
        """Note that no further message comes at an input; call `advance` next."""
        self.buffers[name].floor = INFINITE

    def deadline(self) -> int | None:
        """Return the last time at which a message that is waited for still counts, or None."""
        if self._pending is None:
            since, rule = self._trigger.oldest(), self._trigger_rule
            if since is None or rule is None or rule.wait is None:
                return None
            return self.end_of_wait(since, rule.wait, self._trigger.inputs)
        pending = self._pending
        return min(
            (
                self.end_of_wait(pending.arrived, follower.rule.wait, [name])
                for name, follower in self._followers.items()
                if name not in pending.parts and follower.rule.wait is not None
            ),
            default=None,
        )

    def give_up(self) -> None:
        """Report everything that waits as unfinished, because no set will be taken any more."""
        waiting = [*self.sets] if self._pending is None else [*self.sets, self._pending]
        self._pending = None
        self.sets.clear()
        for joined in waiting:
            for name, part in joined.parts.items():
                for entry in part if isinstance(part, list) else [part]:
                    if isinstance(entry, Entry) and not entry.is_delivered:
                        entry.is_delivered = True
                        self._report(name, "unfinished", entry)
        for buffer in self.buffers.values():
            buffer.drop(len(buffer.entries), "unfinished")

    def _pass_time(self, now: int) -> None:
        self._settle()
        while (deadline := self.deadline()) is not None and deadline < now:
            self._now = max(self._now, deadline)
            self._force()
            self._settle()
        self._now = now

    def _settle(self) -> None:
        """Form all sets that are decided."""
        while True:
            if self._pending is None:
                self._pending = self._trigger.find()
            if self._pending is None or not self._complete():
                break
        self._prune(self._trigger.bound() if self._pending is None else self._pending.key)

    def _complete(self, is_forced: bool = False) -> bool:
        """Choose the messages of the followers for the pending set; return whether they are all decided."""
        joined = self._pending
        assert joined is not None
        are_decided = True
        for name, follower in self._followers.items():
            if name in joined.parts:
                continue
            wait = follower.rule.wait
            is_over = (
                is_forced and wait is not None and self.end_of_wait(joined.arrived, wait, [name]) <= self._now
            )
            is_decided, entry = follower.choose(joined.key, self._now, is_over)
            if not is_decided:
                are_decided = False  # others may be decided, because their wait has ended
                continue
            if is_over:
                self._give_up(name, follower.reach(joined.key))
            if entry is None:
                missing = follower.rule.missing
                if missing == "error":
                    self._fail(name, joined.key)
                if not isinstance(missing, Substitute):
                    self._abandon(joined, name)
                    return True
                joined.parts[name] = missing
            else:
                entry.uses += 1
                joined.parts[name] = entry
        if not are_decided:
            return False
        self._prune(joined.key)
        self._pending = None
        self.sets.append(joined)
        return True

    def _prune(self, key: Any) -> None:
        for follower in self._followers.values():
            follower.prune(key)

    def _abandon(self, joined: JoinedSet, name: str) -> None:
        """Drop a set whose message of one input is missing."""
        self._pending = None
        for each, part in joined.parts.items():
            for entry in part if isinstance(part, list) else [part]:
                if isinstance(entry, Entry):
                    entry.uses -= 1
                    if not entry.uses and entry not in self.buffers[each].entries:
                        self._report(each, "unmatched", entry)
        if isinstance(self._trigger, Grid):
            self._trigger.skip(joined.key, self.buffers[name])
        self._prune(joined.key)

    def _force(self) -> None:
        """Decide what has waited long enough with what is there."""
        if self._pending is not None:
            self._complete(is_forced=True)
            return
        self._pending, key = self._trigger.force()
        for name in self.buffers:
            if name not in self._followers:
                self._give_up(name, key)

    def _give_up(self, name: str, key: Any) -> None:
        buffer = self.buffers[name]
        buffer.given_up = max(buffer.given_up, key)

    def _dropped(self, name: str, reason: str, entry: Entry) -> None:
        if reason == "unmatched" and isinstance(self._trigger, Group) and self._trigger.is_strict:
            self._fail("' or '".join(other for other in self.buffers if other != name), entry.key)
        self._report(name, reason, entry)


class Trigger:
    """What sets begin with: a subclass finds them in the messages of one input, or of several."""

    def __init__(self, *buffers: Buffer) -> None:
        self._buffers = buffers
        self._buffer = buffers[0]
        self.inputs = tuple(buffer.name for buffer in buffers)
        """The inputs whose messages it waits for."""

    def find(self) -> JoinedSet | None:
        """Return the next set if it is decided."""
        raise NotImplementedError

    def force(self) -> tuple[JoinedSet | None, Any]:
        """Decide about the oldest message with what is there; return the set, and the key up to which it counts."""
        return None, -INFINITE

    def bound(self) -> Any:
        """Return a key that no later set is below."""
        return max(buffer.bound() for buffer in self._buffers)

    def oldest(self) -> int | None:
        """Return when the oldest message that is not decided arrived, or None."""
        return min((entry.arrived for entry in self._buffer.entries), default=None)


class Each(Trigger):
    """Every message of one input."""

    def find(self) -> JoinedSet | None:
        """Return the next message that is settled; one that came after it was waited for is in no set."""
        buffer = self._buffer
        while buffer.entries and buffer.entries[0].is_late:
            buffer.drop()
        return self._next() if buffer.has_settled() else None

    def _next(self) -> JoinedSet:
        entry = self._buffer.take()
        return JoinedSet(entry.key, entry.arrived, {self._buffer.name: entry})

    def force(self) -> tuple[JoinedSet | None, Any]:
        """Return the first message."""
        joined = self._next()
        return joined, joined.key


class Group(Trigger):
    """One message of each input, all within a tolerance."""

    def __init__(self, buffers: list[Buffer], rule: Aligned) -> None:
        super().__init__(*buffers)
        self._tolerance = rule.tolerance
        self._is_first = rule.policy == "first"
        self.is_strict = rule.missing == "error"

    def find(self, is_forced: bool = False) -> JoinedSet | None:
        """Return the next set, as ROS's ApproximateTime chooses it."""
        buffers = self._buffers
        while True:
            if is_forced:
                bounds = [buffer.entries[0].key for buffer in buffers]
            else:
                bounds = [buffer.bound() for buffer in buffers]
            # A message is in no set if an input will have only messages that are too far after it.
            limit = max(bounds) - self._tolerance
            alone = [buffer for buffer in buffers if buffer.entries and buffer.entries[0].key < limit]
            for buffer in alone:
                buffer.drop()
            if not alone:
                break
            if is_forced:
                return None
        if not is_forced and not all(buffer.has_settled() for buffer in buffers):
            return None
        positions = [0] * len(buffers) if self._is_first else self._tightest(is_forced)
        if positions is None:
            return None
        found = [buffer.take(position) for buffer, position in zip(buffers, positions, strict=True)]
        parts: dict[str, Any] = {buffer.name: entry for buffer, entry in zip(buffers, found, strict=True)}
        return JoinedSet(max(e.key for e in found), max(e.arrived for e in found), parts)

    def _tightest(self, is_forced: bool) -> list[int] | None:
        """Return the positions of the set with the smallest span, or None if later messages may make a smaller one.

        The newest of the first messages is the pivot. Every set with the pivot that is worth a check consists of
        the first messages from some key on, up to that of the pivot. So advancing the oldest message, again and
        again, until it is the pivot, passes all of them.
        """
        buffers = self._buffers
        positions = [0] * len(buffers)
        keys = [buffer.entries[0].key for buffer in buffers]
        pivot = max(keys)
        best, span = list(positions), pivot - min(keys)
        while True:
            oldest = keys.index(min(keys))
            if keys[oldest] == pivot:
                return best
            position = positions[oldest] + 1
            buffer = buffers[oldest]
            is_there = buffer.has_settled(position) or (is_forced and position < len(buffer.entries))
            if is_there:
                keys[oldest] = buffer.entries[position].key
                positions[oldest] = position
                if max(keys) - min(keys) < span:
                    best, span = list(positions), max(keys) - min(keys)
                end = max(keys)
            else:
                end = INFINITE if is_forced else max(max(keys), buffer.bound(position))
            if end - pivot >= span:  # every further set begins at the pivot or before, and ends here or later
                return best
            if not is_there:
                return None

    def force(self) -> tuple[JoinedSet | None, Any]:
        """Form a set of what is there; if an input has nothing, drop the message that arrived first."""
        waiting = [buffer for buffer in self._buffers if buffer.entries]
        oldest = min(waiting, key=lambda buffer: buffer.entries[0].arrived)
        key = oldest.entries[0].key + self._tolerance
        if len(waiting) == len(self._buffers):
            return self.find(is_forced=True), key
        oldest.drop()
        return None, key

    def oldest(self) -> int | None:
        """Return when the oldest of the first messages arrived."""
        return min((buffer.entries[0].arrived for buffer in self._buffers if buffer.entries), default=None)


class CountedWindows(Trigger):
    """So many messages of one input, in order."""

    def __init__(self, buffer: Buffer, rule: Window) -> None:
        super().__init__(buffer)
        self._length, self._step = rule.length, rule.step

    def find(self) -> JoinedSet | None:
        """Return the next window if it is full, or the last one if the input has ended."""
        buffer = self._buffer
        if buffer.has_settled(self._length - 1):
            return self._next(self._length, self._step)
        if buffer.floor == INFINITE:
            return self.force()[0]
        return None

    def _next(self, length: int, step: int) -> JoinedSet:
        buffer = self._buffer
        found = buffer.entries[:length]
        for entry in found:
            entry.uses += 1
        buffer.drop(step)
        return _window(buffer, found)

    def force(self) -> tuple[JoinedSet | None, Any]:
        """Return the messages that are there as a window."""
        entries = self._buffer.entries
        if all(entry.uses for entry in entries):
            self._buffer.drop(len(entries))
            return None, -INFINITE
        return self._next(len(entries), len(entries)), -INFINITE

    def oldest(self) -> int | None:
        """Return when the first message that is in no window yet arrived."""
        return next((entry.arrived for entry in self._buffer.entries if not entry.uses), None)


class TimedWindows(Trigger):
    """The messages of one input between two times."""

    def __init__(self, buffer: Buffer, rule: Window) -> None:
        super().__init__(buffer)
        self._length, self._step = rule.length, rule.step
        self._start: Any = -INFINITE

    def find(self, is_forced: bool = False) -> JoinedSet | None:
        """Return the next window that is not empty, if no further message of it can come."""
        buffer = self._buffer
        while buffer.entries:
            first = buffer.entries[0]
            if first.key < self._start:
                buffer.drop(1, "late")
                continue
            # The first of all windows that contain the message, unless it is over.
            start = max(self._start, ((first.key - self._length) // self._step + 1) * self._step)
            end = start + self._length
            if not is_forced and buffer.floor < end:
                return None
            found = [entry for entry in buffer.entries if entry.key < end]
            for entry in found:
                entry.uses += 1
            self._start = start + self._step
            buffer.drop(sum(entry.key < self._start for entry in found))
            return _window(buffer, found)
        return None

    def force(self) -> tuple[JoinedSet | None, Any]:
        """Return the next window with what is there."""
        joined = self.find(is_forced=True)
        return joined, self._start - self._step + self._length


def _window(buffer: Buffer, found: list[Entry]) -> JoinedSet:
    return JoinedSet(found[-1].key, max(entry.arrived for entry in found), {buffer.name: found})


class Grid(Trigger):
    """The multiples of a period; only its followers are waited for."""

    def __init__(self, buffers: list[Buffer], period: Any) -> None:
        super().__init__(*buffers)
        self._period = period
        self._next: Any = None

    def find(self) -> JoinedSet | None:
        """Return the next time that any input has reached."""
        if self._next is None:
            if not all(buffer.has_settled() for buffer in self._buffers):
                return None
            self._next = self._from(max(buffer.entries[0].key for buffer in self._buffers))
        if self._next > max(buffer.newest for buffer in self._buffers):
            return None
        tick = self._next
        self._next = tick + self._period
        reached = (entry.arrived for buffer in self._buffers for entry in buffer.entries if entry.key >= tick)
        return JoinedSet(tick, min(reached), {})

    def _from(self, key: Any) -> Any:
        return -(-key // self._period) * self._period

    def skip(self, tick: Any, buffer: Buffer) -> None:
        """Skip the times up to the next message of an input that had none at `tick`."""
        later = next((entry.key for entry in buffer.entries if entry.key > tick), self._next)
        self._next = max(self._next, self._from(later))

    def bound(self) -> Any:
        """Return the next time."""
        return -INFINITE if self._next is None else self._next

    def oldest(self) -> int | None:
        """Return None."""
        return None


class Follower:
    """Which message an input gives for the key of a trigger: one that is within a distance of it."""

    def __init__(self, buffer: Buffer, rule: JoinRule, distance: Any) -> None:
        self._buffer = buffer
        self.rule = rule
        self._distance = distance

    def choose(self, key: Any, now: int, is_forced: bool) -> tuple[bool, Entry | None]:
        """Return whether the message is decided, and the message, if there is one."""
        raise NotImplementedError

    def prune(self, key: Any) -> None:
        """Remove messages that are farther from this key and every later one than another one is, or too far."""
        entries = self._buffer.entries
        limit = max((entry.key for entry in entries if entry.key <= key), default=key)
        limit = max(limit, key - self._distance) if key > -INFINITE else -INFINITE
        self._buffer.drop(sum(entry.key < limit for entry in entries))

    def reach(self, key: Any) -> Any:
        """Return the largest key of a message that could belong to `key`."""
        return key


class Nearest(Follower):
    """The message nearest to the key; of two that are equally near, the older one."""

    def choose(self, key: Any, now: int, is_forced: bool) -> tuple[bool, Entry | None]:
        """Return the nearest message when no nearer one can come."""
        buffer = self._buffer
        best: Entry | None = None
        settled = 0
        for entry in buffer.entries:
            if entry.key > buffer.floor and not is_forced:
                break
            settled += 1
            if best is None or abs(entry.key - key) < abs(best.key - key):
                best = entry
        if best is not None and abs(best.key - key) > self._distance:
            best = None
        ahead = INFINITE if is_forced else buffer.bound(settled) - key
        is_decided = ahead > self._distance or (best is not None and ahead >= abs(best.key - key))
        return is_decided, best

    def reach(self, key: Any) -> Any:
        """Return the key and the tolerance."""
        return key + self._distance


class Latest(Follower):
    """The newest message that is not after the key."""

    def choose(self, key: Any, now: int, is_forced: bool) -> tuple[bool, Entry | None]:
        """Return the newest message up to the key when no newer one can come."""
        buffer = self._buffer
        best = None
        for entry in buffer.entries:
            if entry.key > key:
                break
            if entry.key >= key - self._distance:
                best = entry
        return is_forced or buffer.floor > key, best


class Last(Follower):
    """The message that arrived last; the distance is that of times."""

    def choose(self, key: Any, now: int, is_forced: bool) -> tuple[bool, Entry | None]:
        """Return the last message, unless it is too old."""
        entries = self._buffer.entries
        last = entries[-1] if entries and now - entries[-1].arrived <= self._distance else None
        return is_forced or last is not None, last

    def prune(self, key: Any) -> None:
        """Remove all messages but the last."""
        self._buffer.drop(len(self._buffer.entries) - 1, "superseded")

    def reach(self, key: Any) -> Any:
        """Return a key below all others: it has no message for a certain key."""
        return -INFINITE
