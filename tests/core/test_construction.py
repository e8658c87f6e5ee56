"""What conditions, resources and schedulers say to arguments that cannot be meant."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import headrace.conditions
import headrace.resources
import headrace.schedulers
from headrace import Application, Condition, CountCondition, EventBasedScheduler, Resource
from headrace.conditions import PeriodicCondition
from headrace.core import Arg, ParameterError
from headrace.resources import ThreadPool

CLASSES = sorted(
    {
        found
        for catalogue in (headrace.conditions, headrace.resources, headrace.schedulers)
        for name in catalogue.__all__
        if inspect.isclass(found := getattr(catalogue, name)) and issubclass(found, (Condition, Resource))
    },
    key=lambda found: found.__name__,
)


@pytest.fixture
def app() -> Application:
    return Application([])


@pytest.mark.parametrize("kind", CLASSES)
def test_a_first_argument_that_is_no_fragment_is_refused(kind: Any) -> None:
    for first in (5, "33ms", [1], Application):
        with pytest.raises(TypeError, match=rf"first argument of {kind.__name__} is the application"):
            kind(first)
        with pytest.raises(TypeError, match="is the application or fragment"):
            kind(fragment=first)


@pytest.mark.parametrize(
    ("call", "right"),
    [
        (lambda: CountCondition(5), "CountCondition(self, 5)"),  # type: ignore[arg-type]
        (lambda: CountCondition(5, name="five"), "CountCondition(self, 5, name='five')"),  # type: ignore[arg-type]
        (lambda: PeriodicCondition("33ms"), "PeriodicCondition(self, '33ms')"),  # type: ignore[arg-type]
        (lambda: ThreadPool(4), "ThreadPool(self, 4)"),  # type: ignore[arg-type]
        (lambda: EventBasedScheduler(4), "EventBasedScheduler(self, 4)"),  # type: ignore[arg-type]
    ],
)
def test_a_forgotten_fragment_is_answered_with_the_right_call(call: Any, right: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).endswith(f"inside compose: {right}")


def test_what_a_program_subclasses_is_checked_too(app: Application) -> None:
    class Above(Condition):
        def __init__(self, fragment: Any, threshold: int) -> None:
            super().__init__(fragment)
            self.threshold = threshold

    with pytest.raises(TypeError, match=r"Above.__init__ must pass it on: super\(\).__init__\(fragment, 2\)"):
        Above(2, 3)
    assert Above(app, 3).threshold == 3


@pytest.mark.parametrize("base", [Condition, Resource])
def test_a_class_of_the_program_declares_parameters(app: Application, base: Any) -> None:
    class Tuned(base):  # type: ignore[misc]
        gain: float

        def setup(self, spec: Any) -> None:
            spec.param("gain", 1.0, minimum=0)
            spec.param("device", "camera")

    made = Tuned(app, gain=2, name="tuned")
    assert (made.name, made.gain, made.device, list(made.spec.params)) == (
        "tuned",
        2.0,
        "camera",
        ["gain", "device"],
    )
    with pytest.raises(ParameterError, match="Tuned does not take 'gian'; it takes .*did you mean 'gain'"):
        Tuned(app, gian=2)
    with pytest.raises(ParameterError, match="parameter 'gain' of Tuned 'tuned' must be a float"):
        Tuned(app, gain="high")


@pytest.mark.parametrize("kind", CLASSES)
def test_an_unknown_keyword_is_refused_with_the_known_ones(app: Application, kind: Any) -> None:
    with pytest.raises(ParameterError, match=rf"{kind.__name__} does not take 'nonsense'; it takes .*'name'"):
        kind(app, nonsense=1)


def test_an_argument_too_many_is_answered_with_those_that_there_are(app: Application) -> None:
    with pytest.raises(
        TypeError, match=r"takes \(self\) by position and .*'worker_thread_number'.* by keyword"
    ):
        EventBasedScheduler(app, 4)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"takes \(self, count\) by position and 'name' by keyword"):
        CountCondition(app, 4, "four")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda app, *args, **kwargs: CountCondition(app, *args, **kwargs).count, "count"),
        (lambda app, *args, **kwargs: ThreadPool(app, *args, **kwargs).initial_size, "initial_size"),
        (
            lambda app, *args, **kwargs: EventBasedScheduler(app, *args, **kwargs).workers,
            "worker_thread_number",
        ),
    ],
    ids=["condition", "resource", "scheduler"],
)
def test_a_section_is_taken_as_keywords_and_a_keyword_wins_over_it(
    app: Application, make: Any, value: str
) -> None:
    app.config({"part": {value: 3}})
    section = app.from_config("part")
    assert make(app, section) == 3
    assert make(app, section, **{value: 2}) == 2
    assert make(app, Arg(value, 4), **{value: 2}) == 2
