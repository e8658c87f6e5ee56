"""The sets that a join forms, compared with plain definitions over whole streams: 100,000 random messages."""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable

import pytest

from headrace import aligned, at_rate, latest_within, reuse_last, substitute, window
from headrace.conditions.joiner import Entry, Joiner
from headrace.core.joins import Substitute
from tests.limits import examples
from tests.random_programs.join_sets import latest, nearest, tightest

# A message in these tests is its number in its input; a stream is a list of (key, time of arrival).
Stream = list[tuple[int, int]]


def join(streams: dict[str, Stream], rule, rules, chance: random.Random, ends=True):
    """Return the sets and the dropped messages of a join that is given the messages in a random order.

    Where time matters, the order is that of the arrivals; else it is only kept within each input. Messages are
    moved on in batches of random length, as they are for an operator that is busy now and then.
    """
    dropped: Counter = Counter()

    def report(name, reason, entry):
        dropped[name, entry.item] += 1
        reasons[reason] += 1

    def fail(name, key):
        raise LookupError((name, key))

    reasons: Counter = Counter()
    joiner = Joiner(list(streams), rule, rules, report, fail)
    order = [(name, number) for name, stream in streams.items() for number in range(len(stream))]
    if joiner.is_timed:
        order.sort(key=lambda each: streams[each[0]][each[1]][1])
    else:
        names = [name for name, _ in order]
        chance.shuffle(names)
        numbers = {name: itertools.count() for name in streams}
        order = [(name, next(numbers[name])) for name in names]
    last = 0
    for name, number in order:
        key, arrived = streams[name][number]
        if chance.random() < 0.3 and (not joiner.is_timed or arrived > last):
            joiner.advance(last)
        joiner.push(name, Entry(key, number, arrived if joiner.is_timed else 0))
        last = max(last, arrived)
    joiner.advance(last)
    if ends:
        for name in streams:
            joiner.end(name)
    joiner.advance(last + (1 if ends else 10**9))
    sets = [{name: _numbers(part) for name, part in joined.parts.items()} for joined in joiner.sets]
    for joined in joiner.sets:
        for part in joined.parts.values():
            for entry in part if isinstance(part, list) else [part]:
                if isinstance(entry, Entry):
                    entry.is_delivered = True
    joiner.sets.clear()
    joiner.give_up()
    used = {(name, number) for each in sets for name, part in each.items() for number in _each(part)}
    sent = {(name, number) for name, messages in streams.items() for number in range(len(messages))}
    assert dropped == Counter(sent - used)  # every message has one fate
    return sets, reasons


def _numbers(part):
    if isinstance(part, Substitute):
        return part.value
    return [entry.item for entry in part] if isinstance(part, list) else part.item


def _each(part):
    return part if isinstance(part, list) else [part] if isinstance(part, int) else []


def stream(chance: random.Random, length: int, spacing: int, disorder: int = 0) -> Stream:
    """Return random keys, with repetitions and gaps, out of order by up to `disorder`, and times of arrival."""
    keys = list(itertools.accumulate(chance.choice((0, 1, spacing, 2 * spacing)) for _ in range(length)))
    keys = [key - chance.randint(0, disorder) for key in keys]
    arrivals = itertools.accumulate(chance.choice((0, 1, 2 * spacing)) for _ in range(length))
    return list(zip(keys, arrivals, strict=True))


def streams(chance: random.Random, count: int = 2, length: int = 40, disorder: int = 0) -> dict[str, Stream]:
    names = ("left", "right", "depth")[:count]
    return {name: stream(chance, length, chance.randint(1, 12), disorder) for name in names}


def in_order(messages: Stream, lateness: int) -> list[tuple[int, int]]:
    """Return the keys and numbers of the messages that are not too late, in the order of keys."""
    newest = -math.inf
    kept = []
    for number, (key, _) in enumerate(messages):
        if key >= newest - lateness:
            kept.append((key, number))
        newest = max(newest, key)
    return sorted(kept, key=lambda each: each[0])


@pytest.mark.parametrize("inputs", [2, 3])
def test_aligned_sets_are_the_tightest(inputs: int) -> None:
    for seed in range(examples(240 if inputs == 2 else 150)):
        chance = random.Random(seed)
        given = streams(chance, inputs, length=75 if inputs == 2 else 40, disorder=chance.choice((0, 0, 15)))
        tolerance, lateness = chance.choice((0, 3, 10)), chance.choice((0, 15))
        sets, _ = join(given, aligned(tolerance, lateness=lateness), {}, chance)
        kept = {name: in_order(messages, lateness) for name, messages in given.items()}
        assert sets == tightest(kept, tolerance), f"seed {seed}"


def _follow(given, rule, rules, choose: Callable, seed, chance):
    """Compare the sets of a join whose messages at `left` are each given one of `right`."""
    sets, _ = join(given, rule, rules, chance)
    expected = [
        {"left": number, "right": other}
        for key, number in in_order(given["left"], 0)
        if (other := choose(key, number)) is not None
    ]
    assert sets == expected, f"seed {seed}"


def test_a_reference_gets_the_nearest_message_of_every_other_input() -> None:
    for seed in range(examples(40)):
        chance = random.Random(seed)
        given = streams(chance, length=125)
        tolerance = chance.choice((0, 3, 10))
        right = in_order(given["right"], 0)
        _follow(
            given,
            aligned(tolerance, reference="left"),
            {},
            lambda key, _, right=right, t=tolerance: nearest(right, key, t),
            seed,
            chance,
        )


def test_the_latest_message_is_the_one_as_of_the_key() -> None:
    for seed in range(examples(40)):
        chance = random.Random(seed)
        given = streams(chance, length=125)
        age = chance.choice((0, 3, 10))
        right = in_order(given["right"], 0)
        _follow(
            given,
            None,
            {"right": latest_within(age)},
            lambda key, _, right=right, age=age: latest(right, key, age),
            seed,
            chance,
        )


def test_a_wait_ends_at_its_time_however_late_the_messages_are_looked_at() -> None:
    for seed in range(examples(60)):
        chance = random.Random(seed)
        given = streams(chance, length=50)
        tolerance, wait = chance.choice((0, 3, 10)), chance.choice((0, 5, 20))
        arrived = {number: when for number, (_, when) in enumerate(given["left"])}

        def by_then(key, number, given=given, tolerance=tolerance, wait=wait, arrived=arrived):
            limit = arrived[number] + wait
            there = [each for each in in_order(given["right"], 0) if given["right"][each[1]][1] <= limit]
            return nearest(there, key, tolerance)

        _follow(given, aligned(tolerance, reference="left", wait=wait), {}, by_then, seed, chance)


def test_the_last_message_is_reused_up_to_its_age() -> None:
    for seed in range(examples(60)):
        chance = random.Random(seed)
        given = streams(chance, length=50)
        max_age = chance.choice((0, 5, 20, 10**6))
        sets, _ = join(given, None, {"right": reuse_last(max_age)}, chance, ends=False)
        times = [when for _, when in given["right"]]
        time, expected = 0, []
        for number, (_, when) in enumerate(given["left"]):
            time = max(time, when)
            at = bisect_right(times, time) - 1
            if at < 0 or time - times[at] > max_age:  # wait for the next one
                if at + 1 == len(times):
                    break
                time = times[at + 1]
                at = bisect_right(times, time) - 1
            expected.append({"left": number, "right": at})
        assert sets == expected, f"seed {seed}"


def test_windows_of_time_begin_at_multiples_of_their_step() -> None:
    for seed in range(examples(60)):
        chance = random.Random(seed)
        given = {"left": stream(chance, 75, 7, disorder=chance.choice((0, 15)))}
        length = chance.randint(1, 40)
        step = chance.randint(1, length)
        lateness = chance.choice((0, 15))
        rule = window(f"{length}ns", step=f"{step}ns", lateness=lateness)
        sets, _ = join(given, rule, {}, chance)
        kept = in_order(given["left"], lateness)
        first = (kept[0][0] - length) // step
        expected = [
            [number for key, number in kept if start <= key < start + length]
            for start in range(first * step, kept[-1][0] + 1, step)
        ]
        assert [each["left"] for each in sets] == [each for each in expected if each], f"seed {seed}"


def test_a_rate_takes_the_latest_of_every_input_at_multiples_of_its_period() -> None:
    for seed in range(examples(40)):
        chance = random.Random(seed)
        given = streams(chance, length=50)
        period, age = chance.randint(1, 20), chance.choice((5, 40))
        sets, _ = join(given, at_rate(period), dict.fromkeys(given, latest_within(age)), chance)
        kept = {name: in_order(messages, 0) for name, messages in given.items()}
        first = -(-max(messages[0][0] for messages in kept.values()) // period) * period
        end = max(messages[-1][0] for messages in kept.values())
        expected = [
            {name: latest(messages, tick, age) for name, messages in kept.items()}
            for tick in range(first, end + 1, period)
        ]
        assert sets == [each for each in expected if None not in each.values()], f"seed {seed}"


def test_the_first_set_within_the_tolerance_is_taken_at_once() -> None:
    for seed in range(examples(60)):
        chance = random.Random(seed)
        given = streams(chance, length=40)
        sets, _ = join(given, aligned(5, policy="first"), {}, chance)
        left, right = in_order(given["left"], 0), in_order(given["right"], 0)
        expected = []
        while left and right:
            if abs(left[0][0] - right[0][0]) <= 5:
                expected.append({"left": left.pop(0)[1], "right": right.pop(0)[1]})
            else:
                min(left, right, key=lambda messages: messages[0][0]).pop(0)
        assert sets == expected, f"seed {seed}"


def test_what_is_missing_is_substituted_or_an_error() -> None:
    chance = random.Random(1)
    given = {"left": [(0, 0), (50, 0)], "right": [(49, 0), (99, 0)]}
    sets, _ = join(given, aligned(5, reference="left", missing=substitute("none")), {}, chance)
    assert sets == [{"left": 0, "right": "none"}, {"left": 1, "right": 0}]
    for rule in (aligned(5, reference="left", missing="error"), aligned(5, missing="error")):
        with pytest.raises(LookupError):
            join(given, rule, {}, chance)


def test_each_drop_has_its_reason() -> None:
    chance = random.Random(1)
    # The pair of the first message comes after the wait for it, the third message after the fourth.
    given = {"left": [(0, 0), (100, 100), (90, 100)], "right": [(0, 30), (100, 100)]}
    sets, reasons = join(given, aligned(5, wait=20), {}, chance)
    assert sets == [{"left": 1, "right": 1}]
    assert reasons == {"unmatched": 1, "late": 1, "out of order": 1}


def test_no_message_of_a_group_waits_longer_than_it_may() -> None:
    for seed in range(examples(60)):
        chance = random.Random(seed)
        given = streams(chance, length=40)
        tolerance, wait = chance.choice((0, 3, 10)), chance.choice((0, 5, 20))
        rule = aligned(tolerance, wait=wait)
        joiner = Joiner(list(given), rule, {}, lambda *_: None, lambda *_: None)
        arrivals = sorted(
            (when, name, number)
            for name, messages in given.items()
            for number, (_, when) in enumerate(messages)
        )
        for time in range(arrivals[-1][0] + wait + 2):
            while arrivals and arrivals[0][0] == time:
                when, name, number = arrivals.pop(0)
                joiner.push(name, Entry(given[name][number][0], number, when))
            joiner.advance(time)
            waiting = [entry for buffer in joiner.buffers.values() for entry in buffer.entries[:1]]
            assert all(entry.arrived + wait >= time for entry in waiting), f"seed {seed}"
        stepped = [{name: _numbers(part) for name, part in each.parts.items()} for each in joiner.sets]
        for each in stepped:
            keys = [given[name][number][0] for name, number in each.items()]
            assert max(keys) - min(keys) <= tolerance
        # The same without looking at each moment, and without a wait where it is long enough.
        assert join(given, rule, {}, chance, ends=False)[0] == stepped, f"seed {seed}"
        patient = join(given, aligned(tolerance, wait=10**9), {}, chance)[0]
        assert patient == join(given, aligned(tolerance), {}, chance)[0]
