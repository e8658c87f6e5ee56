"""holoscan.core's services: headrace's own (`Composition.register_service`), with the SDK's base classes."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from headrace.core import Composition, Resource
from headrace_holoscan.absent import NotHereError

S = TypeVar("S")


class FragmentService:
    """The base of services that are not resources."""

    resource: Any = None


class DefaultFragmentService(FragmentService):
    """A service that may stand for a resource, which operators find by its own type and name."""

    def __init__(self, resource: Resource | None = None, *args: Any, **kwargs: Any) -> None:
        self._resource = resource

    def resource(self, new_resource: Resource | None = None) -> Resource | None:
        """Return the resource, after it was replaced if another is given."""
        if new_resource is not None:
            self._resource = new_resource
        return self._resource


class ServiceDriverEndpoint:
    """The side of a service in the process that drives the others; fragments of one process never call it."""

    def driver_start(self, driver_ip: str) -> None:
        """Raise: there is no driver."""
        _refuse("driver_start")

    def driver_shutdown(self) -> None:
        """Raise: there is no driver."""
        _refuse("driver_shutdown")


class ServiceWorkerEndpoint:
    """The side of a service in the other processes; fragments of one process never call it."""

    def worker_connect(self, driver_ip: str) -> None:
        """Raise: there are no workers."""
        _refuse("worker_connect")

    def worker_disconnect(self) -> None:
        """Raise: there are no workers."""
        _refuse("worker_disconnect")


class DistributedAppService(FragmentService, ServiceDriverEndpoint, ServiceWorkerEndpoint):
    """A service of an application in several processes; in one process it is a service like any other."""


class ServiceHost(Composition):
    """What fragments add to headrace's: services may stand for resources, and nothing else may be registered."""

    def register_service(self, service: object, id: str = "") -> None:  # noqa: A002
        """Let the operators find a service, and the resource that it stands for."""
        if isinstance(service, FragmentService):
            inner = service.resource() if callable(service.resource) else service.resource
            if isinstance(inner, Resource):
                super().register_service(inner)
        elif not isinstance(service, Resource):
            raise TypeError(f"a service must be a Resource or a FragmentService, not {service!r}")
        super().register_service(service, id)

    def service(self, service_type: type[S], id: str = "") -> S | None:  # noqa: A002
        """Return a service of the application or of the fragment, or None.

        A resource of that name counts as a service that stands for it.
        """
        if self._headrace.whole is not self:
            # What the application registers comes before what a fragment of it does.
            shared: S | None = self._headrace.whole.service(service_type, id)
            if shared is not None:
                return shared
        found = super().service(service_type, id)
        inner = (
            super().service(Resource, id)
            if found is None and service_type is DefaultFragmentService
            else None
        )
        if inner is not None:
            wrapper = service_type()
            vars(wrapper)["resource"] = inner  # the SDK's wrapper has a property where the class has a method
            return wrapper
        return found


def _refuse(call: str) -> NoReturn:
    raise NotHereError(
        f"{call} is not here: all fragments run in this process and share the service as it is; override {call} if "
        "your own code calls it"
    )
