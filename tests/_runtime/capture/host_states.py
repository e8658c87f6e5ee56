"""Operators that keep state in every place that Python has, and computes that change it."""

from __future__ import annotations

import array
import ctypes
import random
import threading
import types
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from headrace import Application, Operator

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


def rebind(self: Any, *_: Any) -> None:
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


def class_attribute(self: Any, *_: Any) -> None:
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
    (rebind, "self.count"),
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
    (class_attribute, "Step.in_class"),
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
