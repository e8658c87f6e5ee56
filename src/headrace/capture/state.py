"""What operators keep from frame to frame: arrays on the device, and attributes on the host.

State that is changed in place stays at its address, so a graph finds it there. State that `compute` *assigns*
(`self.previous = frame`) is somewhere else after every compute. If it is declared (`spec.state`), the segment keeps
it in a buffer of its own. The attribute refers to the buffer when a graph is recorded, and the graph ends with a
copy of what was assigned to the buffer. An ordinary compute gets a copy of the buffer, since it may send what it
finds, and what it assigns is copied to the buffer before the next replay.

A recording is a rehearsal: what it launches is recorded, and the frame is computed or replayed afterwards. So it
must leave nothing behind. What it assigned on the host is put back (`HostAttributes`). What it did elsewhere, in
objects and queues that others use too, cannot be put back; whether it changed anything can be told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import gpu
from headrace._runtime import add_owners
from headrace.capture.refusal import Refusal
from headrace.core.operator import Operator
from headrace.core.parameters import reserved_names
from headrace.gpu.capture import RecordedCopy
from headrace.tensor import tree
from headrace.tensor.device_arrays import Layout, Unsupported, kind_of, new_array, span_of
from headrace.tensor.device_memory import DeviceMemory, KeptArray, copy
from headrace.tensor.structures import Leaves, key_of_object, take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace._runtime import Node

_ALIGNED = 256


class _Buffer(NamedTuple):
    layout: Layout
    memory: DeviceMemory
    array: Any
    size: int
    aside: int
    """The address of as much memory behind the buffer."""


class DeviceState:
    """The arrays that the operators of a segment keep, and the buffers of those that they assign."""

    def __init__(self, members: Sequence[Node]) -> None:
        self._members = members
        self._declared = [(node.operator, name) for node in members for name in node.operator.spec.states]
        self._last = {key: getattr(*key, None) for key in self._declared}
        self._assigned: set[tuple[Operator, str]] = set()
        self.buffers: dict[tuple[Operator, str], _Buffer] = {}
        """The buffers of the attributes that computes assign."""

    def note_assigned(self) -> bool:
        """Find out which declared attributes a compute has assigned; return whether there are new ones."""
        before = len(self._assigned)
        for key in self._declared:
            value = getattr(*key, None)
            if value is not self._last[key]:
                self._assigned.add(key)
                self._last[key] = value
        return len(self._assigned) > before

    def adopt(self, stream: gpu.StreamHandle, kept: list[Any]) -> bool:
        """Copy what was assigned to the buffers, on a stream; return whether a buffer is new.

        `kept` gets what has to live until the stream has copied it.
        """
        is_new = False
        copies: list[tuple[_Buffer, int]] = []
        for operator, name in self._assigned:
            value = getattr(operator, name)
            known = self.buffers.get((operator, name))
            if known is not None and value is known.array:
                continue
            layout = self._layout_of(operator, name, value)
            if known is None or known.layout != layout:
                is_new = True
                before, size = layout.kind.extent(layout)
                behind = -(-size // _ALIGNED) * _ALIGNED
                memory = DeviceMemory(stream, behind + size)
                array = layout.kind.at(layout, memory.address + before, memory)
                known = _Buffer(layout, memory, array, size, memory.address + behind)
                self.buffers[operator, name] = known
            copies.append((known, span_of(value)[0]))
            add_owners(value, kept)
            setattr(operator, name, known.array)
            self._last[operator, name] = known.array
        _copy_all(copies, partial(copy, stream))
        return is_new

    def release(self, stream: gpu.StreamHandle) -> None:
        """Let attributes refer to copies of the buffers, on a stream: a compute may send what it finds there."""
        for (operator, name), buffer in self.buffers.items():
            if getattr(operator, name) is buffer.array:
                array = new_array(buffer.layout, stream)
                copy(stream, span_of(array)[0], buffer.memory.address, buffer.size)
                setattr(operator, name, array)
                self._last[operator, name] = array

    @property
    def unknown(self) -> str:
        """A declared attribute that refers to nothing, in words, or an empty text; a first compute may make it."""
        found = [
            (operator, name) for operator, name in self._declared if getattr(operator, name, None) is None
        ]
        return f"state {found[0][1]!r} of operator {found[0][0].name!r}" if found else ""

    @property
    def is_set_anew(self) -> bool:
        """Whether something else than a compute has set an attribute whose buffer graphs use."""
        for (operator, name), buffer in self.buffers.items():  # noqa: SIM110 (every frame asks)
            if getattr(operator, name) is not buffer.array:
                return True
        return False

    def _layout_of(self, operator: Operator, name: str, value: Any) -> Layout:
        kind = kind_of(value)
        with suppress(Unsupported):
            if kind is not None:
                return kind.layout(value)
        raise Refusal(
            f"state {name!r} of operator {operator.name!r} is {type(value).__name__!r}, and not an array on the "
            "device"
        )

    # While a frame is recorded.

    def end_recording(self, stream: gpu.StreamHandle, kept: list[Any]) -> None:
        """Record the copies of what was assigned to the buffers, and let the attributes refer to these again."""
        copies: list[tuple[_Buffer, int]] = []
        for (operator, name), buffer in self.buffers.items():
            value = getattr(operator, name)
            if value is buffer.array:
                continue
            if self._layout_of(operator, name, value) != buffer.layout:
                raise Refusal(
                    f"operator {operator.name!r} assigns an array of another shape or type to its state {name!r}"
                )
            kept.append(value)
            copies.append((buffer, span_of(value)[0]))
        _copy_all(copies, partial(RecordedCopy, stream))

    def take_back(self) -> None:
        """Let attributes refer to the buffers again, whatever a compute that failed has assigned."""
        for (operator, name), buffer in self.buffers.items():
            setattr(operator, name, buffer.array)
            self._last[operator, name] = buffer.array

    def restore(self) -> None:
        """Let the declared attributes refer to what they referred to before a frame was recorded."""
        for (operator, name), value in self._last.items():
            if getattr(operator, name, None) is not value:
                setattr(operator, name, value)

    # While a replay is compared.

    def arrays(self, leave_out: Iterable[Any]) -> list[KeptArray]:
        """Return the arrays that attributes of the operators refer to; not knobs, which are set from outside."""
        found: list[KeptArray] = []
        for node in self._members:
            for name, value in vars(node.operator).items():
                leaves: Leaves = []
                value = list(value) if type(value) is deque else value
                if kind_of(value) is not None or tree.inside(value) is not None:
                    take_apart(value, leaves, [])
                label = f"{name!r} of operator {node.name!r}"
                found += [
                    KeptArray(label, leaf) for leaf in leaves if not any(k.has(leaf) for k in leave_out)
                ]
        return found


def _copy_all(copies: list[tuple[_Buffer, int]], copy_one: Callable[[int, int, int], object]) -> None:
    """Copy to each buffer what is at an address; what lies in a buffer itself is copied aside first.

    It does after ``self.one, self.two = self.two, self.one``.
    """
    for number, (buffer, source) in enumerate(copies):
        if any(b.memory.address - buffer.size < source < b.memory.address + b.size for b, _ in copies):
            copy_one(buffer.aside, source, buffer.size)
            copies[number] = (buffer, buffer.aside)
    for buffer, source in copies:
        copy_one(buffer.memory.address, source, buffer.size)


class HostAttributes:
    """The attributes of operators at one moment.

    State that is declared and knobs are left out. Of parameters, only what is in them counts: whoever sets one
    raises a version (`ParameterVersion`).
    """

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._before = [(operator, dict(vars(operator)), _keys_of(operator)) for operator in operators]
        self._contents: dict[tuple[Operator, str], Any] = {
            (operator, name): value.copy()
            for operator, before, _ in self._before
            for name, value in before.items()
            if type(value) in (list, dict, set)
        }

    def changed(self) -> tuple[Operator, str] | None:
        """Return an attribute that is something else now, or None."""
        for operator, before, keys in self._before:
            for name, key in _keys_of(operator).items():
                is_set = vars(operator)[name] is not before.get(name)
                if key != keys.get(name) and not (is_set and name in operator.spec.params):
                    return operator, name
        return None

    def put_back(self) -> None:
        """Let attributes refer to what they referred to, and lists, dicts and sets contain what they contained."""
        for operator, before, keys in self._before:
            now = vars(operator)  # without `__setattr__`: nobody has set a parameter
            for name, key in _keys_of(operator).items():
                contents = self._contents.get((operator, name))
                if name not in before:
                    del now[name]
                elif now[name] is not before[name]:
                    if name not in operator.spec.params:
                        now[name] = before[name]
                elif contents is not None and key != keys[name]:
                    now[name].clear()
                    (now[name].extend if type(contents) is list else now[name].update)(contents)


def _keys_of(operator: Operator) -> dict[str, Hashable]:
    """Return what the attributes of an operator are compared by; state, knobs and headrace's own are left out."""
    others = {*operator.spec.states, *operator._headrace.knobs.types, *reserved_names(Operator)}
    return {name: key_of_object(value) for name, value in vars(operator).items() if name not in others}
