"""Values that compute reads on the host, in captured segments: each change is seen, wherever the value is kept."""

from __future__ import annotations

import functools
import multiprocessing
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace import Operator
from headrace.core.segment import CaptureRefused
from tests.gpu.segment_programs import COUNT, Sink, Source, Stage, Work, affine, both, chain, launch

pytestmark = pytest.mark.usefixtures("of_this_process")

FRAMES = 30
CHANGED = 15

rig = types.ModuleType("segment_rig")
exec(
    """level = 1
def read_level():
    return level
def read_gain(operator):
    return operator.gain
def read_gain_too(operator):
    return operator.gain
""",
    vars(rig),
)
imported = vars(rig)["read_gain_too"]
MODULES = [rig]
settings = types.SimpleNamespace(hidden=1)


class Level:
    value = 1
    table = [1]  # noqa: RUF012 (on purpose)


class Derived(Level):
    pass


class Numbers(list[int]):
    value: int = 1


class Table(dict[str, int]):
    value = 1


class Described:
    """A descriptor whose value is elsewhere."""

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return settings.hidden


class WithDescriptor:
    value = Described()


class Tool:
    def __init__(self) -> None:
        self.gain = 7  # of its own: not the operator's

    def own(self) -> Any:
        return self.gain

    def gain_of(self, operator: Any) -> Any:
        return operator.gain


@functools.lru_cache
def looked_up() -> Any:
    return settings.hidden


class Member(Work):
    """An operator of this program with values in its class."""

    described = Described()
    tool = Tool()

    @functools.lru_cache  # noqa: B019 (on purpose)
    def looked_up(self) -> Any:
        return settings.hidden


class Other(Stage):
    level = 1


class Case(NamedTuple):
    """How a value is kept, read in compute and changed; it is 1 before and 5 after."""

    start: Callable[[Any], object]
    read: Callable[[Any, Any], Any]
    change: Callable[[Any], object]


def _keep(name: str, make: Callable[[], Any]) -> Callable[[Any], None]:
    return lambda self: setattr(self, name, make())


def _set(*path: str) -> Callable[[Any], None]:
    def change(self: Any) -> None:
        for name in path[:-1]:
            self = getattr(self, name)
        setattr(self, path[-1], 5)

    return change


def _hide() -> None:
    settings.hidden = 5
    looked_up.cache_clear()
    Member.looked_up.cache_clear()


def _scale(kind: type) -> Callable[[Any], None]:
    def start(self: Any) -> None:
        self.thing = kind()
        self.thing.scale = 1

    return start


def _nothing(self: Any) -> None:
    pass


def _share(self: Any) -> None:
    self.one, self.other = Tool(), Tool()
    self.one.level, self.other.level = 1, 5
    self.by_name = weakref.WeakValueDictionary({"a": self.one})


def _with_knob(read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def get(self: Any, context: Any) -> Any:
        context.knob("gain", np.float32)
        return read(self)

    return get


def _begin_knob(self: Any) -> None:
    self.gain, self.helper = 1, Tool()


CASES = {
    "a default of a helper's class, set on the helper": Case(
        _keep("level", Level), lambda self, context: self.level.value, _set("level", "value")
    ),
    "a default of a helper's class, set on the class": Case(
        _keep("level", Level), lambda self, context: self.level.value, lambda self: setattr(Level, "value", 5)
    ),
    "a default of a class behind, set between": Case(
        _keep("level", Derived),
        lambda self, context: self.level.value,
        lambda self: setattr(Derived, "value", 5),
    ),
    "a list in a helper's class": Case(
        _keep("level", Level),
        lambda self, context: self.level.table[0],
        lambda self: self.level.table.__setitem__(0, 5),
    ),
    "a default of the application": Case(
        _nothing, lambda self, context: self.fragment.default_level, _set("fragment", "default_level")
    ),
    "a default of another operator": Case(
        lambda self: setattr(self, "kept", self.fragment.other),
        lambda self, context: self.kept.level,
        _set("fragment", "other", "level"),
    ),
    "an attribute of a list": Case(
        _scale(Numbers), lambda self, context: self.thing.scale, _set("thing", "scale")
    ),
    "an attribute of a dict": Case(
        _scale(Table), lambda self, context: self.thing.scale, _set("thing", "scale")
    ),
    "a default of a dict": Case(
        _keep("thing", Table), lambda self, context: self.thing.value, _set("thing", "value")
    ),
    "a module in an attribute": Case(
        _keep("bench", lambda: MODULES[0]),
        lambda self, context: self.bench.level,
        lambda self: setattr(rig, "level", 5),
    ),
    "a function of a module in an attribute": Case(
        _keep("bench", lambda: MODULES[0]),
        lambda self, context: self.bench.read_level(),
        lambda self: setattr(rig, "level", 5),
    ),
    "a knob that a method of a helper reads": Case(
        _begin_knob, _with_knob(lambda self: self.helper.gain_of(self)), _set("gain")
    ),
    "a knob that a function of a module reads": Case(
        _begin_knob, _with_knob(lambda self: rig.read_gain(self)), _set("gain")
    ),
    "a knob that an imported function reads": Case(
        _begin_knob, _with_knob(lambda self: imported(self)), _set("gain")
    ),
    "a knob that a helper of the class reads": Case(
        _begin_knob, _with_knob(lambda self: self.tool.gain_of(self)), _set("gain")
    ),
    "a function with a cache": Case(_nothing, lambda self, context: looked_up(), lambda self: _hide()),
    "a method with a cache": Case(_nothing, lambda self, context: self.looked_up(), lambda self: _hide()),
    "a value that processes share": Case(
        _keep("shared", lambda: multiprocessing.Value("i", 1)),
        lambda self, context: self.shared.value,
        _set("shared", "value"),
    ),
    "an array that processes share": Case(
        _keep("shared", lambda: multiprocessing.Array("i", [1])),
        lambda self, context: self.shared[0],
        lambda self: self.shared.__setitem__(0, 5),
    ),
    "a dict of weak references": Case(
        _share,
        lambda self, context: self.by_name["a"].level,
        lambda self: self.by_name.__setitem__("a", self.other),
    ),
    "a descriptor of a helper": Case(
        _keep("helper", WithDescriptor), lambda self, context: self.helper.value, lambda self: _hide()
    ),
    "a descriptor of the operator": Case(
        _nothing, lambda self, context: self.described, lambda self: _hide()
    ),
}


def program(case: Case, kind: type[Work] = Member) -> Callable[[Any], None]:
    """Return a program whose segment adds a value to each frame, which an operator before it changes."""

    read = case.read  # compute is not to know how it begins

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream, frame)
        launch(stream, affine, result, frame, COUNT, 1, read(self, context))
        op_output.emit(result, "out")

    def control(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.number += 1
        if self.number == CHANGED:
            case.change(self.fragment.member)
        op_output.emit(op_input.receive("in"), "out")

    def compose(app: Any) -> None:
        Level.value, Level.table[0], rig.level, settings.hidden = 1, 1, 1, 1  # type: ignore[attr-defined]
        if "value" in vars(Derived):
            del Derived.value
        looked_up.cache_clear()
        Member.looked_up.cache_clear()
        app.member = kind(app, body=body, begin=case.start, name="member")
        app.other = Other(app, name="other")
        controls = Work(app, body=control, begin=_keep("number", int), name="control")
        chain(
            app,
            Source(app, frames=FRAMES, name="source"),
            controls,
            app.member,
            app.other,
            Sink(app, name="sink"),
        )
        app.capture(app.member)

    return compose


@pytest.fixture(autouse=True)
def of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.harness import App

    monkeypatch.setitem(sys.modules, "segment_rig", rig)
    monkeypatch.setattr(App, "default_level", 1, raising=False)


@pytest.mark.parametrize("name", CASES)
def test_a_value_that_changes_once_is_recorded_once_more(name: str) -> None:
    ran = both(program(CASES[name]))
    segment = ran.segment
    assert ran.seen["sink"][-1].numbers[1][0] == (100 * (FRAMES - 1) + 5) * 2 + 1
    assert (segment.state, segment.reason, segment.recordings) == ("captured", "", 2)
    assert segment.replayed > 15


# Not more recordings than needed.


def _read_own(self: Any, context: Any) -> Any:
    context.knob("gain", np.float32)
    return self.helper.own()


def test_a_knob_with_the_name_of_an_attribute_of_a_helper() -> None:
    ran = both(program(Case(_begin_knob, _read_own, _set("gain"))))
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 1)


def test_a_default_that_is_set_to_the_same_value() -> None:
    def change(self: Any) -> None:
        self.level.value = 1

    ran = both(program(Case(_keep("level", Level), lambda self, context: self.level.value, change)))
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 1)


# What compute changes is put back.


def _count_items(self: Any, context: Any) -> Any:
    self.counts["frames"] += 1
    return self.counts["frames"]


def test_a_count_goes_on_by_one_after_a_recording_in_vain() -> None:
    """`Counter.update` adds."""
    with pytest.warns(CaptureRefused, match=r"changes self.counts in compute"):
        ran = both(program(Case(_keep("counts", Counter), _count_items, _nothing)))
    counts = [seen.numbers[1][0] - 200 * number for number, seen in enumerate(ran.seen["sink"])]
    assert counts == [2 * number + 1 for number in range(1, FRAMES + 1)]


# Too much to be compared.


@pytest.mark.parametrize(
    ("start", "read", "what"),
    [
        (
            _keep("tables", lambda: [[1] for _ in range(400)]),
            lambda self, context: self.tables[390][0],
            "more than 256 containers and arrays, self.tables[...] among them",
        ),
        (
            _keep("arrays", lambda: [np.ones(3, np.int32) for _ in range(300)]),
            lambda self, context: self.arrays[290][0],
            "more than 256 containers and arrays, self.arrays[...] among them",
        ),
        (
            _keep("levels", lambda: [types.SimpleNamespace(value=1) for _ in range(3_000)]),
            lambda self, context: self.levels[2_900].value,
            "more than 2000 objects",
        ),
        (
            _keep("levels", lambda: [types.SimpleNamespace(value=1, low=0, high=9) for _ in range(1_000)]),
            lambda self, context: min(self.levels[900].value, self.levels[0].high) + self.levels[5].low,
            "more than 2048 values",
        ),
    ],
)
def test_more_than_can_be_compared_is_refused(start: Any, read: Any, what: str) -> None:
    with pytest.warns(CaptureRefused) as warned:
        ran = both(program(Case(start, read, _nothing)))
    (text,) = [str(one.message) for one in warned]
    assert f"operator 'member' uses {what}" in text
    assert "fewer or smaller containers, a knob or an array on the device, or leave the operator out" in text
    assert ran.segment.state == "eager"


class Node:
    """One of many objects."""

    def __init__(self, number: int) -> None:
        self.number, self.parts, self.weight = number, [number], 1


@pytest.mark.parametrize(
    ("start", "read"),
    [
        # The code does not name them.
        (_keep("kept", lambda: [[number] for number in range(3_000)]), lambda self, context: 1),
        # It names one attribute of an object with many others.
        (
            _keep("tree", lambda: types.SimpleNamespace(nodes=[Node(k) for k in range(3_000)], level=1)),
            lambda self, context: self.tree.level,
        ),
        # Numbers and tuples of these are compared with their container.
        (
            _keep("points", lambda: [(k, k + 1) for k in range(4_000)]),
            lambda self, context: self.points[0][1],
        ),
        (_keep("table", lambda: list(range(1, 4_000))), lambda self, context: self.table[0]),
        # More than 4096 are a table.
        (_keep("lists", lambda: [[1] for _ in range(5_000)]), lambda self, context: self.lists[0][0]),
    ],
)
def test_much_that_need_not_be_compared_is_recorded(start: Any, read: Any) -> None:
    ran = both(program(Case(start, read, _nothing)))
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 1)


def test_objects_of_libraries_are_compared_as_far_as_there_is_room(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "big_library.py").write_text(
        "class Part:\n"
        "    def __init__(self, count=0):\n"
        "        self.parts = [Part() for _ in range(count)]\n"
        "        self.level = 1\n"
    )
    monkeypatch.syspath_prepend(folder)
    import big_library  # type: ignore[import-not-found]

    def read(self: Any, context: Any) -> Any:
        return self.thing.level + len(self.thing.parts[2_900].parts)

    ran = both(program(Case(_keep("thing", lambda: big_library.Part(3_000)), read, _set("thing", "level"))))
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 2)
    del sys.modules["big_library"]


def test_many_operators_with_containers_of_their_own() -> None:
    """What there may be counts for each operator, and a container of several once."""

    def read(self: Any, context: Any) -> Any:
        return self.tables[99][0]

    case = Case(_keep("tables", lambda: [[1] for _ in range(100)]), read, _nothing)

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        launch(stream, affine, frame, frame, COUNT, 1, read(self, context))
        op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        members: list[Operator] = [
            Work(app, body=body, begin=case.start, name=f"member {number}") for number in range(4)
        ]
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture(*members)

    assert both(compose).segment.state == "captured"
