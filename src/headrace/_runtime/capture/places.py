"""Places: where state of the host is kept, what was in each, and how that is put back.

A place is a dict of attributes or variables, a container, the bytes of an array, or a generator of random numbers.
What is in it is compared by identity. Numbers, text and tuples of these are compared by value, in type and to the
last bit: 1 and 1.0, 0.0 and -0.0 make different kernels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from functools import partial
from operator import attrgetter, is_, itemgetter
from types import MappingProxyType
from typing import Any

__all__ = ["Absent", "Bytes", "Cell", "Items", "Place", "State", "Variables", "is_equal", "place_of"]

_MOST_BYTES = 16 << 20  # larger arrays of the host are tables, not state
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Place:
    """Where state is kept.

    Attributes
    ----------
    label
        What a program calls it, as ``self.history``.
    size
        What it takes to compare it, in bytes or in values.
    """

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label

    @property
    def size(self) -> int:
        """What it takes to compare it."""
        raise NotImplementedError

    @property
    def what(self) -> Any:
        """The object that holds it; two places of one object are the same."""
        return self

    def is_same(self) -> bool:
        """Return whether it holds what it held."""
        raise NotImplementedError

    def difference(self) -> str:
        """Return what has changed, as a program calls it; an empty text if nothing has."""
        return "" if self.is_same() else self.label

    def restore(self) -> None:
        """Put back what it held."""
        raise NotImplementedError


class Variables(Place):
    """Values under names: attributes of an object or a class, or variables of a module.

    Parameters
    ----------
    label
        What comes before a name.
    owner
        The object that the values belong to.
    source
        Its dict or, if it has none, the object itself.
    names
        The names.
    assign
        Sets the value of a name.
    ignored
        Names that may be added to the dict; a name that is neither here nor there is a change. None if any may.

    Attributes
    ----------
    names, source
        As given.
    owner
        The object that the values belong to.
    values
        The values.
    """

    __slots__ = ("_assign", "_count", "_get", "_ignored", "names", "owner", "source", "values")

    def __init__(
        self,
        label: str,
        owner: Any,
        source: Any,
        names: Sequence[str],
        assign: Callable[[str, Any], None],
        ignored: Container[str] | None = None,
    ) -> None:
        super().__init__(label)
        self.owner = owner
        self.source = source
        self.names = names
        self._assign = assign
        self._ignored = ignored
        self._count = -1 if ignored is None else len(source)
        self._get = _getter(source, names)
        self.values: tuple[Any, ...] = self._get(source)

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.names)

    def called(self, name: str) -> str:
        """Return what a program calls the value of a name."""
        return self.label + name

    def is_same(self) -> bool:
        """Return whether each name has the value that it had."""
        if self._count >= 0 and len(self.source) != self._count:
            if self._added():
                return False
            self._count = len(self.source)
        try:
            now = self._get(self.source)
        except (KeyError, AttributeError, ValueError):
            return False
        return all(map(is_, now, self.values)) or all(map(is_equal, now, self.values))

    def difference(self, ignored: Container[str] = ()) -> str:
        """Return the name whose value has changed; an empty text if it is one of those that are ignored."""
        for name, value in zip(self.names, self.values, strict=True):
            if name in ignored:
                continue
            try:
                (now,) = _getter(self.source, (name,))(self.source)
            except (KeyError, AttributeError, ValueError):
                return self.called(name)
            if not is_equal(now, value):
                return self.called(name)
        added = [name for name in self._added() if name not in ignored]
        return self.called(added[0]) if added else ""

    def restore(self, ignored: Container[str] = ()) -> None:
        """Assign the values again, and remove new names, except those that are ignored."""
        for name in self._added():
            if name not in ignored:
                del self.source[name]
        for name, value in zip(self.names, self.values, strict=True):
            if name not in ignored:
                self._assign(name, value)

    def _added(self) -> list[str]:
        ignored = self._ignored
        if ignored is None:
            return []
        # Of a copy: another thread may add one meanwhile.
        return [name for name in list(self.source) if name not in self.names and name not in ignored]


class Cell(Variables):
    """A variable of a function around, which has a value."""

    __slots__ = ()

    def __init__(self, label: str, cell: Any) -> None:
        super().__init__(label, cell, cell, ("cell_contents",), partial(setattr, cell))

    def called(self, name: str) -> str:
        """Return the name of the variable."""
        return self.label

    def difference(self, ignored: Container[str] = ()) -> str:
        """Return the name of the variable if its value has changed."""
        return "" if self.label in ignored else super().difference()

    def restore(self, ignored: Container[str] = ()) -> None:
        """Assign the value again."""
        if self.label not in ignored:
            super().restore()


class Absent(Place):
    """Names that a dict of attributes or variables does not have; `Variables` finds those that compute adds."""

    __slots__ = ("_count", "_names", "_source")

    def __init__(self, label: str, source: dict[str, Any], names: Sequence[str]) -> None:
        super().__init__(label)
        self._source = source
        self._names = names
        self._count = len(source)

    @property
    def size(self) -> int:
        """One: the number of names in the dict is compared."""
        return 1

    def is_same(self) -> bool:
        """Return whether none of the names is there."""
        count = len(self._source)
        if count != self._count:
            if self.difference():
                return False
            self._count = count
        return True

    def difference(self) -> str:
        """Return the name that is there now; an empty text if none is."""
        return next((self.label + name for name in self._names if name in self._source), "")


class Items(Place):
    """A list, a deque, a set or a dict."""

    __slots__ = ("_container", "_is_dict", "_keys", "_values")

    def __init__(self, label: str, container: Any) -> None:
        super().__init__(label)
        self._container = container
        self._is_dict = isinstance(container, (dict, MappingProxyType))
        self._keys: list[Any] = list(container)
        self._values: list[Any] = list(container.values()) if self._is_dict else self._keys

    @property
    def size(self) -> int:
        """The number of items."""
        return len(self._values)

    @property
    def what(self) -> Any:
        """The container."""
        return self._container

    def is_same(self) -> bool:
        """Return whether it has the same items in the same order."""
        container = self._container
        if len(container) != len(self._keys):
            return False
        try:
            if self._is_dict and not all(map(is_equal, container, self._keys)):
                return False
            now = container.values() if self._is_dict else container
            return all(map(is_, now, self._values)) or all(map(is_equal, now, self._values))
        except RuntimeError:  # another thread changed it meanwhile
            return False

    def restore(self) -> None:
        """Put the items back; through a view of a dict that is not possible."""
        container = self._container
        if isinstance(container, MappingProxyType):
            return
        container.clear()
        if self._is_dict:
            for key, value in zip(self._keys, self._values, strict=True):
                container[key] = value  # `update` of a Counter adds
        elif isinstance(container, set):
            container.update(self._values)
        else:
            container.extend(self._values)


class Bytes(Place):
    """An array of the host, or other memory that can be viewed as bytes."""

    __slots__ = ("_kept", "_object", "_saved", "_shape")

    def __init__(self, label: str, memory: Any) -> None:
        super().__init__(label)
        self._object = memory
        self._saved = _bytes_of(memory)
        self._shape = getattr(memory, "shape", None)
        # The bytes of an array of objects are their identities, which are not used again while they are kept.
        self._kept = memory.copy() if _has_objects(memory) else None

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self._saved)

    @property
    def what(self) -> Any:
        """The array."""
        return self._object

    def is_same(self) -> bool:
        """Return whether the shape and the bytes are the same."""
        try:
            return _bytes_of(self._object) == self._saved and (
                self._shape is None or self._object.shape == self._shape
            )
        except ValueError:  # a view that was released
            return False

    def restore(self) -> None:
        """Put the bytes back, if that is possible."""
        found = self._object
        if hasattr(found, "dtype"):
            import numpy as np

            if found.flags.writeable:
                if found.shape != self._shape:
                    found.shape = self._shape
                saved = np.frombuffer(self._saved, found.dtype) if self._kept is None else self._kept
                np.copyto(found, saved.reshape(found.shape))
        elif isinstance(found, bytearray):
            found[:] = self._saved
        else:
            with memoryview(found) as view:
                if not view.readonly:
                    view.cast("B")[:] = self._saved


class State(Place):
    """An object that returns and takes its state, such as a generator of random numbers."""

    __slots__ = ("_get", "_saved", "_set")

    def __init__(self, label: str, get: Callable[[], Any], put: Callable[[Any], object]) -> None:
        super().__init__(label)
        self._get = get
        self._set = put
        self._saved = get()

    @property
    def size(self) -> int:
        """A large number: the state is not small."""
        return 1 << 20

    def is_same(self) -> bool:
        """Return whether the state is the same."""
        return repr(self._get()) == repr(self._saved)

    def restore(self) -> None:
        """Set the state."""
        self._set(self._saved)


def place_of(label: str, item: Any) -> Place | None:
    """Return the place that a container, an array or a generator of random numbers is; None for other objects."""
    if isinstance(item, (list, dict, set, deque, MappingProxyType)):
        return Items(label, item)
    modules = {base.__module__ for base in type(item).__mro__}
    if "numpy" in {module.partition(".")[0] for module in modules}:
        return _place_of_numpy(label, item)
    if type(item).__module__ == "random" and hasattr(item, "getstate"):
        return State(label, item.getstate, item.setstate)
    if isinstance(item, (bytearray, memoryview)) or modules & {"array", "ctypes", "_ctypes"}:
        try:
            return Bytes(label, item)
        except (TypeError, ValueError, BufferError):
            return None
    return None


def _place_of_numpy(label: str, item: Any) -> Place | None:
    kind = type(item)
    if hasattr(item, "dtype") and hasattr(item, "tobytes") and hasattr(item, "flags"):
        # A view that is read-only may be of an array that is not.
        may_change = item.flags.writeable or item.base is not None
        return Bytes(label, item) if may_change and item.nbytes <= _MOST_BYTES else None
    if kind.__name__ == "RandomState":
        return State(label, item.get_state, item.set_state)
    generator = getattr(item, "bit_generator", item if kind.__name__ in _BIT_GENERATORS else None)
    if generator is None:
        return None
    return State(label, lambda: generator.state, lambda state: setattr(generator, "state", state))


_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same to whoever computes with them."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _PLAIN:
        return repr(one) == repr(other) if kind is float or kind is complex else bool(one == other)
    if kind is tuple:
        return len(one) == len(other) and all(map(is_equal, one, other))
    if kind.__module__ == "numpy" and hasattr(one, "tobytes") and not hasattr(one, "__len__"):
        return one.dtype == other.dtype and bool(one.tobytes() == other.tobytes())
    return False


def _has_objects(memory: Any) -> bool:
    return bool(getattr(getattr(memory, "dtype", None), "hasobject", False))


def _bytes_of(memory: Any) -> bytes:
    if hasattr(memory, "tobytes"):
        found: bytes = memory.tobytes()
        return found
    with memoryview(memory) as view:
        return view.tobytes()


def _getter(source: Any, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of names in a dict or an object, as a tuple."""
    if not names:
        return lambda source: ()
    get: Any = itemgetter if type(source) in (dict, MappingProxyType) else attrgetter
    if len(names) > 1:
        every: Callable[[Any], tuple[Any, ...]] = get(*names)
        return every
    only = get(names[0])
    return lambda source: (only(source),)
