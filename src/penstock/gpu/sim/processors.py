"""The SMs of a simulated device, and the blocks that run on them.

The rules, each of them seen on an H200 (``benchmarks/agreement.py`` shows that they still hold):

* a block needs its threads and one block slot of one SM, and keeps them until it ends; a running block is
  never moved or preempted;
* grids are served in order of priority, then of arrival. The first takes all the room it can use, the next
  gets what is left over, so a grid of many waves holds back a later one of equal priority to its end;
* blocks go to the emptiest SMs first, and only to SMs of the grid's own context.

The cost of simulating must not grow with the number of blocks, so blocks are kept as *cohorts*: those of one
grid that started together and so end together. While the grid at the front of the line still has blocks to
place, whatever slots a cohort of its frees it takes again for its next blocks; nothing else changes. Such a
grid *cycles*, and its state at any later time is arithmetic.

Nor should the cost grow with the number of SMs. SMs with the same room left are kept together, as the bits of
one integer: filling all 132 of an idle device is one step, not 132.

Where streams contend, grids with blocks of different lengths break each other into many small cohorts, and
every end of a cohort is a change. Two things keep a change cheap:

* nobody outside can see it: only the end of a grid is told. So the changes are made in one go, up to a moment
  at which a grid may end (:meth:`Processors._run_to`), and the timeline is asked for that moment alone;
* nearly always the slots of one cohort go over to the grid at the front of the line as they are
  (:meth:`Processors._hand_over`).

Nothing here is approximate: every grid ends at the nanosecond at which it would if each block were simulated by
itself (``tests/gpu/sim/block_by_block.py`` does that). Decided against: taking blocks that end almost together to
end together. It makes fewer cohorts, but a block that ends late by a nanosecond can lose its slot to another
grid, and then everything after it differs.
"""

from bisect import insort
from collections.abc import Callable, Iterable

from penstock.gpu.sim.timeline import Timeline

SMs = int  # a set of SMs: bit i is SM i
_Room = tuple[int, int]  # threads and block slots free on an SM
_Share = tuple[SMs, int]  # so many blocks on each of these SMs


def sms_of(indices: Iterable[int]) -> SMs:
    """Return the set of SMs with these numbers."""
    sms = 0
    for index in indices:
        sms |= 1 << index
    return sms


def indices_of(sms: SMs) -> list[int]:
    """Return the numbers of the SMs in a set, in order."""
    return [index for index in range(sms.bit_length()) if sms >> index & 1]


class Grid:
    """The blocks of one launch."""

    __slots__ = (
        "cohorts",
        "ended",
        "first_block",
        "key",
        "left",
        "next_change",
        "on_end",
        "period",
        "resident",
        "sms",
        "threads",
        "used",
    )

    def __init__(
        self,
        *,
        blocks: int,
        threads: int,
        period: int,
        sms: SMs,
        priority: int,
        on_end: "Callable[[Grid], None]",
    ) -> None:
        self.left = blocks  # not yet placed
        self.resident = 0  # on SMs
        self.threads = threads
        self.period = max(period, 1)  # nanoseconds a block runs; a block of no time would end before it began
        self.sms = sms
        self.key: tuple[int, int] = (priority, 0)  # its place in line: by priority, then by arrival
        self.on_end = on_end
        # In the order in which they end, no two at one time. Those of a grid that cycles may lie in the past.
        self.cohorts: list[_Cohort] = []
        self.next_change = 0  # no later than the next end of a cohort that is more than cycling
        self.first_block = -1
        self.ended = -1
        self.used: SMs = 0  # where its blocks have run

    def catch_up(self, moment: int) -> None:
        """Bring a grid that cycles to where no cohort ends before a moment."""
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

    def add(self, blocks: int, shares: "list[_Share]", sms: SMs, now: int) -> None:
        """Begin blocks that were not yet placed, now."""
        self.left -= blocks
        self.resident += blocks
        self.used |= sms
        if self.first_block < 0:
            self.first_block = now
        end = now + self.period
        cohorts = self.cohorts
        if cohorts and cohorts[-1].end == end:
            last = cohorts[-1]
            last.blocks += blocks
            last.shares += shares
            last.sms |= sms
        else:
            cohorts.append(_Cohort(end, blocks, shares, sms))


class _Cohort:
    __slots__ = ("blocks", "end", "shares", "sms")

    def __init__(self, end: int, blocks: int, shares: list[_Share], sms: SMs) -> None:
        self.end = end
        self.blocks = blocks
        self.shares = shares
        self.sms = sms


class Processors:
    """All SMs of one device."""

    def __init__(self, timeline: Timeline, sm_count: int, threads_per_sm: int, blocks_per_sm: int) -> None:
        self.all_sms: SMs = (1 << sm_count) - 1
        # Told of every placement but those of grids that cycle: the grid, the time, and how many blocks went to
        # each of which SMs.
        self.on_place: Callable[[Grid, int, list[_Share]], None] | None = None
        self._timeline = timeline
        self._rooms: dict[_Room, SMs] = {(threads_per_sm, blocks_per_sm): self.all_sms}
        # Grids with blocks to place, in the order they are served. None of them has room anywhere.
        self._waiting: list[Grid] = []
        self._running: dict[Grid, None] = {}  # grids with blocks on SMs, in a stable order
        self._arrivals = 0
        self._visits: list[int] = []  # when this looks again, the earliest last

    def submit(self, grid: Grid) -> None:
        """Add a grid to the line, now. Blocks that end now make room for it, too."""
        self._arrivals += 1
        grid.key = (grid.key[0], self._arrivals)
        now = self._timeline.now
        self._run_to(now - 1)
        self._rearrange(now, grid)
        self._schedule_visit()

    def _visit(self) -> None:
        self._visits.pop()
        self._run_to(self._timeline.now)
        self._schedule_visit()

    def _schedule_visit(self) -> None:
        """Look again no later than a grid may end, unless that is to happen by then anyway."""
        if not self._running:
            return
        when = 0
        for grid in self._running:
            if not grid.left and (grid.cohorts[-1].end < when or not when):
                when = grid.cohorts[-1].end
        if self._waiting:
            # The last block of a grid in line is not placed before the next change.
            change = min([grid.next_change for grid in self._running])
            soonest = change + min([grid.period for grid in self._waiting])
            if soonest < when or not when:
                when = soonest
        if not self._visits or when < self._visits[-1]:
            self._visits.append(when)
            self._timeline.at(when, self._visit, last=True)

    def _run_to(self, moment: int) -> None:
        """Make every change up to and including a moment, one after the other."""
        while True:
            when = moment + 1
            changing: Grid | None = None
            together = False
            for grid in self._running:
                change = grid.next_change
                if change < when:
                    when = change
                    changing = grid
                    together = False
                elif change == when:
                    together = True
            if changing is None:
                return
            if together or not self._waiting or not self._hand_over(changing, when):
                self._rearrange(when)

    def _hand_over(self, grid: Grid, now: int) -> bool:
        """Give the slots of a grid's next cohort to another as they are; False if it is not that simple."""
        cohorts = grid.cohorts
        grid.catch_up(now)
        cohort = cohorts[0]
        sms = cohort.sms
        for taker in self._waiting:
            if taker.sms & sms:
                break
        else:
            return False
        if (
            taker.threads != grid.threads  # it may fit more often, or less
            or taker.left < cohort.blocks
            or sms & ~taker.sms
        ):
            return False
        if taker is not grid and taker.cohorts:
            taker.catch_up(now)
            if taker.left < cohort.blocks or taker.cohorts[0].end == now:
                return False
        # No grid in line had room, and blocks of one size take one another's: whatever was free is free still.
        del cohorts[0]
        grid.resident -= cohort.blocks
        if self.on_place is not None:
            self.on_place(taker, now, cohort.shares)
        taker.add(cohort.blocks, cohort.shares, sms, now)
        self._running[taker] = None
        if not taker.left:
            self._waiting.remove(taker)
        taker.next_change = self._next_change(taker)
        if taker is not grid:
            if cohorts:
                grid.next_change = self._next_change(grid)
            else:
                self._leave(grid, now)
        return True

    def _rearrange(self, now: int, arrived: Grid | None = None) -> None:
        """Free what ends now, and give the grids in line the room that there is."""
        freed = 0
        ended: list[Grid] = []
        for grid in self._running:
            if grid.cohorts[0].end > now:
                continue
            grid.catch_up(now)
            cohort = grid.cohorts[0]
            if cohort.end == now:
                freed |= cohort.sms
                for sms, blocks in cohort.shares:
                    self._free(sms, blocks, grid.threads)
                grid.resident -= cohort.blocks
                del grid.cohorts[0]
                if not grid.cohorts:
                    ended.append(grid)
        for grid in ended:
            self._leave(grid, now)
        if arrived is not None:
            insort(self._waiting, arrived, key=_place_in_line)
        if self._waiting:
            for grid in self._waiting:
                self._place(grid, grid.sms if grid is arrived else grid.sms & freed, now)
            self._waiting = [grid for grid in self._waiting if grid.left]
        for grid in self._running:
            grid.next_change = self._next_change(grid)

    def _leave(self, grid: Grid, now: int) -> None:
        """Take out a grid that has no block on any SM, and tell if that was its end."""
        del self._running[grid]
        if not grid.left:
            grid.ended = now
            grid.on_end(grid)

    def _place(self, grid: Grid, where: SMs, now: int) -> None:
        """Give a grid the room there is on some SMs."""
        if not where or not grid.left:
            return
        threads = grid.threads
        fits: list[tuple[int, SMs, _Room]] = []  # so many blocks more on each of these SMs
        total = 0
        for room, here in self._rooms.items():
            sms = here & where
            if not sms:
                continue
            blocks = room[0] // threads
            if blocks > room[1]:
                blocks = room[1]
            if blocks:
                fits.append((blocks, sms, room))
                total += blocks * sms.bit_count()
        if not total:
            return
        if total > grid.left:
            total = grid.left
            fits = _emptiest_first(fits, total)
        shares: list[_Share] = []
        used = 0
        for blocks, sms, room in fits:
            self._move(sms, room, (room[0] - blocks * threads, room[1] - blocks))
            shares.append((sms, blocks))
            used |= sms
        if self.on_place is not None:
            self.on_place(grid, now, shares)
        grid.add(total, shares, used, now)
        self._running[grid] = None

    def _free(self, sms: SMs, blocks: int, threads: int) -> None:
        found = [(room, here & sms) for room, here in self._rooms.items() if here & sms]
        for room, here in found:
            self._move(here, room, (room[0] + blocks * threads, room[1] + blocks))

    def _move(self, sms: SMs, old: _Room, new: _Room) -> None:
        rest = self._rooms[old] & ~sms
        if rest:
            self._rooms[old] = rest
        else:
            del self._rooms[old]
        self._rooms[new] = self._rooms.get(new, 0) | sms

    def _next_change(self, grid: Grid) -> int:
        """When one of this grid's cohorts next ends, but for ends at which it merely cycles.

        It is not counted exactly in which round the grid runs out of blocks: the last one is looked at cohort by
        cohort. A moment too early does no harm.
        """
        end = grid.cohorts[0].end
        if grid.left <= grid.resident or self._is_held_back(grid):
            return end
        return end + (grid.left - 1) // grid.resident * grid.period

    def _is_held_back(self, grid: Grid) -> bool:
        """Whether a grid ahead of this one waits for room that this one's blocks will free."""
        wanted = 0
        for ahead in self._waiting:
            if ahead is grid:
                break
            wanted |= ahead.sms
        if not wanted & grid.sms:
            return False
        return any(cohort.sms & wanted for cohort in grid.cohorts)


def _emptiest_first(fits: list[tuple[int, SMs, _Room]], blocks: int) -> list[tuple[int, SMs, _Room]]:
    """Spread fewer blocks than there is room for: the SMs with most room get theirs first."""
    low, high = 0, max(fit[0] for fit in fits)
    while low < high:  # find the lowest level to which the blocks can fill every SM
        level = (low + high) // 2
        if sum((fit - level) * sms.bit_count() for fit, sms, _ in fits if fit > level) <= blocks:
            high = level
        else:
            low = level + 1
    over = blocks - sum((fit - low) * sms.bit_count() for fit, sms, _ in fits if fit > low)
    level_sms = 0
    for fit, sms, _ in fits:
        if fit >= low:
            level_sms |= sms
    below = _first(level_sms, over)  # these take one more than the level
    spread: list[tuple[int, SMs, _Room]] = []
    for fit, sms, room in fits:
        if sms & below:
            spread.append((fit - low + 1, sms & below, room))
        if fit > low and sms & ~below:
            spread.append((fit - low, sms & ~below, room))
    return spread


def _first(sms: SMs, count: int) -> SMs:
    """Return the first so many SMs of a set, or all if there are fewer."""
    if count >= sms.bit_count():
        return sms
    low, high = 0, sms.bit_length()
    while low < high:  # find the shortest prefix that holds enough
        width = (low + high) // 2
        if (sms & ((1 << width) - 1)).bit_count() >= count:
            high = width
        else:
            low = width + 1
    return sms & ((1 << low) - 1)


def _place_in_line(grid: Grid) -> tuple[int, int]:
    return grid.key


def _end(cohort: _Cohort) -> int:
    return cohort.end
