"""The workqueues of a simulated device or context."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.gpu.sim.device import Device
    from headrace.gpu.sim.device_state import DeviceState


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


class WorkqueueResource:
    """The workqueues of a device or a context. The simulation stores the settings; they do not affect timing."""

    __slots__ = ("_device", "_limit", "_scope")
    _device: DeviceState
    _limit: int
    _scope: WorkqueueSharingScopeType

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "WorkqueueResource objects cannot be created directly; use dev.resources.workqueue"
        )

    @classmethod
    def _create(cls, device: DeviceState, scope: str, limit: int) -> WorkqueueResource:
        self = cls.__new__(cls)
        self._device = device
        self._scope = WorkqueueSharingScopeType(scope)
        self._limit = limit
        return self

    @property
    def handle(self) -> int:
        """The handle of this object."""
        return id(self)

    @property
    def sharing_scope(self) -> WorkqueueSharingScopeType:
        """The contexts that the queues are shared with."""
        return self._scope

    @property
    def concurrency_limit(self) -> int:
        """The expected number of concurrent streams."""
        return self._limit

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
            self._scope = WorkqueueSharingScopeType(options.sharing_scope)
        if options.concurrency_limit is not None:
            self._limit = options.concurrency_limit
