"""MemoryStorageType: the kinds of memory that an allocator serves."""

from __future__ import annotations

import enum
from typing import TypeAlias

from headrace.core.errors import choices
from headrace.tensor.types import DLDevice, DLDeviceType


class MemoryStorageType(enum.IntEnum):
    """A kind of memory.

    ``HOST`` is pinned memory of the host, ``DEVICE`` memory of the device, ``SYSTEM`` ordinary memory of the host,
    and ``CUDA_MANAGED`` memory that the driver moves between the two.
    """

    HOST = 0
    DEVICE = 1
    SYSTEM = 2
    CUDA_MANAGED = 3

    @classmethod
    def of(cls, value: StorageType, what: str = "storage_type") -> MemoryStorageType:
        """Return the kind that a member, its number or its name stands for; `what` begins the error."""
        if isinstance(value, str):
            found = cls.__members__.get(value.strip().upper())
            if found is None:
                raise ValueError(f"{what} must be one of {choices(cls.__members__, value)}, not {value!r}")
            return found
        if isinstance(value, int) and not isinstance(value, bool):
            if value in cls.__members__.values():
                return cls(value)
            known = ", ".join(f"{member.value} ({name})" for name, member in cls.__members__.items())
            raise ValueError(f"{what} must be one of {known}, not {value!r}")
        raise TypeError(f"{what} must be a MemoryStorageType, its name or its number, not {value!r}")

    @classmethod
    def at(cls, device: DLDevice) -> MemoryStorageType:
        """Return the kind of the memory on a device."""
        return _AT.get(device.device_type, cls.DEVICE)


_AT: dict[int, MemoryStorageType] = {
    DLDeviceType.CPU: MemoryStorageType.SYSTEM,
    DLDeviceType.CUDA_HOST: MemoryStorageType.HOST,
    DLDeviceType.CUDA_MANAGED: MemoryStorageType.CUDA_MANAGED,
}


StorageType: TypeAlias = MemoryStorageType | int | str
"""A kind of memory, by its name or its number too."""
