"""Services: objects that operators find by their type, in one run or in all."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Application, CountCondition, Operator, Resource
from tests.harness import App, MakeScheduler, Step, run


class Calibration:
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale


class Table(Resource):
    log: list[str]

    def initialize(self) -> None:
        self.log.append(f"initialize {self.name}")

    def release(self) -> None:
        self.log.append(f"release {self.name}")


class Asks(Operator):
    """Notes what it finds in each phase."""

    def __init__(self, fragment: Any, *args: Any, name: str = "asks") -> None:
        super().__init__(fragment, *args, name=name)
        self.found: list[Any] = []

    def initialize(self) -> None:
        self.found.append(self.service(Calibration))

    def start(self) -> None:
        self.found.append(self.service(Calibration, "other"))

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.found += [self.service(Calibration), self.service(dict), self.fragment.service(Calibration)]


def test_an_operator_finds_services_in_every_phase(scheduler: MakeScheduler) -> None:
    first, second, other = Calibration(), Calibration(), Calibration()
    made: list[Asks] = []

    def compose(app: App) -> None:
        app.register_service(first)
        app.register_service(second)
        app.register_service(other, "other")
        made.append(Asks(app, CountCondition(app, 1)))
        app.add_operator(made[0])

    run(compose, scheduler)
    assert made[0].found == [second, other, second, None, second]


def test_a_resource_is_found_by_its_name_and_lives_in_the_run(scheduler: MakeScheduler) -> None:
    log: list[str] = []

    def table(app: App, name: str) -> Table:
        made = Table(app, name=name)
        made.log = log
        return made

    def compose(app: App) -> None:
        left, right = table(app, "left"), table(app, "right")
        app.register_service(left)
        app.register_service(right, "second")
        log.clear()

        def body(op: Step, i: Any, o: Any) -> None:
            log.append("compute")
            assert op.service(Table, "left") is left
            assert op.service(Table) is left
            assert op.service(Table, "second") is op.service(Table, "right") is right
            assert left.service(Table, "right") is right
            assert op.conditions["once"].service(Table) is left

        app.add_operator(Step(app, CountCondition(app, 1, name="once"), left, body=body, name="step"))

    run(compose, scheduler)
    assert log == ["initialize left", "initialize right", "compute", "release right", "release left"]


def test_services_of_compose_end_with_their_run_and_others_stay() -> None:
    class Twice(Application):
        runs = 0

        def compose(self) -> None:
            if not self.runs:
                self.register_service(Calibration(2), "composed")
            self.runs += 1
            self.add_operator(Step(self, CountCondition(self, 1), body=lambda *_: None, name="step"))

    app = Twice([])
    app.register_service(Calibration(1), "before")
    for expected in (2, None):
        app.run()
        found = app.service(Calibration, "composed")
        assert (found and found.scale) == expected
        assert app.service(Calibration, "before") is not None


@pytest.mark.parametrize(
    "call",
    [
        lambda app: app.register_service(None),
        lambda app: app.register_service(Calibration),
        lambda app: app.register_service(Calibration(), 3),
        lambda app: app.service("Calibration"),
    ],
)
def test_what_is_no_service_is_refused(call: Any) -> None:
    with pytest.raises(TypeError, match="not"):
        call(Application([]))
