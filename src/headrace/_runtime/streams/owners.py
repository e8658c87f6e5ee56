"""The owners of the memory in a received object, which must stay alive.

A frame is freed when the last object that refers to its memory is destroyed: the array, a view of it, an export of
it to another library. All of these share one object that owns the memory, and that object is kept. Its reference
count then shows whether the program still holds the frame (`only_kept`), in any form and anywhere.

| an array of | its owner |
| --- | --- |
| CuPy | ``array.data.mem``, which views and exports share |
| PyTorch | its storage; PyTorch counts the tensors that share it (`_storage_Use_Count`) |
| NumPy | the last ``base`` |
| headrace (Tensor) | the owner of the array it was made from |
| any of these, on memory of an allocator | the allocation, found by its address if the library hides it |
| any other library | the array itself, like every other object that may free something when it is destroyed |

A received object is walked once, when it is received: afterwards its fields may be replaced and its lists emptied.
Containers and instances are walked through the references that the garbage collector reports. An instance of a
class written in Python is itself kept only if its destruction has an effect: it has ``__del__``, or weak
references, which may belong to a finalizer. The walk ends after a limited number of objects; the rest is kept
through the object that contains it.

This module is not compiled: reference counts are read here, and they differ in compiled code.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import deque
from collections.abc import Callable
from enum import EnumMeta
from itertools import islice
from typing import Any
from weakref import getweakrefcount

from headrace.core.metadata import MetadataDictionary
from headrace.gpu.allocation import Allocation, StreamUser, allocation_at, in_use

__all__ = [
    "PLAIN",
    "add_owners",
    "has_allocations",
    "is_shared_elsewhere",
    "only_kept",
    "sort_allocations",
]

_MOST = 1024
_FORGET = 10_000  # the maximum number of cached types, because programs may create types as they run

PLAIN: set[type] = {
    *(int, float, complex, bool, str, bytes, range, slice, type(None), type(Ellipsis), type(NotImplemented)),
    *(type, EnumMeta, types.ModuleType, types.CodeType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
    *(types.GenericAlias, types.FrameType, types.TracebackType),
}
"""The types that contain no memory that a device could read."""

_Walk = Callable[[Any, "list[Any]"], Any]
# How each type is handled: a function that adds the owner of an object and returns further objects to walk.
_kinds: dict[type, _Walk] = {}


def add_owners(data: Any, owners: list[Any], most: int = _MOST) -> None:
    """Add the owners of the memory in a received object to a list; an owner may appear more than once."""
    walk = _kinds.get(type(data))
    if walk is None:
        if type(data) in PLAIN:
            return
        walk = _kind_of(type(data))
    inside = walk(data, owners)
    if inside:
        _walk_inside(data, inside, owners, most)


def _walk_inside(root: Any, inside: Any, owners: list[Any], most: int) -> None:
    seen = {id(root)}
    queue = deque(inside)
    while queue:
        data = queue.popleft()
        kind = type(data)
        if kind in PLAIN or id(data) in seen:
            continue
        if most == 0:
            owners.append(data)  # not walked: kept as it is
            continue
        most -= 1
        seen.add(id(data))
        walk = _kinds.get(kind)
        if walk is None:
            walk = _kind_of(kind)
        queue.extend(walk(data, owners))


def _kind_of(kind: type) -> _Walk:
    """Return the handler for objects of a type, and cache it."""
    try:
        walk = _find_kind(kind)
    except Exception:  # a class whose attributes cannot be read
        walk = _opaque
    if len(_kinds) + len(PLAIN) > _FORGET:
        _kinds.clear()
    if walk is _nothing and len(PLAIN) < _FORGET:
        PLAIN.add(kind)
    else:
        _kinds[kind] = walk
    return walk


def _find_kind(kind: type) -> _Walk:
    names = {(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__}
    if ("torch", "Tensor") in names:
        return _torch_tensor
    if ("numpy", "ndarray") in names:
        return _numpy_array
    if names & _PLAIN_NAMES or isinstance(kind, EnumMeta) or issubclass(kind, type):
        return _nothing
    if kind.__module__.startswith("headrace.tensor"):
        if kind.__name__ == "Tensor":
            return _headrace_tensor
        if kind.__name__ == "TensorMap":
            return _tensor_map
    if kind is MetadataDictionary:
        return _mapping
    if any(_is_of_the_run(base) for base in kind.__mro__):
        return _nothing
    if kind.__name__ == "Buffer" and kind.__module__.startswith(("headrace.gpu", "cuda.core")):
        return _buffer
    if kind.__module__.startswith("headrace.gpu"):
        return _leaf
    if hasattr(kind, "__cuda_array_interface__"):
        return _device_array
    if kind in _COLLECTIONS:
        return _mapping if kind is dict else _collection
    if kind in _CONTAINERS:
        return _container
    if kind is types.FunctionType:
        return _function
    is_array = hasattr(kind, "__dlpack__")
    if _is_written_in_python(kind):
        return _opaque if is_array or hasattr(kind, "__del__") else _instance
    return _leaf if is_array else _opaque


_PLAIN_NAMES = {
    *(("numpy", "generic"), ("numpy", "dtype")),
    *(("datetime", name) for name in ("date", "time", "timedelta", "tzinfo")),
}
_COLLECTIONS = frozenset({list, tuple, dict, set, frozenset, deque})
_CONTAINERS = frozenset(
    {
        *_COLLECTIONS,
        *(types.SimpleNamespace, types.MappingProxyType, types.CellType, property),
        *(types.MethodType, types.BuiltinMethodType),
        *(type(iter(())), type(iter([])), type(iter({})), type(iter({}.values())), type(iter({}.items()))),
        *(type({}.keys()), type({}.values()), type({}.items()), type(iter(set())), type(iter(deque()))),
        *(map, filter, zip, enumerate, reversed, types.GeneratorType, types.CoroutineType),
    }
)
_OF_THE_RUN = ("headrace.core.", "headrace._runtime.", "headrace.conditions.", "headrace.resources.")


def _is_of_the_run(base: type) -> bool:
    """Return whether a class is one of headrace's, whose objects refer to the whole application."""
    module = base.__module__
    return module.startswith(_OF_THE_RUN) or module == "headrace.gpu.stream_handle"


def _is_written_in_python(kind: type) -> bool:
    """Return whether instances hold only what Python sees: attributes, slots, and a built-in container's items."""
    size = max(base.__basicsize__ for base in kind.__mro__ if base is object or base in _CONTAINERS)
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        size += _POINTER * (1 if isinstance(slots, str) else len(tuple(slots)))
    return kind.__basicsize__ <= size + 2 * _POINTER  # for its dict and its weak references


_POINTER = 8


# The handlers, by type.


def _nothing(data: Any, owners: list[Any]) -> tuple[Any, ...]:
    return ()


def _collection(data: Any, owners: list[Any]) -> Any:
    if len(data) <= _MOST:
        return data
    owners.append(data)
    return islice(data, _MOST)


def _mapping(data: Any, owners: list[Any]) -> Any:
    if len(data) <= _MOST:
        return [*data.values(), *data] if any(type(key) not in PLAIN for key in data) else data.values()
    owners.append(data)
    return islice(data.values(), _MOST)


def _container(data: Any, owners: list[Any]) -> list[Any]:
    return gc.get_referents(data)


def _instance(data: Any, owners: list[Any]) -> list[Any]:
    if getweakrefcount(data):
        owners.append(data)
    return gc.get_referents(data)


def _opaque(data: Any, owners: list[Any]) -> list[Any]:
    owners.append(data)
    return gc.get_referents(data)


def _leaf(data: Any, owners: list[Any]) -> tuple[Any, ...]:
    owners.append(data)
    return ()


def _buffer(data: Any, owners: list[Any]) -> tuple[Any, ...]:
    owners.append((allocation_at(int(data.handle)) or data) if in_use else data)
    return ()


def _function(data: Any, owners: list[Any]) -> list[Any]:
    # Not its globals.
    return [data.__closure__, data.__defaults__, data.__kwdefaults__, data.__dict__]


def _device_array(data: Any, owners: list[Any]) -> list[Any] | tuple[Any, ...]:
    """Handle CuPy's arrays, and other arrays in CUDA memory."""
    try:
        memory = data.data.mem
        owners.append((allocation_at(getattr(memory, "ptr", 0)) or memory) if in_use else memory)
    except Exception:  # it has none, or reading it failed
        return _opaque(data, owners) if _is_written_in_python(type(data)) else _leaf(data, owners)
    return ()


def _numpy_array(data: Any, owners: list[Any]) -> list[Any] | tuple[Any, ...]:
    owner = data
    base = data.base
    while base is not None:
        owner = base
        # An object that lends its memory to an array may also have a `base`, with another meaning.
        base = owner.base if isinstance(owner, sys.modules["numpy"].ndarray) else None
    owners.append((_allocation_of_numpy(data) or owner) if in_use else owner)
    return list(islice(data.flat, _MOST)) if data.dtype.hasobject else ()


def _allocation_of_numpy(data: Any) -> Allocation | None:
    while isinstance(data.base, sys.modules["numpy"].ndarray):
        data = data.base
    return allocation_at(data.__array_interface__["data"][0])


def _headrace_tensor(data: Any, owners: list[Any]) -> list[Any]:
    found = [data.owner]
    if type(data.owner) is Allocation:
        return found
    if not (_kinds.get(type(data.owner)) in _ARRAYS or type(data.owner) in PLAIN):
        # It may export an array other than the one it keeps.
        found += [data._held, data._exporter]
    return found


def _tensor_map(data: Any, owners: list[Any]) -> list[Any]:
    """Handle a TensorMap: the owners of its tensors are added without a walk, because every frame is one."""
    if len(data) > _MOST:
        return _instance(data, owners)
    inside: list[Any] = []
    for name, tensor in data.items():
        if type(name) is not str:
            inside.append(name)
        if _kinds.get(type(tensor)) is not _headrace_tensor:  # or the first tensor of all
            inside.append(tensor)
            continue
        owner = tensor.owner
        if type(owner) is Allocation:
            owners.append(owner)
            continue
        walk = _kinds.get(type(owner))
        if walk in _ARRAYS:
            inside += walk(owner, owners)
        else:
            inside += _headrace_tensor(tensor, owners)
    return inside


def _torch_tensor(data: Any, owners: list[Any]) -> tuple[Any, ...]:
    try:
        storage = data.untyped_storage()
        owners.append((allocation_at(storage.data_ptr()) or storage) if in_use else storage)
    except (NotImplementedError, RuntimeError):  # a sparse tensor, or a backend without storage
        owners.append(data)
    return ()


_ARRAYS = (_torch_tensor, _numpy_array, _device_array)


# Memory of allocators.


def has_allocations(owners: list[Any]) -> bool:
    """Return whether any of the owners is an allocation."""
    return Allocation in map(type, owners)


def sort_allocations(owners: list[Any], user: StreamUser) -> None:
    """Remove the allocations from a list of owners, and add the operator that received them to their users."""
    pools = {}
    kept: list[Any] = []
    for owner in owners:
        if type(owner) is Allocation:
            owner.add_user(user)
            pools[id(owner.pool)] = owner.pool
        else:
            kept.append(owner)
    owners[:] = kept
    owner = None  # or this variable would hold the last one
    # Those that nobody holds any more have come back: their events are recorded here, where nothing is locked.
    for pool in pools.values():
        pool.collect()


# Whether the program still holds an owner.

# Read through `map`, so that no local variable adds a reference: one reference is the list's.
_ALONE = next(map(sys.getrefcount, [object()]))
# PyTorch's storage type, and the function that counts the tensors sharing one, once PyTorch is imported.
_storage: Any = None
_storage_users: Any = None


def only_kept(owners: list[Any]) -> bool:
    """Return whether only this list refers to the owners in it; each owner appears once."""
    for count in map(sys.getrefcount, owners):
        if count > _ALONE:
            return False
    return "torch" not in sys.modules or not any(map(is_shared_elsewhere, owners))


def is_shared_elsewhere(owner: Any) -> bool:
    """Return whether an owner's memory is shared in a way that Python's reference counts do not show."""
    global _storage, _storage_users
    if _storage is None:
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        _storage, _storage_users = torch.UntypedStorage, torch._C._storage_Use_Count
    return type(owner) is _storage and _storage_users(owner._cdata) > 1
