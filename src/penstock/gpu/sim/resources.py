"""The SMs and workqueues of a simulated device, and how a driver splits them.

Two sets of rules, by the driver's version. Before 13.1 all groups of a split have one size, rounded up to the
alignment, and there may be fewer of them than were asked for; the results cannot be split again. From 13.1 on
each group has its own size and constraints, and the driver gives exactly that or refuses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.gpu.sim.errors import invalid_resource_configuration
from penstock.gpu.sim.processors import SMs, indices_of, sms_of

if TYPE_CHECKING:
    from penstock.gpu.sim.device import Device
    from penstock.gpu.sim.machine import ContextState, DeviceState

GREEN_CONTEXTS = (12, 4)
SPLIT_BY_GROUP = (13, 1)
WORKQUEUES = (13, 1)


@dataclass
class SMResourceOptions:
    """How to split SMs: a value for one group, or a sequence with one for each.

    ``count`` says how many groups there are; ``None`` in it lets the driver choose the size.
    """

    count: int | Sequence[int | None] | None = None
    coscheduled_sm_count: int | Sequence[int | None] | None = None
    preferred_coscheduled_sm_count: int | Sequence[int | None] | None = None
    backfill: bool | Sequence[bool] = False


class SMResource:
    """A set of SMs."""

    __slots__ = ("_device", "_is_usable", "_may_split", "_sms")
    _device: "DeviceState"
    _is_usable: bool
    _may_split: bool
    _sms: SMs

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "SMResource objects cannot be made directly; use dev.resources.sm or SMResource.split"
        )

    @classmethod
    def _of(
        cls, device: "DeviceState", sms: SMs, *, is_usable: bool = True, may_split: bool = True
    ) -> "SMResource":
        self = cls.__new__(cls)
        self._device = device
        self._sms = sms
        self._is_usable = is_usable
        self._may_split = may_split
        return self

    @property
    def handle(self) -> int:
        """A number for this object."""
        return id(self)

    @property
    def sm_count(self) -> int:
        """How many SMs it holds."""
        return self._sms.bit_count()

    @property
    def min_partition_size(self) -> int:
        """The fewest SMs a group may have."""
        return self._device.profile.min_partition_size

    @property
    def coscheduled_alignment(self) -> int:
        """How many SMs are scheduled together, and so what group sizes are multiples of."""
        return self._device.profile.coscheduled_alignment

    @property
    def flags(self) -> int:
        """The driver's flags; none are simulated."""
        return 0

    def split(
        self, options: SMResourceOptions, *, dry_run: bool = False
    ) -> "tuple[list[SMResource], SMResource]":
        """Split into groups and what is left over.

        With ``dry_run`` the results say what they would hold but cannot be used to make a context.
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
            return SMResource._of(self._device, sms_of(sms), is_usable=not dry_run, may_split=by_group)

        return [result(part) for part in parts], result(rest)


@dataclass(slots=True)
class _Group:
    count: int
    coscheduled: int | None
    preferred: int | None
    backfill: bool


def _groups(options: SMResourceOptions) -> list[_Group]:
    """Return one request for each group that the options ask for."""
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
    """Split as a driver before 13.1 does."""
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
            "penstock.gpu.partition does it on older drivers"
        )
    if not resource._may_split:
        raise invalid_resource_configuration("before CUDA 13.1 the result of a split cannot be split again")
    total = resource.sm_count
    if first.count > total:
        raise invalid_resource_configuration(f"groups of {first.count} SMs asked for, there are {total}")
    size = max(_round_up(first.count, resource.coscheduled_alignment), resource.min_partition_size)
    if size >= total:
        return [indices_of(resource._sms)], []
    left = indices_of(resource._sms)
    # Only the smallest groups keep to the chip's clusters: on an H200, 15 of 8 SMs but 8 of 16.
    pools = _by_cluster(resource, left) if size == resource.min_partition_size else [left]
    parts = _cut(pools, size)[: len(groups)]
    taken = {sm for part in parts for sm in part}
    return parts, [sm for sm in left if sm not in taken]


def _split_by_group(
    resource: SMResource, groups: list[_Group], dry_run: bool
) -> tuple[list[list[int]], list[int]]:
    """Split as a driver from 13.1 on does: each group in turn takes co-scheduled sets of SMs."""
    left: list[int] = indices_of(resource._sms)
    parts: list[list[int]] = []
    most = 32 if resource._device.profile.compute_capability >= (9, 0) else 2
    for number, group in enumerate(groups):
        together = group.coscheduled or resource.coscheduled_alignment
        if together % 2 or together > most:
            raise invalid_resource_configuration(
                f"group {number}: coscheduled_sm_count must be even and at most {most}, got {together}"
            )
        if group.count % 2 or (group.count % together and not group.backfill):
            raise invalid_resource_configuration(
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
            raise invalid_resource_configuration(
                f"group {number}: {group.count or 'some'} SMs asked for, "
                f"{len(part)} of the {len(left)} left can be given"
            )
        parts.append(part)
        chosen = set(part)
        left = [sm for sm in left if sm not in chosen]
    return parts, left


def _by_cluster(resource: SMResource, sms: list[int]) -> list[list[int]]:
    return [[sm for sm in sms if sm in cluster] for cluster in resource._device.clusters]


def _cut(pools: list[list[int]], size: int) -> list[list[int]]:
    """Cut each pool of SMs into as many sets of one size as it has."""
    return [pool[i : i + size] for pool in pools for i in range(0, len(pool) - size + 1, size)]


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class WorkqueueSharingScopeType(StrEnum):
    """Whom a green context shares its workqueues with."""

    DEVICE_CTX = "device_ctx"
    GREEN_CTX_BALANCED = "green_ctx_balanced"


@dataclass
class WorkqueueResourceOptions:
    """How a context's work reaches the device: queues shared with whom, for how many streams at once."""

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


class WorkqueueResource:
    """The workqueues of a device or a context. The simulation keeps the settings; they change no timing."""

    __slots__ = ("_device", "_limit", "_scope")
    _device: "DeviceState"
    _limit: int
    _scope: WorkqueueSharingScopeType

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("WorkqueueResource objects cannot be made directly; use dev.resources.workqueue")

    @classmethod
    def _of(cls, device: "DeviceState", scope: str, limit: int) -> "WorkqueueResource":
        self = cls.__new__(cls)
        self._device = device
        self._scope = WorkqueueSharingScopeType(scope)
        self._limit = limit
        return self

    @property
    def handle(self) -> int:
        """A number for this object."""
        return id(self)

    @property
    def sharing_scope(self) -> WorkqueueSharingScopeType:
        """Whom the queues are shared with."""
        return self._scope

    @property
    def concurrency_limit(self) -> int:
        """How many streams are expected to work at once."""
        return self._limit

    @property
    def device(self) -> "Device":
        """The device it belongs to."""
        from penstock.gpu.sim.device import Device  # the device has resources

        return Device._of(self._device)

    def configure(self, options: WorkqueueResourceOptions) -> None:
        """Change the settings that are given."""
        if not isinstance(options, WorkqueueResourceOptions):
            raise TypeError(f"options must be WorkqueueResourceOptions, got {type(options).__name__}")
        if options.sharing_scope is not None:
            self._scope = WorkqueueSharingScopeType(options.sharing_scope)
        if options.concurrency_limit is not None:
            self._limit = options.concurrency_limit


class DeviceResources:
    """What a device or a context has: SMs and workqueues."""

    __slots__ = ("_context",)
    _context: "ContextState"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "DeviceResources objects cannot be made directly; use dev.resources or ctx.resources"
        )

    @classmethod
    def _of(cls, context: "ContextState") -> "DeviceResources":
        self = cls.__new__(cls)
        self._context = context
        return self

    @property
    def sm(self) -> SMResource:
        """The SMs."""
        device = self._context.device
        device.machine.require_driver(GREEN_CONTEXTS, "green context support")
        return SMResource._of(device, self._context.sms)

    @property
    def workqueue(self) -> WorkqueueResource:
        """The workqueues."""
        device = self._context.device
        device.machine.require_driver(WORKQUEUES, "WorkqueueResource")
        scope, limit = self._context.workqueue or (
            WorkqueueSharingScopeType.DEVICE_CTX,
            device.profile.concurrency_limit,
        )
        return WorkqueueResource._of(device, scope, limit)
