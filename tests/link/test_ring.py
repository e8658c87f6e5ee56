"""Shared memory: bounded, and used again only when it came back."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.link.memory import Ring, Segment, Slot, find_shared, share
from tests.harness.files import open_files
from tests.limits import examples

MIB = 1 << 20


def test_both_mappings_show_the_same_bytes_and_no_descriptor_is_left() -> None:
    before = open_files()
    segment = Segment.create(100)
    other = Segment.from_peer(segment.fileno(), segment.size)
    other.memory[7] = 77
    assert segment.memory[7] == 77
    del segment, other
    assert not open_files() - before


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, 5000, 70_000, MIB, 3 * MIB, 9 * MIB]), st.booleans()), max_size=40)
)
def test_slots_in_use_never_overlap_and_stay_within_the_bound(steps: list[tuple[int, bool]]) -> None:
    ring = Ring(16 * MIB)
    taken: list[Slot] = []
    for length, gives_back in steps:
        if gives_back and taken:
            ring.give_back(taken.pop(len(taken) // 2))
        slot = ring.take(length)
        if slot is None:
            assert taken, "an empty ring holds any frame within its bound"
            continue
        assert len(slot.memory) >= length
        taken.append(slot)
        assert ring.size <= 16 * MIB
    reaches = sorted((slot.segment.address + slot.offset, len(slot.memory)) for slot in taken)
    for (start, size), (following, _) in pairwise(reaches):
        assert start + size <= following


def test_the_slot_that_came_back_last_is_used_first() -> None:
    ring = Ring(64 * MIB)
    slots = [ring.take(4 * MIB) for _ in range(3)]
    for slot in slots:
        assert slot is not None
        ring.give_back(slot)
    assert ring.take(4 * MIB) is slots[2]


def test_idle_memory_of_one_size_makes_room_for_another() -> None:
    ring = Ring(8 * MIB)
    slots = [ring.take(2 * MIB) for _ in range(4)]
    assert ring.take(2 * MIB) is None
    for slot in slots:
        assert slot is not None
        ring.give_back(slot)
    large = ring.take(7 * MIB)
    assert large is not None
    assert ring.size <= 8 * MIB
    assert not ring.can_hold(9 * MIB)


def test_memory_of_an_allocator_is_found_by_any_address_in_it() -> None:
    segment = Segment.create(8192)
    assert find_shared(segment.address, 10) is None
    share(segment)
    assert find_shared(segment.address, 8192) is segment
    assert find_shared(segment.address + 8000, 192) is segment
    assert find_shared(segment.address + 8000, 193) is None
    assert find_shared(segment.address - 1, 1) is None
