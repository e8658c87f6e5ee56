"""Services: objects that a fragment's operators find by their type, such as a calibration or a pose tree."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

S = TypeVar("S")


class _Entry(NamedTuple):
    service: object
    id: str
    name: str


class Services:
    """The services that were registered, by type and id."""

    def __init__(self) -> None:
        self._entries: dict[tuple[type, str], _Entry] = {}

    def add(self, service: object, id: str, name: str = "") -> None:  # noqa: A002 (the SDK's name)
        """Add a service; one of the same type and id is replaced. It is found by its name, too, if it has one."""
        if isinstance(service, type) or service is None:
            raise TypeError(f"register_service takes an object, which is found by its type, not {service!r}")
        if not isinstance(id, str):
            raise TypeError(f"the id of a service must be a str, not {id!r}")
        self._entries[type(service), id or name] = _Entry(service, id, name or id)

    def find(self, kind: type[S], id: str) -> S | None:  # noqa: A002
        """Return the service of a type, or else the last one of a type derived from it; None without one."""
        if not isinstance(kind, type):
            raise TypeError(f"a service is found by its type, not by {kind!r}")
        entries = list(self._entries.values())
        found = [each.service for each in entries if id in each[1:] and isinstance(each.service, kind)]
        found.sort(key=lambda service: type(service) is kind)
        return found[-1] if found else None

    def all(self) -> list[object]:
        """Return all services."""
        return [entry.service for entry in self._entries.values()]
