"""Contexts of a simulated device: the primary one, and green ones on some of its SMs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.machine import ContextState, DeviceState
from penstock.gpu.sim.resources import DeviceResources, SMResource, WorkqueueResource
from penstock.gpu.sim.stream import Stream, StreamOptions


@dataclass
class ContextOptions:
    """What a green context is made of."""

    resources: Sequence[SMResource | WorkqueueResource] | None


class Context:
    """A context: whose streams may use which SMs."""

    __slots__ = ("_state",)
    _state: ContextState | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Context objects cannot be made directly; use the Device or Stream that has one")

    @classmethod
    def _of(cls, state: ContextState) -> "Context":
        self = cls.__new__(cls)
        self._state = state
        return self

    @classmethod
    def _create(cls, device: DeviceState, options: "ContextOptions | dict[str, Any] | None") -> "Context":
        if isinstance(options, dict):
            options = ContextOptions(**options)
        elif options is not None and not isinstance(options, ContextOptions):
            raise TypeError(
                f"Context options must be ContextOptions or a dict of its fields, got {options!r}"
            )
        if options is None or options.resources is None:
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
                raise TypeError(f"a context is made of SM and workqueue resources, got {type(resource)}")
        chosen = 0
        for part in sms:
            chosen |= part._sms
        chosen = chosen or device.primary.sms  # a context of workqueues alone may use every SM
        handle = device.machine.new_handle()
        return cls._of(ContextState(device, chosen, handle=handle, is_green=True, workqueue=workqueue))

    @property
    def handle(self) -> int | None:
        """Its number; None when closed."""
        return None if self._state is None else self._state.handle

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._state is None

    @property
    def is_green(self) -> bool:
        """Whether it was made from some of a device's resources."""
        return self._state is not None and self._state.is_green

    @property
    def resources(self) -> DeviceResources:
        """What it may use of the device."""
        return DeviceResources._of(self._open())

    def create_stream(self, options: "StreamOptions | dict[str, Any] | None" = None) -> Stream:
        """Create a stream of this green context."""
        state = self._open()
        if not state.is_green:
            raise RuntimeError(
                "Context.create_stream is only supported on green contexts; "
                "use Device.create_stream for the primary one"
            )
        return Stream._create(state, options)

    def close(self) -> None:
        """Give the context up; its streams work on."""
        if self._state is not None and self._state.device.machine.current_context is self._state:
            raise RuntimeError(
                "a context cannot be closed while it is current; make another one current first"
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
