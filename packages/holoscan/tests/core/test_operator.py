"""Operators take what the SDK's take. What a test states is what the SDK 4.6.0 did with the same program."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace.operators import PingTxOp
from headrace_holoscan import lenience
from headrace_holoscan.conditions import CountCondition
from headrace_holoscan.core import Application, Operator, OperatorSpec, kwargs_to_arglist
from headrace_holoscan.core.operator import adopt
from headrace_holoscan.resources import RMMAllocator, UnboundedAllocator
from packages.holoscan.tests.core.programs import Seen, run


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    lenience.forget()
    caplog.set_level(logging.WARNING, "headrace.holoscan")
    return caplog


class Params(Operator):
    """Has attributes of the names of its parameters: before, after and in the class."""

    of_class = "mine"

    def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
        self.before = self.both = "mine"
        self.none = None
        self.values: dict[str, Any] = {}
        super().__init__(fragment, *args, **kwargs)
        self.after = self.after_given = "mine"
        self.plain = None

    def setup(self, spec: OperatorSpec) -> None:
        for name in ("before", "both", "after", "after_given", "of_class", "plain", "none"):
            spec.param(name, "default")
        spec.param("required")
        spec.param("typed", 1.0)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.values.update({name: getattr(self, name) for name in self.spec.params})


def values_of(kind: type[Operator] = Params, *args: Any, **kwargs: Any) -> dict[str, Any]:
    made: list[Any] = []

    def compose(app: Any) -> None:
        made.append(kind(app, CountCondition(app, 1), *args, name="p", **kwargs))
        app.add_operator(made[0])

    run(compose)
    return dict(made[0].values)


def test_an_attribute_comes_before_a_default_and_an_argument_before_both() -> None:
    values = values_of(both="given", after_given="given", typed="high")
    assert (values["before"], values["after"], values["of_class"]) == ("mine", "mine", "mine")
    assert (values["both"], values["after_given"], values["typed"]) == ("given", "given", "high")
    assert (values["plain"], values["none"], values["required"]) == ("default", "default", None)


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        *[
            ("1", 1),
            (2.0, 2),
            (2.5, 2.5),
            ((1, 2), [1, 2]),
            ("yes", True),
            ("010", 8),
            ("a b", "a b"),
            ("", ""),
        ],
        *[
            ([1.0, "2"], [1, 2]),
            (1e20, 1e20),
            ("null", "null"),
            (b"x", [120]),
            (range(2), [0, 1]),
            (0.1, 0.1),
        ],
    ],
)
def test_an_argument_arrives_as_its_yaml(given: Any, arrives: Any) -> None:
    value = values_of(typed=given)["typed"]
    assert (type(value), value) == (type(arrives), arrives)


def test_a_default_arrives_as_it_is() -> None:
    class Default(Params):
        def setup(self, spec: OperatorSpec) -> None:
            spec.param("pair", (1, "2"))

    assert values_of(Default) == {"pair": (1, "2")}


def test_an_undeclared_argument_is_ignored_with_a_warning(told: pytest.LogCaptureFixture) -> None:
    op = Params(Application(), "text", 3, undeclared=4, workers=2, on_error="skip", name="p")
    assert not hasattr(op, "undeclared")
    assert [(arg.name, arg.value) for arg in op.args] == [
        *[("undeclared", 4), ("workers", 2), ("on_error", "skip"), ("", "text"), ("", 3)]
    ]
    assert "operator 'p' was given an argument 'undeclared', which its setup does not declare" in told.text
    assert "headrace would have said: operator 'p' has no parameter 'undeclared'" in told.text


def test_parameters_may_have_the_names_of_headraces_attributes() -> None:
    names = ["dropped", "join", "deadline", "workers", "logger", "end", "on_error", "ordered"]

    class Named(Params):
        def setup(self, spec: OperatorSpec) -> None:
            for place, name in enumerate([*names, "stop", "compute"]):
                spec.param(name, place)

    values = values_of(Named, workers=7)
    assert [values[name] for name in names] == [0, 1, 2, 7, 4, 5, 6, 7]
    assert callable(values["stop"])  # the SDK's own attributes stay


def test_a_method_named_end_is_the_programs() -> None:
    class WithEnd(Params):
        def end(self) -> None:
            raise AssertionError

        def on_error(self) -> None:  # type: ignore[override]
            raise AssertionError

    assert values_of(WithEnd)["plain"] == "default"


def test_named_values_are_arguments() -> None:
    def compose(app: Any) -> None:
        op = Params(app, CountCondition(app, 1), name="p")
        op.add_arg(kwargs_to_arglist(plain=5, typed="x"))
        op.add_arg(after="late", plain=6)
        app.add_operator(op)
        made.append(op)

    made: list[Any] = []
    run(compose)
    assert (made[0].plain, made[0].typed, made[0].after) == (6, "x", "late")


def test_operators_without_a_name_are_numbered_in_the_process() -> None:
    app = Application()
    first, second = Params(app).name, Params(Application()).name
    number = int(first.removeprefix("unnamed_operator_"))
    assert second == f"unnamed_operator_{number + 1}"
    with pytest.raises(RuntimeError):
        Params(app, name=3)


def test_parts_given_by_keyword_have_its_name() -> None:
    app = Application()
    pool, other = UnboundedAllocator(app, name="pool"), UnboundedAllocator(app, name="other")
    op = Params(app, other, allocator=pool, limit=CountCondition(app, 3))
    assert (list(op.resources), list(op.conditions)) == (["other", "allocator"], ["limit"])
    assert pool.name == "allocator"
    assert op.resource("allocator") is pool
    with pytest.raises(RuntimeError, match="count_condition"):
        Params(app, *(CountCondition(app, 3, name="count_condition") for _ in range(2)))


def test_an_rmm_allocator_has_a_pool_of_device_memory_and_one_of_the_host() -> None:
    app = Application()
    memory = RMMAllocator(app)
    assert (memory.name, memory.block_size) == ("rmm_pool", 1)
    assert (memory.device_memory_initial_size, memory.device_memory_max_size) == (8 << 20, 16 << 20)
    assert (memory.host_memory_initial_size, memory.host_memory_max_size) == (8 << 20, 16 << 20)
    memory = RMMAllocator(app, host_memory_initial_size="0MB", host_memory_max_size="1MB")
    memory.initialize()
    first = memory.allocate_tensor(1 << 20, "u1", "host")
    assert memory.is_available(16 << 20)
    assert not memory.is_available(1, "host")
    with pytest.raises(ValueError, match="serves 'DEVICE', 'HOST' memory, not 'SYSTEM'"):
        memory.allocate_tensor(1, "u1", "system")
    del first
    memory.release()
    with pytest.raises(ValueError, match=r"initial_size \(8 MB\) is more than host_memory_max_size \(4 MB\)"):
        RMMAllocator(app, host_memory_max_size="4MB")


@pytest.mark.parametrize(
    "name", ["fragment", "conditions", "resources", "operator_type", "description", "id"]
)
def test_attributes_of_the_sdk_are_read_only(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Params(Application()), name, None)


def test_an_operator_describes_itself_in_yaml() -> None:
    class Described(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.param("gain", 1.0)
            spec.input("in")

    op = Described(Application(), gain=2, name="d")
    assert repr(op) == op.description
    assert op.description.splitlines()[:7] == [
        *[
            "id: -1",
            "name: d",
            'fragment: ""',
            "args:",
            "  - name: gain",
            "    type: YAML::Node",
            "    value: 2",
        ]
    ]
    assert "\n  inputs:\n    - name: in\n      io_type: kInput\n" in op.description


def test_a_ready_operator_is_an_operator_with_its_own_checks() -> None:
    kind = adopt(PingTxOp, "ping_tx")
    assert issubclass(kind, Operator)
    assert kind(Application()).name == "ping_tx"
    with pytest.raises(RuntimeError, match="nothing_of_it"):
        kind(Application(), nothing_of_it=1)


def test_an_operator_without_compute_runs() -> None:
    class Without(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.output("out")

    stops: Seen = []
    Without.stop = lambda self: stops.append(self.name)  # type: ignore[method-assign]
    run(lambda app: app.add_operator(Without(app, CountCondition(app, 2), name="w")))
    assert stops == ["w"]
