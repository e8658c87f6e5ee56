"""A value that compute reads on the host is found wherever it is; a change between two frames is seen."""

from __future__ import annotations

import configparser
import ctypes
import types
from collections import UserDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace._runtime.capture.host_state import Attributes, HostState
from tests._runtime.capture.host_states import Config, made


class Amount:
    """A number with operators of its own."""

    def __init__(self) -> None:
        self.hidden = 1

    def __mul__(self, other: int) -> int:
        return self.hidden * other

    def __radd__(self, other: int) -> int:
        return self.hidden + other

    def __neg__(self) -> int:
        return -self.hidden

    def __lt__(self, other: int) -> bool:
        return self.hidden < other

    def __format__(self, spec: str) -> str:
        return str(self.hidden)


class Parameters(ctypes.Structure):
    """What a kernel takes."""

    _fields_ = (("level", ctypes.c_int),)


class Named(np.ndarray):  # type: ignore[type-arg]
    """An array of a class of the program."""


def linear(number: int) -> int:
    return number


def square(number: int) -> int:
    return number * number


class Gentle:
    level = 1


class Strong:
    level = 2


class Kept(UserDict[str, int]):
    """A dict of the standard library, with another name."""


class Checked:
    """A property that keeps its value under its own name."""

    reads = 0

    @property
    def level(self) -> Any:
        Checked.reads += 1
        return vars(self)["level"]

    @level.setter
    def level(self, value: Any) -> None:
        vars(self)["level"] = value


transfer = linear
style: type = Gentle


def _replace_transfer(thing: Any) -> None:
    global transfer
    transfer = square


def _replace_style(thing: Any) -> None:
    global style
    style = Strong


def _add_variable(thing: Any) -> None:
    globals()["late_variable"] = 2


def _parsed() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read_dict({"camera": {"level": "1"}})
    return parser


def _read_late_variable(self: Any) -> Any:
    try:
        return late_variable  # type: ignore[name-defined]
    except NameError:
        return 1


def _release(thing: Any) -> None:
    thing.release()


def _raise_hidden(thing: Amount) -> None:
    thing.hidden = 5


def _set_first(thing: Any) -> None:
    thing[0] = 5


VALUES: dict[str, tuple[Callable[[], Any], Callable[[Any], object], Callable[[Any], Any]]] = {
    "an operator": (Amount, _raise_hidden, lambda self: self.thing * 2),
    "a reflected operator": (Amount, _raise_hidden, lambda self: 2 + self.thing),
    "a sign": (Amount, _raise_hidden, lambda self: -self.thing),
    "a comparison": (Amount, _raise_hidden, lambda self: self.thing < 3),
    "a format": (Amount, _raise_hidden, lambda self: f"{self.thing}"),
    "names in a tuple": (
        lambda: types.SimpleNamespace(level=1, offset=0),
        lambda thing: setattr(thing, "level", 2),
        lambda self: [getattr(self.thing, name) for name in ("level", "offset")],
    ),
    "a structure": (Parameters, lambda thing: setattr(thing, "level", 2), lambda self: self.thing.level),
    "an array of C": (lambda: (ctypes.c_int * 2)(), _set_first, lambda self: self.thing[0]),
    "a view": (lambda: memoryview(bytearray(4)), _set_first, lambda self: self.thing[0]),
    "a view that is released": (lambda: memoryview(bytearray(4)), _release, lambda self: self.thing[0]),
    "an array of a subclass": (lambda: np.zeros(3).view(Named), _set_first, lambda self: self.thing[0]),
    "an array of objects": (lambda: np.array([1, None]), _set_first, lambda self: self.thing[0]),
    "an array behind a view that is read-only": (
        lambda: np.broadcast_to(np.zeros(3), (2, 3)),
        lambda thing: _set_first(thing.base),
        lambda self: self.thing[0, 0],
    ),
    "the shape of an array": (
        lambda: np.zeros((2, 3)),
        lambda thing: setattr(thing, "shape", (3, 2)),
        lambda self: self.thing.shape,
    ),
    "a file that was parsed": (
        _parsed,
        lambda thing: thing.set("camera", "level", "2"),
        lambda self: self.thing.getint("camera", "level"),
    ),
    "a dict of a class of the program": (
        lambda: Kept(level=1),
        lambda thing: thing.update(level=2),
        lambda self: self.thing["level"],
    ),
    "an attribute in the place of that of its class": (
        Gentle,
        lambda thing: setattr(thing, "level", 2),
        lambda self: self.thing.level,
    ),
    "a function with another name": (lambda: None, _replace_transfer, lambda self: transfer(3)),
    "a class with another name": (lambda: None, _replace_style, lambda self: style.level),
    "an attribute that was not there": (
        Config,
        lambda thing: setattr(thing, "late", 2),
        lambda self: getattr(self.thing, "late", 1),
    ),
    "a variable that was not there": (lambda: None, _add_variable, _read_late_variable),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_changes_between_two_frames(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, change, read = VALUES[name]
    for variable in ("transfer", "style"):
        monkeypatch.setitem(globals(), variable, globals()[variable])
    monkeypatch.setitem(globals(), "late_variable", 1)
    del globals()["late_variable"]

    def compute(self: Any, *_: Any) -> Any:
        return read(self)

    step = made(compute)
    step.thing = make()
    attributes = Attributes([HostState(step)], {})
    assert attributes.are_unchanged()
    change(step.thing)
    assert not attributes.are_unchanged()
    assert attributes.changed()[0] == "step"


def test_an_attribute_of_the_operator_that_was_not_there() -> None:
    def compute(self: Any, *_: Any) -> Any:
        return self.late if hasattr(self, "late") else 1

    step = made(compute)
    attributes = Attributes([HostState(step)], {})
    step.unnamed = 1
    assert attributes.are_unchanged()
    step.late = 2
    assert not attributes.are_unchanged()
    assert attributes.changed() == ("step", "late")


@pytest.mark.parametrize(
    "make",
    [
        lambda: (ctypes.c_int * 2)(3, 4),
        lambda: memoryview(bytearray(b"abc")),
        lambda: np.arange(3).view(Named),
        lambda: np.array([3, None]),
    ],
)
def test_memory_that_compute_changes_is_put_back(make: Callable[[], Any]) -> None:
    def compute(self: Any, *_: Any) -> None:
        self.thing[0] = 7

    step = made(compute)
    step.thing = make()
    state = HostState(step)
    before = list(step.thing)
    step.compute(None, None, None)
    assert state.changed() == "self.thing"
    state.restore()
    assert list(step.thing) == before
    assert state.changed() == ""


def test_a_default_of_a_class_that_compute_hides_is_seen_again() -> None:
    def compute(self: Any, *_: Any) -> None:
        self.thing.level += 1

    step = made(compute)
    step.thing = Gentle()
    state = HostState(step)
    step.compute(None, None, None)
    assert state.changed() == "self.thing.level"
    state.restore()
    assert vars(step.thing) == {}
    assert state.changed() == ""


def test_a_property_is_not_called_for_every_frame() -> None:
    def compute(self: Any, *_: Any) -> Any:
        return self.thing.level

    step = made(compute)
    step.thing = Checked()
    step.thing.level = 1
    attributes = Attributes([HostState(step)], {})
    Checked.reads = 0
    assert attributes.are_unchanged()
    step.thing.level = 2
    assert not attributes.are_unchanged()
    assert attributes.changed() == ("step", "thing.level")
    assert Checked.reads == 0


def test_the_same_value_in_another_object_is_compared_once() -> None:
    """From then on it is found by its identity again, as fast as before."""

    def compute(self: Any, *_: Any) -> Any:
        return self.gain

    step = made(compute)
    step.gain = 12345.5
    attributes = Attributes([HostState(step)], {})
    step.gain = float("12345.5")
    assert not attributes._are_identical()
    assert attributes.are_unchanged()
    assert attributes._are_identical()


def test_an_attribute_whose_name_is_computed() -> None:
    def compute(self: Any, *_: Any) -> Any:
        return getattr(self, "".join(("ga", "in")))

    step = made(compute)
    attributes = Attributes([HostState(step)], {})
    assert attributes.are_unchanged()
    step.gain = 2.0
    assert not attributes.are_unchanged()
