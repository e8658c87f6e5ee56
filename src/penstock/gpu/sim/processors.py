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
grid *cycles*, and its state at any later time is arithmetic. Only the moment at which it runs out of blocks,
or at which some other grid's arrival or end disturbs it, is worth a visit.

Nor should the cost grow with the number of SMs. SMs with the same room left are kept together, as the bits of
one integer: filling all 132 of an idle device is one step, not 132.
"""

from bisect import insort
from collections.abc import Callable, Iterable

from penstock.gpu.sim.timeline import Timeline

SMs = int  # a set of SMs: bit i is SM i
_Room = tuple[int, int]  # threads and block slots free on an SM
_Share = tuple[SMs, int]  # so many blocks on each of these SMs

# Streams that contend for long break each other's grids into ever smaller cohorts. So blocks of a grid that
# would end within 1/256 of their block time of each other are taken to end together, at the latest of their
# ends. That is the only thing here that is not exact: a block may run up to 0.4% longer than it says, never
# more, since the first end counts. Only blocks on different SMs are joined so: on one SM they would free room
# at once that really comes free piece by piece, and a big block that waits for room would get it too early.
_TOGETHER = 256


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
        "on_end",
        "period",
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
        self.threads = threads
        self.period = max(period, 1)  # nanoseconds a block runs; a block of no time would end before it began
        self.sms = sms
        self.key: tuple[int, int] = (priority, 0)  # its place in line: by priority, then by arrival
        self.on_end = on_end
        self.cohorts: list[_Cohort] = []  # in the order in which they end
        self.first_block = -1
        self.ended = -1
        self.used: SMs = 0  # where its blocks have run


class _Cohort:
    __slots__ = ("blocks", "end", "first_end", "shares", "sms")

    def __init__(self, end: int, blocks: int, shares: list[_Share], sms: SMs) -> None:
        self.first_end = end  # when the first of its blocks would have ended by itself
        self.end = end
        self.blocks = blocks
        self.shares = shares
        self.sms = sms


class Processors:
    """All SMs of one device."""

    def __init__(self, timeline: Timeline, sm_count: int, threads_per_sm: int, blocks_per_sm: int) -> None:
        self.all_sms: SMs = (1 << sm_count) - 1
        # Told of every placement: the grid, the time, and how many blocks went to each of which SMs.
        self.on_place: Callable[[Grid, int, list[_Share]], None] | None = None
        self._timeline = timeline
        self._rooms: dict[_Room, SMs] = {(threads_per_sm, blocks_per_sm): self.all_sms}
        self._waiting: list[Grid] = []  # grids with blocks to place, in the order they are served
        self._running: dict[Grid, None] = {}  # grids with blocks on SMs, in a stable order
        self._arrivals = 0
        self._visits: list[int] = []  # when this looks again, the earliest last

    def submit(self, grid: Grid) -> None:
        """Add a grid to the line, now."""
        self._arrivals += 1
        grid.key = (grid.key[0], self._arrivals)
        now = self._timeline.now
        self._settle(now)
        insort(self._waiting, grid, key=_place_in_line)
        self._place(now)
        self._schedule_visit()

    def _settle(self, now: int) -> None:
        """Bring every running grid up to this moment, and free what ends at it."""
        ended: list[Grid] = []
        for grid in self._running:
            cohorts = grid.cohorts
            if cohorts[0].end > now:
                continue
            if cohorts[0].end < now:
                self._catch_up(grid, now)
            over = 0
            for cohort in cohorts:
                if cohort.end > now:
                    break
                over += 1
                for sms, blocks in cohort.shares:
                    self._free(sms, blocks, grid.threads)
            del cohorts[:over]
            if not cohorts:
                ended.append(grid)
        for grid in ended:
            del self._running[grid]
            if not grid.left:
                grid.ended = now
                grid.on_end(grid)

    def _catch_up(self, grid: Grid, now: int) -> None:
        """Bring a grid past ends at which its blocks made way for its own next ones: it was cycling."""
        for cohort in grid.cohorts:
            if cohort.end >= now:
                break
            rounds = -((cohort.end - now) // grid.period)
            cohort.end += rounds * grid.period
            cohort.first_end = cohort.end  # its blocks began together this time
            grid.left -= rounds * cohort.blocks
        grid.cohorts.sort(key=_end)

    def _place(self, now: int) -> None:
        """Give the grids in line the room there is."""
        for grid in self._waiting:
            if not grid.left:  # it placed its last blocks while it cycled
                continue
            threads = grid.threads
            fits: list[tuple[int, SMs, _Room]] = []  # so many blocks more on each of these SMs
            total = 0
            for room, here in self._rooms.items():
                sms = here & grid.sms
                if not sms:
                    continue
                blocks = room[0] // threads
                if blocks > room[1]:
                    blocks = room[1]
                if blocks:
                    fits.append((blocks, sms, room))
                    total += blocks * sms.bit_count()
            if not total:
                continue
            if total > grid.left:
                total = grid.left
                fits = _emptiest_first(fits, total)
            shares: list[_Share] = []
            for blocks, sms, room in fits:
                self._move(sms, room, (room[0] - blocks * threads, room[1] - blocks))
                shares.append((sms, blocks))
                grid.used |= sms
            if grid.first_block < 0:
                grid.first_block = now
            if self.on_place is not None:
                self.on_place(grid, now, shares)
            grid.left -= total
            end = now + grid.period
            _add_blocks(grid, end, total, shares)
            self._running[grid] = None
        self._waiting = [grid for grid in self._waiting if grid.left]

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

    def _schedule_visit(self) -> None:
        """Look again at the next change, unless that is to happen by then anyway."""
        if not self._running:
            return
        when = min(map(self._next_change, self._running))
        if not self._visits or when < self._visits[-1]:
            self._visits.append(when)
            self._timeline.at(when, self._visit)

    def _visit(self) -> None:
        now = self._timeline.now
        self._visits.pop()
        self._settle(now)
        self._place(now)
        self._schedule_visit()

    def _next_change(self, grid: Grid) -> int:
        """When this grid next frees a slot for others, or for itself in a new pattern."""
        cohorts = grid.cohorts
        if not grid.left or self._is_held_back(grid):
            return cohorts[0].end
        rounds, left = divmod(grid.left, sum(cohort.blocks for cohort in cohorts))
        for cohort in cohorts:
            if left < cohort.blocks:
                return cohort.end + rounds * grid.period
            left -= cohort.blocks
        raise AssertionError("unreachable: what is left is less than all cohorts together")

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


def _add_blocks(grid: Grid, end: int, blocks: int, shares: list[_Share]) -> None:
    """Add blocks that begin now to a cohort that ends soon enough before them, or to one of their own."""
    cohorts = grid.cohorts
    sms = 0
    for here, _ in shares:
        sms |= here
    soonest = end - grid.period // _TOGETHER
    for place in range(len(cohorts) - 1, -1, -1):
        cohort = cohorts[place]
        if cohort.end < soonest:
            break
        if cohort.end == end or (cohort.first_end >= soonest and not cohort.sms & sms):
            del cohorts[place]  # it ends last now
            cohorts.append(cohort)
            cohort.end = end
            cohort.blocks += blocks
            cohort.shares += shares
            cohort.sms |= sms
            return
    cohorts.append(_Cohort(end, blocks, shares, sms))


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
