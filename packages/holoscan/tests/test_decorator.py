"""create_op: programs print what the SDK printed, and importing it needs no CuPy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headrace import gpu
from headrace.tensor import Tensor, as_tensor
from headrace_holoscan import alias

PRINTED = json.loads((Path(__file__).parent / "decorated" / "printed.json").read_text())


@pytest.fixture(scope="module")
def programs() -> Iterator[Any]:
    alias.install()
    try:
        yield import_module("packages.holoscan.tests.decorated.programs")
    finally:
        alias.uninstall()
        sys.modules.pop("packages.holoscan.tests.decorated.programs", None)


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_prints_what_it_prints_on_the_sdk(programs: Any, name: str) -> None:
    assert programs.printed(getattr(programs, name)) == PRINTED[name]


def test_every_program_was_recorded(programs: Any) -> None:
    assert [compose.__name__ for compose in programs.PROGRAMS] == list(PRINTED)


def test_a_class_makes_several_operators_with_states_of_their_own(programs: Any) -> None:
    @programs.create_op(inputs="x", outputs="y")
    class Sum:
        def __init__(self, total: int) -> None:
            self.total = total

        def __call__(self, x: int) -> int:
            self.total += x
            return self.total

    def compose(app: Any) -> None:
        for start in (10, 20):
            made = Sum(total=start)(app, name=f"sum{start}")
            app.add_flow(programs.numbers(app, count=2, name=f"numbers{start}"), made)
            app.add_flow(made, programs.show(app, name=f"show{start}"))

    assert sorted(programs.printed(compose)) == ["int 10", "int 11", "int 20", "int 21"]


def test_an_application_runs_twice(programs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    class App(programs.Application):  # type: ignore[misc,name-defined]
        def compose(self) -> None:
            self.add_flow(programs.numbers(self, count=2), programs.show(self))

    app = App([])
    app.run()
    app.run()
    assert capsys.readouterr().out.split("\n")[:4] == ["int 0", "int 1"] * 2


def test_a_tensor_of_the_device_arrives_as_such_without_cupy(programs: Any, machine: Any) -> None:
    def compose(app: Any) -> None:
        @programs.create_op(outputs=programs.Output("out", tensor_names="t"))
        def made() -> Any:
            return as_tensor(gpu.Device(0).allocate(8, stream=gpu.Device(0).default_stream))

        @programs.create_op(inputs="x")
        def taken(x: Any) -> None:
            print(isinstance(x, Tensor), x.shape)

        app.add_flow(made(app, programs.once(app)), taken(app))

    assert programs.printed(compose) == ["True (8,)"]


def test_a_mapping_is_used_once(programs: Any) -> None:
    made = programs.create_op(inputs=("x", programs.Input("y", arg_map="x")))(lambda x: x)
    with pytest.raises(ValueError, match="two inputs are mapped to the argument 'x'"):
        made(programs.Application([]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda of: of.create_op(inputs=(3,)), "inputs must be names or Input objects, not 3"),
        (lambda of: of.create_op(outputs=of.Input("x")), "outputs must be names or Output objects"),
        (lambda of: of.create_op(op_param=3), "op_param must be the name of an argument"),
        (lambda of: of.create_op()(3), "3 has no __call__"),
        (
            lambda of: of.create_op(inputs=of.Input("x", "x", size="two"))(lambda x: x)(of.Application([])),
            "Invalid size",
        ),
    ],
)
def test_a_wrong_declaration_is_refused(programs: Any, call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call(programs)
