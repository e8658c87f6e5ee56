"""Partitions of a GPU: disjoint, unequal sets of its SMs, each with a green context.

The remaining SMs form a last partition, ``leftover``.

Drivers split SMs differently. From 13.1 on, each group of a split has its own count. Before that, all groups have
one size and cannot be split again. A context may be built from several groups, however: distributing the smallest
groups gives unequal partitions on every driver since 12.4. If all counts are equal, the driver's own split is
tried as well, because it wastes fewer SMs.

No group is used twice: the driver does not detect that two contexts are built from the same group, and they would
share its SMs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

from headrace.gpu.backend import backend_of

if TYPE_CHECKING:
    from headrace.gpu.sim import Context, Device, SMResource, Stream, StreamOptions


LEFTOVER = "leftover"


class PartitionError(ValueError):
    """The device cannot be partitioned as requested; the text states what is possible."""


class PartitionRounded(UserWarning):
    """A partition has more SMs than requested: the smallest number that the device can provide."""


@dataclass(frozen=True, slots=True)
class Share:
    """The requested and the actual SM count of one partition; 0 SMs are requested for the leftover."""

    name: str
    requested: int
    sm_count: int

    def __str__(self) -> str:
        rounded = self.requested and self.requested != self.sm_count
        return f"{self.name}: {self.sm_count} SMs" + (f" ({self.requested} requested)" if rounded else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """How a device is or would be partitioned.

    Attributes
    ----------
    group_size : int
        The number of SMs that the device schedules together. Before CUDA 13.1 partitions consist of whole groups.
    shares : tuple of Share
        One for each requested partition, in order; last, if any SMs remain, one named ``leftover``.
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
            asked = f"  ({share.requested} requested)" if share.requested not in (0, share.sm_count) else ""
            lines.append(f"  {share.name:<{width}}  {share.sm_count:>4}  {bar}{asked}")
        return "\n".join(lines)


@dataclass(eq=False, repr=False)
class Partition:
    """Some SMs of a device, and a green context whose work runs on them.

    Attributes
    ----------
    name : str
        The name, or the position if it has no name.
    requested, sm_count : int
        The number of SMs that were requested, and the number that the driver provided.
    context : Context
        The green context.
    """

    name: str
    requested: int
    context: Context
    sm_count: int = field(init=False)
    _streams: list[Stream] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sm_count = self.context.resources.sm.sm_count

    def create_stream(self, options: StreamOptions | dict[str, Any] | None = None) -> Stream:
        """Create a stream whose work runs on these SMs only; closing the partition closes it."""
        stream = self.context.create_stream(options)
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        """Wait for the work on the streams created here, then close the context and the streams.

        A context that is current cannot be closed. In that case everything stays open, and the partition can be
        closed later. Errors of a stream's work do not prevent closing; the first one is raised at the end.
        """
        errors = _errors_of(stream.sync for stream in self._streams if not stream.is_closed)
        if not self.context.is_closed:
            self.context.close()  # first, since its streams can outlive it: if this fails, they stay open
        streams, self._streams = self._streams, []
        errors += _errors_of(stream.close for stream in reversed(streams))
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
        """The partition of the remaining SMs, or None if none remain."""
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
        """Wait for the work of every partition and close it, the newest first.

        An error while closing one does not keep the others open; the first error is raised at the end. A
        partition that cannot be closed because its context is current remains, to be closed later.
        """
        errors = _errors_of(partition.close for partition in reversed(self._partitions))
        self._partitions = [partition for partition in self._partitions if not partition.context.is_closed]
        if errors:
            raise errors[0]

    def __repr__(self) -> str:
        return f"<Partitions {', '.join(map(str, self.plan))}>"


Request = Sequence[int] | Mapping[str, int]


@overload
def partition(
    device: Device,
    request: Request,
    *,
    exact: bool = False,
    dry_run: Literal[False] = False,
    sharing_scope: str | None = None,
    concurrency_limit: int | None = None,
) -> Partitions: ...
@overload
def partition(
    device: Device,
    request: Request,
    *,
    exact: bool = False,
    dry_run: Literal[True],
    sharing_scope: str | None = None,
    concurrency_limit: int | None = None,
) -> Plan: ...
def partition(
    device: Device,
    request: Request,
    *,
    exact: bool = False,
    dry_run: bool = False,
    sharing_scope: str | None = None,
    concurrency_limit: int | None = None,
) -> Partitions | Plan:
    """Divide the SMs of a device into disjoint partitions.

    Parameters
    ----------
    device : Device
        A real or simulated device, with a driver for CUDA 12.4 or newer.
    request : sequence of int, or mapping of names to int
        The number of SMs of each partition: ``[16, 40]`` or ``{"control": 16, "vision": 40}``. A count that the
        device cannot provide is rounded up, with a :class:`PartitionRounded` warning.
    exact : bool
        Whether to raise an error instead of rounding up.
    dry_run : bool
        Whether to create nothing and return the plan.
    sharing_scope, concurrency_limit : optional
        How the work of each partition reaches the device, on drivers from 13.1 on
        (:class:`~headrace.gpu.WorkqueueResourceOptions`).

    Returns
    -------
    Partitions or Plan
        The requested partitions in order, and last, if any SMs remain, the ``leftover`` partition.

    Raises
    ------
    PartitionError
        If the device cannot provide the requested partitions.

    Examples
    --------
    >>> with gpu.partition(device, {"control": 16, "vision": 40}) as parts:
    ...     stream = parts["control"].create_stream()
    """
    requested = counts_by_name(request)
    if not requested:
        raise PartitionError("at least one partition must be requested, got none")
    counts = list(requested.values())
    sm = device.resources.sm
    module = backend_of(device).names  # with the options and errors of this kind of device
    layout = lay_out(sm, module, counts, dry_run=dry_run)
    if layout is None:
        raise _does_not_fit(device, counts)
    shares = [
        Share(name, count, total_sms(groups))
        for (name, count), groups in zip(requested.items(), layout.groups, strict=True)
    ]
    rounded = [share for share in shares if share.requested != share.sm_count]
    if rounded and exact:
        raise PartitionError(
            f"{device.name} cannot provide exactly the requested SMs: the nearest is "
            f"{', '.join(map(str, rounded))}; its groups have {sm.coscheduled_alignment} SMs"
        )
    if rounded and not dry_run:
        warnings.warn(f"rounded up: {', '.join(map(str, rounded))}", PartitionRounded, stacklevel=2)
    resources = list(layout.groups)
    if total_sms(layout.leftover):
        shares.append(Share(LEFTOVER, 0, total_sms(layout.leftover)))
        resources.append(layout.leftover)
    plan = Plan(device.name, sm.sm_count, sm.coscheduled_alignment, tuple(shares))
    workqueue = _workqueue(device, module, sharing_scope, concurrency_limit)
    if dry_run:
        return plan
    partitions = Partitions(plan, [])
    try:
        for share, groups in zip(shares, resources, strict=True):
            context = device.create_context(module.ContextOptions(resources=[*groups, *workqueue]))
            try:
                partitions._partitions.append(Partition(share.name, share.requested, context))
            except BaseException:
                context.close()
                raise
    except BaseException:
        partitions.close()  # all or none
        raise
    return partitions


def _workqueue(device: Device, module: Any, scope: str | None, limit: int | None) -> list[Any]:
    if scope is None and limit is None:
        return []
    queue = device.resources.workqueue
    queue.configure(module.WorkqueueResourceOptions(sharing_scope=scope, concurrency_limit=limit))
    return [queue]


def counts_by_name(request: object, what: str = "partition: request", where: str = "") -> dict[str, int]:
    """Return the requested SM count of each partition by its name, or by its position if it has no name.

    ``where`` begins the errors, and ``what`` is the name of the argument.
    """
    if isinstance(request, str) or not isinstance(request, Sequence | Mapping):
        raise TypeError(
            f"{where}{what} must be a sequence of SM counts or a mapping of names to them, not {request!r}"
        )
    counts = dict(request) if isinstance(request, Mapping) else {str(n): one for n, one in enumerate(request)}
    for name, count in counts.items():
        if not isinstance(name, str) or not name or name == LEFTOVER:
            raise PartitionError(
                f"{where}a partition cannot be named {name!r}; use a non-empty name other than {LEFTOVER!r}"
            )
        if not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"{where}partition {name!r}: the SM count must be an int, not {count!r}")
        if count < 1:
            raise PartitionError(f"{where}partition {name!r} must have at least 1 SM, got {count}")
    return counts


def _does_not_fit(device: Device, counts: list[int]) -> PartitionError:
    sm = device.resources.sm
    remaining = sm.sm_count
    fitting = 0
    for count in counts:
        size = group_size(sm, count)
        if size > remaining:
            break
        remaining -= size
        fitting += 1
    requested = " + ".join(map(str, counts)) + (f" = {sum(counts)}" if len(counts) > 1 else "")
    return PartitionError(
        f"{requested} SMs requested, but {device.name} has {sm.sm_count}, in groups of "
        f"{sm.coscheduled_alignment} (at least {sm.min_partition_size}); "
        f"after the first {fitting} of {len(counts)} partitions {remaining} SMs are left"
    )


def _errors_of(calls: Iterable[Callable[[], object]]) -> list[Exception]:
    """Make calls, each whatever the others do, and return their errors."""
    errors: list[Exception] = []
    for call in calls:
        try:
            call()
        except Exception as error:
            errors.append(error)
    return errors


def _by_name(items: Sequence[Any], name: str) -> Any:
    for item in items:
        if item.name == name:
            return item
    raise KeyError(f"no partition is named {name!r}; there are {', '.join(item.name for item in items)}")


@dataclass(slots=True)
class Layout:
    """The SM resources of each partition, and the remaining ones."""

    groups: list[list[SMResource]]
    leftover: list[SMResource]

    def excess(self, counts: list[int]) -> int:
        """Return the number of SMs beyond the requested counts."""
        return sum(total_sms(groups) - count for groups, count in zip(self.groups, counts, strict=True))


def lay_out(sm: SMResource, names: Any, counts: list[int], *, dry_run: bool) -> Layout | None:
    """Return the layout that wastes the fewest SMs, or None if there is none.

    ``sm`` is the device's SM resource, and ``names`` the module of its options and errors.
    """
    if sum(counts) > sm.sm_count:
        return None
    least = sm.min_partition_size
    aligned = [group_size(sm, count) for count in counts]
    even = [max(_round_up(count, 2), least) for count in counts]
    found = [
        _split_by_driver(sm, names, aligned, dry_run=dry_run),
        # From 13.1 on, SMs that are not scheduled together may complete a group.
        _split_by_driver(sm, names, even, dry_run=dry_run, backfill=True),
        _split_into_smallest(sm, names, counts, dry_run=dry_run),
    ]
    layouts = [layout for layout in found if layout is not None]
    return min(layouts, key=lambda layout: layout.excess(counts)) if layouts else None


def group_size(sm: SMResource, count: int) -> int:
    """Return the size of the smallest group of co-scheduled SMs with at least that many."""
    return max(_round_up(count, sm.coscheduled_alignment), sm.min_partition_size)


def total_sms(groups: list[SMResource]) -> int:
    """Return the number of SMs in `groups`."""
    return sum(group.sm_count for group in groups)


def _split_by_driver(
    sm: SMResource, names: Any, sizes: list[int], *, dry_run: bool, backfill: bool = False
) -> Layout | None:
    """Return the driver's split into groups of these sizes, or None if it cannot provide them."""
    groups, rest = _split(sm, names, sizes, dry_run, backfill)
    if len(groups) < len(sizes):  # drivers before 13.1 provide fewer groups instead of raising an error
        return None
    return Layout([[group] for group in groups], rest)


def _split_into_smallest(sm: SMResource, names: Any, counts: list[int], *, dry_run: bool) -> Layout | None:
    """Return a split into the smallest groups, distributed over the partitions, or None if they do not suffice."""
    size = sm.min_partition_size
    groups, rest = _split(sm, names, [size] * max(sm.sm_count // size, 1), dry_run)
    best: Layout | None = None
    # The remaining SMs form another group, of a different size; one of the partitions may use it.
    for served in [None, *range(len(counts))] if rest else [None]:
        dealt: list[list[SMResource]] = []
        unused = list(groups)
        for number, count in enumerate(counts):
            part = rest if number == served else []
            needed = -(-max(count - total_sms(part), 0) // size)
            if needed > len(unused):
                break
            dealt.append(part + unused[:needed])
            unused = unused[needed:]
        else:
            layout = Layout(dealt, unused + (rest if served is None else []))
            if best is None or layout.excess(counts) < best.excess(counts):
                best = layout
    return best


def _split(
    sm: SMResource, names: Any, counts: list[int], dry_run: bool, backfill: bool = False
) -> tuple[list[SMResource], list[SMResource]]:
    """Return the groups that the driver provides, none if it cannot provide them, and the remaining SMs."""
    try:
        options = names.SMResourceOptions(count=tuple(counts), backfill=backfill)
        groups, rest = sm.split(options, dry_run=dry_run)
    except (names.CUDAError, RuntimeError) as error:
        # Before 13.1 the driver provides no groups of different sizes. Any other error is raised.
        is_too_old = isinstance(error, RuntimeError) and "13.1" in str(error)
        if not is_too_old and "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" not in str(error):
            raise
        return [], []
    return groups, [rest] if rest.sm_count else []


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
