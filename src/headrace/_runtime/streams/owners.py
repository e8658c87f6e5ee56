"""The owners of the memory in a received object, which must stay alive.

A frame is freed when the last object that refers to its memory is destroyed: the array, a view of it, an export of
it to another library. All of these share one object that owns the memory, and that object is kept. Its reference
count then shows whether the program still holds the frame (`only_kept`), in any form and anywhere.

The owner of an array is what its library says (`headrace.tensor.Library.owner`), that of a Tensor the owner of the
array it was made from. For memory of an allocator it is the allocation, found by its address if the library hides
it. An array of a library that does not say is kept itself, like every other object that may free something when it
is destroyed.

A received object is walked once, when it is received: afterwards its fields may be replaced and its lists emptied.
Containers and instances are walked through the references that the garbage collector reports. An instance of a
class written in Python is itself kept only if its destruction has an effect: it has ``__del__``, or weak
references, which may belong to a finalizer. The walk ends after a limited number of objects; the rest is kept
through the object that contains it.

**What is still held.** An operator may hold a received frame: as the previous frame, in a batch, as a view. It may
pass the frame on, and then others hold it. Such a frame must live until it is no longer held *and* the streams that
may read it have completed their work up to that moment. No event announces that moment. So each operator that
received the frame checks the reference count of the owner after its computes.

All operators that keep a frame share one record of it (`Watched`), and only that record refers to the owner. So
operators that wait for the program to release a frame never wait for each other. The record is destroyed with the
last operator's reference to it. The receivers of one message find its record in the message (`Envelope.record`);
other operators that keep the frame find it in the `Watch` of the run, once they have seen that the frame is held.

This module is not compiled: reference counts are read here, and they differ in compiled code.
"""

from __future__ import annotations

import gc
import threading
import types
from collections import deque
from collections.abc import Callable
from enum import EnumMeta
from itertools import islice
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount, ref

from headrace.core.metadata import MetadataDictionary
from headrace.gpu.allocation import Allocation, StreamUser, allocation_at, in_use
from headrace.tensor import Tensor, TensorMap
from headrace.tensor.libraries import (
    NEVER_ALLOCATED,
    Library,
    find_library,
    hidden_users,
    when_registered,
)
from headrace.tensor.tree import Visitor, once

_MOST = 1024
_FORGET = 10_000  # the maximum number of cached types, because programs may create types as they run

PLAIN: set[type] = {
    *(int, float, complex, bool, str, bytes, range, slice, type(None), type(Ellipsis), type(NotImplemented)),
    *(type, EnumMeta, types.ModuleType, types.CodeType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
    *(types.GenericAlias, types.FrameType, types.TracebackType),
}
"""The types that contain no memory that a device could read."""


class _Visitors(dict[type, Visitor]):
    """How each type is handled: a function that adds the owner of an object and returns further objects to walk."""

    def __missing__(self, kind: type) -> Visitor:
        """Find the function for a type, and remember it."""
        if len(self) + len(PLAIN) > _FORGET:
            _forget()
        try:
            visit = _find_visitor(kind)
        except Exception:  # a class whose attributes cannot be read
            visit = _opaque
        if visit is _nothing and len(PLAIN) < _FORGET:
            PLAIN.add(kind)
        else:
            self[kind] = visit
        return visit


_visitors = _Visitors()
# The types of the owners of arrays that were found.
_memory_types: set[type] = set()
# The functions for arrays whose library knows their owner.
_arrays: dict[type, Visitor] = {}
array_owners: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
"""For types of arrays that hold no Python objects: the functions that return the owner; the second one returns the
allocation in its place if there is one."""


def add_owners(data: Any, owners: list[Any], most: int = _MOST) -> None:
    """Add the owners of the memory in a received object to a list; an owner may appear more than once."""
    visit = _visitors.get(type(data))
    if visit is None:
        if type(data) in PLAIN:
            return
        visit = _visitors[type(data)]
    inside = visit(data, owners)
    if inside:
        once(inside, _visitors, owners, most, PLAIN, {id(data)})


def _forget() -> None:
    _visitors.clear()
    _arrays.clear()
    array_owners.clear()


when_registered(_forget)


def _find_visitor(kind: type) -> Visitor:
    library = find_library(kind)
    if type(library).owner is not Library.owner:
        visit = _arrays[kind] = _array_visitor(library)
        if not library.holds_objects:
            array_owners[kind] = (library.owner, _finding(library))
        return visit
    names = {(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__}
    if names & _PLAIN_NAMES or isinstance(kind, EnumMeta) or issubclass(kind, type):
        return _nothing
    if kind is Tensor:
        return _headrace_tensor
    if kind is TensorMap or kind is MetadataDictionary:
        return _mapping
    if any(_is_of_the_run(base) for base in kind.__mro__):
        return _nothing
    if kind.__module__.startswith("headrace.gpu"):
        return _leaf
    if kind in _COLLECTIONS:
        return _mapping if kind is dict else _collection
    if kind in _CONTAINERS:
        return _container
    if kind is types.FunctionType:
        return _function
    is_array = any(hasattr(kind, name) for name in _ARRAYS)
    if _is_written_in_python(kind):
        return _opaque if is_array or hasattr(kind, "__del__") else _instance
    return _leaf if is_array else _opaque


_ARRAYS = ("__dlpack__", "__cuda_array_interface__")
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


# The functions for types.


def _nothing(data: Any, owners: list[Any]) -> tuple[Any, ...]:
    return ()


def _collection(data: Any, owners: list[Any]) -> Any:
    if len(data) <= _MOST:
        return data
    owners.append(data)
    return islice(data, _MOST)


def _mapping(data: Any, owners: list[Any]) -> Any:
    """Handle a dict or a TensorMap: the owners of its arrays are added without a walk, because most frames are one.

    The receiver gets a copy of a dict, so values beyond the limit are kept themselves, and not through the dict.
    """
    inside = [key for key in data if type(key) not in PLAIN]
    for value in data.values():
        array = value.owner if type(value) is Tensor else value
        visit = _arrays.get(type(array))
        if visit is not None:
            inside += visit(array, owners)
        elif type(array) is Allocation:
            owners.append(array)
        elif type(value) not in PLAIN:
            inside.append(value)
    if len(inside) > _MOST:
        owners += inside[_MOST:]
        del inside[_MOST:]
    return inside


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


def _function(data: Any, owners: list[Any]) -> list[Any]:
    # Not its globals.
    return [data.__closure__, data.__defaults__, data.__kwdefaults__, data.__dict__]


def _array_visitor(library: Library) -> Visitor:
    """Return the function for arrays of a library that knows their owners."""
    owner_of, begin_of, holds_objects = library.owner, library.begin, library.holds_objects

    def visit(data: Any, owners: list[Any]) -> Any:
        try:
            owner = (allocation_at(begin_of(data)) or owner_of(data)) if in_use else owner_of(data)
            owners.append(owner)
            _memory_types.add(type(owner))
        except Exception:  # it has none, as a sparse tensor, or reading it failed
            return _opaque(data, owners) if _is_written_in_python(type(data)) else _leaf(data, owners)
        return list(islice(data.flat, _MOST)) if holds_objects and data.dtype.hasobject else ()

    return visit


def _headrace_tensor(data: Any, owners: list[Any]) -> list[Any]:
    found = [data.owner]
    if type(data.owner) is Allocation:
        return found
    if not (type(data.owner) in _arrays or type(data.owner) in PLAIN):
        # It may export an array other than the one it keeps.
        found += [data._held, data._exporter]
    return found


def memory_in(data: Any) -> list[Any]:
    """Return the owners of the arrays in an object, each once, and no other object that has to stay alive.

    Allocations are left out: each stands for one use of its memory, which is never sent again.
    """
    found: list[Any] = []
    add_owners(data, found)
    once_each = {id(owner): owner for owner in found}
    return [
        owner
        for owner in once_each.values()
        if type(owner) is not Allocation
        and (type(owner) in _memory_types or any(hasattr(type(owner), name) for name in _ARRAYS))
    ]


# Memory of allocators.


def _finding(library: Library) -> Callable[[Any], Any]:
    """Return the function that finds the allocation that an array of a library is on, or else its owner."""
    owner_of, begin_of = library.owner, library.begin

    def find(array: Any) -> Any:
        owner = owner_of(array)
        if type(owner) in NEVER_ALLOCATED:
            return owner
        found = in_use.get(begin_of(array))  # as `allocation_at`
        return owner if found is None else found() or owner

    return find


def sort_allocations(owners: list[Any], user: StreamUser) -> list[Any]:
    """Add the operator that received the allocations among owners to their users; return the other owners.

    The list is emptied.
    """
    pools = {}
    kept: list[Any] = []
    for owner in owners:
        if type(owner) is Allocation:
            owner.add_user(user)
            pools[id(owner.pool)] = owner.pool
        else:
            kept.append(owner)
    owners.clear()
    owner = None  # or this variable would hold the last one
    # Those that nobody holds any more have come back: their events are recorded here, where nothing is locked.
    for pool in pools.values():
        pool.collect()
    return kept


# Whether the program still holds an owner.


def only_kept(owners: list[Any], besides: int = 0) -> bool:
    """Return whether only this list refers to the owners in it, and each appears once; there is at least one.

    `besides` is the number of references to each that do not count.
    """
    if max(map(getrefcount, owners)) > _ALONE + besides:
        return False
    return not (hidden_users and _are_shared_elsewhere(owners))


def _are_shared_elsewhere(owners: list[Any]) -> bool:
    kinds = set(map(type, owners))
    if len(kinds) > 1:
        return any(map(is_shared_elsewhere, owners))
    most = hidden_users.get(kinds.pop())
    return most is not None and most(owners) > 1


def is_shared_elsewhere(owner: Any) -> bool:
    """Return whether an owner's memory is shared in a way that Python's reference counts do not show."""
    most = hidden_users.get(type(owner))
    return most is not None and most((owner,)) > 1


def _count_alone() -> int:
    """Return the count that `only_kept` reads for an object that only its list refers to."""
    return max(map(getrefcount, [object()]))


_ALONE = _count_alone()


_SPARE = 64


class Watched:
    """The owner of the memory of a frame, while the program may hold it."""

    __slots__ = ("__weakref__", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def still_held(records: list[Watched]) -> list[Watched]:
    """Return the records of frames that the program holds; there is at least one record, and each appears once."""
    owners = [frame.owner for frame in records]
    if only_kept(owners, besides=1):
        return []
    # Often the newest one alone: another receiver has not taken it yet.
    if len(owners) > 1 and only_kept(owners[:-1], besides=2):
        return records[-1:]
    counts = map(getrefcount, owners)
    return [
        frame
        for frame, count in zip(records, counts, strict=True)
        if count > _ALONE_IN_RECORD + 1 or is_shared_elsewhere(frame.owner)
    ]


def no_longer_held(watched: dict[int, Watched]) -> list[int]:
    """Return the keys of the frames that are no longer held."""
    return [
        key
        for key, frame in watched.items()
        if getrefcount(frame.owner) <= _ALONE_IN_RECORD and not is_shared_elsewhere(frame.owner)
    ]


def _count_in(frame: Watched) -> int:
    return getrefcount(frame.owner)


_ALONE_IN_RECORD = _count_in(Watched(object()))


class Watch:
    """The frames of one run that are still held, by the identity of the owner of their memory."""

    def __init__(self) -> None:
        # Guards the rest: operators on several threads may begin to watch the same frame.
        self._lock = threading.Lock()
        # The entry of a destroyed record may stay for a while.
        self._watched: dict[int, ref[Watched]] = {}
        self._most = _SPARE

    def begin(self, owner: Any, record: Watched | None = None) -> Watched:
        """Return the record of an owner, which another operator may share: the given one, if there is none yet."""
        key = id(owner)
        with self._lock:
            known = self._watched.get(key)
            found = None if known is None else known()
            if found is None:
                found = Watched(owner) if record is None else record
                self._watched[key] = ref(found)
                if len(self._watched) > self._most:
                    self._clear()
            return found

    def _clear(self) -> None:
        """Remove the entries of destroyed records."""
        self._watched = {key: record for key, record in self._watched.items() if record() is not None}
        self._most = 2 * len(self._watched) + _SPARE
