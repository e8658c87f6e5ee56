"""What a compute changes on the host is found, wherever it is, and put back."""

from __future__ import annotations

import functools
import io
import itertools
import queue
import sys
import types
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace import Application, op
from headrace._runtime.capture.host_state import Attributes, HostState
from tests._runtime.capture.host_states import (
    CHANGES,
    Config,
    class_attribute,
    description,
    made,
    other_module,
    rebind,
)


@pytest.mark.parametrize(("compute", "what"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_a_change_is_found_and_named_and_undone(compute: Callable[..., None], what: str) -> None:
    step = made(compute)
    before = description(step)
    state = HostState(step)
    assert state.opaque == ("", "")
    assert state.changed() == ""
    step.compute(None, None, None)
    assert state.changed() == what
    assert description(step) != before or what == "self.previous"
    state.restore()
    assert state.changed() == ""
    assert description(step) == before
    assert not hasattr(step, "previous")


# The state of random numbers is compared when a frame is recorded, and a new attribute is not read.
AT_ONCE = [
    (change, what)
    for change, what in CHANGES
    if what not in ("self.rng", "self.generator", "self.legacy", "self.previous") and "random" not in what
]


@pytest.mark.parametrize(("compute", "what"), AT_ONCE, ids=[change.__name__ for change, _ in AT_ONCE])
def test_a_change_between_two_frames_is_found(compute: Callable[..., None], what: str) -> None:
    step = made(compute)
    attributes = Attributes([HostState(step)], {})
    state = HostState(step)
    assert attributes.are_unchanged()
    step.compute(None, None, None)
    assert not attributes.are_unchanged()
    assert attributes.changed() == ("step", what.removeprefix("self."))
    state.restore()
    assert attributes.are_unchanged()


def test_attributes_that_the_code_does_not_name_may_change_between_frames() -> None:
    step = made(rebind)
    attributes = Attributes([HostState(step)], {})
    step.gain, step.other = 2.0, object()
    assert attributes.are_unchanged()
    step.count = 5
    assert not attributes.are_unchanged()


@pytest.mark.parametrize(
    "values", [(1, True), (1, 1.0), (0.0, -0.0), ((1, 2), (1.0, 2)), (np.float32(1), np.float64(1)), (1, "1")]
)
def test_values_that_are_equal_and_not_the_same_are_a_change(values: tuple[Any, Any]) -> None:
    step = made(rebind)
    step.count = values[0]
    attributes, state = Attributes([HostState(step)], {}), HostState(step)
    step.count = values[1]
    assert not attributes.are_unchanged()
    assert state.changed() == "self.count"


@pytest.mark.parametrize(
    "make",
    [
        lambda: 12345.5,
        lambda: float("nan"),
        lambda: "ab" * 30,
        lambda: (1, (2.5, "x" * 3)),
        lambda: np.float32(3),
    ],
)
def test_the_same_value_in_another_object_is_no_change(make: Callable[[], Any]) -> None:
    step = made(rebind)
    step.count = make()
    attributes, state = Attributes([HostState(step)], {}), HostState(step)
    for _ in range(3):
        step.count = make()
        assert attributes.are_unchanged()
        assert state.changed() == ""


def test_an_attribute_that_hides_one_of_the_class_is_a_change() -> None:
    step = made(class_attribute)
    attributes = Attributes([HostState(step)], {})
    step.in_class = 7
    assert not attributes.are_unchanged()
    assert attributes.changed()[1].endswith("in_class")
    del step.in_class
    assert attributes.are_unchanged()


def test_an_attribute_read_by_its_name_in_a_text() -> None:
    def compute(self: Any, *_: Any) -> Any:
        return getattr(self, "ga" + "in")

    step = made(compute)
    attributes = Attributes([HostState(step)], {})
    step.gain = 2.0
    assert not attributes.are_unchanged()


def test_variables_around_a_function() -> None:
    count, numbers, late = 0, [1], None

    @op
    def counting(frame: Any) -> Any:
        nonlocal count
        count += 1
        return (frame, numbers, late)

    operator = counting(Application([]))
    operator.start()
    state, attributes = HostState(operator), Attributes([HostState(operator)], {})
    assert attributes.are_unchanged()
    operator.declared.function(None)
    assert state.changed() == "count"
    assert not attributes.are_unchanged()
    state.restore()
    assert count == 0
    numbers.append(2)
    assert state.changed() == "numbers"
    numbers.pop()
    assert attributes.are_unchanged()
    late = 5
    assert attributes.changed() == ("counting", "late")


def test_parameters_of_a_function_and_of_a_partial() -> None:
    store = {"a": 1}

    def work(frame: Any, table: dict[str, int]) -> Any:
        table["a"] += 1
        return frame

    @op
    def working(frame: Any, *, inner: Any) -> Any:
        return inner(frame)

    operator = working(Application([]), inner=functools.partial(work, table=store))
    operator.start()
    state = HostState(operator)
    operator.inner(None)
    assert state.changed() == "self.inner['table']"
    state.restore()
    assert store == {"a": 1}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (lambda: (n for n in range(9)), "generator"),
        (lambda: itertools.count(), "count"),
        (lambda: iter([1, 2, 3]), "list_iterator"),
        (lambda: io.StringIO(), "StringIO"),
        (lambda: queue.Queue(), "Queue"),
        (lambda: queue.SimpleQueue(), "SimpleQueue"),
    ],
)
def test_what_moves_on_with_every_use_is_named_before_it_is_used(value: Any, kind: str) -> None:
    def uses(self: Any, *_: Any) -> Any:
        return next(self.values)

    def leaves_alone(self: Any, *_: Any) -> Any:
        return self.count

    step = made(uses)
    step.values = value()
    assert HostState(step).opaque == ("self.values", kind)
    step = made(leaves_alone)
    step.values = value()
    assert HostState(step).opaque == ("", "")


def test_the_state_of_array_libraries_and_of_headrace_is_left_alone() -> None:
    def compute(self: Any, *_: Any) -> Any:
        return self.pool, self.name, self.spec, np.zeros(3), self.fragment.name

    from headrace.resources import UnboundedAllocator

    step = made(compute)
    step.pool = UnboundedAllocator(step.fragment)
    labels = [place.label for place in HostState(step).places]
    assert not any("pool" in label or "np" in label for label in labels)


class Proxy:
    """Reads what it does not have from a dict."""

    def __init__(self) -> None:
        self._data = {"gain": 1.0}

    def __getattr__(self, name: str) -> Any:
        return self._data[name]


class Private:
    __slots__ = ("__level",)

    def __init__(self) -> None:
        self.__level = 1

    def raise_level(self) -> int:
        self.__level += 1
        return self.__level


def test_less_usual_ways_to_keep_a_value() -> None:
    def compute(self: Any, *_: Any) -> Any:
        import other_module as imported

        gains = self.proxy.gain, self.view["gain"], self.chained["gain"], self.reference().gain
        return (*gains, self.private.raise_level, imported.GAIN, self.names.gain)

    sys.modules["other_module"] = other_module
    try:
        step = made(compute)
        step.proxy, step.private, shared, config = Proxy(), Private(), {"gain": 1.0}, Config()
        step.view, step.chained = types.MappingProxyType(shared), ChainMap({}, shared)
        step.reference, step.names = weakref.ref(config), types.SimpleNamespace(gain=1.0)

        def changes() -> Iterator[tuple[str, Callable[[], object]]]:
            yield "proxy._data", lambda: step.proxy._data.update(gain=2.0)
            yield "gain", lambda: shared.update(gain=2.0)
            yield "reference", lambda: setattr(config, "gain", 2.0)
            yield "private", step.private.raise_level
            yield "other_module.GAIN", lambda: setattr(other_module, "GAIN", 7.0)
            yield "names.gain", lambda: setattr(step.names, "gain", 2.0)

        for what, change in changes():
            attributes = Attributes([HostState(step)], {})
            assert attributes.are_unchanged()
            change()
            assert not attributes.are_unchanged()
            operator, name = attributes.changed()
            assert operator == "step"
            assert what in name or what == "gain"
    finally:
        del sys.modules["other_module"]
        other_module.GAIN = 1.0  # type: ignore[attr-defined]


def test_what_another_thread_changes_meanwhile_is_not_blamed_on_compute_and_not_undone() -> None:
    """It is found at the next frame, since the recording may have used either value."""

    def compute(self: Any, *_: Any) -> Any:
        self.count = self.count + 1
        return self.gain

    step = made(compute)
    state = HostState(step)
    attributes = Attributes([state], {})
    step.gain = 3.0
    assert state.changed() == ""
    assert not attributes.are_unchanged()
    step.compute(None, None, None)
    assert state.changed() == "self.count"
    state.restore()
    assert (step.count, step.gain) == (0, 3.0)


def test_attributes_that_are_ignored() -> None:
    step = made(rebind)
    state = HostState(step)
    attributes = Attributes([state], {"step": {"count"}})
    step.count = 9
    assert attributes.are_unchanged()
    assert state.changed({"count"}) == ""
    state.restore({"count"})
    assert step.count == 9
    assert state.changed() == "self.count"


def test_a_cycle_of_objects_is_looked_at_once() -> None:
    def compute(self: Any, *_: Any) -> Any:
        return self.meter.self

    step = made(compute)
    step.meter.self = step
    step.meter.total = [step.meter, step.history, step.history]
    state = HostState(step)
    assert len(state.places) < 100
    step.history.append(1)
    assert state.changed() == "self.history"
