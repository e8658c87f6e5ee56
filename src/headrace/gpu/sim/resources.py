"""The resources of a simulated device or context: its SMs and its workqueues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gpu.sim.sm_resource import GREEN_CONTEXTS, SMResource
from headrace.gpu.sim.workqueue_resource import WorkqueueResource, WorkqueueSharingScopeType

if TYPE_CHECKING:
    from headrace.gpu.sim.device_state import ContextState

WORKQUEUES = (13, 1)  # the first driver that has them


class DeviceResources:
    """The SMs and workqueues of a device or a context."""

    __slots__ = ("_context",)
    _context: ContextState

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "DeviceResources objects cannot be created directly; use dev.resources or ctx.resources"
        )

    @classmethod
    def _from_context(cls, context: ContextState) -> DeviceResources:
        self = cls.__new__(cls)
        self._context = context
        return self

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
