"""Contexts of a simulated device: the primary context, and green contexts on some of its SMs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.gpu.sim.machine import ContextState, DeviceState
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, options_of
from headrace.gpu.sim.resources import DeviceResources, SMResource, WorkqueueResource
from headrace.gpu.sim.stream import Stream, StreamOptions


@dataclass
class ContextOptions:
    """The resources that a green context is created from."""

    resources: Sequence[SMResource | WorkqueueResource] | None = None


class Context(metaclass=MadeByDriver):
    """A context, which determines the SMs that its streams may use."""

    __slots__ = ("_state",)
    _made_by = "Device.create_context, Device.context or Stream.context"

    def __init__(self, state: ContextState) -> None:
        self._state: ContextState | None = state

    @classmethod
    def _on(cls, device: DeviceState, given: ContextOptions | dict[str, Any] | None) -> Context:
        """Create a green context on some of the resources of a device."""
        options = options_of(ContextOptions, given, "Context")
        if options.resources is None:
            raise ValueError("ContextOptions.resources must be provided to create a green context")
        resources = list(options.resources)
        if not resources:
            raise ValueError("ContextOptions.resources must not be empty")
        sms: list[SMResource] = []
        workqueue: tuple[str, int] | None = None
        for resource in resources:
            if isinstance(resource, SMResource | WorkqueueResource) and resource._device is not device:
                raise CUDAError(
                    f"CUDA_ERROR_INVALID_VALUE: a resource of device {resource._device.index} "
                    f"cannot be used to create a context on device {device.index}"
                )
            if isinstance(resource, SMResource):
                if not resource._is_usable:
                    raise ValueError("a dry-run SMResource cannot be used to create a context")
                sms.append(resource)
            elif isinstance(resource, WorkqueueResource):
                workqueue = (resource.sharing_scope, resource.concurrency_limit)
            else:
                raise TypeError(
                    f"a context is created from SM and workqueue resources, got {type(resource).__name__}"
                )
        chosen = 0
        for part in sms:
            chosen |= part._sms
        chosen = chosen or device.primary_context.sms  # a context of workqueues alone may use every SM
        return cls._create(ContextState(device, chosen, device.machine.new_handle(), True, workqueue))

    @property
    def handle(self) -> int | None:
        """The driver's handle, or None if closed."""
        return None if self._state is None else self._state.handle

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._state is None

    @property
    def is_green(self) -> bool:
        """Whether it was created from some of a device's resources."""
        return self._state is not None and self._state.is_green

    @property
    def resources(self) -> DeviceResources:
        """The resources that it may use."""
        return DeviceResources._create(self._open())

    def create_stream(self, options: StreamOptions | dict[str, Any] | None = None) -> Stream:
        """Create a stream of this green context."""
        state = self._open()
        if not state.is_green:
            raise RuntimeError(
                "Context.create_stream is only supported on green contexts; "
                "use Device.create_stream for the primary context"
            )
        return Stream._on(state, options)

    def close(self) -> None:
        """Close the context; its streams continue."""
        if self._state is not None and self._state.device.machine.current_context is self._state:
            raise RuntimeError(
                "a context cannot be closed while it is current; make another context current first"
            )
        self._state = None

    def __eq__(self, other: object) -> bool:
        return self._state is other._state if isinstance(other, Context) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        if self._state is None:
            return "<Context closed>"
        return f"<Context handle={self._state.handle:#x} device={self._state.device.index}>"

    def _open(self) -> ContextState:
        if self._state is None:
            raise RuntimeError("this context has been closed")
        return self._state
