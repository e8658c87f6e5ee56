"""Segments that are refused because of what operators declare, and segments that have to be recorded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Operator, op
from headrace.capture import CONTRACT, CaptureError, CaptureRefused
from headrace.conditions import BooleanCondition
from headrace.core import GraphError, IOSpec
from tests.gpu.refused_programs import emit_twice, program, sync_stream, use_host, use_metadata
from tests.gpu.segment_programs import (
    Sink,
    Source,
    Stage,
    Work,
    both,
    chain,
    run_with,
)

pytestmark = pytest.mark.usefixtures("of_this_process")


@op(capturable=True)
def yielding(frame: Any) -> Any:
    yield frame


@op(capturable=True)
def with_metadata(frame: Any, *, metadata: Any) -> Any:
    return frame


@op(on_error="skip", capturable=True)
def skipping(frame: Any) -> Any:
    return frame


def declared(make: Callable[[Any], Any], **flow: Any) -> Any:
    def compose(app: Any) -> None:
        middle = make(app)
        last = Stage(app, name="last")
        chain(app, Source(app, name="source"), middle)
        app.add_flow(middle, last, **flow)
        chain(app, last, Sink(app, name="sink"))
        app.capture(middle, last, name="declared")

    return compose


def stage_with(app: Any, *parts: Any, **attributes: Any) -> Any:
    stage = Stage(app, *parts, name="middle")
    for name, value in attributes.items():
        setattr(stage, name, value)
    return stage


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda app: stage_with(app, on_error="skip"), "'middle': it has on_error='skip'"),
        (lambda app: stage_with(app, on_error={"restart": 1}), "'middle': it has on_error="),
        (lambda app: stage_with(app, CountCondition(app, 90)), "'middle': it has the condition 'count"),
        (lambda app: stage_with(app, BooleanCondition(app)), "'middle': it has the condition 'boolean"),
        (lambda app: yielding(app, name="middle"), "'middle': the function yields"),
        (lambda app: with_metadata(app, name="middle"), "'middle': the function takes its metadata"),
        (lambda app: skipping(app, name="middle"), "'middle': it has on_error='skip'"),
        (
            lambda app: Work(
                app,
                body=sync_stream,
                inputs=(("in", {"size": 1, "policy": IOSpec.QueuePolicy.POP}),),
                name="middle",
            ),
            "operator 'middle' at",
        ),
    ],
)
def test_an_operator_whose_declarations_say_that_it_cannot_be_recorded(
    make: Callable[[Any], Any], reason: str
) -> None:
    with pytest.warns(CaptureRefused, match=re.escape(reason)) as warned:
        ran = both(declared(make))
    assert len(warned) == 1
    assert "segment 'declared'" in str(warned[0].message)
    assert ran.segment.state == "eager"


def test_an_operator_of_a_thread_pool() -> None:
    from tests.harness import event_based

    def compose(app: Any) -> None:
        declared(lambda app: stage_with(app))(app)
        pool = app.make_thread_pool("pool", 1)
        pool.add(next(one for one in app.graph if one.name == "middle"), True)

    with pytest.warns(CaptureRefused, match="'middle': it is assigned to a thread pool"):
        both(compose, scheduler=event_based)


def test_a_flow_inside_with_a_queue_of_its_own() -> None:
    with pytest.warns(CaptureRefused, match=r"has a size or a policy of its own"):
        both(declared(lambda app: stage_with(app), size=3))


# Operators that do not say that they may be captured.


class Inherits(Stage):
    """Has a compute of its own, and does not say anything about it."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)


class Camera(Stage):
    capturable = "it has a camera"


@op
def plain_function(frame: Any) -> Any:
    return frame


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda app: Inherits(app, name="middle"), "(Inherits) does not say that it may be captured"),
        (lambda app: plain_function(app, name="middle"), "(the function plain_function) does not say"),
        (lambda app: Camera(app, name="middle"), "'middle' is not captured: it has a camera"),
    ],
)
def test_an_operator_that_does_not_say_that_it_may_be_captured_is_an_error(
    make: Callable[[Any], Any], reason: str
) -> None:
    with pytest.raises(GraphError, match=re.escape(reason)) as raised:
        run_with(declared(make))
    if "does not say" in reason:
        assert CONTRACT in str(raised.value)
        assert "capturable" in str(raised.value)


def test_a_class_that_says_it_only_later_is_an_error() -> None:
    class Late(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")

    Late.capturable = True
    with pytest.raises(GraphError, match="must say capturable = True in its class statement"):
        run_with(declared(lambda app: Late(app, name="middle")))


# Strict.


@pytest.mark.parametrize("how", ["option", "environment"])
@pytest.mark.parametrize("body", [sync_stream, use_metadata, emit_twice])
def test_a_refusal_is_an_error_where_it_has_to_be_recorded(how: str, body: Callable[..., None]) -> None:
    compose = program(body, strict=how == "option")
    with pytest.raises(CaptureError, match="segment 'three' is not captured.*'middle'") as raised:
        run_with(compose, "strict" if how == "environment" else "")
    assert "segment 'three'" in str(raised.value)


def test_a_declaration_is_an_error_where_it_has_to_be_recorded() -> None:
    with pytest.raises(CaptureError, match="'middle': it has on_error"):
        run_with(declared(lambda app: stage_with(app, on_error="skip")), "strict")


def test_what_a_refused_recording_allocated_is_freed(
    of_this_process: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """After any number of refusals the memory is what it was."""
    caplog.set_level("CRITICAL", "headrace.run")  # pytest would keep the record, and with it the frames
    if not of_this_process.is_simulated:
        pytest.skip("counts the bytes of a simulated device")
    from headrace.gpu.sim.machine import current_machine

    def in_use() -> int:
        import gc

        gc.collect()
        memory = current_machine().devices[0].memory
        with memory._lock:
            memory._sort_freed()
            return int(memory.in_use)

    before = in_use()
    for body in (sync_stream, use_metadata, emit_twice, use_host):
        with pytest.warns(CaptureRefused):
            run_with(program(body))
        with pytest.raises(CaptureError):
            run_with(program(body), "strict")
        assert in_use() == before
    assert np.isfinite(before)
