"""What a compute changes on the host is found, wherever it is, and put back."""

from __future__ import annotations

import array
import ctypes
import functools
import io
import itertools
import queue
import random
import sys
import threading
import types
import weakref
from collections import ChainMap, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock import Application, Operator, op
from penstock._runtime.capture.host_state import Attributes, HostState

COUNTER = 0
HISTORY: list[int] = []
other_module = types.ModuleType("other_module")
other_module.GAIN = 1.0  # type: ignore[attr-defined]


@dataclass
class Config:
    gain: float = 1.0
    table: list[int] = field(default_factory=list)
    unused: int = 0


@dataclass(slots=True)
class Slotted:
    gain: float = 1.0


@dataclass(frozen=True)
class Frozen:
    gain: float = 1.0


class Shared:
    count = 0
    limits: dict[str, int] = {}  # noqa: RUF012 (on purpose)


class Meter:
    """An object with a method that changes it."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, number: int) -> None:
        self.total += number

    def __call__(self) -> None:
        self.total += 1


class Pair(NamedTuple):
    left: list[int]
    right: int


class Step(Operator):
    """An operator whose compute is a method of the test."""

    in_class = 0
    things: list[int] = []  # noqa: RUF012 (on purpose)

    def start(self) -> None:
        self.count = 0
        self.gain = 1.0
        self.history: list[int] = []
        self.recent: deque[int] = deque(maxlen=3)
        self.seen: set[int] = set()
        self.by_name: dict[str, Any] = {"nested": {"deep": [1]}}
        self.many: defaultdict[str, list[int]] = defaultdict(list)
        self.config = Config()
        self.slotted = Slotted()
        self.frozen = Frozen()
        self.pair = Pair([], 0)
        self.meter = Meter()
        self.matrix = np.eye(3)
        self.bytes = bytearray(b"abc")
        self.numbers = array.array("i", [1, 2, 3])
        self.c_int = ctypes.c_int(1)
        self.rng = random.Random(1)
        self.generator = np.random.default_rng(1)
        self.legacy = np.random.RandomState(1)
        self.enabled = threading.Event()


def helper() -> None:
    global COUNTER
    COUNTER += 1


def with_default(numbers: list[int] = []) -> None:  # noqa: B006 (on purpose)
    numbers.append(1)


def with_attribute() -> None:
    with_attribute.calls = getattr(with_attribute, "calls", 0) + 1  # type: ignore[attr-defined]


with_attribute.calls = 0  # type: ignore[attr-defined]


def _rebind(self: Any, *_: Any) -> None:
    self.count += 1


def _new_attribute(self: Any, *_: Any) -> None:
    self.previous = object()


def _delete(self: Any, *_: Any) -> None:
    del self.count


def _history(self: Any, *_: Any) -> None:
    self.history.append(1)


def _recent(self: Any, *_: Any) -> None:
    self.recent.append(1)


def _seen(self: Any, *_: Any) -> None:
    self.seen.add(1)


def _nested(self: Any, *_: Any) -> None:
    self.by_name["nested"]["deep"].append(2)


def _many(self: Any, *_: Any) -> None:
    self.many["a"].append(1)


def _config(self: Any, *_: Any) -> None:
    self.config.gain += 1


def _config_table(self: Any, *_: Any) -> None:
    self.config.table.append(1)


def _slotted(self: Any, *_: Any) -> None:
    self.slotted.gain += 1


def _pair(self: Any, *_: Any) -> None:
    self.pair.left.append(1)


def _meter(self: Any, *_: Any) -> None:
    self.meter.add(2)


def _call(self: Any, *_: Any) -> None:
    self.meter()


def _matrix(self: Any, *_: Any) -> None:
    self.matrix[0, 0] += 1


def _bytes(self: Any, *_: Any) -> None:
    self.bytes.append(1)


def _numbers(self: Any, *_: Any) -> None:
    self.numbers[0] += 1


def _c_int(self: Any, *_: Any) -> None:
    self.c_int.value += 1


def _rng(self: Any, *_: Any) -> None:
    self.rng.random()


def _generator(self: Any, *_: Any) -> None:
    self.generator.random()


def _legacy(self: Any, *_: Any) -> None:
    self.legacy.rand()


def _global_rng(self: Any, *_: Any) -> None:
    random.random()


def _global_numpy(self: Any, *_: Any) -> None:
    np.random.rand()


def _event(self: Any, *_: Any) -> None:
    self.enabled.set()


def _class_attribute(self: Any, *_: Any) -> None:
    type(self).in_class += 1


def _class_list(self: Any, *_: Any) -> None:
    self.things.append(1)


def _other_class(self: Any, *_: Any) -> None:
    Shared.count += 1


def _other_class_dict(self: Any, *_: Any) -> None:
    Shared.limits["a"] = 1


def _global(self: Any, *_: Any) -> None:
    global COUNTER
    COUNTER += 1


def _global_list(self: Any, *_: Any) -> None:
    HISTORY.append(1)


def _global_in_helper(self: Any, *_: Any) -> None:
    helper()


def _other_module(self: Any, *_: Any) -> None:
    other_module.GAIN += 1


def _default(self: Any, *_: Any) -> None:
    with_default()


def _function_attribute(self: Any, *_: Any) -> None:
    with_attribute()


def _fragment(self: Any, *_: Any) -> None:
    self.fragment.shared += 1


def _find_operator(self: Any, *_: Any) -> None:
    self.fragment.other.level += 1


CHANGES: list[tuple[Callable[..., None], str]] = [
    (_rebind, "self.count"),
    (_new_attribute, "self.previous"),
    (_delete, "self.count"),
    (_history, "self.history"),
    (_recent, "self.recent"),
    (_seen, "self.seen"),
    (_nested, "self.by_name['nested']['deep']"),
    (_many, "self.many"),
    (_config, "self.config.gain"),
    (_config_table, "self.config.table"),
    (_slotted, "self.slotted.gain"),
    (_pair, "self.pair[...]"),
    (_meter, "self.meter.total"),
    (_call, "self.meter.total"),
    (_matrix, "self.matrix"),
    (_bytes, "self.bytes"),
    (_numbers, "self.numbers"),
    (_c_int, "self.c_int"),
    (_rng, "self.rng"),
    (_generator, "self.generator"),
    (_legacy, "self.legacy"),
    (_global_rng, "the random numbers of 'random'"),
    (_global_numpy, "the random numbers of NumPy"),
    (_event, "self.enabled._flag"),
    (_class_attribute, "Step.in_class"),
    (_class_list, "Step.things"),
    (_other_class, "Shared.count"),
    (_other_class_dict, "Shared.limits"),
    (_global, "COUNTER"),
    (_global_list, "HISTORY"),
    (_global_in_helper, "COUNTER"),
    (_other_module, "other_module.GAIN"),
    (_default, "a default of with_default"),
    (_function_attribute, "with_attribute"),
    (_fragment, "self.fragment.shared"),
    (_find_operator, "self.fragment.other.level"),
]


def made(compute: Callable[..., None]) -> Any:
    """Return an operator of that compute, as it is after start."""
    app: Any = Application([])
    app.shared = 0
    step: Any = type("Step", (Step,), {"compute": compute, "in_class": 0, "things": []})(app, name="step")
    app.other = Step(app, name="other")
    app.other.level = 0
    step.start()
    return step


def description(step: Any) -> str:
    """Return everything that the computes above may change, as text."""
    kept = {name: value for name, value in vars(step).items() if name not in ("metadata", "spec", "args")}
    states = [step.rng.getstate(), random.getstate(), str(np.random.get_state())]
    states += [step.generator.bit_generator.state, str(step.legacy.get_state()), step.enabled.is_set()]
    kept = {name: value for name, value in kept.items() if not name.startswith("_")}
    shared = [COUNTER, HISTORY, Shared.count, Shared.limits, type(step).in_class, type(step).things]
    functions = [other_module.GAIN, with_default.__defaults__, vars(with_attribute)]
    of_app = [step.fragment.shared, step.fragment.other.level, step.meter.total, step.c_int.value]
    plain = {name: repr(value) for name, value in kept.items() if " object at " not in repr(value)}
    return repr((sorted(plain.items()), states, shared, functions, of_app))


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
    step = made(_rebind)
    attributes = Attributes([HostState(step)], {})
    step.gain, step.other = 2.0, object()
    assert attributes.are_unchanged()
    step.count = 5
    assert not attributes.are_unchanged()


@pytest.mark.parametrize(
    "values", [(1, True), (1, 1.0), (0.0, -0.0), ((1, 2), (1.0, 2)), (np.float32(1), np.float64(1)), (1, "1")]
)
def test_values_that_are_equal_and_not_the_same_are_a_change(values: tuple[Any, Any]) -> None:
    step = made(_rebind)
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
    step = made(_rebind)
    step.count = make()
    attributes, state = Attributes([HostState(step)], {}), HostState(step)
    for _ in range(3):
        step.count = make()
        assert attributes.are_unchanged()
        assert state.changed() == ""


def test_an_attribute_that_hides_one_of_the_class_is_a_change() -> None:
    step = made(_class_attribute)
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


def test_the_state_of_array_libraries_and_of_penstock_is_left_alone() -> None:
    def compute(self: Any, *_: Any) -> Any:
        return self.pool, self.name, self.spec, np.zeros(3), self.fragment.name

    from penstock.resources import UnboundedAllocator

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
    step = made(_rebind)
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
