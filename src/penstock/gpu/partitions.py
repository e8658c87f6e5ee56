"""Slices of a GPU: disjoint, unequal partitions of its SMs, each a green context.

Drivers differ in what they split. From 13.1 on they give each group its own count. Before that all groups of
a split have one size and cannot be split further; but a context may be built from several groups, so a split
into the smallest groups the device has, dealt out, gives unequal partitions on every driver since 12.4. Where
the counts asked for are equal, the driver's own split is tried first: it wastes less.

Whatever is left over is a partition too. Nothing is cut twice: the driver does not notice when two contexts
are built from the same group, which then share its SMs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from penstock.gpu.simulated import is_simulated

LEFTOVER = "leftover"


class PartitionError(ValueError):
    """A partition that the device cannot give; the text says what it can."""


class PartitionRounded(UserWarning):
    """A partition was given more SMs than were asked for, the fewest that the device has groups for."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one partition asked for and what it gets; the leftover asked for nothing."""

    name: str
    requested: int
    sm_count: int

    def __str__(self) -> str:
        rounded = self.requested and self.requested != self.sm_count
        return f"{self.name}: {self.sm_count} SMs" + (f" ({self.requested} asked for)" if rounded else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """How a device would be divided.

    Attributes
    ----------
    group_size : int
        How many SMs the device schedules together; before CUDA 13.1 partitions are made of whole groups.
    shares : tuple of Share
        One for each partition asked for, in order; last, if any SMs are over, one named ``leftover``.
    """

    device_name: str
    sm_count: int
    group_size: int
    shares: tuple[Share, ...]

    def __getitem__(self, key: int | str) -> Share:
        return self.shares[key] if isinstance(key, int) else _by_name(self.shares, key)

    def __iter__(self) -> Iterator[Share]:
        return iter(self.shares)

    def __len__(self) -> int:
        return len(self.shares)

    def __str__(self) -> str:
        width = max(len(share.name) for share in self.shares)
        lines = [f"{self.device_name}: {self.sm_count} SMs, in groups of {self.group_size}"]
        for share in self.shares:
            bar = "█" * max(1, round(share.sm_count * 40 / self.sm_count))
            asked = f"  ({share.requested} asked for)" if share.requested not in (0, share.sm_count) else ""
            lines.append(f"  {share.name:<{width}}  {share.sm_count:>4}  {bar}{asked}")
        return "\n".join(lines)


class Partition:
    """Some SMs of a device, and the green context that work on them belongs to.

    Attributes
    ----------
    name : str
        What it was called; its position, if it was given no name.
    requested, sm_count : int
        How many SMs were asked for, and how many it really has, by the driver's own count.
    context : Context
        Its green context.
    """

    def __init__(self, name: str, requested: int, context: Any) -> None:
        self.name = name
        self.requested = requested
        self.context = context
        self.sm_count: int = context.resources.sm.sm_count
        self._streams: list[Any] = []

    def create_stream(self, options: Any = None) -> Any:
        """Create a stream whose work runs on these SMs only; it closes with the partition."""
        stream = self.context.create_stream(options)
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        """Wait for the work on the streams made here, then close the context and them.

        A context that is current is refused: then everything stays open, and it can be closed again later. An
        error of a stream's work keeps nothing open; the first is raised at the end.
        """
        errors: list[Exception] = []

        def attempt(call: Callable[[], object]) -> None:
            try:
                call()
            except Exception as error:
                errors.append(error)

        for stream in self._streams:
            if not stream.is_closed:
                attempt(stream.sync)
        if not self.context.is_closed:
            self.context.close()  # before its streams, which outlive it: if it is refused, they are whole
        while self._streams:
            attempt(self._streams.pop().close)
        if errors:
            raise errors[0]

    def __repr__(self) -> str:
        return f"<Partition {Share(self.name, self.requested, self.sm_count)}>"


class Partitions(Sequence[Partition]):
    """The partitions of a device, by position or by name; a context manager that closes them."""

    def __init__(self, plan: Plan, partitions: list[Partition]) -> None:
        self.plan = plan
        self._partitions = partitions

    @property
    def leftover(self) -> Partition | None:
        """The partition of what nobody asked for, or None if nothing is over."""
        last = self._partitions[-1] if self._partitions else None
        return last if last is not None and last.name == LEFTOVER else None

    @overload
    def __getitem__(self, key: int | str) -> Partition: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Partition]: ...
    def __getitem__(self, key: int | str | slice) -> Partition | Sequence[Partition]:
        if not self._partitions and not isinstance(key, slice):
            kind = KeyError if isinstance(key, str) else IndexError
            raise kind(f"the partitions of {self.plan.device_name} have been closed")
        return _by_name(self._partitions, key) if isinstance(key, str) else self._partitions[key]

    def __len__(self) -> int:
        return len(self._partitions)

    def __enter__(self) -> Partitions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every partition, the newest first; work under way is waited for.

        An error while closing one does not keep the others open; the first is raised at the end. One that was
        refused because it is current stays here, to be closed again.
        """
        errors: list[Exception] = []
        for partition in reversed(self._partitions):
            try:
                partition.close()
            except Exception as error:
                errors.append(error)
        self._partitions = [partition for partition in self._partitions if not partition.context.is_closed]
        if errors:
            raise errors[0]

    def __repr__(self) -> str:
        return f"<Partitions {', '.join(map(str, self.plan))}>"


Request = Sequence[int] | Mapping[str, int]


@overload
def partition(
    device: Any,
    request: Request,
    *,
    exact: bool = False,
    dry_run: Literal[False] = False,
    sharing_scope: str | None = None,
    concurrency_limit: int | None = None,
) -> Partitions: ...
@overload
def partition(
    device: Any,
    request: Request,
    *,
    exact: bool = False,
    dry_run: Literal[True],
    sharing_scope: str | None = None,
    concurrency_limit: int | None = None,
) -> Plan: ...
def partition(
    device: Any,
    request: Request,
    *,
    exact: bool = False,
    dry_run: bool = False,
    sharing_scope: str | None = None,
    concurrency_limit: int | None = None,
) -> Partitions | Plan:
    """Divide a device's SMs into disjoint partitions.

    Parameters
    ----------
    device : Device
        Real or simulated, with a driver for CUDA 12.4 or newer.
    request : sequence of int, or mapping of names to int
        How many SMs each partition should have: ``[16, 40]`` or ``{"control": 16, "vision": 40}``. A count
        that the device has no groups for is rounded up to one it has, with a :class:`PartitionRounded`
        warning.
    exact : bool
        Refuse instead of rounding up.
    dry_run : bool
        Make nothing; return the plan.
    sharing_scope, concurrency_limit : optional
        How each partition's work reaches the device, on drivers from 13.1 on
        (:class:`~penstock.gpu.WorkqueueResourceOptions`).

    Returns
    -------
    Partitions or Plan
        The partitions asked for, in order, and last the ``leftover`` one if any SMs are over.

    Raises
    ------
    PartitionError
        If the device cannot give what was asked for.

    Examples
    --------
    >>> with gpu.partition(device, {"control": 16, "vision": 40}) as parts:
    ...     stream = parts["control"].create_stream()
    """
    names, counts = _read(request)
    sm = device.resources.sm
    group_size: int = sm.coscheduled_alignment
    layout = _lay_out(device, counts, dry_run=dry_run)
    shares = [
        Share(name, count, _total(pieces))
        for name, count, pieces in zip(names, counts, layout.pieces, strict=True)
    ]
    rounded = [share for share in shares if share.requested != share.sm_count]
    if rounded and exact:
        raise PartitionError(
            f"{device.name} cannot give exactly what was asked for: {', '.join(map(str, rounded))} is the "
            f"nearest; its groups have {group_size} SMs"
        )
    if rounded and not dry_run:
        warnings.warn(f"rounded up: {', '.join(map(str, rounded))}", PartitionRounded, stacklevel=2)
    groups = list(layout.pieces)
    if _total(layout.leftover):
        shares.append(Share(LEFTOVER, 0, _total(layout.leftover)))
        groups.append(layout.leftover)
    plan = Plan(device.name, sm.sm_count, group_size, tuple(shares))
    workqueue = _workqueue(device, sharing_scope, concurrency_limit)
    if dry_run:
        return plan
    made = Partitions(plan, [])
    try:
        for share, group in zip(shares, groups, strict=True):
            options = _names(device).ContextOptions(resources=[*group, *workqueue])
            context = device.create_context(options)
            try:
                made._partitions.append(Partition(share.name, share.requested, context))
            except BaseException:
                context.close()
                raise
    except BaseException:
        made.close()  # nothing is left half made
        raise
    return made


@dataclass(slots=True)
class _Layout:
    """SM resources, dealt out: for each partition those it is built from, and those left over."""

    pieces: list[list[Any]]
    leftover: list[Any]

    def excess(self, counts: list[int]) -> int:
        return sum(_total(pieces) - count for pieces, count in zip(self.pieces, counts, strict=True))


def _lay_out(device: Any, counts: list[int], *, dry_run: bool) -> _Layout:
    """Find the resources for each count that waste the fewest SMs."""
    sm = device.resources.sm
    if sum(counts) > sm.sm_count:
        raise _too_much(device, counts)
    step, least = sm.coscheduled_alignment, sm.min_partition_size
    aligned = [max(_round_up(count, step), least) for count in counts]
    even = [max(_round_up(count, 2), least) for count in counts]
    found = [
        _split_by_driver(device, aligned, dry_run=dry_run),
        # From 13.1 on, SMs that are not scheduled together may fill up what whole sets of them leave.
        _split_by_driver(device, even, dry_run=dry_run, backfill=True),
        _split_into_smallest(device, counts, dry_run),
    ]
    layouts = [layout for layout in found if layout is not None]
    if not layouts:
        raise _too_much(device, counts)
    return min(layouts, key=lambda layout: layout.excess(counts))


def _split_by_driver(
    device: Any, sizes: list[int], *, dry_run: bool, backfill: bool = False
) -> _Layout | None:
    """Ask the driver for just these groups; None if it cannot."""
    names = _names(device)
    options = names.SMResourceOptions(count=tuple(sizes), backfill=backfill)
    try:
        groups, rest = device.resources.sm.split(options, dry_run=dry_run)
    except (names.CUDAError, RuntimeError) as error:
        if _is_refusal(error):
            return None
        raise
    if len(groups) < len(sizes):  # before 13.1 the driver gives fewer rather than refusing
        return None
    return _Layout([[group] for group in groups], [rest] if rest.sm_count else [])


def _split_into_smallest(device: Any, counts: list[int], dry_run: bool) -> _Layout | None:
    """Split once into the smallest groups there are and deal them out; None if they do not suffice."""
    sm = device.resources.sm
    size = sm.min_partition_size
    names = _names(device)
    options = names.SMResourceOptions(count=[size] * max(sm.sm_count // size, 1))
    try:
        groups, rest = sm.split(options, dry_run=dry_run)
    except (names.CUDAError, RuntimeError) as error:
        if _is_refusal(error):
            return None
        raise
    best: _Layout | None = None
    # What the split leaves over is one more piece, of an odd size: it may serve one of the partitions.
    for served in [None, *range(len(counts))] if rest.sm_count else [None]:
        pieces: list[list[Any]] = []
        unused = list(groups)
        for number, count in enumerate(counts):
            part = [rest] if number == served else []
            needed = -(-max(count - _total(part), 0) // size)
            if needed > len(unused):
                break
            pieces.append(part + unused[:needed])
            unused = unused[needed:]
        else:
            leftover = unused + ([rest] if rest.sm_count and served is None else [])
            layout = _Layout(pieces, leftover)
            if best is None or layout.excess(counts) < best.excess(counts):
                best = layout
    return best


def _is_refusal(error: Exception) -> bool:
    """Whether there are no such groups, or, before 13.1, none of different sizes; else something is wrong."""
    text = str(error)
    return "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" in text or (
        isinstance(error, RuntimeError) and "13.1" in text
    )


def _workqueue(device: Any, scope: str | None, limit: int | None) -> list[Any]:
    if scope is None and limit is None:
        return []
    names = _names(device)
    queue = device.resources.workqueue
    queue.configure(names.WorkqueueResourceOptions(sharing_scope=scope, concurrency_limit=limit))
    return [queue]


def _read(request: Request) -> tuple[list[str], list[int]]:
    given: object = request
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping):
        raise TypeError(
            f"partition takes SM counts as a sequence or a mapping of names, got {type(given).__name__}"
        )
    if isinstance(request, Mapping):
        names, counts = list(request), list(request.values())
    else:
        names, counts = [str(position) for position in range(len(request))], list(request)
    if not counts:
        raise PartitionError("a device is divided into at least one partition; none was asked for")
    for name, count in zip(names, counts, strict=True):
        if not isinstance(name, str) or not name or name == LEFTOVER:
            raise PartitionError(
                f"a partition cannot be called {name!r}; give a name other than {LEFTOVER!r}"
            )
        if not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"partition {name!r}: an SM count is an int, got {count!r}")
        if count < 1:
            raise PartitionError(f"partition {name!r}: at least 1 SM, got {count}")
    return names, counts


def _too_much(device: Any, counts: list[int]) -> PartitionError:
    sm = device.resources.sm
    left = sm.sm_count
    fitting = 0
    for count in counts:
        size = max(_round_up(count, sm.coscheduled_alignment), sm.min_partition_size)
        if size > left:
            break
        left -= size
        fitting += 1
    asked = " + ".join(map(str, counts)) + (f" = {sum(counts)}" if len(counts) > 1 else "")
    return PartitionError(
        f"{asked} SMs asked for, but {device.name} has {sm.sm_count}, in groups of "
        f"{sm.coscheduled_alignment} (at least {sm.min_partition_size}); "
        f"after the first {fitting} of {len(counts)} partitions {left} SMs are left"
    )


def _names(device: Any) -> Any:
    """Return the module that holds the options classes for this kind of device."""
    if is_simulated(device):
        from penstock.gpu import sim

        return sim
    from penstock.gpu import cuda

    return cuda


def _by_name(items: Sequence[Any], name: str) -> Any:
    for item in items:
        if item.name == name:
            return item
    raise KeyError(f"no partition is called {name!r}; there are {', '.join(item.name for item in items)}")


def _total(pieces: list[Any]) -> int:
    return sum(piece.sm_count for piece in pieces)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
