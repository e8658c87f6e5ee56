"""The SMs of a simulated device, and the blocks that run on them.

The model follows these rules, each observed on an H200 (``benchmarks/agreement.py`` checks them):

* A block occupies its threads and one block slot of one SM until it ends. A running block is never moved or
  preempted.
* Grids are served by priority, then by arrival. The first grid takes all the room it can use, and the next grid
  gets the rest. A grid of many waves thus delays a later grid of the same priority until it ends.
* Blocks go to the emptiest SMs first, and only to SMs of the grid's context.

The cost of the simulation must not grow with the number of blocks. Blocks are therefore kept in *cohorts*: the
blocks of one grid that started together and so end together. While the first grid in the queue still has blocks
to place, it reuses the slots that its own cohorts free, and nothing else changes. Such a grid *cycles*, and its
state at any later time can be computed directly.

The cost must not grow with the number of SMs either. SMs with the same free room are kept together, as the bits
of one integer: filling all 132 SMs of an idle device is one step, not 132.

When streams contend, grids with blocks of different durations split each other into many small cohorts, and every
end of a cohort is a change. Changes are invisible outside, except for the end of a grid. Several changes are
therefore made at once, up to the time at which a grid may end (:meth:`Processors._run_to`), and only that time is
scheduled on the timeline. Nearly always the slots of one cohort pass unchanged to the first grid in the queue
(:meth:`Processors._hand_over`).

The model is exact: every grid ends at the same nanosecond as if each block were simulated by itself, as
``tests/gpu/sim/block_by_block.py`` does. A rejected alternative is to treat blocks that end almost at the same time
as ending together. That would create fewer cohorts, but a block that ends a nanosecond late can lose its slot to
another grid, and everything after it then differs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from headrace.gpu.sim.timeline import Timeline

SMs = int  # a set of SMs: bit i is SM i
_Room = tuple[int, int]  # free threads and free block slots of an SM
_Share = tuple[SMs, int]  # a set of SMs, and the number of blocks on each of them
_service_order, _end = attrgetter("key"), attrgetter("end")


def sms_of(indices: Iterable[int]) -> SMs:
    """Return the set of SMs with these numbers."""
    return sum(1 << index for index in set(indices))


def indices_of(sms: SMs) -> list[int]:
    """Return the numbers of the SMs in a set, in ascending order."""
    return [index for index in range(sms.bit_length()) if sms >> index & 1]


@dataclass(slots=True, eq=False)
class Grid:
    """The blocks of one launch."""

    left: int  # blocks that are not yet placed
    threads: int
    period: int  # nanoseconds that a block runs; at least 1, so that it ends after it begins
    sms: SMs
    key: tuple[int, int]  # the order of service: by priority, then by arrival
    on_end: Callable[[Grid], None]
    resident: int = 0  # blocks on SMs
    # In the order of their ends, which differ. The ends of a cycling grid may lie in the past.
    cohorts: list[_Cohort] = field(default_factory=list)
    next_change: int = 0  # no later than the next end of a cohort that does more than cycle
    first_block: int = -1
    ended: int = -1
    used: SMs = 0  # the SMs that its blocks have run on

    def __post_init__(self) -> None:
        self.period = max(self.period, 1)

    def catch_up(self, moment: int) -> None:
        """Advance a grid that cycles until none of its cohorts ends before a time."""
        if self.cohorts[0].end >= moment:
            return
        period = self.period
        for cohort in self.cohorts:
            if cohort.end >= moment:
                break
            rounds = -((cohort.end - moment) // period)
            cohort.end += rounds * period
            self.left -= rounds * cohort.blocks
        self.cohorts.sort(key=_end)

    def add(self, cohort: _Cohort, now: int) -> None:
        """Start unplaced blocks now, which become a cohort of this grid."""
        self.left -= cohort.blocks
        self.resident += cohort.blocks
        self.used |= cohort.sms
        if self.first_block < 0:
            self.first_block = now
        cohort.end = now + self.period
        cohorts = self.cohorts
        if cohorts and cohorts[-1].end == cohort.end:
            last = cohorts[-1]
            last.blocks += cohort.blocks
            last.shares += cohort.shares
            last.sms |= cohort.sms
        else:
            cohorts.append(cohort)


@dataclass(slots=True, eq=False)
class _Cohort:
    blocks: int
    shares: list[_Share]
    sms: SMs
    end: int = 0


class Processors:
    """All SMs of one device."""

    def __init__(self, timeline: Timeline, sm_count: int, threads_per_sm: int, blocks_per_sm: int) -> None:
        self.all_sms: SMs = (1 << sm_count) - 1
        # Called for every placement, except placements of cycling grids, with the grid, the time, and the number of
        # blocks on each SM.
        self.on_place: Callable[[Grid, int, list[_Share]], None] | None = None
        self._timeline = timeline
        self._rooms: dict[_Room, SMs] = {(threads_per_sm, blocks_per_sm): self.all_sms}
        # Grids with blocks to place, in the order of service. None of them fits anywhere now.
        self._waiting: list[Grid] = []
        self._running: dict[Grid, None] = {}  # grids with blocks on SMs, in a stable order
        self._arrivals = 0
        self._updates: list[int] = []  # the scheduled updates, the earliest last

    def submit(self, grid: Grid) -> None:
        """Add a grid to the queue now. Blocks that end now make room for it."""
        self._arrivals += 1
        grid.key = (grid.key[0], self._arrivals)
        now = self._timeline.now
        self._run_to(now - 1)
        self._rearrange(now, grid)
        self._schedule_update()

    def _update(self) -> None:
        self._updates.pop()
        self._run_to(self._timeline.now)
        self._schedule_update()

    def _schedule_update(self) -> None:
        """Schedule an update for the earliest time at which a grid may end, unless one is scheduled by then."""
        if not self._running:
            return
        ends = [grid.cohorts[-1].end for grid in self._running if not grid.left]
        if self._waiting:
            # The last block of a waiting grid is not placed before the next change.
            change = min([grid.next_change for grid in self._running])
            ends.append(change + min([grid.period for grid in self._waiting]))
        when = min(ends)
        if not self._updates or when < self._updates[-1]:
            self._updates.append(when)
            self._timeline.call_at(when, self._update, last=True)

    def _run_to(self, moment: int) -> None:
        """Apply every change up to and including a time, in order."""
        while True:
            when, changing, is_alone = moment + 1, None, True
            for grid in self._running:
                if grid.next_change < when:
                    when, changing, is_alone = grid.next_change, grid, True
                elif grid.next_change == when:
                    is_alone = False
            if changing is None:
                return
            if not is_alone or not self._waiting or not self._hand_over(changing, when):
                self._rearrange(when)

    def _hand_over(self, grid: Grid, now: int) -> bool:
        """Pass the slots of a grid's next cohort to another grid unchanged; return False if that fails.

        If 8 streams contend, a kernel of 1,000 blocks takes 0.3 ms to simulate, and 3.4 ms without this
        (``benchmarks/simulate.py``). A kernel takes a hundred such steps, so they call little.
        """
        grid.catch_up(now)
        cohort = grid.cohorts[0]
        for taker in self._waiting:
            if taker.sms & cohort.sms:
                break
        else:
            return False
        # More or fewer of its blocks may fit, or fit elsewhere.
        if taker.threads != grid.threads or cohort.sms & ~taker.sms:
            return False
        if taker is not grid and taker.cohorts:
            taker.catch_up(now)
            if taker.cohorts[0].end == now:
                return False
        if taker.left < cohort.blocks:
            return False
        # No waiting grid fitted anywhere, and the blocks have one size: the free room stays the same.
        del grid.cohorts[0]
        grid.resident -= cohort.blocks
        self._start(taker, cohort, now)
        if not taker.left:
            self._waiting.remove(taker)
        taker.next_change = self._next_change(taker)
        if not grid.cohorts:
            self._leave(grid, now)
        elif taker is not grid:
            grid.next_change = self._next_change(grid)
        return True

    def _rearrange(self, now: int, arrived: Grid | None = None) -> None:
        """Free the slots of blocks that end now, and place the blocks of waiting grids."""
        freed = 0
        for grid in list(self._running):
            if grid.cohorts[0].end > now:
                continue
            grid.catch_up(now)
            if grid.cohorts[0].end > now:
                continue
            cohort = grid.cohorts.pop(0)
            freed |= cohort.sms
            for sms, blocks in cohort.shares:
                self._free(sms, blocks, grid.threads)
            grid.resident -= cohort.blocks
            if not grid.cohorts:
                self._leave(grid, now)
        if arrived is not None:
            insort(self._waiting, arrived, key=_service_order)
        for grid in self._waiting:
            if where := grid.sms if grid is arrived else grid.sms & freed:
                self._place(grid, where, now)
        self._waiting = [grid for grid in self._waiting if grid.left]
        for grid in self._running:
            grid.next_change = self._next_change(grid)

    def _leave(self, grid: Grid, now: int) -> None:
        """Remove a grid that has no block on any SM, and report its end if all of its blocks have run."""
        del self._running[grid]
        if not grid.left:
            grid.ended = now
            grid.on_end(grid)

    def _place(self, grid: Grid, where: SMs, now: int) -> None:
        """Place as many blocks of a grid as fit on the given SMs: on the emptiest first, of these on the lowest."""
        shares: list[_Share] = []
        left, used = grid.left, 0
        fits: dict[int, SMs] = {0: 0}  # the SMs on each of which so many more blocks fit
        for (threads, slots), here in self._rooms.items():
            if here & where:
                fit = min(threads // grid.threads, slots)
                fits[fit] = fits.get(fit, 0) | (here & where)
        while left and (most := max(fits)):
            # All of them down to the next level or, if there are too few blocks for that, as far as they go.
            sms = fits.pop(most)
            blocks = min(most - max(fits), left // sms.bit_count())
            if not blocks:
                blocks, sms = 1, _lowest(sms, left)
            self._free(sms, -blocks, grid.threads)
            fits[most - blocks] = fits.get(most - blocks, 0) | sms
            shares.append((sms, blocks))
            used |= sms
            left -= blocks * sms.bit_count()
        if shares:
            self._start(grid, _Cohort(grid.left - left, shares, used), now)

    def _start(self, grid: Grid, cohort: _Cohort, now: int) -> None:
        if self.on_place is not None:
            self.on_place(grid, now, cohort.shares)
        grid.add(cohort, now)
        self._running[grid] = None

    def _free(self, sms: SMs, blocks: int, threads: int) -> None:
        """Free the room of that many blocks on each of the SMs, or take it if the number is negative."""
        rooms = self._rooms
        for room, part in [(room, here & sms) for room, here in rooms.items() if here & sms]:
            rooms[room] ^= part
            if not rooms[room]:
                del rooms[room]
            changed = (room[0] + blocks * threads, room[1] + blocks)
            rooms[changed] = rooms.get(changed, 0) | part

    def _next_change(self, grid: Grid) -> int:
        """Return the next end of one of this grid's cohorts, except for ends at which the grid only cycles.

        The round in which the grid runs out of blocks is not computed exactly: the last round is processed cohort
        by cohort. A time that is too early is harmless.
        """
        end = grid.cohorts[0].end
        if grid.left <= grid.resident or self._is_held_back(grid):
            return end
        return end + (grid.left - 1) // grid.resident * grid.period

    def _is_held_back(self, grid: Grid) -> bool:
        """Return whether a grid ahead of this one waits for room that the blocks of this one will free."""
        wanted = 0
        for ahead in self._waiting:
            if ahead is grid:
                break
            wanted |= ahead.sms
        if not wanted & grid.sms:
            return False
        return any(cohort.sms & wanted for cohort in grid.cohorts)


def _lowest(sms: SMs, count: int) -> SMs:
    """Return the lowest ``count`` SMs of a set that has more."""
    width = bisect_left(
        range(sms.bit_length()), count, key=lambda width: (sms & ((1 << width) - 1)).bit_count()
    )
    return sms & ((1 << width) - 1)
