"""The resources of a simulated device or context: its SMs, how a driver splits them, and its workqueues.

The rules of a split depend on the driver's version. Before 13.1 all groups of a split have one size, rounded up
to the alignment. There may be fewer groups than requested, and the results cannot be split again. From 13.1 on
each group has its own size and constraints, and the driver provides exactly those groups or raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.gpu.sim.objects import CUDAError, MadeByDriver
from headrace.gpu.sim.processors import SMs, indices_of, sms_of

if TYPE_CHECKING:
    from headrace.gpu.sim.device import Device
    from headrace.gpu.sim.machine import ContextState, DeviceState

# The first drivers that have these features.
GREEN_CONTEXTS = (12, 4)
SPLIT_BY_GROUP = WORKQUEUES = (13, 1)


@dataclass(slots=True, eq=False, repr=False)
class DeviceResources(metaclass=MadeByDriver):
    """The SMs and workqueues of a device or a context."""

    _made_by: ClassVar = "dev.resources or ctx.resources"
    _context: ContextState

    @property
    def sm(self) -> SMResource:
        """The SMs."""
        device = self._context.device
        device.machine.require_driver(GREEN_CONTEXTS, "green context support")
        return SMResource._create(device, self._context.sms)

    @property
    def workqueue(self) -> WorkqueueResource:
        """The workqueues."""
        device = self._context.device
        device.machine.require_driver(WORKQUEUES, "WorkqueueResource")
        scope, limit = self._context.workqueue or (
            WorkqueueSharingScopeType.DEVICE_CTX,
            device.profile.concurrency_limit,
        )
        return WorkqueueResource._create(device, scope, limit)


@dataclass
class SMResourceOptions:
    """How to split SMs: values for one group, or sequences with one value per group.

    ``count`` determines the number of groups; for a count of ``None`` the driver chooses the size.
    """

    count: int | Sequence[int | None] | None = None
    coscheduled_sm_count: int | Sequence[int | None] | None = None
    preferred_coscheduled_sm_count: int | Sequence[int | None] | None = None
    backfill: bool | Sequence[bool] = False


@dataclass(slots=True, eq=False, repr=False)
class SMResource(metaclass=MadeByDriver):
    """A set of SMs."""

    _made_by: ClassVar = "dev.resources.sm or SMResource.split"
    flags: ClassVar[int] = 0  # none of the driver's flags is simulated
    _device: DeviceState
    _sms: SMs
    _is_usable: bool = True
    _may_split: bool = True

    @property
    def handle(self) -> int:
        """The handle of this object."""
        return id(self)

    @property
    def sm_count(self) -> int:
        """The number of SMs."""
        return self._sms.bit_count()

    @property
    def min_partition_size(self) -> int:
        """The smallest number of SMs that a group may have."""
        return self._device.profile.min_partition_size

    @property
    def coscheduled_alignment(self) -> int:
        """The number of SMs that are scheduled together; group sizes are multiples of it."""
        return self._device.profile.coscheduled_alignment

    def split(
        self, options: SMResourceOptions, *, dry_run: bool = False
    ) -> tuple[list[SMResource], SMResource]:
        """Split into groups; return the groups and the remaining SMs.

        With ``dry_run`` the results have their SM counts but cannot be used to create a context.
        """
        if not isinstance(options, SMResourceOptions):
            raise TypeError(f"options must be SMResourceOptions, got {type(options).__name__}")
        groups = _groups(options)
        machine = self._device.machine
        machine.require_driver(GREEN_CONTEXTS, "green context support")
        by_group = machine.driver >= SPLIT_BY_GROUP
        if by_group:
            parts, rest = _split_by_group(self, groups, dry_run)
        else:
            parts, rest = _split_by_count(self, groups)

        def result(sms: list[int]) -> SMResource:
            return SMResource._create(self._device, sms_of(sms), not dry_run, by_group)

        return [result(part) for part in parts], result(rest)


@dataclass(slots=True)
class _Group:
    count: int
    coscheduled: int | None
    preferred: int | None
    backfill: bool


def _groups(options: SMResourceOptions) -> list[_Group]:
    """Return one request for each group."""
    count = options.count
    scalar = count is None or isinstance(count, int)
    if not scalar and not isinstance(count, Sequence):
        raise TypeError(f"count must be int, a sequence or None, got {type(count).__name__}")
    counts: list[Any] = [count] if scalar else list(count)  # type: ignore[arg-type]
    if not counts:
        raise ValueError("count sequence must not be empty")

    def spread(name: str) -> list[Any]:
        value = getattr(options, name)
        if not isinstance(value, Sequence):
            return [value] * len(counts)
        if scalar:
            raise ValueError(
                f"{name} is a sequence but count is scalar; several groups need a sequence of counts"
            )
        if len(value) != len(counts):
            raise ValueError(f"{name} has length {len(value)}, expected {len(counts)}, the length of count")
        return list(value)

    for value in counts:
        if value is not None and value < 0:
            raise ValueError(f"count must be non-negative, got {value}")
    return [
        _Group(count or 0, coscheduled, preferred, bool(backfill))
        for count, coscheduled, preferred, backfill in zip(
            counts,
            spread("coscheduled_sm_count"),
            spread("preferred_coscheduled_sm_count"),
            spread("backfill"),
            strict=True,
        )
    ]


def _split_by_count(resource: SMResource, groups: list[_Group]) -> tuple[list[list[int]], list[int]]:
    """Split as drivers before 13.1 do."""
    first = groups[0]
    for name, given in (
        ("coscheduled_sm_count", first.coscheduled),
        ("preferred_coscheduled_sm_count", first.preferred),
    ):
        if given is not None:
            raise RuntimeError(f"SMResourceOptions.{name} requires the SM split of CUDA 13.1")
    if any(group.count != first.count for group in groups):
        raise RuntimeError(
            "splitting SMs into groups of different counts requires CUDA 13.1 or newer; "
            "headrace.gpu.partition does it on older drivers"
        )
    if not resource._may_split:
        raise _invalid_configuration("before CUDA 13.1 the result of a split cannot be split again")
    total = resource.sm_count
    if first.count > total:
        raise _invalid_configuration(f"groups of {first.count} SMs requested, {total} SMs available")
    size = max(_round_up(first.count, resource.coscheduled_alignment), resource.min_partition_size)
    if size >= total:
        return [indices_of(resource._sms)], []
    left = indices_of(resource._sms)
    # Only the smallest groups respect the chip's clusters: an H200 gives 15 groups of 8 SMs, but 8 groups of 16.
    pools = _by_cluster(resource, left) if size == resource.min_partition_size else [left]
    parts = _cut(pools, size)[: len(groups)]
    taken = {sm for part in parts for sm in part}
    return parts, [sm for sm in left if sm not in taken]


def _split_by_group(
    resource: SMResource, groups: list[_Group], dry_run: bool
) -> tuple[list[list[int]], list[int]]:
    """Split as drivers from 13.1 on do: each group in turn takes co-scheduled sets of SMs."""
    left: list[int] = indices_of(resource._sms)
    parts: list[list[int]] = []
    most = 32 if resource._device.profile.compute_capability >= (9, 0) else 2
    for number, group in enumerate(groups):
        together = group.coscheduled or resource.coscheduled_alignment
        if together % 2 or together > most:
            raise _invalid_configuration(
                f"group {number}: coscheduled_sm_count must be even and at most {most}, got {together}"
            )
        if group.count % 2 or (group.count % together and not group.backfill):
            raise _invalid_configuration(
                f"group {number}: {group.count} SMs are not a multiple of {together}"
            )
        sets = _cut(_by_cluster(resource, left), together)
        if group.count:
            sets = sets[: group.count // together]
        part = [sm for together_sms in sets for sm in together_sms]
        if group.backfill:
            wanted = group.count or len(left) - len(left) % 2
            chosen = set(part)
            part += [sm for sm in left if sm not in chosen][: wanted - len(part)]
        if len(part) < group.count or (not part and not dry_run):
            raise _invalid_configuration(
                f"group {number}: {group.count or 'some'} SMs requested, "
                f"only {len(part)} of the remaining {len(left)} are available for it"
            )
        parts.append(part)
        chosen = set(part)
        left = [sm for sm in left if sm not in chosen]
    return parts, left


def _by_cluster(resource: SMResource, sms: list[int]) -> list[list[int]]:
    return [[sm for sm in sms if sm in cluster] for cluster in resource._device.clusters]


def _cut(pools: list[list[int]], size: int) -> list[list[int]]:
    """Cut each pool of SMs into as many sets of one size as fit."""
    return [pool[i : i + size] for pool in pools for i in range(0, len(pool) - size + 1, size)]


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _invalid_configuration(detail: str) -> CUDAError:
    return CUDAError(f"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: {detail}")


class WorkqueueSharingScopeType(StrEnum):
    """The contexts that a green context shares its workqueues with."""

    DEVICE_CTX = "device_ctx"
    GREEN_CTX_BALANCED = "green_ctx_balanced"


@dataclass
class WorkqueueResourceOptions:
    """How a context's work reaches the device: the sharing of queues, and the number of concurrent streams."""

    sharing_scope: WorkqueueSharingScopeType | str | None = None
    concurrency_limit: int | None = None

    def __post_init__(self) -> None:
        if self.sharing_scope is not None:
            choices = [scope.value for scope in WorkqueueSharingScopeType]
            if self.sharing_scope not in choices:
                raise ValueError(
                    f"{self.sharing_scope!r} is not a valid WorkqueueSharingScopeType. Must be in {choices}"
                )
            self.sharing_scope = WorkqueueSharingScopeType(self.sharing_scope)
        if self.concurrency_limit is not None and self.concurrency_limit < 1:
            raise ValueError(f"concurrency_limit must be >= 1, got {self.concurrency_limit}")


@dataclass(slots=True, eq=False, repr=False)
class WorkqueueResource(metaclass=MadeByDriver):
    """The workqueues of a device or a context. The simulation stores the settings; they do not affect timing.

    Attributes
    ----------
    sharing_scope : WorkqueueSharingScopeType
        The contexts that the queues are shared with.
    concurrency_limit : int
        The expected number of concurrent streams.
    """

    _made_by: ClassVar = "dev.resources.workqueue"
    _device: DeviceState
    sharing_scope: WorkqueueSharingScopeType
    concurrency_limit: int

    @property
    def handle(self) -> int:
        """The handle of this object."""
        return id(self)

    @property
    def device(self) -> Device:
        """The device it belongs to."""
        from headrace.gpu.sim.device import Device  # a cycle: the device has resources

        return Device._from_state(self._device)

    def configure(self, options: WorkqueueResourceOptions) -> None:
        """Change the settings that the options give."""
        if not isinstance(options, WorkqueueResourceOptions):
            raise TypeError(f"options must be WorkqueueResourceOptions, got {type(options).__name__}")
        if options.sharing_scope is not None:
            self.sharing_scope = WorkqueueSharingScopeType(options.sharing_scope)
        if options.concurrency_limit is not None:
            self.concurrency_limit = options.concurrency_limit
