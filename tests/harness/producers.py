"""Arrays of libraries that are not there: capsules written field by field, and objects that hand them out.

The capsules have no destructor, so what frees their memory is the deleter, called by whoever took it: it counts.
"""

from __future__ import annotations

import ctypes
from typing import Any

from headrace.tensor import DLDataType
from headrace.tensor.description import StreamWork

F32, BF16 = DLDataType(2, 32), DLDataType(4, 16)

CPU, CUDA, CUDA_HOST, ROCM = (1, 0), (2, 0), (3, 0), (10, 0)
READ_ONLY, PADDED = 1, 4


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def name_of(capsule: Any) -> str:
    return _name_of(capsule).decode()


class Made:
    """A capsule and the memory behind it; it must outlive both. `freed` has the address of every free."""

    def __init__(
        self,
        shape: tuple[int, ...] = (2, 3),
        strides: tuple[int, ...] | None = None,
        dtype: DLDataType = F32,
        device: tuple[int, int] = CPU,
        version: tuple[int, int] | None = (1, 0),
        flags: int = 0,
        byte_offset: int = 0,
        has_deleter: bool = True,
        name: str = "",
        memory: Any = None,
    ) -> None:
        self.memory = (ctypes.c_uint8 * 4096)() if memory is None else memory
        self.address = ctypes.addressof(self.memory)
        self.freed: list[int] = []
        self._delete = _Deleter(lambda address: self.freed.append(address or 0))
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = DLTensor(
            self.address,
            *device,
            len(shape),
            *dtype,
            ctypes.addressof(self._shape) if shape else None,
            None if self._strides is None else ctypes.addressof(self._strides),
            byte_offset,
        )
        deleter = ctypes.cast(self._delete, ctypes.c_void_p) if has_deleter else None
        self.managed: ctypes.Structure
        if version is None:
            self.managed = Managed(tensor, None, deleter)
            self._name = b"dltensor"
        else:
            self.managed = ManagedVersioned(*version, None, deleter, flags, tensor)
            self._name = b"dltensor_versioned"
        self._name = name.encode() or self._name
        self.capsule = new_capsule(ctypes.addressof(self.managed), self._name, None)


class Library:
    """An array of a library with streams of its own: it notes how it was asked for a capsule."""

    def __init__(
        self, device: tuple[int, int] = CUDA, version: tuple[int, int] | None = (1, 0), **said: Any
    ) -> None:
        self.device = device
        self.asked: list[dict[str, Any]] = []
        self.made: list[Made] = []
        self.memory = (ctypes.c_uint8 * 4096)()
        self._said = {"device": device, "version": version, "memory": self.memory, **said}

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked.append(asked)
        self.made.append(Made(**self._said))
        return self.made[-1].capsule


class OldLibrary(Library):
    """One from before DLPack 1.0, whose `__dlpack__` takes a stream only."""

    def __dlpack__(self, stream: int | None = None) -> Any:
        return super().__dlpack__(stream=stream)


class Interface:
    """An array that speaks one of the array interfaces, with what it is told to say."""

    def __init__(self, kind: str = "__cuda_array_interface__", **said: Any) -> None:
        self._memory = (ctypes.c_uint8 * 4096)()
        self.address = ctypes.addressof(self._memory)
        interface = {"shape": (2, 3), "typestr": "<f4", "data": (self.address, False), "version": 3, **said}
        setattr(self, kind, {key: value for key, value in interface.items() if value is not ...})


class Work(StreamWork):
    """Work on a stream that notes which streams were ordered after it."""

    def __init__(self, stream: int = 7) -> None:
        super().__init__(stream)
        self.ordered: list[int] = []

    def order(self, stream: int) -> None:
        self.ordered.append(stream)
